"""Pictures as data: what there is to see, in arrays and words. Whoever draws them knows nothing of outcomes.

Methods are named as `METHODS` has them; names of columns and targets are as they are in the user's files.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

METHODS = {"student": "student", "sgld": "teacher", "sgd": "plug-in network"}
"""Those that a page compares, and what people call them."""
MOST_POINTS = 300
"""Rows that are drawn one by one; of more, so many at random."""
MOST_LINES = 5
"""Lines that a picture can tell apart."""
MOST_BARS = 10
"""Categories that fit side by side."""

Limits = tuple[float, float]


def sample(rows: int) -> np.ndarray:
    """The rows that are drawn one by one."""
    if rows <= MOST_POINTS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).permutation(rows)[:MOST_POINTS])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """What every picture has."""

    title: str
    caption: str = ""
    """What to look for."""
    alt: str
    """What there is to see, for those who do not see it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgainstTruth(Picture):
    """Predictions with their intervals, against what is true."""

    name: str
    truth: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    limits: Limits
    log: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoverageCurve(Picture):
    """How many true values the intervals of each level hold."""

    levels: np.ndarray
    shares: Mapping[str, np.ndarray]
    """By method."""
    band: tuple[np.ndarray, np.ndarray]
    """Between which a kept promise would be measured in 95 of 100 tests."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Positions(Picture):
    """A histogram of the true values' places in the predicted distributions, from 0 to 1."""

    counts: np.ndarray
    band: Limits
    """As above."""
    cases: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reliability(Picture):
    """How often a method is right where it is so sure, and how often it is so sure."""

    method: str
    counts: np.ndarray
    """Cases in bins of the probability of the answer, equally wide from 0 to 1."""
    claimed: np.ndarray
    accuracy: np.ndarray
    whiskers: tuple[np.ndarray, np.ndarray]
    """In the bins with any cases; the ends of a 95% interval."""
    begin: float
    """The least probability that an answer can have, or nearly so."""
    cases: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confusion(Picture):
    """Which class is taken for which: counts ``[true, answered]``."""

    counts: np.ndarray
    names: tuple[str, ...]
    cases: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RiskCurve(Picture):
    """The error among the cases that each method is surest of, for growing shares of them."""

    curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """Shares and errors, by method."""
    label: str
    cases: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentAgainstTeacher(Picture):
    """A point for each case and kind, the teacher's value along the first axis."""

    points: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """By kind: "noise", "doubt", or the only one."""
    label: str
    limits: Limits
    log: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlongColumn(Picture):
    """What is predicted along a column, and both uncertainties."""

    column: str
    values: np.ndarray | tuple[str, ...]
    """Numbers, or the names of categories."""
    lines: Mapping[str, np.ndarray]
    label: str
    noise: np.ndarray
    doubt: np.ndarray
    unit: str
    whole: bool
    """Whether all are per cent of a whole, from 0 to 100, in which noise and doubt add up."""
    seen: Limits | None
    """The range of the numbers in training."""
    ticks: np.ndarray
    """Where there are cases."""
    log: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningCurve(Picture):
    """How far the student was from its teacher as it learned, and how exact the teacher itself is."""

    steps: np.ndarray
    distances: np.ndarray
    teacher_error: float | None
