"""A trained network that turns images into features, as an ONNX file has it: read, checked, run, and written into
the file of a student that reads its features.

What is run here is what the student's file will hold: the same nodes, of the opset of students, with a batch of any
length. So a file that could not be merged is refused before any image is read.
"""

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from darkbayes.errors import InvalidInput, first_line, require_count
from darkbayes.onnxfile import describe, start_session

if TYPE_CHECKING:
    from darkbayes.export.graph import Graph, Value

IMAGENET = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""What most networks for colour images expect to be subtracted from values of 0 to 255, and what they are divided by:
mean and standard deviation of ImageNet."""
MOST_SIDE = 224  # Pixels of the longest side where a file says no size.
PREFIX = "backbone."  # Before the names of all that comes from it.
LARGEST_CHANGE = 1e-4  # By which features may differ, relative to their size, once a file is brought to our opset.
TOGETHER = 32  # Images that are run at a time.
NOT_HERE = "it does not run here"
_FLOAT = 1  # Of the types of ONNX.


@dataclasses.dataclass(frozen=True)
class Backbone:
    """A network of which the weights stay as they are; `load_backbone` makes it."""

    name: str
    """The file."""
    shape: tuple[int, int, int]
    """Channels (red, green and blue, or grey), height and width of the images that it reads."""
    center: tuple[float, ...]
    """What is subtracted from values of 0 to 255, one number or one for each channel."""
    scale: tuple[float, ...]
    """What they are then divided by, likewise."""
    output: str
    """The value of its graph that holds the features; means over places where there are several."""
    width: int
    """How many features an image has."""
    model: Any = dataclasses.field(repr=False, compare=False)
    """The graph, brought to the opset of students."""
    axes: tuple[int, ...] = ()
    """Axes of the output over which means are taken."""
    kept: tuple[int, ...] | None = None
    """The places of the features that are wanted; None for all."""

    @property
    def note(self) -> str:
        """What it does, in words."""
        pixels = f"(value - {_listed(self.center)}) / {_listed(self.scale)}"
        means = ", means over all places," if self.axes else ""
        return (
            f"features are {self.width:,} values{means} of {self.output!r} in {self.name}, which reads images of "
            f"{' x '.join(map(str, self.shape))} ({'grey' if self.shape[0] == 1 else 'RGB'}, height, width) as {pixels}"
        )

    @functools.cached_property
    def content(self) -> bytes:
        """An ONNX file of its own: from ``images``, with values of 0 to 255, to ``features``."""
        from darkbayes.export.graph import Graph

        graph = Graph()
        graph.output("features", self.write(graph, graph.input("images", np.float32, self.shape)), (self.width,))
        return graph.written("backbone", {})

    @functools.cached_property
    def key(self) -> str:
        """A hash of all that features depend on besides the image."""
        return hashlib.sha256(self.content).hexdigest()

    @functools.cached_property
    def _session(self) -> Any:
        return start_session(self.content, NOT_HERE)

    def write(self, graph: "Graph", images: "Value") -> "Value":
        """Append all that it does to a graph; returns the features of images with values of 0 to 255."""
        numbers = (np.asarray(each, np.float32).reshape(-1, 1, 1) for each in (self.center, self.scale))
        center, scale = numbers
        inputs = {self.model.input[0].name: ((images - center) / scale).name, "": ""}
        for constant in self.model.initializer:
            stored = copy.deepcopy(constant)
            stored.name = PREFIX + constant.name
            graph.constants[stored.name] = stored
        for node in self.model.node:
            node = copy.deepcopy(node)
            node.input[:] = [inputs.get(name, PREFIX + name) for name in node.input]
            node.output[:] = [PREFIX + name if name else "" for name in node.output]
            node.name = ""
            graph.nodes.append(node)
        value = images.named(PREFIX + self.output)
        if self.axes:
            value = graph.add("ReduceMean", value, np.asarray(self.axes), keepdims=0)
        value = graph.add("Flatten", value)
        return value if self.kept is None else value.columns(self.kept)

    def features(self, images: np.ndarray) -> np.ndarray:
        """The features of images.

        Args:
            images: ``[images, channels, height, width]`` of values from 0 to 255.

        Returns:
            ``[images, width]`` in float32.
        """
        if images.ndim != 4 or images.shape[1:] != self.shape:
            wanted = ", ".join(map(str, ("images", *self.shape)))
            raise InvalidInput(f"{self.name} reads images [{wanted}], not an array of shape {images.shape}")
        blocks = [
            self._session.run(None, {"images": images[start : start + TOGETHER].astype(np.float32)})[0]
            for start in range(0, len(images), TOGETHER)
        ]
        return np.concatenate(blocks) if blocks else np.empty((0, self.width), np.float32)


def load_backbone(
    source: Path | str | bytes,
    *,
    size: Sequence[int] | None = None,
    center: Sequence[float] | None = None,
    scale: Sequence[float] | None = None,
    output: str | None = None,
    images: tuple[int, int] | None = None,
) -> Backbone:
    """Read a feature extractor from an ONNX file of one input, images ``[batch, channels, height, width]``.

    Args:
        source: the file, or its bytes.
        size: height and width, or one number for both; by default those that the file says or, where it says none,
            those of the `images`, at most 224 a side.
        center: what is subtracted from values of 0 to 255, one number or one for each channel: by default the mean of
            ImageNet for colours and 0 for grey.
        scale: what they are then divided by: by default the standard deviation of ImageNet, or 255 for grey.
        output: the name of the value that holds the features, any of the file's graph; by default its only output.
        images: height and width of the images that it is for.

    Returns:
        The backbone, of which it is known that it runs and can be part of a student's file.
    """
    name = "the backbone" if isinstance(source, bytes) else str(source)
    try:
        whole, content = _read(source)
        shape = _shape(whole.graph, size, images)
        center, scale = _pixels(center, scale, shape[0])
        output = _output(whole.graph, output)
        probes = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
        wanted = _features(content, output, probes)
        model = _mergeable(whole, output)
        axes = {4: (2, 3), 3: (1,)}.get(wanted.ndim, ())
        if wanted.ndim < 2 or wanted.ndim > 4 or wanted.dtype != np.float32:
            remedy = "name another value of the graph as its output"
            raise InvalidInput(f"its output {output!r} is {wanted.dtype} of shape {wanted[:1].shape}: {remedy}")
        width = wanted.shape[1] if wanted.ndim != 3 else wanted.shape[2]
        backbone = Backbone(name, shape, center, scale, output, width, model, axes)
        describe(backbone.content)
        _check(backbone, probes, wanted)
    except InvalidInput as problem:
        raise InvalidInput(f"{name} cannot be used as a backbone: {problem}") from None
    return backbone


def _read(source: Path | str | bytes) -> tuple[Any, bytes]:
    """A model, whose weights are all in the file, and its bytes."""
    import onnx
    from google.protobuf.message import DecodeError

    if not isinstance(source, bytes) and not Path(source).is_file():
        raise InvalidInput("there is no such file")
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError:
        model = onnx.ModelProto()
    if not model.graph.node or not model.graph.output:
        raise InvalidInput("it is not an ONNX file, or a damaged one")
    for constant in model.graph.initializer:
        if constant.data_location == onnx.TensorProto.EXTERNAL:
            places = {pair.key: pair.value for pair in constant.external_data}
            remedy = "save it as one file, with onnx.save(onnx.load(path), new_path)"
            raise InvalidInput(f"its weights are in another file, {places.get('location', '?')}: {remedy}")
    return model, content


def _shape(graph: Any, size: Sequence[int] | None, images: tuple[int, int] | None) -> tuple[int, int, int]:
    """Channels, height and width of what is read."""
    stored = {constant.name for constant in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs) or "none"
        raise InvalidInput(f"it has {len(inputs)} inputs ({names}): one of images is needed")
    tensor = inputs[0].type.tensor_type
    sides = [side.dim_value or None for side in tensor.shape.dim]
    shown = f"{inputs[0].name} [{', '.join(str(side or 'any') for side in sides)}]"
    if tensor.elem_type != _FLOAT:
        raise InvalidInput(f"its input {shown} is not of the type float32: export it in float32")
    if len(sides) != 4:
        raise InvalidInput(f"its input {shown} is not an image: [batch, channels, height, width] is needed")
    if sides[1] not in (1, 3):
        last = " (channels come last in it: export it with channels first)" if sides[3] in (1, 3) else ""
        raise InvalidInput(f"its input {shown} has {sides[1] or 'any number of'} channels, not 1 or 3{last}")
    if sides[0] not in (None, 1):
        raise InvalidInput(f"its input {shown} has {sides[0]} images at a time: export it with a batch of any length")
    given = None if size is None else tuple(require_count("size", side) for side in ((*size, *size)[:2]))
    if given is not None and len(size or ()) > 2:
        raise InvalidInput(f"size is {size}: give one number, or height and width")
    common = images or (MOST_SIDE, MOST_SIDE)
    share = min(1.0, MOST_SIDE / max(common))
    free = given or (max(1, round(common[0] * share)), max(1, round(common[1] * share)))
    height, width = (own or chosen for own, chosen in zip(sides[2:], free, strict=True))
    if given is not None and given != (height, width):
        raise InvalidInput(f"its input {shown} has a size of its own, which is not {given[0]} x {given[1]}")
    return sides[1], height, width


def _pixels(
    center: Sequence[float] | None, scale: Sequence[float] | None, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What is subtracted from values, and what they are divided by."""
    usual = IMAGENET if channels == 3 else ((0.0,), (255.0,))
    both = tuple(map(float, center or usual[0])), tuple(map(float, scale or usual[1]))
    for name, numbers in zip(("center", "scale"), both, strict=True):
        if len(numbers) not in (1, channels) or not np.isfinite(numbers).all() or (name == "scale" and 0 in numbers):
            wanted = f"one number or {channels}" if channels > 1 else "one number"
            raise InvalidInput(f"{name} is {_listed(numbers)}: give {wanted}{', none of them 0' * (name == 'scale')}")
    return both


