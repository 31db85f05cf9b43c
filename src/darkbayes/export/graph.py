"""An ONNX graph as it is being written: nodes in their order, constants, inputs and outputs. It needs onnx."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from onnx import TensorProto, helper, numpy_helper

from darkbayes.onnxfile import VERSION, seal
from darkbayes.version import __version__

OPSET = 20  # The first that has GELU; every onnxruntime since 1.17 reads it.
IR_VERSION = 9  # The file format that came with it.
NAMES = {"subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "minimum": "Min", "maximum": "Max"}
"""What ONNX calls the functions of numpy that it does not call by their own names."""


class Value(NDArrayOperatorsMixin):
    """A value of a graph, with which numpy calculates: what is done with it is appended to the graph."""

    def __init__(self, graph: "Graph", name: str, dtype: Any):
        self.graph, self.name, self.dtype = graph, name, dtype

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any) -> "Value":
        return self.graph.add(NAMES.get(ufunc.__name__, ufunc.__name__.title()), *inputs)

    def astype(self, dtype: Any) -> "Value":
        cast = self.graph.add("Cast", self, to=_type(dtype))
        return cast.of_type(dtype)

    def of_type(self, dtype: Any) -> "Value":
        """The same value, whose operator returns another type than it was given."""
        return Value(self.graph, self.name, dtype)

    def named(self, name: str) -> "Value":
        """Another value of the same graph and type."""
        return Value(self.graph, name, self.dtype)

    def columns(self, places: Any) -> "Value":
        """Those along the second axis."""
        return self.graph.add("Gather", self, np.asarray(places, np.int64), axis=1)


class Graph:
    """Collects what an ONNX file holds.

    >>> graph = Graph()
    >>> x = graph.input("x", np.float32, (3,))
    >>> graph.output("y", np.exp(2 * x), (3,))
    >>> len(graph.written("doubled", {})) < 300
    True
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._shared: dict[Any, str] = {}
        self.inputs: list[Any] = []
        self.outputs: list[tuple[str, Any]] = []
        self.renamed: dict[str, str] = {}

    def input(self, name: str, dtype: Any, shape: Sequence[int]) -> Value:
        """Declare an input, of a shape without the batch."""
        # The length of the first axis, which has a name, is free.
        self.inputs.append(helper.make_tensor_value_info(name, _type(dtype), ["batch", *shape]))
        return Value(self, name, dtype)

    def output(self, name: str, value: Value, shape: Sequence[int] = ()) -> None:
        """Declare an output, of a shape without the batch: the value that goes by another name within."""
        declared = helper.make_tensor_value_info(name, _type(value.dtype), ["batch", *shape])
        self.outputs.append((value.name, declared))

    def rename(self, value: Value, name: str) -> None:
        """Have a value within go by a name that others can look for."""
        self.renamed[value.name] = name

    def constant(self, value: Any, name: str | None = None) -> str:
        """Store numbers, or a list of strings; what has no name of its own is stored once."""
        if isinstance(value, list):
            name = f"c{len(self.constants)}"
            stored = helper.make_tensor(name, TensorProto.STRING, [len(value)], [text.encode() for text in value])
        else:
            array = np.asarray(value, order="C")
            same = (array.dtype, array.shape, array.tobytes())
            name = name or self._shared.setdefault(same, f"c{len(self.constants)}")
            stored = numpy_helper.from_array(array, name)
        self.constants.setdefault(name, stored)
        return name

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> Value:
        """Append a node of one result, of the type of the last value among its inputs.

        An input may be a value, the name of a constant, an array or a list of strings to store, or a number, which is
        taken to be of that type as well.
        """
        dtype, names = [value.dtype for value in inputs if isinstance(value, Value)][-1], []
        for value in inputs:
            stored = value.name if isinstance(value, Value) else value
            if not isinstance(stored, str):
                stored = self.constant(dtype(value) if isinstance(value, int | float) else value)
            names.append(stored)
        result = Value(self, f"n{len(self.nodes)}", dtype)
        self.nodes.append(helper.make_node(operator, names, [result.name], **attributes))
        return result

    def written(self, name: str, properties: dict[str, str]) -> bytes:
        """The graph as the bytes of an ONNX file, in which values have the names of the outputs they are."""
        renamed = dict(self.renamed)
        for value, declared in self.outputs:
            if value in renamed:  # A value that is several outputs is copied.
                self.nodes.append(helper.make_node("Identity", [value], [declared.name]))
            renamed.setdefault(value, declared.name)
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]
        outputs = [declared for _, declared in self.outputs]
        graph = helper.make_graph(self.nodes, name, self.inputs, outputs, list(self.constants.values()))
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="darkbayes")
        helper.set_model_props(model, properties | {VERSION: __version__})
        return seal(model.SerializeToString())


def _type(dtype: Any) -> int:
    return TensorProto.STRING if dtype is str else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
