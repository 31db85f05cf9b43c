"""Whether chains agree, and what their draws are worth, judged where it matters: on what they predict.

All functions take values ``[chains, draws, ...]`` and treat what follows the first two axes, such as the inputs
predicted at, one by one, on the host and in double precision. `agreement` says in one line what follows.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np
from scipy.special import ndtri

from darkbayes.errors import InvalidInput
from darkbayes.teacher.keeping import Average

LEAST_DRAWS = 4  # Two for each half of a chain, without which no half has a spread.
RHAT_MET = 1.1
"""Up to which chains are said to have met (Gelman and Rubin, 1992)."""
MEDIAN_ERROR, LARGE_ERROR = 0.05, 0.15
"""What the error of an average may be, as a share of the predictive standard deviation: at the median input, and at all
but one in twenty. A mean that is off by a share e of it costs e^2 / 2 nats: .001 and .011."""

Code = Literal["agree", "few", "one_chain", "short", "apart", "temperature", "student_stopped"]
"""What a program may look for; the first five are about agreement, from best to worst."""
WORSE = ("agree", "few", "one_chain", "short", "apart")


def _checked(name: str, values: jax.typing.ArrayLike) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim < 2 or values.shape[1] < LEAST_DRAWS:
        wanted = f"[chains, draws, ...] with at least {LEAST_DRAWS} draws"
        raise InvalidInput(f"{name} needs {wanted}, not shape {values.shape}")
    return values


def split_rhat(values: jax.typing.ArrayLike) -> np.ndarray:
    """Split R-hat (Gelman et al., 2013) of ``[chains, draws, ...]``: the pooled over the within-half spread.

    1 means that all halves of all chains look alike.

    Args:
        values: what each chain predicted, ``[chains, draws, ...]``.

    Returns:
        R-hat, of each of the values that follow the first two axes.

    >>> rng = np.random.default_rng(0)
    >>> bool(split_rhat(rng.normal(size=(4, 1000))) < 1.01)
    True
    >>> bool(split_rhat(rng.normal(size=(4, 1000)) + np.arange(4)[:, None]) > 1.5)
    True
    """
    values = _checked("split_rhat", values)
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, -half:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.sqrt((half - 1) / half + between / within)
    # Values that never move, in any chain, agree.
    return np.where(within + between == 0, 1.0, rhat)


def rank_rhat(values: jax.typing.ArrayLike) -> np.ndarray:
    """Rank-normalised split R-hat (Vehtari et al., 2021): of the ranks, and of the distances from the median.

    It sees chains that differ in spread alone, and is not misled by long tails.

    Args:
        values: what each chain predicted, ``[chains, draws, ...]``.

    Returns:
        R-hat, of each of the values that follow the first two axes.

    >>> wide = np.random.default_rng(0).normal(size=(4, 1000)) * np.array([1.0, 1.0, 1.0, 3.0])[:, None]
    >>> bool(rank_rhat(wide) > 1.1 > split_rhat(wide))
    True
    """
    from scipy.stats import rankdata  # Takes longer to load than all else here.

    def normal_scores(values: np.ndarray) -> np.ndarray:
        """Quantiles of the standard normal distribution at the ranks among all chains; ties share theirs."""
        flat = values.reshape(-1, *values.shape[2:])
        return ndtri((rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25)).reshape(values.shape)

    values = _checked("rank_rhat", values)
    folded = np.abs(values - np.median(values, axis=(0, 1)))
    return np.maximum(split_rhat(normal_scores(values)), split_rhat(normal_scores(folded)))


def monte_carlo_error(values: jax.typing.ArrayLike) -> np.ndarray:
    """The standard error of the mean of ``[chains, draws, ...]``, with the chains as replicates.

    That is the standard deviation of their means over the square root of their number, whether they explore one mode or
    several. One chain is judged by its effective draws, and cannot know of other modes.

    Args:
        values: what each chain predicted, ``[chains, draws, ...]``.

    Returns:
        The error, of each of the values that follow the first two axes.

    >>> values = np.random.default_rng(0).normal(size=(50, 20, 400)) + np.linspace(-1, 1, 50)[:, None, None]
    >>> round(float(monte_carlo_error(values).mean()), 2)
    0.09
    """
    values = _checked("monte_carlo_error", values)
    if len(values) == 1:
        return values[0].std(axis=0) / np.sqrt(effective_sample_size(values))
    return values.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(len(values))


def effective_sample_size(values: jax.typing.ArrayLike) -> np.ndarray:
    """How many independent draws would tell the mean as precisely as all of ``[chains, draws, ...]`` do.

    With rho_t the autocorrelation at lag t, it is the number of draws over tau = 1 + 2 (rho_1 + rho_2 + ...), summed by
    Geyer's initial monotone sequence (1992): sums of neighbouring pairs while they are positive, each no larger than
    the one before. Correlations are relative to the pooled variance (Gelman et al., 2013), so that chains which are
    apart count for little.

    Args:
        values: what each chain predicted, ``[chains, draws, ...]``.

    Returns:
        The number, of each of the values that follow the first two axes.

    >>> rng = np.random.default_rng(0)
    >>> bool(3500 < effective_sample_size(rng.normal(size=(4, 1000))) < 4500)
    True
    >>> bool(effective_sample_size(rng.normal(size=(4, 1000)) + 9 * np.arange(4)[:, None]) < 10)
    True
    """
    values = _checked("effective_sample_size", values)
    chains, draws = values.shape[:2]
    # At every lag, by the Fourier transform; sums are divided by the number of draws.
    spectrum = np.fft.rfft(values - values.mean(axis=1, keepdims=True), 2 * draws, axis=1)
    covariance = (np.fft.irfft(np.abs(spectrum) ** 2, 2 * draws, axis=1)[:, :draws] / draws).mean(axis=0)
    within = covariance[0] * draws / (draws - 1)
    between = values.mean(axis=1).var(axis=0, ddof=1) if chains > 1 else 0.0
    pooled = covariance[0] + between
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1.0 - (within - covariance) / pooled
    correlation[0] = 1.0
    pairs = correlation[: draws // 2 * 2].reshape(draws // 2, 2, *values.shape[2:]).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    sums = np.where(positive, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    tau = np.where(pooled > 0, 2.0 * sums - 1.0, 1.0)  # One for values that never move.
    # Draws that avoid each other can be worth more than independent ones; no more than is customary is believed.
    return chains * draws / np.maximum(tau, 1 / np.log10(chains * draws))


def autocorrelation_time(values: jax.typing.ArrayLike, steps_between: int = 1) -> np.ndarray:
    """After how many steps a chain's predictions are fresh: tau of `effective_sample_size`, in steps.

    What happens between two of the traced draws is not seen, so it is at least about `steps_between`.

    Args:
        values: what each chain predicted, ``[chains, draws, ...]``.
        steps_between: steps of a chain from one of these draws to the next.

    Returns:
        The time in steps, of each of the values that follow the first two axes.

    >>> fresh = np.random.default_rng(0).normal(size=(4, 1000))
    >>> round(float(autocorrelation_time(fresh, steps_between=50)), -1)
    50.0
    """
    values = _checked("autocorrelation_time", values)
    return steps_between * values.shape[0] * values.shape[1] / effective_sample_size(values)


def monte_carlo_divergence(average: Average, effective: float) -> float:
    """About KL(what infinitely many draws would predict || `average`), mean over the inputs, in nats.

    Args:
        average, effective: what the draws predict together, and how many of them count.

    Returns:
        The divergence to second order, as the distribution that is averaged has it.
    """
    mean, variance = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (average.mean, average.variance))
    return float(average.kind.monte_carlo_divergence(mean, variance).mean() / effective)


class Verdict(NamedTuple):
    """A judgement in one line, and its code."""

    code: Code
    """For programs."""
    text: str
    """For people: what is, and what to do about it."""


class Agreement(NamedTuple):
    """How alike the predictions of chains are, and how many of them count; over the inputs predicted at."""

    chains: int
    """How many."""
    draws: int
    """Predictions of each chain that were looked at."""
    error: float
    """The Monte Carlo error of the average over all chains, as a share of the spread, at the median input."""
    error_large: float
    """The same at all but one in twenty of the inputs."""
    rhat: float
    """Rank-normalised split R-hat at the worst input."""
    rhat_median: float
    """The same at the median input."""
    effective: float
    """Effective number of predictions, the median over the inputs."""
    effective_worst: float
    """The same at the worst input."""
    autocorrelation_steps: float
    """Steps after which a chain's predictions are fresh, the median over the inputs."""
    verdict: Verdict
    """What follows from all this."""


