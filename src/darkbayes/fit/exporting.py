"""A finished fit's student as a file for elsewhere."""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.files import read_json, write_bytes
from darkbayes.fit.automatic import make_student
from darkbayes.fit.options import Options
from darkbayes.metrics import Scores
from darkbayes.runs import load_student
from darkbayes.shipped import MODEL, Shipped
from darkbayes.student import Student
from darkbayes.tables.images import read_image_batches
from darkbayes.tables.schema import TableSchema
from darkbayes.tables.stored import read_schema
from darkbayes.tables.streaming import read_batches
from darkbayes.types import PyTree

SUFFIXES = {"onnx": ".onnx", "torch": ".pt", "safetensors": ".safetensors"}
"""The kinds of files, and how their names end."""


def load_folder(folder: Path) -> tuple[Student, PyTree, Any]:
    """The student of a finished fit; of one on a backbone, the part after it.

    Args:
        folder: the run's folder.

    Returns:
        The student, its weights and its schema.
    """
    schema, facts = read_schema(folder / "schema.json"), read_json(folder / "fit.json", "options")
    stored = facts["options"]
    # Before there was a choice of heads there was one, which is now the last; and students had one activation.
    options = Options(
        student_hidden=tuple(stored["student_hidden"]),
        student_activation=stored.get("student_activation", "relu"),
        head=stored.get("head") or schema.target.heads[-1],
        network=stored.get("network", "mlp"),
    )
    student = make_student(schema.target, options, updates=1)
    shape = (facts["backbone"]["features"],) if "backbone" in facts else schema.shape
    params = load_student(folder / "student.safetensors", student, np.zeros((1, *shape), np.float32))
    return student, params, schema


def export_folder(
    folder: Path, kind: str, out: Path | None = None, *, int8: bool = False, on: Path | None = None
) -> list[str]:
    """Write the student of a finished fit as a file.

    Args:
        folder: the run's folder.
        kind: one of `SUFFIXES`.
        out: the file; ``student`` in the folder by default.
        int8: whether ONNX has its weights in eight bits.
        on: a table with the target, or images by class, to measure on what that loses; by default the rows held out.

    Returns:
        What was done, in words.
    """
    if kind not in SUFFIXES:
        raise InvalidInput(f"kind must be one of {', '.join(SUFFIXES)}, not {kind!r}")
    student, params, schema = load_folder(folder)
    path = out or folder / f"student{'-int8' if int8 else ''}{SUFFIXES[kind]}"
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder: name a file")
    if path.suffix.lower() != SUFFIXES[kind]:
        raise InvalidInput(f"{path} does not end in {SUFFIXES[kind]}: name a file that does")
    whole = "backbone" in read_json(folder / "fit.json")
    after = " of what comes after the backbone" if whole else ""
    if kind == "torch":
        import torch

        from darkbayes.export import to_state_dict

        buffer = io.BytesIO()
        torch.save(to_state_dict(student.network, params), buffer)
        write_bytes(path, buffer.getvalue())
        return [f"{path}: a state dict{after}, for torch.load(path, weights_only=True)"]
    if kind == "safetensors":
        if path != folder / "student.safetensors":
            write_bytes(path, (folder / "student.safetensors").read_bytes())
        return [f"{path}: the weights{after} by name"]
    from darkbayes.export import to_onnx

    # One on a backbone is in the folder as a whole.
    content = (folder / MODEL).read_bytes() if whole else to_onnx(student, params, schema)
    if int8:
        return _export_int8(folder, content, schema, path, on)
    write_bytes(path, content)
    return [f"{path}: {len(content):,} bytes"]


def _export_int8(folder: Path, content: bytes, schema: Any, path: Path, on: Path | None) -> list[str]:
    from darkbayes.export import quantise

    small = quantise(content)
    if on is None:
        loss = read_json(folder / "fit.json").get("int8_loss")
    else:
        loss = int8_loss(content, small, _labelled(on, schema))
    write_bytes(path, small)
    size = f"{path}: {len(small):,} bytes instead of {len(content):,}"
    if schema.target.guarantee is not None:
        size += "; its guarantee was calibrated with weights in full precision; evaluate shows what is left of it"
    if loss is None:
        return [size, "what this loses was not measured as it was fitted: give labelled rows to measure it on"]
    where = "the rows held out" if on is None else on
    return [size, f"log likelihood a row on {where}: {'lower' if loss >= 0 else 'higher'} by {abs(loss):.2g} nats"]


def int8_loss(content: bytes, small: bytes, batches: Iterable[tuple[Any, np.ndarray]]) -> float:
    """The mean log likelihood a row, in nats, that weights in eight bits lose, on rows and their truths."""
    both = [Shipped(MODEL, content=model) for model in (content, small)]
    scores = [Scores(), Scores()]
    for inputs, truth in batches:
        for shipped, collected in zip(both, scores, strict=True):
            collected.add(shipped.predict(inputs), truth)
    whole, quantised = (collected.result()["log_likelihood"].value for collected in scores)
    return whole - quantised


def _labelled(source: Path, schema: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """The rows of a file with their truths, some at a time."""
    read: Any = read_batches if isinstance(schema, TableSchema) else read_image_batches
    for batch in read(source, schema, target=True):
        yield batch.inputs, schema.target.truth(batch.target)
