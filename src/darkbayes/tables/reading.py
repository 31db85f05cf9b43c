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
from darkbayes.tables.columns import (
    MISSING,
    PADDED,
    TRUTH,
    Column,
    Table,
    column_of_texts,
    dates_problem,
    kind_problem,
    require_distinct,
)
from darkbayes.tables.csvfile import BadRow, Block, CsvFile, listed_rows


def read_table(path: str | os.PathLike[str], *, delimiter: str | None = None) -> Table:
    r"""Read a CSV or a Parquet file.

    Args:
        path: The file. A CSV file may be compressed by gzip.
        delimiter: What separates the columns of a CSV file; found out unless given.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "houses.csv").write_text("size;colour\n12.5;red\nNA;blue\n")
    ...     table = read_table(Path(folder, "houses.csv"))
    >>> table.columns["size"].values, table.columns["colour"].kind, table.place(1)
    (array([12.5,  nan]), 'text', 'line 3')
    """
    path = existing(path)
    table = _read_parquet(path) if is_parquet(path) else _read_csv(path, delimiter)
    if not table.rows:
        raise InvalidInput(f"{path} has the names of {len(table.columns)} columns, but no rows: is it the right file?")
    return table


def existing(path: str | os.PathLike[str]) -> Path:
    """A path that leads to a file, or an error."""
    path = Path(path)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder, not a table: give a CSV or a Parquet file")
    if not path.exists():
        raise InvalidInput(f"{path} is not there: give a CSV or a Parquet file")
    return path


