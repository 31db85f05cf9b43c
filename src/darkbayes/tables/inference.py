"""What the columns of a table are, found out from the rows that train.

Every choice that is made here is told in a note, and every column that is not used has its reason. What cannot be
decided, such as what to do with dates, is refused with what a person can do about it.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.columns import Column, Table, frame_of, leave_out, listed, require_columns, target_of, texts_of
from darkbayes.tables.schema import Category, ClassTarget, Number, RealTarget, TableSchema
from darkbayes.tables.transform import TransformChoice, choose_transform

Task = Literal["auto", "regression", "classification"]

LEAST_ROWS = 10
"""Rows with a target that a table must have."""

FEW_ROWS = 50
"""Rows with a target below which a note warns that they are few."""

MOST_CATEGORIES = 50
"""Categories of a column that get an input; the rarest of more count as unknown."""

MOST_CLASSES = 1000
"""Classes that a target may have."""

MOST_COUNTED = 20
"""Different whole numbers, from 0 or 1 without a gap, that are taken for classes unless there are more."""

LEAST_SHARE = 3
"""Rows per class, on average, that whole numbers must have to be taken for classes."""

DISTINCT = 0.9
"""Share of different values above which text is taken for an identifier."""

MOST_WIDTH = 50_000
"""Inputs that a network may have."""


@dataclasses.dataclass(frozen=True)
class Inference:
    """What was found out about a table."""

    schema: TableSchema
    rows: np.ndarray
    """The rows that were looked at and have a target."""
    dropped: int
    """How many rows were looked at and have none."""
    transform: TransformChoice | None
    """How it was decided in what form to model a target that is a number."""
    notes: list[str]
    """Every choice, in words."""


def rows_with_target(table: Table, target: str, least: int = LEAST_ROWS) -> np.ndarray:
    """The indices of the rows that have a target; fewer than `least` are refused.

    >>> from darkbayes.tables.columns import from_columns
    >>> rows_with_target(from_columns({"price": [None, *range(12)]}), "price")
    array([ 1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12])
    """
    column = _target_column(table, target)
    rows = np.flatnonzero(~_missing(column))
    if not len(rows):
        raise InvalidInput(f"{target!r} is missing in every row of {table.source}: there is nothing to learn")
    if len(rows) < least:
        raise InvalidInput(
            f"{table.source} has {len(rows)} row{'s' * (len(rows) != 1)} with a value of {target!r}: at least "
            f"{least} are needed, and hundreds for results worth having"
        )
    return rows


def infer_schema(
    table: Table,
    target: str,
    *,
    task: Task = "auto",
    ignore: Sequence[str] = (),
    rows: np.ndarray | None = None,
    least: int = LEAST_ROWS,
    chosen: bool = False,
) -> Inference:
    """What a network reads and predicts, and how it was decided.

    Args:
        table: From `read_table` or `from_columns`.
        target: The name of the column to predict.
        task: Predict a number or a class; "auto" decides by the target's values. Text and truth values are classes,
            and so are whole numbers that take two values, or at most `MOST_COUNTED` from 0 or 1 without a gap, each
            `LEAST_SHARE` times on average.
        ignore: Columns to leave out.
        rows: Indices of the rows that train; statistics are of these alone. All rows unless given. Classes are those
            of the whole table.
        least: Rows with a target that there must be.
        chosen: Whether somebody chose the columns to predict from: then one that counts the rows is read as well.

    >>> from darkbayes.tables.columns import from_columns
    >>> columns = {"size": range(20), "shop": ["a"] * 20, "price": [k + 0.5 for k in range(20)]}
    >>> found = infer_schema(from_columns(columns), "price", ignore=["size"])
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: the data has no column to predict 'price' from: 'size', 'shop' ...
    """
    usable = rows_with_target(table, target, least)
    require_columns(list(ignore), list(table.columns), table.source)
    if target in ignore:
        raise InvalidInput(f"{target!r} is the target: it cannot be ignored as well")
    looked_at = np.arange(table.rows) if rows is None else np.asarray(rows)
    kept = looked_at[np.isin(looked_at, usable)]
    dropped = len(looked_at) - len(kept)
    notes = [f"{dropped} row{'s have' if dropped > 1 else ' has'} no {target!r} and teach nothing"] if dropped else []
    if len(usable) < FEW_ROWS:
        notes.append(f"{len(usable)} rows are few: expect wide intervals, and scores that another split would change")
    # In all rows: whether a table is accepted must not depend on which of them train.
    for name, column in table.columns.items():
        if column.kind == "number" and name not in ignore:
            _require_finite(table, name, usable)
    columns, ignored = _inputs(table, target, set(ignore), kept, chosen, notes)
    classes = is_classes(table, target, task, usable, notes)
    if classes:
        schema = TableSchema(columns, _class_target(table, target, usable, kept, notes), ignored)
    else:
        schema = TableSchema(columns, _real_target(table, target, kept), ignored)
    _require_width(table, schema)
    transform = None
    if isinstance(schema.target, RealTarget):
        y = target_of(table, schema.target, kept)
        transform = choose_transform(schema.encode(frame_of(table, schema, kept)), y)
        schema = dataclasses.replace(schema, target=_standardised(schema.target, transform.transform, y))
        notes.append(f"{target!r} is a number; {transform}")
    return Inference(schema, kept, dropped, transform, notes)


def _target_column(table: Table, target: str) -> Column:
    if target not in table.columns and all(_reads_as_number(name) for name in table.columns):
        raise InvalidInput(
            f"{table.source} has no column {target!r}, and its first line holds numbers ({listed(list(table.columns))})"
            ": put a line with the names of the columns above it"
        )
    if target not in table.columns and len(table.columns) == 1:
        raise InvalidInput(
            f"{table.source} has no column {target!r}, and one column alone, {next(iter(table.columns))!r}: if "
            "something separates several in there, say what (--delimiter)"
        )
    require_columns([target], list(table.columns), table.source)
    column = table.columns[target]
    if column.kind == "unusable":
        raise InvalidInput(f"{table.source}: the target {column.problem.replace(leave_out(target), '')}")
    return column


def _reads_as_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _missing(column: Column) -> np.ndarray:
    if column.kind == "number":
        return np.isnan(column.values)
    return np.asarray([value is None for value in column.values.tolist()], bool)


def _inputs(
    table: Table, target: str, ignore: set[str], rows: np.ndarray, chosen: bool, notes: list[str]
) -> tuple[tuple[Number | Category, ...], dict[str, str]]:
    """The columns that a network reads, and the others with the reason."""
    columns: list[Number | Category] = []
    ignored: dict[str, str] = {}
    for name, column in table.columns.items():
        if name == target:
            continue
        if name in ignore:
            ignored[name] = "you asked to leave it out"
            continue
        if column.kind == "unusable":
            raise InvalidInput(f"{table.source}: {column.problem}")
        found = _number(table, name, rows, chosen) if column.kind == "number" else _category(name, column, rows, notes)
        if isinstance(found, str):
            ignored[name] = found
            continue
        columns.append(found)
        notes += [column.note] if column.note else []
    reasons: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        notes.append(f"{listed(names)} {'is' if len(names) == 1 else 'are'} left out: {reason}")
    if not columns:
        why = "; ".join(f"{listed(names)} left out: {reason}" for reason, names in reasons.items())
        raise InvalidInput(f"{table.source} has no column to predict {target!r} from: {why or 'it is the only column'}")
    return tuple(columns), ignored


def _number(table: Table, name: str, rows: np.ndarray, chosen: bool) -> Number | str:
    """A column of numbers, or why it is of no use."""
    whole_column = table.columns[name].values
    values = whole_column[rows]
    there = values[~np.isnan(values)]
    if not len(there):
        return "every value is missing"
    low, high = float(there.min()), float(there.max())
    flagged = len(there) < len(values)
    if low == high and not flagged:
        return "every row has the same value"
    counts = whole_column[0] in (0, 1) and np.array_equal(whole_column, whole_column[0] + np.arange(table.rows))
    if counts and not chosen:
        return "it counts the rows"
    center, scale = _moments(there)
    return Number(
        name, center, scale, float(np.median(there)), flagged, low, high, bool((there == np.floor(there)).all())
    )


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation, even of numbers whose squares are none; one for a deviation of zero."""
    reach = float(np.abs(values).max()) or 1.0
    return float((values / reach).mean() * reach), float((values / reach).std() * reach) or 1.0


