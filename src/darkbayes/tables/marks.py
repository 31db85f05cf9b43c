"""Numbers as people write them: decimal commas, marks between thousands, and a unit such as % or €."""

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from darkbayes.tables.cells import MISSING, each_cell, float_of, number_of, quoted
from darkbayes.tables.schema import Frame, stored_as

UNITS = "%$€£¥"  # What may stand before or after a number.
Decimal = Literal[".", ","]
Thousands = Literal["", ",", ".", "'", " ", "_"]
THOUSANDS: dict[Decimal, tuple[Thousands, ...]] = {".": (",", "'", " ", "_"), ",": (".", "'", " ", "_")}
""" What may stand between thousands, by what stands before decimals."""
_SPACES = re.compile("[\u00a0\u2009\u202f]")  # Those that typographers put between thousands.


@stored_as("marked")
@dataclasses.dataclass(frozen=True)
class Marked:
    """A column of numbers that are written with marks."""

    kind: ClassVar = "number"
    name: str
    decimal: Decimal
    """What stands before the decimals, a point or a comma."""
    thousands: Thousands = ""
    """What stands between thousands, if anything does."""
    unit: str = ""
    """What stands before or after the number, in some cells or all."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def __str__(self) -> str:
        words = {",": "comma", ".": "point", "'": "apostrophe", " ": "space", "_": "underscore"}
        parts = [f"a decimal {words[self.decimal]}"]
        article = "an" if self.thousands == "'" else "a"
        parts += [f"{article} {words[self.thousands]} between thousands"] if self.thousands else []
        return ", ".join(parts + [f"the unit {self.unit}"] * bool(self.unit))

    def value(self, cell: Any, missing: frozenset[str] = MISSING) -> float:
        """The number in a cell, as `number_of` has it, but for the marks."""
        if not isinstance(cell, str):
            return number_of(cell)
        text = _SPACES.sub(" ", cell.strip())
        if self.unit:
            sign, amount = _signed(text)
            text = sign + amount.removeprefix(self.unit).removesuffix(self.unit).strip()
        match = _pattern(self.decimal, self.thousands).fullmatch(text)
        if not match:
            try:
                gap = number_of(text, missing)
            except ValueError:
                gap = 0.0
            if gap == gap:
                raise ValueError(f"{quoted(cell)}, not a number with {self}")
            return gap
        number = float_of(text.replace(self.thousands or "\0", "").replace(self.decimal, "."))
        if np.isinf(number):
            raise ValueError("infinite")
        return number

    def written(self, number: float) -> str:
        """A number as its cells have it."""
        return str(number).replace(".", self.decimal)

    def read(self, cells: Any, missing: frozenset[str] = MISSING) -> tuple[np.ndarray, dict[int, str]]:
        """The numbers in some cells, and the rows that hold something else, and what."""
        return each_cell(cells, functools.partial(self.value, missing=missing), np.float64)

    def spread(self, values: np.ndarray) -> Frame:
        """The column that is made, of its numbers."""
        return {self.name: values}


def _signed(text: str) -> tuple[str, str]:
    """The sign before a number and its unit, and the rest; accountants put what is negative into parentheses."""
    if text.startswith("(") and text.endswith(")"):
        return "-", text[1:-1].strip()
    sign = text[:1] if text[:1] in ("+", "-") else ""
    return sign, text[len(sign) :].strip()


@functools.cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    whole = rf"\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+|\d+" if thousands else r"\d+"
    mark = re.escape(decimal)
    return re.compile(rf"[+-]?(?:(?:{whole})(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def marks_of(name: str, texts: Sequence[str], decimal: Decimal | None = None) -> tuple[Marked, bool] | None:
    """How the numbers of a column are written, and whether that was a guess; None if they are no numbers.

    A comma before other than three digits is a decimal one, and so is one after a point; one that always has three
    digits after it, as in 1,234, may be either, and is taken for a mark between thousands unless a zero is before it.

    >>> for texts in (["1,5", "2"], ["1.234,5"], ["1,234"], ["-$1,234.50"], ["12%"], ["1,5", "1.5"]):
    ...     print(marks_of("price", texts))
    (Marked(name='price', decimal=',', thousands='', unit=''), False)
    (Marked(name='price', decimal=',', thousands='.', unit=''), False)
    (Marked(name='price', decimal='.', thousands=',', unit=''), True)
    (Marked(name='price', decimal='.', thousands=',', unit='$'), False)
    (Marked(name='price', decimal='.', thousands='', unit='%'), False)
    None
    """
    amounts = [amount for text in texts if (amount := _signed(text)[1])]
    unit = next((mark for mark in UNITS if any(mark in (text[0], text[-1]) for text in amounts)), "")
    readings = []
    points: tuple[Decimal, ...] = (decimal,) if decimal else (".", ",")
    for point in points:
        for thousands in ("", *THOUSANDS[point]):
            marked = Marked(name, point, thousands, unit)
            if all(_reads(marked, text) for text in texts):
                readings.append(marked)
    if not readings:
        return None
    if all(each.decimal == readings[0].decimal for each in readings):
        return readings[0], False
    # Both points of view read all: where there is a comma at all, three digits are after it.
    comma, zero = any("," in text for text in texts), any(re.match(r"\D*0,", text) for text in texts)
    return next(each for each in readings if each.decimal == ("," if zero else ".")), comma and not zero


def _reads(marked: Marked, text: str) -> bool:
    try:
        marked.value(text)
    except ValueError:
        return False
    return True
