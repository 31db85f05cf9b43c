"""Whether a student's doubt is its teacher's far from the data: both are asked there, where the student never learned.

Probes are rows of which one number, or all, are moved by so many of their ranges to either side. Ratios are of the
student's spread to its teacher's, of everything and of the epistemic part alone (`Prediction.spreads`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from darkbayes.outcomes import Prediction
from darkbayes.tables.schema import Frame, Number, TableSchema

Predicts = Callable[[np.ndarray], Prediction]
MOVES = (1.0, 2.0, 5.0, 10.0, 100.0)
"""Ranges that numbers are moved by."""
WITHIN = 2.0
"""The factor by which a spread may differ to count as the same."""
ROWS, POINTS, BEYOND, MOST_COLUMNS = 20, 21, 2.0, 6
"""Of excursions: rows to average over, values of a number, ranges beyond what was seen, and columns that are told."""


def probes(schema: TableSchema, frame: Frame, rows: int, number: int | None = None, seed: int = 0) -> Frame:
    """So many rows of a frame, each with every number by itself and all at once moved by each distance either way.

    All such probes, or some `number` of them drawn at random, which alone are made.
    """
    several = [[column] for column in schema.numbers] + [list(schema.numbers)] * (len(schema.numbers) > 1)
    moves = [(columns, move) for columns in several for distance in MOVES for move in (-distance, distance)]
    if not moves:
        return {}
    rows = min(rows, len(next(iter(frame.values()))))
    chosen = np.arange(len(moves) * rows)
    if number is not None:
        chosen = np.random.default_rng(seed).permutation(chosen)[:number]
    which, row = np.divmod(chosen, rows)
    asked = {name: values[row] for name, values in frame.items()}
    for place, (columns, move) in enumerate(moves):
        moved = which == place
        for column in columns:
            asked[column.name][moved] += move * (column.high - column.low)
    return asked


def ratios(student: Prediction, teacher: Prediction) -> tuple[np.ndarray, np.ndarray]:
    """The student's spread over its teacher's, and of its epistemic part."""
    whole, doubt = (own / believed for own, believed in zip(student.spreads(), teacher.spreads(), strict=True))
    return whole, doubt


def within(ratio: np.ndarray) -> float:
    """The share of ratios that are about one."""
    return float(((ratio > 1 / WITHIN) & (ratio < WITHIN)).mean())


def check_outside(
    schema: TableSchema, frame: Frame, number: int, student: Predicts, teacher: Predicts, seed: int
) -> dict[str, Any] | None:
    """How student and teacher compare at so many probes, drawn at random; nothing of a table without numbers."""
    asked = probes(schema, frame, number, number, seed)
    if not asked:
        return None
    x = schema.encode(asked)
    whole, doubt = ratios(student(x), teacher(x))
    low, high = np.quantile(whole, (0.025, 0.975)).tolist()
    return {"probes": len(x), "within": within(whole), "epistemic_within": within(doubt), "low": low, "high": high}


def excursions(
    schema: TableSchema, frame: Frame, columns: list[str], student: Predicts, teacher: Predicts, seed: int
) -> list[dict[str, Any]]:
    """The doubt of student and teacher along numbers, far beyond what was seen: medians over rows, for JSON."""
    numbers = {column.name: column for column in schema.numbers}
    shown: list[Number] = [numbers[name] for name in columns if name in numbers][:MOST_COLUMNS]
    if not shown:
        return []
    chosen = np.random.default_rng(seed).permutation(len(next(iter(frame.values()))))[:ROWS]
    parts, grids = [], []
    for column in shown:
        reach = BEYOND * (column.high - column.low)
        grids.append(np.linspace(column.low - reach, column.high + reach, POINTS))
        part = {each.name: np.tile(frame[each.name][chosen], POINTS) for each in schema.columns}
        parts.append(part | {column.name: np.repeat(grids[-1], len(chosen))})
    x = schema.encode({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    spreads = (said.spreads()[0].reshape(len(shown), POINTS, -1) for said in (student(x), teacher(x)))
    courses = [np.median(each, axis=2) for each in spreads]
    return [
        {"column": column.name, "values": grid.tolist(), "student": own.tolist(), "teacher": believed.tolist()}
        | {"seen": [column.low, column.high]}
        for column, grid, own, believed in zip(shown, grids, *courses, strict=True)
    ]
