"""How sure a number is that was measured on finitely many cases."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr

TWO_SIDED = 1.96  # Standard errors on either side that hold the truth in 95 of 100 cases.


class Estimate(NamedTuple):
    """A number, and its standard error where that is known."""

    value: float
    """The number."""
    error: float | None = None
    """One standard error."""

    @property
    def clear(self) -> bool:
        """Whether it differs from zero by more than chance would explain in 95 of 100 cases."""
        return self.error is not None and abs(self.value) > TWO_SIDED * self.error


def estimate(values: np.ndarray) -> Estimate:
    """The mean of independent cases.

    >>> estimate(np.array([1.0, 2.0, 3.0, 4.0]))
    Estimate(value=2.5, error=0.6454972243679028)
    """
    values = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):  # A case may be infinite, and then the mean is.
        mean = float(np.mean(values))
    return Estimate(mean, standard_error(values))


def standard_error(values: np.ndarray) -> float | None:
    """That of the mean of independent cases; None where it cannot be known."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def ratio(over: np.ndarray, under: np.ndarray) -> Estimate:
    """The mean of `over` divided by that of `under`, of the same cases, with the error that follows to first order.

    >>> ratio(np.array([1.0, 2.0]), np.array([2.0, 4.0])), ratio(np.ones(2), np.zeros(2))
    (Estimate(value=0.5, error=0.0), Estimate(value=nan, error=None))
    """
    below = float(np.mean(under))
    if not (np.isfinite(over).all() and math.isfinite(below) and below):
        return Estimate(math.nan)
    value = float(np.mean(over)) / below
    return Estimate(value, standard_error((over - value * under) / below))


def wilson(share: np.ndarray, count: np.ndarray, z: float = TWO_SIDED) -> tuple[np.ndarray, np.ndarray]:
    """A 95% interval for a probability of which `share` was seen in `count` cases; honest for few cases as well."""
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    # Rounding must not put an end on the wrong side of the share itself.
    return np.minimum(middle - half, share), np.maximum(middle + half, share)


def by_chance(count: int, probability: float, level: float = 0.95) -> tuple[int, int]:
    """How many of `count` cases chance brings about, at least and at most, in `level` of all tests.

    >>> by_chance(100, 0.9)
    (84, 95)
    >>> by_chance(10, 1.0), by_chance(20, 0.5), by_chance(10, 0.1)
    ((10, 10), (6, 14), (0, 3))
    """
    below, tail = bdtr(np.arange(count + 1), count, probability), (1 - level) / 2
    return int(np.searchsorted(below, tail)), int(np.searchsorted(below, 1 - tail))
