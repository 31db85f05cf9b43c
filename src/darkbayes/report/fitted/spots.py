"""Where a model does well and where it does not, in numbers: among the surest rows, along columns, beyond the data."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from darkbayes.outcomes.words.base import HeldOut, Losses, Words
from darkbayes.outcomes.words.text import short
from darkbayes.report.fitted.folder import FittedRun
from darkbayes.tables.schema import Category, Number

GROUPS = 5
"""Parts of equal numbers of rows into which a column of numbers is cut to see where the model is least sure."""
LEAST_GROUP = 10
"""Rows that a part must have for anything to be said of it."""
REMARKABLE = 1.2
"""Times the usual uncertainty from which a part is worth a word."""
FIRST = 10
"""Rows that a curve over ever more rows begins with."""


def risks(words: Words, losses: Losses) -> tuple[np.ndarray, np.ndarray]:
    """The error on the share of rows that a method is surest of, for growing shares."""
    order = np.argsort(losses.unsure, kind="stable")
    count = np.arange(1, len(order) + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        risk = words.risk(np.cumsum(losses.distances[order] ** 2) / count)
    begin = min(FIRST, len(order)) - 1
    return count[begin:] / len(order), risk[begin:]


class Spot(NamedTuple):
    """A part of the rows, and how sure the model is there."""

    name: str
    """What is predicted."""
    column: str
    where: str
    rows: int
    uncertainty: float
    usual: float
    error: float
    usual_error: float


def least_sure(run: FittedRun, held: HeldOut) -> list[Spot]:
    """Where, along one of the columns, the student is least sure of each thing that it predicts, if it is anywhere."""
    typical, worst = run.words.typical, []
    parts = [
        (name, where, rows)
        for name, values in held.columns.items()
        for where, rows in _parts(run.columns[name], values)
        if LEAST_GROUP <= rows.sum() <= held.rows / 2
    ]
    for losses in run.words.losses(held.student, held.y):
        usual, usual_error = float(typical(losses.unsure)), float(typical(losses.distances))
        spots = [
            Spot(
                *(losses.name, name, where, int(rows.sum()), float(typical(losses.unsure[rows])), usual),
                *(float(typical(losses.distances[rows])), usual_error),
            )
            for name, where, rows in parts
        ]
        spot = max(spots, key=lambda spot: spot.uncertainty, default=None)
        worst += [spot] if spot is not None and spot.uncertainty > REMARKABLE * usual else []
    return worst


def can_be_cut(held: HeldOut) -> bool:
    """Whether there are rows enough to look for parts of which the model is least sure."""
    return bool(held.columns) and held.rows >= GROUPS * LEAST_GROUP


def _parts(column: Number | Category, values: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The parts of a column in words, and the rows of each."""
    if not isinstance(column, Number):
        for code in np.unique(values).tolist():
            yield f"is {column.categories[code]}" if code >= 0 else "is missing or unknown", values == code
        return
    missing = np.isnan(values)
    yield "is missing", missing
    if missing.all():
        return
    edges = np.unique(np.quantile(values[~missing], np.linspace(0, 1, GROUPS + 1)))
    for place, (low, high) in enumerate(pairwise(edges.tolist())):
        rows = (values >= low if place == 0 else values > low) & (values <= high)
        if rows.any():
            first, last = short(values[rows].min()), short(values[rows].max())
            if first == last:
                yield f"is {first}", rows
            elif place == 0:
                yield f"is {last} or less", rows
            else:
                yield f"is {first} or more" if high == edges[-1] else f"is from {first} to {last}", rows


class Beyond(NamedTuple):
    """How doubt grows along a column beyond the values that were seen."""

    name: str
    """What is predicted."""
    column: str
    value: float
    doubt: float
    usual: float
    """The mean over the values that were seen."""


def beyond(run: FittedRun) -> list[Beyond]:
    """What becomes of doubt beyond the seen range of each column of numbers, at the end where it is larger."""
    ends = []
    for course in run.dependence:
        column = run.columns[course["column"]]
        if not isinstance(column, Number):
            continue
        values = np.asarray(course["values"], np.float64)
        seen = (values >= column.low) & (values <= column.high)
        for name, doubts in run.words.courses(course):
            end = 0 if doubts[0] > doubts[-1] else -1
            if seen.any() and not seen[end] and not np.isnan(doubts).any():
                usual = float(doubts[seen].mean())
                ends.append(Beyond(name, column.name, float(values[end]), float(doubts[end]), usual))
    return ends


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Of the orders of two lists: 1 for the same order; NaN where one is constant.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.3]))
    1.0
    """
    ranks = [_ranks(values) for values in (a, b)]
    if any(np.ptp(places) == 0 for places in ranks):
        return math.nan
    return float(np.corrcoef(ranks)[0, 1].round(12))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Places in the order, the mean of their places for equal ones."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