def agreement(
    values: jax.typing.ArrayLike, steps_between: int = 1, spread: jax.typing.ArrayLike | None = None
) -> Agreement:
    """Judge predictions ``[chains, draws, ...]``, made every `steps_between` steps of each chain.

    What a student learns is their average. So it is judged by how well that is known, and not by whether the chains
    have met: those of a network seldom do, and an average over many modes may be known well.

    Where only some of the draws were traced, the effective number is that of the traced ones, and a lower bound.

    Args:
        values: what each chain predicted, ``[chains, draws, ...]``.
        steps_between: steps of a chain from one of these draws to the next.
        spread: the standard deviation of the predictive distribution, which errors are shares of, ``[...]``; that of
            the values by default.

    Returns:
        The numbers and what follows from them.

    >>> rng = np.random.default_rng(0)
    >>> agreement(rng.normal(size=(4, 200, 3))).verdict.code
    'agree'
    >>> agreement(rng.normal(size=(4, 200, 3)) + np.arange(4)[:, None, None]).verdict.text
    'the chains have not met (R-hat 1.57), and their average is known to 44% of the spread only: use about 309 ...'
    """
    values = np.asarray(values, np.float64)
    if values.ndim < 2 or values.shape[0] < 1:
        raise InvalidInput(f"agreement needs values [chains, draws, ...], not shape {values.shape}")
    chains, draws = values.shape[:2]

    def unknown(code: Code, text: str) -> Agreement:
        numbers = dict.fromkeys(Agreement._fields[2:-1], float("nan"))
        return Agreement(chains=chains, draws=draws, verdict=Verdict(code, text), **numbers)

    if draws < LEAST_DRAWS:
        some = f"{draws} {'draw' if draws == 1 else 'draws'} of each chain"
        return unknown("short", f"{some}: too few to judge, run longer or keep more (a smaller thin)")
    if not np.isfinite(values).all():
        return unknown("apart", "some draws predict values that are not finite: take smaller steps")
    rhat, effective = np.ravel(rank_rhat(values)), np.ravel(effective_sample_size(values))
    unit = values.std(axis=(0, 1)) if spread is None else np.asarray(spread, np.float64)
    errors = np.ravel(monte_carlo_error(values) / np.maximum(unit, np.finfo(np.float32).tiny))
    error, large, worst = float(np.median(errors)), float(np.quantile(errors, 0.95)), float(rhat.max())
    fresh = float(np.median(autocorrelation_time(values, steps_between)))
    number, least = float(np.median(effective)), float(effective.min())
    verdict = _judge(chains, error, large, worst)
    return Agreement(chains, draws, error, large, worst, float(np.median(rhat)), number, least, fresh, verdict)


