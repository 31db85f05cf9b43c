"""Factorised Gaussians over draws, which Bayes by backprop and Graves's variational inference both fit.

    q(theta) = prod_j N(theta_j | mu_j, sigma_j^2),   sigma_j = log(1 + exp(rho_j)),

over the network's weights and the likelihood's own parameters alike. A draw is mu + sigma * xi with xi standard normal,
so that gradients of averages over draws reach mu and rho.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.baselines.optimise import Trained
from darkbayes.errors import plain, require_count, require_positive
from darkbayes.model.posterior import Draw, Posterior
from darkbayes.teacher.noise import normal_like
from darkbayes.types import Array, Key, PyTree

LOG_2PI_E = 2.8378770664093453


class MeanField(eqx.Module):
    """A Gaussian for each parameter: its mean, and rho, the inverse softplus of its standard deviation."""

    mean: Draw
    """mu."""
    rho: Draw
    """The inverse softplus of sigma."""

    @property
    def std(self) -> Draw:
        return jax.tree.map(jax.nn.softplus, self.rho)

    def draw(self, key: Key) -> Draw:
        """One draw, differentiable in the means and rhos."""
        noise = normal_like(key, self.mean)
        return jax.tree.map(lambda mean, std, xi: mean + std * xi, self.mean, self.std, noise)

    def draws(self, key: Key, number: int) -> Draw:
        return jax.vmap(self.draw)(jax.random.split(key, require_count("number", number)))


class Variational(Trained):
    """A method that fits a `MeanField`, by an average over draws of it at each step."""

    samples: int = eqx.field(converter=plain, default=1)
    """Draws of q at each step."""
    initial_std: float = eqx.field(converter=plain, default=0.01)
    """The standard deviation of every weight to begin with."""

    def __check_init__(self) -> None:
        require_count("samples", self.samples)
        require_positive("initial_std", self.initial_std)

    def start(self, key: Key, x: Array) -> MeanField:
        return mean_field_init(self.posterior, key, x, self.initial_std)

    def draws(self, key: Key, fitted: MeanField, number: int) -> Draw:
        return fitted.draws(key, number)

    def expected(self, key: Key, loss: Callable[[Draw], Array], fitted: MeanField) -> Array:
        """The mean loss of `samples` draws."""
        return jnp.mean(jax.vmap(lambda key: loss(fitted.draw(key)))(jax.random.split(key, self.samples)))


def mean_field_init(posterior: Posterior, key: Key, x: Array, initial_std: float) -> MeanField:
    """Means where a plain network would start, and one standard deviation for all."""
    mean = posterior.init(key, x)
    return MeanField(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.log(jnp.expm1(initial_std))), mean))


def entropy(std: PyTree) -> Array:
    """The entropy of independent Gaussians, -E log q, in nats.

    It takes the place of a Monte Carlo estimate: log q(mu + sigma * xi) is -log sigma plus a function of xi alone, so
    that its gradient is without noise anyhow.
    """
    return sum((jnp.sum(jnp.log(leaf) + 0.5 * LOG_2PI_E) for leaf in jax.tree.leaves(std)), start=jnp.zeros(()))
