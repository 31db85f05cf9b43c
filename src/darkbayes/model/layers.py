"""Networks that can be taken apart: descriptions of layers, and the network that applies one after the other.

A description says what a layer does, not what its weights are. The weights of a network are a tuple with one Equinox
module for every layer that has any (`Linear`, `Conv2d`, `LayerNorm`), in their order; `with_weights` pairs the two.
Inputs have the batch in front, then one axis for rows, or channels, height and width for images, as in PyTorch.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.model.base import Layer, Pair, Shape, build, pair, with_weights
from darkbayes.types import Array, Key, Network

KEPT = 256  # Networks that are remembered, to be the same when they are asked for again.


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
        if not isinstance(weights, eqx.nn.Linear):
            return super().apply(weights, x)  # A layer behind something, such as a mask.
        # With the examples along the last axis, as here and in `Activation`, narrow layers take half the time on a CPU.
        sums = weights.weight @ x.T
        return (sums if weights.bias is None else sums + weights.bias[:, None]).T


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
        padding = "SAME" if self.padding == "same" else self.padding
        window = self.kernel_size, self.stride, padding, self.dilation, self.groups, self.bias
        return eqx.nn.Conv2d(shape[0], self.outputs, *window, key=key)

    @property
    def edges(self) -> list[Pair]:
        """The zeros before and after the image's rows, and its columns."""
        if self.padding != "same":
            return [(zeros, zeros) for zeros in pair(self.padding)]
        extra = [step * (size - 1) for size, step in zip(pair(self.kernel_size), pair(self.dilation), strict=True)]
        return [(zeros // 2, zeros - zeros // 2) for zeros in extra]


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
        return self.function(x.T).T if x.ndim == 2 else self.function(x)

    @property
    def name(self) -> str:
        """The name of the function in `ACTIVATIONS`; any other function is refused."""
        for name, function in ACTIVATIONS.items():
            if function is self.function:
                return name
        name = getattr(self.function, "__name__", repr(self.function))
        raise InvalidInput(f"the activation {name} has no counterpart elsewhere: use one of {', '.join(ACTIVATIONS)}")


@dataclasses.dataclass(frozen=True)
class Pool2d(Layer):
    """What the two kinds of pooling share."""

    pooling: ClassVar[Any]
    """Of Equinox."""
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
        return self.kernel_size if self.stride is None else self.stride

    def apply(self, weights: Any, x: Array) -> Array:
        _require_image(type(self).__name__, x.shape[1:])
        return jax.vmap(self.pooling(self.kernel_size, self.steps, self.padding))(x)


@dataclasses.dataclass(frozen=True)
class MaxPool2d(Pool2d):
    """The largest value of every window."""

    pooling = eqx.nn.MaxPool2d


@dataclasses.dataclass(frozen=True)
class AvgPool2d(Pool2d):
    """The mean of every window, zeros around the image included."""

    pooling = eqx.nn.AvgPool2d


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
        return build(chosen, x.shape[1:], jax.random.split(key, sum(layer.weighted for layer in chosen)))

    def apply(params: Sequence[Any], x: Array) -> Array:
        for layer, weights in with_weights(chosen, params):
            x = layer.apply(weights, x)
        return x

    return Network(init, apply, chosen)


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


def _require_pair(name: str, value: Any, least: int = 1) -> None:
    both = pair(value)
    if len(both) != 2:
        raise InvalidInput(f"{name} must be a number, or two for height and width, not {value!r}")
    for number in both:
        require_count(name, number, least)


def _require_image(name: str, shape: Shape) -> None:
    if len(shape) != 3:
        raise InvalidInput(f"{name} needs inputs [batch, channels, height, width], not shape {('batch', *shape)}")
