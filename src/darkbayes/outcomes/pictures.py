"""Pictures as data: what there is to see, in arrays and words. Whoever draws them knows nothing of outcomes.

Methods are named as `METHODS` has them; names of columns and targets are as they are in the user's files.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

METHODS = {"student": "student", "sgld": "teacher", "sgd": "plug-in network"}  # On a page, and what people call them.
MOST_POINTS = 300  # Rows that are drawn one by one; of more, so many at random.
MOST_LINES = 5  # Lines that a picture can tell apart.
MOST_BARS = 10  # Categories that fit side by side.

Limits = tuple[float, float]
Pair = tuple[np.ndarray, np.ndarray]


def sample(rows: int) -> np.ndarray:
    """The rows that are drawn one by one."""
    if rows <= MOST_POINTS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).permutation(rows)[:MOST_POINTS])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """What every picture has."""

    title: str
    caption: str = ""  # What to look for.
    alt: str  # What there is to see, for those who do not see it.
    x: str
    y: str  # What the axes are called, with their units.
    log: bool = False  # Whether the axes of what is predicted are logarithmic.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scatter(Picture):
    """Points of several kinds between the same limits on both axes, with the line on which both say the same."""

    points: Mapping[str, Pair]  # By kind; "" is not named.
    whiskers: Mapping[str, Pair] = dataclasses.field(default_factory=dict)  # Their ends, of the kinds that have any.
    limits: Limits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curves(Picture):
    """A curve for each method; on a logarithmic axis where values differ very much."""

    curves: Mapping[str, Pair]
    whiskers: Mapping[str, Pair] = dataclasses.field(default_factory=dict)
    """The ends of 95% intervals, of the methods that have any."""
    begin: float = 0.0  # Of the first axis.
    promise: bool = False  # Whether both axes are per cent, and a promise is kept where they say the same.
    band: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    """What is promised, and between which a kept promise would be measured in 95 of 100 tests."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confusion(Picture):
    """Which class is taken for which: counts ``[true, answered]``."""

    counts: np.ndarray
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlongColumn(Picture):
    """What is predicted along a column, and both uncertainties."""

    values: np.ndarray | tuple[str, ...]  # Numbers, or the names of categories.
    lines: Mapping[str, np.ndarray]
    noise: np.ndarray
    doubt: np.ndarray
    unit: str
    whole: bool  # Whether all are per cent of a whole, from 0 to 100, in which noise and doubt add up.
    seen: Limits | None  # The range of the numbers in training.
