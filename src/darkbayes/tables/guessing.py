"""Columns as they were found, before anybody decided what a network makes of them.

A column is of numbers (float64, NaN where one is missing), of text or of truth values (strings, None where one is
missing), of dates (seconds since 1970), or it cannot be used; then it says why, and nobody minds unless the column is
needed. What it is can be guessed, and whoever knows better says so (`Wishes`).

Text is taken for numbers if all of it reads as numbers (`cells`, `marks`), and for dates if all of it reads as dates
(`moments`). A column in which most cells are numbers, or dates, and a few are not is not guessed at but refused.
"""

import dataclasses
import datetime
import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import (
    EMPTY,
    MISSING,
    NUMBER,
    PADDED,
    SPELLED,
    TRUTH,
    arrow,
    coded,
    each_cell,
    float_of,
    floats,
    gaps,
    is_missing,
    is_number,
    is_text,
    objects,
    plain,
    quoted,
    read_cells,
    text_of,
    trimmed,
)
from darkbayes.tables.marks import Marked, marks_of
from darkbayes.tables.moments import Dates, day_comes_first, looks_dated, reads, temporal_seconds
from darkbayes.tables.words import TextColumn

KINDS = ("number", "category", "date", "text")  # What somebody may say that a column is.
_COMMA = re.compile(r"[+-]?\d[\d.' ]*,\d+", re.ASCII)
LOOKED_AT = 100  # Different texts among which most must look like dates before all are read as such.


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What somebody says of columns; what is not said is guessed."""

    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of some columns, one of `KINDS`."""
    decimal: Literal[".", ","] | None = None
    """What stands before decimals, a point or a comma."""
    day_first: bool | None = None
    """Whether 3/4/2021 is in April."""
    missing: Sequence[str] | None = None
    """Texts that say that a value is missing, beside an empty one; in a column of text all others are values."""

    def __post_init__(self) -> None:
        if not isinstance(self.kinds, Mapping) or not all(isinstance(name, str) for name in self.kinds):
            raise InvalidInput(f"kinds must be a dict of column names and kinds, not {self.kinds!r}")
        if not (self.day_first is None or isinstance(self.day_first, bool | np.bool_)):
            raise InvalidInput(f"day_first must be True, False or None, not {self.day_first!r}")
        for name, kind in self.kinds.items():
            if kind not in KINDS:
                raise InvalidInput(f"the kind of {name!r} must be one of {', '.join(KINDS)}, not {kind!r}")
        if self.decimal not in (None, ".", ","):
            raise InvalidInput(f"decimal must be a point or a comma, not {self.decimal!r}")
        if isinstance(self.missing, str):
            raise InvalidInput(f"missing must be a list of texts, not {self.missing!r}: write [{self.missing!r}]")
        for mark in self.missing or ():
            # Typed ones, of a Parquet file or of JSON, would be values all the same.
            if not isinstance(mark, str) or NUMBER.fullmatch(mark.strip()) or mark.strip().lower() in TRUTH:
                such = f"missing must name texts that are no numbers and no truth values, not {mark!r}"
                raise InvalidInput(f"{such}: leave these cells empty")

    def gaps(self, *, text: bool) -> frozenset[str]:
        """The texts that say that a value is missing, in a column of text or another."""
        return gaps(self.missing, text)


@dataclasses.dataclass(frozen=True)
class Column:
    """The values of one column."""

    kind: Literal["number", "text", "boolean", "date", "words", "unusable"]
    """What its values are."""
    values: np.ndarray
    """float64 for numbers and dates; strings and None for text and truth values; nothing if it is unusable."""
    problem: str = ""
    """Why it is unusable, and what to do about it."""
    note: str = ""
    """What there is to know about how it was read."""
    cells: Any = None
    """What it was read from, where `values` does not say all of it: whoever knows what it should hold reads this."""
    source: Any = None
    """What reads its cells, where they are not read as they are: one of `TableSchema.sources`."""
    chosen: bool = False
    """Whether somebody said what it is."""
    doubtful: bool = False
    """Whether its marks can be read in two ways."""


Place = Callable[[int], str]  # Where a row is, in words.


