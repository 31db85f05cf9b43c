"""What is answered: predictions as JSON or as CSV."""

import csv
import io
import json
import math
from typing import Any

import numpy as np

from darkbayes.tables.predictions import Predictions, RealPredictions
from darkbayes.tables.schema import ClassTarget, RealTarget

LEVEL = 0.9
"""Of the intervals, if the request does not say."""
DIGITS = 7
"""Significant digits of an answer's numbers: those that a float32 has."""


def own_class(target: ClassTarget, name: str) -> str | int | bool:
    """A class as it is in the user's own files."""
    if target.kind == "integer":
        return int(name)
    return name.lower() == "true" if target.kind == "boolean" else name


def as_json(predictions: Predictions, target: RealTarget | ClassTarget, level: float, notes: list[str]) -> bytes:
    """The whole answer; what no JSON number can hold is null."""
    answer: dict[str, Any] = {"target": target.name}
    if isinstance(target, ClassTarget):
        answer |= {"task": "classification", "classes": [own_class(target, name) for name in target.classes]}
    else:
        answer |= {"task": "regression", "level": level}
    answer |= {"predictions": _rows(predictions, target, level), "notes": notes}
    return json.dumps(answer, allow_nan=False).encode()


def as_csv(predictions: Predictions, target: RealTarget | ClassTarget, level: float) -> bytes:
    """One line per row, under a header."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for place, row in enumerate(_rows(predictions, target, level)):
        if isinstance(target, ClassTarget):
            shown = {name: row[name] for name in ("prediction", "probability")}
            shown |= {f"probability_{name}": of for name, of in zip(target.classes, row["probs"], strict=True)}
            shown |= {name: row[name] for name in ("entropy", "expected_entropy", "mutual_information")}
        else:
            shown = {name: row[name] for name in ("mean", "std", "aleatoric_std", "epistemic_std")}
            shown |= {f"{end}_{100 * level:g}": of for end, of in zip(("lower", "upper"), row["interval"], strict=True)}
        if not place:
            writer.writerow(shown)
        writer.writerow(shown.values())
    return text.getvalue().encode()


def _rows(predictions: Predictions, target: RealTarget | ClassTarget, level: float) -> list[dict[str, Any]]:
    if isinstance(predictions, RealPredictions):
        assert isinstance(target, RealTarget)
        names = ("mean", "std", "aleatoric_std", "epistemic_std", "location", "spread")
        columns = [_rounded(getattr(predictions, name)) for name in names]
        low, high = (_rounded(end) for end in predictions.interval(target, level))
        ends = [list(pair) for pair in zip(low, high, strict=True)]
        return [dict(zip((*names, "interval"), row, strict=True)) for row in zip(*columns, ends, strict=True)]
    assert isinstance(target, ClassTarget)
    classes = [own_class(target, name) for name in target.classes]
    best = predictions.probs.argmax(axis=1)
    names = ("entropy", "expected_entropy", "mutual_information")
    columns: list[list[Any]] = [[classes[k] for k in best.tolist()], _rounded(predictions.probs.max(axis=1))]
    columns += [_rounded(getattr(predictions, name)) for name in names]
    columns.append([_rounded(row) for row in predictions.probs])
    return [
        dict(zip(("prediction", "probability", *names, "probs"), row, strict=True))
        for row in zip(*columns, strict=True)
    ]


def _rounded(values: np.ndarray) -> list[float | None]:
    """Plain numbers without digits that mean nothing; None where one is not finite."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]
