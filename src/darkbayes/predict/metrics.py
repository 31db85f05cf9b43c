"""How good a predictive is. Every metric reads `Predictive` objects and targets, and returns a number.

All are means over examples, `rmse` of squares.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.model import kl_categorical, kl_normal, normal_log_prob
from darkbayes.predict.predictive import ClassPredictive, Predictive, RegressionPredictive
from darkbayes.types import Array, ArrayLike


def log_likelihood(predictive: Predictive, y: ArrayLike) -> float:
    """The mean log density of the targets, the logarithmic score."""
    return float(jnp.mean(predictive.log_prob(y)))


def error(predictive: ClassPredictive, y: ArrayLike) -> float:
    """The percentage of wrong labels."""
    return 100.0 * float(jnp.mean(jnp.argmax(predictive.probs, axis=-1) != predictive.check(y)))


def rmse(predictive: RegressionPredictive, y: ArrayLike) -> float:
    """The root mean square error of the predictive mean."""
    return float(jnp.sqrt(jnp.mean((predictive.mean - predictive.check(y)) ** 2)))


def brier(predictive: ClassPredictive, y: ArrayLike) -> float:
    """The mean squared distance of the probabilities from the one-hot label."""
    hot = jax.nn.one_hot(predictive.check(y), predictive.probs.shape[-1])
    return float(jnp.mean(jnp.sum((predictive.probs - hot) ** 2, axis=-1)))


def ece(predictive: ClassPredictive, y: ArrayLike, bins: int = 15) -> float:
    """The expected calibration error: the mean gap between confidence and accuracy over equal-width bins."""
    confidence = np.asarray(jnp.max(predictive.probs, axis=-1))
    correct = np.asarray(jnp.argmax(predictive.probs, axis=-1) == predictive.check(y))
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs(np.sum(correct[bin_of == b] - confidence[bin_of == b])) for b in range(bins)]
    return float(np.sum(gaps) / len(confidence))


def calibration_gap(predictive: Predictive, y: ArrayLike) -> float:
    """How much log likelihood the best rescaling of the predictive's confidence would add, in nats per example.

    Classes: the best temperature of the probabilities; real targets: the best factor on all standard deviations
    around the mean. 0 means that no rescaling helps. The best is sought on a fine grid from 1/20 to 20.
    """
    return float(_calibration_gap(predictive, predictive.check(y)))


@eqx.filter_jit
def _calibration_gap(predictive: Predictive, y: Array) -> Array:
    scales = jnp.exp(jnp.linspace(-jnp.log(20.0), jnp.log(20.0), 401))

    if isinstance(predictive, ClassPredictive):
        logits = predictive.log_probs

        def score(scale: Array) -> Array:
            scaled = jax.nn.log_softmax(logits / scale)
            return jnp.mean(jnp.take_along_axis(scaled, y[:, None], axis=-1))
    else:
        mean = predictive.mean

        def score(scale: Array) -> Array:
            # The density of mean + scale * (Y - mean) at y.
            inner = predictive.log_prob(mean + (y - mean) / scale)
            return jnp.mean(inner) - mean.shape[-1] * jnp.log(scale)

    return jnp.max(jax.lax.map(score, scales)) - score(jnp.ones(()))


def crps(predictive: RegressionPredictive, y: ArrayLike) -> float:
    """The continuous ranked probability score in units of the target, closed form for mixtures of Gaussians.

    E|Y - y| - E|Y - Y'|/2 (Grimit et al., 2006), where each expectation is a sum over (pairs of) components.
    """
    return float(_crps(predictive, predictive.check(y)))


@eqx.filter_jit
def _crps(predictive: RegressionPredictive, y: Array) -> Array:
    weights, mean = jnp.exp(predictive.mixture.log_weights), predictive.mixture.mean
    variance = predictive.mixture.variance
    reach = jnp.sum(weights * _mean_absolute(y[None] - mean, variance), axis=0)

    def pairs(component: tuple[Array, Array, Array]) -> Array:
        weight, center, spread = component
        return weight * jnp.sum(weights * _mean_absolute(center[None] - mean, spread[None] + variance), axis=0)

    spread = jnp.sum(jax.lax.map(pairs, (weights, mean, variance)), axis=0)
    return jnp.mean(jnp.sum(reach - 0.5 * spread, axis=-1))


def _mean_absolute(mean: Array, variance: Array) -> Array:
    """E|Z| of a Gaussian Z."""
    deviation = jnp.sqrt(variance)
    z = mean / deviation
    return mean * (2 * jax.scipy.stats.norm.cdf(z) - 1) + 2 * deviation * jax.scipy.stats.norm.pdf(z)


def coverage(predictive: RegressionPredictive, y: ArrayLike, level: float = 0.9) -> float:
    """The share of targets inside the central interval of probability `level`."""
    position = predictive.cdf(y)
    return float(jnp.mean(jnp.abs(position - 0.5) <= level / 2))


def kl(p: Predictive, q: Predictive, floor: float = 1e-6) -> float:
    """KL(p || q), mean over inputs.

    Class probabilities are clipped from below at `floor`. Real targets are compared by the Gaussians of the same
    mean and variance; `kl_mixture` integrates over the mixtures themselves.
    """
    if isinstance(p, ClassPredictive) and isinstance(q, ClassPredictive):
        return float(jnp.mean(kl_categorical(p.probs, q.probs, floor)))
    if isinstance(p, RegressionPredictive) and isinstance(q, RegressionPredictive):
        return float(jnp.mean(kl_normal(p.moments, q.moments)))
    raise InvalidInput(f"kl compares predictives of one kind, not {type(p).__name__} with {type(q).__name__}")


def kl_mixture(p: RegressionPredictive, q: RegressionPredictive, nodes: int = 2001, reach: float = 8.0) -> float:
    """KL(p || q) of the mixtures of each output, mean over inputs and summed over outputs.

    Integrated by the trapezoidal rule over `reach` standard deviations around p's mean.
    """
    center, spread = p.mean, jnp.sqrt(p.variance)

    def log_density(predictive: RegressionPredictive, y: Array) -> Array:
        mixture = predictive.mixture
        return jax.nn.logsumexp(mixture.log_weights + normal_log_prob(y[None], mixture.mean, mixture.variance), axis=0)

    def integrand(z: Array) -> Array:
        y = center + z * spread
        log_p = log_density(p, y)
        return jnp.exp(log_p) * (log_p - log_density(q, y)) * spread

    z = jnp.linspace(-reach, reach, nodes)
    return float(jnp.mean(jnp.sum(jnp.trapezoid(jax.lax.map(integrand, z), z, axis=0), axis=-1)))


def gain_kept(student: float, teacher: float, plugin: float) -> float:
    """The share of the Bayesian gain that the student keeps: (student - plug-in) / (teacher - plug-in).

    >>> round(gain_kept(student=-0.0502, teacher=-0.0419, plugin=-0.0613), 2)  # the paper's MNIST
    0.57
    """
    return (student - plugin) / (teacher - plugin) if teacher != plugin else float("nan")
