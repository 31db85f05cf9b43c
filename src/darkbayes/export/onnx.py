"""A student as an ONNX graph that takes what a user has and returns what a user wants; no converter is involved.

With a schema, standardisation, one-hot encoding and the target's scale are part of the graph, and it computes what
`schema.encode`, the student and `Target.own_unit` compute, to the rounding of float32. Its inputs, as `schema.matrices`
has them:

    numbers      double [batch, columns], NaN where one is missing
    categories   string [batch, columns], "" where one is missing
    images       float [batch, channels, height, width], values from 0 to 255

What its outputs are the target says (`Target.outputs`): of a class ``probs`` and ``log_probs`` [batch, classes] and
``entropy, expected_entropy, mutual_information`` [batch] in float32; of a number ``mean, std, aleatoric_std,
epistemic_std, location, spread`` [batch] in double, the last two and ``log_weights`` [batch, components] of a mixture.
Without a schema the input is ``x``, what the network itself reads, and outputs are in the student's own unit.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, require_count
from darkbayes.export.backbone import Backbone
from darkbayes.model import layers
from darkbayes.model.base import Layer, Shape, layers_of, pair, shape_after, with_weights
from darkbayes.onnxfile import ENCODED, SCHEMA
from darkbayes.student.network import Student
from darkbayes.tables.schema import ImageSchema, Schema, TableSchema
from darkbayes.tables.stored import schema_to_json
from darkbayes.types import PyTree

if TYPE_CHECKING:
    from darkbayes.export.graph import Graph, Value


def to_onnx(
    student: Student,
    params: PyTree,
    schema: Schema | None = None,
    *,
    shape: Sequence[int] | None = None,
    backbone: Backbone | None = None,
    features: TableSchema | None = None,
) -> bytes:
    """The bytes of an ONNX file that predicts as a student with weights `params` does.

    Args:
        student: its network must be made of layers (`mlp`, `cnn`, `resnet`, `sequential`, `from_torch`); with a
            schema, its head must be one for the target, with ``decompose=True``.
        params: the student's weights.
        schema: what the columns or images are, if the graph is to take them as they come.
        shape: where there is no schema, the shape of one input of the network.
        backbone: what makes features of images, if the student reads those; it becomes part of the file.
        features: how they are standardised, one column for each.

    Returns:
        The bytes.

    >>> import jax, optax, darkbayes as db
    >>> head = db.outcomes.GaussianHead(decompose=True)
    >>> student = db.Student(db.mlp([10], head.width), head, optax.adam(1e-3))
    >>> params = student.init(jax.random.key(0), jnp.zeros((1, 3)))
    >>> content = to_onnx(student, params, shape=(3,))
    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    >>> mean, std = session.run(["mean", "std"], {"x": np.zeros((5, 3), np.float32)})
    >>> std.shape
    (5, 1)
    """
    if (schema is None) == (shape is None):
        raise InvalidInput("to_onnx needs either a schema or the shape of one input: give one of them")
    if schema is not None:
        target, head = schema.target, student.head
        wanted = [target.head(kind) for kind in target.heads]
        if not any((type(head), head.targets, head.width) == (type(one), one.targets, one.width) for one in wanted):
            heads = ", ".join(map(str, wanted))
            raise InvalidInput(f"the target {target.name} needs a student whose head is one of {heads}, not {head}")
    from darkbayes.export.graph import Graph

    if (backbone is None) != (features is None) or (backbone and schema and backbone.shape != schema.shape):
        raise InvalidInput("to_onnx takes a backbone with how its features are standardised, and a schema of its size")
    read = features or schema
    size = tuple(require_count("shape", length) for length in (shape if read is None else read.shape) or ())
    graph, described = Graph(), _layers(student, params, size)
    if schema is not None and backbone is not None and features is not None:
        values = backbone.write(graph, graph.input("images", np.float32, schema.shape)).astype(np.float64)
        (x,) = _numbers(graph, features, values)
        graph.rename(x, ENCODED)
    else:
        x = _inputs(graph, schema, size)
    x = write_layers(graph, described, params, x, size)
    target, parts = student.head.write(graph, x)
    if schema is None:
        target.write_outputs(graph, parts)
        return graph.written("student", {})
    schema.target.write_outputs(graph, parts)
    stored = json.dumps(schema_to_json(schema, sealed=True), separators=(",", ":"), ensure_ascii=False)
    return graph.written("student", {SCHEMA: stored})


def _layers(student: Student, params: PyTree, shape: tuple[int, ...]) -> tuple[Layer, ...]:
    """The layers of the student's network, if they are known and take inputs of that shape."""
    described = layers_of(student.network)
    x = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    try:
        width = jax.eval_shape(student.network.apply, params, x).shape[1:]
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"the student's network does not take inputs of shape {shape}: {problem}") from None
    if width != (student.head.width,):
        needed = f"{student.head} needs {student.head.width} outputs"
        raise InvalidInput(f"the student's network returns shape {width}, but {needed}")
    return described


def _inputs(graph: "Graph", schema: Schema | None, shape: tuple[int, ...]) -> "Value":
    """The network's inputs from those of the graph."""
    if schema is None:
        return graph.input(ENCODED, np.float32, shape)
    if isinstance(schema, ImageSchema):
        images = graph.input("images", np.float32, schema.shape)
        return (images - schema.center) / schema.scale
    columns = [len(schema.numbers)]
    parts = _numbers(graph, schema, graph.input("numbers", np.float64, columns)) if schema.numbers else []
    parts += [_categories(graph, schema)] if schema.categories else []
    encoded = parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)
    graph.rename(encoded, ENCODED)
    return encoded


