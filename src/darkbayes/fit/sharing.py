"""What lets fits share compiled code: those of the same networks differ in arrays alone.

Compiling takes longer than most fits, and whoever compares settings or folds of their data fits many times. So all
that may differ is an array, and shapes are filled up to one of few:

    rows       repeated from the first on; minibatches are drawn from the examples alone, so that the posterior is
               exactly that of the examples;
    columns    of zeros after the last. Their weights tell nothing of the others, which have the posterior that they
               would have without them, and are taken off in the end.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from darkbayes.baselines import raise_if_diverged
from darkbayes.compiled import compiled_briefly, compiled_soon
from darkbayes.model import Draw, Posterior
from darkbayes.student.queries import Context, Queries
from darkbayes.tables.schema import REACH, bend
from darkbayes.teacher.chain import MinibatchChain, burn, start_chains
from darkbayes.teacher.gradients.base import minibatch_gradients
from darkbayes.teacher.microcanonical import MicrocanonicalChain
from darkbayes.teacher.samplers import AutoStep, default_sampler
from darkbayes.types import Array, Data, Key, Network, PyTree

LEAST_ROWS = 256
"""Rows that fewer examples are filled up to."""
LEAST_COLUMNS = 8
"""Columns that fewer are filled up to."""
ENERGY_ERROR = 5e-3
"""What a chain on all rows may change its energy by in a step, squared and per weight. The few stiffest directions have
too little variance then, on two known posteriors .6 and .3 of theirs along the very stiffest, which the doubt at random
inputs does not notice (.99, .94 on average); a tenth of the error mends most of that, and in as many steps the teachers
of tables come out no better (`darkbayes bench truth`). In a long run it is the error that predictions notice."""
START_BATCH, START_RATE = 100, 5e-3
"""Examples in a step of the optimisations whose ends chains begin at, and their learning rate, which falls to zero."""
START_PRIOR = 0.1
"""The precision of their prior at most: under a narrower one deep networks often end where all weights are zero, a
saddle that no optimisation leaves and from which chains are slow (`naval` had 1.8 nats less)."""
TOGETHER = 4
"""Optimisations that run side by side."""
CROSSED, ONE, SEVERAL = 0.2, 0.35, 0.2
"""Of the queries that reach outside, the share of crosses of two rows, of rows with one number moved, and with some;
all are moved in the others."""
SOME = 0.3
"""The probability that a number is among those that are moved."""
NEAREST, FARTHEST = 0.2, 2.5
"""How far numbers are moved, uniformly on a logarithmic scale: from a part of their range to so many times the reach
beyond which `bend` tells nothing apart. Nearer is what other queries ask, farther is all the same
(`results/query-tuning.json`)."""
UNSEEN = 0.1
"""The probability that a category is an unknown one, outside."""
BLOCK = 512
"""Rows that are predicted at a time; fewer are filled up."""
MONITORED = 256
"""Queries at which a student is compared with its teacher as it learns."""


def filled_up(number: int, least: int) -> int:
    """The number of rows or columns that so many become: a multiple of `least`, and of four to each power of two.

    >>> [filled_up(number, 8) for number in (1, 13, 33, 1000)]
    [8, 16, 40, 1024]
    """
    stride = max(2 ** max((number - 1).bit_length() - 3, 0), least)
    return -(-max(number, 1) // stride) * stride


def split(key: Key, number: int) -> list[Key]:
    """So many keys: up to eight are those that ``jax.random.split`` makes of eight, by one program for any number."""
    keys = list(_split(key))
    return keys[:number] if number <= len(keys) else keys[:-1] + split(keys[-1], number - len(keys) + 1)


@jax.jit
def _split(key: Key) -> tuple[Key, ...]:
    return tuple(jax.random.split(key, 8))


def permutation(key: Key, number: int) -> np.ndarray:
    """What ``jax.random.permutation`` returns, by a program that serves other numbers as well: sorted in numpy."""
    order, filled = np.arange(number), filled_up(number, 2 * LEAST_ROWS)
    # As many rounds as leave ties among the random bits without consequence.
    for _ in range(int(np.ceil(3 * np.log(max(1, number)) / np.log(np.iinfo(np.uint32).max)))):
        key, bits_key = split(key, 2)
        order = order[np.argsort(np.asarray(_bits(bits_key, filled))[:number], kind="stable")]
    return order


@functools.partial(jax.jit, static_argnums=1)
def _bits(key: Key, number: int) -> Array:
    return jax.random.bits(key, (number,))


def fill_columns(x: Any, columns: int) -> np.ndarray:
    """Rows with columns of zeros after the last."""
    x = np.asarray(x)
    return np.pad(x, ((0, 0), (0, columns - x.shape[1])))


def fill_rows(rows: Any) -> Array:
    """Rows repeated from the first on."""
    return jax.device_put(np.asarray(rows)[np.arange(filled_up(len(rows), LEAST_ROWS)) % len(rows)])


def some_rows(data: Data, rows: np.ndarray) -> Data:
    """Some of the examples, in numpy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], data)


