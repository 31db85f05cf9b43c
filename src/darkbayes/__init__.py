"""Distil a Bayesian neural network into one ordinary network while it is being sampled."""

import importlib
from typing import TYPE_CHECKING, Any

from darkbayes.version import __version__ as __version__

if TYPE_CHECKING:
    from darkbayes.api import *  # noqa: F403
    from darkbayes.estimators import DistilledClassifier as DistilledClassifier
    from darkbayes.estimators import DistilledRegressor as DistilledRegressor

_ESTIMATORS = ("DistilledClassifier", "DistilledRegressor")
"""Those of `darkbayes.estimators`, which needs scikit-learn."""


def __getattr__(name: str) -> Any:
    """The public names, found when first asked for: a service that has no use for JAX has none, nor scikit-learn."""
    if name.startswith("_"):
        raise AttributeError(f"module 'darkbayes' has no attribute {name!r}")
    module = "darkbayes.estimators" if name in _ESTIMATORS else "darkbayes.api"
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("darkbayes.api").__all__, *_ESTIMATORS})
