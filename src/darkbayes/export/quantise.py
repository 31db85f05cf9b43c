"""Weights of an exported student in eight bits, a quarter of the file.

Each output of a layer has a scale s of its own, and its weights are stored as round(w / s) from -127 to 127; the graph
multiplies them by s again when it runs. Biases, standardisation and all else stay as they are.
"""

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.onnxfile import SEAL, seal

MOST_STEPS = 127  # The largest eight-bit weight; the least is its negative, so that none is rounded towards zero.
LAYERS = ("Gemm", "Conv")  # Operators whose second input are weights, with the outputs along the first axis.


def quantise(model: bytes) -> bytes:
    """An ONNX file by `to_onnx` with the weights of its layers in int8.

    Args:
        model: the bytes of the file.

    Returns:
        Those of the smaller one.

    >>> import jax, jax.numpy as jnp, optax, darkbayes as db
    >>> student = db.Student(db.mlp([100, 100], 2), db.outcomes.GaussianHead(), optax.adam(1e-3))
    >>> model = db.to_onnx(student, student.init(jax.random.key(0), jnp.zeros((1, 8))), shape=(8,))
    >>> 0.2 < len(quantise(model)) / len(model) < 0.4
    True
    """
    import onnx
    from onnx import helper, numpy_helper

    whole = onnx.load_from_string(model)
    graph, restored = whole.graph, []
    stored = {constant.name: constant for constant in graph.initializer}
    for node in [node for node in graph.node if node.op_type in LAYERS]:
        name = node.input[1]
        if name not in stored:
            raise InvalidInput(f"the weights {name} are not constants of the file: give one that to_onnx wrote")
        values = numpy_helper.to_array(stored[name])
        rest = tuple(range(1, values.ndim))
        largest = np.max(np.abs(values), axis=rest)
        scale = np.where(largest > 0, largest / MOST_STEPS, 1).astype(np.float32)
        steps = np.rint(values / np.expand_dims(scale, rest)).astype(np.int8)
        graph.initializer.append(numpy_helper.from_array(scale, f"{name}.scale"))
        stored[name].CopyFrom(numpy_helper.from_array(steps, name))
        node.input[1] = f"{name}.float"
        restored.append(helper.make_node("DequantizeLinear", [name, f"{name}.scale"], [node.input[1]], axis=0))
    everything = [*restored, *graph.node]
    del graph.node[:]
    graph.node.extend(everything)
    properties = [pair for pair in whole.metadata_props if pair.key != SEAL]
    del whole.metadata_props[:]
    whole.metadata_props.extend(properties)
    return seal(whole.SerializeToString())
