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
from darkbayes.tables.cells import arrow, is_text
from darkbayes.tables.opening import PARQUET

CSV = ".csv"  # How the names of files end.
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
        self._begun = False
        if self._path is None and sys.stdout is None:
            raise InvalidInput("the standard output is closed: name a file to write", option="out")
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

    def write(self, columns: Mapping[str, Any]) -> None:
        """Write some more rows; the first call decides the names and types of the columns.

        Args:
            columns: an array for each, by name.
        """
        self.append(self.formed(columns))

    def formed(self, columns: Mapping[str, Any]) -> Any:
        """Some rows as the file holds them, for `append`; on any thread.

        Args:
            columns: an array for each, by name.

        Returns:
            What `append` takes.
        """
        pa = arrow()
        table = arrow_table(columns, self._digits)
        if self._parquet:
            return table
        if not self._keep_formulas:
            stored = map(_without_formulas, table.columns)
            table = pa.table(dict(zip(map(no_formula, table.column_names), stored, strict=True)))
        spare = self._spare_quotes and not any(map(_needs_quotes, table.columns))
        options = pa.csv.WriteOptions(include_header=False, quoting_style="none" if spare else "needed")
        lines = pa.BufferOutputStream()
        pa.csv.write_csv(table, lines, options)
        return table.column_names, lines.getvalue()

    def append(self, formed: Any) -> None:
        """Write what was formed after all before it.

        Args:
            formed: what `formed` made of the rows.
        """
        if self._parquet:
            if self._writer is None:
                # Numbers are seldom the same twice: looking for it would take longer than all else.
                texts = [field.name for field in formed.schema if is_text(field.type)]
                self._writer = arrow().parquet.ParquetWriter(self._sink, formed.schema, use_dictionary=texts)
            self._writer.write_table(formed)
            return
        names, lines = formed
        if not self._begun:
            header = io.StringIO()
            # Arrow would put quotes around every name.
            csv.writer(header, lineterminator="\n").writerow(names)
            self._put(header.getvalue().encode())
            self._begun = True
        self._put(lines)

    def _put(self, content: Any) -> None:
        """Write all of it: a standard output without a buffer (``PYTHONUNBUFFERED``) takes as much as it likes."""
        rest = memoryview(content)
        while rest:
            rest = rest[self._sink.write(rest) :]

    @property
    def _parquet(self) -> bool:
        return self._path is not None and self._path.suffix.lower() in PARQUET

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
    """Text as a cell that no spreadsheet runs: with an apostrophe before what begins as formulas do and is no number.

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


def arrow_table(columns: Mapping[str, Any], digits: int = SINGLE) -> Any:
    """Columns as an arrow table, with numbers in single precision if they have no more significant digits."""
    return arrow().table({name: _stored(values, digits) for name, values in columns.items()})


def _stored(values: Any, digits: int) -> Any:
    """Values as arrow writes them, of one type whatever they are."""
    pa = arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if values.dtype == object:
        return pa.array(values.tolist(), pa.string())
    return pa.array(values.astype(np.float32) if values.dtype == np.float64 and digits <= SINGLE else values)
