"""Random numbers in the shape of a pytree."""

import zlib
from collections.abc import Callable

import jax
import optax

from darkbayes.types import Array, Key, PyTree


def _of_group(key: Key, tree: PyTree) -> Key:
    """A key of its own for the part of a tree that a mask leaves over.

    ``optax.masked`` and ``optax.multi_transform`` hand one key to every group of parameters: without this, their noise
    would be the same.
    """
    paths = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda node: isinstance(node, optax.MaskedNode))
    seen = [jax.tree_util.keystr(path) for path, leaf in paths if not isinstance(leaf, optax.MaskedNode)]
    return key if len(seen) == len(paths) else jax.random.fold_in(key, zlib.crc32(str(seen).encode()))


def normal_like(key: Key, tree: PyTree) -> PyTree:
    """Independent standard normals, one for every element of `tree`, in its dtypes.

    All are drawn in one call and cut up: for small networks the number of calls is what costs.
    """
    return _like(tree, lambda size: jax.random.normal(_of_group(key, tree), (size,)))


def signs_like(key: Key, tree: PyTree) -> PyTree:
    """Independent signs, 1 or -1 with equal probability, one for every element of `tree`, in its dtypes."""
    return _like(tree, lambda size: jax.random.rademacher(_of_group(key, tree), (size,)))


def _like(tree: PyTree, draw: Callable[[int], Array]) -> PyTree:
    leaves, structure = jax.tree.flatten(tree)
    noise = draw(sum(leaf.size for leaf in leaves))
    parts, start = [], 0
    for leaf in leaves:
        parts.append(noise[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
        start += leaf.size
    return jax.tree.unflatten(structure, parts)
