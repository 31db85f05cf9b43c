"""A student as it is shipped: one ONNX file that holds the network and says what its inputs mean.

Needs onnxruntime and numpy, and no JAX.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from darkbayes.errors import InvalidInput, RunError, first_line, require_count
from darkbayes.onnxfile import ENCODED, SCHEMA, VERSION, Described, Port, describe, from_encoded, start_session
from darkbayes.outcomes import Prediction
from darkbayes.tables.opening import Layout
from darkbayes.tables.schema import Frame, TableSchema
from darkbayes.tables.stored import schema_from_json

NO_MODEL = "it is not an ONNX model that can run here"
MODEL = "student.onnx"  # The file in a run's folder.
BEYOND = 20.0  # Ranges beyond what was seen at which two ways to predict are compared.
MANY = 4096  # Rows that are predicted at a time, if there are so many: what is computed of them fits a cache.


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
            if SCHEMA not in described.properties:
                raise InvalidInput("it does not say what its inputs mean")
            try:
                self.schema = schema_from_json(json.loads(described.properties[SCHEMA]))
            except (json.JSONDecodeError, RecursionError) as problem:
                raise InvalidInput(f"its schema cannot be read ({problem})") from None
            self.version = described.properties[VERSION]
            self._outputs = list(described.outputs)
            self._check_ports(described)
            self._session = start_session(content, NO_MODEL, require_count("threads", threads))
            self._content, self._threads = content, threads
            self._check_answers(described)
        except InvalidInput as problem:
            remedy = "name a run's folder, or what `darkbayes export` wrote"
            raise RunError(f"{self.path} is refused: {problem}. To go on, {remedy}") from None

    def _check_ports(self, described: Described) -> None:
        """Refuse a graph that reads or computes something else than its schema says."""
        matrices = self.schema.matrices(self._no_values)
        wanted = {
            name: Port(None if values.dtype == object else values.dtype.type, (None, *values.shape[1:]))
            for name, values in matrices.items()
        }
        if described.inputs != wanted:
            raise InvalidInput(f"it reads {_listed(described.inputs)}, and its schema names {_listed(wanted)}")
        if lost := sorted(set(self.schema.target.outputs) - set(described.outputs)):
            raise InvalidInput(f"it does not compute {', '.join(lost)}, which its target needs")
        for name, port in described.outputs.items():
            kinds = (np.bool_,) if name in self.schema.target.truth_values else (np.float32, np.float64)
            if port.dtype not in kinds or not port.shape or port.shape[0] is not None:
                raise InvalidInput(f"its output {name} is {_listed({name: port})}, and not a number for each row")

    def _check_answers(self, described: Described) -> None:
        """Refuse a graph that does not run, or whose answers are not what it says they are."""
        try:
            values = self._session.run(self._outputs, self.schema.matrices(self._no_values))
            for (name, port), value in zip(described.outputs.items(), values, strict=True):
                if value.shape != (1, *port.shape[1:]) or value.dtype != port.dtype or not np.isfinite(value).all():
                    odd = "is not what it says, or not finite, for a row without values"
                    raise InvalidInput(f"its output {name} {odd}")
            target = self.schema.target
            prediction = target.prediction(dict(zip(self._outputs, values, strict=True)))
            answers = target.table(prediction, target.level)
        except InvalidInput:
            raise
        except Exception as problem:  # onnxruntime's own errors share no other base; shapes that do not fit have many.
            raise InvalidInput(f"it cannot predict a row without values ({first_line(problem)})") from None
        if any(len(column) != 1 for column in answers.values()):
            raise InvalidInput("it returns another number of rows than it is given")

    def predict(self, inputs: Frame | np.ndarray) -> Prediction:
        """What the student predicts, in the target's own unit.

        Args:
            inputs: rows of a frame, or images ``[rows, channels, height, width]`` of values 0 to 255.

        Returns:
            A prediction (`darkbayes.outcomes`).
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
        rows = len(inputs) if isinstance(inputs, np.ndarray) else len(next(iter(inputs.values()), ()))
        if isinstance(inputs, dict) and rows >= MANY:
            starts = range(0, rows, MANY)
            some = ({name: values[at : at + MANY] for name, values in inputs.items()} for at in starts)
            values = list(map(np.concatenate, zip(*map(self._network, some), strict=True)))
        else:
            values = self._session.run(self._outputs, self.schema.matrices(inputs))  # pyright: ignore[reportArgumentType]
        return self.schema.target.prediction(dict(zip(self._outputs, values, strict=True)))

    def predict_encoded(self, encoded: np.ndarray) -> Prediction:
        """What the student predicts by the part of its graph that is the network.

        Args:
            encoded: what the network reads, ``[rows, width]``: rows that the schema encodes, or standardised features
                of images, on which the backbone need not run again.

        Returns:
            The prediction of each row.
        """
        if (content := from_encoded(self._content, encoded.shape[1])) is None:
            raise InvalidInput(f"{self.path} does not say where its network begins: give rows or images as they are")
        session = start_session(content, NO_MODEL, self._threads)
        values = session.run(self._outputs, {ENCODED: np.asarray(encoded, np.float32)})
        return self.schema.target.prediction(dict(zip(self._outputs, values, strict=True)))

    @functools.cached_property
    def _network(self) -> Callable[[Frame], Any]:
        """What predicts many rows: the graph without what encodes them, which compares every text with every category.

        That of a file which does not say where its network begins, or not truly, is run as it is.
        """

        def whole(frame: Frame) -> Any:
            return self._session.run(self._outputs, self.schema.matrices(frame))

        def network(frame: Frame) -> Any:
            return session.run(self._outputs, {ENCODED: self.schema.encode(frame)})

        if (content := from_encoded(self._content, *self.schema.shape)) is None:
            return whole
        try:
            session = start_session(content, NO_MODEL, self._threads)
            pairs = list(zip(whole(self._ends), network(self._ends), strict=True))
        except Exception:  # onnxruntime's own errors share no other base.
            return whole
        return network if all(np.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in pairs) else whole

    @property
    def tensors(self) -> tuple[list[Any], list[Any]]:
        """The graph's own inputs and outputs, each with a `name`, a `type` and a `shape`."""
        return list(self._session.get_inputs()), list(self._session.get_outputs())

    def run(self, inputs: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
        """The values of some of the graph's outputs, as they are.

        Args:
            inputs: an array for each input of the graph, by name.
            outputs: the names of those that are wanted.

        Returns:
            Their values, in this order.
        """
        return self._session.run(outputs, inputs)  # pyright: ignore[reportReturnType]

    def batches(
        self,
        source: Any,
        *,
        on_bad: Literal["refuse", "skip"] = "refuse",
        target: bool = False,
        **layout: Unpack[Layout],
    ) -> Any:
        """The rows of files, or images, in batches: as `read_batches` or `read_image_batches` has them.

        Args:
            source: the file or files, or an image or a folder.
            on_bad: whether the first bad row is refused, or all of them are skipped.
            target: whether the target is delivered too.
            layout: how a file is laid out; detected by default.

        Returns:
            The batches, to be iterated over once.
        """
        from darkbayes.tables.images import read_image_batches
        from darkbayes.tables.streaming import read_batches

        how: Any = {"on_bad": on_bad, "target": target}
        if isinstance(self.schema, TableSchema):
            return read_batches(source, self.schema, **how, **layout)
        several = source if isinstance(source, list | tuple) else [source]
        if len(several) != 1:
            raise InvalidInput(f"{self.path} reads images: name one image or one folder, not {len(several)}")
        return read_image_batches(several[0], self.schema, **how)

    def table(self, inputs: Frame | np.ndarray, level: float | None = None) -> dict[str, np.ndarray]:
        """What the student predicts as the columns of a file, and what of each row is unlike all that was seen.

        Args:
            inputs: as `predict` takes them; of no row, for the names and types of the columns.
            level: the probability that intervals hold; by default that of the guarantee, or 0.9.

        Returns:
            The columns, by name.
        """
        target = self.schema.target
        none = not len(inputs if isinstance(inputs, np.ndarray) else next(iter(inputs.values())))
        prediction = self.predict(self._no_values)[:0] if none else self.predict(inputs)
        return target.table(prediction, target.level if level is None else level) | self.schema.outside(inputs)

    @property
    def _no_values(self) -> Any:
        """The inputs of one row of which all is missing, or of a black image."""
        if isinstance(self.schema, TableSchema):
            missing = {column.name: np.asarray([None], object) for column in self.schema.columns}
            return missing | {column.name: np.asarray([np.nan]) for column in self.schema.numbers}
        return np.zeros((1, *self.schema.shape), np.float32)

    @property
    def _ends(self) -> Frame:
        """Rows without values, at both ends of what was seen and far beyond them."""
        schema: Any = self.schema
        frame: Frame = {}
        for column in schema.categories:
            frame[column.name] = np.asarray([None, *column.categories[:4], *[None] * 4], object)[:5]
        for column in schema.numbers:
            low, high, far = column.low, column.high, BEYOND * (column.high - column.low)
            frame[column.name] = np.asarray([np.nan, low, high, low - far, high + far])
        return {column.name: frame[column.name] for column in schema.columns}

    @property
    def no_inputs(self) -> Any:
        """Those of no row."""
        if isinstance(self.schema, TableSchema):
            return {column.name: np.empty(0, object) for column in self.schema.columns}
        return np.empty((0, *self.schema.shape), np.float32)


def _listed(ports: dict[str, Port]) -> str:
    """Inputs or outputs in words."""

    def shown(port: Port) -> str:
        sides = ", ".join(["rows", *map(str, port.shape[1:])])
        return f"{'strings' if port.dtype is None else port.dtype.__name__} [{sides}]"

    return ", ".join(f"{name} {shown(port)}" for name, port in ports.items()) or "nothing"


def _model_file(path: Path) -> Path:
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise RunError(f"{path} holds no {MODEL}: it is not a run of `darkbayes fit`, or one that did not finish")
        return path / MODEL
    if not path.is_file():
        raise RunError(f"{path} is not there: name a run's folder or an ONNX file")
    return path
