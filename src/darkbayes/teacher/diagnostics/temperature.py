"""Whether draws have the temperature of the posterior they are said to come from, and what minibatches do to it.

With U the negative log posterior of d weights theta, draws from p(theta | data)^(1/T) have E[theta . grad U] = d T (the
virial theorem: integrate by parts). The mean of theta . grad U / d is the *configurational* temperature: 1 for the
Bayes posterior, above it where steps or minibatch noise are too large, and T for a sampler that was told so.

Samplers with momentum hold m = v / sqrt(eta P / 2), whose mean square is the *kinetic* temperature. As steps get small
it tends to T where friction and noise act exactly (`baoa`), and to 2 T / (2 - alpha) where a step takes alpha of the
momentum away and adds noise of variance 2 alpha T; their states hold this `friction`. Wenzel et al. (2020) use both.

An average over all directions hides what is wrong along one. By the same theorem E[(v . theta) (v . grad U)] = T along
every unit vector v, so that the stiffest direction, the softest and that of the predictions can be looked at alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from darkbayes.compiled import compiled_briefly
from darkbayes.data.arrays import minibatch
from darkbayes.errors import InvalidInput
from darkbayes.estimates import standard_error
from darkbayes.model import Draw, Posterior
from darkbayes.teacher.gradients.base import energy, whole_gradient
from darkbayes.types import Array, ArrayLike, Chain, Data, Key, PyTree

POINTS = 32  # Training inputs, about, whose mean prediction is one of the directions looked at.
IMAGES = 1024  # That a gradient over all of them holds in memory at a time, with every layer of a convolution.
WELL_KNOWN = 0.25  # The largest standard error of a temperature along a direction that is told.
BATCHES = 8  # Minibatches by which the noise of a gradient is estimated, to about a quarter of itself for each draw.


class GradientNoise(NamedTuple):
    """What gradients look like at a draw."""

    temperature: Array  # theta . grad U / d with all examples.
    noise_to_signal: Array
    """The variance of the minibatch gradient, summed over the weights, over the square of the full gradient."""
    full: Array  # grad U with all examples, flat.
    slope: Array  # The gradient of the mean prediction, likewise.


def _dot(first: PyTree, second: PyTree) -> Array:
    parts = jax.tree.map(lambda a, b: jnp.sum(a.astype(jnp.float32) * b.astype(jnp.float32)), first, second)
    return jnp.sum(jnp.stack(jax.tree.leaves(parts)))


@compiled_briefly
def _of_each(
    posterior: Posterior, draws: Draw, data: Data, batch_size: int | None, examples: Array | None, key: Key
) -> GradientNoise:
    def at(pair: tuple[Key, Draw]) -> GradientNoise:
        key, draw = pair

        def gradient(batch: Data) -> PyTree:
            return jax.grad(energy(posterior, batch))(draw)

        # All examples are the first rows where the others only fill up.
        if examples is not None:
            full = jax.grad(lambda draw: -posterior.log_joint(draw, data, examples))(draw)
        elif data.x.ndim > 3:
            full = whole_gradient(posterior, data, draw, IMAGES)[1]
        else:
            full = gradient(data)
        temperature = _dot(draw, full) / optax.tree.size(draw)
        some = data.x[:: max(1, len(data.x) // POINTS)]
        slope = jax.grad(lambda draw: jnp.mean(posterior.distribution(draw, some).traced()))(draw)
        flat = [ravel_pytree(part)[0] for part in (full, slope)]
        if batch_size is None:
            return GradientNoise(temperature, jnp.zeros(()), *flat)

        def squared_gap(key: Key) -> Array:
            gap = jax.tree.map(jnp.subtract, gradient(minibatch(key, data, batch_size, examples)), full)
            return _dot(gap, gap)

        noise = jnp.mean(jax.lax.map(squared_gap, jax.random.split(key, BATCHES)))
        return GradientNoise(temperature, noise / _dot(full, full), *flat)

    # One draw after another: all at once would hold every hidden layer of all examples for every draw.
    return jax.lax.map(at, (jax.random.split(key, len(jax.tree.leaves(draws)[0])), draws))


def gradient_noise(chain: Chain, draws: PyTree, key: Key) -> GradientNoise | None:
    """Temperature and noise at `draws`, which lie along the first axis; None for a chain that holds no data.

    It takes a gradient over all examples, and `BATCHES` over minibatches, for each draw.
    """
    data = getattr(chain, "data", None)
    if data is None:
        return None
    batch_size, examples = (getattr(chain, name, None) for name in ("batch_size", "examples"))
    return _of_each(chain.posterior, draws, data, batch_size, examples, key)


def configurational_temperature(posterior: Posterior, draws: Draw, data: Data) -> np.ndarray:
    """theta . grad U / d of each draw along the first axis; 1 on average at the Bayes posterior.

    Args:
        posterior: what the draws are said to come from.
        draws: along the first axis.
        data: all examples.

    Returns:
        The temperature of each draw.
    """
    return np.asarray(_of_each(posterior, draws, data, None, None, jax.random.key(0)).temperature, np.float64)


def directional_temperatures(draws: np.ndarray, gradients: np.ndarray, slope: np.ndarray) -> dict[str, float]:
    """Temperatures along single directions, 1 at the Bayes posterior; of draws that are apart in time.

    The stiffest and the softest direction of each chain are found by every other draw and measured on those between,
    as a direction would look hot on the draws that it was chosen by.

    Args:
        draws, gradients: weights and grad U at them, flat, ``[chains, draws, weights]``.
        slope: the direction in which the mean prediction grows, ``[weights]``.

    Returns:
        The temperature along the `stiffest` direction, the `softest`, and that of `predictions`: those of them on which
        the chains agree well enough to tell it. Directions that are mixed of stiff and soft ones need many draws.

    >>> rng = np.random.default_rng(0)
    >>> scale = np.array([0.1, 1.0, 5.0])
    >>> draws = rng.normal(size=(4, 4000, 3)) * scale * np.sqrt([2.0, 1.0, 1.0])  # Too hot along the stiffest.
    >>> warmth = directional_temperatures(draws, draws / [0.01, 1.0, 25.0], np.array([0.0, 1.0, 0.0]))
    >>> {name: round(value, 1) for name, value in warmth.items()}
    {'stiffest': 2.0, 'softest': 1.0, 'predictions': 1.0}
    """

    def longest(rows: np.ndarray) -> np.ndarray:
        """The unit vector along which rows are longest."""
        return np.linalg.svd(rows, full_matrices=False)[2][0]

    number, warmth = draws[0, 1::2].shape[0], {}
    directions = {
        "stiffest": [longest(rows[::2]) for rows in gradients],
        "softest": [longest(rows[::2] - rows[::2].mean(axis=0)) for rows in draws],
        "predictions": [slope / np.maximum(np.linalg.norm(slope), np.finfo(np.float64).tiny)] * len(draws),
    }
    for name, vectors in directions.items():
        along, pull = (np.einsum("cnd,cd->cn", part[:, 1::2], np.stack(vectors)) for part in (draws, gradients))
        of_chains = ((along - along.mean(axis=1, keepdims=True)) * pull).sum(axis=1) / (number - 1)
        if (standard_error(of_chains) or np.inf) < WELL_KNOWN:
            warmth[name] = float(of_chains.mean())
    return warmth


def kinetic_temperature(momentum: PyTree, friction: ArrayLike = 0.0) -> float:
    """m . m / d times 1 - friction/2, of momenta m: their temperature, 1 on average at the Bayes posterior.

    Args:
        momentum: m, a pytree of arrays; several chains along a first axis are averaged.
        friction: what a step takes away of it; 0 where friction acts exactly. One for each chain, or for all.

    Returns:
        The temperature.

    >>> round(kinetic_temperature(jnp.array([1.0, -1.0]), friction=0.2), 6)
    0.9
    """
    leaves, size = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(momentum)], optax.tree.size(momentum)
    if size == 0:
        raise InvalidInput("kinetic_temperature needs momenta, not an empty tree")
    # Of chains, each may have found a friction of its own.
    keep = 1.0 - np.asarray(friction, np.float64) / 2.0
    energy = sum(float(np.sum(keep * np.moveaxis(leaf**2, 0, -1) if keep.ndim else keep * leaf**2)) for leaf in leaves)
    return energy / size


def chains_kinetic_temperature(states: Any) -> float | None:
    """That of the states of chains; None unless a transformation among them holds `momentum`."""
    if jax.tree.leaves(getattr(states, "momentum", None)):
        return kinetic_temperature(states.momentum, getattr(states, "friction", 0.0))
    parts = states.values() if isinstance(states, dict) else states if isinstance(states, tuple) else ()
    return next((warmth for part in parts if (warmth := chains_kinetic_temperature(part)) is not None), None)
