"""Every score, once. Scores read predictions (`darkbayes.outcomes`) and targets in one unit, and return numbers.

A prediction says of each row how good it was (`Prediction.row_scores`), and under which name; here these are put
together into means with their errors: at once (`scores`, or a function per score), or batch by batch (`Scores`).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from darkbayes.errors import InvalidInput

LEVEL = 0.9
"""Of the intervals whose coverage is scored."""
BINS = 15
"""Of the confidence, for the calibration error."""
TWO_SIDED = 1.96
"""Standard errors on either side that hold the truth in 95 of 100 cases."""


class Estimate(NamedTuple):
    """A number, and its standard error where that is known."""

    value: float
    error: float | None = None

    @property
    def clear(self) -> bool:
        """Whether it differs from zero by more than chance would explain in 95 of 100 cases."""
        return self.error is not None and abs(self.value) > TWO_SIDED * self.error


class RowScores(NamedTuple):
    """One score's part of each row, and how the parts make the score."""

    values: np.ndarray
    bins: np.ndarray | None = None
    """Where given, the score is the sum over bins of the size of each bin's sum, divided by the number of rows."""
    root: bool = False
    """Whether the score is the root of the mean."""


class Scored(Protocol):
    """What a score needs of a prediction."""

    def row_scores(self, y: Any) -> Mapping[str, RowScores]:
        """The parts of each row in every score that there is for such predictions."""
        ...


class Scores:
    """The scores of predictions that come in batches: sums are kept, rows are not."""

    def __init__(self) -> None:
        """Nothing was added yet."""
        self._number = 0
        self._sums: dict[str, np.ndarray] = {}
        self._root: dict[str, bool] = {}

    def add(self, prediction: Scored, y: Any) -> None:
        """Count the predictions of some more rows.

        Args:
            prediction: what was predicted of them.
            y: what is true of them, in the prediction's unit.
        """
        self._number += len(y)
        for name, rows in prediction.row_scores(y).items():
            values = np.asarray(rows.values, np.float64)
            if rows.bins is None:
                with np.errstate(over="ignore"):
                    sums = np.asarray([values.sum(), (values**2).sum()])
                self._root[name] = rows.root
            else:
                sums = np.bincount(rows.bins, values, BINS)
            self._sums[name] = self._sums.get(name, 0.0) + sums

    def result(self) -> dict[str, Estimate]:
        """Every score, with its standard error over the rows where that is known.

        Returns:
            The scores by name.
        """
        number = self._number
        if not number:
            raise InvalidInput("there is no row with a target to score: is it empty everywhere?")
        result = {}
        for name, sums in self._sums.items():
            if name not in self._root:
                result[name] = Estimate(float(np.abs(sums).sum()) / number)
                continue
            mean = float(sums[0]) / number
            with np.errstate(invalid="ignore"):
                error = (
                    math.sqrt(max(float(sums[1]) / number - mean * mean, 0.0) / (number - 1)) if number > 1 else None
                )
            if self._root[name]:
                mean = math.sqrt(mean)
                error = error / (2 * mean) if error is not None and mean else None
            result[name] = Estimate(mean, error if error is not None and math.isfinite(error) else None)
        return result

    def rows(self, method: str) -> list[dict[str, Any]]:
        """The scores as rows of results.

        Args:
            method: what predicted.

        Returns:
            A row for each score; standard errors are over the examples.
        """
        about = {"examples": self._number, "trials": 1}
        return [
            {"method": method, "metric": metric, "mean": score.value, "se": score.error} | about
            for metric, score in self.result().items()
        ]


def scores(prediction: Scored, y: Any) -> dict[str, Estimate]:
    """Every score that there is for such a prediction.

    Args:
        prediction: what was predicted.
        y: what is true, in the same unit.

    Returns:
        The scores by name, each with its standard error over the rows where that is known.
    """
    collected = Scores()
    collected.add(prediction, y)
    return collected.result()


def score(prediction: Scored, y: Any, name: str) -> float:
    """One score by its name.

    Args:
        prediction: what was predicted.
        y: what is true, in the same unit.
        name: of the score.

    Returns:
        The score, a mean over the rows.
    """
    known = scores(prediction, y)
    if name not in known:
        raise InvalidInput(f"{name} is no score of a {type(prediction).__name__}: it has {', '.join(known)}")
    return known[name].value


def log_likelihood(prediction: Scored, y: Any) -> float:
    """The mean log density of the targets, the logarithmic score."""
    return score(prediction, y, "log_likelihood")


def error(prediction: Scored, y: Any) -> float:
    """The percentage of wrong labels."""
    return score(prediction, y, "error")


def rmse(prediction: Scored, y: Any) -> float:
    """The root mean square error of the predictive mean."""
    return score(prediction, y, "rmse")


