"""Free text as numbers: how often its words, and pairs of them, fall into each of a few buckets.

Which bucket is decided by a hash, so that no vocabulary is kept and no word is unknown; words that share one count as
one. A missing text has no words.
"""

import dataclasses
import functools
import itertools
import re
import zlib
from typing import Any, ClassVar

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import MISSING, each_cell, quoted, text_of
from darkbayes.tables.schema import Frame, stored_as

BUCKETS = 32
MOST_LETTERS = 100_000  # Of one text that are read: a request may send millions.
_WORD = re.compile(r"\w+")


def counts_of(text: str | None) -> np.ndarray:
    """The logarithm of one plus the number of words and pairs of words in each bucket.

    >>> counts_of("Good wine").sum() == counts_of("good  WINE!").sum(), counts_of(None).sum()
    (np.True_, np.float64(0.0))
    """
    words = _WORD.findall((text or "")[:MOST_LETTERS].lower())
    grams = words + [f"{one} {other}" for one, other in itertools.pairwise(words)]
    places = [zlib.crc32(gram.encode("utf-8", "replace")) % BUCKETS for gram in grams]
    return np.log1p(np.bincount(np.asarray(places, np.int64), minlength=BUCKETS))


@stored_as("words")
@dataclasses.dataclass(frozen=True)
class TextColumn:
    """A column of free text, and the counts that are made of it."""

    kind: ClassVar = "text"
    example: ClassVar = ""
    about: ClassVar = "A text, whose words are counted."
    name: str
    buckets: tuple[int, ...] = tuple(range(BUCKETS))
    """Those that are made."""

    def __post_init__(self) -> None:
        if not set(self.buckets) <= set(range(BUCKETS)):
            raise InvalidInput(f"buckets of {self.name!r} must lie in 0..{BUCKETS - 1}, not {self.buckets}")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name} (words {bucket + 1})" for bucket in self.buckets)

    def only(self, names: list[str]) -> "TextColumn":
        """The same that makes no other columns than these."""
        kept = tuple(bucket for bucket, name in zip(self.buckets, self.columns, strict=True) if name in names)
        return dataclasses.replace(self, buckets=kept)

    def value(self, cell: Any, missing: frozenset[str] = MISSING) -> str | None:
        """The text in a cell."""
        if isinstance(cell, list | dict | np.ndarray):
            raise ValueError(f"{quoted(cell)}, not a text")
        return text_of(cell, missing)

    def read(self, cells: Any, missing: frozenset[str] = MISSING) -> tuple[np.ndarray, dict[int, str]]:
        """The texts in some cells, and the rows that hold something else, and what."""
        return each_cell(cells, functools.partial(self.value, missing=missing), object)

    def spread(self, texts: np.ndarray) -> Frame:
        """The columns that are made, of texts."""
        distinct, codes = np.unique(np.asarray([text or "" for text in texts.tolist()], object), return_inverse=True)
        counts = np.stack([counts_of(text) for text in distinct.tolist()] or [np.zeros(BUCKETS)])
        return {
            name: counts[codes, bucket] if len(texts) else np.empty(0)
            for name, bucket in zip(self.columns, self.buckets, strict=True)
        }
