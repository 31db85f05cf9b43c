"""Whether all that is reachable from the front door says what its arguments are and what it returns.

A function names every parameter under ``Args:`` and has ``Returns:`` unless it returns None. A class does the same for
its constructor, or has a string under each field.
"""

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import darkbayes

ROOMS = ("export", "model", "predict", "student", "teacher", "types")
"""Folders, of which the front door picks what is for users."""


def public_things() -> Iterator[tuple[str, Any]]:
    """What the stub lists, and what its namespaces have of their own, by the name that a user has for it."""
    for name in set(dir(darkbayes)).difference(ROOMS):
        thing = getattr(darkbayes, name)
        if not isinstance(thing, ModuleType):
            yield name, thing
            continue
        for inner, part in vars(thing).items():
            if inner[0] != "_" and str(getattr(part, "__module__", "")).startswith(thing.__name__):
                yield f"{name}.{inner}", part


def undocumented_fields(kind: type) -> list[str]:
    """The fields of a class, inherited ones included, that neither a string under them nor ``Args:`` speaks of."""
    missing = []
    for part in reversed(kind.__mro__):
        if not part.__module__.startswith("darkbayes"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(tree, ast.ClassDef)
        described = documented(inspect.getdoc(part) or "")
        for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or "ClassVar" in ast.unparse(node.annotation):
                continue
            name = ast.unparse(node.target)
            has_string = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if name[0] != "_" and not has_string and name not in described:
                missing.append(name)
    return missing


def documented(text: str) -> set[str]:
    """The parameters under ``Args:``; several may share a line, as ``x, y: the examples``."""
    match = re.search(r"^Args:\n((?:(?: +.*)?\n?)*)", text, re.MULTILINE)
    names = re.findall(r"^    ([\w*]+(?:, [\w*]+)*):", match[1] if match else "", re.MULTILINE)
    return {name.strip("* ") for line in names for name in line.split(",")}


def problems(thing: Any) -> Iterator[str]:
    """What is missing in the docstring of a function or a class."""
    text = inspect.getdoc(thing) or ""
    if not text:
        yield "no docstring"
    if inspect.isclass(thing):
        if issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False):
            return
        if dataclasses.is_dataclass(thing) or hasattr(thing, "_fields"):
            for name in undocumented_fields(thing):
                yield f"nothing about the field {name}"
            return
    elif not inspect.isfunction(thing):
        return
    signature = inspect.signature(thing)
    for name in signature.parameters.keys() - documented(text):
        yield f"nothing about {name} under Args:"
    if inspect.isfunction(thing) and signature.return_annotation is not None and "\nReturns:\n" not in text:
        yield "no Returns:"


def main() -> None:
    """Print what is missing, and fail if anything is."""
    missing = {
        f"{thing.__module__}.{thing.__qualname__}: {problem}"
        for _, thing in public_things()
        if hasattr(thing, "__qualname__")
        for problem in problems(thing)
    }
    if missing:
        sys.exit("\n".join(sorted(missing)))


if __name__ == "__main__":
    main()
