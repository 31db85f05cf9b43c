"""One door to the rows of files, whatever they are: names of columns first, then cells by parts, in their order.

CSV and Parquet files are read by parts; others (`formats`) are read as a whole. Several files with the same columns are
one table, whose rows are counted through.
"""

import abc
import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np

from darkbayes.errors import InvalidInput, first_line
from darkbayes.tables.cells import MISSING, arrow, is_text, plain
from darkbayes.tables.columns import first_of, listed, require_columns, require_distinct
from darkbayes.tables.csvfile import BadRow, Block, open_csv
from darkbayes.tables.decoding import Source, name_of, read_again
from darkbayes.tables.formats import kind_of, load

PARQUET = (".parquet", ".pq")  # How the names of Parquet files end.
BUFFER = 2**20  # Bytes of a Parquet file's column that are read at a time.
ROWS = 2**16  # Rows of a part of a file that does not decide itself.
FilePath = str | os.PathLike[str]


class Layout(TypedDict, total=False):
    """How a file is laid out, where that is not to be found out."""

    delimiter: str | None
    """What separates the fields of a CSV file."""
    encoding: str | None
    """Of a CSV or JSON file, as Python calls it."""
    sheet: str | None
    """The sheet of a spreadsheet; the first by default."""
    query: str | None
    """What to ask of a database; all of its only table by default."""


class Part(NamedTuple):
    """Some rows: cells by the name of the column, the number of each row, rows that are none, and the share read."""

    cells: dict[str, Any]
    lines: np.ndarray
    bad: list[BadRow]
    share: float


Piece = Callable[[], Part]
_NOTHING: Mapping[str, Any] = {}


class Rows(abc.ABC):
    """The rows of a file.

    Attributes:
        name: what messages call it.
        names: of the columns.
        types: of those whose type the file knows, arrow's.
        unit: what the lines of a part count, from 1.
        notes: what was guessed so far, in words.
    """

    name: str
    names: list[str]
    types: dict[str, Any]
    unit: Literal["line", "row"] = "row"
    notes: list[str]

    def parts(self, wanted: Sequence[str]) -> Iterator[Part]:
        """The rows, from the first on."""
        return (piece() for piece in self.pieces(wanted))

    def refuse(self, bad: Sequence[BadRow]) -> None:
        """Refuse rows that have too many or too few fields."""
        if bad:
            separates = f" ({self.delimiter!r} was taken to separate columns)" if isinstance(self, CsvRows) else ""
            remedy = "Put quotes around text that holds it, or correct these lines"
            raise InvalidInput(f"{self.name}: {first_of(bad)}{separates}. {remedy}")

    def require(self, number: int) -> None:
        """Refuse a table that has nothing but a header."""
        if not number:
            columns = f"the names of {len(self.names)} columns"
            raise InvalidInput(f"{self.name} has {columns}, but no rows: is it the right file?")

    @abc.abstractmethod
    def pieces(self, wanted: Sequence[str], rows: int = ROWS, known: Mapping[str, Any] = _NOTHING) -> Iterator[Piece]:
        """What makes the parts, each by itself and on any thread.

        Args:
            wanted: the columns to read.
            rows: of a part, where the file does not decide it.
            known: what some columns are (`TableSchema.wanted`). Numbers of a CSV file are read as such where all of a
                part are, and of categories each text is kept once.
        """


class CsvRows(Rows):
    """Those of a CSV file."""

    unit = "line"

    def __init__(self, source: Source, delimiter: str | None, encoding: str | None):
        self._source, self._how = source, (delimiter, encoding)
        self.name, self.types, self.notes = name_of(source), {}, []
        with open_csv(source, *self._how) as file:
            self.names, self.delimiter = list(file.names), file.delimiter

    def pieces(self, wanted: Sequence[str], rows: int = ROWS, known: Mapping[str, Any] = _NOTHING) -> Iterator[Piece]:
        pa = arrow()
        size = len(self._source) if isinstance(self._source, bytes) else self._source.stat().st_size
        with open_csv(self._source, *self._how) as file:
            at = {name: place for place, name in enumerate(file.names)}
            types = {at[name]: pa.string() for name in wanted}
            types |= {at[name]: pa.float64() for name, kind in known.items() if kind is None}
            coded = [name for name, kind in known.items() if isinstance(kind, tuple)]
            types |= {at[name]: pa.dictionary(pa.int32(), pa.string()) for name in coded}

            def piece(block: Block, share: float) -> Part:
                table, lines, bad = parse_rows(block, len(at), types)
                return Part({name: table.column(str(at[name])) for name in wanted}, lines, bad, share)

            for block in file.blocks():
                self.notes = file.notes
                yield functools.partial(piece, block, file.share(size))


