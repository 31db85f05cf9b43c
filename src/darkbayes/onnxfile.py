"""ONNX files as bytes: sealed when they are written, and looked through before anything runs them.

A file is a protobuf message, to which a field may be appended. The seal is such a field, the file's last property: its
name is `SEAL`, its value the sha256 of all bytes before it, in the letters of base64. It finds damage. It is no
signature: who can write a file can seal it. So what is in the file is checked as well, without onnx and before
onnxruntime sees it: constants are stored inside, whole and finite, and nodes are of few kinds, none of which runs code,
holds another graph or reads a file.
"""

import base64
import hashlib
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from darkbayes.errors import InvalidInput, first_line

SCHEMA, VERSION, SEAL = "darkbayes.schema", "darkbayes.version", "darkbayes.sha256"
"""What a file says of itself, among its properties."""
ENCODED = "x"  # The value that a network reads, where a file names it.
UNSEALED = "0.1."  # What versions begin with that wrote no seal.
OPSETS, IR_VERSIONS = range(17, 22), range(8, 11)
LARGEST = 2**31 - 1  # Bytes that protobuf allows a message.
LARGEST_SETTING = 4096  # Of whole numbers among a node's settings: a padding of a billion would need all memory.
MOST_AXES = 8
ELEMENTS = {1: np.float32, 11: np.float64, 7: np.int64, 6: np.int32, 3: np.int8, 9: np.bool_, 8: None}
"""The types that values may have, by their numbers in ONNX; None for strings."""
OPERATORS = """
    Abs Add And AveragePool BatchNormalization Cast Ceil Celu Clip Concat Conv Cos DequantizeLinear Div Dropout
    Einsum Elu Equal Erf Exp Flatten Floor Gather Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual
    HardSigmoid HardSwish Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Less
    LessOrEqual Log LogSoftmax LpNormalization MatMul Max MaxPool Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal
    ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Round Selu Shape Sigmoid Sign Sin Slice Softmax
    Softplus Softsign Split Sqrt Squeeze Sub Sum Tanh ThresholdedRelu Transpose Unsqueeze Where Xor
"""
"""What a student may be made of, and the network whose features it reads: nothing that makes much of a small file."""
NOT_ONNX = "it is damaged or not an ONNX file"
NUMBER = f"{NOT_ONNX}: it has a number where more should be"


class Port(NamedTuple):
    """An input or an output of a graph."""

    dtype: Any
    """None for strings."""
    shape: tuple[int | None, ...]
    """None for a length that is free."""


class Described(NamedTuple):
    """What an ONNX file says of itself."""

    properties: dict[str, str]
    inputs: dict[str, Port]
    outputs: dict[str, Port]


# The wire format of protobuf (https://protobuf.dev/programming-guides/encoding).


class Message(dict[int, list[Any]]):
    """The values of each field of a message: integers, or bytes, which may be a message again; none of another."""

    def __init__(self, content: Any):
        if not isinstance(content, bytes):
            raise InvalidInput(NUMBER)
        place = 0
        while place < len(content):
            tag, place = _varint(content, place)
            number, kind = tag >> 3, tag & 7
            if kind == 0:
                value, place = _varint(content, place)
                self.setdefault(number, []).append(value - (1 << 64) * (value >> 63))
                continue
            size = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                size, place = _varint(content, place)
            if size is None or number == 0 or place + size > len(content):
                raise InvalidInput(f"{NOT_ONNX}: what it holds does not fit together")
            self.setdefault(number, []).append(content[place : place + size])
            place += size

    def __missing__(self, number: int) -> list[Any]:
        return []

    def inner(self, number: int) -> Iterator["Message"]:
        """The messages of a field."""
        return map(Message, self[number])

    def integers(self, number: int) -> list[int]:
        """A field of integers, each by itself or packed."""
        values: list[int] = []
        for value in self[number]:
            if isinstance(value, int):
                values.append(value)
                continue
            place = 0
            while place < len(value):
                one, place = _varint(value, place)
                values.append(one - (1 << 64) * (one >> 63))
        return values

    def text(self, number: int) -> str:
        """The last text of a field, if all of them are texts."""
        try:
            return [value.decode() for value in self[number] or [b""]][-1]
        except (AttributeError, UnicodeDecodeError):
            raise InvalidInput(f"{NOT_ONNX}: a name in it is not text") from None


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(content[place : place + 10]):
        value |= (byte & 127) << 7 * count
        if byte < 128 and value < 1 << 64:
            return value, place + count + 1
    raise InvalidInput(f"{NOT_ONNX}: it ends within a number")


