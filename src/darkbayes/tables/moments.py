"""Dates and times: how they are written, and the numbers that a network reads of them.

A moment is read as the clock on the wall had it, in seconds since 1970: an offset such as ``+02:00`` is passed over, as
it is the local hour that tells day from night. Of the moment are made, where they differ between rows: the year, the
month (1 to 12), the weekday (1 is Monday), the hour (with its minutes as a fraction), and the days since the first
moment that was seen.
"""

import dataclasses
import datetime
import functools
import math
import re
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np

from darkbayes.tables.cells import MISSING, arrow, each_cell, is_missing, quoted
from darkbayes.tables.schema import Frame, stored_as

Piece = Literal["year", "month", "weekday", "hour", "days"]
PARTS: tuple[Piece, ...] = ("year", "month", "weekday", "hour", "days")
DAY = 86_400.0  # Seconds.
_EPOCH = datetime.datetime(1970, 1, 1)
_SPREADSHEETS = datetime.datetime(1899, 12, 30)  # From where spreadsheets count days: their 1900 is a leap year.
SERIAL = 2_958_466  # The days until the year 10000; as seconds since 1970, lesser numbers would all lie in one month.
_PIVOT = 69  # Years of two digits from here on are of the last century, as POSIX has it.
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september")
_MONTHS += ("october", "november", "december")
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:[.,](?P<fraction>\d+))?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: ?(?:Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
)
_NAMED = r"(?P<name>[A-Za-z]{3,9})\.?"
_DATES = tuple(
    re.compile(rf"{pattern}(?:(?:,? |T){_CLOCK})?", re.ASCII)
    for pattern in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})",
        r"(?P<first>\d{1,2})(?P<mark>[-/.])(?P<next>\d{1,2})(?P=mark)(?P<year>\d{4}|\d\d)",
        r"(?P<year>\d{4})[-/](?P<month>\d{1,2})",
        r"(?P<month>\d{1,2})/(?P<year>\d{4})",
        rf"(?:[A-Za-z]{{3,9}},? )?(?P<day>\d{{1,2}})[ -]{_NAMED}[ -](?P<year>\d{{4}}|\d\d)",
        rf"(?:[A-Za-z]{{3,9}},? )?{_NAMED} (?P<day>\d{{1,2}}),? (?P<year>\d{{4}})",
    )
)
_TIME = re.compile(_CLOCK, re.ASCII)
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)", re.ASCII)


def moment_of(value: Any, *, day_first: bool = True, clock: bool = False, numbers: bool = False) -> float:
    """The seconds since 1970 at the moment that a cell holds, NaN where it is missing.

    Args:
        value: the cell.
        day_first: whether 3/4/2021 is in April.
        clock: whether cells hold a time of the day alone; then the seconds are those since midnight.
        numbers: whether numbers are dates too: 20210304, days as spreadsheets count them, or seconds
            or milliseconds since 1970.

    Returns:
        The seconds; a ValueError says what another cell is.

    >>> moment_of("1970-01-02"), moment_of("2 Jan 1970 12:30 PM"), moment_of("12:30", clock=True)
    (86400.0, 131400.0, 45000.0)
    """
    if is_missing(value):
        return math.nan
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    try:
        if isinstance(value, datetime.time) and clock:
            return (datetime.datetime.combine(_EPOCH, value.replace(tzinfo=None)) - _EPOCH).total_seconds()
        if isinstance(value, datetime.date) and not clock:
            day = value if isinstance(value, datetime.datetime) else datetime.datetime(*value.timetuple()[:3])
            return (day.replace(tzinfo=None) - _EPOCH).total_seconds()
        if numbers and isinstance(value, str | int | float) and not isinstance(value, bool):
            return _of_number(float(value))
        if isinstance(value, str):
            return _of_text(value.strip(), day_first, clock)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{quoted(value)}, not {'a time of the day' if clock else 'a date'}")


def _of_number(value: float) -> float:
    compact = _COMPACT.fullmatch(f"{value:.0f}")
    if compact:
        year, month, day = map(int, compact.groups())
        return (datetime.datetime(year, month, day) - _EPOCH).total_seconds()
    if 0 < value < SERIAL:
        return (_SPREADSHEETS + datetime.timedelta(days=value) - _EPOCH).total_seconds()
    seconds = value / 1000 if abs(value) >= 1e11 else value
    return (_EPOCH + datetime.timedelta(seconds=seconds) - _EPOCH).total_seconds()


def _of_text(text: str, day_first: bool, clock: bool) -> float:
    match = _TIME.fullmatch(text) if clock else next(filter(None, (each.fullmatch(text) for each in _DATES)), None)
    if match is None:
        raise ValueError
    parts = match.groupdict()
    seconds = _seconds(parts)
    if clock:
        return seconds
    if "first" in parts:
        parts["day"], parts["month"] = (parts["first"], parts["next"])[:: 1 if day_first else -1]
    if "name" in parts:
        starts = [month.startswith(parts["name"].lower()) for month in _MONTHS]
        parts["month"] = starts.index(True) + 1
    year = int(parts["year"])
    if len(parts["year"]) == 2:
        year += 1900 if year >= _PIVOT else 2000
    day = datetime.datetime(year, int(parts["month"]), int(parts.get("day") or 1))
    return (day - _EPOCH).total_seconds() + seconds


