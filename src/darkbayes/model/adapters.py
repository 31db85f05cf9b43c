"""Modules of Equinox and Flax as networks. What keeps state between batches has no posterior and is refused."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from darkbayes.errors import InvalidInput
from darkbayes.types import Array, Key, Network, PyTree

_REMEDY = "so that no posterior is defined: replace batch norm by LayerNorm or GroupNorm"


def from_equinox(build: Callable[[Key], Any]) -> Network:
    """Adapt an Equinox module, given as the function that builds it from a key.

    Its floating-point arrays are the weights. To start every chain from one trained module, pass
    ``lambda key: module``.

    Args:
        build: makes the module from a key.

    Returns:
        The module as a network.

    >>> import jax.numpy as jnp
    >>> network = from_equinox(lambda key: eqx.nn.MLP(3, 2, 8, 1, key=key))
    >>> x = jnp.zeros((5, 3))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (5, 2)
    """

    def init(key: Key, x: Array) -> PyTree:
        module = build(key)
        for leaf in jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, eqx.nn.StateIndex)):
            if isinstance(leaf, eqx.nn.StateIndex):
                raise InvalidInput(f"the module keeps state between calls, {_REMEDY}")
        return eqx.filter(module, eqx.is_inexact_array)

    def apply(params: PyTree, x: Array) -> Array:
        # Only what is not a weight is wanted of the rebuilt module; XLA drops the rest as dead code.
        rest = eqx.filter(build(jax.random.key(0)), eqx.is_inexact_array, inverse=True)
        return jax.vmap(eqx.combine(params, rest))(x)

    return Network(init, apply)


def from_linen(module: Any) -> Network:
    """Adapt a Flax Linen module that needs nothing but its ``params``.

    Args:
        module: the module.

    Returns:
        The module as a network.
    """

    def init(key: Key, x: Array) -> PyTree:
        variables = dict(module.init(key, x))
        params = variables.pop("params")
        if variables:
            raise InvalidInput(f"the module keeps {sorted(variables)} besides its params, {_REMEDY}")
        return params

    return Network(init, lambda params, x: module.apply({"params": params}, x))


def from_nnx(build: Callable[[Any], Any]) -> Network:
    """Adapt a Flax NNX module, given as the function that builds it from ``nnx.Rngs``.

    Args:
        build: makes the module from its random streams.

    Returns:
        The module as a network.
    """
    from flax import nnx

    def split(key: Key) -> tuple[Any, Any, Any]:
        graph, params, rest = nnx.split(build(nnx.Rngs(key)), nnx.Param, ...)
        return graph, params, rest

    def init(key: Key, x: Array) -> PyTree:
        _, params, rest = split(key)
        if jax.tree.leaves(rest):
            kinds = sorted({type(variable).__name__ for _, variable in nnx.to_flat_state(rest)})
            raise InvalidInput(f"the module keeps {kinds} besides its params, {_REMEDY}, and leave out dropout")
        return params

    def apply(params: PyTree, x: Array) -> Array:
        graph, _, rest = split(jax.random.key(0))
        return nnx.merge(graph, params, rest)(x)

    return Network(init, apply)
