"""What the columns of a table are, found out from the rows that train.

Every choice that is made here is told in a note, and every column that is not used has its reason. What cannot be
decided is refused with what a person can do about it. Whoever says what a column is (`Wishes`) has it read, be it an
identifier.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import NUMBER, missing_in
from darkbayes.tables.columns import Column, Table, listed, require_columns, unusable
from darkbayes.tables.moments import DAY, PARTS
from darkbayes.tables.schema import REACH, Category, Number, TableSchema, standardising

LEAST_ROWS = 10  # Rows with a target that a table must have.
FEW_ROWS = 50  # Rows with a target below which a note warns that they are few.
MOST_CATEGORIES = 50  # Categories of a column that get an input; the rarest of more count as unknown.
DISTINCT = 0.9  # Share of different values above which text is taken for an identifier.
FREE_WORDS, FREE_DISTINCT = 4, 0.5  # Words of a text, and share of different texts, from which on it is free text.
MOST_WIDTH = 50_000  # Inputs that a network may have.
YEARS = (1500, 2200)  # Whole numbers between them may be years.
AS_NUMBER = " (name it as a number to read it)"
"""How to overrule what is left out."""
_NAMED_SO = re.compile(r"(?i:(?:.*[\W_])?(?:id|ids|uid|uuid|guid|key|index|rowid|nr))|.*[a-z](?:Id|ID|Nr|Key)")
"""What columns that number the rows are called."""


def rows_with_target(table: Table, targets: Sequence[str]) -> np.ndarray:
    """The rows that have a value of every target; fewer than `LEAST_ROWS` are refused.

    Args:
        table: the table.
        targets: the names of the columns to predict.

    Returns:
        The indices of the rows.

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
    """Decide how a network reads the columns of a table.

    Args:
        table: the table.
        targets: the columns to predict, which are not read.
        ignore: columns to leave out.
        usable: the indices of the rows that have a target.
        rows: the indices of those of them that train, of which statistics are.
        chosen: whether somebody has chosen the columns, so that one that counts the rows is read as well.

    Returns:
        A schema that does not say yet what is predicted, and every choice in words.
    """
    require_columns(list(ignore), list(table.columns), table.source)
    both = [name for name in targets if name in ignore]
    if both:
        raise InvalidInput(f"{both[0]!r} is the target: it cannot be ignored as well")
    notes = list(table.notes)
    if len(usable) < FEW_ROWS:
        notes.append(f"{len(usable)} rows are few: expect wide intervals, and scores that another split would change")
    # In all rows: whether a table is accepted must not depend on which of them train.
    _require_finite(table, [name for name in table.columns if name not in ignore], usable)
    notes += [column.note for name in targets if (column := table.columns.get(name)) and column.note]
    inputs = _Inputs(table, targets, rows, chosen, notes)
    inputs.add([name for name in table.columns if name not in targets], set(ignore))
    marked = [column.source for name in targets if (column := table.columns.get(name)) and column.source is not None]
    sources, missing = (*inputs.sources, *marked), None if table.missing is None else ("", *table.missing)
    schema = TableSchema(tuple(inputs.columns), None, inputs.ignored, REACH, sources, missing)
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
        alone = f"{table.source} has no column {target!r}; its only one is {next(iter(table.columns))!r}"
        raise InvalidInput(f"{alone}: if these are several columns, say what separates them", option="delimiter")
    require_columns([target], list(table.columns), table.source)
    column = table.columns[target]
    if column.kind == "unusable":
        raise InvalidInput(f"{table.source}: the target {column.problem}")
    if column.kind in ("date", "words"):
        holds = f"{'dates' if column.kind == 'date' else 'free text'}, which cannot be predicted"
        remedy = "turn it into a number (say days until then) or into classes"
        raise InvalidInput(f"{table.source}: the target {target!r} holds {holds}: {remedy}")
    return column


