"""Scores of predictions that come in batches: sums are kept, rows are not."""

from collections import defaultdict
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.predictions import ClassPredictions, Predictions, RealPredictions
from darkbayes.tables.schema import ClassTarget, RealTarget

LEVEL = 0.9
"""Of the intervals whose coverage is told."""
BINS = 15
"""Of the confidence, for the calibration error."""


class Scores:
    """The scores of all predictions that were added.

    >>> target = ClassTarget("sold", ("no", "yes"))
    >>> scores, nothing = Scores(target), np.zeros(2)
    >>> told = ClassPredictions(np.asarray([[0.25, 0.75], [0.25, 0.75]]), nothing, nothing, nothing)
    >>> scores.add(told, np.asarray(["yes", "no"], object))
    >>> {row["metric"]: round(row["mean"], 3) for row in scores.rows("student")}
    {'log_likelihood': -0.837, 'error': 50.0, 'brier': 0.625, 'ece': 0.25}
    """

    def __init__(self, target: RealTarget | ClassTarget):
        self._target = target
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._squares: defaultdict[str, float] = defaultdict(float)
        self._gaps = np.zeros(BINS)
        self._number = 0

    def add(self, told: Predictions, y: np.ndarray) -> None:
        """Count predictions of rows whose targets are `y`, as files have them."""
        if isinstance(told, ClassPredictions) and isinstance(self._target, ClassTarget):
            found = self._classes(told, self._target.encode(y))
        elif isinstance(told, RealPredictions) and isinstance(self._target, RealTarget):
            found = _number(told, self._target, np.asarray(y, np.float64))
        else:
            raise InvalidInput(f"predictions of another kind than {self._target.name!r}: use the student's own")
        self._number += len(y)
        for metric, values in found.items():
            self._sums[metric] += float(values.sum())
            self._squares[metric] += float((values**2).sum())

    def _classes(self, told: ClassPredictions, y: np.ndarray) -> dict[str, np.ndarray]:
        own = told.probs[np.arange(len(y)), y]
        right, confidence = told.probs.argmax(axis=1) == y, told.probs.max(axis=1)
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        self._gaps += np.bincount(bins, right - confidence, BINS)
        with np.errstate(divide="ignore"):
            log = np.log(own)
        brier = (told.probs**2).sum(axis=1) - 2 * own + 1
        return {"log_likelihood": log, "error": 100.0 * ~right, "brier": brier}

    def rows(self, method: str) -> list[dict[str, Any]]:
        """The rows of results; the standard errors are over the examples."""
        if not self._number:
            raise InvalidInput(f"there is no row with {self._target.name!r} to score: is it empty everywhere?")
        n, found = self._number, []
        for metric, total in self._sums.items():
            mean = total / n
            se = np.sqrt(max(self._squares[metric] / n - mean**2, 0.0) / max(n - 1, 1))
            if metric == "squared_error":
                metric, mean, se = "rmse", np.sqrt(mean), se / (2 * np.sqrt(mean)) if mean else 0.0
            found.append(_row(method, metric, mean, se, n))
        if isinstance(self._target, ClassTarget):
            found.append(_row(method, "ece", float(np.abs(self._gaps).sum()) / n, None, n))
        return found


def _number(told: RealPredictions, target: RealTarget, y: np.ndarray) -> dict[str, np.ndarray]:
    low, high = told.interval(target, LEVEL)
    return {
        "log_likelihood": told.log_density(target, y),
        "squared_error": (told.mean - y) ** 2,
        "coverage_90": ((low <= y) & (y <= high)).astype(float),
    }


def _row(method: str, metric: str, mean: float, se: float | None, number: int) -> dict[str, Any]:
    error = None if se is None or not np.isfinite(se) else float(se)
    return {"method": method, "metric": metric, "mean": float(mean), "se": error, "examples": number, "trials": 1}
