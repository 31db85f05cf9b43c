"""The gradient of all examples, a chunk at a time."""

import jax
import jax.numpy as jnp

from darkbayes.model import Draw, Posterior
from darkbayes.types import Array, Data, PyTree


def at_least_single(leaf: Array) -> Array:
    """In single precision if it was half."""
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def whole_gradient(posterior: Posterior, data: Data, params: Draw, chunk_size: int) -> tuple[Array, PyTree]:
    """U and its gradient (see `darkbayes.teacher.gradients`) on all examples, in single precision at least.

    Examples are taken `chunk_size` at a time: the memory that it takes does not grow with their number.
    """
    number = len(data.x)
    size = min(chunk_size, number)

    def of_rows(start: Array | int, rows: int) -> tuple[Array, PyTree]:
        part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, rows), data)
        return jax.value_and_grad(lambda draw: -jnp.sum(posterior.log_likelihood(draw, part)))(params)

    def add(total: tuple[Array, PyTree], part: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        return jax.tree.map(lambda sum_, leaf: sum_ + leaf.astype(sum_.dtype), total, part)

    of_prior = jax.value_and_grad(lambda draw: -posterior.log_prior(draw))(params)
    total = jax.tree.map(at_least_single, of_prior)
    whole, left_over = divmod(number, size)
    if whole == 1:
        total = add(total, of_rows(0, size))
    else:
        total = jax.lax.fori_loop(0, whole, lambda k, total: add(total, of_rows(k * size, size)), total)
    return add(total, of_rows(whole * size, left_over)) if left_over else total
