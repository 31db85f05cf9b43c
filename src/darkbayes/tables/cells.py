"""What a cell says, whoever brings it: files, frames in memory and requests all read their rows by this page.

`number_of` and `category_of` read one cell; `read_cells` reads columns of them, at the speed of arrow where it can.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.schema import Coded, Frame

_GAPS = ("", "NA", "N/A", "n/a", "na", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "none", "?", "-")
MISSING = frozenset(_GAPS)
"""Texts that say that a value is missing, unless somebody names others."""
EMPTY = frozenset(("",))  # The one that says so in any case.
TRUTH = ("false", "true")  # What truth values are called, however they are spelled.
SPELLED = {word: TRUTH[0] for word in ("false", "f", "no", "n", "off", "0")} | {
    word: TRUTH[1] for word in ("true", "t", "yes", "y", "on", "1")
}
"""What truth values may be called, in small letters, in a column of them."""
NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)")
"""What reads as a number."""
PADDED = re.compile(r"[+-]?0[0-9]+")  # Digits that begin with a zero: codes rather than numbers.
MOST_QUOTED = 60  # Characters of a value that messages quote.


def gaps(missing: Iterable[str] | None, text: bool) -> frozenset[str]:
    """The texts that say that a value is missing, in a column of text or another, if somebody says which.

    What is a value in a column of text is none in one of numbers or dates.

    >>> sorted(gaps(["?"], text=True)), gaps(["?"], text=False) == gaps(None, text=True) == MISSING
    (['', '?'], True)
    """
    said = MISSING if missing is None else EMPTY.union(map(str.strip, missing))
    return said if text else said | MISSING


def is_missing(value: Any, missing: frozenset[str] = MISSING) -> bool:
    """Whether a cell holds no value: None, NaN, what pandas has for it, or one of the texts that are `missing`."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return value.strip() in missing
    return isinstance(value, Real | Decimal) and value != value


def number_of(value: Any, missing: frozenset[str] = MISSING) -> float:
    """The number that a cell holds, NaN where it is missing; a ValueError says what another cell is.

    >>> number_of(" 12 "), number_of(12), number_of("NA")
    (12.0, 12.0, nan)
    """
    if is_missing(value, missing):
        return math.nan
    if isinstance(value, str):
        fits = NUMBER.fullmatch(value.strip())
    else:
        fits = isinstance(value, Real | Decimal) and not isinstance(value, bool)
    if not fits:
        raise ValueError(f"{quoted(value)}, not a number")
    number = float_of(value)
    if math.isinf(number):
        raise ValueError("infinite")
    return number


def float_of(value: Any) -> float:
    """A number as a double, which is infinite where none can hold it."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def text_of(value: Any, missing: frozenset[str] = MISSING) -> str | None:
    """A value as a category is called: whole numbers without a point, truth values in small letters."""
    if is_missing(value, missing):
        return None
    if isinstance(value, bool | np.bool_):
        return TRUTH[bool(value)]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Real | Decimal):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value).strip()


def category_of(value: Any, known: tuple[str, ...], missing: frozenset[str] = MISSING) -> str | None:
    """The category that a cell holds, one of those known in whatever spelling, else what it says; None if missing.

    >>> category_of("YES", ("false", "true")), category_of(1.0, ("0", "1")), category_of("1.0", ("0", "1"))
    ('true', '1', '1')
    """
    if not (is_missing(value) or isinstance(value, str | Real | Decimal | np.bool_)):
        raise ValueError(f"{quoted(value)}, not a text")
    text = text_of(value, missing)
    if text is None:
        return None
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("half of a surrogate pair, which is not text")
    names = _names(known)
    if known and set(known) <= set(TRUTH):
        return SPELLED.get(_called(text).lower(), text)
    return names[text] if text in names else names.get(_called(text), text)


def _called(text: str) -> str:
    """What truth values, and numbers, are called however they are spelled."""
    if text.lower() in TRUTH:
        return text.lower()
    number = NUMBER.fullmatch(text) and not PADDED.fullmatch(text)
    return str(text_of(float(text))) if number and math.isfinite(float(text)) else text


@functools.lru_cache(256)
def _names(known: tuple[str, ...]) -> dict[str, str]:
    return {_called(name): name for name in reversed(known)} | {name: name for name in known}


def objects(values: Iterable[Any]) -> np.ndarray:
    """An array of strings and None, never of numpy's own strings."""
    return np.fromiter(values, object)