class ParquetRows(Rows):
    """Those of a Parquet file."""

    def __init__(self, source: Source):
        self._source, self.name, self.notes = source, name_of(source), []
        with open_parquet(source) as file:
            self.names = list(file.schema_arrow.names)
            self.types = {field.name: field.type for field in file.schema_arrow}
        require_distinct(self.names, self.name)

    def pieces(self, wanted: Sequence[str], rows: int = ROWS, known: Mapping[str, Any] = _NOTHING) -> Iterator[Piece]:
        start, coded = 1, [name for name, kind in known.items() if isinstance(kind, tuple)]
        with open_parquet(self._source, coded) as file:
            for batch in _batches(self._source, file.iter_batches(rows, columns=list(wanted))):
                lines = np.arange(start, start := start + batch.num_rows)
                cells = _plain({name: batch.column(name) for name in wanted}, known)
                yield functools.partial(Part, cells, lines, [], (start - 1) / file.metadata.num_rows)


class LoadedRows(Rows):
    """Those of columns in memory."""

    def __init__(self, name: str, names: list[str], cells: Sequence[Any], notes: list[str]):
        self.name, self.names, self.notes = name, names, notes
        require_distinct(self.names, self.name)
        self._cells = dict(zip(self.names, cells, strict=True))
        self.types = {name: each.type for name, each in self._cells.items() if not isinstance(each, np.ndarray)}
        self._rows = len(cells[0]) if cells else 0

    def pieces(self, wanted: Sequence[str], rows: int = ROWS, known: Mapping[str, Any] = _NOTHING) -> Iterator[Piece]:
        for start in range(0, self._rows, rows):
            end = min(start + rows, self._rows)
            cells = _plain({name: self._cells[name][start:end] for name in wanted}, known)
            yield functools.partial(Part, cells, np.arange(start + 1, end + 1), [], end / self._rows)


