"""Small models in the form of an exported student, written by hand, for the tests of what ships and serves them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from darkbayes.tables.schema import (
    REACH,
    Category,
    ClassTarget,
    ImageSchema,
    Number,
    RealTarget,
    Schema,
    TableSchema,
    schema_to_dict,
)

PRICE = RealTarget("price", "identity", center=22.0, scale=9.0, low=5.0, high=50.0)
COLOURS = ("blue", "red", "white")


def number(name: str, low: float, high: float, *, whole: bool = False, flagged: bool = False) -> Number:
    middle = (low + high) / 2
    return Number(name, middle, (high - low) / 4, float(round(middle)) if whole else middle, flagged, low, high, whole)


HOUSES = TableSchema(
    (
        number("rooms", 1, 9, whole=True),
        number("crime rate", 0.0, 12.5, flagged=True),
        number("distance", 0.5, 40.0),
        Category("colour", COLOURS, flagged=False),
    ),
    PRICE,
    ignored={"id": "every value is different"},
)
PRICES = TableSchema(HOUSES.columns, RealTarget("price", "log", center=3.0, scale=0.4, low=5.0, high=50.0))
FLOWERS = TableSchema(HOUSES.columns, ClassTarget("kind", ("0", "1", "12"), "integer"))
PLANE = TableSchema((number("east", -3, 3), number("north", -2, 2)), ClassTarget("side", ("false", "true"), "boolean"))
FIELD = TableSchema((number("east", -3, 3), number("north", -2, 2)), PRICE)
DIGITS = ImageSchema(1, 8, 8, center=78.0, scale=96.0, target=ClassTarget("digit", tuple("0123456789"), "integer"))

SCHEMAS: dict[str, Schema] = {
    "houses": HOUSES,
    "prices": PRICES,
    "flowers": FLOWERS,
    "plane": PLANE,
    "field": FIELD,
    "digits": DIGITS,
}


class Graph:
    """Nodes and constants, collected as they are used."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def __call__(self, kind: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        names = [of if isinstance(of, str) else self.constant(of) for of in inputs]
        output = output or f"n{len(self.nodes)}"
        domain = "ai.onnx.ml" if kind == "OneHotEncoder" else ""
        self.nodes.append(helper.make_node(kind, names, [output], domain=domain, **attributes))
        return output


def encoded(graph: Graph, schema: Schema) -> tuple[str, list[Any]]:
    """The network's inputs, and those of the graph."""
    if isinstance(schema, ImageSchema):
        pixels = graph("Flatten", graph("Div", graph("Sub", "images", schema.center), schema.scale))
        return pixels, [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", *schema.shape])]
    parts, inputs = [], []
    if schema.numbers:
        inputs.append(helper.make_tensor_value_info("numbers", TensorProto.DOUBLE, ["batch", len(schema.numbers)]))
        fill, center, scale = (
            graph.constant([getattr(column, of) for column in schema.numbers], np.float64)
            for of in ("fill", "center", "scale")
        )
        missing = graph("IsNaN", "numbers")
        scaled = graph("Div", graph("Sub", graph("Where", missing, fill, "numbers"), center), scale)
        reach = [graph.constant(of, np.float64) for of in (-REACH, REACH)]
        parts.append(graph("Cast", graph("Clip", scaled, *reach), to=TensorProto.FLOAT))
        flags = [k for k, column in enumerate(schema.numbers) if column.flagged]
        if flags:
            told = graph("Gather", missing, graph.constant(flags, np.int64), axis=1)
            parts.append(graph("Cast", told, to=TensorProto.FLOAT))
    for k, column in enumerate(schema.categories):
        if not k:
            shape = ["batch", len(schema.categories)]
            inputs.append(helper.make_tensor_value_info("categories", TensorProto.STRING, shape))
        one = graph("Gather", "categories", graph.constant(k, np.int64), axis=1)
        names = list(column.categories) + [""] * column.flagged
        parts.append(graph("OneHotEncoder", one, cats_strings=names, zeros=1))
    return graph("Concat", *parts, axis=1), inputs


def build(schema: Schema) -> onnx.ModelProto:
    """A model of the schema, with random weights that are always the same."""
    rng, graph = np.random.default_rng(3), Graph()
    x, inputs = encoded(graph, schema)
    width = int(np.prod(schema.shape))

    def linear(outputs: int, size: float) -> str:
        return graph("MatMul", x, graph.constant(size * rng.normal(size=(width, outputs)) / np.sqrt(width)))

    far = graph("ReduceMean", graph("Mul", x, x), graph.constant([1], np.int64), keepdims=0)
    if isinstance(schema.target, ClassTarget):
        shapes = {"probs": ["batch", len(schema.target.classes)]}
        probs = graph("Softmax", linear(len(schema.target.classes), 3.0), output="probs", axis=1)
        logs = graph("Log", graph("Max", probs, 1e-30))
        summed = graph("ReduceSum", graph("Mul", probs, logs), graph.constant([1], np.int64), keepdims=0)
        entropy = graph("Neg", summed, output="entropy")
        share = graph("Div", far, graph("Add", far, 3.0))
        doubt = graph("Mul", entropy, share, output="mutual_information")
        graph("Sub", entropy, doubt, output="expected_entropy")
        names = ["entropy", "expected_entropy", "mutual_information"]
    else:
        shapes, target, flat = {}, schema.target, graph.constant([-1], np.int64)
        clipped = graph("Clip", graph("Reshape", linear(1, 0.8), flat), -4.0, 4.0)
        location = graph("Add", graph("Mul", clipped, target.scale), target.center, output="location")
        steep = graph("Clip", graph("Reshape", linear(1, 0.5), flat), -4.0, 4.0)
        noise = graph("Mul", graph("Exp", steep), 0.06 * target.scale**2)
        doubt = graph("Mul", graph("Min", graph("Add", far, 0.2), 20.0), 0.04 * target.scale**2)
        variance = graph("Add", noise, doubt)
        spread = graph("Sqrt", variance, output="spread")
        if target.transform == "identity":
            for given, name in (
                (location, "mean"),
                (spread, "std"),
                (graph("Sqrt", noise), "aleatoric_std"),
                (graph("Sqrt", doubt), "epistemic_std"),
            ):
                graph("Identity", given, output=name)
        else:
            mean = graph("Exp", graph("Add", location, graph("Mul", variance, 0.5)), output="mean")
            total, epistemic = (graph("Sub", graph("Exp", of), 1.0) for of in (variance, doubt))
            graph("Mul", mean, graph("Sqrt", total), output="std")
            graph("Mul", mean, graph("Sqrt", graph("Sub", total, epistemic)), output="aleatoric_std")
            graph("Mul", mean, graph("Sqrt", epistemic), output="epistemic_std")
        names = ["mean", "std", "aleatoric_std", "epistemic_std", "location", "spread"]
    shapes |= {name: ["batch"] for name in names}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "student", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)],
        ir_version=9,
    )
    told = {"darkbayes.schema": json.dumps(schema_to_dict(schema)), "darkbayes.version": "0.1.0"}
    helper.set_model_props(made, told)
    onnx.checker.check_model(made)
    return made


def write(folder: Path, schema: Schema) -> Path:
    """A run's folder that holds nothing but the model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "student.onnx").write_bytes(build(schema).SerializeToString())
    return folder
