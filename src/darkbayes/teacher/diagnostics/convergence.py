"""Whether chains agree, and what their draws are worth, judged where it matters: on what they predict.

All functions take values ``[chains, draws, ...]`` and treat what follows the first two axes, such as the inputs
predicted at, one by one. They run on the host, in double precision.
"""

import jax
import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.teacher.average import Average

LEAST_DRAWS = 4
"""Two for each half of a chain, without which no half has a spread."""


def _checked(name: str, values: jax.typing.ArrayLike) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim < 2 or values.shape[1] < LEAST_DRAWS:
        raise InvalidInput(
            f"{name} needs [chains, draws, ...] with at least {LEAST_DRAWS} draws, not shape {values.shape}"
        )
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
    return np.where(within + between > 0, rhat, 1.0)


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
    total = chains * draws
    tau = _autocorrelation_time(values)
    # Draws that avoid each other can be worth more than independent ones; no more than is customary is believed.
    return total / np.maximum(tau, 1 / np.log10(total))


def _autocorrelation_time(values: np.ndarray) -> np.ndarray:
    """tau of `effective_sample_size`, in draws; 1 for values that never move."""
    chains, draws = values.shape[:2]
    covariance = _autocovariance(values).mean(axis=0)
    within = covariance[0] * draws / (draws - 1)
    between = values.mean(axis=1).var(axis=0, ddof=1) if chains > 1 else 0.0
    pooled = covariance[0] + between
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1.0 - (within - covariance) / pooled
    correlation[0] = 1.0
    pairs = correlation[: draws // 2 * 2].reshape(draws // 2, 2, *values.shape[2:]).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    sums = np.where(positive, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    return np.where(pooled > 0, 2.0 * sums - 1.0, 1.0)


def _autocovariance(values: np.ndarray) -> np.ndarray:
    """At every lag, ``[chains, lags, ...]``, by the Fourier transform; sums are divided by the number of draws."""
    draws = values.shape[1]
    centred = values - values.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * draws, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, 2 * draws, axis=1)[:, :draws] / draws


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
        average: what the draws predict together.
        effective: how many of the draws count.

    Returns:
        The divergence to second order, as the distribution that is averaged has it.
    """
    mean, variance = (
        {name: np.asarray(value, np.float64) for name, value in part.items()}
        for part in (average.mean, average.variance)
    )
    return float(average.kind.monte_carlo_divergence(mean, variance).mean() / effective)
