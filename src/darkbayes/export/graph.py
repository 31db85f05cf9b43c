"""An ONNX graph as it is being written: nodes in their order, constants, inputs and outputs. It needs onnx."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from darkbayes.version import __version__

OPSET = 20  # The first that has GELU; every onnxruntime since 1.17 reads it.
IR_VERSION = 9  # The file format that came with it.


class Graph:
    """Collects what an ONNX file holds.

    >>> graph = Graph()
    >>> x = graph.input("x", np.float32, (3,))
    >>> graph.output("y", graph.add("Mul", x, graph.constant(np.float32(2.0))), (3,))
    >>> len(graph.written("doubled", {})) < 200
    True
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[tuple[str, Any]] = []

    def input(self, name: str, dtype: Any, shape: Sequence[int]) -> str:
        """Declare an input, of a shape without the batch."""
        self.inputs.append(_declared(name, dtype, shape))
        return name

    def output(self, name: str, value: str, shape: Sequence[int] = (), dtype: Any = np.float32) -> None:
        """Declare an output, of a shape without the batch: the value that goes by another name within."""
        self.outputs.append((value, _declared(name, dtype, shape)))

    def constant(self, value: Any, name: str | None = None) -> str:
        """Store numbers, or a list of strings."""
        name = name or f"c{len(self.constants)}"
        if isinstance(value, list):
            stored = helper.make_tensor(name, TensorProto.STRING, [len(value)], [text.encode() for text in value])
        else:
            stored = numpy_helper.from_array(np.asarray(value, order="C"), name)
        self.constants.append(stored)
        return name

    def add(self, operator: str, *inputs: str, into: str | None = None, **attributes: Any) -> str:
        """Append a node of one result; returns the result's name."""
        return self.split(operator, *inputs, into=[into or f"n{len(self.nodes)}"], **attributes)[0]

    def split(self, operator: str, *inputs: str, into: list[str], **attributes: Any) -> list[str]:
        """Append a node of several results, under the names given."""
        self.nodes.append(helper.make_node(operator, inputs, into, **attributes))
        return into

    def cast(self, value: str, dtype: Any) -> str:
        return self.add("Cast", value, to=_type(dtype))

    def written(self, name: str, properties: dict[str, str]) -> bytes:
        """The graph as the bytes of an ONNX file, in which values have the names of the outputs they are."""
        renamed: dict[str, str] = {}
        for value, declared in self.outputs:
            if value in renamed:  # A value that is several outputs is copied.
                self.add("Identity", value, into=declared.name)
            renamed.setdefault(value, declared.name)
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]
        outputs = [declared for _, declared in self.outputs]
        graph = helper.make_graph(self.nodes, name, self.inputs, outputs, self.constants)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="darkbayes")
        helper.set_model_props(model, properties | {"darkbayes.version": __version__})
        return model.SerializeToString()


def _declared(name: str, dtype: Any, shape: Sequence[int]) -> Any:
    # The length of the first axis, which has a name, is free.
    return helper.make_tensor_value_info(name, _type(dtype), ["batch", *shape])


def _type(dtype: Any) -> int:
    return TensorProto.STRING if dtype is str else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