def _judge(chains: int, error: float, large: float, rhat: float) -> Verdict:
    if chains == 1:
        halves = "" if rhat <= RHAT_MET else f"; its own halves differ (R-hat {rhat:.2f}): run longer"
        return Verdict("one_chain", f"one chain: agreement cannot be judged, use num_chains >= 2{halves}")
    known = f"{error:.0%} of the spread"
    excess = max(error / MEDIAN_ERROR, large / LARGE_ERROR) ** 2
    if excess <= 1:
        met = "" if rhat <= RHAT_MET else ", as no chain visited every mode"
        inputs = f"at the median input, {large:.0%} at 95% of them (R-hat {rhat:.2f}{met})"
        return Verdict("agree", f"the average over {chains} chains is known to {known} {inputs}")
    needed = f"about {min(np.ceil(chains * excess), 9999):,.0f} chains"
    if rhat <= RHAT_MET:
        remedy = f"run {excess:.1f} times as long (a fit: more effort), or use {needed}"
        return Verdict("few", f"the average over the chains is known to {known} only (R-hat {rhat:.2f}): {remedy}")
    remedy = f"use {needed}, or fewer that run longer (a fit: more effort)"
    average = f"their average is known to {known} only"
    return Verdict("apart", f"the chains have not met (R-hat {rhat:.2f}), and {average}: {remedy}")


def worst_of(runs: Sequence[Agreement]) -> int:
    """The place of the run that fares worst; of several with the same code, the one with the largest R-hat."""
    return max(range(len(runs)), key=lambda place: (WORSE.index(runs[place].verdict.code), runs[place].rhat))
