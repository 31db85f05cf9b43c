"""Some rows of a file as they are there, with all their columns: also those that no model reads."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from darkbayes.tables.cells import arrow
from darkbayes.tables.csvfile import Source, open_csv
from darkbayes.tables.reading import existing, is_parquet, open_parquet, parse_rows


def rows_at(
    source: str | os.PathLike[str] | bytes, places: Sequence[int], *, delimiter: str | None = None
) -> dict[str, Any]:
    r"""The rows at these places of a CSV or a Parquet file, in the order of the places.

    The file is read once more, by blocks. Cells of a CSV file are texts, null where a value is missing.

    Args:
        source: the file, or the content of one.
        places: lines of a CSV file, or numbers of rows of a Parquet file, as `read_batches` counts them.
        delimiter: what separates the fields of a CSV file; found out by default.

    Returns:
        Arrow arrays by the names of the columns.

    >>> rows = rows_at(b"name,size\nann,1.50\nbob,NA\ncid,3\n", [4, 3])
    >>> {name: column.to_pylist() for name, column in rows.items()}
    {'name': ['cid', 'bob'], 'size': ['3', None]}
    """
    file: Source = source if isinstance(source, bytes) else existing(source)
    wanted = np.asarray(places, np.int64)
    parts, lines = [], []
    for rows, numbers in _parquet_parts(file) if is_parquet(file) else _csv_parts(file, delimiter):
        kept = np.flatnonzero(np.isin(numbers, wanted))
        if len(kept) or not parts:
            parts.append(rows.take(kept))
            lines.append(numbers[kept])
    at = {line: row for row, line in enumerate(np.concatenate(lines).tolist())}
    table = arrow().concat_tables(parts).take([at[place] for place in wanted.tolist()])
    return dict(zip(table.column_names, table.columns, strict=True))


def _csv_parts(source: Source, delimiter: str | None) -> Iterator[tuple[Any, np.ndarray]]:
    pa = arrow()
    with open_csv(source, delimiter) as file:
        names = list(file.names)
        for block in file.blocks():
            rows, lines, _ = parse_rows(block, len(names), dict.fromkeys(range(len(names)), pa.string()))
            yield rows.rename_columns(names), lines


def _parquet_parts(source: Source) -> Iterator[tuple[Any, np.ndarray]]:
    start = 1
    with open_parquet(source) as file:
        for rows in file.iter_batches(use_threads=False):
            yield arrow().Table.from_batches([rows]), np.arange(start, start + rows.num_rows)
            start += rows.num_rows