def _output(graph: Any, output: str | None) -> str:
    names = [value.name for value in graph.output]
    if output is None:
        if len(names) > 1:
            raise InvalidInput(f"it has {len(names)} outputs ({', '.join(names)}): name one as the output")
        return names[0]
    known = [name for node in graph.node for name in node.output]
    if output not in known:
        raise InvalidInput(f"it has no value {output!r}: its last ones are {', '.join(known[-5:])}")
    return output


def _features(content: bytes, output: str, images: np.ndarray) -> np.ndarray:
    """What the file itself makes of images, one after the other."""
    import onnx

    model = onnx.load_model_from_string(content)
    if output not in [value.name for value in model.graph.output]:
        model.graph.output.append(onnx.ValueInfoProto(name=output))
    session = start_session(model.SerializeToString(), NOT_HERE)
    name = session.get_inputs()[0].name
    try:
        parts = [np.asarray(session.run([output], {name: image[None]})[0]) for image in images]
    except Exception as problem:  # onnxruntime's own errors share no other base.
        size = " x ".join(map(str, images.shape[2:]))
        remedy = "name the size of the images that it is for"
        raise InvalidInput(f"it does not run on images of {size} pixels ({first_line(problem)}): {remedy}") from None
    return np.concatenate(parts)


def _mergeable(model: Any, output: str) -> Any:
    """The graph up to its output, in the opset of students, with a batch of any length and constants apart."""
    import onnx
    from onnx import inliner, version_converter

    from darkbayes.export.graph import OPSET

    if model.functions:
        model = inliner.inline_local_functions(model)
    versions = {opset.domain: opset.version for opset in model.opset_import}
    if strange := sorted({node.domain for node in model.graph.node} - {"", "ai.onnx"}):
        raise InvalidInput(f"it needs the operators of {strange[0]!r}: only those of ONNX itself can be merged")
    version = versions.get("", versions.get("ai.onnx", 0))
    if version != OPSET:
        try:
            model = version_converter.convert_version(model, OPSET)
        except Exception as problem:  # It raises RuntimeError and others.
            why = f"which cannot be brought to {OPSET} ({first_line(problem)})"
            raise InvalidInput(f"it is of opset {version}, {why}: export it with opset_version={OPSET}") from None
    graph, kept = onnx.GraphProto(), []
    for node in reversed(list(_nodes_before(model.graph, output))):
        if node.op_type == "Constant":
            graph.initializer.append(_constant(node))
        else:
            kept.append(node)
    used = {name for node in kept for name in node.input}
    graph.initializer.extend(_stored(each, each.name) for each in model.graph.initializer if each.name in used)
    stored = {constant.name for constant in graph.initializer}
    graph.input.extend(value for value in model.graph.input if value.name not in stored)
    graph.node.extend(kept)
    _free_batch(graph)
    return graph


