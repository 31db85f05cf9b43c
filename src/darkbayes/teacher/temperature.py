"""Whether draws have the temperature of the posterior they are said to come from, and what minibatches do to it.

With U the negative log posterior of d weights theta, draws from p(theta | data)^(1/T) have E[theta . grad U] = d T (the
virial theorem: integrate by parts). The mean of theta . grad U / d is the *configurational* temperature: 1 for the
Bayes posterior, above it where steps or minibatch noise are too large, and T for a sampler that was told so. Momenta v
in the convention of this package have v . v / d -> eta T / 2, which gives the *kinetic* temperature.

Wenzel et al. (2020) check stochastic-gradient samplers by both.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.data import minibatch
from darkbayes.errors import InvalidInput, require_positive
from darkbayes.model import Draw, Posterior
from darkbayes.types import Array, Chain, Data, Key, PyTree

BATCHES = 8
"""Minibatches by which the noise of a gradient is estimated, to about a quarter of itself for each draw."""


class GradientNoise(NamedTuple):
    """What gradients look like at a draw."""

    temperature: Array
    """theta . grad U / d with all examples."""
    noise_to_signal: Array
    """The variance of the minibatch gradient, summed over the weights, over the square of the full gradient."""


def _dot(first: PyTree, second: PyTree) -> Array:
    parts = jax.tree.map(lambda a, b: jnp.sum(a.astype(jnp.float32) * b.astype(jnp.float32)), first, second)
    return jnp.sum(jnp.stack(jax.tree.leaves(parts)))


def _size(tree: PyTree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def _gradients(posterior: Posterior, draw: Draw, data: Data, batch_size: int | None, key: Key) -> GradientNoise:
    def gradient(batch: Data) -> PyTree:
        return jax.grad(lambda at: -posterior.log_density(at, batch))(draw)

    full = gradient(data)
    temperature = _dot(draw, full) / _size(draw)
    if batch_size is None:
        return GradientNoise(temperature, jnp.zeros(()))

    def squared_gap(key: Key) -> Array:
        gap = jax.tree.map(jnp.subtract, gradient(minibatch(key, data, batch_size)), full)
        return _dot(gap, gap)

    noise = jnp.mean(jax.lax.map(squared_gap, jax.random.split(key, BATCHES)))
    return GradientNoise(temperature, noise / _dot(full, full))


@eqx.filter_jit
def _of_each(posterior: Posterior, draws: Draw, data: Data, batch_size: int | None, key: Key) -> GradientNoise:
    # One draw after another: all at once would hold every hidden layer of all examples for every draw.
    keys = jax.random.split(key, len(jax.tree.leaves(draws)[0]))
    return jax.lax.map(lambda pair: _gradients(posterior, pair[1], data, batch_size, pair[0]), (keys, draws))


def gradient_noise(chain: Chain, draws: PyTree, key: Key) -> GradientNoise | None:
    """Temperature and noise at `draws`, which lie along the first axis; None for a chain that holds no data.

    It takes a gradient over all examples, and `BATCHES` over minibatches, for each draw.
    """
    data = getattr(chain, "data", None)
    if data is None:
        return None
    return _of_each(chain.posterior, draws, data, getattr(chain, "batch_size", None), key)


def configurational_temperature(posterior: Posterior, draws: Draw, data: Data) -> np.ndarray:
    """theta . grad U / d of each draw along the first axis; 1 on average at the Bayes posterior.

    >>> import darkbayes as db
    >>> posterior = db.Posterior(db.mlp([10], 2), db.Softmax(2), db.GaussianPrior(1.0), num_data=20)
    >>> data = db.toy2d(jax.random.key(0))
    >>> draws = jax.vmap(lambda key: posterior.init(key, data.x))(jax.random.split(jax.random.key(1), 3))
    >>> configurational_temperature(posterior, draws, data).shape
    (3,)
    """
    return np.asarray(_of_each(posterior, draws, data, None, jax.random.key(0)).temperature, np.float64)


def kinetic_temperature(momentum: PyTree, step_size: float) -> float:
    """2 v . v / (d eta) of momenta v: their temperature, 1 on average at the Bayes posterior.

    `momentum` may hold several chains along a first axis, which are averaged.

    >>> round(kinetic_temperature(jnp.array([0.1, -0.1]), 0.02), 6)
    1.0
    """
    require_positive("step_size", step_size)
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(momentum)]
    size = sum(leaf.size for leaf in leaves)
    if size == 0:
        raise InvalidInput("kinetic_temperature needs momenta, not an empty tree")
    return 2.0 * sum(float(np.sum(leaf**2)) for leaf in leaves) / (size * step_size)


def chains_kinetic_temperature(states: Any) -> float | None:
    """That of the states of chains; None unless a transformation among them holds `momentum` and its `step_size`."""
    if hasattr(states, "momentum") and hasattr(states, "step_size"):
        return kinetic_temperature(states.momentum, float(np.mean(states.step_size)))
    parts = states if isinstance(states, tuple) else ()
    return next((found for part in parts if (found := chains_kinetic_temperature(part)) is not None), None)