def _require_finite(table: Table, name: str, rows: np.ndarray) -> None:
    infinite = rows[np.isinf(table.columns[name].values[rows])]
    if len(infinite):
        others = f" ({len(infinite)} such cells)" if len(infinite) > 1 else ""
        raise InvalidInput(
            f"{table.source}: {name!r} is infinite in {table.place(infinite[0])}{others}: correct it, or leave the "
            "cell empty if the value is missing"
        )


def _category(name: str, column: Column, rows: np.ndarray, notes: list[str]) -> Category | str:
    """A column of categories, or why it is of no use."""
    counts = Counter(column.values[rows].tolist())
    missing = counts.pop(None, 0)
    there = counts.total()
    if not there:
        return "every value is missing"
    if len(counts) == 1 and not missing:
        return "every row has the same value"
    if len(counts) > DISTINCT * there:
        return "it is text and almost every row has another value, as names and identifiers have"
    frequent = sorted(counts, key=lambda value: (-counts[value], value))
    kept = frequent[:MOST_CATEGORIES]
    if len(frequent) > MOST_CATEGORIES:
        share = sum(counts[value] for value in frequent[MOST_CATEGORIES:]) / there
        notes.append(
            f"{name!r} has {len(frequent)} categories: the {MOST_CATEGORIES} most frequent are told apart, the others "
            f"({share:.0%} of the rows) count as unknown"
        )
    return Category(name, tuple(sorted(kept)), bool(missing))


