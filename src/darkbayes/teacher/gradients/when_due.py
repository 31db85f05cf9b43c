"""Work that is due at some steps only, and is then due in all chains."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from darkbayes.types import Array, PyTree


def when_due(due: Array, work: Callable[..., PyTree], otherwise: PyTree, *operands: PyTree) -> PyTree:
    """``work(*operands)`` if `due`, else `otherwise`; done only when due, under ``vmap`` too.

    ``vmap`` turns a ``lax.cond`` whose predicate differs from chain to chain into doing both and choosing. Here the
    work is done if it is due in any chain, and each chain then chooses; as chains count their steps alike, it is due in
    all or in none, and costs what it costs one chain.

    Args:
        due: a single boolean.
        work: what to do; it must not close over traced values.
        otherwise: what to return instead, of the same structure, shapes and dtypes as the result of `work`.
        operands: pytrees of arrays.

    >>> def step(count, x):
    ...     return when_due(count % 2 == 0, lambda x: 10.0 * x, x, x)
    >>> jax.vmap(step)(jnp.array([2, 2]), jnp.array([1.0, 2.0])).tolist()
    [10.0, 20.0]
    """

    @custom_vmap
    def choose(due: Array, otherwise: PyTree, operands: tuple[PyTree, ...]) -> PyTree:
        return jax.lax.cond(due, lambda _, operands: work(*operands), lambda old, _: old, otherwise, operands)

    @choose.def_vmap
    def of_chains(size: int, batched: Any, due: Array, otherwise: PyTree, operands: tuple[PyTree, ...]) -> Any:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched)

        def spread(leaf: Array, is_batched: bool) -> Array:
            return leaf if is_batched else jnp.broadcast_to(leaf[None], (size, *leaf.shape))

        def each_chooses(due: Array, otherwise: PyTree, operands: tuple[PyTree, ...]) -> PyTree:
            def one(due: Array, otherwise: PyTree, operands: tuple[PyTree, ...]) -> PyTree:
                return jax.tree.map(lambda new, old: jnp.where(due, new, old), work(*operands), otherwise)

            return jax.vmap(one, in_axes=axes, axis_size=size)(due, otherwise, operands)

        old = jax.tree.map(spread, otherwise, batched[1])
        # Through `when_due` again, for chains within runs within data sets.
        result = when_due(jnp.any(due), each_chooses, old, due, otherwise, operands)
        return result, jax.tree.map(lambda leaf: True, result)

    return choose(due, otherwise, operands)
