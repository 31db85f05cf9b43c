"""Many rows on many machines: what predicts a record batch of arrow, whoever brings it, and travels to where they are.

Engines such as Ray and Spark read and write; `darkbayes.ray` and `darkbayes.spark` hand them this. It reads rows and
makes columns as ``darkbayes predict`` does.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from darkbayes.errors import InvalidInput, require_level
from darkbayes.shipped import Shipped
from darkbayes.tables.cells import arrow
from darkbayes.tables.columns import require_columns
from darkbayes.tables.schema import TableSchema
from darkbayes.tables.writing import arrow_table


class Predictor:
    """Predicts record batches; it may be sent to other processes, which need no file of the student's.

    Args:
        student: a run's folder, or an ONNX file that `darkbayes export` wrote.
        keep: columns that are handed on with what is predicted, such as a key.
        level: the probability that intervals hold; by default that of the guarantee, or 0.9.
        on_bad: whether a batch with rows that cannot be read is refused, or such rows are skipped.
    """

    def __init__(
        self,
        student: Path | str,
        *,
        keep: Sequence[str] = (),
        level: float | None = None,
        on_bad: Literal["refuse", "skip"] = "refuse",
    ):
        shipped = Shipped(student)
        if not isinstance(shipped.schema, TableSchema):
            raise InvalidInput(f"{student} reads images, which no record batch holds: use `darkbayes predict`")
        if on_bad not in ("refuse", "skip"):
            raise InvalidInput(f"on_bad must be 'refuse' or 'skip', not {on_bad!r}")
        if isinstance(keep, str):
            raise InvalidInput(f"keep must be a list of names, not {keep!r}: write [{keep!r}]")
        self._path, self._content = shipped.path, shipped.path.read_bytes()
        self._on_bad: Any = on_bad
        self.keep, self._level = tuple(keep), None if level is None else require_level("level", level)
        if twice := set(self.keep) & set(self.nothing().schema.names):
            called = "which a column of the predictions is called"
            raise InvalidInput(f"keep names {sorted(twice)[0]!r}, {called}: rename it")

    def __call__(self, batch: Any) -> Any:
        """What is predicted of a record batch or a table of arrow, as a record batch: a row for each that is good."""
        self.check(batch.schema.names, "the table")
        if not batch.num_rows:
            return self._batch({name: batch.column(name) for name in self.keep} | self._table(self._shipped.no_inputs))
        batches, parts = self._shipped.batches(batch, on_bad=self._on_bad), []
        for some in batches.each(lambda part: part):
            rows = np.asarray(some.places - 1)
            parts.append({name: batch.column(name).take(rows) for name in self.keep} | self._table(some.inputs))
        return self._batch(*parts) if parts else self(batch.slice(0, 0))

    def check(self, names: Sequence[str], source: str) -> None:
        """Refuse a table without columns that are to be kept or that the student reads."""
        require_columns([*self.keep, *self._shipped.schema.wanted], names, source)  # pyright: ignore[reportAttributeAccessIssue]

    def nothing(self) -> Any:
        """What is predicted of no row, without the columns kept: its names and types are those of all."""
        return self._batch(self._table(self._shipped.no_inputs))

    @property
    def _shipped(self) -> Shipped:
        return _shipped(self._path, self._content)

    def _table(self, inputs: Any) -> dict[str, Any]:
        return self._shipped.table(inputs, self._level)

    def _batch(self, *parts: dict[str, Any]) -> Any:
        pa, digits = arrow(), self._shipped.schema.target.digits
        whole = pa.concat_tables([arrow_table(part, digits) for part in parts]).combine_chunks()
        return (whole.to_batches() or [pa.RecordBatch.from_pylist([], whole.schema)])[0]


@functools.lru_cache(4)
def _shipped(path: Path, content: bytes) -> Shipped:
    """A student, made once in each process."""
    return Shipped(path, content=content)
