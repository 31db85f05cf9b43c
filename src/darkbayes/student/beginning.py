"""Students that begin as their teachers: the hidden layers of several draws, side by side in one wider network.

A student of random weights spends most of its lessons on finding what its teacher's hidden units have found already.
One that holds some of these networks, each untouched by the others, only has to learn what they say together, and is
closer after as many lessons, on some tables by several times (`results/student-tuning.json`).
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from darkbayes.model.base import applied, as_floats, layers_of
from darkbayes.types import Array, Network, PyTree


def holding(network: Network, params: PyTree, draws: PyTree, x: Array) -> PyTree:
    """A network's weights, in whose first layers those of smaller networks lie side by side.

    Args:
        network: of linear layers.
        params: its weights.
        draws: those of smaller networks of linear layers with the same activation, which are stacked along the first
            axis. As many of them as there is room for are taken; their last layers are left out.
        x: inputs like those that it will see, the farthest included.

    Returns:
        The weights with these in them: inputs reach each of the smaller networks, and none hears of another. What comes
        behind them is scaled so that it begins as if they said numbers of about one. Units that are left over stay as
        they were. Where the smaller networks have more layers or are wider, nothing changes.

    >>> import jax, darkbayes as db
    >>> x, small, wide = jnp.ones((1, 3)), db.mlp([2], 1, jnp.tanh), db.mlp([5, 4], 1, jnp.tanh)
    >>> draws = jax.vmap(lambda key: small.init(key, x))(jax.random.split(jax.random.key(0), 8))
    >>> params = holding(wide, wide.init(jax.random.key(1), x), draws, x)
    >>> bool((params[0].weight[2:4] == draws[0].weight[1]).all())
    True
    """
    pairs = list(zip(params[:-1], draws[:-1], strict=False))
    linear = all(isinstance(layer, eqx.nn.Linear) and layer.bias is not None for layer in (*params, *draws))
    if len(draws) > len(params) or not linear:
        return params
    room = min([len(draws[0].weight), *(len(wide.weight) // small.weight.shape[1] for wide, small in pairs)])
    if not room or not pairs:
        return params
    held = tuple(_filled(wide, small, room, place > 0) for place, (wide, small) in enumerate(pairs))
    behind, *rest = params[len(held) :]
    said = applied(_up_to(network, len(held)), held, as_floats(x))
    size = jnp.maximum(jnp.sqrt(jnp.mean(said**2)), 1.0)
    return (*held, eqx.tree_at(lambda layer: layer.weight, behind, behind.weight / size), *rest)


def _up_to(network: Network, number: int) -> tuple[Any, ...]:
    """The first layers of a network, so many with weights and all before the next that has any."""
    layers = layers_of(network)
    places = [place for place, layer in enumerate(layers) if layer.weighted]
    return layers[: places[number]]


def _filled(wide: Any, small: Any, room: int, apart: bool) -> Any:
    """A layer with so many others in its first rows, each with inputs of its own if they are `apart`."""
    weights = small.weight[:room]
    rows: Array = weights.reshape(-1, weights.shape[-1])
    if apart:
        own = jnp.eye(room)[:, None, :, None] * weights[:, :, None, :]
        rows = own.reshape(len(rows), -1)
    rows = jnp.pad(rows, ((0, 0), (0, wide.weight.shape[1] - rows.shape[1])))
    weight = jnp.concatenate([rows, wide.weight[len(rows) :]])
    bias = jnp.concatenate([small.bias[:room].reshape(-1), wide.bias[len(rows) :]])
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), wide, (weight, bias))
