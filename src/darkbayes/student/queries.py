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

from darkbayes.data import augmentation
from darkbayes.errors import InvalidInput, require_count, require_positive, require_share
from darkbayes.model.posterior import Posterior
from darkbayes.namespaces import own
from darkbayes.types import Array, Key, PyTree

TINY = 1e-12  # Variances below which draws are taken to agree.


class Context(NamedTuple):
    """What a generator may look at besides the inputs."""

    posterior: Posterior
    """What the teacher explores."""
    draws: PyTree
    """The draws at hand, along the first axis."""
    inputs: Array
    """All training inputs."""


Queries = Callable[[Key, Array, Context], Array]


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


def augmented(augment: augmentation.Augment) -> Queries:
    """Training inputs as an augmentation changes them.

    Args:
        augment: such as ``db.data.augmentation.crop(4)``.

    Returns:
        The generator.

    >>> augmented(augmentation.flip())(jax.random.key(0), jnp.zeros((5, 3, 8, 8)), None).shape
    (5, 3, 8, 8)
    """
    return lambda key, x, context: augment(key, x)


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


def disagreement(
    start: Queries,
    steps: int = 2,
    size: float = 1.0,
    low: jax.typing.ArrayLike = -np.inf,
    high: jax.typing.ArrayLike = np.inf,
) -> Queries:
    """Queries moved to where the draws at hand disagree more: there is what a student has to learn of doubt.

    Each step ascends the logarithm of the variance over draws of what they predict (probabilities, or means), by a
    length that is random up to `size`, so that queries lie all along the way.

    Args:
        start: where the ascents begin.
        steps: how many steps each takes.
        size: the longest step, in units of the inputs.
        low, high: bounds that queries keep to, one number or one per feature; where they are equal, nothing moves.

    Returns:
        The generator.
    """
    require_count("steps", steps)
    require_positive("size", size)

    def spread(x: Array, context: Context) -> Array:
        if context.posterior is None:
            raise InvalidInput("disagreement needs draws of a posterior to follow: use other queries for models")
        predict = context.posterior.distribution
        said = jax.vmap(lambda draw: predict(draw, x).outputs())(context.draws)
        return jnp.sum(jnp.log(jnp.sum(jnp.var(said, axis=0), axis=-1) + TINY))

    def queries(key: Key, x: Array, context: Context) -> Array:
        start_key, size_key = jax.random.split(key)
        x = start(start_key, x, context)
        rows, last = (len(x),) + (1,) * (x.ndim - 1), tuple(range(1, x.ndim))
        least, most = (jnp.broadcast_to(jnp.asarray(bound, x.dtype), x.shape) for bound in (low, high))
        for length in size * jax.random.uniform(size_key, (steps, *rows), x.dtype):
            slope = jnp.where(least < most, jax.grad(spread)(x, context), 0.0)
            steep = jnp.sqrt(jnp.sum(slope**2, axis=last, keepdims=True))
            moved = x + length * jnp.where(jnp.isfinite(steep) & (steep > 0), slope / (steep + TINY), 0.0)
            x = jnp.where(least < most, jnp.clip(moved, least, most), x)
        return x

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


def image_queries(noise: float = 0.3) -> Queries:
    """Half of the queries distorted, half with Gaussian noise of standard deviation `noise`: a good choice for images.

    Distorted images stay where images lie; noise teaches the student what the teacher says away from there.

    Args:
        noise: the standard deviation of the noise.

    Returns:
        The generator.
    """
    return mix(distortion(), jitter(noise), 0.5)


def elastic(strength: float = 1.2, smoothness: float = 4.0) -> Queries:
    """Elastic distortion alone; see `distortion`.

    Args:
        strength, smoothness: of the displacements.

    Returns:
        The generator.
    """
    return distortion(strength, smoothness, rotation=0.0, scale=0.0, shear=0.0, shift=0.0)


def affine(rotation: float = 8.0, scale: float = 0.08, shear: float = 0.08, shift: float = 0.8) -> Queries:
    """A random affine map alone; see `distortion`.

    Args:
        rotation, scale, shear, shift: of the map.

    Returns:
        The generator.
    """
    return distortion(0.0, 1.0, rotation, scale, shear, shift)


def distortion(
    strength: float = 1.2,
    smoothness: float = 4.0,
    rotation: float = 8.0,
    scale: float = 0.08,
    shear: float = 0.08,
    shift: float = 0.8,
) -> Queries:
    """Training images under random affine and elastic distortion (Simard, Steinkraus and Platt, 2003).

    Every pixel is read, by bilinear interpolation, from a displaced place: the affine map of its own, plus a smooth
    random field; beyond the border it is the border. Inputs are ``[batch, height, width]`` or ``[batch, channels,
    height, width]``; all channels move together.

    Args:
        strength: the standard deviation of each displacement, in pixels.
        smoothness: over how many pixels displacements are alike (the standard deviation of the smoothing Gaussian).
        rotation: the largest angle, in degrees; the angle is uniform up to it, either way.
        scale: the largest relative change of size, of height and width independently.
        shear, shift: the largest shear, and the largest translation in pixels.

    Returns:
        The generator.

    >>> queries = distortion()
    >>> queries(jax.random.key(0), jnp.zeros((5, 28, 28)), None).shape
    (5, 28, 28)
    """
    return augmented(augmentation.distortion(strength, smoothness, rotation, scale, shear, shift))


def __dir__() -> list[str]:
    return own(globals())
