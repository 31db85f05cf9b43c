"""Tables read from files into memory, for fitting; `read_batches` is for files of any size.

CSV files are in UTF-8, with the names of the columns in the first line; columns are separated by commas, semicolons,
tabs or bars, which is found out. Numbers have a decimal point. Parquet files are recognised by their first bytes.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import MISSING, PADDED, arrow, coded, floats, is_number, is_text, plain, read_cells, trimmed
from darkbayes.tables.columns import Column, Table, column_of_texts, dates, first_of, require_distinct, strange
from darkbayes.tables.csvfile import BadRow, Block, Source, name_of, open_csv

BUFFER = 2**20  # Bytes of a Parquet file's column that are read at a time.


def read_table(path: str | os.PathLike[str], *, delimiter: str | None = None) -> Table:
    r"""Read a CSV file, which may be compressed by gzip, or a Parquet file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "houses.csv").write_text("size;colour\n12.5;red\nNA;blue\n")
    ...     table = read_table(Path(folder, "houses.csv"))
    >>> table.columns["size"].values, table.columns["colour"].kind, table.place(1)
    (array([12.5,  nan]), 'text', 'line 3')
    """
    path = existing(path)
    names, rows, lines, unit = _parquet_rows(path) if is_parquet(path) else _csv_rows(path, delimiter)
    if rows is None or not rows.num_rows:
        raise no_rows(str(path), len(names))
    table = Table({}, lines, unit, str(path))
    table.columns.update({name: _column(name, rows.column(k), table.place) for k, name in enumerate(names)})
    return table


def existing(path: str | os.PathLike[str]) -> Path:
    """A path that leads to a file, or an error."""
    path = Path(path)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder, not a table: give a CSV or a Parquet file")
    if not path.exists():
        raise InvalidInput(f"{path} is not there: give a CSV or a Parquet file")
    return path


def no_rows(source: str, columns: int) -> InvalidInput:
    """What to raise where a table has nothing but a header."""
    return InvalidInput(f"{source} has the names of {columns} columns, but no rows: is it the right file?")


def is_parquet(source: Source) -> bool:
    """Whether the first bytes are those of a Parquet file."""
    if isinstance(source, bytes):
        return source.startswith(b"PAR1")
    with source.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def open_parquet(source: Source) -> Any:
    """A Parquet file that is open for reading."""
    pa = arrow()
    file = pa.BufferReader(source) if isinstance(source, bytes) else source
    try:
        return pa.parquet.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as problem:
        raise InvalidInput(f"{name_of(source)} cannot be read as Parquet: {problem}") from None


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

    options = {"column_names": [str(k) for k in range(width)], "use_threads": False, "block_size": len(block.data) + 1}
    rows = pa.csv.read_csv(
        pa.BufferReader(block.data),
        pa.csv.ReadOptions(**options),
        pa.csv.ParseOptions(delimiter=block.delimiter, newlines_in_values=True, invalid_row_handler=skip),
        pa.csv.ConvertOptions(
            column_types={str(k): kind for k, kind in types.items()},
            include_columns=[str(k) for k in types],
            null_values=sorted(MISSING),
            strings_can_be_null=True,
        ),
    )
    return rows, ragged


def _csv_rows(path: Path, delimiter: str | None) -> tuple[Any, Any, np.ndarray, Any]:
    pa = arrow()
    with open_csv(path, delimiter) as file:
        types = dict.fromkeys(range(len(file.names)), pa.string())
        parts = [parse_rows(block, len(file.names), types) for block in file.blocks()]
    bad = [row for _, _, ragged in parts for row in ragged]
    if bad:
        separates = f"{file.delimiter!r} was taken to separate columns"
        remedy = "Put quotes around text that holds it, or correct these lines"
        raise InvalidInput(f"{path}: {first_of(bad)} ({separates}). {remedy}")
    lines = np.concatenate([np.empty(0, np.int64), *[numbers for _, numbers, _ in parts]])
    return file.names, pa.concat_tables([rows for rows, _, _ in parts]) if parts else None, lines, "line"


def _parquet_rows(path: Path) -> tuple[Any, Any, np.ndarray, Any]:
    with open_parquet(path) as file:
        rows = file.read()
    require_distinct(rows.column_names, str(path))
    return rows.column_names, rows, np.arange(1, rows.num_rows + 1), "row"


def _column(name: str, values: Any, place: Callable[[int], str]) -> Column:
    pa, values = arrow(), plain(values)
    if is_number(values.type):
        return Column("number", floats(values))
    if pa.types.is_boolean(values.type):
        return Column("boolean", read_cells({name: values}, {name: ()})[0][name])
    if is_text(values.type):
        texts = trimmed(values)
        try:
            # Most columns of numbers are nothing else, and need no look at each cell.
            numbers = texts.cast(pa.float64())
            codes = pa.compute.match_substring_regex(texts, f"^{PADDED.pattern}$")
            if not pa.compute.any(pa.compute.or_kleene(codes, pa.compute.is_nan(numbers))).as_py():
                return Column("number", floats(numbers), cells=values)
        except pa.ArrowInvalid:
            pass
        return column_of_texts(name, *coded(texts), values, place)
    if not pa.types.is_temporal(values.type):
        return strange(name, str(values.type))
    there = values.drop_null()
    return dates(name, str(there[0].as_py() if len(there) else values.type))
