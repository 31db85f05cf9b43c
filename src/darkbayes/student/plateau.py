"""Whether a student has stopped following its teacher: its divergence no longer falls, and is not yet small."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEAST_POINTS = 6
"""In the last third of a curve; with fewer neither the fall nor its noise can be told."""
LEAST_FALL = 0.05
"""A student whose divergence falls by less than this share over a third of the run has stopped, for all purposes."""
WELL_ABOVE = 3.0
"""How many times the teacher's own error a divergence must be before the student is to blame for it."""


class Plateau(NamedTuple):
    """How a divergence behaved over the last third of a run."""

    since: int
    """The step at which the last third begins."""
    level: float
    """The mean divergence over the last third."""
    fall: float
    """By how much it fell over the last third, along the line of least squares."""
    error: float
    """The standard error of the fall."""
    stopped: bool
    """Whether it no longer falls while well above the teacher's own error."""


def find_plateau(curve: Sequence[tuple[int, float]], teacher_error: float) -> Plateau | None:
    """Look at the last third of a curve of ``(step, divergence)``; None where it has too few points.

    `teacher_error` is the divergence that the teacher's finite number of draws alone would explain.

    >>> falling = [(step, 1 / step) for step in range(1, 100)]
    >>> flat = [(step, 1 / min(step, 20)) for step in range(1, 100)]
    >>> [find_plateau(curve, 0.001).stopped for curve in (falling, flat)]
    [False, True]
    """
    if not curve:
        return None
    steps, values = np.asarray(curve, np.float64).T
    late = steps >= steps[0] + (steps[-1] - steps[0]) * 2 / 3
    steps, values = steps[late], values[late]
    if len(steps) < LEAST_POINTS or not np.isfinite(values).all():
        return None
    span, level = steps[-1] - steps[0], float(values.mean())
    centred = steps - steps.mean()
    slope = float(centred @ values / (centred @ centred))
    rest = values - level - slope * centred
    error = np.sqrt(rest @ rest / (len(rest) - 2) / (centred @ centred)) * span
    # Neighbouring points err alike: with correlation r between them, they count as (1 - r) / (1 + r) as many.
    correlation = np.clip(rest[1:] @ rest[:-1] / max(rest @ rest, 1e-300), 0.0, 0.9)
    error = float(error * np.sqrt((1 + correlation) / (1 - correlation)))
    fall = -slope * span
    stopped = fall <= max(2 * error, LEAST_FALL * level) and level > WELL_ABOVE * teacher_error
    return Plateau(int(steps[0]), level, float(fall), error, bool(stopped))