def real(number: Any) -> Array:
    """A number as an array, which ``jnp.asarray`` would compile a program for."""
    return jax.device_put(np.float32(number))


def count(number: Any) -> Array:
    """The same of a count."""
    return jax.device_put(np.int32(number))


def filled_rows(posterior: Posterior, data: Data, number: int | None = None) -> tuple[Posterior, Data, Array]:
    """The posterior with its numbers as arrays, rows repeated from the first on, and how many are the examples.

    It is that of so many examples, or of those that there are.
    """
    posterior.likelihood.check_targets(data.y)
    numbers = real(posterior.prior.precision), real(number or len(data.x))  # pyright: ignore[reportAttributeAccessIssue]
    posterior = eqx.tree_at(lambda posterior: (posterior.prior.precision, posterior.num_data), posterior, numbers)
    return posterior, jax.tree.map(fill_rows, data), count(len(data.x))


def make_chain(posterior: Posterior, data: Data, batch_size: int) -> MinibatchChain:
    """The default chain on minibatches, to be tuned; `batch_size` may be more than there are examples, and these may be
    some of those that the posterior is about."""
    weights = jax.tree.leaves(jax.eval_shape(posterior.network.init, jax.random.key(0), data.x))
    posterior, data, examples = filled_rows(posterior, data, posterior.num_data)
    widest = max(leaf.size // leaf.shape[0] for leaf in weights)
    sampler = default_sampler(posterior, batch_size, widest * posterior.prior.precision)  # pyright: ignore[reportAttributeAccessIssue]
    return MinibatchChain(posterior, sampler, data, batch_size, 0, 1, minibatch_gradients(), examples=examples)


def whole_chain(
    posterior: Posterior, data: Data, start: Draw, *, burn_in: int, thin: int, effort: float = 1.0
) -> MicrocanonicalChain:
    """The default chain on all rows; the more effort, the less error is left."""
    posterior, data, examples = filled_rows(posterior, data)
    error = real(ENERGY_ERROR / np.sqrt(max(effort, 1.0)))
    return MicrocanonicalChain(posterior, data, count(burn_in), count(thin), error, False, start, examples)


def optimised(posterior: Posterior, data: Data, key: Key, number: int, steps: int) -> Draw:
    """The ends of so many optimisations from random weights, along the first axis; those that diverged left out."""
    precision = min(float(posterior.prior.precision), START_PRIOR)  # pyright: ignore[reportAttributeAccessIssue]
    posterior = eqx.tree_at(lambda posterior: posterior.prior.precision, posterior, precision)
    posterior, data, examples = filled_rows(posterior, data)
    adam: Any = FallingAdam(START_RATE, real(steps))
    chain = MinibatchChain(posterior, adam, data, START_BATCH, 0, 1, minibatch_gradients(), examples=examples)
    # By the few: trying candidates and fitting take different numbers, and share a program.
    keys = split(key, -(-number // TOGETHER))
    groups = [modes(chain, key, TOGETHER) for key in keys]
    ends = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[:number], *groups)
    finite = np.all([np.isfinite(leaf).reshape(number, -1).all(axis=1) for leaf in jax.tree.leaves(ends)], axis=0)
    if not finite.any():
        raise_if_diverged(ends)
    return jax.tree.map(lambda leaf: jax.device_put(leaf[finite]), ends)


def with_arrays(chain: MinibatchChain) -> MinibatchChain:
    """A tuned chain whose lengths are arrays."""
    sampler = chain.transformation
    assert isinstance(sampler, AutoStep)
    sampler = dataclasses.replace(sampler, ramp=real(sampler.ramp))
    return dataclasses.replace(chain, transformation=sampler, burn_in=count(chain.burn_in), thin=count(chain.thin))


@compiled_briefly
def monitored(chain: MinibatchChain | MicrocanonicalChain, queries: Queries) -> Array:
    """Queries that no student learns from."""
    query_key, init_key, rows_key = jax.random.split(jax.random.key(MONITORED), 3)
    draws = jax.tree.map(lambda leaf: leaf[None], chain.init(init_key).params)
    rows = jax.random.randint(rows_key, (MONITORED,), 0, len(chain.inputs))
    return queries(query_key, chain.inputs[rows], Context(chain.posterior, draws, chain.inputs))


class FallingAdam(eqx.Module):
    """Adam whose learning rate falls to zero along a cosine, over a number of updates that is an array."""

    rate: Array | float
    updates: Array
    clip: float | None = None
    """The norm that gradients are cut down to, if any."""

    def _adam(self) -> optax.GradientTransformation:
        def rate(count: Any) -> Array:
            passed = jnp.minimum(jnp.asarray(count, jnp.float32) / self.updates, 1.0)
            return self.rate * 0.5 * (1.0 + jnp.cos(jnp.pi * passed))

        return (
            optax.adam(rate)
            if self.clip is None
            else optax.chain(optax.clip_by_global_norm(self.clip), optax.adam(rate))
        )

    def init(self, params: PyTree) -> Any:
        return self._adam().init(params)

    def update(self, grads: PyTree, state: Any, params: PyTree | None = None, **extra: Any) -> tuple[PyTree, Any]:
        return self._adam().update(grads, state, params)


@compiled_soon
def modes(descent: MinibatchChain, key: Key, number: int) -> Draw:
    """The ends of so many optimisations by a `FallingAdam` from random weights, along the first axis."""
    optimiser: Any = descent.transformation
    return burn(descent, start_chains(descent, key, number), optimiser.updates.astype(jnp.int32)).draws


class TableQueries(eqx.Module):
    """Rows near those of the table, and rows that reach outside.

    Near are rows with noise or between two rows, in which categories are sometimes another row's. Outside are crosses
    of two rows, and rows of which one number, some or all are moved far, as far as `TableSchema.bent` lets them;
    categories there are sometimes unknown ones.

    >>> queries = table_queries(3, np.zeros((2, 1)), groups=[(1, 2)], scales=(0.1, 0.5), between=0.2, share=0.5)
    >>> queries(jax.random.key(0), jnp.asarray([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), None)[:, 1:].sum(axis=1).tolist()
    [1.0, 1.0]
    """

    numbers: Array = eqx.field(converter=jax.device_put)
    """1 for a column that gets noise, 0 for others."""
    ends: Array = eqx.field(converter=jax.device_put)
    """Between which values of each column lie, ``[2, columns]``; zeros for columns that are no numbers."""
    first: Array = eqx.field(converter=jax.device_put)
    """The first column of the group that each belongs to; those of no group are one by themselves."""
    grouped: Array = eqx.field(converter=jax.device_put)
    """Which columns belong to groups."""
    scales: tuple[float, ...]
    """Standard deviations of the noise, each for an equal part of the rows that get it."""
    between: float
    """The probability that a row, in place of noise, is moved towards another row."""
    share: float
    """The probability that a group of a row is another row's."""
    outside: float = 0.0
    """The share of the queries that reach outside."""

    def __call__(self, key: Key, x: Array, context: Context) -> Array:
        # Few calls for many random numbers: each call takes long to compile.
        row_key, cell_key, noise_key = jax.random.split(key, 3)
        by_row = jax.random.uniform(row_key, (6, len(x), 1))
        by_cell = jax.random.uniform(cell_key, (5 if self.outside else 2, *x.shape))
        near = self._near(x, by_row[1:], by_cell, jax.random.normal(noise_key, x.shape))
        return jnp.where(by_row[0] < self.outside, self._far(x, by_row[1:], by_cell), near) if self.outside else near

    def _near(self, x: Array, by_row: Array, by_cell: Array, noise: Array) -> Array:
        kind, far, partner, weight, _ = by_row
        noise = jnp.asarray(self.scales)[(far * len(self.scales)).astype(jnp.int32)] * noise * self.numbers
        towards = self._rows(x, partner)
        x = jnp.where(kind < self.between, towards + weight * (x - towards), x + noise)
        chance, partner = by_cell[:2, :, self.first]
        return jnp.where(self.grouped & (chance < self.share), self._rows(x, partner), x)

    def _far(self, x: Array, by_row: Array, by_cell: Array) -> Array:
        kind, side, partner, distance, together = by_row
        crossing = (kind < CROSSED) | (kind > 1 - CROSSED / 2)
        chance, unseen = by_cell[:2, :, self.first]
        x = jnp.where(crossing & (chance < 0.5), self._rows(x, partner), x)
        x = jnp.where(self.grouped & (unseen < UNSEEN), 0.0, x)
        score, distances, sides = by_cell[2:]
        score = jnp.where(self.numbers > 0, score, -1.0)
        one, some = score == score.max(axis=1, keepdims=True), score > 1 - SOME
        moved = jnp.where(kind < CROSSED + ONE, one, (kind > CROSSED + ONE + SEVERAL) | some) & (kind > CROSSED)
        # All together to one side, or each by itself.
        distance = jnp.where(together < 0.5, distance, distances)
        side = jnp.where(jnp.where(together < 0.5, side, sides) < 0.5, -1.0, 1.0)
        low, high = self.ends
        nearest = NEAREST * jnp.maximum(high - low, 1.0)
        there = x + side * nearest * jnp.maximum(FARTHEST * REACH / nearest, 1.0) ** distance
        return jnp.where(moved & (self.numbers > 0), bend(there, low, high, REACH, jnp), x)

    def _rows(self, x: Array, chances: Array) -> Array:
        """Cells of rows drawn at random, each from its own column."""
        return x[(chances * len(x)).astype(jnp.int32), np.arange(x.shape[1])[None]]

    def over(self, columns: int) -> "TableQueries":
        """The same where there are columns of zeros after the last, which stay."""
        width = len(self.numbers)
        more = (0, columns - width)
        first = np.append(np.asarray(self.first), np.arange(width, columns))
        return dataclasses.replace(
            self,
            numbers=np.pad(np.asarray(self.numbers), more),
            ends=np.pad(np.asarray(self.ends), ((0, 0), more)),
            first=first,
            grouped=np.pad(np.asarray(self.grouped), more),
        )

    def near(self) -> "TableQueries":
        """The same without those that reach outside."""
        return dataclasses.replace(self, outside=0.0)


def table_queries(
    width: int,
    ends: np.ndarray,
    groups: Any,
    scales: tuple[float, ...],
    between: float,
    share: float,
    outside: float = 0.0,
) -> TableQueries:
    """Queries of rows whose first columns are numbers between `ends`, with groups of columns given by their places."""
    numbers, first, grouped = np.zeros(width, np.float32), np.arange(width), np.zeros(width, bool)
    numbers[: ends.shape[1]] = 1.0
    for group in groups:
        first[list(group)], grouped[list(group)] = group[0], True
    spread = np.pad(ends, ((0, 0), (0, width - ends.shape[1]))).astype(np.float32)
    return TableQueries(numbers, spread, first, grouped, scales, between, share, outside)


def predicted(network: Network, weights: PyTree, x: Any, predict: Callable[[PyTree, np.ndarray], Any]) -> Any:
    """What ``predict(weights, x)`` says of rows or images, by one program for all numbers of them and most of columns.

    Args:
        network: whose weights they are.
        weights: as it has them for inputs like `x`, with further axes in front or not.
        x: the inputs.
        predict: makes a prediction of `BLOCK` inputs.

    Returns:
        The prediction of each input.
    """
    x = np.asarray(x, np.float32)
    if x.ndim == 2:
        x = fill_columns(x, filled_up(x.shape[1], LEAST_COLUMNS))
        weights = reshaped(network, weights, x[:1])
    parts = []
    for start in range(0, len(x), BLOCK):
        block = np.zeros((BLOCK, *x.shape[1:]), np.float32)
        some = x[start : start + BLOCK]
        block[: len(some)] = some
        parts.append(predict(weights, block)[: len(some)])
    return parts[0].joined(parts[1:])


class Start(NamedTuple):
    """What another fit of the same networks may go on from."""

    draws: Draw
    """Draws of the teacher, along the first axis, at which chains begin."""
    params: PyTree
    """The student's weights."""


def reshaped(network: Network, weights: PyTree, x: Any) -> PyTree:
    """Weights of a network, with further axes in front or not, as it has them for inputs like `x`.

    Weights of columns that there were not are zero; those of columns that are gone are taken off.
    """
    like = jax.eval_shape(network.init, jax.random.key(0), x)
    leaves = [
        _to_shape(np.asarray(leaf), to.shape) for leaf, to in zip(*map(jax.tree.leaves, (weights, like)), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _to_shape(leaf: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    front = leaf.ndim - len(shape)
    cut = leaf[(slice(None),) * front + tuple(slice(size) for size in shape)]
    return np.pad(cut, [(0, 0)] * front + [(0, to - size) for size, to in zip(cut.shape[front:], shape, strict=True)])
