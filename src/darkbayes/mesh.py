"""Where arrays lie when many devices, of one process or of several, share a run.

Devices form a mesh: along `chain` they divide the chains of a teacher, along `data` the rows. Programs are those of one
device: JAX divides them by where their arrays lie, and sums and averages across devices by its own collectives. Every
process runs the same program, so whatever is decided by the clock is decided by the first of them (`processes.py`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from darkbayes.errors import InvalidInput, require_count
from darkbayes.types import PyTree

CHAIN, DATA = "chain", "data"


def device_mesh(data: int = 1) -> Mesh:
    """All devices of all processes, most of them along chains.

    Args:
        data: how many devices share the rows of each chain; the others have chains of their own.

    Returns:
        The mesh, with the axes ``chain`` and ``data``.

    >>> dict(device_mesh().shape)["data"]
    1
    """
    devices = np.array(jax.devices())
    if len(devices) % require_count("data", data):
        raise InvalidInput(f"data={data} must divide the {len(devices)} devices")
    return Mesh(devices.reshape(-1, data), (CHAIN, DATA))


def laid(tree: PyTree, mesh: Mesh, rows: int | None = None) -> PyTree:
    """Arrays that every process has whole, on all devices; those of so many `rows`, if they can be, divided by rows."""

    def lay(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | np.ndarray):
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(lay(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        whole = np.asarray(leaf)
        divided = rows is not None and whole.shape[:1] == (rows,) and rows % mesh.shape[DATA] == 0
        place = NamedSharding(mesh, PartitionSpec(DATA) if divided else PartitionSpec())
        return jax.make_array_from_callback(whole.shape, place, lambda index: whole[index])

    return jax.tree.map(lay, tree)


def kept(tree: PyTree, mesh: Mesh | None, *axes: str) -> PyTree:
    """The arrays within a program, held to an axis of the mesh by their first one, or whole everywhere."""
    if mesh is None:
        return tree
    place = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, place), tree)


def divided(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """A function within a program as each device calls it: with all of the first argument and its part of the others.

    Those lie along chains, and so does what it returns.
    """
    along, axes = PartitionSpec(CHAIN), frozenset([CHAIN])

    def call(all_of: PyTree, *parts: PyTree) -> Any:
        places = (PartitionSpec(), *(along for _ in parts))
        own = jax.shard_map(function, mesh=mesh, in_specs=places, out_specs=along, axis_names=axes, check_vma=False)
        return own(all_of, *parts)

    return call


def gathered(tree: PyTree) -> PyTree:
    """The arrays of a run on a mesh, whole and in the memory of every process."""

    def fetch(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(fetch(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        return jnp.asarray(on_host(leaf))

    return jax.tree.map(fetch, tree)


def on_host(leaf: jax.Array) -> np.ndarray:
    """An array as NumPy has it, whole on every process."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable and not leaf.is_fully_replicated:
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)