def _nodes_before(graph: Any, output: str) -> Iterator[Any]:
    """The nodes that a value depends on, the last first."""
    wanted = {output}
    for node in reversed(graph.node):
        if wanted & set(node.output):
            wanted |= set(node.input)
            yield node


def _constant(node: Any) -> Any:
    """What a node that makes a constant makes, as a constant."""
    from onnx import helper, numpy_helper

    (attribute,) = node.attribute
    if attribute.name == "value":
        return _stored(attribute.t, node.output[0])
    value = helper.get_attribute_value(attribute)
    whole = attribute.name in ("value_int", "value_ints")
    return numpy_helper.from_array(np.asarray(value, np.int64 if whole else np.float32), node.output[0])


def _stored(constant: Any, name: str) -> Any:
    """A constant as students store theirs: its bytes as they are."""
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(constant)), name)


def _free_batch(graph: Any) -> None:
    """Let reshapes to one image, as files for a batch of one have them, leave the number of images open."""
    from onnx import numpy_helper

    if graph.input[0].type.tensor_type.shape.dim[0].dim_value != 1:
        return
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for constant in graph.initializer:
        if constant.name in shapes:
            values = numpy_helper.to_array(constant).copy()
            if values.ndim == 1 and len(values) > 1 and values[0] == 1:
                values[0] = 0 if -1 in values else -1
                constant.CopyFrom(numpy_helper.from_array(values, constant.name))


