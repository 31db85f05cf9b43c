"""One form for every prediction, whoever made it: draws, a student, a plug-in network.

`ClassPredictive` and `RegressionPredictive` both offer ``log_prob(y)``, ``mean``, ``variance``, ``total``,
``aleatoric`` and ``epistemic``; uncertainty is entropy in nats for classes, and variance for real targets. Metrics read
nothing else.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.data import as_inputs
from darkbayes.errors import InvalidInput
from darkbayes.model import (
    Categorical,
    Draw,
    Normal,
    NormalMixture,
    Posterior,
    categorical_entropy,
)
from darkbayes.types import Array, PyTree


class ClassPredictive(eqx.Module):
    """Log class probabilities ``[batch, classes]``, with the expected entropy of a single draw where it is known.

    Logarithms are kept, as the probability of an unlikely class may be too small for a float.
    """

    log_probs: Array
    expected_entropy: Array | None = None

    @classmethod
    def from_probs(cls, probs: Array, expected_entropy: Array | None = None) -> "ClassPredictive":
        """The same from probabilities."""
        return cls(jnp.log(probs), expected_entropy)

    @property
    def probs(self) -> Array:
        return jnp.exp(self.log_probs)

    def check(self, y: Any) -> Array:
        """The targets as an array, if they are one class per row."""
        return _labels(_fitting(y, self.log_probs.shape[:-1]), self.log_probs.shape[-1])

    def log_prob(self, y: Any) -> Array:
        return jnp.take_along_axis(self.log_probs, self.check(y)[:, None], axis=-1)[:, 0]

    @property
    def mean(self) -> Array:
        """The mean of the one-hot target, which is the probabilities."""
        return self.probs

    @property
    def variance(self) -> Array:
        """The variance of each element of the one-hot target."""
        return self.probs * (1 - self.probs)

    @property
    def entropy(self) -> Array:
        return categorical_entropy(self.probs)

    @property
    def total(self) -> Array:
        return self.entropy

    @property
    def aleatoric(self) -> Array:
        """The entropy that would remain if the weights were known: noise in the labels."""
        return _known(self.expected_entropy)

    @property
    def epistemic(self) -> Array:
        """The mutual information of label and weights: what more data could remove."""
        return jnp.maximum(self.total - self.aleatoric, 0.0)


class RegressionPredictive(eqx.Module):
    """A mixture of Gaussians for each output, with the expected variance of a single draw where it is known."""

    mixture: NormalMixture
    expected_variance: Array | None = None
    variance_of_means: Array | None = None
    """That of the draws, where it is known by itself and need not be had as a difference."""

    def check(self, y: Any) -> Array:
        """The targets as an array, if they are one row of outputs per row."""
        return _fitting(y, self.mixture.mean.shape[1:])

    def log_prob(self, y: Any) -> Array:
        return self.mixture.log_prob(self.check(y))

    @property
    def moments(self) -> Normal:
        return self.mixture.moments()

    @property
    def mean(self) -> Array:
        return self.moments.mean

    @property
    def variance(self) -> Array:
        return self.moments.variance

    @property
    def total(self) -> Array:
        return self.variance

    @property
    def aleatoric(self) -> Array:
        """The variance that would remain if the weights were known: noise in the target."""
        return _known(self.expected_variance)

    @property
    def epistemic(self) -> Array:
        """The variance of the draws' means: what more data could remove."""
        if self.variance_of_means is not None:
            return self.variance_of_means
        return jnp.maximum(self.total - self.aleatoric, 0.0)

    def cdf(self, y: Any) -> Array:
        """The probability of a value below `y`, for each output."""
        return self.mixture.cdf(self.check(y))


Predictive = ClassPredictive | RegressionPredictive


def _fitting(y: Any, shape: tuple[int, ...]) -> Array:
    targets = jnp.asarray(y)
    if targets.shape != shape:
        raise InvalidInput(f"y has shape {targets.shape}, but the predictions are of shape {shape}: reshape y")
    return targets


def _labels(y: Array, classes: int) -> Array:
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise InvalidInput(f"y has type {y.dtype}: give integer classes 0..{classes - 1}")
    outside = np.asarray((y < 0) | (y >= classes))
    if outside.any():
        raise InvalidInput(f"y holds label {y[outside][0]}, outside 0..{classes - 1}: relabel it")
    return y


