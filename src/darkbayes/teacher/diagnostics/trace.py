"""What each chain has predicted over a whole run, in memory that does not grow with its length.

A trace has room for `SLOTS` predictions of each chain at a few fixed inputs. Of the draws offered, numbered from 0, it
takes every `stride`-th. Once its slots are full the stride is doubled, and each prediction that is taken from then on
replaces one that the doubled stride leaves out, the oldest first. So those whose numbers are multiples of the stride
are there at any time: at least half of the slots, evenly over the whole run, and nothing is ever moved.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.outcomes.heads.base import Distribution
from darkbayes.types import Array

POINTS = 32  # At how many inputs predictions are traced: enough for a median and a worst one.
SLOTS = 256  # How many predictions of each chain are kept: a thousand of four chains, an even number.


class Trace(NamedTuple):
    """Predictions of the chains at a few inputs, and when they were made."""

    values: Array  # ``[chains, slots, points, outputs]``.
    taken: Array  # The number of the draw that each slot holds, ``[slots]``; -1 for an empty slot.
    count: Array  # How many draws each chain has offered.
    stride: Array  # How many draws lie between two that are taken now.


def traced(predictions: Distribution) -> Array:
    """What is traced of `predictions` with the chains along the first axis, ``[chains, points, outputs]``."""
    values = predictions.traced()
    return values[:, :: -(-values.shape[1] // POINTS)]


def trace_init(predictions: Distribution, slots: int = SLOTS) -> Trace:
    """An empty trace, shaped for `predictions` with the chains along the first axis; `slots` must be even."""
    first = traced(predictions)
    return Trace(
        values=jnp.zeros((len(first), slots, *first.shape[1:]), first.dtype),
        taken=jnp.full(slots, -1, jnp.int32),
        count=jnp.zeros((), jnp.int32),
        stride=jnp.ones((), jnp.int32),
    )


def trace_add(trace: Trace, predictions: Distribution) -> Trace:
    """Offer what the present draw of each chain predicts."""
    slots, number = len(trace.taken), trace.count
    stride = jnp.where(number >= slots * trace.stride, 2 * trace.stride, trace.stride)
    # With stride 2s, draw (slots + 2j) s takes the place of draw (2j + 1) s, and the first ones fill empty slots.
    left_out = jnp.where(stride == 1, -1, number - (slots - 1) * (stride // 2))
    slot = jnp.where(number % stride == 0, jnp.argmax(trace.taken == left_out), slots)
    return Trace(
        values=trace.values.at[:, slot].set(traced(predictions), mode="drop"),
        taken=trace.taken.at[slot].set(number, mode="drop"),
        count=number + 1,
        stride=stride,
    )


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
