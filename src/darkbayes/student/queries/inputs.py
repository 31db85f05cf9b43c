"""Where the student asks its teacher: generators of inputs, which need no labels.

A generator is called as ``queries(key, x, context)`` with a random batch ``x`` of training inputs and returns as many
queries. `context` holds the posterior, the draws at hand (for generators that look where draws disagree) and all
training inputs (for those that look at neighbours).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, require_positive, require_share
from darkbayes.model.posterior import Posterior
from darkbayes.types import Array, Key, PyTree


class Context(NamedTuple):
    """What a generator may look at besides the inputs."""

    posterior: Posterior
    """What the teacher explores."""
    draws: PyTree
    """The draws at hand, along the first axis."""
    inputs: Array
    """All training inputs."""


Queries = Callable[[Key, Array, Context], Array]


def ask(queries: Queries, rows_key: Key, key: Key, number: int, context: Context) -> Array:
    """So many queries of a generator, from training inputs drawn at random."""
    rows = jax.random.randint(rows_key, (number,), 0, len(context.inputs))
    x = context.inputs[rows]
    asked = queries(key, x, context)
    if asked.shape != x.shape:
        raise InvalidInput(f"queries have shape {asked.shape}, not that of their inputs, {x.shape}")
    return asked


def training_inputs() -> Queries:
    """The training inputs themselves.

    Returns:
        The generator.
    """
    return lambda key, x, context: x


def jitter(scale: float, columns: Sequence[int] | None = None) -> Queries:
    """Training inputs with Gaussian noise of standard deviation `scale`, the paper's choice beyond two dimensions.

    Args:
        scale: the standard deviation.
        columns: numbers of the columns that get noise; all unless given.

    Returns:
        The generator.

    >>> jitter(0.5, columns=[1])(jax.random.key(0), jnp.zeros((3, 2)), None)[:, 0].tolist()
    [0.0, 0.0, 0.0]
    """
    require_positive("scale", scale)

    def queries(key: Key, x: Array, context: Context) -> Array:
        noise = scale * jax.random.normal(key, x.shape, x.dtype)
        if columns is None:
            return x + noise
        chosen = np.zeros(x.shape[-1], x.dtype)
        chosen[list(columns)] = 1.0
        return x + noise * chosen

    return queries


def exchange(groups: Sequence[Sequence[int]], share: float) -> Queries:
    """Rows in which each group of columns is, with probability `share`, that of another row of the batch.

    It is for columns that hold a category together: they always hold one that occurs.

    Args:
        groups: numbers of the columns of each group.
        share: the probability that a group is exchanged.

    Returns:
        The generator.

    >>> rows = jnp.asarray([[1.0, 0.0], [0.0, 1.0]])
    >>> exchange([[0, 1]], 0.5)(jax.random.key(0), rows, None).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    require_share("share", share, one=True)

    def queries(key: Key, x: Array, context: Context) -> Array:
        group_of = np.full(x.shape[-1], len(groups))
        for number, group in enumerate(groups):
            group_of[list(group)] = number
        partner_key, choice_key = jax.random.split(key)
        shape = len(x), len(groups)
        swapped = jax.random.bernoulli(choice_key, share, shape)
        own = jnp.arange(len(x))[:, None]
        rows = jnp.where(swapped, jax.random.randint(partner_key, shape, 0, len(x)), own)
        # Columns of no group come from the row itself.
        rows = jnp.concatenate([rows, own], axis=1)
        return x[rows[:, group_of], np.arange(x.shape[-1])[None]]

    return queries


def uniform_box(low: jax.typing.ArrayLike, high: jax.typing.ArrayLike) -> Queries:
    """Uniform on a box, the paper's choice in low dimensions.

    Args:
        low, high: the bounds, one number or one per feature.

    Returns:
        The generator.

    >>> queries = uniform_box(-10.0, 10.0)
    >>> queries(jax.random.key(0), jnp.zeros((5, 2)), None).shape
    (5, 2)
    """
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (np.asarray(low) < np.asarray(high)).all()):
        raise InvalidInput(f"uniform_box needs finite low < high in every feature, not low={low}, high={high}")

    def queries(key: Key, x: Array, context: Context) -> Array:
        sides = np.broadcast_shapes(np.shape(low), np.shape(high))
        if sides and sides != x.shape[-len(sides) :]:
            shape = x.shape[1:]
            raise InvalidInput(f"uniform_box has sides {sides}, but an input has shape {shape}: give one per feature")
        return jax.random.uniform(key, x.shape, x.dtype, jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype))

    return queries