def is_classes(table: Table, target: str, task: Task, rows: np.ndarray, notes: list[str]) -> bool:
    """Whether the target is a class, by its values in the rows that have one; a choice is added to the notes."""
    column = table.columns[target]
    if task not in ("auto", "regression", "classification"):
        raise InvalidInput(f"task must be auto, regression or classification, not {task!r}")
    if column.kind != "number":
        if task == "regression":
            example = column.values[rows[0]]
            raise InvalidInput(
                f"regression predicts numbers, but {target!r} holds {example!r}: use --task classification"
            )
        return True
    _require_finite(table, target, rows)
    values = column.values[rows]
    whole = bool((values == np.floor(values)).all())
    if task == "classification" and not whole:
        example = values[values != np.floor(values)][0]
        raise InvalidInput(
            f"classification predicts classes, but {target!r} holds the number {example}: use --task regression"
        )
    if task != "auto" or not whole:
        return task == "classification"
    distinct = np.unique(values)
    gapless = (
        len(distinct) <= MOST_COUNTED and distinct[0] in (0, 1) and distinct[-1] - distinct[0] == len(distinct) - 1
    )
    if len(distinct) != 1 and (gapless or len(distinct) == 2) and len(values) >= LEAST_SHARE * len(distinct):
        notes.append(
            f"{target!r} holds {len(distinct)} different whole numbers, which are taken for classes (otherwise: "
            "--task regression)"
        )
        return True
    return False


def _class_target(table: Table, target: str, usable: np.ndarray, rows: np.ndarray, notes: list[str]) -> ClassTarget:
    column = table.columns[target]
    values = texts_of(column)
    counts = Counter(values[usable].tolist())
    if len(counts) == 1:
        raise InvalidInput(
            f"{table.source}: {target!r} is {next(iter(counts))!r} in every row: to tell classes apart, there must be "
            "examples of at least two"
        )
    if len(counts) > MOST_CLASSES or len(counts) > DISTINCT * len(usable):
        raise InvalidInput(
            f"{table.source}: {target!r} has {len(counts)} different values in {len(usable)} rows: too many for "
            "classes. Is it the right column?"
        )
    if column.kind != "number":
        notes.append(f"{target!r} is one of {len(counts)} classes: {listed(sorted(counts))}")
    taught = set(values[rows].tolist())
    if len(taught) == 1:
        raise InvalidInput(f"{target!r} is {next(iter(taught))!r} in every row that trains: train on more rows")
    rare = [name for name, count in counts.items() if count == 1]
    if rare:
        notes.append(
            f"{target!r} is {listed(rare)} in a single row{' each' * (len(rare) > 1)}: little can be learnt of it"
        )
    if column.kind == "number":
        return ClassTarget(target, tuple(sorted(counts, key=float)), "integer")
    return ClassTarget(target, tuple(sorted(counts)), "boolean" if column.kind == "boolean" else "text")


def _real_target(table: Table, target: str, rows: np.ndarray) -> RealTarget:
    values = table.columns[target].values[rows]
    if len(values) == 0 or values.min() == values.max():
        told = f"is {values[0]:g} in every row" if len(values) else "has no value in the rows that train"
        raise InvalidInput(f"{table.source}: {target!r} {told}: there is nothing to learn")
    return _standardised(RealTarget(target, "identity", 0.0, 1.0, 0.0, 1.0), "identity", values)


def _standardised(target: RealTarget, transform: Literal["identity", "log"], y: np.ndarray) -> RealTarget:
    center, scale = _moments(np.log(y) if transform == "log" else y)
    return RealTarget(target.name, transform, center, scale, float(y.min()), float(y.max()))


def _require_width(table: Table, schema: TableSchema) -> None:
    width = schema.shape[0]
    if width > MOST_WIDTH:
        raise InvalidInput(
            f"the columns of {table.source} make {width} inputs, more than {MOST_WIDTH}: leave some out with --ignore"
        )
