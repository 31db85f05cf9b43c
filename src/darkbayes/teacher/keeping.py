"""What a run keeps of its draws, in memory that does not grow with their number: an average, a sample and a trace."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.outcomes.heads.base import Distribution
from darkbayes.types import Array, Key, PyTree


class Average(eqx.Module):
    """Running mean and variance over draws of each statistic of their predictions."""

    count: Array  # How many draws.
    mean: dict[str, Array]  # Of each statistic, by its name.
    variance: dict[str, Array]  # Likewise.
    kind: type[Distribution] = eqx.field(static=True)  # The distribution that a draw predicts.


def average_init(predictions: Distribution) -> Average:
    """An average of nothing, shaped for `predictions` with their draws along the first axis."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), predictions.statistics())
    return Average(jnp.zeros((), jnp.int32), zeros, zeros, type(predictions))


def average_add(average: Average, predictions: Distribution) -> Average:
    """Take in the predictions of several draws, along the first axis."""
    # Merged as in Chan, Golub and LeVeque (1979): no sum of squares, so nothing cancels.
    statistics = predictions.statistics()
    new = len(jax.tree.leaves(statistics)[0])
    count = average.count + new
    share = new / count

    def merge_variance(variance: Array, mean: Array, values: Array) -> Array:
        gap = jnp.mean(values, axis=0) - mean
        return (1 - share) * (variance + share * gap**2) + share * jnp.var(values, axis=0)

    variance = jax.tree.map(merge_variance, average.variance, average.mean, statistics)
    mean = jax.tree.map(lambda old, values: old + share * (jnp.mean(values, axis=0) - old), average.mean, statistics)
    return Average(count, mean, variance, average.kind)


class Reservoir(NamedTuple):
    """A uniform sample of past draws (the paper's future work 2), and how many there were to choose from.

    Vitter's algorithm R: the first `size` draws fill the slots; from then on the n-th draw overall takes the place of a
    random slot with probability size/n. After any n, every draw so far is kept with the same probability.
    """

    slots: PyTree  # Draws with a leading axis of the reservoir's size.
    count: Array  # How many draws have been offered.


def reservoir_init(size: int, like: PyTree) -> Reservoir:
    """An empty reservoir for draws like `like`."""
    slots = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), like)
    return Reservoir(slots, jnp.zeros((), jnp.int32))


def reservoir_add(key: Key, reservoir: Reservoir, draw: PyTree) -> Reservoir:
    """Offer one draw."""
    size = len(jax.tree.leaves(reservoir.slots)[0])
    count = reservoir.count + 1
    slot = jnp.where(count <= size, count - 1, jax.random.randint(key, (), 0, count))
    # Out-of-range slots are those of draws that are not kept.
    slots = jax.tree.map(lambda slots, value: slots.at[slot].set(value, mode="drop"), reservoir.slots, draw)
    return Reservoir(slots, count)


def reservoir_pick(key: Key, reservoir: Reservoir, number: int, instead: PyTree) -> PyTree:
    """`number` kept draws, picked independently and uniformly, or copies of `instead` while there are none."""
    size = len(jax.tree.leaves(reservoir.slots)[0])
    filled = jnp.clip(reservoir.count, 1, size)
    rows = jax.random.randint(key, (number,), 0, filled)
    some = reservoir.count > 0
    return jax.tree.map(lambda slots, draw: jnp.where(some, slots[rows], draw), reservoir.slots, instead)


POINTS = 32  # At how many inputs predictions are traced: enough for a median and a worst one.
SLOTS = 256  # How many predictions of each chain are kept: a thousand of four chains, an even number.


class Trace(NamedTuple):
    """Predictions of the chains at a few inputs, evenly over the whole run, and when they were made.

    Of the draws offered, numbered from 0, it takes every `stride`-th. Once its slots are full the stride is doubled,
    and each prediction that is taken from then on replaces one that the doubled stride leaves out, the oldest first.
    So those whose numbers are multiples of the stride are there at any time: at least half of the slots.
    """

    values: Array  # ``[chains, slots, points, outputs]``.
    taken: Array  # The number of the draw that each slot holds, ``[slots]``; -1 for an empty slot.
    count: Array  # How many draws each chain has offered.
    stride: Array  # How many draws lie between two that are taken now.


def traced(predictions: Distribution) -> Array:
    """What is traced of `predictions` with the chains along the first axis, ``[chains, points, outputs]``."""
    return jax.vmap(at_traced)(predictions.traced())


def at_traced(values: Any) -> Any:
    """Those of the values at the monitored inputs, along the first axis, that belong to traced ones."""
    return values[:: -(-len(values) // POINTS)]


def trace_init(predictions: Distribution, slots: int = SLOTS) -> Trace:
    """An empty trace, shaped for `predictions` with the chains along the first axis; `slots` must be even."""
    first = traced(predictions)
    values, taken = jnp.zeros((len(first), slots, *first.shape[1:]), first.dtype), jnp.full(slots, -1, jnp.int32)
    return Trace(values, taken, count=jnp.zeros((), jnp.int32), stride=jnp.ones((), jnp.int32))


def trace_add(trace: Trace, predictions: Distribution) -> Trace:
    """Offer what the present draw of each chain predicts."""
    slots, number = len(trace.taken), trace.count
    stride = jnp.where(number >= slots * trace.stride, 2 * trace.stride, trace.stride)
    # With stride 2s, draw (slots + 2j) s takes the place of draw (2j + 1) s, and the first ones fill empty slots.
    left_out = jnp.where(stride == 1, -1, number - (slots - 1) * (stride // 2))
    slot = jnp.where(number % stride == 0, jnp.argmax(trace.taken == left_out), slots)
    values = trace.values.at[:, slot].set(traced(predictions), mode="drop")
    return Trace(values, trace.taken.at[slot].set(number, mode="drop"), number + 1, stride)


def trace_read(trace: Trace) -> tuple[np.ndarray, int]:
    """The traced predictions in the order in which they were made, evenly spaced, and the draws between two of them.

    >>> from darkbayes.outcomes import Normal
    >>> trace = trace_init(Normal(jnp.zeros((1, 1, 1)), jnp.ones((1, 1, 1))), slots=4)
    >>> for number in range(11):
    ...     trace = trace_add(trace, Normal(jnp.full((1, 1, 1), float(number)), jnp.ones((1, 1, 1))))
    >>> values, stride = trace_read(trace)
    >>> values.ravel().tolist(), stride
    ([0.0, 4.0, 8.0], 4)
    """
    values, taken, stride = (np.asarray(part) for part in jax.device_get((trace.values, trace.taken, trace.stride)))
    kept = np.flatnonzero((taken >= 0) & (taken % stride == 0))
    return values[:, kept[np.argsort(taken[kept])]], int(stride)
