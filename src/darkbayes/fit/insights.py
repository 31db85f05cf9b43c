"""How predictions and their uncertainty depend on each column: what a report shows and a person asks first.

One column at a time takes every value of a grid while the others stay what they are in a sample of training rows, and
the predictions are averaged over these rows. The grid of a number reaches beyond the range that was seen, to show what
the model says of what it does not know.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from darkbayes.outcomes import Prediction
from darkbayes.tables.schema import Category, Frame, Number, TableSchema

ROWS = 200
"""Training rows to average over, at most."""
POINTS = 41
"""Values of a number."""
BEYOND = 0.25
"""How far the grid of a number reaches beyond the seen range, as a share of it."""
MOST_COLUMNS = 12
"""Columns that are told, those first on which predictions depend most."""


def dependence(
    schema: TableSchema, frame: Frame, predict: Callable[[Frame], Prediction], seed: int = 0
) -> list[dict[str, Any]]:
    """What is predicted along each of the columns that matter most, in a form for JSON."""
    rows = len(next(iter(frame.values())))
    chosen = np.random.default_rng(seed).permutation(rows)[:ROWS]
    sample = {column.name: frame[column.name][chosen] for column in schema.columns}
    usual = np.maximum(np.std(predict(sample).course()["aim"], axis=0), 1e-12)
    courses = []
    for column in _candidates(schema, sample, predict, seed):
        values = grid(column)
        stacked = {name: np.tile(cells, len(values)) for name, cells in sample.items()}
        stacked[column.name] = np.repeat(values, len(chosen))
        means = {
            name: array.reshape(len(values), len(chosen), *array.shape[1:]).mean(axis=1)
            for name, array in predict(stacked).course().items()
        }
        courses.append(
            {"column": column.name, "values": values.tolist()}
            | {name: array.tolist() for name, array in means.items()}
            | {"effect": float(np.max(np.ptp(means["aim"], axis=0) / usual))}
        )
    return sorted(courses, key=lambda course: -course["effect"])[:MOST_COLUMNS]


def grid(column: Number | Category) -> np.ndarray:
    """Values of a column to ask for."""
    if isinstance(column, Category):
        return np.asarray([*column.categories, *([None] if column.flagged else [])], object)
    reach = BEYOND * (column.high - column.low)
    return np.linspace(column.low - reach, column.high + reach, POINTS)


def _candidates(
    schema: TableSchema, sample: Frame, predict: Callable[[Frame], Prediction], seed: int
) -> list[Number | Category]:
    """The columns whose shuffling changes predictions most; all of them where they are few."""
    if len(schema.columns) <= MOST_COLUMNS:
        return list(schema.columns)
    base, generator = predict(sample).course()["aim"], np.random.default_rng(seed)
    changes = []
    for column in schema.columns:
        shuffled = sample | {column.name: generator.permutation(sample[column.name])}
        changes.append(np.mean((predict(shuffled).course()["aim"] - base) ** 2))
    return [schema.columns[k] for k in np.argsort(changes)[::-1][:MOST_COLUMNS]]
