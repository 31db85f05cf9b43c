"""Tables read from files into memory, for fitting; `read_batches` is for files of any size."""

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.tables.columns import Table, first_of, guessed_table
from darkbayes.tables.csvfile import BadRow
from darkbayes.tables.guessing import Wishes
from darkbayes.tables.opening import CsvRows, FilePath, Layout, Rows, joined_cells, no_rows, open_rows


def read_table(path: FilePath | Sequence[FilePath], *, wishes: Wishes | None = None, **layout: Unpack[Layout]) -> Table:
    r"""Read a file, or several with the same columns: CSV, Parquet, and those of `formats`; they may be compressed.

    What the columns are, and how the file is laid out, is found out where `wishes` and `layout` do not say it.

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
    refuse_bad(rows, [row for part in parts for row in part.bad])
    lines = np.concatenate([np.empty(0, np.int64), *[part.lines for part in parts]])
    if not len(lines):
        raise no_rows(rows.name, len(rows.names))
    cells = {name: joined_cells([part.cells[name] for part in parts]) for name in rows.names}
    return guessed_table(cells, lines, rows.unit, rows.name, wishes, rows.notes)


def refuse_bad(rows: Rows, bad: Sequence[BadRow]) -> None:
    """Refuse rows that have too many or too few fields."""
    if bad:
        separates = f" ({rows.delimiter!r} was taken to separate columns)" if isinstance(rows, CsvRows) else ""
        remedy = "Put quotes around text that holds it, or correct these lines"
        raise InvalidInput(f"{rows.name}: {first_of(bad)}{separates}. {remedy}")