def _check(backbone: Backbone, images: np.ndarray, wanted: np.ndarray) -> None:
    """Refuse what does not compute, of several images at once, what its file does of each."""
    wanted = wanted.mean(axis=backbone.axes) if backbone.axes else wanted.reshape(len(images), -1)
    scale, center = (np.asarray(each, np.float32).reshape(-1, 1, 1) for each in (backbone.scale, backbone.center))
    try:
        features = backbone.features(images * scale + center)
    except Exception as problem:
        remedy = "export it with a batch of any length (dynamic_axes)"
        raise InvalidInput(f"it does not run on several images at once ({first_line(problem)}): {remedy}") from None
    if not np.isfinite(wanted).all():
        raise InvalidInput("its features are not finite numbers")
    most = LARGEST_CHANGE * max(np.abs(wanted).max(), 1)
    if features.shape != wanted.shape or np.abs(features - wanted).max() > most:
        from darkbayes.export.graph import OPSET

        remedy = f"export it with a batch of any length (dynamic_axes), and opset_version={OPSET}"
        raise InvalidInput(f"its features of several images at once are not those of each by itself: {remedy}")


def _listed(numbers: Sequence[float]) -> str:
    text = ", ".join(f"{number:g}" for number in numbers)
    return text if len(numbers) == 1 else f"({text})"
