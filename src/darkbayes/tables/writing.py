"""Columns written to a file as they come."""

import csv
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.files import open_aside, put_in_place
from darkbayes.tables.cells import arrow

CSV, PARQUET = ".csv", (".parquet", ".pq")  # How the names of files end.
STDOUT = "-"  # In place of a path: write CSV to the standard output.


class TableWriter:
    """Writes columns to a CSV file, or to a Parquet file if its name ends so.

    The file is written aside and takes its place when all is well; after an error nothing is left behind.

    Args:
        path: of the file; "-" for CSV to the standard output.
        spare_quotes: whether texts of a CSV file go without quotes if none of the first rows needs them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TableWriter(f"{folder}/out.csv") as writer:
    ...         writer.write({"line": np.asarray([7]), "mean": np.asarray([1.5])})
    ...     print(Path(folder, "out.csv").read_text().splitlines())
    ['line,mean', '7,1.5']
    """

    def __init__(self, path: str | os.PathLike[str], *, spare_quotes: bool = False):
        self._spare_quotes = spare_quotes
        self._path = None if os.fspath(path) == STDOUT else Path(path)
        self._sink: Any = None
        self._writer: Any = None
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
        table = pa.table({name: _stored(values) for name, values in columns.items()})
        if self._writer is None and self._path is not None and self._path.suffix.lower() in PARQUET:
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


def _stored(values: Any) -> Any:
    """Values as arrow writes them, of one type whatever they are."""
    pa = arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if values.dtype == object:
        return pa.array(values.tolist(), pa.string())
    # A student computes in single precision: more digits are noise, and would make a CSV file twice as long.
    return pa.array(values.astype(np.float32) if values.dtype == np.float64 else values)
