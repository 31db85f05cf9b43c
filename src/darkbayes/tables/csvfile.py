"""A CSV file as blocks of whole rows, with the number of every line.

Rows end at a line's end outside quotes, and line ends may be of any system's. A block begins with a row and holds no
part of one; where there are no quotes that is found by looking for the last line end, and where quotes open and close
as they should, by counting them. Other quotes (``5" pipe``) mean themselves unless a field begins with one; then the
rows are walked through one after another.
"""

import contextlib
import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.columns import require_distinct
from darkbayes.tables.decoding import Decoded, Source, name_of, unpacked

DELIMITERS = ",;\t|"  # What may separate the columns, if nobody says.
MOST_ROW = 64 * 2**20  # Bytes of the longest row; beyond it, a quote was not closed.
_SEPARATOR = re.compile(rb"sep=([\x20-\x7e\t])\n")  # A first line by which spreadsheets say what the delimiter is.
SAMPLE = 2**20  # Bytes in which the delimiter is looked for.

_NEWLINE, _QUOTE = 10, 34
_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


@dataclasses.dataclass(frozen=True)
class BadRow:
    """A row that cannot be read."""

    line: int
    reason: str
    unit: str = "line"  # What `line` counts.

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: {self.reason}"


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole rows of a file, as bytes."""

    data: bytes
    line: int  # The number of its first line.
    delimiter: str

    def lines(self, rows: int) -> np.ndarray:
        """The line in which each row begins, blank lines left out; `rows` is how many there are."""
        newlines = self.data.count(b"\n")
        # Every line end ends a row if there are as many of both.
        if not rows or newlines == rows:
            return np.arange(self.line, self.line + rows)
        ends = row_ends(self.data, self.delimiter)
        starts = np.concatenate([[0], ends[:-1] + 1])
        filled = starts[ends > starts]
        if len(filled) != rows:
            last = self.line + newlines - 1
            raise InvalidInput(f"lines {self.line} to {last} hold quotes that can be read in two ways: double them")
        return self.line + np.searchsorted(np.flatnonzero(np.frombuffer(self.data, np.uint8) == _NEWLINE), filled)


@contextlib.contextmanager
def open_csv(source: Source, delimiter: str | None = None, encoding: str | None = None) -> Iterator["CsvFile"]:
    """A CSV file, which may be compressed, or the content of one."""
    with unpacked(source) as (stream, content):
        yield CsvFile(name_of(source), stream, Decoded(content, name_of(source), encoding), delimiter)


class CsvFile:
    """A CSV file that is open for reading: its names, then its rows."""

    def __init__(self, path: str, stream: BinaryIO, content: Decoded, delimiter: str | None):
        self.path, self._stream, self._content, self._chunks = path, stream, content, _universal(content)
        head = next(self._chunks, b"")
        if head.startswith(b"PK\x03\x04"):
            remedy = "save the table as CSV or Parquet"
            raise InvalidInput(f"{path} is a spreadsheet or an archive, not a CSV file: {remedy}")
        if b"\x00" in head:
            raise InvalidInput(f"{path} holds bytes that are not text, and is no other kind of table that is known")
        self._rest, self._line = head.removeprefix(b"\xef\xbb\xbf"), 1  # Without the mark that says UTF-8.
        if first := _SEPARATOR.match(self._rest):
            self._rest, self._line, delimiter = self._rest[first.end() :], 2, delimiter or first[1].decode()
        self.delimiter = delimiter or sniff(self._rest[:SAMPLE])
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\n\r':
            rule = "the delimiter must be one character other than a quote or a line end"
            raise InvalidInput(f"{rule}, not {delimiter!r}")
        self.names = self._header()

    @property
    def notes(self) -> list[str]:
        """What was guessed of what has been read, in words."""
        return [self._content.note] if self._content.note else []

    def share(self, size: int) -> float:
        """The part of the file that has been read, of so many bytes."""
        return self._stream.tell() / size if size else 1.0

    def _header(self) -> tuple[str, ...]:
        """The names of the columns, from the first line that is not blank."""
        while not self._rest.strip() and self._more():
            pass
        stripped = self._rest.lstrip(b"\n")
        self._line, self._rest = self._line + len(self._rest) - len(stripped), stripped
        if not self._rest.strip():
            raise InvalidInput(f"{self.path} is empty: a table has a line with the names of its columns, and rows")
        while not len(ends := row_ends(self._rest, self.delimiter)):
            if len(self._rest) > MOST_ROW or (self._rest.endswith(b"\n") and not self._more()):
                raise self._unclosed(self._line)
            if not self._more():
                self._rest += b"\n"
        first, self._rest = self._rest[: ends[0]], self._rest[ends[0] + 1 :]
        self._require_utf8(first)
        self._line += first.count(b"\n") + 1
        header = first.decode()
        try:
            row = next(csv.reader(io.StringIO(header, newline=""), delimiter=self.delimiter))
        except csv.Error as problem:  # A name of more than 131,072 characters.
            remedy = "the first line must hold the names of the columns"
            raise InvalidInput(f"{self.path} has a first line that cannot be read ({problem}): {remedy}") from None
        names = [name.strip() or f"column {k}" for k, name in enumerate(row, 1)]
        others = [mark for mark in DELIMITERS if mark != self.delimiter and mark in header]
        if len(names) == 1 and others:
            likely, shown = max(others, key=header.count), header if len(header) <= 60 else header[:60] + "..."
            alone = f"has one column only if {_NAMES.get(self.delimiter, repr(self.delimiter))} separates them"
            hint = f"its first line ({shown!r}) has {_NAMES[likely]}: is {likely!r} the delimiter?"
            raise InvalidInput(f"{self.path} {alone}, but {hint}")
        require_distinct(names, self.path)
        return tuple(names)

    def _require_utf8(self, data: bytes) -> None:
        """Refuse bytes, which begin with the present line, that are not text in UTF-8."""
        if data.isascii():
            return
        try:
            data.decode()
        except UnicodeDecodeError as problem:
            at = self._line + data.count(b"\n", 0, problem.start)
            around = data[max(problem.start - 8, 0) : problem.start + 8].decode("latin-1").split("\n")
            shown = next(part for part in around if not part.isascii())
            holds = f"line {at} holds the byte 0x{data[problem.start]:02X} (in Latin-1 it would read {shown!r})"
            remedy = "Save it again as UTF-8 (in a spreadsheet: 'CSV UTF-8'; or: iconv -f LATIN1 -t UTF-8)"
            raise InvalidInput(f"{self.path} is not in UTF-8: {holds}. {remedy}", option="encoding") from None

    def _more(self) -> bool:
        chunk = next(self._chunks, b"")
        self._rest += chunk
        return bool(chunk)

    def _unclosed(self, line: int) -> InvalidInput:
        remedy = "close it, or double the quotes that belong to the text"
        return InvalidInput(f"{self.path}: a quote that opens in the row of line {line} is not closed: {remedy}")

    def blocks(self) -> Iterator[Block]:
        """All rows below the header."""
        ended = False
        while not ended:
            ended = not self._more()
            if ended and self._rest and not self._rest.endswith(b"\n"):
                self._rest += b"\n"
            cut = last_row_end(self._rest, self.delimiter) + 1
            data, self._rest = self._rest[:cut], self._rest[cut:]
            if (ended and self._rest) or len(self._rest) > MOST_ROW:
                raise self._unclosed(self._line + data.count(b"\n"))
            if data:
                self._require_utf8(data)
                yield Block(data, self._line, self.delimiter)
                self._line += data.count(b"\n")


def sniff(sample: bytes) -> str:
    r"""The delimiter under which the first rows have the same number of fields, and the most.

    >>> sniff(b"a;b;c\n1,5;2,5;3\n"), sniff(b"a\tb\n1\t2\n"), sniff(b"a\n1\n")
    (';', '\t', ',')
    """
    text = sample.decode("utf-8", "replace")
    whole = text[: text.rfind("\n") + 1] or text

    def merit(delimiter: str) -> tuple[bool, float, int]:
        rows = csv.reader(io.StringIO(whole, newline=""), delimiter=delimiter)
        try:
            widths = list(itertools.islice((len(row) for row in rows if row), 100))
        except csv.Error:
            return False, 0.0, 0
        width = widths[0] if widths else 0
        alike = widths.count(width) / max(len(widths), 1)
        return width > 1, round(alike, 1), width

    return max(DELIMITERS, key=merit)


def row_ends(data: bytes, delimiter: str) -> np.ndarray:
    r"""Where the line ends are that end rows.

    >>> row_ends(b'a,"b\nc"\nd,e\n', ",")
    array([ 7, 11])
    """
    quotes = _paired_quotes(data, delimiter)
    if quotes is None:
        return _walked(data, delimiter)
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    return newlines[np.searchsorted(quotes, newlines) % 2 == 0]


def last_row_end(data: bytes, delimiter: str) -> int:
    """The last of `row_ends`, which is found sooner than all; -1 if there is none."""
    quotes = _paired_quotes(data, delimiter) if b'"' in data else np.empty(0, np.int64)
    if quotes is None:
        return int(max(_walked(data, delimiter), default=-1))
    end = data.rfind(b"\n")
    while end >= 0 and np.searchsorted(quotes, end) % 2:
        # All line ends since the quote that is open here are within it.
        end = data.rfind(b"\n", 0, int(quotes[np.searchsorted(quotes, end) - 1]))
    return end


def _paired_quotes(data: bytes, delimiter: str) -> np.ndarray | None:
    """Where quotes are, if every second one opens a field, or goes on after a doubled one, and the others close it."""
    values = np.frombuffer(data, np.uint8)
    quotes, beside = np.flatnonzero(values == _QUOTE), np.zeros(256, bool)
    beside[[ord(delimiter), _NEWLINE, _QUOTE]] = True
    opening, closing = quotes[::2], quotes[1::2]
    before = values[opening[opening > 0] - 1]
    after = values[closing[closing < len(values) - 1] + 1]
    return quotes if beside[before].all() and beside[after].all() else None


def _walked(data: bytes, delimiter: str) -> np.ndarray:
    mark = re.escape(delimiter).encode()
    field = rb'(?:"(?:[^"]++|"")*+"[^' + mark + rb'\n]*+|(?!")[^' + mark + rb"\n]*+)"
    row = re.compile(field + rb"(?:" + mark + field + rb")*+\n")
    ends, position = [], 0
    while match := row.match(data, position):
        position = match.end()
        ends.append(position - 1)
    return np.asarray(ends, np.int64)


def _universal(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A file's bytes, with line ends that are all alike."""
    held = b""
    for chunk in chunks:
        # What a carriage return at the end means, the next chunk tells.
        data, held = (held + chunk)[: -1 if chunk.endswith(b"\r") else None], b"\r" * chunk.endswith(b"\r")
        if data:
            yield data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data
    if held:
        yield b"\n"
