"""The bytes of a file as text in UTF-8: unpacked, and out of whatever encoding it is in.

What packs it is seen from its first bytes. So is UTF-16, by its mark or by the zeros in it. A file whose first letter
beyond ASCII is none in UTF-8 is taken for Windows-1252, which western spreadsheets write.
"""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import arrow

Source = Path | bytes  # A file, or the content of one.
BLOCK = 4 * 2**20  # Bytes that are read at a time.
UTF8, WESTERN = "utf-8", "cp1252"
ZIP, ZSTD = b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


_COPIED: dict[Path, str] = {}  # What the copies that there are were made of.


def name_of(source: Source) -> str:
    """What messages call a file, or a table that came without one."""
    return "the table" if isinstance(source, bytes) else _COPIED.get(source, str(source))


@contextlib.contextmanager
def read_again(path: Path) -> Iterator[Path]:
    """A path to the same content that can be read from its beginning, and more than once: of a pipe, to a copy."""
    if path.is_file() or path.is_dir() or not path.exists():
        yield path
        return
    with path.open("rb") as pipe, tempfile.NamedTemporaryFile(prefix="darkbayes-") as file:
        shutil.copyfileobj(pipe, file)
        file.flush()
        copy = Path(file.name)
        _COPIED[copy] = str(path)
        try:
            yield copy
        finally:
            del _COPIED[copy]


@contextlib.contextmanager
def unpacked(source: Source) -> Iterator[tuple[BinaryIO, Any]]:
    """A file's stream, and that of its content where it is compressed; bytes are content as they are."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
        if isinstance(source, bytes):
            yield stream, stream
            return
        head = stream.read(8)
        stream.seek(0)
        try:
            with _content(stream, head, source) as content:
                yield stream, content
        except (EOFError, zlib.error, lzma.LZMAError, OSError, zipfile.BadZipFile, RuntimeError) as problem:
            # What is not packed has no such errors of its own.
            if isinstance(problem, InvalidInput) or not head.startswith((*_PACKED, ZSTD, ZIP)):
                raise
            raise InvalidInput(
                f"{name_of(source)} is compressed, and cannot be unpacked ({problem}): make it again"
            ) from None


def _content(stream: BinaryIO, head: bytes, path: Path) -> Any:
    for mark, opened in _PACKED.items():
        if head.startswith(mark):
            return opened(stream)
    if head.startswith(ZSTD):
        return arrow().CompressedInputStream(stream, "zstd")
    if head.startswith(ZIP):
        archive = zipfile.ZipFile(stream)
        files = [name for name in archive.namelist() if not name.endswith("/")]
        # A spreadsheet is an archive too, and read by its own name.
        if "[Content_Types].xml" not in files and "mimetype" not in files:
            if len(files) != 1:
                raise InvalidInput(
                    f"{name_of(path)} is an archive of {len(files)} files: unpack it, and name those to read"
                )
            return archive.open(files[0])
        stream.seek(0)
    return stream


def read_content(source: Source, most: int = -1) -> bytes:
    """The bytes of a file, unpacked: all, or so many of the first."""
    with unpacked(source) as (_, content):
        return content.read(most)


class Decoded:
    """The content of a stream in UTF-8, in blocks.

    Attributes:
        encoding: what it is in, as far as has been read; None while all was ASCII.
    """

    def __init__(self, stream: Any, path: str, encoding: str | None = None):
        self._stream, self._path, self.encoding = stream, path, encoding
        if encoding is not None:
            try:
                self.encoding = codecs.lookup(encoding).name
            except LookupError:
                remedy = "name one such as utf-8, cp1252 or utf-16"
                raise InvalidInput(f"encoding {encoding!r} is not known: {remedy}") from None
        self._given, self._decoder = encoding is not None, None

    @property
    def note(self) -> str | None:
        """What was guessed, in words."""
        if self._given or self.encoding in (None, UTF8):
            return None
        return f"{self._path} is read as {self.encoding}, as it is not in UTF-8 (encoding)"

    def __iter__(self) -> Iterator[bytes]:
        head = True
        while chunk := self._stream.read(BLOCK):
            if self.encoding is None and head:
                self.encoding = self._marked(chunk)
            # What holds zeros is no text, and refused by whoever reads it.
            if self.encoding is None and not chunk.isascii() and b"\0" not in chunk:
                self.encoding = self._guessed(chunk, whole=len(chunk) < BLOCK)
            head = False
            yield chunk if self.encoding in (None, UTF8) else self._decode(chunk)
        if self._decoder is not None:
            yield self._decode(b"", final=True)

    def _decode(self, chunk: bytes, final: bool = False) -> bytes:
        assert self.encoding is not None
        self._decoder = self._decoder or codecs.getincrementaldecoder(self.encoding)()
        try:
            return self._decoder.decode(chunk, final).encode()
        except UnicodeError as problem:
            held = f"{self._path} cannot be read as {self.encoding} ({problem})"
            raise InvalidInput(f"{held}: name its encoding", option="encoding") from None

    @staticmethod
    def _marked(head: bytes) -> str | None:
        """The encoding that the first bytes tell: UTF-16 by its mark, or by zeros in place of every other letter."""
        for mark, encoding in _MARKS.items():
            if head.startswith(mark):
                return encoding
        sample = head[: min(len(head), 1000) // 2 * 2]
        for encoding, high in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
            if len(sample) >= 4 and sample.count(0) <= len(high) and high.count(0) > 0.9 * len(high):
                return encoding
        return None

    @staticmethod
    def _guessed(chunk: bytes, whole: bool) -> str:
        """UTF-8 if the first letter beyond ASCII is one in it: what is wrong later on is refused with its line."""
        try:
            chunk.decode(UTF8)
        except UnicodeDecodeError as problem:
            cut_off = not whole and problem.end == len(chunk) and len(chunk) - problem.start < 4
            if chunk[: problem.start].isascii() and not cut_off:
                return WESTERN
        return UTF8


def decoded(source: Source, encoding: str | None = None) -> tuple[str, list[str]]:
    """The whole text of a file, and what was guessed of it, in words."""
    with unpacked(source) as (_, content):
        chunks = Decoded(content, name_of(source), encoding)
        data = b"".join(chunks)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        held = f"{name_of(source)} is not in UTF-8: byte {problem.start} is 0x{data[problem.start]:02X}"
        raise InvalidInput(f"{held}: save it as UTF-8, or name its encoding", option="encoding") from None
    return text, [chunks.note] if chunks.note else []