def guess_columns(cells: Mapping[str, Any], place: Place, wishes: Wishes) -> dict[str, Column]:
    """What each of these columns is; one that has decimal commas for sure decides for those that may have them."""

    def guessed(name: str, wishes: Wishes) -> Column:
        given, kind = cells[name], wishes.kinds.get(name)
        values = given if hasattr(given, "dtype") or hasattr(given, "type") else objects(given)
        column = (_of_values if hasattr(values, "dtype") else _of_arrow)(name, values, place, wishes)
        column = column if kind is None else _as_chosen(name, column, kind, place, wishes)
        return _with_gaps_told(name, column, wishes)

    columns = {name: guessed(name, wishes) for name in cells}
    marked = [column for column in columns.values() if isinstance(column.source, Marked)]
    if wishes.decimal is None and any(each.source.decimal == "," and not each.doubtful for each in marked):
        european = dataclasses.replace(wishes, decimal=",")
        for name, column in columns.items():
            if column.kind == "number" and column.cells is not None and not column.chosen:
                columns[name] = guessed(name, european)
    return columns


def _with_gaps_told(name: str, column: Column, wishes: Wishes) -> Column:
    """A column, with a note of the texts in one of text that were taken to say that a value is missing."""
    if wishes.missing is not None or column.kind not in ("text", "boolean", "words") or column.cells is None:
        return column
    texts = each_cell(column.cells, lambda cell: cell.strip() if isinstance(cell, str) else None, object)[0]
    counts = {text: count for text, count in Counter(texts.tolist()).most_common() if text and text in MISSING}
    if not counts:
        return column
    said = ", ".join(f"{text!r} ({count} cell{'s' * (count > 1)})" for text, count in counts.items())
    note = f"{name!r}: {said} read as missing, which is a guess (missing)"
    return dataclasses.replace(column, note="; ".join(filter(None, (column.note, note))))


def _of_arrow(name: str, values: Any, place: Place, wishes: Wishes) -> Column:
    pa, values = arrow(), plain(values)
    if is_number(values.type):
        return Column("number", floats(values))
    if pa.types.is_boolean(values.type):
        return Column("boolean", np.asarray(read_cells({name: values}, {name: ()})[0][name]))
    if is_text(values.type):
        texts = trimmed(values, wishes.gaps(text=False))
        try:
            # Most columns of numbers are nothing else, and need no look at each cell.
            numbers = texts.cast(pa.float64())
            codes = pa.compute.match_substring_regex(texts, f"^{PADDED.pattern}$")
            odd = pa.compute.or_kleene(codes, pa.compute.is_nan(numbers))
            if wishes.decimal == ",":
                odd = pa.compute.or_kleene(odd, pa.compute.match_substring(texts, "."))
            if numbers.null_count < len(numbers) and not pa.compute.any(odd).as_py():
                return Column("number", floats(numbers), cells=values)
        except pa.ArrowInvalid:
            pass
        return column_of_texts(name, *coded(trimmed(values)), values, place, wishes)
    if not pa.types.is_temporal(values.type):
        return _strange(name, str(values.type))
    clock = pa.types.is_time(values.type)
    seconds, there = temporal_seconds(values, clock), values.drop_null()
    example = _example(there[0].as_py() if len(there) else values.type)
    if seconds is None:
        return _duration(name, example)
    return Column("date", seconds, cells=values, source=Dates(name, True, clock, example=example))


def _of_values(name: str, values: Any, place: Place, wishes: Wishes) -> Column:
    """A column from an array or a pandas series: of whatever Python holds."""
    if str(values.dtype) == "category":
        # Whoever declares categories means them, be they numbers.
        cells = objects(text_of(value, EMPTY) for value in np.asarray(values.astype(object)))
        return Column("text", objects(text_of(text, wishes.gaps(text=True)) for text in cells), cells=cells)
    if values.dtype.kind in "iuf":
        # What pandas has for a missing number is none to numpy.
        values = values.to_numpy(np.float64, na_value=np.nan) if hasattr(values, "iloc") else values
        return Column("number", np.array(values, np.float64))
    if values.dtype.kind == "M":
        local = values
        if hasattr(values, "dt"):  # Of pandas.
            local = values.dt.tz_localize(None) if values.dt.tz is not None else values
            local = local.to_numpy("datetime64[us]", na_value=np.datetime64("NaT"))
        moments = np.asarray(local).astype("datetime64[us]")
        there = moments[~np.isnat(moments)]
        dates = Dates(name, True, False, example=_example(there[0].item() if len(there) else values.dtype))
        return Column("date", dates.read(moments)[0], cells=moments, source=dates)
    if values.dtype.kind == "m":
        return _duration(name, str(next(iter(values), values.dtype)))
    values = np.asarray(values, object)
    cells = [None if is_missing(value, wishes.gaps(text=False)) else value for value in values.tolist()]
    there = [value for value in cells if value is not None]
    moments = [isinstance(value, datetime.date | datetime.time | np.datetime64) for value in there]
    if there and all(moments):
        clock = isinstance(there[0], datetime.time)
        dates = Dates(name, True, clock, example=_example(there[0]))
        return _read_as(name, "date", dates, values, place, wishes)
    for value in there:
        if isinstance(value, datetime.timedelta | np.timedelta64):
            return _duration(name, str(value))
        if not isinstance(value, str | Real | Decimal | np.bool_ | datetime.date | datetime.time):
            return _strange(name, type(value).__name__)
    if there and all(isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in there):
        numbers = np.asarray([np.nan if value is None else float_of(value) for value in cells])
        return Column("number", numbers, cells=values)
    codes: dict[str | None, int] = {}
    text = functools.partial(text_of, missing=EMPTY)
    numbered = np.asarray([codes.setdefault(text(value), len(codes)) for value in values.tolist()], np.int64)
    return column_of_texts(name, list(codes), numbered, values, place, wishes)


