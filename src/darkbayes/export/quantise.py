"""Weights of an exported student in eight bits, a quarter of the file, and what that costs in log likelihood.

Each output of a layer has a scale s of its own, and its weights are stored as round(w / s) from -127 to 127; the graph
multiplies them by s again when it runs. Biases, standardisation and all else stay as they are.
"""

import json
import math
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.export.onnx import SCHEMA_PROPERTY
from darkbayes.tables import ClassTarget, RealPredictions, RealTarget, schema_from_dict

MOST_STEPS = 127
"""The largest eight-bit weight; the least is its negative, so that none has to be rounded towards zero."""

LAYERS = ("Gemm", "Conv")
"""Operators whose second input are weights, with the outputs along the first axis."""


def quantise(model: bytes) -> bytes:
    """An ONNX file by `to_onnx` with the weights of its layers in int8; `quantisation_loss` tells what is lost.

    >>> import jax, jax.numpy as jnp, optax, darkbayes as db
    >>> student = db.Student(db.mlp([100, 100], 2), db.GaussianStudent(), optax.adam(1e-3))
    >>> model = db.to_onnx(student, student.init(jax.random.key(0), jnp.zeros((1, 8))), shape=(8,))
    >>> 0.2 < len(quantise(model)) / len(model) < 0.4
    True
    """
    import onnx

    graph = onnx.load_from_string(model)
    weights = [node.input[1] for node in graph.graph.node if node.op_type in LAYERS]
    stored = {constant.name: constant for constant in graph.graph.initializer}
    restored = []
    for name in weights:
        if name not in stored:
            raise InvalidInput(f"the weights {name} are no constants of the file: give one that to_onnx wrote")
        restored.append(_in_eight_bits(graph.graph, stored[name]))
    for node in graph.graph.node:
        if node.op_type in LAYERS:
            node.input[1] = _restored(node.input[1])
    everything = [*restored, *graph.graph.node]
    del graph.graph.node[:]
    graph.graph.node.extend(everything)
    return graph.SerializeToString()


def _in_eight_bits(graph: Any, constant: Any) -> Any:
    """Replace a constant by its steps and scales; returns the node that makes it of them again."""
    from onnx import helper, numpy_helper

    values = numpy_helper.to_array(constant)
    rest = tuple(range(1, values.ndim))
    largest = np.max(np.abs(values), axis=rest)
    scale = np.where(largest > 0, largest / MOST_STEPS, 1).astype(np.float32)
    steps = np.rint(values / np.expand_dims(scale, rest)).astype(np.int8)
    scale_name = f"{constant.name}.scale"
    graph.initializer.append(numpy_helper.from_array(scale, scale_name))
    constant.CopyFrom(numpy_helper.from_array(steps, constant.name))
    return helper.make_node("DequantizeLinear", [constant.name, scale_name], [_restored(constant.name)], axis=0)


def _restored(name: str) -> str:
    return f"{name}.float"


def quantisation_loss(model: bytes, quantised: bytes, inputs: dict[str, np.ndarray], y: np.ndarray) -> float:
    """How much log likelihood per example a quantised file loses on given data, in nats.

    Args:
        model, quantised: two files with the same inputs and outputs.
        inputs: what the graph reads, as ``schema.matrices`` has it.
        y: the targets; of a file with a schema as the user has them, otherwise as the student predicts them.
    """
    return log_likelihood(model, inputs, y) - log_likelihood(quantised, inputs, y)


def log_likelihood(model: bytes, inputs: dict[str, np.ndarray], y: np.ndarray) -> float:
    """The mean log likelihood of targets under what an exported student predicts; see `quantisation_loss`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found: dict[str, Any] = dict(zip(names, session.run(names, inputs), strict=True))
    stored = session.get_modelmeta().custom_metadata_map.get(SCHEMA_PROPERTY)
    target = schema_from_dict(json.loads(stored)).target if stored else None
    if "probs" in found:
        labels = target.encode(np.asarray(y)) if isinstance(target, ClassTarget) else np.asarray(y)
        probs = np.take_along_axis(found["probs"], labels[:, None], axis=1)
        return float(np.mean(np.log(np.maximum(probs, np.finfo(np.float32).tiny), dtype=np.float64)))
    if isinstance(target, RealTarget):
        return float(np.mean(RealPredictions(**found).log_density(target, y)))
    z = (np.asarray(y, np.float64) - found["mean"]) / found["std"]
    logs = -0.5 * z**2 - np.log(found["std"], dtype=np.float64) - 0.5 * math.log(2 * math.pi)
    return float(np.mean(np.sum(logs, axis=1)))