def mix(first: Queries, second: Queries, weight: float) -> Queries:
    """Each query from `first` with probability `weight`, otherwise from `second`.

    Args:
        first, second: two generators.
        weight: the probability of a query of the first.

    Returns:
        The generator.
    """
    if not 0.0 <= weight <= 1.0:
        raise InvalidInput(f"weight must lie between 0 and 1, not {weight!r}")

    def queries(key: Key, x: Array, context: Context) -> Array:
        first_key, second_key, choice_key = jax.random.split(key, 3)
        choice = jax.random.bernoulli(choice_key, weight, (len(x),) + (1,) * (x.ndim - 1))
        return jnp.where(choice, first(first_key, x, context), second(second_key, x, context))

    return queries


def compose(*steps: Queries) -> Queries:
    """The queries of each generator become the inputs of the next.

    Args:
        steps: generators, the first of which gets training inputs.

    Returns:
        The generator.
    """
    if not steps:
        raise InvalidInput("compose needs at least one generator of queries")

    def queries(key: Key, x: Array, context: Context) -> Array:
        for step, step_key in zip(steps, jax.random.split(key, len(steps)), strict=True):
            x = step(step_key, x, context)
        return x

    return queries


def mixup() -> Queries:
    """Uniformly random points on the lines between pairs of training inputs (Zhang et al., 2018).

    Returns:
        The generator.

    >>> queries = mixup()
    >>> queries(jax.random.key(0), jnp.ones((5, 2)), None).tolist()[0]
    [1.0, 1.0]
    """

    def queries(key: Key, x: Array, context: Context) -> Array:
        pair_key, weight_key = jax.random.split(key)
        partner = jax.random.permutation(pair_key, x)
        weight = jax.random.uniform(weight_key, (len(x),) + (1,) * (x.ndim - 1), x.dtype)
        return partner + weight * (x - partner)

    return queries


def munge(swap: float = 0.5, spread: float = 1.0, categorical: Sequence[int] = ()) -> Queries:
    """MUNGE (Bucila, Caruana and Niculescu-Mizil, 2006): training rows that take values from their nearest neighbours.

    Each feature of a row changes with probability `swap`: a number is drawn from a Gaussian around the neighbour's
    value with standard deviation ``|difference| / spread``, a category is the neighbour's. The neighbour is the nearest
    training input that differs from the row.

    Args:
        swap: the probability that a feature changes.
        spread: the larger, the closer to the neighbour's values.
        categorical: the columns whose values must be ones that occur.

    Returns:
        The generator.
    """
    if not 0.0 < swap <= 1.0:
        raise InvalidInput(f"swap must lie in (0, 1], not {swap!r}")
    require_positive("spread", spread)

    def queries(key: Key, x: Array, context: Context) -> Array:
        if x.ndim != 2 or any(not 0 <= column < x.shape[1] for column in categorical):
            raise InvalidInput(f"munge needs rows of features, {tuple(categorical)} among them, not shape {x.shape}")
        swap_key, noise_key = jax.random.split(key)
        square = jnp.sum((x[:, None, :] - context.inputs[None]) ** 2, axis=-1)
        neighbour = context.inputs[jnp.argmin(jnp.where(square > 0, square, jnp.inf), axis=1)]
        numeric = np.isin(np.arange(x.shape[1]), categorical, invert=True).astype(x.dtype)[None]
        noise = numeric * jnp.abs(x - neighbour) / spread * jax.random.normal(noise_key, x.shape, x.dtype)
        return jnp.where(jax.random.bernoulli(swap_key, swap, x.shape), neighbour + noise, x)

    return queries
