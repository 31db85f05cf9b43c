"""The paper's two toy problems, with what it leaves open fixed once.

The paper gives neither the class means and covariances of the 2-D problem nor the seed of either. Here the
classes are centred at (-2, -2) and (2, 2) with covariance 2I, ten points each; the 1-D problem is that of
Hernandez-Lobato and Adams (2015), 20 points of y = x^3 + N(0, 9) with x uniform on [-4, 4].
"""

import jax
import jax.numpy as jnp

from darkbayes.types import Data, Key

TOY1D_NOISE_VARIANCE = 9.0


def toy2d(key: Key, per_class: int = 10) -> Data:
    """Two Gaussian classes in the plane.

    Args:
        key, per_class: where the randomness comes from, and how many points of each class.

    Returns:
        Inputs ``[2 * per_class, 2]`` and their classes.

    >>> toy2d(jax.random.key(0)).x.shape
    (20, 2)
    """
    noise = jnp.sqrt(2.0) * jax.random.normal(key, (2 * per_class, 2))
    y = jnp.repeat(jnp.arange(2, dtype=jnp.int32), per_class)
    return Data(jnp.where(y[:, None] == 0, -2.0, 2.0) + noise, y)


def toy1d(key: Key, examples: int = 20) -> Data:
    """A noisy cubic on [-4, 4].

    Args:
        key, examples: where the randomness comes from, and how many points.

    Returns:
        Inputs and targets, both ``[examples, 1]``.

    >>> toy1d(jax.random.key(0)).y.shape
    (20, 1)
    """
    input_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(input_key, (examples, 1), minval=-4.0, maxval=4.0)
    return Data(x, x**3 + jnp.sqrt(TOY1D_NOISE_VARIANCE) * jax.random.normal(noise_key, x.shape))
