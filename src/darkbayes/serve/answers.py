"""What is answered: predictions as JSON or as CSV."""

import csv
import io
import json
import math
from typing import Any

import numpy as np

from darkbayes.tables.columns import TRUTH
from darkbayes.tables.predictions import Predictions, RealPredictions
from darkbayes.tables.schema import ClassTarget, RealTarget
from darkbayes.tables.writing import ENTROPIES, MOMENTS, as_in_files, prediction_columns

LEVEL = 0.9
"""Of the intervals, if the request does not say."""
DIGITS = 7
"""Significant digits of an answer's numbers: those that a float32 has."""


def as_json(predictions: Predictions, target: RealTarget | ClassTarget, level: float, notes: list[str]) -> bytes:
    """The whole answer; what no JSON number can hold is null."""
    if isinstance(target, ClassTarget):
        about: dict[str, Any] = {"task": "classification", "classes": as_in_files(target).tolist()}
    else:
        about = {"task": "regression", "level": level}
    columns = _columns(predictions, target, level)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    answer = {"target": target.name} | about | {"predictions": rows, "notes": notes}
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()


def as_csv(predictions: Predictions, target: RealTarget | ClassTarget, level: float) -> bytes:
    """One line per row under a header, as `darkbayes predict` writes them."""
    columns = prediction_columns(predictions, target, level)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*map(_written, columns.values()), strict=True))
    return text.getvalue().encode()


def _columns(predictions: Predictions, target: RealTarget | ClassTarget, level: float) -> dict[str, list[Any]]:
    """What is said of each row, by name."""
    if isinstance(predictions, RealPredictions):
        assert isinstance(target, RealTarget)
        names = (*MOMENTS, "location", "spread")
        ends = map(_listed, predictions.interval(target, level))
        return {name: _listed(getattr(predictions, name)) for name in names} | {"interval": [*zip(*ends, strict=True)]}
    assert isinstance(target, ClassTarget)
    return {
        "prediction": as_in_files(target)[predictions.probs.argmax(axis=1)].tolist(),
        "probability": _listed(predictions.probs.max(axis=1)),
        **{name: _listed(getattr(predictions, name)) for name in ENTROPIES},
        "probs": [_listed(row) for row in predictions.probs],
    }


def _written(values: np.ndarray) -> list[Any]:
    """A column as a CSV holds it."""
    if values.dtype == bool:
        return [TRUTH[value] for value in values.tolist()]
    return _listed(values) if values.dtype.kind == "f" else values.tolist()


def _listed(values: np.ndarray) -> list[float | None]:
    """Plain numbers without digits that mean nothing; None where one is not finite."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]
