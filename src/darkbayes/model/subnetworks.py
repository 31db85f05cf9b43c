"""Networks that begin from given weights, and networks of which only a part is uncertain."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, plain, require_positive
from darkbayes.types import Array, Key, Network, PyTree


def started_at(network: Network, params: PyTree, jitter: float = 0.0) -> Network:
    """The same network, begun from `params` rather than from random weights, by every chain and student.

    Args:
        network, params: any network, and weights for it, as its `init` or `from_torch` returns them.
        jitter: how far from `params` to begin, as a share of the root mean square of each array: every chain adds
            Gaussian noise of its own. Chains that all begin at one place agree with each other before they have
            forgotten it. So where `tune` or `split_rhat` is to tell whether they have, give them 0.1, say.

    Returns:
        The network with another `init`.

    >>> from darkbayes import mlp
    >>> network, x = mlp([4], 1), jnp.zeros((1, 3))
    >>> params = network.init(jax.random.key(0), x)
    >>> begun = started_at(network, params).init(jax.random.key(1), x)
    >>> bool(eqx.tree_equal(begun, params))
    True
    """
    require_positive("jitter", jitter, zero=True)
    return network._replace(init=_Start(network.init, jax.tree.map(jnp.asarray, params), jitter))


def subnetwork(network: Network, params: PyTree, mask: PyTree, jitter: float = 0.0) -> Network:
    """A network over some of the weights of another, with all others fixed as they are in `params`.

    Its weights are a pytree like `params` that holds nothing where `mask` is False, so that a chain over them costs
    what they cost, and nothing can move the others. They begin from `params`, with `jitter` as in `started_at`.

    Args:
        network, params: any network, and weights for it.
        mask: True where an array is to be inferred, False where it stays; a pytree like `params`, or like the upper
            part of it. `last_layer` makes the most common one.
        jitter: how far from `params` to begin.

    Returns:
        A network over the chosen weights.

    >>> from darkbayes import mlp
    >>> network, x = mlp([4], 1), jnp.zeros((1, 3))
    >>> params = network.init(jax.random.key(0), x)
    >>> head = subnetwork(network, params, last_layer(params))
    >>> [leaf.shape for leaf in jax.tree.leaves(head.init(jax.random.key(1), x))]
    [(1, 4), (1,)]
    """
    params = jax.tree.map(jnp.asarray, params)
    try:
        chosen, fixed = eqx.partition(params, mask)
    except (ValueError, TypeError) as problem:
        raise InvalidInput(f"mask must be a pytree of True and False with the structure of params: {problem}") from None
    if not jax.tree.leaves(chosen):
        raise InvalidInput("mask chooses no weights, so there is nothing to infer: set it to True somewhere")
    part = Network(lambda key, x: eqx.partition(network.init(key, x), mask)[0], _Merged(network.apply, fixed))
    return started_at(part, chosen, jitter)


def last_layer(params: PyTree) -> PyTree:
    """The mask for `subnetwork` that chooses the last layer of a network whose weights are a tuple, one per layer.

    Args:
        params: weights as `mlp`, `cnn` or `sequential` have them.

    Returns:
        A pytree like `params`, True for the arrays of the last layer that has any.

    >>> last_layer(({"w": 1.0}, {"w": 2.0, "b": 0.0}))
    ({'w': False}, {'b': True, 'w': True})
    """
    if not isinstance(params, tuple | list) or not jax.tree.leaves(params):
        needed, given = "weights that are a tuple, one element per layer", type(params).__name__
        raise InvalidInput(f"last_layer needs {needed}, not {given}: make a mask of True and False by hand")
    parts, structure = jax.tree.flatten(params, is_leaf=lambda node: node is not params)
    last = max(place for place, layer in enumerate(parts) if jax.tree.leaves(layer))
    marked = [jax.tree.map(lambda leaf, chosen=place == last: chosen, layer) for place, layer in enumerate(parts)]
    return jax.tree.unflatten(structure, marked)


class _Start(eqx.Module):
    """Weights near given ones; arrays of a pytree rather than of a closure, so as not to be compiled in."""

    like: Callable[[Key, Array], PyTree]
    params: PyTree
    jitter: float = eqx.field(converter=plain)

    def __call__(self, key: Key, x: Array) -> PyTree:
        wanted = jax.eval_shape(self.like, key, x)
        shapes = [[leaf.shape for leaf in jax.tree.leaves(params)] for params in (self.params, wanted)]
        if shapes[0] != shapes[1] or jax.tree.structure(self.params) != jax.tree.structure(wanted):
            unlike = f"their arrays have the shapes {shapes[0]}, it needs {shapes[1]}"
            raise InvalidInput(f"params are not weights of this network for inputs of shape {x.shape[1:]}: {unlike}")
        if not self.jitter:
            # A chain may give its state's memory away, which must not be the user's.
            return jax.tree.map(jnp.copy, self.params)

        def near(key: Key, leaf: Array) -> Array:
            size = jnp.sqrt(jnp.mean(leaf**2))
            return leaf + self.jitter * size * jax.random.normal(key, leaf.shape, leaf.dtype)

        leaves, structure = jax.tree.flatten(self.params)
        return jax.tree.unflatten(structure, map(near, jax.random.split(key, len(leaves)), leaves))


class _Merged(eqx.Module):
    """A network's `apply` with some of its weights fixed."""

    apply: Callable[[PyTree, Array], Array]
    fixed: PyTree

    def __call__(self, params: PyTree, x: Any) -> Array:
        return self.apply(eqx.combine(params, self.fixed), x)