def _field(number: int, value: int | bytes) -> bytes:
    """A field as it is written."""
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    return _number(number << 3 | 2) + _number(len(value)) + value


def _number(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _number(value >> 7)


def seal(content: bytes) -> bytes:
    """An ONNX file with its hash as its last property, in place of an earlier one.

    >>> content = seal(b"")
    >>> len(content), seal(content) == content
    (65, True)
    """
    content = _unsealed(content)[0]
    return content + PREFIX + _hash(content)


def _hash(content: bytes) -> bytes:
    return base64.b64encode(hashlib.sha256(content).digest()).rstrip(b"=")


LENGTH = len(_hash(b""))
PREFIX = bytes([0x72, 4 + len(SEAL) + LENGTH, 0x0A, len(SEAL)]) + SEAL.encode() + bytes([0x12, LENGTH])
"""The bytes before the hash: a property (field 14) of its length, the key (1) and the length of the value (2)."""


def _unsealed(content: bytes) -> tuple[bytes, bytes | None]:
    """The bytes under the seal, and the hash that it names."""
    place = len(content) - len(PREFIX) - LENGTH
    if place < 0 or not content.startswith(PREFIX, place):
        return content, None
    return content[:place], content[-LENGTH:]


def describe(content: bytes) -> Described:
    """What an ONNX file says of itself, if it is whole and holds nothing but a student's graph."""
    if len(content) > LARGEST:
        raise InvalidInput(f"it has {len(content):,} bytes, and no ONNX file has more than {LARGEST:,}")
    body, named = _unsealed(content)
    if named is not None and named != _hash(body):
        raise InvalidInput("it is damaged: its contents do not match its checksum")
    model = Message(content)
    properties = _properties(model, sealed=named is not None)
    for number, what in ((20, "training"), (25, "functions of its own")):
        if number in model:
            raise InvalidInput(f"it holds {what}, which no student has")
    _check_numbers("file format", model[1], IR_VERSIONS)
    for imported in model.inner(8):
        if domain := imported.text(1):
            raise InvalidInput(f"it needs the operators of {domain!r}, which no student does")
        _check_numbers("opset", imported[2], OPSETS)
    if len(model[7]) != 1 or not model[8]:
        raise InvalidInput("it holds no graph, or does not say of which opset it is")
    graph = Message(model[7][0])
    if 15 in graph:
        raise InvalidInput("it holds sparse constants, which no student has")
    for node in graph.inner(1):
        _check_node(node)
    for constant in graph.inner(5):
        _check_constant(constant)
    return Described(properties, *(dict(map(_port, graph.inner(number))) for number in (11, 12)))


def from_encoded(content: bytes, width: int) -> bytes | None:
    """The part of a student's graph that begins at `ENCODED`: the network, without what makes its inputs of columns.

    Of a file that `describe` has looked through, it is an ONNX file whose one input, of this width, that value is; None
    if the file does not name it, or it is not all that is read.
    """
    model = Message(content)
    graph, kept, lost = Message(model[7][0]), [], {ENCODED}
    # From the end on, for what makes a value comes before it.
    for node in reversed(graph[1]):
        reads, makes = ({name.decode() for name in Message(node)[number]} for number in (1, 2))
        if makes & lost:
            lost |= reads
        else:
            kept.append((node, reads))
    used = set().union(*(reads for _, reads in kept))
    constants = {Message(constant).text(8): constant for constant in graph[5]}
    read = {port.text(1) for port in graph.inner(11)}
    if len(kept) == len(graph[1]) or used & (read | lost - {ENCODED} - set(constants)):
        return None
    sides = _field(1, _field(2, b"batch")) + _field(1, _field(1, width))
    port = _field(1, ENCODED.encode()) + _field(2, _field(1, _field(1, 1) + _field(2, sides)))
    parts = [_field(1, node) for node, _ in reversed(kept)] + [_field(2, b"student"), _field(11, port)]
    parts += [_field(5, constant) for name, constant in constants.items() if name in used]
    parts += [_field(12, output) for output in graph[12]]
    head = [_field(number, value) for number in (1, 8) for value in model[number]]
    return b"".join([*head, _field(7, b"".join(parts))])


def start_session(content: bytes, refusal: str, threads: int | None = None) -> Any:
    """What runs a file by onnxruntime, or an error that begins with `refusal`; on all cores unless `threads` says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4  # What fails is told by the exception.
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime's own errors share no other base.
        raise InvalidInput(f"{refusal} ({first_line(problem)})") from None


def _check_numbers(what: str, given: list[Any], allowed: range) -> None:
    for number in given:
        if number not in allowed:
            raise InvalidInput(f"its {what} is {number}: students have {allowed[0]} to {allowed[-1]}")


def _check_node(node: Message) -> None:
    kind, domain, *_ = (node.text(number) for number in (4, 7, 1, 2, 3))  # Names of values are texts as well.
    if domain or kind not in OPERATORS.split():
        raise InvalidInput(f"it holds the operator {f'{domain}.' * bool(domain)}{kind}, which no student is made of")
    for attribute in node.inner(5):
        if not attribute.text(1) or set(attribute) - {1, 2, 3, 4, 7, 8, 9, 13, 20}:
            raise InvalidInput(f"its operator {kind} holds a graph or a constant of its own, which no student has")
        for number in [*attribute.integers(3), *attribute.integers(8)]:
            if abs(number) > LARGEST_SETTING:
                raise InvalidInput(f"its operator {kind} has the setting {number}: none is beyond {LARGEST_SETTING:,}")


def _check_constant(constant: Message) -> None:
    """Refuse what is not stored in the file itself, in as many bytes as its shape needs, as finite numbers."""
    name, kind = constant.text(8), (constant[2] or [0])[0]
    if 13 in constant or any(constant[14]):
        raise InvalidInput(f"its constant {name!r} lies in another file: a student is one file")
    if kind not in ELEMENTS:
        raise InvalidInput(f"its constant {name!r} is of the type {kind}, which no student has")
    if set(constant) - {1, 2, 6, 8, 9, 12, 14}:
        raise InvalidInput(f"its constant {name!r} is stored in a way that no student uses")
    shape, dtype = constant.integers(1), ELEMENTS[kind]
    if len(shape) > MOST_AXES or min(shape, default=0) < 0:
        raise InvalidInput(f"its constant {name!r} has the invalid shape {shape}")
    stored = (constant[9] or [b""])[-1]
    if not isinstance(stored, bytes):
        raise InvalidInput(NUMBER)
    size = len(constant[6]) if dtype is None else len(stored)
    if size != math.prod(shape) * (1 if dtype is None else np.dtype(dtype).itemsize):
        raise InvalidInput(f"its constant {name!r} of shape {shape} is not stored in full")
    if dtype in (np.float32, np.float64) and not np.isfinite(np.frombuffer(stored, dtype)).all():
        raise InvalidInput(f"its constant {name!r} holds numbers that are not finite")


def _port(value: Message) -> tuple[str, Port]:
    def only(message: Message, number: int) -> Message:
        if len(message[number]) != 1 or not isinstance(message[number][0], bytes):
            raise InvalidInput("an input or an output has no type and shape, which those of a student have")
        return Message(message[number][0])

    tensor = only(only(value, 2), 1)
    kind = (tensor[1] or [0])[0]
    if kind not in ELEMENTS:
        raise InvalidInput(f"its value {value.text(1)!r} is of the type {kind}, which no student has")
    sides = [(side[1] or [None])[0] for side in only(tensor, 2).inner(1)]
    return value.text(1), Port(ELEMENTS[kind], tuple(sides))


def _properties(model: Message, *, sealed: bool) -> dict[str, str]:
    pairs = [(pair.text(1), pair.text(2)) for pair in model.inner(14)]
    properties = dict(pairs)
    if len(properties) < len(pairs):
        raise InvalidInput("its metadata has a key twice")
    version = properties.get(VERSION)
    if version is None or not re.match(r"\d+\.\d+", version):
        raise InvalidInput("it does not say which version of darkbayes wrote it, and is none that `export` wrote")
    if not sealed and not version.startswith(UNSEALED):
        ends = f"it has no hash, which darkbayes {version[:20]} ends files with"
        raise InvalidInput(f"it is damaged or was changed: {ends}")
    return properties
