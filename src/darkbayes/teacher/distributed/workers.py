"""What the processes of a distributed run do together, by JAX's own collectives: agree, gather, hand chains on.

All devices form a mesh: along `data` lie the processes, each with a shard of its own, along `chain` the devices of a
process, which share its shard and divide its chains among them. Data never leave their process.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from darkbayes.processes import noticing_loss
from darkbayes.teacher.chain import Chains
from darkbayes.types import Array, PyTree


@functools.cache
def worker_mesh() -> Mesh:
    """All devices, ``[chain, data]``: a column for each process."""
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices).reshape(jax.process_count(), -1).T, ("chain", "data"))


def stop_asked(number: int) -> bool:
    """Whether some process was told to end (SIGTERM, which JAX catches) and all have come to the round to end at."""
    if jax.process_count() == 1 or not getattr(jax.config, "jax_enable_preemption_service", False):
        return False
    return multihost_utils.reached_preemption_sync_point(number)


def _on_the_mesh(chains: Chains) -> tuple[PyTree, PyTree]:
    """Chains as plain arrays of one group, ``[1, ...]``, and the axes of the mesh that they lie along."""
    plain = jax.tree.map(lambda leaf: leaf[None], chains._replace(key=jax.random.key_data(chains.key)))
    along = jax.tree.map(lambda leaf: PartitionSpec("data"), plain)
    own = jax.tree.map(lambda leaf: PartitionSpec("data", "chain"), (plain.states, plain.failure))
    return plain, along._replace(states=own[0], failure=own[1])


def _as_bytes(leaf: Array) -> Array:
    plain = leaf.astype(jnp.uint8) if leaf.dtype == bool else jax.lax.bitcast_convert_type(leaf, jnp.uint8)
    return plain.reshape(-1)


def _from_bytes(part: Array, like: Array) -> Array:
    if like.dtype == bool:
        return part.reshape(like.shape).astype(bool)
    width = () if like.dtype.itemsize == 1 else (like.dtype.itemsize,)
    return jax.lax.bitcast_convert_type(part.reshape(*like.shape, *width), like.dtype)


@functools.cache
def _passing(by: int, specifications: Any, structure: Any) -> Callable[[PyTree], PyTree]:
    """The compiled program that hands every group on by `by` workers."""
    mesh = worker_mesh()
    workers = mesh.shape["data"]
    pairs = [(worker, (worker + by) % workers) for worker in range(workers)]
    along = jax.tree.unflatten(structure, specifications)

    def passed(chains: PyTree) -> PyTree:
        # As one message: for small networks the number of messages is what costs.
        leaves, shape = jax.tree.flatten(chains)
        parts = [_as_bytes(leaf) for leaf in leaves]
        came = jax.lax.ppermute(jnp.concatenate(parts), "data", pairs)
        cut = jnp.split(came, np.cumsum([len(part) for part in parts])[:-1])
        return jax.tree.unflatten(shape, [_from_bytes(part, leaf) for part, leaf in zip(cut, leaves, strict=True)])

    # Not checked: that what all devices of a process hold alike they get alike.
    spread = jax.shard_map(passed, mesh=mesh, in_specs=(along,), out_specs=along, check_vma=False)
    return jax.jit(spread, donate_argnums=0)


def hand_on(chains: Chains, by: int) -> Chains:
    """Give the chains of this process to the one `by` further along and take those that come, all that is theirs.

    Their random keys travel with them, so what becomes of a chain does not depend on where it is but on the data there.
    """
    if jax.process_count() == 1:
        return chains
    kind = jax.random.key_impl(chains.key)
    plain, along = _on_the_mesh(chains)
    leaves, structure = jax.tree.flatten(along, is_leaf=lambda node: isinstance(node, PartitionSpec))
    with noticing_loss():
        mesh = worker_mesh()
        spread = multihost_utils.host_local_array_to_global_array(plain, mesh, along)
        moved = jax.block_until_ready(_passing(by, tuple(leaves), structure)(spread))
        here = multihost_utils.global_array_to_host_local_array(moved, mesh, along)
    here = jax.tree.map(lambda leaf: leaf[0], here)
    return place(here._replace(key=jax.random.wrap_key_data(here.key, impl=kind)))


def place(chains: Chains) -> Chains:
    """Chains divided among the devices of this process."""
    mesh, chains = _local_mesh(), replicate(chains)
    if mesh.size == 1:
        return chains
    own = jax.device_put((chains.states, chains.failure), NamedSharding(mesh, PartitionSpec("chain")))
    return chains._replace(states=own[0], failure=own[1])


def replicate(tree: PyTree) -> PyTree:
    """Arrays of which each device of this process has a copy."""
    mesh = _local_mesh()
    return jax.device_put(tree, mesh.devices.flat[0] if mesh.size == 1 else NamedSharding(mesh, PartitionSpec()))


@functools.cache
def _local_mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), ("chain",))
