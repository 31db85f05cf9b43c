"""Columns as they were found, before anybody decided what a network makes of them.

A column is of numbers (float64, NaN where one is missing), of text or of truth values (strings, None where one is
missing), or it cannot be used; then it says why, and nobody minds unless the column is needed.

Text is taken for numbers if all of it reads as numbers, and cells that hold a marker such as ``NA`` are missing
(`MISSING`). A column in which most cells are numbers and a few are not is not guessed at but refused.
"""

import dataclasses
import datetime
import difflib
import math
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.schema import Category, Frame, Predicted, TableSchema

MISSING = frozenset(
    ("", "NA", "N/A", "n/a", "na", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "none", "?", "-")
)
"""Cells that say that a value is missing."""

SHOWN = 5
"""How many names, lines or cells a message lists before it counts the others."""

TRUTH = ("false", "true")
"""What truth values are called, however a file spells them."""

NUMBER = re.compile(r"(?i:[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity))")
"""What reads as a number."""

PADDED = re.compile(r"[+-]?0[0-9]+")
"""Digits that begin with a zero: codes rather than numbers."""

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
    """Columns held in memory: a pandas frame, a mapping of names to values, or a matrix.

    Args:
        data: A pandas ``DataFrame``, a dict of one-dimensional arrays or lists, or a two-dimensional array.
        names: The columns' names for a matrix; ``x0``, ``x1`` and so on unless given.
        source: What messages call the data.

    >>> table = from_columns({"size": [1, 2.5, None], "colour": ["red", None, "blue"], "new": [True, False, True]})
    >>> [(name, column.kind) for name, column in table.columns.items()]
    [('size', 'number'), ('colour', 'text'), ('new', 'boolean')]
    >>> table.columns["size"].values
    array([1. , 2.5, nan])
    """
    if hasattr(data, "dtypes") and hasattr(data, "columns"):
        found = [(str(name), data.iloc[:, k]) for k, name in enumerate(data.columns)]
    elif isinstance(data, dict):
        found = [(str(name), values) for name, values in data.items()]
    else:
        matrix = np.asarray(data)
        if matrix.ndim != 2:
            raise InvalidInput(f"{source} must have two dimensions, rows and columns, not the shape {matrix.shape}")
        names = [f"x{k}" for k in range(matrix.shape[1])] if names is None else list(names)
        if len(names) != matrix.shape[1]:
            raise InvalidInput(f"{source} has {matrix.shape[1]} columns, but {len(names)} names were given")
        found = [(name, matrix[:, k]) for k, name in enumerate(names)]
    require_distinct([name for name, _ in found], source)
    lengths = {name: len(values) for name, values in found}
    if len(set(lengths.values())) > 1:
        raise InvalidInput(f"the columns of {source} must be of one length, not {lengths}")
    lines = np.arange(next(iter(lengths.values()), 0))
    columns = {name: _column_of_values(name, values, lambda row: f"index {row}") for name, values in found}
    return Table(columns, lines, "index", source)


def _column_of_values(name: str, values: Any, place: Callable[[int], str]) -> Column:
    """A column from an array, a pandas series or a list."""
    if not hasattr(values, "dtype"):
        kept = np.empty(len(values), object)
        kept[:] = list(values)
        values = kept
    kind, told = getattr(values.dtype, "kind", "O"), str(values.dtype)
    if told == "category":
        # Whoever declares categories means them, be they numbers.
        return Column("text", objects(text_of(value) for value in np.asarray(values.astype(object))))
    if kind in "iuf":
        pandas = hasattr(values, "iloc")
        return Column("number", values.to_numpy(np.float64, na_value=np.nan) if pandas else values.astype(np.float64))
    if kind in "mM":
        return Column("unusable", np.empty(0), dates_problem(name, str(next(iter(values), told))))
    return column_of_objects(name, np.asarray(values, object), place)


def column_of_objects(name: str, values: np.ndarray, place: Callable[[int], str]) -> Column:
    """A column of whatever Python holds: numbers, strings, truth values, None."""
    plain = [None if _is_missing(value) else value for value in values.tolist()]
    there = [value for value in plain if value is not None]
    for value in there:
        if isinstance(value, datetime.date | datetime.time | datetime.timedelta | np.datetime64):
            return Column("unusable", np.empty(0), dates_problem(name, str(value)))
        if not isinstance(value, str | Real | Decimal | np.bool_):
            return Column("unusable", np.empty(0), kind_problem(name, type(value).__name__))
    if there and all(isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in there):
        return Column("number", np.asarray([np.nan if value is None else float(value) for value in plain]))
    codes: dict[str | None, int] = {}
    numbered = np.asarray([codes.setdefault(text_of(value), len(codes)) for value in plain], np.int64)
    return column_of_texts(name, list(codes), numbered, place)


