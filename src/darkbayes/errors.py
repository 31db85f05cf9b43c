"""What can go wrong on the user's side, and the checks that find it before long work starts."""

import math
from numbers import Integral, Real
from typing import Any

import jax
import numpy as np


class InvalidInput(ValueError):
    """An argument that cannot be used; the message names it, its value and the remedy."""


class Divergence(RuntimeError):
    """The teacher or the student left the finite numbers; the message says where and what to change."""


class RunError(RuntimeError):
    """A run's folder that cannot be used as asked."""


class WorkerLost(RunError):
    """Another process of a distributed run is gone; the message says how to go on."""


class DataError(RuntimeError):
    """A data set that cannot be had; the message says what was tried, why it failed and what to do."""


def plain(value: Any) -> Any:
    """A numpy scalar as a plain number, which compiled functions take as a constant; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def require_positive(name: str, value: Any) -> None:
    """Refuse a number that is not finite and above zero.

    >>> require_positive("step_size", 0.0)
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: step_size must be a positive number, not 0.0
    """
    number = value
    if isinstance(value, jax.Array | np.ndarray) and value.ndim == 0:
        try:
            number = value.item()
        except jax.errors.ConcretizationTypeError:
            return  # Unknown until it runs, as with optax.inject_hyperparams.
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 < float(number) < math.inf:
        raise InvalidInput(f"{name} must be a positive number, not {number!r}")


def require_count(name: str, value: Any, least: int = 1) -> int:
    """Refuse what is not a whole number of at least `least`; returns it as a plain `int`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)
