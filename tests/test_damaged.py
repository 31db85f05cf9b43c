"""Exported files that were damaged on their way, or made to do harm: each is refused in a line that says why."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import shipped_models
from darkbayes import cli
from darkbayes.errors import RunError
from darkbayes.onnxfile import PREFIX, SCHEMA, VERSION, seal
from darkbayes.shipped import Shipped

WHOLE = "houses"


def damaged(number: int) -> bytes:
    """The file with bytes changed, lost, repeated or moved, a way for each number."""
    content, rng = bytearray(shipped_models.content(WHOLE)), np.random.default_rng(number)
    start, stop = sorted(rng.integers(0, len(content), 2).tolist())
    match number % 6:
        case 0:
            content[start] ^= 1 << int(rng.integers(8))
        case 1:
            del content[start:]
        case 2:
            del content[start : start + 1 + number]
        case 3:
            content[start:stop] = bytes(stop - start)
        case 4:
            content[start:start] = content[start : start + 64]
        case _:
            # Among the weights, where nothing but a hash could tell.
            place = content.rindex(b"1.weight") + 100 + 4 * number
            content[place : place + 4], content[place + 4 : place + 8] = content[place + 4 : place + 8], b"\0\0\0\0"
    return bytes(content)


@pytest.mark.parametrize("number", range(36))
def test_a_damaged_file_is_refused(number, tmp_path):
    (tmp_path / "student.onnx").write_bytes(damaged(number))
    with pytest.raises(RunError, match=r"student\.onnx is refused: ") as refusal:
        Shipped(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("lost", [1, 43, 43 + len(PREFIX), 200])
def test_a_file_whose_end_is_lost_is_refused(lost):
    with pytest.raises(RunError, match="damaged"):
        Shipped("student.onnx", content=shipped_models.content(WHOLE)[:-lost])


def properties(model: Any, **changed: str | None) -> None:
    """Say something else of a model."""
    known = {pair.key: pair.value for pair in model.metadata_props} | changed
    del model.metadata_props[:]
    helper.set_model_props(model, {key: value for key, value in known.items() if value is not None})


def schema(change: Callable[[dict[str, Any]], Any]) -> Callable[[Any], None]:
    """Change the schema."""

    def craft(model: Any) -> None:
        stored = json.loads(next(pair.value for pair in model.metadata_props if pair.key == SCHEMA))
        change(stored)
        properties(model, **{SCHEMA: json.dumps(stored)})

    return craft


def constant(name: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Change a constant."""
    return lambda model: change(next(one for one in model.graph.initializer if one.name == name))


def outside(tensor: Any) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "/etc/passwd"), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)


def huge(tensor: Any) -> None:
    tensor.dims[:] = [1 << 40, 1 << 20]


def not_a_number(tensor: Any) -> None:
    values = numpy_helper.to_array(tensor).copy()
    values.flat[0] = np.nan
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def node(kind: str, domain: str = "", **attributes: Any) -> Callable[[Any], None]:
    def craft(model: Any) -> None:
        model.graph.node.append(helper.make_node(kind, ["mean"], ["more"], domain=domain, **attributes))

    return craft


def with_graph(model: Any) -> None:
    inner = helper.make_graph([], "inner", [], [])
    model.graph.node[0].attribute.append(helper.make_attribute("body", inner))


def other_weights(model: Any) -> None:
    """Of another shape, so that what they compute is not what the file says."""
    tensor = next(one for one in model.graph.initializer if one.name == "1.weight")
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[:, 1:].copy(), tensor.name))


def loose_output(model: Any) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 7


def a_function(model: Any) -> None:
    made = helper.make_function("own", "f", ["a"], ["b"], [], [helper.make_opsetid("", 20)])
    model.functions.append(made)


def first(model: Any, **changes: Any) -> Any:
    return setattr(model.graph.input[0], *next(iter(changes.items())))


def element(model: Any, kind: int) -> None:
    model.graph.input[0].type.tensor_type.elem_type = kind


def output_of(kind: Any) -> Any:
    def craft(model: Any) -> None:
        model.graph.output[1].type.tensor_type.elem_type = kind

    return craft


def missing_shape(model: Any) -> None:
    model.graph.output[1].type.tensor_type.ClearField("shape")


def endless(model: Any) -> None:
    """A node that reads what it writes."""
    model.graph.node[0].input[0] = model.graph.node[-1].output[0]


CRAFTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no schema": (lambda model: properties(model, **{SCHEMA: None}), "does not say what its inputs mean"),
    "no version": (lambda model: properties(model, **{VERSION: None}), "which version of darkbayes wrote it"),
    "a version in words": (lambda model: properties(model, **{VERSION: "newest"}), "which version of darkbayes"),
    "a schema cut short": (lambda model: properties(model, **{SCHEMA: "{"}), "schema cannot be read"),
    "a deep schema": (lambda model: properties(model, **{SCHEMA: "[" * 10**5}), "schema cannot be read"),
    "a schema of a car": (schema(lambda stored: stored.update({"is": "car"})), "unknown kind"),
    "a schema that is a column": (schema(lambda stored: stored.update({"is": "category"})), "its schema"),
    "a later schema": (schema(lambda stored: stored.update(format=3)), "format 3: use a version that knows it"),
    "an evil transform": (schema(lambda stored: stored["target"].update(transform="evil")), "must be identity or log"),
    "no target": (schema(lambda stored: stored.update(target="price")), "nothing of a target"),
    "a scale of zero": (schema(lambda stored: stored["target"].update(scale=0.0)), r"target\.scale is 0\.0"),
    "a reach of nothing": (schema(lambda stored: stored.update(reach=-1.0)), r"schema\.reach is -1\.0, and no reach"),
    "a range that ends before it begins": (
        schema(lambda stored: stored["target"].update(low=9e9)),
        r"schema\.target\.high is .*, below schema\.target\.low, 9000000000\.0",
    ),
    "a guarantee below nothing": (
        schema(
            lambda stored: stored["target"].update(
                guarantee={"is": "guarantee", "level": 0.9, "rows": 9, "bounds": [-5.0]}
            )
        ),
        r"guarantee\.bounds are \(-5\.0,\), and no bound is below zero",
    ),
    "a centre that is no number": (
        schema(lambda stored: stored["target"].update(center=float("nan"))),
        r"schema\.target\.center is nan",
    ),
    "an endless number": (schema(lambda stored: stored["target"].update(low=10**400)), r"target\.low is 1000"),
    "a name that is a list": (schema(lambda stored: stored["columns"][0].update(name=[1])), r"columns\[0\]\.name"),
    "columns twice": (schema(lambda stored: stored["columns"].append(stored["columns"][0])), "two of one name"),
    "fewer columns": (schema(lambda stored: stored["columns"].pop(0)), "it reads numbers float64 .* its schema names"),
    "the schema of another": (
        lambda model: properties(model, **{SCHEMA: model_of("plane").metadata_props[0].value}),
        "its schema names",
    ),
    "another opset": (lambda model: setattr(model.opset_import[0], "version", 9), "opset is 9"),
    "another format": (lambda model: setattr(model, "ir_version", 99), "file format is 99"),
    "another's operators": (
        lambda model: model.opset_import.append(helper.make_opsetid("com.microsoft", 1)),
        "operators of 'com.microsoft'",
    ),
    "a custom operator": (node("Shell", "evil"), r"evil\.Shell, which no student is made of"),
    "a loop": (node("Loop"), "operator Loop"),
    "a bomb": (node("ConstantOfShape"), "operator ConstantOfShape"),
    "a padding of all memory": (node("MaxPool", kernel_shape=[1], pads=[1 << 40, 0]), "setting 1099511627776"),
    "a graph in a node": (with_graph, "a graph or a constant of its own"),
    "a function": (a_function, "functions of its own"),
    "weights elsewhere": (constant("1.weight", outside), "lies in another file"),
    "weights without end": (constant("1.weight", huge), "not stored in full"),
    "weights that are no numbers": (constant("3.weight", not_a_number), "numbers that are not finite"),
    "weights of another shape": (other_weights, "can run here|cannot predict"),
    "an input of another name": (lambda model: first(model, name="figures"), "it reads figures"),
    "an input of another type": (lambda model: element(model, TensorProto.FLOAT), "it reads numbers float32"),
    "an input of no type": (lambda model: element(model, TensorProto.BFLOAT16), "of the type 16"),
    "an output too few": (lambda model: model.graph.output.pop(0), "does not compute mean"),
    "an output of strings": (output_of(TensorProto.STRING), "not a number for each row"),
    "an output of truth values": (output_of(TensorProto.BOOL), "not a number for each row"),
    "an output without a shape": (missing_shape, "no type and shape"),
    "an output of seven rows": (loose_output, "not a number for each row"),
    "a circle": (endless, "not an ONNX model that can run here"),
}


def model_of(name: str) -> Any:
    """A model of the tests without its seal."""
    content = shipped_models.content(name)
    return onnx.load_from_string(content[: content.rindex(PREFIX)])


@pytest.mark.parametrize(("craft", "match"), CRAFTED.values(), ids=CRAFTED)
def test_a_crafted_file_is_refused_although_its_hash_is_right(craft, match, tmp_path):
    model = model_of(WHOLE)
    craft(model)
    (tmp_path / "student.onnx").write_bytes(seal(model.SerializeToString()))
    with pytest.raises(RunError, match=match) as refusal:
        Shipped(tmp_path)
    assert len(str(refusal.value).splitlines()) == 1


def test_what_was_crafted_is_accepted_as_it_was():
    """Or the test above would refuse everything."""
    Shipped("student.onnx", content=seal(model_of(WHOLE).SerializeToString()))


@pytest.mark.parametrize(
    "content", [b"", b"no model", b"\x3a\x05", b"\x38\x01", b"\x72\x02\x08\x01", b"\xff" * 20, bytes(50)]
)
def test_what_is_no_model_is_refused(content):
    with pytest.raises(RunError, match="is refused"):
        Shipped("notes.onnx", content=content)


@pytest.mark.parametrize("command", ["predict", "evaluate", "suggest", "serve"])
def test_every_command_refuses_in_a_line(command, tmp_path, capsys):
    (tmp_path / "student.onnx").write_bytes(damaged(0))
    (tmp_path / "rows.csv").write_text("rooms\n1\n")
    rows = [] if command == "serve" else [str(tmp_path / "rows.csv")]
    with pytest.raises(SystemExit) as stop:
        cli.main([command, str(tmp_path), *rows])
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
