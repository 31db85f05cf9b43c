"""Where the student asks its teacher: generators of inputs, which need no labels.

A generator is called as ``queries(key, x, context)`` with a random batch ``x`` of training inputs and returns as many
queries. `context` holds the posterior and the draws at hand, for generators that look where draws disagree.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, require_positive
from darkbayes.model import Posterior
from darkbayes.types import Array, Key, PyTree


class Context(NamedTuple):
    """What a generator may look at besides the inputs."""

    posterior: Posterior
    draws: PyTree


Queries = Callable[[Key, Array, Context], Array]


def training_inputs() -> Queries:
    """The training inputs themselves."""
    return lambda key, x, context: x


def jitter(scale: float) -> Queries:
    """Training inputs with Gaussian noise of standard deviation `scale`, the paper's choice beyond two dimensions."""
    require_positive("scale", scale)
    return lambda key, x, context: x + scale * jax.random.normal(key, x.shape, x.dtype)


def uniform_box(low: jax.typing.ArrayLike, high: jax.typing.ArrayLike) -> Queries:
    """Uniform on a box, given by one number or one per feature; the paper's choice in low dimensions.

    >>> queries = uniform_box(-10.0, 10.0)
    >>> queries(jax.random.key(0), jnp.zeros((5, 2)), None).shape
    (5, 2)
    """
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (np.asarray(low) < np.asarray(high)).all()):
        raise InvalidInput(f"uniform_box needs finite low < high in every feature, not low={low}, high={high}")

    def queries(key: Key, x: Array, context: Context) -> Array:
        sides = np.broadcast_shapes(np.shape(low), np.shape(high))
        if sides and sides != x.shape[-len(sides) :]:
            raise InvalidInput(
                f"uniform_box has sides {sides}, but an input has shape {x.shape[1:]}: give one per feature"
            )
        return jax.random.uniform(key, x.shape, x.dtype, jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype))

    return queries


def mix(first: Queries, second: Queries, weight: float) -> Queries:
    """Each query from `first` with probability `weight`, otherwise from `second`."""
    if not 0.0 <= weight <= 1.0:
        raise InvalidInput(f"weight must lie between 0 and 1, not {weight!r}")

    def queries(key: Key, x: Array, context: Context) -> Array:
        first_key, second_key, choice_key = jax.random.split(key, 3)
        choice = jax.random.bernoulli(choice_key, weight, (len(x),) + (1,) * (x.ndim - 1))
        return jnp.where(choice, first(first_key, x, context), second(second_key, x, context))

    return queries
