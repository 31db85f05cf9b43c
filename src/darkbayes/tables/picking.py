"""Some rows of a file as they are there, with all their columns: also those that no model reads."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from darkbayes.tables.cells import arrow, text_of
from darkbayes.tables.opening import FilePath, Layout, joined_cells, open_rows


def rows_at(
    source: FilePath | bytes | Sequence[FilePath], places: Sequence[int], **layout: Unpack[Layout]
) -> dict[str, Any]:
    r"""The rows at these places of a file, in the order of the places.

    The file is read once more. Cells of a CSV file are texts, null where a value is missing.

    Args:
        source: the file, several, or the content of one.
        places: lines of a CSV file, or numbers of rows of others, as `read_batches` counts them.
        **layout: how the file is laid out, where it is not to be found out.

    Returns:
        Arrow arrays by the names of the columns.

    >>> rows = rows_at(b"name,size\nann,1.50\nbob,NA\ncid,3\n", [4, 3])
    >>> {name: column.to_pylist() for name, column in rows.items()}
    {'name': ['cid', 'bob'], 'size': ['3', None]}
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
        name: arrow().array(map(text_of, cells.tolist()), "string") if isinstance(cells, np.ndarray) else cells
        for name, cells in chosen.items()
    }
