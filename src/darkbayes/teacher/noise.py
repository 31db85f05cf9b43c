"""Random numbers in the shape of a pytree."""

import jax

from darkbayes.types import Key, PyTree


def normal_like(key: Key, tree: PyTree) -> PyTree:
    """Independent standard normals, one for every element of `tree`, in its dtypes.

    All are drawn in one call and cut up: for small networks the number of calls is what costs.

    >>> import jax.numpy as jnp
    >>> normal_like(jax.random.key(0), {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)})["w"].shape
    (3, 2)
    """
    leaves, structure = jax.tree.flatten(tree)
    noise = jax.random.normal(key, (sum(leaf.size for leaf in leaves),))
    parts, start = [], 0
    for leaf in leaves:
        parts.append(noise[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
        start += leaf.size
    return jax.tree.unflatten(structure, parts)
