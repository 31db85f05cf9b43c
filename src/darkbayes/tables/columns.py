"""Columns as they were found, before anybody decided what a network makes of them.

A column is of numbers (float64, NaN where one is missing), of text or of truth values (strings, None where one is
missing), or it cannot be used; then it says why, and nobody minds unless the column is needed.

Text is taken for numbers if all of it reads as numbers (`cells`). A column in which most cells are numbers and a few
are not is not guessed at but refused.
"""

import dataclasses
import datetime
import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import NUMBER, PADDED, TRUTH, float_of, is_missing, objects, quoted, read_cells, text_of
from darkbayes.tables.schema import Frame, TableSchema

SHOWN = 5  # How many names, lines or cells a message lists before it counts the others.
MOST_COMPARED = 1000  # Names, and characters of one, among which the nearest is sought: a header may have millions.

_DECIMAL_COMMA = re.compile(r"[+-]?\d[\d.' ]*,\d+", re.ASCII)
_YEAR, _MONTH, _DAY = r"(?:\d{4}|\d{2})", r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12]\d|3[01])"
_CLOCK = (
    r"(?:[01]?\d|2[0-4]):[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?: ?[AaPp]\.?[Mm]\.?)?(?: ?(?:Z|[+-]\d\d:?\d\d|UTC|GMT))?"
)
_DATE = re.compile(
    rf"(?:\d{{4}}([-/.]){_MONTH}\1{_DAY}|{_DAY}([-/.]){_MONTH}\2{_YEAR}|{_MONTH}([-/.]){_DAY}\3{_YEAR}"
    rf"|{_DAY}[ -][A-Za-z]{{3,9}}[ -]{_YEAR}|[A-Za-z]{{3,9}} {_DAY},? \d{{4}})(?:[ T]{_CLOCK})?|{_CLOCK}",
    re.ASCII,
)