def is_parquet(source: Path | bytes) -> bool:
    """Whether the first bytes are those of a Parquet file."""
    if isinstance(source, bytes):
        return source.startswith(b"PAR1")
    with source.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def arrow() -> Any:
    """The library that reads files, with the parts that are used here."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput('reading files needs pyarrow: pip install "darkbayes[tables]"') from None
    return pyarrow


def parse(block: Block, width: int, types: dict[int, Any]) -> Any:
    """A block's rows as a table of arrow, its columns named by their numbers; those of `types` alone are read.

    Raises:
        pyarrow.ArrowInvalid: If a row has too many or too few fields, or a cell is not of the type.
    """
    pa = arrow()
    if not block.data.strip():
        return pa.table({str(k): pa.array([], kind) for k, kind in types.items()})
    return pa.csv.read_csv(
        pa.BufferReader(block.data),
        read_options=pa.csv.ReadOptions(
            column_names=[str(k) for k in range(width)], use_threads=False, block_size=len(block.data) + 1
        ),
        parse_options=pa.csv.ParseOptions(delimiter=block.delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types={str(k): kind for k, kind in types.items()},
            include_columns=[str(k) for k in types],
            null_values=sorted(MISSING),
            strings_can_be_null=True,
        ),
    )


def parse_rows(block: Block, width: int, types: dict[int, Any]) -> tuple[Any, np.ndarray, list[BadRow]]:
    """As `parse`, with the line of each row; rows with another number of fields are left out and returned."""
    pa = arrow()
    try:
        found = parse(block, width, types)
        return found, block.lines(found.num_rows), []
    except pa.ArrowInvalid:
        block, lines, bad = block.without_ragged(width)
        return parse(block, width, types), lines, bad


def _read_csv(path: Path, delimiter: str | None) -> Table:
    pa = arrow()
    with CsvFile(path, delimiter) as file:
        parts, lines, bad, width = [], [], [], len(file.names)
        types = dict.fromkeys(range(width), pa.string())
        for block in file.blocks():
            found, numbers, ragged = parse_rows(block, width, types)
            parts.append(found)
            lines.append(numbers)
            bad += ragged
    if bad:
        separates = f"{file.delimiter!r} was taken to separate columns"
        raise InvalidInput(
            f"{path}: {listed_rows(bad)} ({separates}). Put quotes around text that holds it, or correct these lines"
        )
    table = pa.concat_tables(parts) if parts else None
    numbered = np.concatenate(lines) if lines else np.empty(0, np.int64)

    def place(row: int) -> str:
        return f"line {numbered[row]}"

    columns = {}
    for k, name in enumerate(file.names):
        columns[name] = (
            column_of_strings(name, table.column(k), place) if table is not None else Column("number", np.empty(0))
        )
    return Table(columns, numbered, "line", str(path))


def _read_parquet(path: Path) -> Table:
    pa = arrow()
    try:
        found = pa.parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as problem:
        raise InvalidInput(f"{path} cannot be read as Parquet: {problem}") from None
    require_distinct(found.column_names, str(path))
    lines = np.arange(1, found.num_rows + 1)
    columns = {
        name: column_of_arrow(name, found.column(name), lambda row: f"row {row + 1}") for name in found.column_names
    }
    return Table(columns, lines, "row", str(path))


def column_of_arrow(name: str, values: Any, place: Callable[[int], str]) -> Column:
    """A column of any type that arrow has."""
    pa, values = arrow(), decoded(values)
    if is_number(values.type):
        return Column("number", floats(values))
    if pa.types.is_boolean(values.type):
        return Column("boolean", truths(values))
    if is_text(values.type):
        return column_of_strings(name, values, place)
    return Column("unusable", np.empty(0), _type_problem(name, values))


def _type_problem(name: str, values: Any) -> str:
    if not arrow().types.is_temporal(values.type):
        return kind_problem(name, str(values.type))
    there = values.drop_null()
    return dates_problem(name, str(there[0].as_py() if len(there) else values.type))


def decoded(values: Any) -> Any:
    """Values that are stored once each, as their own type."""
    return values.cast(values.type.value_type) if arrow().types.is_dictionary(values.type) else values


def is_number(kind: Any) -> bool:
    """Whether a type of arrow is one of numbers; a column of nothing counts."""
    types = arrow().types
    return any(of(kind) for of in (types.is_null, types.is_integer, types.is_floating, types.is_decimal))


def is_text(kind: Any) -> bool:
    """Whether a type of arrow is one of strings."""
    types = arrow().types
    return any(of(kind) for of in (types.is_string, types.is_large_string, types.is_string_view))


def floats(values: Any) -> np.ndarray:
    """Numbers of any type that arrow has as float64, NaN where one is missing."""
    pa = arrow()
    numbers = values if values.type == pa.float64() else pa.compute.cast(values, pa.float64(), safe=False)
    return numbers.to_numpy(zero_copy_only=False)


def truths(values: Any) -> np.ndarray:
    """Truth values by their names, None where one is missing."""
    pa = arrow()
    numbers = pa.compute.fill_null(values.cast(pa.int8()), len(TRUTH)).to_numpy()
    return np.asarray([*TRUTH, None], object)[numbers]


def trimmed(values: Any) -> Any:
    """Strings without space around them, null where they say that a value is missing."""
    pa = arrow()
    # Views lack most of the functions that strings have.
    values = values.cast(pa.string()) if pa.types.is_string_view(values.type) else values
    short = pa.compute.utf8_trim_whitespace(values)
    marked = pa.compute.is_in(short, value_set=pa.array(sorted(MISSING), short.type))
    return pa.compute.if_else(marked, pa.scalar(None, short.type), short)


def column_of_strings(name: str, values: Any, place: Callable[[int], str]) -> Column:
    """A column of strings that arrow holds."""
    pa = arrow()
    try:
        numbers = floats(values.cast(pa.float64()))
        if not pa.compute.any(pa.compute.match_substring_regex(values, f"^{PADDED.pattern}$")).as_py():
            return Column("number", numbers)
    except pa.ArrowInvalid:
        pass
    distinct, codes = coded(trimmed(values))
    return column_of_texts(name, distinct, codes, place)


def coded(values: Any) -> tuple[list[str | None], np.ndarray]:
    """The different strings, None as the last of them, and the number of each row's."""
    pa = arrow()
    chunked = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    dictionary = chunked.dictionary_encode().unify_dictionaries().combine_chunks()
    names = [*dictionary.dictionary.to_pylist(), None]
    return names, pa.compute.fill_null(dictionary.indices, len(names) - 1).to_numpy().astype(np.int64)
