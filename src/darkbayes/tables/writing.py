"""Columns written to a file as they come."""

import csv
import io
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.files import open_aside, put_in_place
from darkbayes.tables.cells import arrow

CSV, PARQUET = ".csv", (".parquet", ".pq")  # How the names of files end.
FORMULA, NUMBER = r"^[=+\-@\t\r]", r"^[+-]?(\d[\d.,]*|[.,]\d+)([eE][+-]?\d+)?$"
"""Text that a spreadsheet would run, unless it is a number."""
SINGLE = 7  # Significant digits that a number in single precision has.
STDOUT = "-"  # In place of a path: write CSV to the standard output.


class TableWriter:
    """Writes columns to a CSV file, or to a Parquet file if its name ends so.

    The file is written aside and takes its place when all is well; after an error nothing is left behind.

    Args:
        path: of the file; "-" for CSV to the standard output.
        spare_quotes: whether texts of a CSV file go without quotes if none of the first rows needs them.
        keep_formulas: whether texts of a CSV file that a spreadsheet would run stay as they are. Otherwise they get an
            apostrophe in front, which makes them text.
        digits: significant digits of numbers that mean something. More than a number in single precision has would
            else make a CSV file twice as long.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TableWriter(f"{folder}/out.csv") as writer:
    ...         writer.write({"line": np.asarray([7]), "mean": np.asarray([1.5])})
    ...     print(Path(folder, "out.csv").read_text().splitlines())
    ['line,mean', '7,1.5']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        spare_quotes: bool = False,
        keep_formulas: bool = False,
        digits: int = SINGLE,
    ):
        self._spare_quotes, self._keep_formulas, self._digits = spare_quotes, keep_formulas, digits
        self._path = None if os.fspath(path) == STDOUT else Path(path)
        self._sink: Any = None
        self._writer: Any = None
        if self._path is None and sys.stdout is None:
            raise InvalidInput("the standard output is closed: name a file to write (--out)")
        if self._path is not None:
            # The file is refused before hours go into its predictions.
            if self._path.is_dir():
                raise InvalidInput(f"{self._path} is a folder: give the name of a CSV or a Parquet file")
            if self._path.suffix.lower() not in (CSV, *PARQUET):
                remedy = "let it end in .csv or .parquet"
                raise InvalidInput(f"{self._path} is neither CSV nor Parquet by its name: {remedy}")

    def __enter__(self) -> "TableWriter":
        self._sink = sys.stdout.buffer if self._path is None else open_aside(self._path)
        return self

    def write(self, columns: Mapping[str, np.ndarray]) -> None:
        """Write some more rows; the first call decides the names and types of the columns."""
        pa = arrow()
        stored = {name: _stored(values, self._digits) for name, values in columns.items()}
        parquet = self._path is not None and self._path.suffix.lower() in PARQUET
        if not parquet and not self._keep_formulas:
            stored = {no_formula(name): _without_formulas(values) for name, values in stored.items()}
        table = pa.table(stored)
        if self._writer is None and parquet:
            self._writer = pa.parquet.ParquetWriter(self._sink, table.schema)
        elif self._writer is None:
            spare = self._spare_quotes and not any(map(_needs_quotes, table.columns))
            options = pa.csv.WriteOptions(include_header=False, quoting_style="none" if spare else "needed")
            header = io.StringIO()
            # Arrow would put quotes around every name.
            csv.writer(header, lineterminator="\n").writerow(table.schema.names)
            self._sink.write(header.getvalue().encode())
            self._writer = pa.csv.CSVWriter(self._sink, table.schema, write_options=options)
        self._writer.write_table(table)

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            if self._path is None:
                self._sink.flush()
            elif kind is None:
                put_in_place(self._sink, self._path)
        finally:
            if self._path is not None:
                self._sink.close()
                Path(self._sink.name).unlink(missing_ok=True)


def _needs_quotes(column: Any) -> bool:
    """Whether a column holds text that no CSV file can hold without quotes; one of blanks would be read as missing."""
    pa = arrow()
    return pa.types.is_string(column.type) and bool(
        pa.compute.any(pa.compute.match_substring_regex(column, r"""[",;\t|\r\n]|^\s|\s$|^$""")).as_py()
    )


def no_formula(text: str) -> str:
    """Text as a cell that no spreadsheet runs.

    Args:
        text: what the cell is to hold.

    Returns:
        The same, with an apostrophe in front if it begins as formulas do and is no number.

    >>> [no_formula(text) for text in ("=1+1", "-1.5e3", "@sum", "red")]
    ["'=1+1", '-1.5e3', "'@sum", 'red']
    """
    return f"'{text}" if re.match(FORMULA, text) and not re.match(NUMBER, text) else text


def _without_formulas(column: Any) -> Any:
    """`no_formula` of each text of an Arrow column."""
    pa = arrow()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    matches = pa.compute.match_substring_regex
    runs = pa.compute.and_not(matches(column, FORMULA), matches(column, NUMBER))
    if not pa.compute.any(runs).as_py():
        return column
    mark, nothing = (pa.scalar(text, column.type) for text in ("'", ""))
    return pa.compute.if_else(runs, pa.compute.binary_join_element_wise(mark, column, nothing), column)


def _stored(values: Any, digits: int) -> Any:
    """Values as arrow writes them, of one type whatever they are."""
    pa = arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if values.dtype == object:
        return pa.array(values.tolist(), pa.string())
    return pa.array(values.astype(np.float32) if values.dtype == np.float64 and digits <= SINGLE else values)