def _plain(cells: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Columns without dictionaries of what is stored once, unless they are known to be categories."""
    coded = [name for name, each in cells.items() if isinstance(each, np.ndarray) or isinstance(known.get(name), tuple)]
    return {name: each if name in coded else plain(each) for name, each in cells.items()}


class JoinedRows(Rows):
    """Those of several files, counted through."""

    def __init__(self, files: Sequence[Rows]):
        self._files, self.names = files, files[0].names
        self.name = f"{files[0].name} and {len(files) - 1} other{'s' * (len(files) > 2)}"
        for file in files[1:]:
            require_columns(self.names, file.names, file.name)
            require_columns(file.names, self.names, files[0].name)
        self.types = {name: kind for file in files for name, kind in file.types.items()}

    @property
    def notes(self) -> list[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        names = listed([Path(file.name).name for file in self._files])
        joined = f"{len(self._files)} files are joined, and their rows counted through: {names}"
        return [joined, *(note for file in self._files for note in file.notes)]

    def pieces(self, wanted: Sequence[str], rows: int = ROWS, known: Mapping[str, Any] = _NOTHING) -> Iterator[Piece]:
        start = 1
        for place, file in enumerate(self._files):
            for piece in file.pieces(wanted, rows, known):
                part = piece()  # How many rows it has, the next must know.
                lines = np.arange(start, start := start + len(part.lines))
                bad = [BadRow(row.line, row.reason, f"{file.name} {row.unit}") for row in part.bad]
                yield functools.partial(Part, part.cells, lines, bad, (place + part.share) / len(self._files))


def open_rows(source: Any, **layout: Unpack[Layout]) -> Rows:
    """The rows of a file, or of its content (CSV or Parquet); of several files with the same columns, or of a folder
    with parts in Parquet; or of a table or a record batch of arrow."""
    pa = arrow()  # Without it no file is read, and that is said first.
    if isinstance(source, pa.Table | pa.RecordBatch):
        return LoadedRows("the table", source.schema.names, source.columns, [])
    if isinstance(source, str | os.PathLike):
        source = parts_in(Path(source)) or source
    if isinstance(source, list | tuple):
        if not source:
            raise InvalidInput("no file is named: give one at least")
        files = [open_rows(path, **layout) for path in source]
        return files[0] if len(files) == 1 else JoinedRows(files)
    if isinstance(source, bytes):
        return _rows_of(source, **layout)
    with contextlib.ExitStack() as opened:
        rows = _rows_of(opened.enter_context(read_again(existing(source))), **layout)
        # The copy of a pipe is there as long as its rows may be read.
        weakref.finalize(rows, opened.pop_all().close)
    return rows


def _rows_of(content: Source, **layout: Unpack[Layout]) -> Rows:
    """Those of one file."""
    if isinstance(content, bytes):
        kind = "parquet" if is_parquet(content) else "csv"
    else:
        kind = kind_of(content)
    if kind == "parquet":
        return ParquetRows(content)
    if kind == "csv":
        for name in ("query", "sheet"):
            if (asked := layout.get(name)) is not None:
                raise InvalidInput(f"{name_of(content)} is a CSV file: leave out the {name} {asked!r}")
        return CsvRows(content, layout.get("delimiter"), layout.get("encoding"))
    assert isinstance(content, Path)
    how = {name: layout.get(name) for name in ("query", "sheet", "encoding")}
    return LoadedRows(name_of(content), *load(content, kind, **how))


def parts_in(path: Path) -> list[Path]:
    """The Parquet files of a folder, by name, as many engines write a table; what they hide is passed over."""
    files = sorted(path.glob("*")) if path.is_dir() else []
    return [file for file in files if file.suffix in PARQUET and not file.name.startswith((".", "_"))]


def existing(path: FilePath) -> Path:
    """A path that leads to a file, or an error."""
    path = Path(path)
    if path.is_dir():
        remedy = "give a file, or a folder of Parquet files"
        raise InvalidInput(f"{path} is a folder, not a table: {remedy}")
    if not path.exists():
        if str(path) == "-":
            raise InvalidInput("'-' is not a file, and standard input is not read: save the table, or give <(COMMAND)")
        raise InvalidInput(f"{path} does not exist: give a file that holds a table")
    return path


def is_parquet(content: bytes) -> bool:
    """Whether the first bytes are those of a Parquet file."""
    return content.startswith(b"PAR1")


def open_parquet(source: Source, coded: Sequence[str] = ()) -> Any:
    """A Parquet file that is open for reading; of `coded` columns each text is kept once."""
    pa = arrow()
    file = pa.BufferReader(source) if isinstance(source, bytes) else source
    with _readable(source):
        return pa.parquet.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False, read_dictionary=list(coded))


@contextlib.contextmanager
def _readable(source: Source) -> Iterator[None]:
    """Where a Parquet file that cannot be read is refused."""
    try:
        yield
    except (arrow().ArrowInvalid, OSError) as problem:
        raise InvalidInput(
            f"{name_of(source)} cannot be read as Parquet ({first_line(problem)}): write it again"
        ) from None


def _batches(source: Source, batches: Iterator[Any]) -> Iterator[Any]:
    """Those of a Parquet file, whose pages are unpacked one after another."""
    while True:
        with _readable(source):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def parse_rows(block: Block, width: int, types: dict[int, Any]) -> tuple[Any, np.ndarray, list[BadRow]]:
    """A block's rows as a table of arrow; the line of each; and the rows that have too many or too few fields.

    Columns go by their numbers, and those in `types` are read: all as texts where a cell should be a number and is not.
    """
    pa = arrow()
    try:
        rows, ragged = _parsed(block, width, types)
        numbers = (column for column in rows.columns if pa.types.is_floating(column.type))
        # Arrow takes "NAN" and "nan(1)" for numbers that are none.
        if any(pa.compute.any(pa.compute.is_nan(column)).as_py() for column in numbers):
            raise pa.ArrowInvalid
    except pa.ArrowInvalid:
        rows, ragged = _parsed(block, width, dict.fromkeys(types, pa.string()))
    lines = block.lines(rows.num_rows + len(ragged))
    bad = []
    for row in ragged:
        if row.text.strip():
            fields = f"{row.actual_columns} field{'s' * (row.actual_columns != 1)}"
            bad.append(BadRow(int(lines[row.number - 1]), f"{fields} instead of {width}"))
    return rows, np.delete(lines, [row.number - 1 for row in ragged]), bad


def _parsed(block: Block, width: int, types: dict[int, Any]) -> tuple[Any, list[Any]]:
    """The rows whose cells are of these types, and those of another width; pyarrow.ArrowInvalid if a cell is not."""
    pa, ragged = arrow(), []
    if not block.data.strip():
        return pa.table({str(k): pa.array([], kind) for k, kind in types.items()}), []

    def skip(row: Any) -> str:
        ragged.append(row)
        return "skip"

    # What a text says is for its reader: which texts are missing depends on what the column is.
    numbers = any(map(pa.types.is_floating, types.values()))
    options = {"column_names": [str(k) for k in range(width)], "use_threads": False, "block_size": len(block.data) + 1}
    rows = pa.csv.read_csv(
        pa.BufferReader(block.data),
        pa.csv.ReadOptions(**options),
        pa.csv.ParseOptions(delimiter=block.delimiter, newlines_in_values=True, invalid_row_handler=skip),
        pa.csv.ConvertOptions(
            column_types={str(k): kind for k, kind in types.items()},
            include_columns=[str(k) for k in types],
            null_values=sorted(MISSING) if numbers else [""],
            strings_can_be_null=not numbers,
        ),
    )
    return rows, ragged


def joined_cells(parts: Sequence[Any]) -> Any:
    """The cells of a column, part after part."""
    pa = arrow()
    if all(isinstance(part, pa.Array | pa.ChunkedArray) for part in parts):
        kinds = {part.type for part in parts}
        if len(kinds) > 1 and all(is_text(kind) for kind in kinds):
            parts, kinds = [part.cast(pa.string()) for part in parts], {pa.string()}
        if len(kinds) == 1:
            arrays = [array for part in parts for array in (part.chunks if hasattr(part, "chunks") else [part])]
            return pa.chunked_array(arrays, next(iter(kinds)))
    pieces = [part if isinstance(part, np.ndarray) else np.fromiter(part.to_pylist(), object) for part in parts]
    return np.concatenate(pieces)
