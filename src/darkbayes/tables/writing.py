"""Predictions written to a file as they come."""

import csv
import io
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from darkbayes.errors import InvalidInput, require_share
from darkbayes.files import ASIDE
from darkbayes.tables.columns import TRUTH, objects
from darkbayes.tables.predictions import ClassPredictions, Predictions, RealPredictions
from darkbayes.tables.reading import arrow
from darkbayes.tables.schema import ClassTarget, RealTarget

MOMENTS = ("mean", "std", "aleatoric_std", "epistemic_std")
ENTROPIES = ("entropy", "expected_entropy", "mutual_information")
"""What is written of `RealPredictions` and of `ClassPredictions` as it is."""

CSV, PARQUET = ".csv", (".parquet", ".pq")
"""How the names of files end."""

STDOUT = "-"
"""In place of a path: write CSV to the standard output."""


def prediction_columns(
    predictions: Predictions, target: RealTarget | ClassTarget, level: float = 0.9
) -> dict[str, np.ndarray]:
    """What a file of predictions holds, in this order.

    Of a number: ``mean``, ``std``, ``aleatoric_std``, ``epistemic_std`` and the ends of the central interval of
    probability `level`, ``lower_90`` and ``upper_90``. Of a class: ``prediction``, the most probable one, as it is in
    the user's own files, its ``probability``, a ``probability_CLASS`` of each, ``entropy``, ``expected_entropy`` and
    ``mutual_information``.

    >>> target = ClassTarget("sold", ("false", "true"), "boolean")
    >>> one = np.ones(1)
    >>> prediction_columns(ClassPredictions(np.asarray([[0.25, 0.75]]), one, one, one), target)["prediction"]
    array([ True])
    """
    if isinstance(target, RealTarget):
        if not isinstance(predictions, RealPredictions):
            raise InvalidInput(f"{target.name!r} is a number, but classes were predicted")
        lower, upper = predictions.interval(target, level)
        percent = f"{100 * level:g}"
        named = {name: getattr(predictions, name) for name in MOMENTS}
        named |= {f"lower_{percent}": lower, f"upper_{percent}": upper}
        return {name: _in_single(values) for name, values in named.items()}
    if not isinstance(predictions, ClassPredictions):
        raise InvalidInput(f"{target.name!r} is a class, but numbers were predicted")
    probs = _in_single(predictions.probs)
    best = probs.argmax(axis=1)
    return {
        "prediction": as_in_files(target)[best],
        "probability": probs.max(axis=1),
        **{f"probability_{name}": probs[:, k] for k, name in enumerate(target.classes)},
        **{name: _in_single(getattr(predictions, name)) for name in ENTROPIES},
    }


def _in_single(values: np.ndarray) -> np.ndarray:
    """A student computes in single precision: more digits are noise, and would make a CSV file twice as long."""
    return np.asarray(values, np.float32)


def as_in_files(target: ClassTarget) -> np.ndarray:
    """The classes as they are in the user's own files."""
    if target.kind == "integer":
        return np.asarray([int(name) for name in target.classes], np.int64)
    if target.kind == "boolean":
        return np.asarray([name == TRUTH[1] for name in target.classes], bool)
    return objects(target.classes)


class PredictionWriter:
    """Writes predictions to a CSV file, or to a Parquet file if its name ends so.

    The file is written aside and takes its place when all is well; after an error nothing is left behind.

    Args:
        path: Of the file, or `STDOUT`.
        target: What is predicted.
        level: The probability that an interval of a number holds.
        number: Put the place of each row in the input first, as a column of this name; needed to know which is which
            if bad rows are skipped. It is `Batches.unit` for tables, and "file" for images.

    >>> import tempfile
    >>> target = RealTarget("price", "identity", 0.0, 1.0, 0.0, 1.0)
    >>> values = np.asarray([1.5])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with PredictionWriter(f"{folder}/out.csv", target, number="line") as writer:
    ...         writer.write(RealPredictions(*[values] * 6), lines=[7])
    ...     print(Path(folder, "out.csv").read_text().splitlines()[0])
    line,mean,std,aleatoric_std,epistemic_std,lower_90,upper_90
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        target: RealTarget | ClassTarget,
        *,
        level: float = 0.9,
        number: Literal["line", "row", "file"] | None = None,
    ):
        require_share("level", level)
        self._path = None if os.fspath(path) == STDOUT else Path(path)
        self._target, self._level, self._number = target, level, number
        self._sink: Any = None
        self._writer: Any = None
        self._aside: Path | None = None
        if self._path is not None:
            # The file is refused before hours go into its predictions.
            if self._path.is_dir():
                raise InvalidInput(f"{self._path} is a folder: give the name of a CSV or a Parquet file")
            if self._path.suffix.lower() not in (CSV, *PARQUET):
                raise InvalidInput(
                    f"{self._path} is neither CSV nor Parquet by its name: let it end in .csv or .parquet"
                )
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._aside = self._path.with_name(f".{self._path.name}.{os.getpid()}{ASIDE}")

    def __enter__(self) -> "PredictionWriter":
        self._sink = sys.stdout.buffer if self._aside is None else self._aside.open("wb")
        return self

    def write(self, predictions: Predictions, lines: Any = None) -> None:
        """Write the predictions of some more rows; `lines` are their places in the input, if asked for."""
        pa = arrow()
        columns = prediction_columns(predictions, self._target, self._level)
        if self._number is not None:
            places = objects(lines) if self._number == "file" else np.asarray(lines, np.int64)
            columns = {self._number: places} | columns
        table = pa.table({name: _stored(values) for name, values in columns.items()})
        if self._writer is None:
            self._writer = self._begun(table.schema)
        self._writer.write_table(table)

    def _begun(self, schema: Any) -> Any:
        pa = arrow()
        if self._path is not None and self._path.suffix.lower() in PARQUET:
            return pa.parquet.ParquetWriter(self._sink, schema)
        header = io.StringIO()
        # Arrow would put quotes around every name.
        csv.writer(header, lineterminator="\n").writerow(schema.names)
        self._sink.write(header.getvalue().encode())
        return pa.csv.CSVWriter(self._sink, schema, write_options=pa.csv.WriteOptions(include_header=False))

    def _write_nothing(self) -> None:
        """The names of the columns, for an input without good rows."""
        none = np.empty(0)
        if isinstance(self._target, RealTarget):
            self.write(RealPredictions(none, none, none, none, none, none), none)
        else:
            self.write(ClassPredictions(np.empty((0, len(self._target.classes))), none, none, none), none)

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._writer is None:
                self._write_nothing()
            if self._writer is not None:
                self._writer.close()
            if self._aside is None:
                self._sink.flush()
                return
            self._sink.close()
            if kind is None and self._path is not None:
                os.replace(self._aside, self._path)
        finally:
            if self._aside is not None:
                self._sink.close()
                self._aside.unlink(missing_ok=True)


def _stored(values: np.ndarray) -> Any:
    """Values as arrow writes them, of one type whatever they are."""
    pa = arrow()
    return pa.array(values.tolist(), pa.string()) if values.dtype == object else pa.array(values)
