"""A uniform sample of past draws in constant memory (the paper's future work 2).

Vitter's algorithm R: the first `size` draws fill the slots; from then on the n-th draw overall takes the place of a
random slot with probability size/n. After any n, every draw so far is kept with the same probability, min(1, size/n).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from darkbayes.types import Array, Key, PyTree


class Reservoir(NamedTuple):
    """Kept draws and how many there were to choose from."""

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
