"""Distil a Bayesian neural network into one ordinary network while it is being sampled.

The public names are listed in `__init__.pyi`. They are imported when first asked for: a service that has no use for
JAX or scikit-learn loads neither.
"""

import functools
import importlib.util
from typing import Any

from darkbayes.version import __version__ as __version__


@functools.cache
def _homes() -> dict[str, str]:
    """The module that each public name is imported from."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_name("__init__.pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    home = _homes().get(name, __name__)
    if home != __name__:
        thing = getattr(importlib.import_module(home), name)
    elif name[0] != "_" and importlib.util.find_spec(f"{__name__}.{name}"):
        thing = importlib.import_module(f"{__name__}.{name}")
    else:
        from difflib import get_close_matches

        near = [f": did you mean {match!r}?" for match in get_close_matches(name, _homes(), 1)]
        raise AttributeError("".join([f"module {__name__!r} has no attribute {name!r}", *near]), name=name)
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return sorted(_homes())
