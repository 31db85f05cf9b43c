"""How predictions and their uncertainty depend on each column: what a report shows and a person asks first.

One column at a time takes every value of a grid while the others stay what they are in a sample of training rows, and
the predictions are averaged over these rows. The grid of a number reaches beyond the range that was seen, to show what
the model says of what it does not know.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from darkbayes.estimates import estimate
from darkbayes.outcomes import Prediction
from darkbayes.tables.schema import Category, Frame, Number, TableSchema

ROWS = 200
"""Training rows to average over, at most."""
POINTS = 41
"""Values of a number."""
BEYOND = 0.25
"""How far the grid of a number reaches beyond the seen range, as a share of it."""
MOST_ROWS, SHUFFLES = 1_000, 5
"""Rows held out that the worth of a column is measured on, at most, and how often its values are exchanged."""
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
        if isinstance(column, Category):
            values = np.asarray([*column.categories, *([None] if column.flagged else [])], object)
        else:
            reach = BEYOND * (column.high - column.low)
            values = np.linspace(column.low - reach, column.high + reach, POINTS)
        stacked = {name: np.tile(cells, len(values)) for name, cells in sample.items()}
        stacked[column.name] = np.repeat(values, len(chosen))
        means = {
            name: array.reshape(len(values), len(chosen), *array.shape[1:]).mean(axis=1)
            for name, array in predict(stacked).course().items()
        }
        course = {"column": column.name, "values": values.tolist()}
        course |= {name: array.tolist() for name, array in means.items()}
        courses.append(course | {"effect": float(np.max(np.ptp(means["aim"], axis=0) / usual))})
    return sorted(courses, key=lambda course: -course["effect"])[:MOST_COLUMNS]


def importance(
    columns: Sequence[str], frame: Frame, truth: np.ndarray, predict: Callable[[Frame], Prediction], seed: int = 0
) -> list[dict[str, Any]]:
    """What each column is worth on rows held out, the most first, in a form for JSON.

    For each `column` it is the log likelihood a row that is lost, `mean` with its standard error `se`, when its values
    are exchanged between rows.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(truth))[:MOST_ROWS]
    sample, truth = {name: values[rows] for name, values in frame.items()}, truth[rows]
    base = predict(sample).log_prob(truth)
    lost = {name: np.zeros(len(rows)) for name in columns}
    for name in columns:
        for _ in range(SHUFFLES):
            order = rng.permutation(len(rows))
            lost[name] += (base - predict(sample | {name: sample[name][order]}).log_prob(truth)) / SHUFFLES
    each = [{"column": name} | estimate(values)._asdict() for name, values in lost.items()]
    worth = [{"column": one["column"], "mean": one["value"], "se": one["error"]} for one in each]
    return sorted(worth, key=lambda one: -one["mean"])


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