class _Inputs:
    """The columns that a network reads, what makes them, and the others with the reason."""

    def __init__(self, table: Table, targets: Sequence[str], rows: np.ndarray, chosen: bool, notes: list[str]):
        self._table, self._targets, self._rows, self._chosen, self._notes = table, targets, rows, chosen, notes
        self.columns: list[Number | Category] = []
        self.sources: list[Any] = []
        self.ignored: dict[str, str] = {}
        self._same: dict[Any, str] = {}

    def add(self, names: Sequence[str], ignore: set[str]) -> None:
        """Look at these columns, and tell what was made of them."""
        for name in names:
            reason = "you asked to leave it out" if name in ignore else self._add(name, self._table.columns[name])
            self.ignored |= {name: reason} if reason else {}
        reasons: dict[str, list[str]] = {}
        for name, reason in self.ignored.items():
            reasons.setdefault(reason, []).append(name)
        for reason, several in reasons.items():
            self._notes.append(f"{listed(several)} {'is' if len(several) == 1 else 'are'} left out: {reason}")
        if not self.columns:
            why = "; ".join(f"{listed(several)} left out: {reason}" for reason, several in reasons.items())
            name, why = ", ".join(self._targets), why or "it is the only column"
            raise InvalidInput(f"{self._table.source} has no column to predict {name!r} from: {why}")
        twice = [name for name, count in Counter(column.name for column in self.columns).items() if count > 1]
        if twice:
            both = f"{listed(twice)} is both a column and made of another"
            raise InvalidInput(f"{both}: rename it in {self._table.source}")

    def _add(self, name: str, column: Column) -> str | None:
        """Take one in, or say why not."""
        if column.kind == "unusable":
            raise unusable(self._table, name)
        if (before := self._repeated(name, column)) is not None:
            return f"it repeats {before!r}"
        if column.kind in ("date", "words"):
            return self._spread(name, column)
        if column.kind == "number":
            used = self._identifies(name) if not (self._chosen or column.chosen) else None
            used = used or self._number(name, column.values[self._rows])
        else:
            used = self._category(name, column)
        if isinstance(used, str):
            return used
        self.columns.append(used)
        self.sources += [column.source] if column.source is not None else []
        self._notes += [column.note] if column.note else []
        return None

    def _identifies(self, name: str) -> str | None:
        """Why a column of numbers tells nothing but which row it is, if it does."""
        table, values = self._table, self._table.columns[name].values
        if len(values) and values[0] in (0, 1) and np.array_equal(values, values[0] + np.arange(table.rows)):
            return f"it counts the rows{AS_NUMBER}"
        if np.isnan(values).any() or (values != np.floor(values)).any() or len(np.unique(values)) < len(values):
            return None
        # Of rows that are some of a table, by where they were in it.
        counts = np.array_equal(values - values[0], table.lines - table.lines[0])
        through = len(values) >= FEW_ROWS and (counts or values.max() - values.min() == len(values) - 1)
        # Years may follow each other, too, and mean something.
        through = through and not (YEARS[0] <= values.min() and values.max() <= YEARS[1])
        if through or _NAMED_SO.fullmatch(name.strip()):
            return f"every row has a different whole number, as identifiers do{AS_NUMBER}"
        return None

    @staticmethod
    def _number(name: str, values: np.ndarray) -> Number | str:
        """A column of numbers, or why it is of no use."""
        there = values[~np.isnan(values)]
        if not len(there):
            return "every value is missing"
        low, high, flagged = float(there.min()), float(there.max()), len(there) < len(values)
        if low == high and not flagged:
            return "every row has the same value"
        whole = bool((there == np.floor(there)).all())
        return Number(name, *standardising(there), float(np.median(there)), flagged, low, high, whole)

    def _category(self, name: str, column: Column) -> Category | str:
        """A column of categories, or why it is of no use."""
        counts = Counter(column.values[self._rows].tolist())
        missing = counts.pop(None, 0)
        there = counts.total()
        if not there:
            return "every value is missing"
        if len(counts) == 1 and not missing:
            return "every row has the same value"
        if not column.chosen:
            words = sum(len(value.split()) * count for value, count in counts.items()) / there
            if words >= FREE_WORDS and len(counts) > FREE_DISTINCT * there:
                return "it is free text, which is not used unless it is named as text"
            if len(counts) > DISTINCT * there:
                return "text that differs in almost every row, as names and identifiers do"
        frequent = sorted(counts, key=lambda value: (-counts[value], value))
        kept = frequent[:MOST_CATEGORIES]
        if len(frequent) > MOST_CATEGORIES:
            share = sum(counts[value] for value in frequent[MOST_CATEGORIES:]) / there
            apart = f"the {MOST_CATEGORIES} most frequent are told apart"
            others = f"the others ({share:.0%} of the rows) count as unknown"
            self._notes.append(f"{name!r} has {len(frequent)} categories: {apart}, {others}")
        return Category(name, tuple(sorted(kept)), bool(missing))

    def _repeated(self, name: str, column: Column) -> str | None:
        """The column before it that has the same values."""
        if self._chosen or column.chosen:
            return None
        values = column.values
        key = hash(tuple(values.tolist()) if values.dtype == object else values.tobytes())
        before = self._same.setdefault((column.kind, key), name)
        return None if before == name or _constant(values) else before

    def _spread(self, name: str, column: Column) -> str | None:
        """The numbers that are made of dates or of text."""
        values, source = column.values[self._rows], column.source
        if column.kind == "date" and not np.isnan(values).all():
            # Counted from the first day on, whatever the hour.
            first = float(np.floor(np.nanmin(values) / DAY) * DAY)
            source = dataclasses.replace(source, origin=first, parts=("hour",) if source.clock else PARTS)
        made = {each: self._number(each, part) for each, part in source.spread(values).items()}
        used = {each: number for each, number in made.items() if isinstance(number, Number)}
        # Those that differ, or the first, which tells by itself where there is none.
        used = {each: number for each, number in used.items() if number.low < number.high} or dict([*used.items()][:1])
        for each in list(used)[1:]:
            used[each] = dataclasses.replace(used[each], flagged=False)
        if not used:
            return "every value is missing" if missing_in(values).all() else "every row has the same value"
        source = source.only(list(used))
        self.sources.append(source)
        self.columns += used.values()
        such = "free text, by hashes of its words"
        if column.kind == "date":
            kind = "times" if source.clock else "dates"
            such = f"{kind}, such as {source.example!r}{column.note}"
        made_of = f"{listed(list(used))} {'are' if len(used) > 1 else 'is'} made of it"
        self._notes.append(f"{name!r} is read as {such}: {made_of}")
        self._notes += [column.note] if column.note and column.kind == "words" else []
        return None


def _constant(values: np.ndarray) -> bool:
    """Whether there is one value alone, or none: then it is left out for that."""
    there = values[~missing_in(values)]
    return not len(there) or bool((there == there[0]).all())


def _require_finite(table: Table, names: Sequence[str], rows: np.ndarray) -> None:
    for name in names:
        column = table.columns[name]
        infinite = rows[np.isinf(column.values[rows])] if column.kind == "number" else []
        if len(infinite):
            others = f" ({len(infinite)} such cells)" if len(infinite) > 1 else ""
            remedy = "correct it, or leave the cell empty if the value is missing"
            raise InvalidInput(f"{table.source}: {name!r} is infinite in {table.place(infinite[0])}{others}: {remedy}")
