"""A student as it is shipped: one ONNX file that holds the network and says what its inputs mean.

Needs onnxruntime and numpy, and no JAX.
"""

import json
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from darkbayes.errors import InvalidInput, RunError, require_count
from darkbayes.outcomes import Prediction
from darkbayes.tables.opening import Layout
from darkbayes.tables.schema import Frame, TableSchema, schema_from_dict

MODEL = "student.onnx"  # The file in a run's folder.
SCHEMA, VERSION = "darkbayes.schema", "darkbayes.version"  # What the file says of itself, among its metadata.


class Shipped:
    """An exported student, ready to predict; may be used by several threads at once.

    Args:
        path: a run's folder, or an ONNX file that `darkbayes export` wrote.
        content: the file's bytes, where they are at hand.
        threads: for one prediction. A student is small: on few rows a second thread costs more than it brings.
    """

    path: Path
    schema: Any
    version: str  # Of the package that exported it.

    def __init__(self, path: Path | str, *, threads: int = 1, content: bytes | None = None):
        import onnxruntime

        self.path = Path(path) if content is not None else _model_file(Path(path))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = require_count("threads", threads)
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        try:
            self._session = onnxruntime.InferenceSession(content or self.path, options, providers=providers)
        except Exception as problem:  # onnxruntime's own errors share no other base.
            raise RunError(
                f"{self.path} is no ONNX model that runs here ({problem}): name a run's folder, or what `darkbayes "
                "export` wrote"
            ) from None
        about = self._session.get_modelmeta().custom_metadata_map
        if SCHEMA not in about:
            raise RunError(f"{self.path} does not say what its inputs mean: it is none that `darkbayes export` wrote")
        try:
            self.schema = schema_from_dict(json.loads(about[SCHEMA]))
        except (ValueError, KeyError, TypeError) as problem:
            error = f"{self.path} has a schema that cannot be read ({problem!r}): export the run again"
            raise RunError(error) from None
        self.version = about.get(VERSION, "unknown")
        self._outputs = [output.name for output in self._session.get_outputs()]
        lost = set(self.schema.target.outputs) - set(self._outputs)
        if lost:
            raise RunError(f"{self.path} does not compute {', '.join(sorted(lost))}: export the run again")

    def predict(self, inputs: Frame | np.ndarray) -> Prediction:
        """What the student predicts, in the target's own unit.

        Args:
            inputs: rows of a frame, or images ``[rows, channels, height, width]`` of values 0 to 255.
        """
        if isinstance(self.schema, TableSchema):
            if not isinstance(inputs, dict):
                raise InvalidInput(f"{self.path} reads a table: give a frame, not {type(inputs).__name__}")
            lost = [column.name for column in self.schema.columns if column.name not in inputs]
            if lost:
                raise InvalidInput(f"the frame has no column {lost[0]!r}: give all that the student reads")
        elif not isinstance(inputs, np.ndarray) or inputs.shape[1:] != self.schema.shape:
            given = inputs.shape if isinstance(inputs, np.ndarray) else type(inputs).__name__
            size = ", ".join(map(str, self.schema.shape))
            raise InvalidInput(f"{self.path} reads images [rows, {size}], not {given}")
        values = self._session.run(self._outputs, self.schema.matrices(inputs))  # pyright: ignore[reportArgumentType]
        return self.schema.target.prediction(dict(zip(self._outputs, values, strict=True)))

    @property
    def tensors(self) -> tuple[list[Any], list[Any]]:
        """The graph's own inputs and outputs, each with a `name`, a `type` and a `shape`."""
        return list(self._session.get_inputs()), list(self._session.get_outputs())

    def run(self, inputs: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
        """The values of some of the graph's outputs, as they are."""
        return self._session.run(outputs, inputs)  # pyright: ignore[reportReturnType]

    def batches(
        self,
        source: Any,
        *,
        on_bad: Literal["refuse", "skip"] = "refuse",
        target: bool = False,
        **layout: Unpack[Layout],
    ) -> Any:
        """The rows of files, or images, in batches: as `read_batches` or `read_image_batches` has them."""
        from darkbayes.tables.images import read_image_batches
        from darkbayes.tables.streaming import read_batches

        how: Any = {"on_bad": on_bad, "target": target}
        if isinstance(self.schema, TableSchema):
            return read_batches(source, self.schema, **how, **layout)
        several = source if isinstance(source, list | tuple) else [source]
        if len(several) != 1:
            raise InvalidInput(f"{self.path} reads images: name one image or one folder, not {len(several)}")
        return read_image_batches(several[0], self.schema, **how)

    def predict_nothing(self) -> Prediction:
        """What it predicts of no row, for the names and types of columns."""
        if isinstance(self.schema, TableSchema):
            missing = {column.name: np.asarray([None], object) for column in self.schema.columns}
            numbers = {column.name: np.asarray([np.nan]) for column in self.schema.numbers}
            return self.predict(missing | numbers)[:0]
        return self.predict(np.zeros((1, *self.schema.shape), np.float32))[:0]

    @property
    def no_inputs(self) -> Any:
        """Those of no row."""
        if isinstance(self.schema, TableSchema):
            return {column.name: np.empty(0, object) for column in self.schema.columns}
        return np.empty((0, *self.schema.shape), np.float32)


def _model_file(path: Path) -> Path:
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise RunError(f"{path} holds no {MODEL}: it is no run of `darkbayes fit`, or one that did not finish")
        return path / MODEL
    if not path.is_file():
        raise RunError(f"{path} is not there: name a run's folder or an ONNX file")
    return path
