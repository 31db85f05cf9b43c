"""The Open Inference Protocol, version 2, with tensors as JSON or in binary, as KServe's and Triton's clients send.

Inputs and outputs are those of the ONNX file, by name, type and shape, so that who has called a server that runs the
file finds the same here. https://github.com/kserve/open-inference-protocol
"""

import itertools
import json
import math
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pydantic_core

from darkbayes.serve.limits import Limits, Refused
from darkbayes.shipped import Shipped
from darkbayes.tables.cells import quoted
from darkbayes.tables.schema import ImageSchema

HEAD = "Inference-Header-Content-Length"
VERSION = "1"  # Of the model: a service has one.
ONNX = {
    "double": "FP64", "float": "FP32", "float16": "FP16", "string": "BYTES", "bool": "BOOL", "int64": "INT64",
    "int32": "INT32", "int16": "INT16", "int8": "INT8", "uint8": "UINT8",
}  # fmt: skip
"""What the protocol calls ONNX's types."""
DTYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
"""What numpy calls the protocol's."""


class Tensor(NamedTuple):
    """An input or output; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class Output(NamedTuple):
    """One that is asked for."""

    name: str
    datatype: str
    binary: bool


class InferenceRequest(NamedTuple):
    """What a request asks for."""

    inputs: dict[str, np.ndarray]
    outputs: list[Output]
    id: str | None


def signature(shipped: Shipped) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs and the outputs of a student."""
    inputs, outputs = (
        [
            Tensor(one.name, ONNX[one.type[7:-1]], [size if isinstance(size, int) else -1 for size in one.shape])
            for one in tensors
        ]
        for tensors in shipped.tensors
    )
    return inputs, outputs


def describe(shipped: Shipped, name: str) -> dict[str, Any]:
    """The answer of ``/v2/models/NAME``."""
    inputs, outputs = ([tensor._asdict() for tensor in tensors] for tensors in signature(shipped))
    return {"name": name, "versions": [VERSION], "platform": "onnxruntime_onnx", "inputs": inputs, "outputs": outputs}


def read(body: bytes, head: int | None, shipped: Shipped, limits: Limits) -> InferenceRequest:
    """What a body asks for; `head` is how many of its bytes are JSON, if others follow."""
    if head is not None and not 0 <= head <= len(body):
        raise _wrong(f"{HEAD} is {head}, and the body has {len(body)} bytes", HEAD)
    try:
        content: Any = pydantic_core.from_json(body[:head], allow_inf_nan=True)
    except ValueError as problem:
        raise _wrong(f"the body is not valid JSON: {problem}", "body") from None
    inputs, outputs = signature(shipped)
    sent = _objects(content if isinstance(content, dict) else {}, "inputs")
    known: dict[str, Tensor] = {tensor.name: tensor for tensor in inputs}
    feeds: dict[str, np.ndarray] = {}
    raw = memoryview(body)[len(body) if head is None else head :]
    for place, one in enumerate(sent):
        where, name = f"inputs[{place}]", one.get("name")
        if not isinstance(name, str) or name not in known or name in feeds:
            raise _unknown(where, name, known)
        size = _parameters(one, where).get("binary_data_size")
        if size is not None and not (type(size) is int and 0 <= size <= len(raw)):
            raise _wrong(f"{where} has {quoted(size)} bytes of binary data, and the body {len(raw)} more", where)
        feeds[name] = _array(one, known[name], raw[:size] if size is not None else None, limits, where)
        raw = raw[size or 0 :]
    if len(raw):
        raise _wrong(f"the body has {len(raw)} bytes that belong to no input", "body")
    if lost := known.keys() - feeds.keys():
        raise _wrong(f"the input {min(lost)!r} is missing", "inputs")
    if len({len(values) for values in feeds.values()}) > 1:
        raise _wrong("the inputs have different numbers of rows", "inputs")
    _check_values(feeds, isinstance(shipped.schema, ImageSchema))
    request = content.get("id")
    if not (request is None or isinstance(request, str)):
        raise _wrong(f"id is {quoted(request)}, not a text", "id")
    return InferenceRequest(feeds, _outputs(content, outputs), request)


def _check_values(feeds: dict[str, np.ndarray], images: bool) -> None:
    """Refuse what no row or image can hold."""
    for name, values in feeds.items():
        if values.dtype.kind != "f":
            continue
        if images and not ((values >= 0) & (values <= 255)).all():
            raise _wrong(f"the input {name!r} holds a value below 0 or above 255", name)
        if np.isinf(values).any():
            raise _wrong(f"the input {name!r} holds an infinite value; a missing one is NaN or null", name)


def _outputs(content: dict[str, Any], outputs: list[Tensor]) -> list[Output]:
    """Those that are asked for: all, unless it is said."""
    known, binary = {tensor.name: tensor.datatype for tensor in outputs}, _parameters(content, "the body")
    default = binary.get("binary_data_output") is True
    if content.get("outputs") is None:
        return [Output(name, datatype, default) for name, datatype in known.items()]
    asked = []
    for place, one in enumerate(_objects(content, "outputs")):
        where, name = f"outputs[{place}]", one.get("name")
        if not isinstance(name, str) or name not in known or place >= len(known):
            raise _unknown(where, name, known)
        asked.append(Output(name, known[name], _parameters(one, where).get("binary_data", default) is True))
    return asked