def column_of_texts(
    name: str, distinct: Sequence[str | None], codes: np.ndarray, place: Callable[[int], str]
) -> Column:
    """A column of text, which may prove to be of something else.

    Args:
        name: The column's, for messages.
        distinct: Its different cells.
        codes: The number of each row's cell in `distinct`.
        place: Says in words where a row is.
    """
    # The last entry stands for missing cells, whatever marks them.
    texts = [None if text is None or text.strip() in MISSING else text.strip() for text in distinct]
    counts = np.bincount(codes, minlength=len(texts))

    def holding(pattern: re.Pattern[str]) -> np.ndarray:
        return np.asarray([text is not None and pattern.fullmatch(text) is not None for text in texts], bool)

    there = np.asarray([text is not None for text in texts], bool)
    total = counts[there].sum()
    numeric = holding(NUMBER)
    padded = numeric & holding(PADDED)
    if counts[padded].any():
        example = texts[int(np.flatnonzero(padded & (counts > 0))[0])]
        note = f"{name!r} is read as categories, not numbers: {example!r} begins with a zero"
        return Column("text", objects(texts)[codes], note=note)
    if counts[numeric].sum() == total:
        values = np.asarray([float(text) if text is not None else np.nan for text in texts], np.float64)
        return Column("number", values[codes])
    if all(text is None or text.lower() in TRUTH for text in texts):
        return Column("boolean", objects(text and text.lower() for text in texts)[codes])
    dates = holding(_DATE) & ~numeric
    if counts[dates].sum() > total / 2:
        return Column("unusable", np.empty(0), dates_problem(name, str(texts[int(np.flatnonzero(dates)[0])])))
    commas = holding(_DECIMAL_COMMA)
    if counts[commas].any() and counts[commas | numeric].sum() == total:
        example = texts[int(np.flatnonzero(commas)[0])]
        problem = (
            f"{name!r} holds numbers with commas, such as {example!r}: write them with a decimal point (1.5), and "
        )
        return Column("unusable", np.empty(0), problem + "nothing between thousands")
    if counts[numeric].sum() > total / 2:
        strays = np.flatnonzero((there & ~numeric)[codes])
        return Column("unusable", np.empty(0), _strays_problem(name, strays, texts[codes[strays[0]]], place))
    return Column("text", objects(texts)[codes])


def _strays_problem(name: str, strays: np.ndarray, first: str | None, place: Callable[[int], str]) -> str:
    others = f" ({len(strays)} such cells)" if len(strays) > 1 else ""
    return (
        f"{name!r} holds numbers, but {place(int(strays[0]))} has {first!r}{others}: correct it, leave the cell empty "
        f"if the value is missing{leave_out(name)}"
    )


def leave_out(name: str) -> str:
    """The remedy for every column but the target.

    >>> leave_out("crime rate")
    ", or leave the column out (--ignore 'crime rate')"
    """
    return f", or leave the column out (--ignore {shlex.quote(name)})"


def dates_problem(name: str, example: str) -> str:
    """Why a column of dates cannot be used."""
    return (
        f"{name!r} holds dates or times, such as {example!r}, which mean nothing to a network as they are: turn them "
        f"into numbers (say days since the first, the month, the hour){leave_out(name)}"
    )


def kind_problem(name: str, kind: str) -> str:
    """Why a column of some other kind cannot be used."""
    return (
        f"{name!r} holds values of the kind {kind}, which are neither numbers nor text: turn them into one of these"
        f"{leave_out(name)}"
    )


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return value.strip() in MISSING
    return isinstance(value, Real | Decimal) and math.isnan(value)


def text_of(value: Any) -> str | None:
    """A value as a category is called: whole numbers without a point, truth values in small letters."""
    if _is_missing(value):
        return None
    if isinstance(value, bool | np.bool_):
        return TRUTH[bool(value)]
    if isinstance(value, Real | Decimal):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value).strip()