def _seconds(parts: dict[str, Any]) -> float:
    """Those since midnight."""
    if parts["hour"] is None:
        return 0.0
    hour = int(parts["hour"])
    if parts["half"]:
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + 12 * (parts["half"] in "pP")
    if hour > 23:
        raise ValueError
    fraction = float(f"0.{parts['fraction'] or 0}")
    return 3600.0 * hour + 60.0 * int(parts["minute"]) + int(parts["second"] or 0) + fraction


def looks_dated(text: str) -> bool:
    """Whether a text may be a date or a time, whatever comes first in it."""
    return any(reads(text, day_first=order) for order in (True, False)) or reads(text, clock=True)


def reads(text: str, **how: bool) -> bool:
    """Whether `moment_of` reads a text so."""
    try:
        moment_of(text, **how)
    except ValueError:
        return False
    return True


def day_comes_first(texts: Iterable[str]) -> tuple[bool, bool]:
    """Whether the day comes before the month in some dates, and whether that was a guess.

    What only one order can read decides. Where both can, points and dashes are taken to have the day first, strokes the
    month, as each is customary.

    >>> day_comes_first(["3/4/2021", "13/4/2021"]), day_comes_first(["3/4/2021"]), day_comes_first(["3.4.2021"])
    ((True, False), (False, True), (True, True))
    """
    doubtful = [match for text in texts if (match := _DATES[1].fullmatch(text))]
    if not doubtful:
        return True, False
    first, second = (sum(int(match[name]) > 12 for match in doubtful) for name in ("first", "next"))
    if first or second:
        return first >= second, False
    same = all(match["first"] == match["next"] for match in doubtful)
    return sum(match["mark"] == "/" for match in doubtful) <= len(doubtful) / 2, not same


@stored_as("dates")
@dataclasses.dataclass(frozen=True)
class Dates:
    """A column of dates or times, and the numbers that are made of it."""

    kind: ClassVar = "date"
    name: str
    day_first: bool
    clock: bool
    """Whether it holds times of the day alone."""
    numbers: bool = False
    """Whether numbers in it are dates, such as 20210304."""
    example: str = ""
    """How its cells are written."""
    origin: float = 0.0
    """The first moment that was seen, from which days are counted."""
    parts: tuple[Piece, ...] = ()
    """Those of `PARTS` that are made."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name} ({part})" for part in self.parts)

    @property
    def about(self) -> str:
        order = "" if self.clock else f" Of 3/4/2021 the {'day' if self.day_first else 'month'} is first."
        return f"{'A time of the day' if self.clock else 'A date'}, such as {self.example}.{order}"

    def only(self, names: list[str]) -> "Dates":
        """The same that makes no other columns than these."""
        parts = tuple(part for part, name in zip(self.parts, self.columns, strict=True) if name in names)
        return dataclasses.replace(self, parts=parts)

    def value(self, cell: Any, missing: frozenset[str] = MISSING) -> float:
        """What a cell holds, as `moment_of` has it."""
        if is_missing(cell, missing):
            return math.nan
        return moment_of(cell, day_first=self.day_first, clock=self.clock, numbers=self.numbers)

    def read(self, cells: Any, missing: frozenset[str] = MISSING) -> tuple[np.ndarray, dict[int, str]]:
        """The moments in some cells, and the rows that hold something else, and what."""
        if isinstance(cells, np.ndarray):
            if cells.dtype.kind == "M" and not self.clock:
                return _seconds_of(cells), {}
        elif arrow().types.is_temporal(cells.type) and (seconds := temporal_seconds(cells, self.clock)) is not None:
            return seconds, {}
        return each_cell(cells, functools.partial(self.value, missing=missing), np.float64)

    def spread(self, moments: np.ndarray) -> Frame:
        """The columns that are made, of moments."""
        made = parts_of(moments, self.origin)
        return {f"{self.name} ({part})": made[part] for part in self.parts}


def parts_of(moments: np.ndarray, origin: float) -> Frame:
    """All `PARTS` of some moments, NaN where one is missing.

    >>> {name: values.tolist() for name, values in parts_of(np.asarray([1.5 * DAY]), 0.0).items()}
    {'year': [1970.0], 'month': [1.0], 'weekday': [5.0], 'hour': [12.0], 'days': [1.5]}
    """
    lost = np.isnan(moments)
    days = np.floor(np.where(lost, 0.0, moments) / DAY)
    calendar = days.astype(np.int64).astype("datetime64[D]")
    months = calendar.astype("datetime64[M]").astype(np.int64)
    made = {
        "year": 1970 + months // 12,
        "month": 1 + months % 12,
        # The first of January 1970 was a Thursday.
        "weekday": 1 + (days + 3) % 7,
        "hour": (moments - days * DAY) / 3600,
        "days": (moments - origin) / DAY,
    }
    return {name: np.where(lost, np.nan, values) for name, values in made.items()}


def _seconds_of(moments: np.ndarray) -> np.ndarray:
    fine = moments.astype("datetime64[us]")
    return np.where(np.isnat(fine), np.nan, fine.astype(np.int64) / 1e6)


def temporal_seconds(values: Any, clock: bool) -> np.ndarray | None:
    """The moments in an array of one of arrow's types, as the wall had them; None if they are not of this form."""
    pa = arrow()
    kind = values.type
    if pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_time(kind) != clock:
        return None
    if clock:
        fine = values.cast(pa.time64("us"), safe=False)
    else:
        local = pa.compute.local_timestamp(values) if getattr(kind, "tz", None) else values
        fine = local.cast(pa.timestamp("us"), safe=False)
    numbers = fine.cast(pa.int64()).cast(pa.float64())
    return numbers.to_numpy(zero_copy_only=False) / 1e6
