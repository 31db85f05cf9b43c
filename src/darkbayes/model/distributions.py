"""Distributions of a target: `Categorical` and `Normal`, which one network's outputs stand for, and mixtures."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.types import Array, ArrayLike

LOG_2PI = 1.8378770664093453
PROBABILITY_FLOOR = 1e-6
"""Where probabilities are clipped in a divergence."""


class Categorical(eqx.Module):
    """A distribution over classes, ``log_probs`` of shape ``[..., classes]``."""

    log_probs: Array

    @property
    def probs(self) -> Array:
        return jnp.exp(self.log_probs)

    @property
    def entropy(self) -> Array:
        return categorical_entropy(self.probs)

    def log_prob(self, y: Array) -> Array:
        # A one-hot product instead of indexing: its gradient is dense, which XLA fuses; that of indexing is a scatter.
        hot = jax.nn.one_hot(y, self.log_probs.shape[-1], dtype=self.log_probs.dtype)
        return jnp.sum(hot * self.log_probs, axis=-1)

    def statistics(self) -> dict[str, Array]:
        """What to average over draws to know the predictive distribution and its aleatoric part."""
        return {"probs": self.probs, "entropy": self.entropy}

    def outputs(self) -> Array:
        """What a draw predicts: the probabilities of all classes."""
        return self.probs

    def traced(self) -> Array:
        """What chains are compared by: without the first class, whose probability follows from the others."""
        return self.probs[..., 1:]

    @staticmethod
    def monte_carlo_divergence(mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        """About KL(what infinitely many draws predict || what one does), to second order: 1/2 sum_k V(p_k) / p_k.

        Args:
            mean: the means over draws of the `statistics`.
            variance: their variances V.

        Returns:
            The divergence at each input; n effective draws have 1/n of it.
        """
        return (0.5 * variance["probs"] / np.maximum(mean["probs"], PROBABILITY_FLOOR)).sum(axis=-1)


class Normal(eqx.Module):
    """Independent Gaussians, one per output, ``mean`` and ``variance`` of shape ``[..., outputs]``."""

    mean: Array
    variance: Array

    def log_prob(self, y: Array) -> Array:
        """The log density of all outputs together, ``[...]``."""
        return jnp.sum(normal_log_prob(y, self.mean, self.variance), axis=-1)

    def statistics(self) -> dict[str, Array]:
        """What to average over draws to know the first two predictive moments and their aleatoric part."""
        return {"mean": self.mean, "variance": self.variance}

    def outputs(self) -> Array:
        """What a draw predicts: the mean."""
        return self.mean

    def traced(self) -> Array:
        """What chains are compared by: the mean."""
        return self.mean

    @staticmethod
    def monte_carlo_divergence(mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        """About KL(what infinitely many draws predict || what one does), to second order.

        It is 1/2 V(m) / s + 1/4 [V(v) + 2 V(m)^2] / s^2 for a Gaussian of variance s = E(v) + V(m) that stands for
        draws with means m and variances v, summed over the outputs.

        Args:
            mean: the means over draws of the `statistics`.
            variance: their variances V.

        Returns:
            The divergence at each input; n effective draws have 1/n of it.
        """
        total = mean["variance"] + variance["mean"]
        parts = 0.5 * variance["mean"] / total + 0.25 * (variance["variance"] + 2 * variance["mean"] ** 2) / total**2
        return parts.sum(axis=-1)


class NormalMixture(eqx.Module):
    """A mixture of Gaussians, all of shape ``[components, batch, outputs]``.

    With `joint` the outputs of a component go together, as those of one draw do, and its weight is the same for all of
    them; otherwise each output has a mixture of its own. Its methods are compiled whole: one program each instead of a
    dozen small ones.
    """

    log_weights: Array
    mean: Array
    variance: Array
    joint: bool = False

    @eqx.filter_jit
    def log_prob(self, y: Array) -> Array:
        """The log density of all outputs of ``y`` together, ``[batch]``."""
        parts = normal_log_prob(y[None], self.mean, self.variance)
        if self.joint:
            return jax.nn.logsumexp(self.log_weights[..., 0] + jnp.sum(parts, axis=-1), axis=0)
        return jnp.sum(jax.nn.logsumexp(self.log_weights + parts, axis=0), axis=-1)

    @eqx.filter_jit
    def cdf(self, y: Array) -> Array:
        """The probability of a value below ``y``, for each output by itself, ``[batch, outputs]``."""
        z = (y[None] - self.mean) / jnp.sqrt(self.variance)
        return jnp.sum(jnp.exp(self.log_weights) * jax.scipy.stats.norm.cdf(z), axis=0)

    @eqx.filter_jit
    def moments(self) -> Normal:
        """The Gaussian of the same mean and variance, ``[batch, outputs]``."""
        weights = jnp.exp(self.log_weights)
        mean = jnp.sum(weights * self.mean, axis=0)
        return Normal(mean, jnp.sum(weights * (self.variance + (self.mean - mean[None]) ** 2), axis=0))


Distribution = Any
"""`Categorical` or `Normal`: what a likelihood makes of a network's outputs."""


def normal_log_prob(y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Array:
    """The log density of a Gaussian, element by element.

    >>> round(float(normal_log_prob(0.0, 0.0, 1.0)), 4)
    -0.9189
    """
    return -0.5 * (LOG_2PI + jnp.log(variance) + jnp.subtract(y, mean) ** 2 / variance)


def categorical_entropy(probs: Array) -> Array:
    """The entropy in nats along the last axis, with 0 log 0 = 0.

    >>> round(float(categorical_entropy(jnp.array([0.5, 0.5]))), 4)
    0.6931
    """
    return jnp.sum(jax.scipy.special.entr(probs), axis=-1)


def kl_categorical(p: Array, q: Array, floor: float = 0.0) -> Array:
    """KL(p || q) along the last axis, of probabilities clipped from below at `floor`.

    >>> float(kl_categorical(jnp.array([0.5, 0.5]), jnp.array([0.5, 0.5])))
    0.0
    """
    p, q = jnp.maximum(p, floor), jnp.maximum(q, floor)
    return jnp.sum(jax.scipy.special.rel_entr(p, q), axis=-1)


def kl_normal(p: Normal, q: Normal) -> Array:
    """KL(p || q) of Gaussians, summed over their outputs.

    >>> one = jnp.ones(1)
    >>> float(kl_normal(Normal(0 * one, one), Normal(one, one)))
    0.5
    """
    ratio = p.variance / q.variance
    return 0.5 * jnp.sum(ratio - 1.0 - jnp.log(ratio) + (p.mean - q.mean) ** 2 / q.variance, axis=-1)