def objects(values: Iterable[Any]) -> np.ndarray:
    """An array of strings and None, never of numpy's own strings."""
    listed = list(values)
    kept = np.empty(len(listed), object)
    kept[:] = listed
    return kept


def texts_of(column: Column, known: Sequence[str] = ()) -> np.ndarray:
    """A column's values as categories; truth values are spelled as in `TRUTH` if `known` are just these."""
    if column.kind == "number":
        distinct, codes = np.unique(column.values, return_inverse=True)
        return objects(text_of(value) for value in distinct.tolist())[codes]
    return spelled(column.values.tolist(), known) if column.kind == "text" else column.values


def spelled(texts: Sequence[str | None], known: Sequence[str]) -> np.ndarray:
    """Text as the categories `known` are spelled: truth values in small letters if these are what is known."""
    if known and set(known) <= set(TRUTH):
        return objects(text.lower() if text is not None and text.lower() in TRUTH else text for text in texts)
    return objects(texts)


def frame_of(table: Table, schema: TableSchema, rows: np.ndarray | None = None) -> Frame:
    """The columns that a schema reads, of all rows or of those given by their indices.

    >>> from darkbayes.tables.schema import Number
    >>> size = Number("size", 0.0, 1.0, 0.0, flagged=False, low=0.0, high=1.0, whole=False)
    >>> schema = TableSchema((size,), target=None)
    >>> frame_of(from_columns({"colour": ["red", "blue"], "size": [1, 2]}), schema)
    {'size': array([1., 2.])}
    """
    require_columns([column.name for column in schema.columns], list(table.columns), table.source)
    frame = {}
    for column in schema.columns:
        found = table.columns[column.name]
        _require_usable(found)
        values = texts_of(found, column.categories) if isinstance(column, Category) else _numbers(table, column.name)
        frame[column.name] = values if rows is None else values[rows]
    return frame


def target_of(table: Table, target: Predicted, rows: np.ndarray | None = None) -> np.ndarray:
    """The target's values, which its `encode` takes: numbers, or the names of classes; NaN or None where missing.

    Args:
        table: that holds it.
        target: what is predicted.
        rows: indices of the rows; all unless given.

    Returns:
        The values, with the rows along the first axis.
    """
    require_columns(list(target.columns), list(table.columns), table.source)
    values = {}
    for name, known in target.columns.items():
        _require_usable(table.columns[name])
        values[name] = _numbers(table, name) if known is None else texts_of(table.columns[name], known)
    joined = target.joined(values)
    return joined if rows is None else joined[rows]


def _numbers(table: Table, name: str) -> np.ndarray:
    column = table.columns[name]
    if column.kind == "number":
        return column.values
    row = next(k for k, value in enumerate(column.values) if value is not None)
    raise InvalidInput(
        f"{name!r} must hold numbers as when the model was fitted, but {table.place(row)} of {table.source} has "
        f"{column.values[row]!r}"
    )


def _require_usable(column: Column) -> None:
    if column.kind == "unusable":
        raise InvalidInput(column.problem)


def require_distinct(names: Sequence[str], source: str) -> None:
    """Refuse names that occur twice."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    twice = [name for name, count in seen.items() if count > 1]
    if twice:
        raise InvalidInput(
            f"{source} has several columns of the name {listed(twice)}: rename them or delete all but one"
        )


def require_columns(wanted: Sequence[str], names: Sequence[str], source: str) -> None:
    """Refuse a table in which columns are not there, and suggest what may be meant.

    >>> require_columns(["Size"], ["size", "colour"], "houses.csv")
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: houses.csv has no column 'Size': did you mean 'size'?
    """
    there = set(names)
    lacking = [name for name in wanted if name not in there]
    if not lacking:
        return
    near = [close for close in (nearest(name, names) for name in lacking[:SHOWN]) if close]
    hint = f"did you mean {listed(near)}?" if near else f"its columns are {listed(names)}"
    raise InvalidInput(f"{source} has no column{'s' * (len(lacking) > 1)} {listed(lacking)}: {hint}")


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The name that is spelled most alike, if one is."""
    folded = {other.casefold().strip(): other for other in reversed(names)}
    close = difflib.get_close_matches(name.casefold().strip(), folded, n=1)
    return folded[close[0]] if close else None


def listed(names: Sequence[Any]) -> str:
    """The first few of some names for a message.

    >>> listed(["a", "b"]), listed(list("abcdefgh"))
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 3 others")
    """
    shown = ", ".join(repr(name) for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} others"
