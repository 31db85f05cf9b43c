"""What is answered: predictions as JSON or as CSV."""

import csv
import io
import json
import math
from typing import Any

import numpy as np

from darkbayes.outcomes import Prediction, Target
from darkbayes.tables.cells import text_of

DIGITS = 7
"""Significant digits of an answer's numbers: those that a float32 has."""


def as_json(prediction: Prediction, target: Target, level: float, notes: list[str]) -> bytes:
    """The whole answer; what no JSON number can hold is null."""
    columns = {name: _plain(values) for name, values in target.answer(prediction, level).items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    answer = {"target": target.name, "task": target.task, "level": level, "predictions": rows, "notes": notes}
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()


def as_csv(prediction: Prediction, target: Target, level: float) -> bytes:
    """One line per row under a header, as `darkbayes predict` writes them."""
    columns = target.table(prediction, level)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*map(_plain, columns.values()), strict=True):
        writer.writerow(text_of(value) if isinstance(value, bool) else value for value in row)
    return text.getvalue().encode()


def _plain(values: np.ndarray) -> list[Any]:
    """Plain numbers without digits that mean nothing, None where one is not finite; or what else there is."""
    if values.dtype.kind != "f":
        return values.tolist()
    short = [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.ravel().tolist()]
    return np.asarray(short, object).reshape(values.shape).tolist()
