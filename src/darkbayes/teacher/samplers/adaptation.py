"""What samplers share: how they are made of a first state and a step, running means, and other small arithmetic."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from darkbayes.errors import require_count
from darkbayes.teacher.noise import normal_like
from darkbayes.types import Array, Key, PyTree


class MomentumState(NamedTuple):
    """The number of steps taken, the momentum, and the friction, by which to read its temperature.

    Carried along is m = v / sqrt(eta/2), whose law does not depend on eta: another step size leaves it as warm.
    """

    count: Array
    momentum: PyTree
    friction: Array


class InformationState(NamedTuple):
    """The number of steps taken, and the information in the data about the weights."""

    count: Array
    information: PyTree


def noisy(init: Callable[[PyTree], Any], move: Callable[..., Any]) -> optax.GradientTransformationExtraArgs:
    """A sampler from its first state and ``move(grads, state, noise, **extra)``, which returns updates and a state.

    The noise is standard normal and in the shape of the gradients. Updates get their dtypes, and the step is counted.
    """

    def update(grads: PyTree, state: Any, params: PyTree | None = None, *, key: Key, **extra: Any) -> Any:
        updates, state = move(grads, state, normal_like(key, grads), **extra)
        updates = jax.tree.map(lambda moved, g: jnp.asarray(moved, g.dtype), updates, grads)
        return updates, state._replace(count=state.count + 1)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def first_momentum(params: PyTree, friction: float) -> MomentumState:
    """That of a chain at rest."""
    return MomentumState(jnp.zeros((), jnp.int32), zeros_in_single(params), jnp.asarray(friction, jnp.float32))


def zeros_in_single(params: PyTree) -> PyTree:
    """Zeros like the weights, in single precision at least: in half, a thousandth more or less is lost.

    >>> zeros_in_single(jnp.ones(2, jnp.bfloat16)).dtype
    dtype('float32')
    """
    return jax.tree.map(lambda w: jnp.zeros(w.shape, jnp.float64 if w.dtype == jnp.float64 else jnp.float32), params)


def check_adapt_steps(adapt_steps: int | None) -> int | None:
    """Refuse what is neither None nor a whole number of at least one."""
    return None if adapt_steps is None else require_count("adapt_steps (None to adapt for ever)", adapt_steps)


def still_adapting(share: Array, count: Array, adapt_steps: int | None) -> Array:
    """What a running mean takes in of a new value: `share` for the first `adapt_steps` steps, then nothing."""
    return share if adapt_steps is None else jnp.where(count < adapt_steps, share, jnp.zeros_like(share))


def share_of_new(count: Array, decay: float, adapt_steps: int | None) -> Array:
    """The weight of a new value in a mean that keeps `decay` of itself; the first steps weigh alike.

    >>> [round(float(share_of_new(jnp.int32(t), 0.6, adapt_steps=4)), 3) for t in range(5)]
    [1.0, 0.5, 0.4, 0.4, 0.0]
    """
    share = jnp.maximum(1.0 / (count + 1).astype(jnp.float32), 1.0 - decay)
    return still_adapting(share, count, adapt_steps)


def mean_of_squares(squares: PyTree, grads: PyTree, share: Array) -> PyTree:
    """The running mean of the squares of the gradients, with the present ones taken in."""

    def add(mean: Array, g: Array) -> Array:
        return mean + share.astype(mean.dtype) * (g.astype(mean.dtype) ** 2 - mean)

    return jax.tree.map(add, squares, grads)


def root(variance: Any) -> Array:
    """The square root; zero, with a derivative of zero, where the variance is not positive.

    >>> root(jnp.array([4.0, -1.0])).tolist(), jax.grad(root)(0.0).tolist()
    ([2.0, 0.0], 0.0)
    """
    positive = variance > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1.0)), 0.0)
