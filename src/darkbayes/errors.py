"""What can go wrong on the user's side, and the checks that find it before long work starts."""

import math
import sys
from numbers import Integral, Real
from typing import Any

import numpy as np


class InvalidInput(ValueError):
    """An argument that cannot be used; the message names it, its value and the remedy.

    Args:
        message: for people.
        option: the setting that is the remedy, where there is one: each front door has a name of its own for it.
        value: what to set it to.
    """

    def __init__(self, message: str, *, option: str | None = None, value: str | None = None):
        super().__init__(message)
        self.option, self.value = option, value


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


def _lies(value: Any, low: float, high: float, ends: tuple[float, ...] = ()) -> tuple[bool, Any]:
    """Whether a real number lies between two others or is one of `ends`; and the number, for the message.

    An array without axes counts as its number, one of a traced function as good: it is unknown until it runs, as with
    ``optax.inject_hyperparams``.
    """
    if getattr(value, "ndim", None) == 0:
        # Where there is no JAX, nothing is traced; this file does not load it.
        jax = sys.modules.get("jax")
        if jax is not None and isinstance(value, jax.core.Tracer):
            return True, value
        value = value.item()
    real = isinstance(value, Real) and not isinstance(value, bool)
    return real and (low < float(value) < high or float(value) in ends), value


def require_positive(name: str, value: Any, *, zero: bool = False) -> Any:
    """Refuse a number that is not finite and above zero; zero itself passes where `zero` says so. Returns it `plain`.

    >>> require_positive("step_size", 0.0)
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: step_size must be a positive number, not 0.0
    """
    fits, number = _lies(value, 0.0, math.inf, (0.0,) if zero else ())
    if not fits:
        kind = "zero or a positive number" if zero else "a positive number"
        raise InvalidInput(f"{name} must be {kind}, not {number!r}")
    return plain(value)


def require_share(name: str, value: Any, *, one: bool = False) -> Any:
    """Refuse what does not lie between 0 and 1; one itself passes where `one` says so. Returns it `plain`.

    >>> require_share("decay", 1.0)
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: decay must lie between 0 and 1, not 1.0
    """
    fits, number = _lies(value, 0.0, 1.0, (1.0,) if one else ())
    if not fits:
        raise InvalidInput(f"{name} must lie {'in (0, 1]' if one else 'between 0 and 1'}, not {number!r}")
    return plain(value)


def require_level(name: str, value: Any) -> Any:
    """Refuse what is no share, or so near to one that an interval of it has no ends; returns it as a plain number."""
    level = require_share(name, value)
    if 0.5 + level / 2 == 1:
        raise InvalidInput(f"{name} {level!r} is too near to 1: give one such as 0.999")
    return level


def require_count(name: str, value: Any, least: int = 1) -> int:
    """Refuse what is not a whole number of at least `least`; returns it as a plain `int`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def first_line(problem: Exception) -> str:
    """What an error of somebody else's says first, or its name where it says nothing."""
    return (str(problem).splitlines() or [type(problem).__name__])[0]
