"""Gradients with less noise: the batch only tells how the gradient differs from that at an anchor.

With U and U_B as in `darkbayes.teacher.gradients.base`, and an anchor a at which the gradient of all examples is known,

    g = grad U(a) + grad U_B(theta) - grad U_B(a)
      = grad U(a) + [grad -log p(theta) - grad -log p(a)] + N/M sum_B [grad_i(theta) - grad_i(a)].

It has the mean of grad U(theta), whatever the anchor, and the prior's part is exact. Its variance, that of the last
sum, is none at the anchor and grows with the square of the distance from it, where that of the plain gradient stays.

A step costs two gradients of the batch. It pays where the posterior is narrow compared with how the gradients of
examples bend: many examples, few weights. Far from its anchor it has more noise than the plain gradient.
`control_variates` keeps one anchor, near the mode (Baker et al., 2019); `svrg` takes the chain's own position, and a
new one every so many steps (Dubey et al., 2016).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from darkbayes.errors import InvalidInput, require_count
from darkbayes.model import Draw, Posterior
from darkbayes.teacher.gradients.base import GradientEstimate, Gradients, at_least_single, energy, whole_gradient
from darkbayes.types import Array, Data, Key, PyTree


class AtAnchor(NamedTuple):
    """U and its gradient on all examples at an anchor."""

    value: Array
    grads: PyTree


def _from_anchor(
    posterior: Posterior, batch: Data, params: Draw, anchor: Draw, known: AtAnchor, state: PyTree
) -> GradientEstimate:
    value_and_grad = jax.value_and_grad(energy(posterior, batch))
    here, there = value_and_grad(params), value_and_grad(anchor)

    def correct(known: Array, here: Array, there: Array) -> Array:
        return (known + (at_least_single(here) - at_least_single(there))).astype(here.dtype)

    value, grads = jax.tree.map(correct, tuple(known), here, there)
    return GradientEstimate(value, grads, {}, state)


class _ControlVariates(eqx.Module):
    anchor: Draw
    chunk_size: int

    def init(self, posterior: Posterior, data: Data, params: Draw) -> AtAnchor:
        kinds = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), draw) for draw in (self.anchor, params)]
        if kinds[0] != kinds[1]:
            wrong = f"anchor holds weights of other shapes than the posterior's draws, {kinds[0]} and not {kinds[1]}"
            raise InvalidInput(f"{wrong}: give one draw of the same posterior, without leading axes")
        return AtAnchor(*whole_gradient(posterior, data, self.anchor, self.chunk_size))

    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any
    ) -> GradientEstimate:
        return _from_anchor(posterior, batch, params, self.anchor, state, state)


def control_variates(anchor: Draw, *, chunk_size: int = 1000) -> Gradients:
    """Gradients corrected by those at one fixed anchor, near the mode of the posterior.

    The gradient of all examples at the anchor is computed once, when the chains start. Starting the chains near the
    anchor is left to the burn-in.

    Args:
        anchor: a draw; the closer to the mode, the less noise. An optimiser as teacher finds one, as below.
        chunk_size: examples at a time in the gradient of all examples.

    Returns:
        What to give `minibatch_chain` as `gradients`.

    >>> import darkbayes as db, optax
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([4], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> descent = db.minibatch_chain(posterior, optax.adam(0.05), *data, batch_size=None, burn_in=500)
    >>> draws = db.sample(descent, jax.random.key(1), num_chains=1, num_draws=1)
    >>> mode = jax.tree.map(lambda leaf: leaf[0, 0], draws)
    >>> gradients = control_variates(mode)
    >>> teacher = db.minibatch_chain(posterior, db.sgld(1e-2), *data, batch_size=5, gradients=gradients)
    >>> db.sample(teacher, jax.random.key(2), num_chains=2, num_draws=3).network[0].weight.shape
    (2, 3, 4, 2)
    """
    return _ControlVariates(jax.tree.map(jnp.asarray, anchor), require_count("chunk_size", chunk_size))


def when_due(due: Array, work: Callable[..., PyTree], otherwise: PyTree, *operands: PyTree) -> PyTree:
    """``work(*operands)`` if `due`, else `otherwise`; done only when due, under ``vmap`` too.

    ``vmap`` turns a ``lax.cond`` whose predicate differs from chain to chain into doing both and choosing. Here the
    work is done if it is due in any chain, and each chain then chooses; as chains count their steps alike, it is due in
    all or in none, and costs what it costs one chain. `work` must not close over traced values.

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

        def chooses(due: Array, otherwise: PyTree, operands: tuple[PyTree, ...]) -> PyTree:
            return jax.tree.map(lambda new, old: jnp.where(due, new, old), work(*operands), otherwise)

        each_chooses = jax.vmap(chooses, in_axes=axes, axis_size=size)
        old = jax.tree.map(spread, otherwise, batched[1])
        # Through `when_due` again, for chains within runs within data sets.
        result = when_due(jnp.any(due), each_chooses, old, due, otherwise, operands)
        return result, jax.tree.map(lambda leaf: True, result)

    return choose(due, otherwise, operands)


class SVRGState(NamedTuple):
    """The number of steps taken, the present anchor, and what is known there."""

    count: Array
    anchor: Draw
    known: AtAnchor


class _SVRG(eqx.Module):
    refresh_every: int
    chunk_size: int

    def init(self, posterior: Posterior, data: Data, params: Draw) -> SVRGState:
        # The first step finds out; all that is needed before are the shapes.
        known = jax.eval_shape(lambda: AtAnchor(*whole_gradient(posterior, data, params, self.chunk_size)))
        unknown = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), known)
        return SVRGState(jnp.zeros((), jnp.int32), params, unknown)

    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any
    ) -> GradientEstimate:
        arrays, rest = eqx.partition(posterior, eqx.is_array)

        def refresh(arrays: PyTree, data: Data, params: Draw) -> tuple[Draw, AtAnchor]:
            return params, AtAnchor(*whole_gradient(eqx.combine(arrays, rest), data, params, self.chunk_size))

        due = state.count % self.refresh_every == 0
        anchor, known = when_due(due, refresh, (state.anchor, state.known), arrays, data, params)
        return _from_anchor(posterior, batch, params, anchor, known, SVRGState(state.count + 1, anchor, known))


def svrg(refresh_every: int, *, chunk_size: int = 1000) -> Gradients:
    """Gradients corrected by those at the chain's own position some steps ago.

    Every `refresh_every` steps, the first included, the anchor becomes the present position and the gradient of all
    examples is computed there. Chains side by side all refresh at the same steps, and only then does it cost anything.

    Args:
        refresh_every: steps between two anchors. At about N/M the gradients of all examples cost as much as all the
            others together.
        chunk_size: examples at a time in the gradient of all examples; as many in every chain.

    Returns:
        What to give `minibatch_chain` as `gradients`.
    """
    return _SVRG(require_count("refresh_every", refresh_every), require_count("chunk_size", chunk_size))
