"""What all layers have in common, and how a network's weights go with its layers."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput
from darkbayes.types import Array, Key, Network

Shape = tuple[int, ...]
Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Layer:
    """What a network does with the outputs of the layer before: ``apply(weights, x)``."""

    weighted: ClassVar[bool] = False
    """Whether the layer has weights, which `build` then makes."""

    def build(self, shape: Shape, key: Key) -> Any:
        """Random weights for inputs of a shape, the batch left out: a function of one example."""
        raise InvalidInput(f"{type(self).__name__} has no weights")

    def apply(self, weights: Any, x: Array) -> Array:
        return jax.vmap(weights)(x) if self.weighted else x


def layers_of(network: Network) -> tuple[Layer, ...]:
    """The layers of a network; one that does not tell them is refused."""
    if network.layers is None:
        remedy = "build it by mlp, cnn, resnet or sequential"
        raise InvalidInput(f"the network does not say what layers it is made of: {remedy}")
    return network.layers


def build(layers: tuple[Layer, ...], shape: Shape, keys: Key) -> tuple[Any, ...]:
    """Random weights for inputs of a shape; `keys` has one for every layer that has any, or is one for all of them."""
    params, rest = [], iter(keys if keys.ndim else jax.random.split(keys, sum(layer.weighted for layer in layers)))
    for layer in layers:
        weights = layer.build(shape, next(rest)) if layer.weighted else None
        params += [weights] if layer.weighted else []
        shape = shape_after(layer, weights, shape)
    return tuple(params)


def shape_after(layer: Layer, weights: Any, shape: Shape) -> Shape:
    """The shape of what a layer makes of inputs of a shape, the batch left out both times."""
    return jax.eval_shape(lambda x: layer.apply(weights, x), jax.ShapeDtypeStruct((1, *shape), jnp.float32)).shape[1:]


def with_weights(layers: tuple[Layer, ...], params: Sequence[Any]) -> Iterator[tuple[Layer, Any]]:
    """Each layer with its weights, None where it has none."""
    number = sum(layer.weighted for layer in layers)
    if len(params) != number:
        raise InvalidInput(f"the network has {number} layers with weights, but params holds {len(params)}")
    rest = iter(params)
    for layer in layers:
        yield layer, next(rest) if layer.weighted else None


def applied(layers: tuple[Layer, ...], params: Sequence[Any], x: Array) -> Array:
    """What layers make of `x`, one after the other."""
    for layer, weights in with_weights(layers, params):
        x = layer.apply(weights, x)
    return x


def as_floats(x: Array) -> Array:
    """Bytes, as which images are stored, as float32; anything else as it is."""
    return x.astype(jnp.float32) if x.dtype == jnp.uint8 else x


def pair(value: int | Pair) -> Pair:
    """One number for height and width, or both.

    >>> pair(3), pair((1, 2))
    ((3, 3), (1, 2))
    """
    return value if isinstance(value, tuple) else (value, value)
