"""Descriptions of layers, of which networks are made that can be taken apart (`networks.py`).

A description says what a layer does, not what its weights are. The weights of a network are a tuple with one Equinox
module for every layer that has any (`Linear`, `Conv2d`, norms, `Residual`), in order; `with_weights` pairs the two.
Inputs have the batch in front, then one axis for rows, or channels, height and width for images, as in PyTorch.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.model.base import Layer, Pair, Shape, applied, build, pair
from darkbayes.namespaces import own
from darkbayes.types import Array, Key

FEW_SHIFTS = 100
"""Pixels of a window up to which a convolution is one product of matrices on a CPU."""


def exact_gelu(x: Array) -> Array:
    """GELU by the error function, as PyTorch has it; ``jax.nn.gelu`` is its approximation by tanh."""
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

    def apply(self, weights: Any, x: Array) -> Array:
        if (
            not self.is_product(weights)
            or math.prod(pair(self.kernel_size)) > FEW_SHIFTS
            or jax.default_backend() != "cpu"
        ):
            return super().apply(weights, x)
        # In a compiled loop, a CPU convolves ten times as fast by one product of matrices, and chains side by side too.
        sums = self.product(weights.weight, jnp.moveaxis(x, 1, -1))
        return jnp.moveaxis(sums if weights.bias is None else sums + weights.bias.reshape(-1), -1, 1)

    def is_product(self, weights: Any) -> bool:
        """Whether `product` is what the layer computes, but for its bias."""
        return self.groups == 1 and pair(self.dilation) == (1, 1) and isinstance(weights, eqx.nn.Conv2d)

    def product(self, weight: Array, x: Array) -> Array:
        """The convolution as one product of matrices, of the windows of images with their channels last."""
        (high, wide), (down, right) = pair(self.kernel_size), pair(self.stride)
        x = jnp.pad(x, [(0, 0), *self.edges, (0, 0)])
        rows, columns = (x.shape[1] - high) // down + 1, (x.shape[2] - wide) // right + 1
        shifted = [
            x[:, top : top + down * (rows - 1) + 1 : down, left : left + right * (columns - 1) + 1 : right]
            for top in range(high)
            for left in range(wide)
        ]
        kernel = weight.transpose(2, 3, 1, 0).reshape(-1, self.outputs)
        sums = jnp.concatenate(shifted, axis=-1).reshape(-1, len(kernel)) @ kernel
        return sums.reshape(len(x), rows, columns, self.outputs)

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


@dataclasses.dataclass(frozen=True)
class GroupNorm(Layer):
    """Standardises each image over groups of its channels, then scales and shifts every channel (Wu and He, 2018)."""

    weighted: ClassVar[bool] = True
    groups: int
    """Into how many groups the channels are divided."""
    epsilon: float = 1e-5
    """Added to the variance."""
    affine: bool = True
    """Whether there are weights at all."""

    def __post_init__(self) -> None:
        require_count("groups of GroupNorm", self.groups)
        require_positive("epsilon of GroupNorm", self.epsilon)

    def build(self, shape: Shape, key: Key) -> eqx.nn.GroupNorm:
        _require_image("GroupNorm", shape)
        if shape[0] % self.groups:
            raise InvalidInput(f"groups={self.groups} of GroupNorm must divide the {shape[0]} channels")
        return eqx.nn.GroupNorm(self.groups, shape[0], self.epsilon, self.affine)


class FilterResponse(eqx.Module):
    """The weights of `FilterResponseNorm`."""

    weight: Array
    """w, ``[channels]``."""
    bias: Array
    """b, likewise."""
    threshold: Array
    """t, likewise."""


@dataclasses.dataclass(frozen=True)
class FilterResponseNorm(Layer):
    """Divides each channel of an image by its root mean square (Singh and Krishnan, 2020).

    With weights w, bias b and threshold t of its own for each channel it returns

        max(w x / sqrt(mean(x^2) + epsilon) + b, t).

    As no mean is taken away, it is defined where a channel is one pixel, and needs no groups to be chosen.
    """

    weighted: ClassVar[bool] = True
    epsilon: float = 1e-6
    """Added to the mean square."""

    def __post_init__(self) -> None:
        require_positive("epsilon of FilterResponseNorm", self.epsilon)

    def build(self, shape: Shape, key: Key) -> FilterResponse:
        _require_image("FilterResponseNorm", shape)
        zeros = jnp.zeros(shape[0])
        return FilterResponse(jnp.ones(shape[0]), zeros, zeros)

    def apply(self, weights: FilterResponse, x: Array) -> Array:
        weight, bias, threshold = (leaf[None, :, None, None] for leaf in jax.tree.leaves(weights))
        size = jnp.sqrt(jnp.mean(x**2, axis=(2, 3), keepdims=True) + self.epsilon)
        return jnp.maximum(weight * x / size + bias, threshold)


@dataclasses.dataclass(frozen=True)
class Residual(Layer):
    """The sum of what two rows of layers make of the same inputs (He et al., 2016)."""

    weighted: ClassVar[bool] = True
    body: tuple[Layer, ...]
    """The layers of one."""
    shortcut: tuple[Layer, ...] = ()
    """Those of the other; none for the inputs themselves."""

    def build(self, shape: Shape, key: Key) -> tuple[tuple[Any, ...], ...]:
        keys = jax.random.split(key)
        return tuple(build(part, shape, own) for part, own in zip(self.parts.values(), keys, strict=True))

    def apply(self, weights: Any, x: Array) -> Array:
        body, shortcut = (applied(part, own, x) for part, own in zip(self.parts.values(), weights, strict=True))
        if body.shape != shortcut.shape:
            remedy = "let the shortcut change the image as the body does"
            raise InvalidInput(f"Residual cannot add {body.shape[1:]} and {shortcut.shape[1:]}: {remedy}")
        return body + shortcut

    @property
    def parts(self) -> dict[str, tuple[Layer, ...]]:
        """Both rows by name, in the order of their weights."""
        return {"body": self.body, "shortcut": self.shortcut}


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
class Standardise(Layer):
    """(x - center) / scale, by numbers that stay: as the first layer it takes images as bytes have them, 0 to 255."""

    center: float | tuple[float, ...]
    """One number, or one for each channel."""
    scale: float | tuple[float, ...]
    """Likewise."""

    def __post_init__(self) -> None:
        if not np.isfinite(self.center).all():
            raise InvalidInput(f"center of Standardise must be finite, not {self.center!r}")
        for number in np.ravel(self.scale):
            require_positive("scale of Standardise", number)

    def apply(self, weights: Any, x: Array) -> Array:
        center, scale = (self.along(numbers, x.ndim - 2) for numbers in (self.center, self.scale))
        return ((x.astype(jnp.float32) - center) / scale).astype(x.dtype)

    @staticmethod
    def along(numbers: float | tuple[float, ...], axes: int) -> Any:
        """The numbers with so many axes after that of the channels."""
        return np.asarray(numbers, np.float32).reshape(-1, *[1] * axes)


@dataclasses.dataclass(frozen=True)
class Identity(Layer):
    """Nothing at all, as dropout is when it predicts."""


@dataclasses.dataclass(frozen=True)
class Flatten(Layer):
    """All values of an example in one row."""

    def apply(self, weights: Any, x: Array) -> Array:
        return x.reshape(len(x), -1)


def _require_pair(name: str, value: Any, least: int = 1) -> None:
    both = pair(value)
    if len(both) != 2:
        raise InvalidInput(f"{name} must be a number, or two for height and width, not {value!r}")
    for number in both:
        require_count(name, number, least)


def _require_image(name: str, shape: Shape) -> None:
    if len(shape) != 3:
        raise InvalidInput(f"{name} needs inputs [batch, channels, height, width], not shape {('batch', *shape)}")


def __dir__() -> list[str]:
    return own(globals())
