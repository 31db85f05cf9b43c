"""A student as it is shipped: one ONNX file that holds the network and says what its inputs mean.

Needs onnxruntime and numpy, and no JAX.
"""

import json
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from darkbayes.errors import InvalidInput, RunError, require_count
from darkbayes.onnxfile import SCHEMA, VERSION, Described, Port, describe
from darkbayes.outcomes import Prediction
from darkbayes.tables.opening import Layout
from darkbayes.tables.schema import Frame, TableSchema
from darkbayes.tables.stored import schema_from_json

MODEL = "student.onnx"  # The file in a run's folder.


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
        self.path = Path(path) if content is not None else _model_file(Path(path))
        content = self.path.read_bytes() if content is None else content
        try:
            # Before onnxruntime sees a byte of it.
            described = describe(content)
            self.schema = _schema(described.properties)
            self.version = described.properties[VERSION]
            self._outputs = list(described.outputs)
            self._check_ports(described)
            self._session = _session(content, require_count("threads", threads))
            self._check_answers(described)
        except InvalidInput as problem:
            remedy = "name a run's folder, or what `darkbayes export` wrote"
            raise RunError(f"{self.path} is refused: {problem}. To go on, {remedy}") from None

    def _check_ports(self, described: Described) -> None:
        """Refuse a graph that reads or computes something else than its schema says."""
        matrices = self.schema.matrices(self._no_values)
        wanted = {name: Port(_element(values), (None, *values.shape[1:])) for name, values in matrices.items()}
        if described.inputs != wanted:
            raise InvalidInput(f"it reads {_listed(described.inputs)}, and its schema names {_listed(wanted)}")
        if lost := sorted(set(self.schema.target.outputs) - set(described.outputs)):
            raise InvalidInput(f"it does not compute {', '.join(lost)}, which its target needs")
        for name, port in described.outputs.items():
            kinds = (np.bool_,) if name in self.schema.target.truth_values else (np.float32, np.float64)
            if port.dtype not in kinds or not port.shape or port.shape[0] is not None:
                raise InvalidInput(f"its output {name} is {_listed({name: port})}, and no number for each row")

    def _check_answers(self, described: Described) -> None:
        """Refuse a graph that does not run, or whose answers are not what it says they are."""
        try:
            values = self._session.run(self._outputs, self.schema.matrices(self._no_values))
            for (name, port), value in zip(described.outputs.items(), values, strict=True):
                if value.shape != (1, *port.shape[1:]) or value.dtype != port.dtype or not np.isfinite(value).all():
                    raise InvalidInput(
                        f"its output {name} is not what it says, or not finite, for a row without values"
                    )
            target = self.schema.target
            prediction = target.prediction(dict(zip(self._outputs, values, strict=True)))
            answers = target.table(prediction, target.level)
        except InvalidInput:
            raise
        except Exception as problem:  # onnxruntime's own errors share no other base; shapes that do not fit have many.
            raise InvalidInput(f"it cannot predict a row without values ({_first_line(problem)})") from None
        if any(len(column) != 1 for column in answers.values()):
            raise InvalidInput("it answers with another number of rows than it is asked about")

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
        return self.predict(self._no_values)[:0]

    @property
    def _no_values(self) -> Any:
        """The inputs of one row of which all is missing, or of a black image."""
        if isinstance(self.schema, TableSchema):
            missing = {column.name: np.asarray([None], object) for column in self.schema.columns}
            return missing | {column.name: np.asarray([np.nan]) for column in self.schema.numbers}
        return np.zeros((1, *self.schema.shape), np.float32)

    @property
    def no_inputs(self) -> Any:
        """Those of no row."""
        if isinstance(self.schema, TableSchema):
            return {column.name: np.empty(0, object) for column in self.schema.columns}
        return np.empty((0, *self.schema.shape), np.float32)


def _schema(properties: dict[str, str]) -> Any:
    if SCHEMA not in properties:
        raise InvalidInput("it does not say what its inputs mean")
    try:
        return schema_from_json(json.loads(properties[SCHEMA]))
    except (json.JSONDecodeError, RecursionError) as problem:
        raise InvalidInput(f"its schema cannot be read ({problem})") from None


def _session(content: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4  # What fails is told by the exception.
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime's own errors share no other base.
        raise InvalidInput(f"it is no ONNX model that runs here ({_first_line(problem)})") from None


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]


def _element(values: np.ndarray) -> Any:
    return None if values.dtype == object else values.dtype.type


def _listed(ports: dict[str, Port]) -> str:
    """Inputs or outputs in words."""

    def shown(port: Port) -> str:
        sides = ", ".join(["rows", *map(str, port.shape[1:])])
        return f"{'strings' if port.dtype is None else port.dtype.__name__} [{sides}]"

    return ", ".join(f"{name} {shown(port)}" for name, port in ports.items()) or "nothing"


def _model_file(path: Path) -> Path:
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise RunError(f"{path} holds no {MODEL}: it is no run of `darkbayes fit`, or one that did not finish")
        return path / MODEL
    if not path.is_file():
        raise RunError(f"{path} is not there: name a run's folder or an ONNX file")
    return path
