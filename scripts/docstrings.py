"""Whether all that is documented, or reachable from the front door, says what its arguments are and what it returns.

A function names every parameter under ``Args:`` and has ``Returns:`` unless it returns None. A class does the same for
its constructor, or has a string under each field, or names it in its docstring; those whose methods users call, for
each of these that takes something.
"""

import ast
import dataclasses
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import darkbayes

API = Path(__file__).parent.parent / "docs" / "api"
CALLED = {
    "DistilledClassifier",
    "DistilledRegressor",
    "Fitted",
    "Run",
    "Scores",
    "Shipped",
    "TableWriter",
}
"""Classes whose methods users call; those of others are called here, or written by whoever adds one of their kind."""
MADE = {"Batches", "ImageBatches"}
"""Classes that functions make, which say what their arguments are."""


def public_things() -> Iterator[Any]:
    """What the pages of the API name, and what the front door and its namespaces show."""
    for page in sorted(API.glob("*.md")):
        yield from map(pkgutil.resolve_name, re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE))
    for thing in (getattr(darkbayes, name) for name in dir(darkbayes)):
        yield from (getattr(thing, name) for name in dir(thing)) if isinstance(thing, ModuleType) else (thing,)


def methods(kind: type) -> Iterator[Any]:
    """The public methods of a class that take something."""
    for name in dir(kind):
        method = inspect.getattr_static(kind, name)
        function = getattr(method, "__func__", method)
        ours = inspect.isfunction(function) and function.__module__.startswith("darkbayes")
        if ours and name[0] != "_" and len(inspect.signature(function).parameters) > 1:
            yield function


def undocumented_fields(kind: type) -> list[str]:
    """The fields of a class, inherited ones included, that neither a string under them nor ``Args:`` speaks of."""
    missing = []
    for part in reversed(kind.__mro__):
        if not part.__module__.startswith("darkbayes"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(tree, ast.ClassDef)
        text = inspect.getdoc(part) or ""
        described = documented(text) | set(re.findall(r"`(\w+)", text))
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
        if thing.__name__ in CALLED:
            for method in methods(thing):
                yield from (f"{method.__name__}: {problem}" for problem in problems(method))
        if issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False) or thing.__name__ in MADE:
            return
        if dataclasses.is_dataclass(thing) or hasattr(thing, "_fields"):
            for name in undocumented_fields(thing):
                yield f"nothing about the field {name}"
            return
    elif not inspect.isfunction(thing):
        return
    signature = inspect.signature(thing)
    for name in signature.parameters.keys() - documented(text) - {"self", "cls"}:
        yield f"nothing about {name} under Args:"
    if inspect.isfunction(thing) and signature.return_annotation is not None and "\nReturns:\n" not in text:
        yield "no Returns:"


def main() -> None:
    """Print what is missing, and fail if anything is."""
    missing = {
        f"{thing.__module__}.{thing.__qualname__}: {problem}"
        for thing in public_things()
        if hasattr(thing, "__qualname__")
        for problem in problems(thing)
    }
    if missing:
        sys.exit("\n".join(sorted(missing)))


if __name__ == "__main__":
    main()
