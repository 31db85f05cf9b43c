"""Random numbers in the shape of a pytree."""

import zlib

import jax
import optax
from jax.flatten_util import ravel_pytree

from darkbayes.types import Key, PyTree


def _of_group(key: Key, tree: PyTree) -> Key:
    """A key of its own for the part of a tree that a mask of optax leaves over, whose groups all get the same key."""
    paths = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda node: isinstance(node, optax.MaskedNode))
    seen = [jax.tree_util.keystr(path) for path, leaf in paths if not isinstance(leaf, optax.MaskedNode)]
    return key if len(seen) == len(paths) else jax.random.fold_in(key, zlib.crc32(str(seen).encode()))


def normal_like(key: Key, tree: PyTree) -> PyTree:
    """Independent standard normals, one for every element of `tree`, in its dtypes."""
    # All are drawn in one call and cut up: for small networks the number of calls is what costs.
    flat, restore = ravel_pytree(tree)
    return restore(jax.random.normal(_of_group(key, tree), flat.shape).astype(flat.dtype))


def signs_like(key: Key, tree: PyTree) -> PyTree:
    """Independent signs, 1 or -1 with equal probability, one for every element of `tree`, in its dtypes."""
    flat, restore = ravel_pytree(tree)
    return restore(jax.random.rademacher(_of_group(key, tree), flat.shape).astype(flat.dtype))