def missing_in(values: np.ndarray) -> np.ndarray:
    """Which values of a frame's column are not there."""
    if values.dtype == object:
        return np.asarray([value is None for value in values.tolist()], bool)
    return np.isnan(values)


def quoted(value: Any) -> str:
    """A value for a message: short, and never a nested one in full.

    >>> quoted("red"), quoted(["red"]), quoted("x" * 100)[-10:]
    ("'red'", 'a list', 'xxxxxxx...')
    """
    for kind, word in ((dict, "an object"), (list, "a list"), (np.ndarray, "an array")):
        if isinstance(value, kind):
            return word
    if isinstance(value, int) and abs(value) >= 10**MOST_QUOTED:
        return "a huge number"
    shown = repr(value[: MOST_QUOTED + 1] if isinstance(value, str) else value)
    return shown if len(shown) <= MOST_QUOTED + 2 else shown[:MOST_QUOTED] + "..."


def read_cells(
    cells: Mapping[str, Any], wanted: Mapping[str, Any], missing: Iterable[str] | None = None
) -> tuple[Frame, list[tuple[int, str]]]:
    """The columns that are wanted (`TableSchema.wanted`), and the rows that hold something else: each once, and why.

    `missing` are the texts that somebody named as `gaps`.
    """
    frame, strays, texts, others = {}, {}, gaps(missing, text=True), gaps(missing, text=False)
    for name, known in wanted.items():
        if known is None:
            frame[name], wrong = _numbers(cells[name], others)
        elif isinstance(known, tuple):
            frame[name], wrong = _categories(cells[name], known, texts)
        else:
            values, wrong = known.read(cells[name], texts if known.kind == "text" else others)
            frame |= known.spread(values)
        strays = {row: f"{name!r} is {reason}" for row, reason in wrong.items()} | strays
    return frame, sorted(strays.items())


def each_cell(cells: Any, read: Callable[[Any], Any], kind: Any) -> tuple[np.ndarray, dict[int, str]]:
    """What `read` makes of every cell, as an array of this kind, and the rows where it raised a ValueError, and why.

    A text that occurs many times is read once.
    """
    if isinstance(cells, np.ndarray):
        return _each(cells, read, np.empty(len(cells), kind))
    if not is_text(cells.type):
        return _each(objects(cells.to_pylist()), read, np.empty(len(cells), kind))
    distinct, codes = coded(trimmed(cells))
    values, wrong = _each(objects(distinct), read, np.empty(len(distinct), kind))
    rows = np.flatnonzero(np.isin(codes, list(wrong))).tolist() if wrong else []
    return values[codes], {row: wrong[int(codes[row])] for row in rows}


def _numbers(cells: Any, missing: frozenset[str]) -> tuple[np.ndarray, dict[int, str]]:
    wrong = {}
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind not in "iuf":
            read = functools.partial(number_of, missing=missing)
            return _each(cells, read, np.empty(len(cells), np.float64))
        values = cells.astype(np.float64)
    elif is_number(cells.type):
        values = floats(cells)
    else:
        pa, texts = arrow(), trimmed(cells, missing)
        try:
            numeric = texts.cast(pa.float64())
        except pa.ArrowInvalid:
            numeric = None
        # Arrow reads "NAN" and "nan(1)" as well.
        if numeric is None or pa.compute.any(pa.compute.is_nan(numeric)).as_py():
            fits = pa.compute.match_substring_regex(texts, f"^{NUMBER.pattern}$")
            stray = np.flatnonzero(~pa.compute.fill_null(fits, True).to_numpy(zero_copy_only=False)).tolist()
            wrong = {row: f"{quoted(texts[row].as_py())}, not a number" for row in stray}
            numeric = pa.compute.if_else(fits, texts, pa.scalar(None, texts.type)).cast(pa.float64())
        values = floats(numeric)
    return values, dict.fromkeys(np.flatnonzero(np.isinf(values)).tolist(), "infinite") | wrong


