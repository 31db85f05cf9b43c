"""Tables read from files into memory, for fitting; `read_batches` is for files of any size."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from darkbayes.tables.cells import EMPTY, arrow, text_of
from darkbayes.tables.columns import Table, guessed_table
from darkbayes.tables.guessing import Wishes
from darkbayes.tables.opening import FilePath, Layout, joined_cells, open_rows


def read_table(path: FilePath | Sequence[FilePath], *, wishes: Wishes | None = None, **layout: Unpack[Layout]) -> Table:
    r"""Read a file, or several with the same columns: CSV, Parquet, and those of `formats`; they may be compressed.

    Args:
        path: the file or files.
        wishes: what columns are; by default that is inferred from their values.
        layout: how a file is laid out (`opening.Layout`); detected by default.

    Returns:
        The table.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "houses.csv").write_text("size;colour\n12.5;red\nNA;blue\n")
    ...     table = read_table(Path(folder, "houses.csv"))
    >>> table.columns["size"].values, table.columns["colour"].kind, table.place(1)
    (array([12.5,  nan]), 'text', 'line 3')
    """
    rows = open_rows(path, **layout)
    parts = list(rows.parts(rows.names))
    rows.refuse([row for part in parts for row in part.bad])
    lines = np.concatenate([np.empty(0, np.int64), *[part.lines for part in parts]])
    rows.require(len(lines))
    cells = {name: joined_cells([part.cells[name] for part in parts]) for name in rows.names}
    return guessed_table(cells, lines, rows.unit, rows.name, wishes, rows.notes)


def rows_at(
    source: FilePath | bytes | Sequence[FilePath], places: Sequence[int], **layout: Unpack[Layout]
) -> dict[str, Any]:
    r"""The rows at these places of a file, in the order of the places.

    All columns are read, also those that no model reads, as arrays of Arrow. Places are lines of a CSV file, or numbers
    of rows of others, as `read_batches` counts them. Cells of a CSV file are texts, null where they are empty.

    >>> rows = rows_at(b"name,size\nann,1.50\nbob,NA\ncid,3\n", [4, 3])
    >>> {name: column.to_pylist() for name, column in rows.items()}
    {'name': ['cid', 'bob'], 'size': ['3', 'NA']}
    """
    rows, wanted = open_rows(source, **layout), np.asarray(places, np.int64)
    parts, lines = [], []
    for part in rows.parts(rows.names):
        kept = np.flatnonzero(np.isin(part.lines, wanted))
        if len(kept) or not parts:
            parts.append({name: cells.take(kept) for name, cells in part.cells.items()})
            lines.append(part.lines[kept])
    at = {line: row for row, line in enumerate(np.concatenate(lines).tolist())}
    order = np.asarray([at[place] for place in wanted.tolist()], np.int64)
    chosen = {name: joined_cells([part[name] for part in parts]).take(order) for name in rows.names}
    return {
        name: arrow().array((text_of(cell, EMPTY) for cell in cells.tolist()), "string")
        if isinstance(cells, np.ndarray)
        else cells
        for name, cells in chosen.items()
    }
