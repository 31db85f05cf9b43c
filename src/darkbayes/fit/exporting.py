"""A finished fit's student as a file for elsewhere."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.files import read_json, write_bytes
from darkbayes.fit.automatic import Options, make_student
from darkbayes.runs import load_student
from darkbayes.student import Student
from darkbayes.tables import ClassTarget, schema_from_dict
from darkbayes.types import PyTree

SUFFIXES = {"onnx": ".onnx", "torch": ".pt", "safetensors": ".safetensors"}
"""The kinds of files, and how their names end."""


def load_folder(folder: Path) -> tuple[Student, PyTree, Any]:
    """The student of a finished fit, its weights and its schema."""
    schema, facts = schema_from_dict(read_json(folder / "schema.json")), read_json(folder / "fit.json")
    stored = facts["options"]
    options = Options(tuple(stored["hidden"]), tuple(stored["student_hidden"]), stored["chains"], None)
    classes = len(schema.target.classes) if isinstance(schema.target, ClassTarget) else None
    student = make_student(1 + len(schema.shape), classes, options, updates=1)
    params = load_student(folder / "student.safetensors", student, np.zeros((1, *schema.shape), np.float32))
    return student, params, schema


def export_folder(folder: Path, kind: str, out: Path | None = None, *, int8: bool = False) -> list[str]:
    """Write the student of a finished fit; returns what was done, in words."""
    if kind not in SUFFIXES:
        raise InvalidInput(f"kind must be one of {', '.join(SUFFIXES)}, not {kind!r}")
    student, params, schema = load_folder(folder)
    path = out or folder / f"student{'-int8' if int8 else ''}{SUFFIXES[kind]}"
    if path.is_dir():
        raise InvalidInput(f"--out {path} is a folder: name a file")
    if kind == "torch":
        from darkbayes.export import to_state_dict

        write_bytes(path, _torch_bytes(to_state_dict(student.network, params)))
        return [f"{path}: a state dict, for torch.load(path, weights_only=True)"]
    if kind == "safetensors":
        if path != folder / "student.safetensors":
            write_bytes(path, (folder / "student.safetensors").read_bytes())
        return [f"{path}: the weights by name"]
    from darkbayes.export import to_onnx

    content = to_onnx(student, params, schema)
    if int8:
        from darkbayes.export import quantise

        content = quantise(content)
    write_bytes(path, content)
    return [f"{path}: {len(content):,} bytes"]


def _torch_bytes(state: dict[str, Any]) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
