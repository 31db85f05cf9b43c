"""A table in memory: its columns as they were guessed (`guessing`), and those that a schema reads."""

import dataclasses
import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import arrow, objects, quoted, read_cells, text_of
from darkbayes.tables.guessing import Column, Wishes, guess_columns
from darkbayes.tables.schema import Frame, TableSchema

SHOWN = 5  # How many names, lines or cells a message lists before it counts the others.
MOST_COMPARED = 1000  # Names, and characters of one, among which the nearest is sought: a header may have millions.


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of the same length, and where each row came from."""

    columns: dict[str, Column]
    """By name."""
    lines: np.ndarray
    """The number of each row's line, or its place among the rows."""
    unit: Literal["line", "row", "index"]
    """What `lines` counts: lines of a file from 1, rows of a file from 1, or rows in memory from 0."""
    source: str
    """What it was read from, as people call it."""
    notes: tuple[str, ...] = ()
    """What there is to know about how it was read, in words."""
    missing: Sequence[str] | None = None
    """The texts that say that a value is missing, if somebody named them."""

    @property
    def rows(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"{self.unit} {self.lines[row]}"


def from_columns(
    data: Any, names: Sequence[str] | None = None, source: str = "the data", wishes: Wishes | None = None
) -> Table:
    """Columns held in memory.

    Args:
        data: a frame of pandas, polars, pyarrow or another library that speaks Arrow, a dict of names and values, or a
            matrix.
        names: of the columns of a matrix.
        source: what messages call it.
        wishes: what the columns are, where it is not to be guessed.

    Returns:
        The table.

    >>> table = from_columns({"size": [1, 2.5, None], "colour": ["red", None, "blue"], "new": [True, False, True]})
    >>> [(name, column.kind) for name, column in table.columns.items()]
    [('size', 'number'), ('colour', 'text'), ('new', 'boolean')]
    >>> table.columns["size"].values
    array([1. , 2.5, nan])
    """
    refuse_lazy(data, source)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        named = [(str(name), data.iloc[:, k]) for k, name in enumerate(data.columns)]
    elif isinstance(data, dict):
        named = [(str(name), values) for name, values in data.items()]
    elif hasattr(data, "__arrow_c_stream__"):
        rows = arrow().table(data)
        named = list(zip(rows.column_names, rows.columns, strict=True))
    else:
        matrix = np.asarray(data)
        if matrix.ndim != 2:
            raise InvalidInput(f"{source} must have two dimensions, rows and columns, not the shape {matrix.shape}")
        names = [f"x{k}" for k in range(matrix.shape[1])] if names is None else list(names)
        if len(names) != matrix.shape[1]:
            raise InvalidInput(f"{source} has {matrix.shape[1]} columns, but {len(names)} names were given")
        named = [(name, matrix[:, k]) for k, name in enumerate(names)]
    require_distinct([name for name, _ in named], source)
    lengths = {name: len(values) for name, values in named}
    if len(set(lengths.values())) > 1:
        raise InvalidInput(f"the columns of {source} must be of one length, not {lengths}")
    return guessed_table(dict(named), np.arange(next(iter(lengths.values()), 0)), "index", source, wishes)


def refuse_lazy(data: Any, source: str) -> None:
    """Refuse a frame that is yet to be computed."""
    if hasattr(data, "collect"):
        raise InvalidInput(f"{source} is not computed yet: give it after .collect()")


def guessed_table(
    cells: Mapping[str, Any],
    lines: np.ndarray,
    unit: Literal["line", "row", "index"],
    source: str,
    wishes: Wishes | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """A table of these cells, whose columns are guessed but where somebody says what they are."""
    wishes = wishes or Wishes()
    table = Table({}, lines, unit, source, tuple(notes), wishes.missing)
    require_columns(list(wishes.kinds), list(cells), source)
    table.columns.update(guess_columns(cells, table.place, wishes))
    return table


def unusable(table: Table, name: str) -> InvalidInput:
    """What to raise where a column is needed that cannot be used."""
    problem = f"{table.source}: {table.columns[name].problem}, or leave the column out"
    return InvalidInput(problem, option="ignore", value=name)


def texts_of(column: Column) -> np.ndarray:
    """A column's values as categories."""
    if column.kind == "number":
        distinct, codes = np.unique(column.values, return_inverse=True)
        return objects(text_of(value) for value in distinct.tolist())[codes]
    return column.values


def frame_of(table: Table, schema: TableSchema, rows: np.ndarray | None = None) -> Frame:
    """The columns that a schema reads.

    Args:
        table: what they are taken from.
        schema: says which columns these are.
        rows: the indices of the rows; all by default.

    Returns:
        An array for each column, by name.

    >>> from darkbayes.tables.schema import Number
    >>> size = Number("size", 0.0, 1.0, 0.0, flagged=False, low=0.0, high=1.0, whole=False)
    >>> schema = TableSchema((size,), target=None)
    >>> frame_of(from_columns({"colour": ["red", "blue"], "size": ["1", "2"]}), schema)
    {'size': array([1., 2.])}
    """
    return _read(table, schema, schema.wanted, rows)


def target_of(table: Table, schema: TableSchema, rows: np.ndarray | None = None) -> np.ndarray:
    """The target's values, which its `encode` takes: numbers, or the names of classes; NaN or None where missing.

    Args:
        table: what they are taken from.
        schema: says what the target is.
        rows: the indices of the rows; all by default.

    Returns:
        A value for each row.
    """
    return schema.target.joined(_read(table, schema, schema.wanted_target, rows))


def _read(table: Table, schema: TableSchema, wanted: Mapping[str, Any], rows: np.ndarray | None) -> Frame:
    require_columns(list(wanted), list(table.columns), table.source)
    cells = {}
    for name in wanted:
        column = table.columns[name]
        if column.kind == "unusable" and column.cells is None:
            raise unusable(table, name)
        whole = column.values if column.cells is None else column.cells
        cells[name] = whole if rows is None else whole.take(rows)
    frame, strays = read_cells(cells, wanted, schema.missing)
    if strays:
        row, reason = strays[0]
        place = table.place(row if rows is None else int(rows[row]))
        raise InvalidInput(f"{table.source}: {place}: {reason}: correct it, or leave it empty if the value is missing")
    return {name: np.asarray(values) for name, values in frame.items()}


def require_distinct(names: Sequence[str], source: str) -> None:
    """Refuse names that occur twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        remedy = "rename them or delete all but one"
        raise InvalidInput(f"{source} has several columns of the name {listed(twice)}: {remedy}")


def require_columns(wanted: Sequence[str], names: Sequence[str], source: str) -> None:
    """Refuse a table in which columns are not there, and suggest what may be meant.

    >>> require_columns(["Size"], ["size", "colour"], "houses.csv")
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: houses.csv has no column 'Size': did you mean 'size'?
    """
    there = set(names)
    lacking = [name for name in wanted if name not in there]
    if lacking:
        spare = [name for name in names if name not in wanted]
        near = list(filter(None, (nearest(name, spare) for name in lacking[:SHOWN])))
        hint = f"did you mean {listed(near)}?" if near else f"its columns are {listed(names)}"
        raise InvalidInput(f"{source} has no column{'s' * (len(lacking) > 1)} {listed(lacking)}: {hint}")


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The name that is spelled most alike, if one is."""
    short = [other for other in names[:MOST_COMPARED] if len(other) <= MOST_COMPARED]
    folded = {other.casefold().strip(): other for other in reversed(short)}
    close = difflib.get_close_matches(name.casefold().strip()[:MOST_COMPARED], folded, n=1)
    return folded[close[0]] if close else None


def first_of(things: Sequence[Any], count: int | None = None) -> str:
    """The first few of some things for a message; `count` is how many there are if some were not kept."""
    more = (len(things) if count is None else count) - min(len(things), SHOWN)
    return "; ".join(map(str, things[:SHOWN])) + (f"; and {more} more" if more > 0 else "")


def listed(names: Sequence[Any]) -> str:
    """The first few of some names for a message.

    >>> listed(["a", "b"]), listed(list("abcdefgh"))
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 3 others")
    """
    shown = ", ".join(quoted(name) for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} others"