def _array(one: dict[str, Any], tensor: Tensor, raw: memoryview | None, limits: Limits, where: str) -> np.ndarray:
    """An input's values, in the type that the model reads."""
    shape, datatype = one.get("shape"), one.get("datatype")
    if (
        not isinstance(shape, list)
        or len(shape) != len(tensor.shape)
        or not all(
            type(size) is int and size == (size if own < 0 else own)
            for size, own in zip(shape, tensor.shape, strict=True)
        )
    ):
        raise _wrong(f"{where} has the shape {quoted(str(shape))}, not {tensor.shape} (-1: the number of rows)", where)
    rows, texts = shape[0], tensor.datatype == "BYTES"
    if rows < 1:
        raise _wrong(f"{where} has {rows} rows", where)
    if rows > limits.rows:
        error = f"{where} has {rows:,} rows, more than {limits.rows:,}"
        raise Refused(413, error, "send them in several requests", where)
    if not isinstance(datatype, str) or (datatype != "BYTES" if texts else datatype not in DTYPES):
        raise _wrong(f"{where} is of type {quoted(datatype)}, where {tensor.datatype} is read", where)
    try:
        flat = _listed(one.get("data"), texts) if raw is None else _unpacked(raw, datatype)
    except (ValueError, TypeError, OverflowError, struct.error, RecursionError) as problem:
        raise _wrong(f"the data of {where} cannot be read: {problem}", where) from None
    if flat.size != math.prod(shape):
        raise _wrong(f"{where} has {flat.size:,} values, where its shape {shape} has {math.prod(shape):,}", where)
    return flat.reshape(shape).astype(object if texts else DTYPES[tensor.datatype])


def _listed(data: Any, texts: bool) -> np.ndarray:
    """Values from JSON, nested or flat; null is a missing one."""
    if not isinstance(data, list):
        raise ValueError(f"it is {quoted(data)}, not a list")
    while data and isinstance(data[0], list):
        if not all(isinstance(part, list) for part in data):
            raise ValueError("lists and values stand side by side")
        data = list(itertools.chain.from_iterable(data))
    kinds = {str, type(None)} if texts else {int, float, bool, type(None)}
    for value in data:
        if type(value) not in kinds:
            raise ValueError(f"it holds {quoted(value)}, not a {'text' if texts else 'number'}")
    if texts:
        values = np.empty(len(data), object)
        values[:] = ["" if value is None else value for value in data]
        return values
    return np.asarray([math.nan if value is None else value for value in data], np.float64)


def _unpacked(raw: memoryview, datatype: str) -> np.ndarray:
    """Values in binary; before a text stands its number of bytes."""
    if datatype != "BYTES":
        return np.frombuffer(raw, DTYPES[datatype])
    texts, place = [], 0
    while place < len(raw):
        (size,) = struct.unpack_from("<I", raw, place)
        place += 4 + size
        if place > len(raw):
            raise ValueError("a text is longer than its bytes")
        texts.append(str(raw[place - size : place], "utf-8"))
    values = np.empty(len(texts), object)
    values[:] = texts
    return values


def written(asked: InferenceRequest, values: list[np.ndarray], name: str) -> tuple[bytes, int | None]:
    """The answer's body; and where some of it is binary, how many of its bytes are JSON."""
    outputs, packed = [], []
    for output, array in zip(asked.outputs, values, strict=True):
        about: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": list(array.shape)}
        if output.binary:
            packed.append(_packed(array, output.datatype))
            about["parameters"] = {"binary_data_size": len(packed[-1])}
        else:
            about["data"] = [
                None if type(value) is float and not math.isfinite(value) else value for value in array.ravel().tolist()
            ]
        outputs.append(about)
    answer = {"model_name": name, "model_version": VERSION, "outputs": outputs}
    answer |= {} if asked.id is None else {"id": asked.id}
    head = json.dumps(answer, separators=(",", ":")).encode()
    return b"".join([head, *packed]), len(head) if packed else None


def _packed(array: np.ndarray, datatype: str) -> bytes:
    if datatype != "BYTES":
        return array.astype(DTYPES[datatype]).tobytes()
    texts = [str(text).encode() for text in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def _objects(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    values = content.get(name)
    if not isinstance(values, list) or not values or not all(isinstance(one, dict) for one in values):
        raise _wrong(f"the body has no list of objects under {name!r}", name)
    return values


def _parameters(holder: dict[str, Any], where: str) -> dict[str, Any]:
    parameters = holder.get("parameters")
    if not (parameters is None or isinstance(parameters, dict)):
        raise _wrong(f"the parameters of {where} are {quoted(parameters)}, not an object", where)
    return parameters or {}


def _unknown(where: str, name: Any, known: Iterable[str]) -> Refused:
    return _wrong(f"{where} is called {quoted(name)}, not one of {', '.join(map(repr, known))}, once each", where)


def _wrong(error: str, where: str) -> Refused:
    return Refused(422, error, "GET /v2/models/NAME says what is read", where)