def _known(part: Array | None) -> Array:
    if part is None:
        raise InvalidInput(
            "this predictive does not know its aleatoric part: distil a student with decompose=True, "
            "or predict with draws"
        )
    return part


def predict_draws(posterior: Posterior, draws: Draw, x: Any) -> Predictive:
    """The average of what draws predict; `draws` has one or more axes of draws in front, as `sample` returns them.

    >>> import darkbayes as db
    >>> posterior = db.Posterior(db.mlp([10], 2), db.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> x = jnp.zeros((5, 2))
    >>> draws = jax.vmap(lambda key: posterior.init(key, x))(jax.random.split(jax.random.key(0), 3))
    >>> predict_draws(posterior, draws, x).probs.shape
    (5, 2)
    """
    x = as_inputs(x)
    one = jax.eval_shape(posterior.init, jax.random.key(0), x)
    flat = jax.tree.map(lambda leaf, like: leaf.reshape(-1, *like.shape), draws, one)
    return _predict_draws(posterior, flat, x)


@eqx.filter_jit
def _predict_draws(posterior: Posterior, draws: Draw, x: Array) -> Predictive:
    # One draw after another: all at once would hold every hidden layer of every draw.
    shape = jax.eval_shape(posterior.distribution, jax.tree.map(lambda leaf: leaf[0], draws), x)
    number = len(jax.tree.leaves(draws)[0])
    if isinstance(shape, Categorical):

        def add(sums: tuple[Array, Array], draw: Draw) -> tuple[tuple[Array, Array], None]:
            distribution = posterior.distribution(draw, x)
            return (jnp.logaddexp(sums[0], distribution.log_probs), sums[1] + distribution.entropy), None

        nothing = jnp.full(shape.log_probs.shape, -jnp.inf), jnp.zeros(shape.log_probs.shape[:-1])
        (log_probs, entropy), _ = jax.lax.scan(add, nothing, draws)
        return ClassPredictive(log_probs - jnp.log(number), entropy / number)
    each = jax.lax.map(lambda draw: posterior.distribution(draw, x), draws)
    log_weights = jnp.full_like(each.mean, -jnp.log(number))
    mixture = NormalMixture(log_weights, each.mean, each.variance, joint=True)
    return RegressionPredictive(mixture, jnp.mean(each.variance, axis=0))


def predict_plugin(posterior: Posterior, draw: Draw, x: Any) -> Predictive:
    """What a single set of weights predicts, the plug-in approximation."""
    return predict_draws(posterior, jax.tree.map(lambda leaf: leaf[None], draw), x)


def predict_average(average: Any) -> Predictive:
    """What the draws of a finished run predicted together at the monitored inputs (a teacher's `Average`).

    For regression it is the Gaussian with the mixture's mean and variance, as the draws themselves were not kept.
    """
    if "probs" in average.mean:
        return ClassPredictive.from_probs(average.mean["probs"], average.mean["entropy"])
    noise = average.mean["variance"]
    return _gaussian(Normal(average.mean["mean"], noise + average.variance["mean"]), noise)


def predict_student(student: Any, params: PyTree, x: Any) -> Predictive:
    """What a student with weights `params` predicts, in one forward pass."""
    distribution, aleatoric, epistemic = _predict_student(student, params, as_inputs(x))
    if isinstance(distribution, Categorical):
        return ClassPredictive(distribution.log_probs, aleatoric)
    if isinstance(distribution, Normal):
        return _gaussian(distribution, aleatoric, epistemic)
    return RegressionPredictive(distribution, aleatoric)


@eqx.filter_jit
def _predict_student(student: Any, params: PyTree, x: Array) -> Any:
    # A comparator may pass for a student, and know no more than `predict` tells.
    epistemic = getattr(student, "epistemic", lambda params, x: None)
    return *student.predict(params, x), epistemic(params, x)


def _gaussian(normal: Normal, aleatoric: Array | None, epistemic: Array | None = None) -> RegressionPredictive:
    zeros = jnp.zeros((1, *normal.mean.shape), normal.mean.dtype)
    return RegressionPredictive(NormalMixture(zeros, normal.mean[None], normal.variance[None]), aleatoric, epistemic)