def _example(value: Any) -> str:
    """A moment as a person writes it."""
    return str(value).removesuffix(" 00:00:00")


def column_of_texts(
    name: str, texts: Sequence[str | None], codes: np.ndarray, cells: Any, place: Place, wishes: Wishes
) -> Column:
    """A column of text, which may prove to be of something else: its different cells, and the number of each row's."""
    counts = np.bincount(codes, minlength=len(texts))
    occur = [text for text, count in zip(texts, counts.tolist(), strict=True) if text is not None and count]
    said, others = wishes.gaps(text=True), wishes.gaps(text=False)
    # What may be a number or a date, and all that is a value if the column is of text.
    there, words = ([text for text in occur if text not in missing] for missing in (others, said))
    numeric = {text for text in there if NUMBER.fullmatch(text)}

    def as_text(kind: Any = "text", note: str = "", read: Callable[[str], str] = str) -> Column:
        names = objects(None if text is None or text in said else read(text) for text in texts)
        return Column(kind, names[codes], note=note, cells=objects(texts)[codes])

    padded = next((text for text in there if PADDED.fullmatch(text)), None)
    if padded is not None:
        return as_text(note=f"{name!r} is read as categories, not numbers: {padded!r} begins with a zero")
    european = wishes.decimal == "," and any("." in text for text in there) and marks_of(name, there, ",")
    if len(numeric) == len(there) and (there or not words) and not european:
        values = np.asarray([float(text) if text in numeric else np.nan for text in texts], np.float64)
        return Column("number", values[codes], cells=cells)
    if all(text.lower() in SPELLED for text in words) and any(len(text) > 1 for text in words):
        plainly = all(text.lower() in TRUTH for text in words)
        # Two words, such as yes and no, are categories as they are, and keep their names.
        if plainly or len(words) > len(TRUTH):
            note = "" if plainly else f"{name!r} is read as true and false, which it spells in {len(words)} ways"
            return as_text("boolean", note, lambda text: SPELLED[text.lower()])
    if not there:
        return as_text()
    if (column := _dates(name, there, cells, place, wishes)) is not None:
        return column
    if reading := marks_of(name, there, wishes.decimal):
        marked, guess = reading
        example = next((text for text in there if text not in numeric or (european and "." in text)), "")
        such = f"{name!r} is read as numbers with {marked}, as in {quoted(example)}"
        may = "; whether its commas are decimal is a guess (decimal)" if guess and wishes.decimal is None else ""
        column = _read_as(name, "number", marked, cells, place, wishes)
        return dataclasses.replace(column, note=such + may, doubtful=guess)
    commas = [text for text in there if _COMMA.fullmatch(text)]
    if commas and len(numeric) + len(commas) == len(there):
        such = f"numbers with commas, such as {commas[0]!r}, and others whose marks contradict them"
        return _unusable(name, f"{such}: write all with a decimal point (1.5), and nothing between thousands", cells)
    held = {k for k, text in enumerate(texts) if text is not None and text not in others}
    wrong = {k for k in held if texts[k] not in numeric and counts[k]}
    if sum(counts[k] for k in wrong) < sum(counts[k] for k in held) / 2:
        strays = np.flatnonzero(np.isin(codes, list(wrong)))
        more = f" ({len(strays)} such cells)" if len(strays) > 1 else ""
        such = f"numbers, but {place(int(strays[0]))} has {texts[int(codes[strays[0]])]!r}{more}"
        return _unusable(name, f"{such}: correct it, leave the cell empty if the value is missing", cells)
    return as_text()


