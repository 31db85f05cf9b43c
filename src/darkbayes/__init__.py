"""Distil a Bayesian neural network into one ordinary network while it is being sampled."""

import importlib
from typing import TYPE_CHECKING, Any

from darkbayes.version import __version__ as __version__

if TYPE_CHECKING:
    from darkbayes.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """The public names of `darkbayes.api`, found when first asked for: a service that has no use for JAX has none."""
    if name.startswith("_"):
        raise AttributeError(f"module 'darkbayes' has no attribute {name!r}")
    return getattr(importlib.import_module("darkbayes.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("darkbayes.api").__all__})
