"""Networks that can be taken apart: descriptions of layers, and the network that applies one after the other.

A description says what a layer does, not what its weights are. The weights of a network are a tuple with one Equinox
module for every layer that has any (`Linear`, `Conv2d`, `LayerNorm`), in their order; `with_weights` pairs the two.
Inputs have the batch in front, then one axis for rows, or channels, height and width for images, as in PyTorch.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.types import Array, Key, Network

Shape = tuple[int, ...]
Pair = tuple[int, int]

KEPT = 256
"""Networks that are remembered, to be the same when they are asked for again."""


def exact_gelu(x: Array) -> Array:
    """GELU by the error function, as PyTorch has it; ``jax.nn.gelu`` is its approximation by tanh.

    Args:
        x: any array.

    Returns:
        The function of each element.
    """
    return jax.nn.gelu(x, approximate=False)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "gelu": exact_gelu,
    "gelu_tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "leaky_relu": jax.nn.leaky_relu,
    "selu": jax.nn.selu,
}
"""The activations that every export knows, by the names it knows them by."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """What a network does with the outputs of the layer before: ``apply(weights, x)``."""

    weighted: ClassVar[bool] = False
    """Whether the layer has weights, which `build` then makes."""

    def build(self, shape: Shape, key: Key) -> Any:
        """Random weights for inputs of a shape, the batch left out."""
        raise InvalidInput(f"{type(self).__name__} has no weights")

    def apply(self, weights: Any, x: Array) -> Array:
        return x


@dataclasses.dataclass(frozen=True)
class Linear(Layer):
    """Every output a weighted sum of all inputs of a row."""

    weighted: ClassVar[bool] = True
    outputs: int
    """How many sums."""
    bias: bool = True
    """Whether a number of its own is added to each."""

    def __post_init__(self) -> None:
        require_count("a layer's width", self.outputs)

    def build(self, shape: Shape, key: Key) -> eqx.nn.Linear:
        if len(shape) != 1:
            raise InvalidInput(f"Linear needs rows, not inputs of shape {shape}: put Flatten() before it")
        return eqx.nn.Linear(shape[0], self.outputs, use_bias=self.bias, key=key)

    def apply(self, weights: Any, x: Array) -> Array:
        return jax.vmap(weights)(x)


@dataclasses.dataclass(frozen=True)
class Conv2d(Layer):
    """A convolution of images with zeros around them; numbers stand for height and width alike, as in PyTorch.

    The padding "same" keeps the image's size at a stride of 1.
    """

    weighted: ClassVar[bool] = True
    outputs: int
    """Channels of the result."""
    kernel_size: int | Pair = 3
    """The size of the window."""
    stride: int | Pair = 1
    """From one window to the next."""
    padding: int | Pair | Literal["same"] = 0
    """Zeros around the image."""
    dilation: int | Pair = 1
    """From one pixel of the window to the next."""
    groups: int = 1
    """Into how many groups, each convolved by itself, the channels are divided."""
    bias: bool = True
    """Whether a number of its own is added to each channel."""

    def __post_init__(self) -> None:
        for name in ("outputs", "groups"):
            require_count(f"{name} of Conv2d", getattr(self, name))
        for name in ("kernel_size", "stride", "dilation"):
            _require_pair(f"{name} of Conv2d", getattr(self, name))
        if self.padding != "same":
            _require_pair("padding of Conv2d", self.padding, least=0)
        elif pair(self.stride) != (1, 1):
            raise InvalidInput(f'padding "same" goes with a stride of 1, not {self.stride}: give the padding in pixels')

    def build(self, shape: Shape, key: Key) -> eqx.nn.Conv2d:
        _require_image("Conv2d", shape)
        if shape[0] % self.groups or self.outputs % self.groups:
            raise InvalidInput(f"groups={self.groups} must divide the {shape[0]} inputs and {self.outputs} outputs")
        return eqx.nn.Conv2d(
            shape[0],
            self.outputs,
            self.kernel_size,
            self.stride,
            "SAME" if self.padding == "same" else self.padding,
            self.dilation,
            self.groups,
            self.bias,
            key=key,
        )

    def apply(self, weights: Any, x: Array) -> Array:
        return jax.vmap(weights)(x)

    @property
    def edges(self) -> tuple[Pair, Pair]:
        """The zeros before and after the image's rows, and its columns."""
        if self.padding != "same":
            return tuple((of, of) for of in pair(self.padding))  # pyright: ignore[reportReturnType]
        extra = [step * (size - 1) for size, step in zip(pair(self.kernel_size), pair(self.dilation), strict=True)]
        return tuple((of // 2, of - of // 2) for of in extra)  # pyright: ignore[reportReturnType]


@dataclasses.dataclass(frozen=True)
class LayerNorm(Layer):
    """Standardises each example over its last axes, then scales and shifts every element by weights of its own."""

    weighted: ClassVar[bool] = True
    axes: int = 1
    """How many of the last axes, so 1 for rows and 3 for whole images."""
    epsilon: float = 1e-5
    """Added to the variance."""
    affine: bool = True
    """Whether there are weights at all."""
    bias: bool = True
    """Whether the weights shift as well."""

    def __post_init__(self) -> None:
        require_count("axes of LayerNorm", self.axes)
        require_positive("epsilon of LayerNorm", self.epsilon)

    def build(self, shape: Shape, key: Key) -> eqx.nn.LayerNorm:
        if len(shape) < self.axes:
            raise InvalidInput(f"LayerNorm over {self.axes} axes cannot take inputs of shape {shape}: lower axes")
        return eqx.nn.LayerNorm(shape[-self.axes :], self.epsilon, self.affine, self.affine and self.bias)

    def apply(self, weights: Any, x: Array) -> Array:
        normalise = weights
        for _ in range(x.ndim - self.axes):
            normalise = jax.vmap(normalise)
        return normalise(x)


@dataclasses.dataclass(frozen=True, eq=False)
class Activation(Layer):
    """A function of each element; exports know those of `ACTIVATIONS`."""

    function: Callable[[Array], Array]
    """What becomes of each element."""

    # By identity: a function may be an object that cannot be hashed.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Activation) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)

    def apply(self, weights: Any, x: Array) -> Array:
        return self.function(x)

    @property
    def name(self) -> str:
        """The name of the function in `ACTIVATIONS`; any other function is refused."""
        for name, function in ACTIVATIONS.items():
            if function is self.function:
                return name
        found = getattr(self.function, "__name__", repr(self.function))
        raise InvalidInput(f"the activation {found} has no counterpart elsewhere: use one of {', '.join(ACTIVATIONS)}")


@dataclasses.dataclass(frozen=True)
class Pool2d(Layer):
    """What the two kinds of pooling share."""

    kernel_size: int | Pair
    """The size of the window."""
    stride: int | Pair | None = None
    """From one window to the next; None for the size of the window."""
    padding: int | Pair = 0
    """Rows and columns around the image."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        _require_pair(f"kernel_size of {name}", self.kernel_size)
        _require_pair(f"stride of {name}", self.steps)
        _require_pair(f"padding of {name}", self.padding, least=0)
        if any(2 * edge > size for edge, size in zip(pair(self.padding), pair(self.kernel_size), strict=True)):
            raise InvalidInput(f"padding of {name} must be at most half of kernel_size, not {self.padding}")

    @property
    def steps(self) -> int | Pair:
        """The stride."""
        return self.kernel_size if self.stride is None else self.stride


@dataclasses.dataclass(frozen=True)
class MaxPool2d(Pool2d):
    """The largest value of every window."""

    def apply(self, weights: Any, x: Array) -> Array:
        _require_image("MaxPool2d", x.shape[1:])
        return jax.vmap(eqx.nn.MaxPool2d(self.kernel_size, self.steps, self.padding))(x)


@dataclasses.dataclass(frozen=True)
class AvgPool2d(Pool2d):
    """The mean of every window, zeros around the image included."""

    def apply(self, weights: Any, x: Array) -> Array:
        _require_image("AvgPool2d", x.shape[1:])
        return jax.vmap(eqx.nn.AvgPool2d(self.kernel_size, self.steps, self.padding))(x)


@dataclasses.dataclass(frozen=True)
class GlobalAvgPool2d(Layer):
    """The mean of each channel, which stays an image of one pixel."""

    def apply(self, weights: Any, x: Array) -> Array:
        _require_image("GlobalAvgPool2d", x.shape[1:])
        return jnp.mean(x, axis=(2, 3), keepdims=True)


@dataclasses.dataclass(frozen=True)
class Identity(Layer):
    """Nothing at all, as dropout is when it predicts."""


@dataclasses.dataclass(frozen=True)
class Flatten(Layer):
    """All values of an example in one row."""

    def apply(self, weights: Any, x: Array) -> Array:
        return x.reshape(len(x), -1)


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
    chosen = tuple(layers)
    for layer in chosen:
        if not isinstance(layer, Layer):
            raise InvalidInput(f"sequential takes layers such as Linear(10), not {layer!r}")
    # Somebody else's layer may differ in what it does not compare.
    ours = all(type(layer).__module__ == __name__ for layer in chosen)
    return _made_once(chosen) if ours else _made(chosen)


def _made(chosen: tuple[Layer, ...]) -> Network:
    def init(key: Key, x: Array) -> tuple[Any, ...]:
        return build(chosen, x.shape[1:], jax.random.split(key, weighted(chosen)))

    def apply(params: Sequence[Any], x: Array) -> Array:
        for layer, weights in with_weights(chosen, params):
            x = layer.apply(weights, x)
        return x

    return Network(init, apply, chosen)


_made_once = functools.lru_cache(maxsize=KEPT)(_made)


def of_network(network: Network) -> tuple[Layer, ...]:
    """The layers of a network; one that does not tell them is refused.

    Args:
        network: one that `sequential`, `mlp`, `cnn` or `from_torch` made.

    Returns:
        Its layers, in order.
    """
    if network.layers is None:
        raise InvalidInput("the network does not say what layers it is made of: build it by mlp, cnn or sequential")
    return network.layers


def build(layers: tuple[Layer, ...], shape: Shape, keys: Iterable[Key]) -> tuple[Any, ...]:
    """Random weights for the layers of a network.

    Args:
        layers: descriptions of layers.
        shape: the shape of an input, the batch left out.
        keys: one for every layer that has weights.

    Returns:
        The weights of these layers.
    """
    keys, params = iter(keys), []
    for layer in layers:
        weights = layer.build(shape, next(keys)) if layer.weighted else None
        if layer.weighted:
            params.append(weights)
        shape = shape_after(layer, weights, shape)
    return tuple(params)


def shape_after(layer: Layer, weights: Any, shape: Shape) -> Shape:
    """The shape of what a layer makes of inputs of a shape, the batch left out both times.

    Args:
        layer: the description of a layer.
        weights: its weights, None if it has none.
        shape: the shape of an input, the batch left out.

    Returns:
        The shape of an output.
    """
    return jax.eval_shape(lambda x: layer.apply(weights, x), jax.ShapeDtypeStruct((1, *shape), jnp.float32)).shape[1:]


def weighted(layers: Iterable[Layer]) -> int:
    """How many of the layers have weights.

    Args:
        layers: descriptions of layers.

    Returns:
        The number.
    """
    return sum(layer.weighted for layer in layers)


def with_weights(layers: tuple[Layer, ...], params: Sequence[Any]) -> Iterator[tuple[Layer, Any]]:
    """Each layer with its weights, None where it has none.

    Args:
        layers: descriptions of layers.
        params: the weights of those that have any.

    Returns:
        Pairs of a description and its weights.
    """
    if len(params) != weighted(layers):
        raise InvalidInput(f"the network has {weighted(layers)} layers with weights, but params holds {len(params)}")
    rest = iter(params)
    for layer in layers:
        yield layer, next(rest) if layer.weighted else None


def pair(value: int | Pair) -> Pair:
    """One number for height and width, or both.

    Args:
        value: one number or two.

    Returns:
        Two numbers.

    >>> pair(3), pair((1, 2))
    ((3, 3), (1, 2))
    """
    return value if isinstance(value, tuple) else (value, value)


def _require_pair(name: str, value: Any, least: int = 1) -> None:
    both = value if isinstance(value, tuple) else (value, value)
    if len(both) != 2:
        raise InvalidInput(f"{name} must be a number, or two for height and width, not {value!r}")
    for of in both:
        require_count(name, of, least)


def _require_image(name: str, shape: Shape) -> None:
    if len(shape) != 3:
        raise InvalidInput(f"{name} needs inputs [batch, channels, height, width], not shape {('batch', *shape)}")
