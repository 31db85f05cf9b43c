"""Networks that are asked for by their widths: an MLP and a small CNN."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, require_count
from darkbayes.model.base import Layer, build
from darkbayes.model.layers import KEPT, Activation, Conv2d, Flatten, Linear, MaxPool2d, sequential
from darkbayes.types import Array, Key, Network


def mlp(hidden: Sequence[int], outputs: int, activation: Callable[[Array], Array] = jax.nn.relu) -> Network:
    """A fully connected network; inputs with several axes are flattened.

    Args:
        hidden: the widths of the hidden layers.
        outputs: how many outputs.
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
        channels: the channels of each convolution.
        hidden: the width of the hidden layer.
        outputs: how many outputs.
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
