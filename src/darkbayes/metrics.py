"""Every score, once. Scores read predictions (`darkbayes.outcomes`) and targets in one unit, and return numbers.

A prediction says of each row how good it was (`Prediction.row_scores`), and under which name; here these are put
together into means with their errors: at once (`scores`, or a function per score), or batch by batch (`Scores`).
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.estimates import Estimate, estimate, ratio, wilson
from darkbayes.namespaces import own

LEVEL = 0.9  # Of the intervals whose coverage is scored.
BINS = 15  # Of the confidence, for the calibration error.


class RowScores(NamedTuple):
    """One score's part of each row, and how the parts make the score."""

    values: np.ndarray
    """The parts, ``[rows]``."""
    bins: np.ndarray | None = None
    """Where given, the score is the sum over bins of the size of each bin's sum, divided by the number of rows."""
    root: bool = False
    """Whether the score is the root of the mean."""


def confidence_bins(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Which of the bins of equal width, from 0 to 1, each row is in.

    Args:
        confidence: of each row, how sure its answer is.
        bins: how many there are.

    Returns:
        Their numbers, from 0 on.
    """
    return np.minimum((confidence * bins).astype(int), bins - 1)


def binned(confidence: np.ndarray, right: np.ndarray, bins: int) -> tuple[np.ndarray, ...]:
    """How often answers are right where they are so sure.

    Args:
        confidence, right: of each row, how sure its answer is, and whether it is right.
        bins: how many there are.

    Returns:
        The number of rows in each bin; and of those with any, mean confidence, accuracy and the ends of its 95%
        interval.
    """
    place = confidence_bins(confidence, bins)
    counts = np.bincount(place, minlength=bins)
    some = counts > 0
    claimed, accuracy = (np.bincount(place, each, bins)[some] / counts[some] for each in (confidence, right))
    return counts, claimed, accuracy, *wilson(accuracy, counts[some])


class Scores:
    """The scores of predictions that come in batches: sums are kept, rows are not.

    Args:
        target: what the rows must have to be scored, for messages.
    """

    def __init__(self, target: str = "a target") -> None:
        self._target, self._number = target, 0
        self._sums: dict[str, np.ndarray] = {}
        self._root: dict[str, bool] = {}

    def add(self, prediction: Any, y: Any) -> None:
        """Count some more rows.

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
        """Every score by name, with its standard error over the rows where that is known."""
        number = self._number
        if not number:
            raise InvalidInput(f"no row has a value of {self._target}, so nothing can be scored: is the column empty?")
        result = {}
        for name, sums in self._sums.items():
            if name not in self._root:
                result[name] = Estimate(float(np.abs(sums).sum()) / number)
                continue
            mean = float(sums[0]) / number
            variance = max(float(sums[1]) / number - mean * mean, 0.0)
            error = math.sqrt(variance / (number - 1)) if number > 1 else math.nan
            if self._root[name]:
                mean = math.sqrt(mean)
                error = error / (2 * mean) if mean else math.nan
            result[name] = Estimate(mean, error if math.isfinite(error) else None)
        return result

    def rows(self, method: str) -> list[dict[str, Any]]:
        """The scores as rows of results; standard errors are over the examples.

        Args:
            method: what the rows name as scored.

        Returns:
            A dict for each score.
        """
        about, scores = {"examples": self._number, "trials": 1}, self.result()
        named = [(metric, {"mean": score.value, "se": score.error}) for metric, score in scores.items()]
        return [{"method": method, "metric": metric} | score | about for metric, score in named]


def _explained(function: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """With what all scores of a prediction take and return added to what one says of itself."""
    given = "Args:\n    prediction: what was predicted.\n    y: what is true, in the same unit."
    function.__doc__ = f"{inspect.getdoc(function)}\n\n{given}\n\nReturns:\n    The mean over the rows."
    return function


def scores(prediction: Any, y: Any) -> dict[str, Estimate]:
    """Every score that there is for such a prediction.

    Args:
        prediction, y: what was predicted, and what is true, in the same unit.

    Returns:
        The scores by name, each with its standard error over the rows where that is known.
    """
    collected = Scores()
    collected.add(prediction, y)
    return collected.result()


def score(prediction: Any, y: Any, name: str) -> float:
    """One score by its name.

    Args:
        prediction, y: what was predicted, and what is true, in the same unit.
        name: of the score.

    Returns:
        The score, a mean over the rows.
    """
    known = scores(prediction, y)
    if name not in known:
        raise InvalidInput(f"{name} is not a score of a {type(prediction).__name__}: it has {', '.join(known)}")
    return known[name].value


@_explained
def log_likelihood(prediction: Any, y: Any) -> float:
    """The mean log density of the targets, the logarithmic score."""
    return score(prediction, y, "log_likelihood")


@_explained
def error(prediction: Any, y: Any) -> float:
    """The percentage of wrong labels."""
    return score(prediction, y, "error")


@_explained
def rmse(prediction: Any, y: Any) -> float:
    """The root mean square error of the point: the predictive mean, or the median where a logarithm is modelled."""
    return score(prediction, y, "rmse")


@_explained
def brier(prediction: Any, y: Any) -> float:
    """The mean squared distance of the probabilities from the one-hot label."""
    return score(prediction, y, "brier")


@_explained
def ece(prediction: Any, y: Any) -> float:
    """The expected calibration error: the mean gap between confidence and accuracy over equal-width bins."""
    return score(prediction, y, "ece")


def coverage(prediction: Any, y: Any, level: float = LEVEL) -> float:
    """The share of targets inside the central interval, or the set of classes, of probability `level`.

    With a guarantee of that level these are the guaranteed ones; the score ``coverage_90`` is of the own ones always.

    Args:
        prediction, y: what was predicted, and what is true, in the same unit.
        level: the probability.

    Returns:
        The share.
    """
    return float(np.mean(prediction.covered(y, level)))


@_explained
def crps(prediction: Any, y: Any) -> float:
    """The continuous ranked probability score in units of the target, E|Y - y| - E|Y - Y'|/2 (Grimit et al., 2006)."""
    return float(np.mean(_offered(prediction, "crps")(y)))


@_explained
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

    Args:
        p, q: predictions of one kind.

    Returns:
        The divergence in nats.
    """
    if type(p) is not type(q):
        raise InvalidInput(f"kl compares predictions of one kind, not {type(p).__name__} with {type(q).__name__}")
    return float(np.mean(_offered(p, "kl")(q)))


def kl_mixture(p: Any, q: Any, nodes: int = 2001, reach: float = 8.0) -> float:
    """KL(p || q) of the distribution of each output, mean over inputs and summed over outputs, by the trapezoidal rule.

    Args:
        p, q: predictions of numbers.
        nodes: at which the densities are compared.
        reach: standard deviations on either side of p's mean that they cover.

    Returns:
        The divergence in nats.
    """
    center, spread = p.mean, p.std
    densities = [_offered(prediction, "log_prob_each") for prediction in (p, q)]
    total, step = np.zeros_like(center), 2 * reach / (nodes - 1)
    for place in range(nodes):
        log_p, log_q = (density(center + (place * step - reach) * spread) for density in densities)
        total += (0.5 if place in (0, nodes - 1) else 1.0) * step * np.exp(log_p) * (log_p - log_q) * spread
    return float(np.mean(total.sum(axis=-1)))


def auroc(inside: Any, outside: Any) -> float:
    """How well an uncertainty tells inputs from outside from those inside: the area under the ROC curve.

    It is the probability that one from outside, at random, has the larger value; ties count half.

    Args:
        inside, outside: the uncertainties of both.

    Returns:
        The area: 1/2 for one that tells nothing.

    >>> auroc([0.1, 0.2, 0.3], [0.2, 0.4])
    0.75
    """
    alarms, hits = ranking(inside, outside)
    return float(np.trapezoid(hits, alarms) / (alarms[-1] * hits[-1]))


def average_precision(inside: Any, outside: Any) -> float:
    """The precision at which inputs from outside are found by an uncertainty, on average over them.

    Args:
        inside, outside: the uncertainties of both.

    Returns:
        The mean: the share of inputs from outside for one that tells nothing.

    >>> round(average_precision([0.1, 0.8], [0.7, 0.9]), 3)
    0.833
    """
    alarms, hits = ranking(inside, outside)
    return float(np.sum(np.diff(hits) * hits[1:] / (alarms + hits)[1:]) / hits[-1])


def ranking(inside: Any, outside: Any) -> tuple[np.ndarray, np.ndarray]:
    """How many inputs from inside, and from outside, have at least each value that there is, from the largest on.

    Args:
        inside, outside: the uncertainties of both.

    Returns:
        Both counts, each from 0 to all of them: false alarms, and those that are found.

    >>> [counts.tolist() for counts in ranking([0.1, 0.2, 0.3], [0.2, 0.4])]
    [[0.0, 0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0, 2.0]]
    """
    both = np.concatenate([np.ravel(inside), np.ravel(outside)]).astype(np.float64)
    number, others = np.size(inside), np.size(outside)
    if not number or not others:
        raise InvalidInput(f"a ranking compares {number} inputs inside with {others} outside: give some of both")
    _, place = np.unique(-both, return_inverse=True)
    counts = (np.cumsum(np.bincount(part, minlength=place.max() + 1)) for part in (place[:number], place[number:]))
    alarms, hits = (np.append(0.0, count) for count in counts)
    return alarms, hits


def risk_coverage(uncertainty: Any, loss: Any) -> np.ndarray:
    """The mean loss on the k rows of least uncertainty, for k = 1, 2, ..., all of them; ties are averaged over.

    Args:
        uncertainty, loss: of each row.

    Returns:
        The risks, whose mean is the area under the risk-coverage curve (AURC).

    >>> risk_coverage([0.3, 0.1, 0.2], [1.0, 0.0, 1.0]).round(2).tolist()
    [0.0, 0.5, 0.67]
    """
    values, losses = (np.ravel(np.asarray(part, np.float64)) for part in (uncertainty, loss))
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    tied = np.bincount(place, losses) / count
    order = np.argsort(values, kind="stable")
    return np.cumsum(tied[place[order]]) / np.arange(1, len(losses) + 1)


def gain_kept(student: float, teacher: float, plugin: float) -> float:
    """The share of the Bayesian gain that the student keeps: (student - plug-in) / (teacher - plug-in).

    Args:
        student, teacher, plugin: their log likelihoods.

    Returns:
        The share; not a number where there is no gain.

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
    """Of the teacher's gain that is the student's."""

    @property
    def clear(self) -> bool:
        """Whether the share says anything: the gain must be there, and be no accident."""
        return self.gain.value > 0 and self.gain.clear and math.isfinite(self.share.value)


def kept_gain(student: np.ndarray, teacher: np.ndarray, plugin: np.ndarray) -> KeptGain:
    """The gain that a student keeps, row by row, so that what is hard for all does not count as chance.

    Args:
        student, teacher, plugin: their log likelihoods of each row.

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


def __dir__() -> list[str]:
    return own(globals(), "Estimate")