def _dates(name: str, texts: list[str], cells: Any, place: Place, wishes: Wishes) -> Column | None:
    """A column of dates, if most of its first different texts are such: one with others among them is refused."""
    first = texts[:LOOKED_AT]
    dated = [text for text in first if looks_dated(text)]
    if len(dated) <= len(first) / 2:
        return None
    clock = all(reads(text, clock=True) for text in dated)
    day_first, guess = day_comes_first(texts) if wishes.day_first is None else (wishes.day_first, False)
    column = _read_as(name, "date", Dates(name, day_first, clock, example=dated[0]), cells, place, wishes)
    may = "day" if day_first else "month"
    return dataclasses.replace(column, note=f" with the {may} first, which is a guess (day_first)" if guess else "")


def _read_as(name: str, kind: Any, source: Any, cells: Any, place: Place, wishes: Wishes) -> Column:
    """A column of numbers or dates, or why it is none."""
    values, wrong = source.read(cells, wishes.gaps(text=False))
    if not wrong:
        return Column(kind, values, cells=cells, source=source)
    row, reason = next(iter(sorted(wrong.items())))
    others = f" ({len(wrong)} such cells)" if len(wrong) > 1 else ""
    such = f"{kind}s, but {place(row)} has {reason.partition(', not ')[0]}{others}"
    return _unusable(name, f"{such}: correct it, leave the cell empty if the value is missing", cells)


def _as_chosen(name: str, column: Column, kind: str, place: Place, wishes: Wishes) -> Column:
    """A column as somebody says that it is."""
    cells = column.values if column.cells is None else column.cells
    typed = column.kind == "date" and column.source.example and not _texts(cells)
    text = functools.partial(text_of, missing=wishes.gaps(text=False))
    if column.kind == "unusable" and column.cells is None:
        return column
    if kind == "number" and column.kind != "number":
        if column.kind == "date" and typed:
            return _unusable(name, "dates, which are not numbers: leave the choice of its kind out", cells)
        texts = [text for text in set(each_cell(cells, text, object)[0].tolist()) if text is not None]
        marked = marks_of(name, texts, wishes.decimal)
        source = marked[0] if marked else Marked(name, wishes.decimal or ".")
        column = _read_as(name, "number", source, cells, place, wishes)
    elif kind == "date" and column.kind != "date":
        numbers = column.kind == "number"
        texts = [] if numbers else [text for text in each_cell(cells, text, object)[0].tolist() if text]
        day_first = day_comes_first(texts)[0] if wishes.day_first is None else wishes.day_first
        clock = bool(texts) and all(reads(text, clock=True) for text in texts[:LOOKED_AT])
        there = texts or [text_of(value) for value in column.values[:1].tolist()]
        dates = Dates(name, day_first, clock, numbers, str(there[0]) if there else "")
        column = _read_as(name, "date", dates, cells, place, wishes)
    elif kind in ("category", "text"):
        if typed:
            return _unusable(name, f"dates, which are not {kind}: leave the choice of its kind out", cells)
        if kind == "category":
            values = read_cells({name: cells}, {name: ()}, wishes.missing)[0][name]
            column = Column("text", np.asarray(values), cells=cells)
        else:
            words = TextColumn(name)
            column = Column("words", words.read(cells, wishes.gaps(text=True))[0], cells=cells, source=words)
    return dataclasses.replace(column, chosen=True, note="" if column.kind != "number" else column.note)


def _texts(cells: Any) -> bool:
    if isinstance(cells, np.ndarray):
        return cells.dtype == object and any(isinstance(value, str) for value in cells.tolist())
    return is_text(cells.type)


def _unusable(name: str, holds: str, cells: Any = None) -> Column:
    return Column("unusable", np.empty(0), f"{name!r} holds {holds}", cells=cells)


def _duration(name: str, example: str) -> Column:
    return _unusable(name, f"durations, such as {example!r}: turn them into numbers (say seconds, or days)")


def _strange(name: str, kind: str) -> Column:
    such = f"values of the kind {kind}, which are neither numbers nor text"
    return _unusable(name, f"{such}: turn them into one of these")
