"""Networks as pairs of functions: an MLP and a small CNN, built from Equinox layers."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, require_count
from darkbayes.types import Array, Key, Network


def mlp(hidden: Sequence[int], outputs: int, activation: Callable[[Array], Array] = jax.nn.relu) -> Network:
    """A fully connected network; inputs with several axes are flattened.

    >>> network = mlp([10, 10], 2)
    >>> x = jnp.zeros((5, 3))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (5, 2)
    """
    for width in (*hidden, outputs):
        require_count("a layer's width", width)

    def init(key: Key, x: Array) -> tuple[eqx.nn.Linear, ...]:
        widths = (x[0].size, *hidden, outputs)
        keys = jax.random.split(key, len(widths) - 1)
        return tuple(eqx.nn.Linear(i, o, key=k) for i, o, k in zip(widths[:-1], widths[1:], keys, strict=True))

    def apply(params: tuple[eqx.nn.Linear, ...], x: Array) -> Array:
        x = x.reshape(len(x), -1)
        for layer in params[:-1]:
            x = activation(jax.vmap(layer)(x))
        return jax.vmap(params[-1])(x)

    return Network(init, apply)


def cnn(
    channels: Sequence[int],
    hidden: int,
    outputs: int,
    kernel_size: int = 3,
    activation: Callable[[Array], Array] = jax.nn.relu,
) -> Network:
    """Convolutions that keep the image's size, each followed by 2x2 max pooling, then one hidden layer.

    Inputs are ``[batch, channels, height, width]``.

    >>> network = cnn([4, 8], 16, 10)
    >>> x = jnp.zeros((5, 1, 28, 28))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (5, 10)
    """
    for width in (*channels, hidden, outputs, kernel_size):
        require_count("a layer's width", width)
    if kernel_size % 2 == 0:
        raise InvalidInput(f"kernel_size must be odd to keep the image's size, not {kernel_size}")
    pool = eqx.nn.MaxPool2d(2, 2)

    def init(key: Key, x: Array) -> tuple[eqx.Module, ...]:
        if x.ndim != 4:
            raise InvalidInput(f"cnn needs inputs [batch, channels, height, width], not shape {x.shape}")
        conv_keys, head_key = jax.random.split(key)
        keys = jax.random.split(conv_keys, len(channels))
        counts = (x.shape[1], *channels)
        convolutions = tuple(
            eqx.nn.Conv2d(i, o, kernel_size, padding="SAME", key=k)
            for i, o, k in zip(counts[:-1], counts[1:], keys, strict=True)
        )
        features = jax.eval_shape(lambda image: _features(convolutions, image), x[0])
        return convolutions + mlp([hidden], outputs, activation).init(head_key, jnp.zeros((1, *features.shape)))

    def _features(convolutions: tuple[Any, ...], image: Array) -> Array:
        for layer in convolutions:
            image = pool(activation(layer(image)))
        return image

    def apply(params: tuple[Any, ...], x: Array) -> Array:
        convolutions, head = params[: len(channels)], params[len(channels) :]
        features = jax.vmap(lambda image: _features(convolutions, image))(x)
        return mlp([hidden], outputs, activation).apply(head, features)

    return Network(init, apply)
