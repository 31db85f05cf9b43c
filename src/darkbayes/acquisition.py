"""Which rows are worth labelling: those of which the student has most doubt, and no two that would teach the same.

A label of row i teaches as much as the student's doubt of it, the epistemic part of its uncertainty (`Target.doubt`).
Of several rows at once that is not the sum: ten copies of a row teach next to nothing more than one. With the network's
inputs x, doubts d and

    K_ij = sqrt(d_i d_j) exp(-|x_i - x_j|^2 / 2 l^2),

as if doubt were the variance of a Gaussian process, a *batch-aware* choice takes row after row the one whose variance
is largest given those taken before: a pivoted Cholesky factorisation of K, which greedily makes its determinant large.
The length l is half the median distance between candidates, so that two of them at random hardly touch.

Needs no JAX. Pools of any size are streamed: the most doubtful rows so far are kept, and nothing else.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from darkbayes.errors import InvalidInput, require_count
from darkbayes.progress import progress_bar
from darkbayes.shipped import Shipped
from darkbayes.tables.columns import frame_of, from_columns
from darkbayes.tables.decoding import read_again
from darkbayes.tables.opening import Layout
from darkbayes.tables.reading import rows_at
from darkbayes.tables.schema import TableSchema

LEAST_CANDIDATES, CANDIDATES = 500, 20
"""Rows among which a batch-aware choice is made: the most doubtful ones, so many at least, and so many for each row."""
MOST_PAIRED = 1000  # Candidates whose distances from each other set the length.


@dataclasses.dataclass(frozen=True)
class Suggestions:
    """Rows that are worth labelling, the first of them most."""

    places: np.ndarray
    """Where they are in the pool: lines, numbers of rows, or files."""
    unit: str
    """What the places count: "line", "row" or "file"."""
    measure: str
    """What the doubt is called: mutual_information, or epistemic_variance in the unit that networks learn in."""
    doubt: np.ndarray
    """How much there is to learn from each."""
    outside: Mapping[str, np.ndarray]
    """What of each is unlike all that was seen, which is a question of its own: it may be an error."""
    rows: Mapping[str, Any]
    """The rows as they are in the pool, with all its columns, as Arrow arrays; nothing for images."""
    notes: list[str]
    """What there is to know of the pool, in words."""

    def table(self) -> dict[str, Any]:
        """The columns of a file: place, doubt, what is unlike all that was seen, and the row."""
        own = {self.unit: self.places, self.measure: self.doubt, **self.outside}
        for name in list(own):  # A column of the pool keeps its name.
            free = name
            while free in self.rows:
                free += "_"
            own[free] = own.pop(name)
        return own | dict(self.rows)


def suggest(
    student: Shipped | Path | str,
    pool: Path | str,
    number: int = 10,
    *,
    batch_aware: bool = False,
    on_bad: Literal["refuse", "skip"] = "refuse",
    quiet: bool = True,
    **layout: Unpack[Layout],
) -> Suggestions:
    """Name the rows of a pool that are worth labelling, by what the student does not know of them.

    Args:
        student: a run's folder, an exported file, or what `Shipped` made of one.
        pool: a CSV or Parquet file of any size with the columns of the fit, or a folder of images; no target is needed.
        number: how many rows to name; fewer if the pool has fewer different ones.
        batch_aware: whether to choose rows that are worth labelling together, by their distances as well.
        on_bad: whether a file with rows that cannot be read is refused, or such rows are skipped.
        quiet: no progress bar.
        **layout: how the file is laid out (delimiter, encoding, sheet, query), where it is not to be found out.

    Returns:
        The rows, with their places and what there is to learn from each.
    """
    number = require_count("number of rows to suggest (-n)", number)
    shipped = student if isinstance(student, Shipped) else Shipped(student)
    most = max(CANDIDATES * number, LEAST_CANDIDATES) if batch_aware else number
    candidates, target = Candidates(most), shipped.schema.target
    # The rows are read twice: those that are chosen come whole.
    with read_again(Path(pool)) as path:
        batches = shipped.batches(path, on_bad=on_bad, **layout)
        with progress_bar("looking", None, quiet=quiet, unit="rows") as show_progress:
            for batch in batches:
                doubt = target.doubt(shipped.predict(batch.inputs))
                candidates.add(doubt, shipped.schema.encode(batch.inputs), batch.places)
                show_progress(batches.num_rows, total=batches.estimate)
        if not len(candidates.doubt):
            raise InvalidInput(f"{pool} has no row that can be read: correct its rows")
        chosen = choose(candidates.doubt, candidates.inputs, number) if batch_aware else slice(None)
        places, doubt, notes = candidates.places[chosen], candidates.doubt[chosen], list(batches.notes)
        if len(places) < number:
            notes.append(f"{number} rows were asked for, but the pool has {len(places)} that differ for the model")
        rows, outside = {}, {}
        if isinstance(shipped.schema, TableSchema):
            rows = rows_at(path, places.tolist(), **layout)
            outside = shipped.schema.outside(frame_of(from_columns(rows), shipped.schema))
    return Suggestions(places, batches.unit, target.measure, doubt, outside, rows, notes)


class Candidates:
    """The most doubtful rows of a pool that comes in batches, in this order; no two are the same to a network.

    Args:
        number: how many to keep.

    >>> candidates = Candidates(2)
    >>> candidates.add(np.asarray([0.1, 0.3, 0.3]), np.asarray([[1.0], [2.0], [2.0]]), np.asarray([2, 3, 4]))
    >>> candidates.add(np.asarray([0.2]), np.asarray([[5.0]]), np.asarray([5]))
    >>> candidates.places.tolist(), candidates.doubt.tolist()
    ([3, 5], [0.3, 0.2])
    """

    def __init__(self, number: int):
        self.number = number
        self.doubt, self.inputs, self.places = np.empty(0), np.empty((0, 0), np.float32), np.empty(0, np.int64)

    def add(self, doubt: np.ndarray, inputs: np.ndarray, places: np.ndarray) -> None:
        """Look at some more rows: how doubtful they are, what a network reads of them, and where they are."""
        doubt, inputs = np.nan_to_num(np.asarray(doubt, np.float64)), inputs.reshape(len(inputs), -1)
        if len(self.doubt):
            doubt, inputs = np.concatenate([self.doubt, doubt]), np.concatenate([self.inputs, inputs])
            places = np.concatenate([self.places, places])
        kept, seen = [], set()
        for row in np.argsort(-doubt, kind="stable").tolist():
            if (content := inputs[row].tobytes()) not in seen:
                seen.add(content)
                kept.append(row)
            if len(kept) == self.number:
                break
        self.doubt, self.inputs, self.places = doubt[kept], inputs[kept], places[kept]


def choose(doubt: np.ndarray, inputs: np.ndarray, number: int) -> np.ndarray:
    """Rows that are worth labelling together, in the order in which they were chosen.

    Args:
        doubt: of each row, ``[rows]``.
        inputs: by whose distances rows are near each other, ``[rows, ...]``: the network's inputs, or its features.
        number: how many to choose.

    Returns:
        Indices of the chosen rows.

    >>> choose(np.asarray([1.0, 0.9, 0.5]), np.asarray([[0.0], [0.01], [3.0]]), 2).tolist()
    [0, 2]
    """
    points = np.asarray(inputs, np.float64).reshape(len(inputs), -1)
    left = np.maximum(np.asarray(doubt, np.float64), 0.0)
    size, width = np.sqrt(left), 2.0 * _length(points) ** 2
    factor = np.zeros((number, len(left)))
    open_rows, chosen = np.ones(len(left), bool), []
    while len(chosen) < min(number, len(left)):
        row = int(np.argmax(np.where(open_rows, left, -np.inf)))
        open_rows[row] = False
        if left[row] > 0:
            near = np.exp(-((points - points[row]) ** 2).sum(axis=1) / width)
            done = factor[: len(chosen)]
            column = (size * size[row] * near - done[:, row] @ done) / np.sqrt(left[row])
            factor[len(chosen)] = column
            left = np.maximum(left - column**2, 0.0)
        chosen.append(row)
    return np.asarray(chosen, np.int64)


def _length(points: np.ndarray) -> float:
    """Half the median distance between two of the points that differ; 1 where none do."""
    some = points[:: -(-len(points) // MOST_PAIRED)]
    squares = (some**2).sum(axis=1)
    apart = np.maximum(squares[:, None] + squares - 2 * some @ some.T, 0.0)
    apart = apart[apart > 1e-12 * max(float(squares.max(initial=0.0)), 1e-300)]
    return 0.5 * float(np.sqrt(np.median(apart))) if len(apart) else 1.0
