"""A student as it is shipped: one ONNX file that holds the network and says what its inputs mean.

Needs onnxruntime and numpy, and no JAX.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np

from darkbayes.errors import InvalidInput, RunError, require_count
from darkbayes.tables.predictions import ClassPredictions, Predictions, RealPredictions
from darkbayes.tables.schema import ClassTarget, Frame, Schema, TableSchema, schema_from_dict

MODEL = "student.onnx"
"""The file in a run's folder."""
SCHEMA, VERSION = "darkbayes.schema", "darkbayes.version"
"""What the file says of itself, among its metadata."""


class Shipped:
    """An exported student, ready to predict; may be used by several threads at once.

    Args:
        path: a run's folder, or an ONNX file that `darkbayes export` wrote.
        threads: for one prediction. A student is small: on few rows a second thread costs more than it brings.
    """

    path: Path
    schema: Schema
    version: str
    """Of the package that exported it."""

    def __init__(self, path: Path | str, *, threads: int = 1):
        import onnxruntime

        self.path = _model_file(Path(path))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = require_count("threads", threads)
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        except Exception as problem:  # onnxruntime's own errors share no other base.
            raise RunError(
                f"{self.path} is no ONNX model that runs here ({problem}): name a run's folder, or what `darkbayes "
                "export` wrote"
            ) from None
        told = self._session.get_modelmeta().custom_metadata_map
        if SCHEMA not in told:
            raise RunError(f"{self.path} does not say what its inputs mean: it is none that `darkbayes export` wrote")
        try:
            self.schema = schema_from_dict(json.loads(told[SCHEMA]))
        except (ValueError, KeyError, TypeError) as problem:
            raise RunError(
                f"{self.path} has a schema that cannot be read ({problem!r}): export the run again"
            ) from None
        self.version = told.get(VERSION, "unknown")
        classes = isinstance(self.schema.target, ClassTarget)
        self._kind: type[Predictions] = ClassPredictions if classes else RealPredictions
        self._outputs = [field.name for field in dataclasses.fields(self._kind)]
        lost = set(self._outputs) - {output.name for output in self._session.get_outputs()}
        if lost:
            raise RunError(f"{self.path} does not compute {', '.join(sorted(lost))}: export the run again")

    def predict(self, inputs: Frame | np.ndarray) -> Predictions:
        """Predictions of the rows of a frame, or of images ``[rows, channels, height, width]`` of values 0 to 255."""
        self._check(inputs)
        found = self._session.run(self._outputs, self.schema.matrices(inputs))  # pyright: ignore[reportArgumentType]
        return self._kind(*(np.asarray(values, np.float64) for values in found))

    def _check(self, inputs: Frame | np.ndarray) -> None:
        if isinstance(self.schema, TableSchema):
            if not isinstance(inputs, dict):
                raise InvalidInput(f"{self.path} reads a table: give a frame, not {type(inputs).__name__}")
            lost = [column.name for column in self.schema.columns if column.name not in inputs]
            if lost:
                raise InvalidInput(f"the frame has no column {lost[0]!r}: give all that the student reads")
        elif not isinstance(inputs, np.ndarray) or inputs.shape[1:] != self.schema.shape:
            given = inputs.shape if isinstance(inputs, np.ndarray) else type(inputs).__name__
            raise InvalidInput(
                f"{self.path} reads images [rows, {', '.join(map(str, self.schema.shape))}], not {given}"
            )


def _model_file(path: Path) -> Path:
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise RunError(f"{path} holds no {MODEL}: it is no run of `darkbayes fit`, or one that did not finish")
        return path / MODEL
    if not path.is_file():
        raise RunError(f"{path} is not there: name a run's folder or an ONNX file")
    return path