@dataclasses.dataclass(frozen=True)
class Column:
    """The values of one column."""

    kind: Literal["number", "text", "boolean", "unusable"]
    values: np.ndarray
    """float64 for numbers; strings and None for text and for truth values; nothing if it is unusable."""
    problem: str = ""
    """Why it is unusable, and what to do about it."""
    note: str = ""
    """What there is to know about how it was read."""
    cells: Any = None
    """What it was read from, where `values` does not say all of it: whoever knows what it should hold reads this."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of the same length, and where each row came from."""

    columns: dict[str, Column]
    lines: np.ndarray
    """The number of each row's line, or its place among the rows."""
    unit: Literal["line", "row", "index"]
    """What `lines` counts: lines of a file from 1, rows of a file from 1, or rows in memory from 0."""
    source: str
    """What it was read from, as people call it."""

    @property
    def rows(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"{self.unit} {self.lines[row]}"


def from_columns(data: Any, names: Sequence[str] | None = None, source: str = "the data") -> Table:
    """Columns held in memory: a pandas frame, a dict of names and values, or a matrix and the names of its columns.

    >>> table = from_columns({"size": [1, 2.5, None], "colour": ["red", None, "blue"], "new": [True, False, True]})
    >>> [(name, column.kind) for name, column in table.columns.items()]
    [('size', 'number'), ('colour', 'text'), ('new', 'boolean')]
    >>> table.columns["size"].values
    array([1. , 2.5, nan])
    """
    if hasattr(data, "dtypes") and hasattr(data, "columns"):
        named = [(str(name), data.iloc[:, k]) for k, name in enumerate(data.columns)]
    elif isinstance(data, dict):
        named = [(str(name), values) for name, values in data.items()]
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
    table = Table({}, np.arange(next(iter(lengths.values()), 0)), "index", source)
    table.columns.update({name: _column_of_values(name, values, table.place) for name, values in named})
    return table


def _column_of_values(name: str, values: Any, place: Callable[[int], str]) -> Column:
    """A column from an array, a pandas series or a list: of whatever Python holds."""
    values = values if hasattr(values, "dtype") else objects(values)
    if str(values.dtype) == "category":
        # Whoever declares categories means them, be they numbers.
        return Column("text", objects(text_of(value) for value in np.asarray(values.astype(object))))
    if values.dtype.kind in "iuf":
        # What pandas has for a missing number is none to numpy.
        values = values.to_numpy(np.float64, na_value=np.nan) if hasattr(values, "iloc") else values
        return Column("number", np.array(values, np.float64))
    if values.dtype.kind in "mM":
        return dates(name, str(next(iter(values), values.dtype)))
    values = np.asarray(values, object)
    plain = [None if is_missing(value) else value for value in values.tolist()]
    there = [value for value in plain if value is not None]
    for value in there:
        if isinstance(value, datetime.date | datetime.time | datetime.timedelta | np.datetime64):
            return dates(name, str(value))
        if not isinstance(value, str | Real | Decimal | np.bool_):
            return strange(name, type(value).__name__)
    if there and all(isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in there):
        numbers = np.asarray([np.nan if value is None else float_of(value) for value in plain])
        return Column("number", numbers, cells=values)
    codes: dict[str | None, int] = {}
    numbered = np.asarray([codes.setdefault(text_of(value), len(codes)) for value in plain], np.int64)
    return column_of_texts(name, list(codes), numbered, values, place)


def column_of_texts(
    name: str, texts: Sequence[str | None], codes: np.ndarray, cells: Any, place: Callable[[int], str]
) -> Column:
    """A column of text, which may prove to be of something else: its different cells, and the number of each row's."""
    counts = np.bincount(codes, minlength=len(texts))

    def holding(pattern: re.Pattern[str]) -> np.ndarray:
        return np.asarray([text is not None and pattern.fullmatch(text) is not None for text in texts], bool)

    def example(which: np.ndarray) -> str:
        return repr(texts[int(np.flatnonzero(which & (counts > 0))[0])])

    there = np.asarray([text is not None for text in texts], bool)
    total, numeric = counts[there].sum(), holding(NUMBER)
    padded = numeric & holding(PADDED)
    if counts[padded].any():
        note = f"{name!r} is read as categories, not numbers: {example(padded)} begins with a zero"
        return Column("text", objects(texts)[codes], note=note)
    if counts[numeric].sum() == total:
        values = np.asarray([float(text) if text is not None else np.nan for text in texts], np.float64)
        return Column("number", values[codes], cells=cells)
    if all(text is None or text.lower() in TRUTH for text in texts):
        return Column("boolean", objects(text and text.lower() for text in texts)[codes])
    dated, commas = holding(_DATE) & ~numeric, holding(_DECIMAL_COMMA)
    if counts[dated].sum() > total / 2:
        return dates(name, example(dated)[1:-1], cells)
    if counts[commas].any() and counts[commas | numeric].sum() == total:
        such = f"numbers with commas, such as {example(commas)}"
        return _unusable(name, f"{such}: write them with a decimal point (1.5), and nothing between thousands", cells)
    if counts[numeric].sum() > total / 2:
        strays = np.flatnonzero((there & ~numeric)[codes])
        others = f" ({len(strays)} such cells)" if len(strays) > 1 else ""
        such = f"numbers, but {place(int(strays[0]))} has {texts[int(codes[strays[0]])]!r}{others}"
        return _unusable(name, f"{such}: correct it, leave the cell empty if the value is missing", cells)
    return Column("text", objects(texts)[codes])


def _unusable(name: str, holds: str, cells: Any = None) -> Column:
    return Column("unusable", np.empty(0), f"{name!r} holds {holds}", cells=cells)


def dates(name: str, example: str, cells: Any = None) -> Column:
    """A column of dates, and why it cannot be used."""
    such = f"dates or times, such as {example!r}, which mean nothing to a network as they are"
    return _unusable(name, f"{such}: turn them into numbers (say days since the first, the month, the hour)", cells)


def strange(name: str, kind: str) -> Column:
    """A column of some other kind, and why it cannot be used."""
    such = f"values of the kind {kind}, which are neither numbers nor text"
    return _unusable(name, f"{such}: turn them into one of these")


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
    """The columns that a schema reads, of all rows or of those given by their indices.

    >>> from darkbayes.tables.schema import Number
    >>> size = Number("size", 0.0, 1.0, 0.0, flagged=False, low=0.0, high=1.0, whole=False)
    >>> schema = TableSchema((size,), target=None)
    >>> frame_of(from_columns({"colour": ["red", "blue"], "size": ["1", "2"]}), schema)
    {'size': array([1., 2.])}
    """
    return _read(table, schema.wanted, rows)


def target_of(table: Table, target: Any, rows: np.ndarray | None = None) -> np.ndarray:
    """The target's values, which its `encode` takes: numbers, or the names of classes; NaN or None where missing."""
    return target.joined(_read(table, target.columns, rows))


def _read(table: Table, wanted: Mapping[str, tuple[str, ...] | None], rows: np.ndarray | None) -> Frame:
    require_columns(list(wanted), list(table.columns), table.source)
    cells = {}
    for name in wanted:
        column = table.columns[name]
        if column.kind == "unusable" and column.cells is None:
            raise unusable(table, name)
        whole = column.values if column.cells is None else column.cells
        cells[name] = whole if rows is None else whole.take(rows)
    frame, strays = read_cells(cells, wanted)
    if strays:
        row, reason = strays[0]
        place = table.place(row if rows is None else int(rows[row]))
        raise InvalidInput(f"{table.source}: {place}: {reason}: correct it, or leave it empty if the value is missing")
    return frame


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
        near = list(filter(None, (nearest(name, names) for name in lacking[:SHOWN])))
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
