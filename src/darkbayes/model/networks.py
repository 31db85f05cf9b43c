"""Networks that can be taken apart and exported: layers, one applied after the other."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, require_count
from darkbayes.model.base import Layer, applied, build
from darkbayes.model.layers import (
    Activation,
    Conv2d,
    FilterResponseNorm,
    Flatten,
    GlobalAvgPool2d,
    Linear,
    MaxPool2d,
    Residual,
)
from darkbayes.types import Array, Key, Network, PyTree

KEPT = 256  # Networks that are remembered, to be the same when they are asked for again.


def sequential(layers: Iterable[Layer]) -> Network:
    """A network that applies layers one after the other, and can be taken apart and exported.

    Of equal layers it is made once: networks that are the same functions share what was compiled for them.

    Args:
        layers: what to do with the inputs, in this order.

    Returns:
        The network.

    >>> layers = [Conv2d(4, 3, padding=1), Activation(jnp.tanh), MaxPool2d(2), Flatten(), Linear(10)]
    >>> network = sequential(layers)
    >>> x = jnp.zeros((5, 1, 28, 28))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (5, 10)
    """

    def ours(layer: Layer) -> bool:
        inside = (*layer.body, *layer.shortcut) if isinstance(layer, Residual) else ()
        return type(layer).__module__ == Linear.__module__ and all(map(ours, inside))

    chosen = tuple(layers)
    for layer in chosen:
        if not isinstance(layer, Layer):
            raise InvalidInput(f"sequential takes layers such as Linear(10), not {layer!r}")
    # Somebody else's layer may differ in what it does not compare.
    return _made_once(chosen) if all(map(ours, chosen)) else _made(chosen)


def _made(chosen: tuple[Layer, ...]) -> Network:
    return Network(lambda key, x: build(chosen, x.shape[1:], key), functools.partial(applied, chosen), chosen)


_made_once = functools.lru_cache(maxsize=KEPT)(_made)


def mlp(hidden: Sequence[int], outputs: int, activation: Callable[[Array], Array] = jax.nn.relu) -> Network:
    """A fully connected network; inputs with several axes are flattened.

    Args:
        hidden, outputs: the widths of the hidden layers, and how many outputs.
        activation: what comes after each hidden layer.

    Returns:
        The network.

    >>> network = mlp([10, 10], 2)
    >>> x = jnp.zeros((5, 3))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (5, 2)
    """
    layers: list[Layer] = [Flatten()]
    for width in hidden:
        layers += [Linear(width), Activation(activation)]
    return sequential([*layers, Linear(outputs)])


def cnn(
    channels: Sequence[int],
    hidden: int,
    outputs: int,
    kernel_size: int = 3,
    activation: Callable[[Array], Array] = jax.nn.relu,
) -> Network:
    """Convolutions that keep the image's size, each followed by 2x2 max pooling, then one hidden layer.

    Inputs are ``[batch, channels, height, width]``.

    Args:
        channels, hidden, outputs: the channels of each convolution, the width of the hidden layer, and of the last.
        kernel_size: the size of the convolutions' windows, an odd number.
        activation: what comes after each convolution and the hidden layer.

    Returns:
        The network.

    >>> network = cnn([4, 8], 16, 10)
    >>> x = jnp.zeros((5, 1, 28, 28))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (5, 10)
    """
    widths = [require_count("a layer's width", width) for width in (*channels, hidden, outputs, kernel_size)]
    if kernel_size % 2 == 0:
        raise InvalidInput(f"kernel_size must be odd to keep the image's size, not {kernel_size}")
    return _cnn(tuple(widths[:-3]), *widths[-3:], Activation(activation))


@functools.lru_cache(maxsize=KEPT)
def _cnn(channels: tuple[int, ...], hidden: int, outputs: int, kernel_size: int, activation: Activation) -> Network:
    layers: list[Layer] = []
    for width in channels:
        layers += [Conv2d(width, kernel_size, padding="same"), activation, MaxPool2d(2)]
    network = sequential([*layers, Flatten(), Linear(hidden), activation, Linear(outputs)])

    def init(key: Key, x: Array) -> tuple[Any, ...]:
        if x.ndim != 4:
            raise InvalidInput(f"cnn needs inputs [batch, channels, height, width], not shape {x.shape}")
        conv_keys, head_key = jax.random.split(key)
        keys = jnp.concatenate([jax.random.split(conv_keys, len(channels)), jax.random.split(head_key)])
        return build(network.layers or (), x.shape[1:], keys)

    return network._replace(init=init)


def resnet(
    outputs: int, depth: int = 20, width: int = 16, activation: Callable[[Array], Array] = jax.nn.silu
) -> Network:
    """A residual network for small images (He et al., 2016), as Izmailov et al. (2021) sample its posterior.

    A convolution, three groups of (depth - 2) / 6 blocks of two convolutions, of which the second and the third group
    begin by halving the image and doubling the channels, the mean of each channel, and a linear layer. Every
    convolution is followed by `FilterResponseNorm`: what it makes of an image depends on no other image, so that
    there is a posterior, which under batch norm there is not. The smooth activation is theirs, too.

    Of ten classes of colour images it has 80,000 weights at depth 8, which two cores can sample, 274,042 at depth 20
    (ResNet-20), 860,000 at depth 56; with twice the width, four times as many. Inputs are
    ``[batch, channels, height, width]``.

    Args:
        outputs: how many.
        depth: layers with weights on the way from input to output: 8, 14, 20 and so on.
        width: channels of the first group.
        activation: what comes after each convolution, or after the sum that ends a block.

    Returns:
        The network.

    >>> network = resnet(10, depth=8, width=4)
    >>> x = jnp.zeros((2, 3, 8, 8))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (2, 10)
    """
    for name, value in {"outputs": outputs, "width": width, "depth": depth}.items():
        require_count(f"{name} of resnet", value)
    if depth < 8 or depth % 6 != 2:
        raise InvalidInput(f"depth of resnet must be 8, 14, 20 or another multiple of 6 plus 2, not {depth}")
    active = Activation(activation)

    def convolved(channels: int, kernel_size: int = 3, stride: int = 1) -> tuple[Layer, ...]:
        return Conv2d(channels, kernel_size, stride, padding=kernel_size // 2), FilterResponseNorm()

    def block(channels: int, stride: int) -> tuple[Layer, ...]:
        body = (*convolved(channels, stride=stride), active, *convolved(channels))
        return Residual(body, convolved(channels, 1, stride) if stride > 1 else ()), active

    layers = [*convolved(width), active]
    for group in range(3):
        for place in range((depth - 2) // 6):
            layers += block(width * 2**group, stride=2 if group and not place else 1)
    return sequential([*layers, GlobalAvgPool2d(), Flatten(), Linear(outputs)])


def computed_in(network: Network, dtype: str) -> Network:
    """The same network, computed in another precision than its weights have: float32 for all that is kept.

    Weights and inputs are rounded as they enter and outputs are float32 again. So gradients, noise, weights and what a
    student learns stay in float32, and only products and activations are rounded. It pays on a GPU.

    Args:
        network: any network.
        dtype: "bfloat16", or "float32" for the network as it is. float16 has too small a range for gradients.

    Returns:
        The network with another `apply`.

    >>> network, x = computed_in(mlp([10], 2), "bfloat16"), jnp.ones((5, 3))
    >>> network.apply(network.init(jax.random.key(0), x), x).dtype.name
    'float32'
    """
    if dtype not in ("bfloat16", "float32"):
        raise InvalidInput(f'a network is computed in "bfloat16" or "float32", not {dtype!r}')
    return network if dtype == "float32" else network._replace(apply=_rounded(network.apply))


@functools.lru_cache(maxsize=KEPT)
def _rounded(apply: Callable[[PyTree, Array], Array]) -> Callable[[PyTree, Array], Array]:
    def rounded(leaf: Array) -> Array:
        return leaf.astype(jnp.bfloat16) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return lambda params, x: apply(jax.tree.map(rounded, params), rounded(x)).astype(jnp.float32)
