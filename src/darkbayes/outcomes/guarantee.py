"""Split-conformal calibration: what makes intervals and sets hold the truth as often as was asked, whatever the model.

A score says how far the truth of a row lies from what is predicted, in the prediction's own terms
(`Prediction.strangeness`). Of n rows that the student never saw and a new one like them, any is as likely as another to
have the k-th smallest score, so that the new one has at most

    the k-th smallest of the n, where k = ceil((n + 1) level),

with a probability of `level` or more, and of at most level + 1/(n + 1) where no two scores are the same (Vovk,
Gammerman and Shafer, 2005; Lei et al., 2018). That is on average over all rows, and over draws of the n.
"""

import dataclasses
import math

import numpy as np
from scipy.special import betaincinv

from darkbayes.errors import InvalidInput, require_level
from darkbayes.tables.schema import stored_as

ROUNDING = 1e-6  # The share by which a bound is raised, so that rounding does not leave out the row that set it.
TINY = 1e-9  # What rounding may add to (n + 1) level.


@stored_as("guarantee")
@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What was calibrated.

    Args:
        level: the share of new rows whose truth is held, at least.
        rows: how many calibrated it.
        bounds: for each output the score up to which a truth is held.
    """

    level: float
    rows: int
    bounds: tuple[float, ...]

    def output(self, place: int) -> "Guarantee":
        """That of one of several outputs."""
        return dataclasses.replace(self, bounds=self.bounds[place : place + 1])


def rows_needed(level: float) -> int:
    """How many rows must calibrate a level: with fewer, nothing but everything would hold enough.

    >>> [rows_needed(level) for level in (0.5, 0.9, 0.99)]
    [1, 9, 99]
    """
    return math.ceil(level / (1 - level) - TINY)


def rank(rows: int, level: float) -> int:
    """Which of the scores of so many rows is the bound, the smallest being the first.

    >>> rank(9, 0.9), rank(100, 0.9)
    (9, 91)
    """
    return math.ceil((rows + 1) * level - TINY)


def calibrated(scores: np.ndarray, level: float) -> Guarantee:
    """The guarantee that rows give which nothing was learned from, of each output by itself.

    Args:
        scores: how far the truths lie from what was predicted, ``[rows, outputs]`` (`Prediction.strangeness`).
        level: the share of new rows whose truth is to be held.

    Returns:
        The guarantee.

    >>> round(calibrated(np.arange(20.0)[:, None], 0.9).bounds[0], 6)
    18.000018
    """
    require_level("guarantee", level)
    rows, needed = len(scores), rows_needed(level)
    if rows < needed:
        few = f"needs at least {needed} rows to calibrate it that training does not use; there are {rows}"
        remedy = "give more rows, hold out a larger share of them, or ask for a lower level"
        raise InvalidInput(f"guarantee {level:g} {few}: {remedy}")
    bounds = np.sort(scores, axis=0)[rank(rows, level) - 1] * (1 + ROUNDING)
    if not np.isfinite(bounds).all():
        share = 1 - np.isfinite(scores).all(axis=1).mean()
        raise InvalidInput(
            f"guarantee {level:g} cannot be given: predictions are not finite for {share:.0%} of the rows"
        )
    return Guarantee(level, rows, tuple(bounds.tolist()))


def by_luck(level: float, rows: int) -> tuple[float, float]:
    """Between which shares of all new rows are held, by the luck of the rows that calibrate, in 19 of 20 cases.

    Where no two scores are the same, the share has a Beta distribution over draws of these rows.

    >>> [round(end, 3) for end in by_luck(0.9, 100)]
    [0.836, 0.951]
    """
    k = rank(rows, level)
    low, high = betaincinv(k, rows + 1 - k, np.asarray([0.025, 0.975])).tolist()
    return low, high
