"""What is believed of the weights before data: ``log_prob(params)`` over any pytree of arrays."""

import abc
import math
from functools import partial
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import plain, require_positive, require_share
from darkbayes.namespaces import own
from darkbayes.outcomes.heads.number import normal_log_prob
from darkbayes.outcomes.number import LOG_2PI
from darkbayes.types import Array, PyTree


class Prior(Protocol):
    """A density over a pytree of weights."""

    def log_prob(self, params: PyTree) -> Array: ...


class _ByArray(eqx.Module):
    """A prior under which arrays of weights are independent of each other."""

    def log_prob(self, params: PyTree) -> Array:
        return sum((jnp.sum(self._of_array(leaf)) for leaf in jax.tree.leaves(params)), start=jnp.zeros(()))

    @abc.abstractmethod
    def _of_array(self, leaf: Array) -> Array: ...


class GaussianPrior(_ByArray):
    """The paper's spherical Gaussian: every weight is N(0, 1/precision)."""

    precision: float = eqx.field(converter=partial(require_positive, "precision"), default=1.0)
    """lambda."""

    def _of_array(self, leaf: Array) -> Array:
        return normal_log_prob(leaf, 0.0, 1.0 / self.precision)


class ScaledGaussianPrior(_ByArray):
    """A Gaussian scaled per layer: weights have precision ``precision * fan_in``, biases ``precision``.

    It keeps the prior's functions of one size whatever the width. The fan-in of an array with two or more axes is
    its size divided by that of `output_axis`.
    """

    precision: float = eqx.field(converter=partial(require_positive, "precision"), default=1.0)
    """lambda, of the biases."""
    output_axis: int = eqx.field(converter=plain, default=0)
    """Along which axis of an array of weights its outputs lie: 0 for Equinox and PyTorch, -1 for Flax."""

    def _of_array(self, leaf: Array) -> Array:
        fan_in = leaf.size // leaf.shape[self.output_axis] if leaf.ndim >= 2 else 1
        return normal_log_prob(leaf, 0.0, 1.0 / (self.precision * fan_in))


class SampledPrecisionPrior(_ByArray):
    """A Gaussian whose precision is unknown: a Gamma(shape, rate) one of its own for each array of weights.

    The precisions are integrated out, which is exact and leaves nothing to sample: with n weights w in an array,

        log p(w) = log Gamma(shape + n/2) - (shape + n/2) log(rate + |w|^2 / 2) + const,

    so that arrays whose weights are all small are drawn to zero more strongly. The expected precision given the weights
    is (shape + n/2) / (rate + |w|^2 / 2).

    >>> prior = SampledPrecisionPrior(shape=2.0, rate=1.0)  # Of one weight: Student's t.
    >>> round(float(prior.log_prob(jnp.zeros(1))), 4)
    -0.6343
    """

    shape: float = eqx.field(converter=partial(require_positive, "shape"), default=1.0)
    """Of the Gamma distribution of each precision."""
    rate: float = eqx.field(converter=partial(require_positive, "rate"), default=1.0)
    """Of the same."""

    def _of_array(self, leaf: Array) -> Array:
        shape = self.shape + 0.5 * leaf.size
        constant = math.lgamma(shape) - math.lgamma(self.shape) + self.shape * math.log(self.rate)
        rate = self.rate + 0.5 * jnp.sum(leaf.astype(jnp.float32) ** 2)
        return constant - 0.5 * LOG_2PI * leaf.size - shape * jnp.log(rate)


class ScaleMixturePrior(_ByArray):
    """Blundell et al.'s mixture of two zero-mean Gaussians, a wide one with probability `weight` and a narrow one."""

    weight: float = eqx.field(converter=partial(require_share, "weight"), default=0.5)
    """The probability of the wide Gaussian."""
    wide: float = eqx.field(converter=partial(require_positive, "wide"), default=1.0)
    """Its standard deviation."""
    narrow: float = eqx.field(converter=partial(require_positive, "narrow"), default=0.0025)
    """The standard deviation of the other."""

    def _of_array(self, leaf: Array) -> Array:
        return jnp.logaddexp(
            jnp.log(self.weight) + normal_log_prob(leaf, 0.0, self.wide**2),
            jnp.log1p(-self.weight) + normal_log_prob(leaf, 0.0, self.narrow**2),
        )


def __dir__() -> list[str]:
    return own(globals())
