"""What the columns of a table are, found out from the rows that train.

Every choice that is made here is told in a note, and every column that is not used has its reason. What cannot be
decided, such as what to do with dates, is refused with what a person can do about it.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import NUMBER, missing_in
from darkbayes.tables.columns import Column, Table, listed, require_columns, unusable
from darkbayes.tables.schema import REACH, Category, Number, TableSchema, standardising

LEAST_ROWS = 10  # Rows with a target that a table must have.
FEW_ROWS = 50  # Rows with a target below which a note warns that they are few.
MOST_CATEGORIES = 50  # Categories of a column that get an input; the rarest of more count as unknown.
DISTINCT = 0.9  # Share of different values above which text is taken for an identifier.
MOST_WIDTH = 50_000  # Inputs that a network may have.


def rows_with_target(table: Table, targets: Sequence[str]) -> np.ndarray:
    """The indices of the rows that have a value of every target; fewer than `LEAST_ROWS` are refused.

    >>> from darkbayes.tables.columns import from_columns
    >>> rows_with_target(from_columns({"price": [None, *range(12)]}), ["price"])
    array([ 1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12])
    """
    if len(set(targets)) < len(targets):
        raise InvalidInput(f"the targets {listed(list(targets))} name a column twice: name each once")
    there = np.logical_and.reduce([~missing_in(_target_column(table, target).values) for target in targets])
    rows, name = np.flatnonzero(there), ", ".join(targets)
    if not len(rows):
        raise InvalidInput(f"{name!r} is missing in every row of {table.source}: there is nothing to learn")
    if len(rows) < LEAST_ROWS:
        count = f"{len(rows)} row{'s' * (len(rows) != 1)} with a value of {name!r}"
        needed = f"at least {LEAST_ROWS} are needed, and hundreds for results worth having"
        raise InvalidInput(f"{table.source} has {count}: {needed}")
    _require_finite(table, targets, rows)
    return rows


def infer_inputs(
    table: Table,
    targets: Sequence[str],
    *,
    ignore: Sequence[str] = (),
    usable: np.ndarray,
    rows: np.ndarray,
    chosen: bool = False,
) -> tuple[TableSchema, list[str]]:
    """A schema that does not say what is predicted yet, and every choice in words.

    `usable` are the indices of the rows that have a target, `rows` those of them that train: statistics are of these.
    Where somebody has `chosen` the columns to predict from, one that counts the rows is read as well.
    """
    require_columns(list(ignore), list(table.columns), table.source)
    both = [name for name in targets if name in ignore]
    if both:
        raise InvalidInput(f"{both[0]!r} is the target: it cannot be ignored as well")
    notes = []
    if len(usable) < FEW_ROWS:
        notes.append(f"{len(usable)} rows are few: expect wide intervals, and scores that another split would change")
    # In all rows: whether a table is accepted must not depend on which of them train.
    _require_finite(table, [name for name in table.columns if name not in ignore], usable)
    columns, ignored = _inputs(table, targets, set(ignore), rows, chosen, notes)
    schema = TableSchema(columns, None, ignored, REACH)
    if (width := schema.shape[0]) > MOST_WIDTH:
        problem = f"the columns of {table.source} make {width} inputs, more than {MOST_WIDTH}: leave some out"
        raise InvalidInput(problem, option="ignore")
    return schema, notes


def _target_column(table: Table, target: str) -> Column:
    if target not in table.columns and all(NUMBER.fullmatch(name) for name in table.columns):
        holds = f"its first line holds numbers ({listed(list(table.columns))})"
        remedy = "put a line with the names of the columns above it"
        raise InvalidInput(f"{table.source} has no column {target!r}, and {holds}: {remedy}")
    if target not in table.columns and len(table.columns) == 1:
        alone = f"{table.source} has no column {target!r}, and one column alone, {next(iter(table.columns))!r}"
        raise InvalidInput(f"{alone}: if something separates several in there, say what", option="delimiter")
    require_columns([target], list(table.columns), table.source)
    column = table.columns[target]
    if column.kind == "unusable":
        raise InvalidInput(f"{table.source}: the target {column.problem}")
    return column


def _inputs(
    table: Table, targets: Sequence[str], ignore: set[str], rows: np.ndarray, chosen: bool, notes: list[str]
) -> tuple[tuple[Number | Category, ...], dict[str, str]]:
    """The columns that a network reads, and the others with the reason."""
    columns: list[Number | Category] = []
    ignored: dict[str, str] = {}
    for name, column in table.columns.items():
        if name in targets:
            continue
        if name in ignore:
            used = "you asked to leave it out"
        elif column.kind == "unusable":
            raise unusable(table, name)
        elif column.kind == "number":
            used = _number(table, name, rows, chosen)
        else:
            used = _category(name, column, rows, notes)
        if isinstance(used, str):
            ignored[name] = used
        else:
            columns.append(used)
            notes += [column.note] if column.note else []
    reasons: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        notes.append(f"{listed(names)} {'is' if len(names) == 1 else 'are'} left out: {reason}")
    if not columns:
        why = "; ".join(f"{listed(names)} left out: {reason}" for reason, names in reasons.items())
        name, why = ", ".join(targets), why or "it is the only column"
        raise InvalidInput(f"{table.source} has no column to predict {name!r} from: {why}")
    return tuple(columns), ignored


def _number(table: Table, name: str, rows: np.ndarray, chosen: bool) -> Number | str:
    """A column of numbers, or why it is of no use."""
    whole_column = table.columns[name].values
    values = whole_column[rows]
    there = values[~np.isnan(values)]
    if not len(there):
        return "every value is missing"
    low, high, flagged = float(there.min()), float(there.max()), len(there) < len(values)
    if low == high and not flagged:
        return "every row has the same value"
    counts = whole_column[0] in (0, 1) and np.array_equal(whole_column, whole_column[0] + np.arange(table.rows))
    if counts and not chosen:
        return "it counts the rows"
    whole = bool((there == np.floor(there)).all())
    return Number(name, *standardising(there), float(np.median(there)), flagged, low, high, whole)


def _require_finite(table: Table, names: Sequence[str], rows: np.ndarray) -> None:
    for name in names:
        column = table.columns[name]
        infinite = rows[np.isinf(column.values[rows])] if column.kind == "number" else []
        if len(infinite):
            others = f" ({len(infinite)} such cells)" if len(infinite) > 1 else ""
            remedy = "correct it, or leave the cell empty if the value is missing"
            raise InvalidInput(f"{table.source}: {name!r} is infinite in {table.place(infinite[0])}{others}: {remedy}")


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
        apart = f"the {MOST_CATEGORIES} most frequent are told apart"
        others = f"the others ({share:.0%} of the rows) count as unknown"
        notes.append(f"{name!r} has {len(frequent)} categories: {apart}, {others}")
    return Category(name, tuple(sorted(kept)), bool(missing))
