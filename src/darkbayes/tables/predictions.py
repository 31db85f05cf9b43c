"""What a student predicts, in the unit of the target and in numpy; an exported student's graph computes the same.

A student says of a number that its transform is Gaussian, with a location, a spread and the share of the variance that
is aleatoric. For a target that was modelled as it is, mean and standard deviation are just these. For one that was
modelled by its logarithm, they follow from the moments of the log-normal distribution: with spread^2 = v, of which a is
aleatoric and e = v - a epistemic, and location m,

    mean = exp(m + v/2),    variance = mean^2 (exp(v) - 1),    epistemic part = mean^2 (exp(e) - 1),

where the aleatoric part is what is left.
"""

import dataclasses
import math
from statistics import NormalDist
from typing import Any

import numpy as np

from darkbayes.errors import require_share
from darkbayes.tables.schema import RealTarget

MOST_EXPONENT = 80.0
"""Exponents are kept below it, for exp() of them to be a float32; log variances above its negative, for the same."""
MOST = float(np.finfo(np.float32).max)
"""No standard deviation is larger: far from all data, that of a log-normal target would be infinite."""


@dataclasses.dataclass(frozen=True)
class RealPredictions:
    """Predictions of a number, one per row."""

    mean: np.ndarray
    std: np.ndarray
    aleatoric_std: np.ndarray
    epistemic_std: np.ndarray
    location: np.ndarray
    spread: np.ndarray
    """The Gaussian that the target's transform follows."""

    @classmethod
    def of(
        cls,
        target: RealTarget,
        mean: np.ndarray,
        variance: np.ndarray,
        aleatoric: np.ndarray,
        epistemic: Any = None,
    ) -> "RealPredictions":
        """From what the student says of the standardised transform: its mean, variance and aleatoric variance.

        The epistemic variance is the rest; where it is small it is better given, as a difference has lost it.
        """
        mean, variance, aleatoric = (np.asarray(of, np.float64).reshape(-1) for of in (mean, variance, aleatoric))
        variance = np.clip(variance, math.exp(-MOST_EXPONENT), math.exp(MOST_EXPONENT))
        noise = np.minimum(aleatoric, variance)
        rest = variance - noise if epistemic is None else np.asarray(epistemic, np.float64).reshape(-1)
        doubt = np.minimum(rest, variance)
        variance, noise, doubt = (of * target.scale**2 for of in (variance, noise, doubt))
        location, spread = mean * target.scale + target.center, np.sqrt(variance)
        if target.transform == "identity":
            return cls(location, spread, np.sqrt(noise), np.sqrt(doubt), location, spread)
        center = np.exp(np.minimum(location + variance / 2, MOST_EXPONENT))
        variance, doubt = (np.minimum(of, MOST_EXPONENT) for of in (variance, doubt))
        # exp(v) - exp(e), but not as a difference.
        rest = np.exp(doubt) * np.expm1(np.minimum(noise, MOST_EXPONENT - doubt))
        std, noise_std, doubt_std = (
            np.minimum(center * np.sqrt(of), MOST) for of in (np.expm1(variance), rest, np.expm1(doubt))
        )
        return cls(center, std, noise_std, doubt_std, location, spread)

    def interval(self, target: RealTarget, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds the target with probability `level`."""
        require_share("level", level)
        reach = NormalDist().inv_cdf(0.5 + level / 2) * self.spread
        ends = self.location - reach, self.location + reach
        return ends if target.transform == "identity" else (_exp(ends[0]), _exp(ends[1]))

    def log_density(self, target: RealTarget, y: np.ndarray) -> np.ndarray:
        """The log density at the values `y` of the target, in its own unit; minus infinity where it cannot be."""
        y = np.asarray(y, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = y if target.transform == "identity" else np.log(y)
            log = (
                -0.5 * ((value - self.location) / self.spread) ** 2 - np.log(self.spread) - 0.5 * math.log(2 * math.pi)
            )
            return log if target.transform == "identity" else np.where(y > 0, log - value, -np.inf)

    def position(self, target: RealTarget, y: np.ndarray) -> np.ndarray:
        """The probability of a value below `y`, for each row."""
        y = np.asarray(y, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = y if target.transform == "identity" else np.where(y > 0, np.log(y), -np.inf)
        z = (value - self.location) / (self.spread * math.sqrt(2))
        return np.asarray([0.5 * math.erfc(-of) for of in z.tolist()])


@dataclasses.dataclass(frozen=True)
class ClassPredictions:
    """Predictions of a class: probabilities ``[rows, classes]``, and entropies in nats, one per row."""

    probs: np.ndarray
    entropy: np.ndarray
    expected_entropy: np.ndarray
    mutual_information: np.ndarray


Predictions = RealPredictions | ClassPredictions


def _exp(exponent: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(exponent, MOST_EXPONENT))
