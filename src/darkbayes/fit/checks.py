"""What may be wrong with a table although a model of it scores well: leaks, and rows that drift along the file."""

import math
from typing import Any

import numpy as np

from darkbayes.fit.prepare import Prepared
from darkbayes.tables.schema import Category, Frame, TableSchema

ALONE, OTHERS = 0.98, 0.9
"""The share of the target's variance from which one column alone gives it away, and which no other may reach then."""
LEAST_DRIFT, CHANCE = 0.2, 1e-3
"""The distance of two distributions from which they are said to differ, and how often chance may say so of a table."""


def leaks(prepared: Prepared) -> list[dict[str, Any]]:
    """The columns that alone give the target away while no other does: `column`, `alone`, and what the `next` explains.

    A column alone predicts a row held out by the training rows whose value is the same, or between whose it lies.
    """
    schema, frame, held = prepared.schema, prepared.train_frame, prepared.held_out_frame
    if not isinstance(schema, TableSchema) or not isinstance(held, dict) or frame is None or prepared.held_out is None:
        return []
    if len(schema.columns) < 2:
        return []  # It is all that there is to predict by.
    target: Any = schema.target
    seen, truth = (target.indicators(np.asarray(data.y)) for data in (prepared.train, prepared.held_out))
    whole = np.sum((truth - seen.mean(axis=0)) ** 2)
    explained = {}
    for column in schema.columns:
        said = _between(as_numbers(column, frame), as_numbers(column, held), seen)
        explained[column.name] = float(1 - np.sum((truth - said) ** 2) / max(whole, 1e-300))
    best = max((share for share in explained.values() if share < ALONE), default=0.0)
    leaking = {name: share for name, share in explained.items() if share >= ALONE and best < OTHERS}
    return [{"column": name, "alone": share, "next": max(best, 0.0)} for name, share in leaking.items()]


def as_numbers(column: Any, frame: Frame) -> np.ndarray:
    """A column as numbers, categories by their place, NaN for what is missing or unknown."""
    if not isinstance(column, Category):
        return np.asarray(frame[column.name], np.float64)
    codes = {category: float(code) for code, category in enumerate(column.categories)}
    return np.asarray([codes.get(value, np.nan) for value in frame[column.name].tolist()])


def _between(known: np.ndarray, new: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What rows say of new ones by one column: the mean at its value, or a line between those of its neighbours."""
    said = np.tile(y.mean(axis=0), (len(new), 1))
    there, asked = ~np.isnan(known), ~np.isnan(new)
    if there.any():
        values, place, counts = np.unique(known[there], return_inverse=True, return_counts=True)
        for k in range(y.shape[1]):
            means = np.bincount(place, y[there, k]) / counts
            said[asked, k] = np.interp(new[asked], values, means)
    return said


def drift(prepared: Prepared) -> list[dict[str, Any]]:
    """The columns, and targets, that differ between the first and the last third of the training rows: `column`, `by`.

    `by` is the largest distance of their distribution functions; of categories, of the share of one of them. The
    largest comes first.
    """
    schema, frame = prepared.schema, prepared.train_frame
    if not isinstance(schema, TableSchema) or frame is None:
        return []
    target: Any = schema.target
    columns: dict[str, list[np.ndarray]] = {}
    for column in schema.columns:
        values = frame[column.name]
        if isinstance(column, Category):
            columns[column.name] = [(values == category).astype(np.float64) for category in column.categories]
        else:
            columns[column.name] = [np.asarray(values, np.float64)]
    columns[target.name] = list(target.indicators(np.asarray(prepared.train.y)).T)
    third = len(prepared.train.x) // 3
    if third < 2:
        return []
    tests = sum(map(len, columns.values()))
    # As Kolmogorov and Smirnov have it, for two samples of the same size.
    least = max(LEAST_DRIFT, math.sqrt(math.log(2 * tests / CHANCE) / third))

    def distance(part: np.ndarray) -> float:
        """Of the distribution functions of both thirds; what is missing does not count."""
        first, last = (np.sort(rows[~np.isnan(rows)]) for rows in (part[:third], part[-third:]))
        if not len(first) or not len(last):
            return 0.0
        every = np.concatenate([first, last])
        below = (np.searchsorted(values, every, side="right") / len(values) for values in (first, last))
        return float(np.max(np.abs(np.subtract(*below))))

    sizes = {name: max(map(distance, parts)) for name, parts in columns.items()}
    order = sorted((name for name, size in sizes.items() if size > least), key=lambda name: -sizes[name])
    return [{"column": name, "by": sizes[name]} for name in order]