def _numbers(graph: "Graph", schema: TableSchema, numbers: "Value") -> "list[Value]":
    """Standardised in double, as a small difference of large numbers may be all there is to know."""
    columns = schema.numbers
    center, scale, fill = np.asarray([(column.center, column.scale, column.fill) for column in columns]).T
    missing = graph.add("IsNaN", numbers)
    bent = schema.bent((numbers - center) / scale).astype(np.float32)
    parts = [graph.add("Where", missing, schema.bent((fill - center) / scale).astype(np.float32), bent)]
    flagged = np.flatnonzero([column.flagged for column in columns])
    if flagged.size:
        if flagged.size < len(columns):
            missing = missing.columns(flagged)
        parts.append(missing.astype(np.float32))
    return parts


def _categories(graph: "Graph", schema: TableSchema) -> "Value":
    """One-hot, all columns at once: each is repeated for every category it may be, and compared."""
    names = [[*column.categories, ""] if column.flagged else list(column.categories) for column in schema.categories]
    places = np.repeat(np.arange(len(names)), list(map(len, names)))
    repeated = graph.input("categories", str, [len(names)]).columns(places)
    return graph.add("Equal", repeated, [name for column in names for name in column]).astype(np.float32)


def write_layers(
    graph: "Graph", described: tuple[Layer, ...], params: Any, x: "Value", shape: Shape, name: str = ""
) -> "Value":
    """Append what layers make of `x`, one after the other; `name` is that of the layer that they are part of."""
    for place, (layer, weights) in enumerate(with_weights(described, params)):
        x = _layer(graph, layer, weights, x, shape, f"{name}{place}")
        shape = shape_after(layer, weights, shape)
    return x


def _layer(graph: "Graph", layer: Layer, weights: Any, x: "Value", shape: Shape, name: str) -> "Value":
    """What one layer makes of `x`, which has a shape without the batch."""

    def stored(kind: str, like: tuple[int, ...] | None = None) -> str:
        value = np.asarray(getattr(weights, kind), np.float32)
        return graph.constant(value if like is None else value.reshape(like), f"{name}.{kind}")

    def by_channel(kind: str) -> Any:
        return stored(kind, (-1, 1, 1))

    match layer:
        case layers.Linear():
            bias = [stored("bias")] if layer.bias else []
            return graph.add("Gemm", x, stored("weight"), *bias, transB=1)
        case layers.Conv2d():
            (top, bottom), (left, right) = layer.edges
            bias = [stored("bias", (-1,))] if layer.bias else []
            window: dict[str, Any] = {"pads": [top, left, bottom, right], "strides": pair(layer.stride)}
            window |= {"dilations": pair(layer.dilation), "group": layer.groups}
            return graph.add("Conv", x, stored("weight"), *bias, **window)
        case layers.LayerNorm():
            ones = np.ones(shape[-layer.axes :], np.float32)
            scale = stored("weight") if layer.affine else ones
            bias = [stored("bias")] if layer.affine and layer.bias else []
            return graph.add("LayerNormalization", x, scale, *bias, axis=-layer.axes, epsilon=layer.epsilon)
        case layers.GroupNorm():
            grouped = graph.add("Reshape", x, np.array([0, layer.groups, -1]))
            centred = grouped - _mean(graph, grouped, 2)
            scaled = centred / np.sqrt(_mean(graph, centred * centred, 2) + layer.epsilon)
            x = graph.add("Reshape", scaled, np.array([0, *shape]))
            return x * by_channel("weight") + by_channel("bias") if layer.affine else x
        case layers.FilterResponseNorm():
            x = x / np.sqrt(_mean(graph, x * x, 2, 3) + layer.epsilon)
            return np.maximum(x * by_channel("weight") + by_channel("bias"), by_channel("threshold"))
        case layers.Residual():
            body, shortcut = (
                write_layers(graph, part, own, x, shape, f"{name}.{side}.")
                for (side, part), own in zip(layer.parts.items(), weights, strict=True)
            )
            return body + shortcut
        case layers.Standardise():
            center, scale = (layer.along(numbers, len(shape) - 1) for numbers in (layer.center, layer.scale))
            return (x - center) / scale
        case layers.Activation():
            if layer.name == "silu":
                return x * graph.add("Sigmoid", x)
            if layer.name == "gelu_tanh":
                return graph.add("Gelu", x, approximate="tanh")
            # Others are operators of the same name, whose defaults are those of JAX: leaky_relu is LeakyRelu.
            return graph.add(layer.name.title().replace("_", ""), x)
        case layers.MaxPool2d() | layers.AvgPool2d():
            window: dict[str, Any] = {"kernel_shape": pair(layer.kernel_size), "strides": pair(layer.steps)}
            window["pads"] = pair(layer.padding) * 2
            if isinstance(layer, layers.MaxPool2d):
                return graph.add("MaxPool", x, **window)
            return graph.add("AveragePool", x, count_include_pad=1, **window)
        case layers.GlobalAvgPool2d():
            return graph.add("GlobalAveragePool", x)
        case layers.Flatten() if len(shape) > 1:
            return graph.add("Flatten", x)
        case layers.Flatten() | layers.Identity():
            return x
    remedy = "leave it out, or use one of darkbayes.model.layers"
    raise InvalidInput(f"the layer {layer!r} has no counterpart in ONNX: {remedy}")


def _mean(graph: "Graph", x: "Value", *axes: int) -> "Value":
    return graph.add("ReduceMean", x, np.array(axes))