def brier(prediction: Scored, y: Any) -> float:
    """The mean squared distance of the probabilities from the one-hot label."""
    return score(prediction, y, "brier")


def ece(prediction: Scored, y: Any) -> float:
    """The expected calibration error: the mean gap between confidence and accuracy over equal-width bins."""
    return score(prediction, y, "ece")


def coverage(prediction: Any, y: Any, level: float = LEVEL) -> float:
    """The share of targets inside the central interval of probability `level`."""
    return float(np.mean(_offered(prediction, "covered")(y, level)))


def crps(prediction: Any, y: Any) -> float:
    """The continuous ranked probability score in units of the target, E|Y - y| - E|Y - Y'|/2 (Grimit et al., 2006)."""
    return float(np.mean(_offered(prediction, "crps")(y)))


def calibration_gap(prediction: Any, y: Any) -> float:
    """How much log likelihood the best rescaling of the prediction's confidence would add, in nats per example.

    Classes: the best temperature of the probabilities; numbers: the best factor on all standard deviations around the
    mean. 0 means that no rescaling helps. The best is sought on a fine grid from 1/20 to 20.
    """
    scaled = _offered(prediction, "scaled_log_prob")
    means = [float(np.mean(scaled(y, scale))) for scale in np.exp(np.linspace(-math.log(20.0), math.log(20.0), 401))]
    return max(means) - float(np.mean(scaled(y, 1.0)))


def kl(p: Any, q: Any) -> float:
    """KL(p || q), mean over inputs.

    Class probabilities are clipped from below at 1e-6. Numbers are compared by the Gaussians of the same mean and
    variance; `kl_mixture` integrates over the mixtures themselves.
    """
    if type(p) is not type(q):
        raise InvalidInput(f"kl compares predictions of one kind, not {type(p).__name__} with {type(q).__name__}")
    return float(np.mean(_offered(p, "kl")(q)))


def kl_mixture(p: Any, q: Any, nodes: int = 2001, reach: float = 8.0) -> float:
    """KL(p || q) of the distribution of each output, mean over inputs and summed over outputs.

    Integrated by the trapezoidal rule over `reach` standard deviations around p's mean.
    """
    center, spread = p.mean, p.std
    densities = [_offered(prediction, "log_prob_each") for prediction in (p, q)]
    total, step = np.zeros_like(center), 2 * reach / (nodes - 1)
    for place in range(nodes):
        log_p, log_q = (density(center + (place * step - reach) * spread) for density in densities)
        total += (0.5 if place in (0, nodes - 1) else 1.0) * step * np.exp(log_p) * (log_p - log_q) * spread
    return float(np.mean(total.sum(axis=-1)))


def gain_kept(student: float, teacher: float, plugin: float) -> float:
    """The share of the Bayesian gain that the student keeps: (student - plug-in) / (teacher - plug-in).

    >>> round(gain_kept(student=-0.0502, teacher=-0.0419, plugin=-0.0613), 2)  # the paper's MNIST
    0.57
    """
    return (student - plugin) / (teacher - plugin) if teacher != plugin else math.nan


class KeptGain(NamedTuple):
    """What a student keeps of what its teacher gains over a plug-in network, in log likelihood per row."""

    gain: Estimate
    """Of the teacher over the plug-in network."""
    own: Estimate
    """Of the student over the plug-in network."""
    share: Estimate

    @property
    def clear(self) -> bool:
        """Whether the share says anything: the gain must be there, and be no accident."""
        return self.gain.value > 0 and self.gain.clear and math.isfinite(self.share.value)


def kept_gain(student: np.ndarray, teacher: np.ndarray, plugin: np.ndarray) -> KeptGain:
    """The gain that a student keeps, row by row, so that what is hard for all does not count as chance.

    Args:
        student: its log likelihood of each row.
        teacher: likewise.
        plugin: likewise.

    Returns:
        The gains and the share.
    """
    with np.errstate(invalid="ignore"):  # Where both are infinite.
        own, gain = student - plugin, teacher - plugin
    return KeptGain(estimate(gain), estimate(own), ratio(own, gain))


def _offered(prediction: Any, name: str) -> Any:
    method = getattr(prediction, name, None)
    if method is None:
        raise InvalidInput(f"a {type(prediction).__name__} has no {name}: use a score that is defined for it")
    return method


# Means of independent cases


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
    if probability in (0.0, 1.0):
        sure = round(count * probability)
        return sure, sure
    numbers = np.arange(count + 1)
    ways = math.lgamma(count + 1) - np.array(
        [math.lgamma(k + 1) + math.lgamma(count - k + 1) for k in range(count + 1)]
    )
    below = np.cumsum(np.exp(ways + numbers * math.log(probability) + (count - numbers) * math.log1p(-probability)))
    tail = (1 - level) / 2
    return int(np.searchsorted(below, tail)), int(np.searchsorted(below, 1 - tail))