def _categories(cells: Any, known: tuple[str, ...], missing: frozenset[str]) -> tuple[Any, dict[int, str]]:
    read = functools.partial(category_of, known=known, missing=missing)
    if not isinstance(cells, np.ndarray):
        pa = arrow()
        if pa.types.is_boolean(cells.type):
            cells = pa.compute.if_else(cells, TRUTH[1], TRUTH[0])
        if not is_number(cells.type):
            # Each text is read once, whatever space there is around it.
            distinct, codes = coded(cells)
            return Coded(objects(map(read, distinct)), codes), {}
        cells = floats(cells)
    if cells.dtype.kind in "iuf":
        distinct, codes = np.unique(cells.astype(np.float64), return_inverse=True)
        return Coded(objects(map(read, distinct.tolist())), codes), {}
    return _each(cells, read, np.empty(len(cells), object))


def _each(cells: np.ndarray, read: Callable[[Any], Any], values: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
    wrong = {}
    for row, value in enumerate(cells.tolist()):
        try:
            values[row] = read(value)
        except ValueError as problem:
            wrong[row] = str(problem)
    return values, wrong


def trimmed(values: Any, missing: frozenset[str] = EMPTY) -> Any:
    """Strings without space around them, null where they say that a value is missing."""
    pa = arrow()
    short = pa.compute.utf8_trim_whitespace(plain(values))
    marked = pa.compute.is_in(short, value_set=pa.array(sorted(missing), short.type))
    return pa.compute.if_else(marked, pa.scalar(None, short.type), short)


def arrow() -> Any:
    """The library that reads files, with the parts that are used here; it is loaded when the first is read."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput('reading files needs pyarrow: pip install "darkbayes[tables]"') from None
    return pyarrow


def plain(values: Any) -> Any:
    """Values that are stored once each, as their own type, and views of strings, which lack most functions, as such."""
    types = arrow().types
    if types.is_dictionary(values.type):
        if types.is_string_view(values.type.value_type):  # To its own type such a dictionary cannot be cast.
            values = values.cast(arrow().dictionary(values.type.index_type, arrow().string()))
        values = values.cast(values.type.value_type)
    return values.cast(arrow().string()) if types.is_string_view(values.type) else values


def is_number(kind: Any) -> bool:
    """Whether a type of arrow is one of numbers; a column of nothing counts."""
    types = arrow().types
    return any(fits(kind) for fits in (types.is_null, types.is_integer, types.is_floating, types.is_decimal))


def is_text(kind: Any) -> bool:
    """Whether a type of arrow is one of strings."""
    types = arrow().types
    return any(fits(kind) for fits in (types.is_string, types.is_large_string, types.is_string_view))


def floats(values: Any) -> np.ndarray:
    """Numbers of any type that arrow has as float64, NaN where one is missing."""
    pa = arrow()
    numbers = values if values.type == pa.float64() else pa.compute.cast(values, pa.float64(), safe=False)
    return numbers.to_numpy(zero_copy_only=False)


def coded(values: Any) -> tuple[list[str | None], np.ndarray]:
    """The different strings, None as the last of them, and the number of each row's."""
    pa = arrow()
    values = values.cast(pa.string()) if pa.types.is_string_view(values.type) else values
    chunked = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    dictionary = chunked.dictionary_encode().unify_dictionaries().combine_chunks()
    names = [*dictionary.dictionary.to_pylist(), None]
    return names, pa.compute.fill_null(dictionary.indices, len(names) - 1).to_numpy().astype(np.int64)
