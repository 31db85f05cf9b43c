"""Convolutions as matrix products, in which many draws are computed at once.

A convolution whose weights differ from draw to draw is, to cuDNN, one in groups, which it computes slowly; and draws in
turn leave a GPU waiting for its next kernel. Products of matrices come in batches at no such cost.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from darkbayes.model.base import Layer, layers_of, pair, with_weights
from darkbayes.model.layers import Activation, Conv2d, FilterResponseNorm, Residual
from darkbayes.types import Array, Network


def by_products(network: Network) -> Network:
    """The same network with every convolution computed as a product of matrices, the channels of an image last.

    Args:
        network: one that says what layers it is made of.

    Returns:
        The network with another `apply`; its weights, layers and exports are the same.

    >>> import jax, darkbayes as db
    >>> network, x = db.resnet(10, depth=8, width=4), jnp.ones((2, 3, 8, 8))
    >>> params = network.init(jax.random.key(0), x)
    >>> bool(jnp.allclose(by_products(network).apply(params, x), network.apply(params, x), atol=1e-5))
    True
    """
    return network._replace(apply=_applied_by_products(layers_of(network)))


@functools.lru_cache(maxsize=256)  # Networks that are the same functions share what was compiled for them.
def _applied_by_products(layers: tuple[Layer, ...]) -> Any:
    def apply(params: Sequence[Any], x: Array) -> Array:
        x = _applied(layers, params, jnp.moveaxis(x, 1, -1) if x.ndim == 4 else x)
        return jnp.moveaxis(x, -1, 1) if x.ndim == 4 else x

    return apply


def _applied(layers: tuple[Layer, ...], params: Sequence[Any], x: Array) -> Array:
    for layer, weights in with_weights(layers, params):
        x = _apply(layer, weights, x)
    return x


def _apply(layer: Layer, weights: Any, x: Array) -> Array:
    """What a layer makes of images with their channels last, or of rows."""
    if isinstance(layer, Residual):
        body, shortcut = (_applied(part, own, x) for part, own in zip(layer.parts.values(), weights, strict=True))
        return body + shortcut
    if isinstance(layer, FilterResponseNorm):
        size = jnp.sqrt(jnp.mean(x**2, axis=(1, 2), keepdims=True) + layer.epsilon)
        return jnp.maximum(weights.weight * x / size + weights.bias, weights.threshold)
    if isinstance(layer, Conv2d) and layer.is_product(weights):
        product = _convolved(layer, weights.weight, x)
        return product if weights.bias is None else product + jnp.ravel(weights.bias)
    if x.ndim != 4 or isinstance(layer, Activation):
        return layer.apply(weights, x)
    result = layer.apply(weights, jnp.moveaxis(x, -1, 1))
    return jnp.moveaxis(result, 1, -1) if result.ndim == 4 else result


def _convolved(layer: Conv2d, weight: Array, x: Array) -> Array:
    """A convolution as one product: of the columns of each window, after which rows are added, or of whole windows."""
    (height, width), (down, right), (outputs, _) = pair(layer.kernel_size), pair(layer.stride), weight.shape[:2]
    same = down == 1 and layer.edges[0] == ((height - 1) // 2, (height - 1) // 2) and height % 2 == 1
    if not same:
        return layer.product(weight, x)
    # A third of the numbers of whole 3 x 3 windows: each row's part of all windows that it is in, moved to where it is.
    padded = jnp.pad(x, [(0, 0), (0, 0), layer.edges[1], (0, 0)])
    across = (padded.shape[2] - width) // right + 1
    columns = [padded[:, :, j : j + right * (across - 1) + 1 : right] for j in range(width)]
    rows = jnp.concatenate(columns, axis=-1) @ weight.transpose(3, 1, 2, 0).reshape(-1, height * outputs)
    total = x.shape[1]
    moved = jnp.pad(rows, [(0, 0), (height // 2, height // 2), (0, 0), (0, 0)])
    parts = [moved[:, i : i + total, :, i * outputs : (i + 1) * outputs] for i in range(height)]
    return sum(parts[1:], start=parts[0])
