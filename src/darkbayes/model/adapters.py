"""Modules of other libraries as networks. What keeps state between batches has no posterior and is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput
from darkbayes.model import layers
from darkbayes.model.base import pair
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


def from_torch(module: Any) -> tuple[Network, PyTree]:
    """A ``torch.nn.Sequential`` as a network, and its weights; a Sequential within is part of it.

    It may hold Linear, Conv2d, LayerNorm, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d(1), Flatten, Identity, dropout and
    activations. The network's `init` draws random weights as ever; `started_at` begins from those returned here.
    Dropout becomes nothing: what it does in training is no part of the network, and a posterior has uncertainty without
    it. Batch norm is refused: in training mode the prediction for an example depends on the others of its batch, so
    that there is no posterior; in evaluation mode it is a fixed map, which PyTorch folds into the layer before.

    Args:
        module: a ``torch.nn.Sequential``, trained or not.

    Returns:
        The network and the module's weights.
    """
    described, params, seen = [], [], set()
    for name, part in _parts(module):
        layer = _layer(name, part)
        described.append(layer)
        if layer.weighted:
            if id(part) in seen:
                raise InvalidInput(f"layer {name} shares its weights with an earlier one: make it a layer of its own")
            seen.add(id(part))
            params.append(_with_weights_of(layer, part))
    return layers.sequential(described), tuple(params)


def _parts(module: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What a Sequential calls in turn, by its place."""
    from torch import nn  # pyright: ignore[reportMissingImports]

    if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
        remedy = "what another module computes cannot be seen from its parts; rewrite it as a Sequential, or in JAX"
        raise InvalidInput(f"from_torch takes a torch.nn.Sequential, not {type(module).__name__}: {remedy}")
    for place, part in enumerate(module):
        if isinstance(part, nn.Sequential):
            yield from _parts(part, f"{name}{place}.")
        else:
            yield f"{name}{place}", part


def _layer(name: str, part: Any) -> layers.Layer:
    """The description of one module, which `name` places in an error."""
    kind = type(part).__name__
    where = f"layer {name}, {part},"
    if "BatchNorm" in kind:
        depend = "predicts for an example by the statistics of its batch, so that examples depend on each other"
        fixed = "is a fixed map in evaluation mode: fold it into the layer before with"
        fixed += " torch.nn.utils.fuse_linear_bn_eval or fuse_conv_bn_eval, or"
        why = f"{depend} and no posterior is defined:" if part.training else fixed
        raise InvalidInput(f"{where} {why} replace it by LayerNorm")
    if kind in ("Softmax", "LogSoftmax"):
        raise InvalidInput(f"{where} is a part of the likelihood, which wants the logits: leave it out")
    if kind not in KNOWN or type(part).__module__.partition(".")[0] != "torch":
        raise InvalidInput(f"{where} is none that is known here: use {', '.join(KNOWN)}")
    if part._forward_hooks or part._forward_pre_hooks:
        raise InvalidInput(f"{where} has hooks, which may change what it computes: remove them")
    layer = _described(kind, part)
    if layer is None:
        raise InvalidInput(f"{where} has options without a counterpart here: leave them at their defaults")
    return layer


ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("ReLU", {}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "gelu": ("GELU", {"approximate": "none"}),
    "gelu_tanh": ("GELU", {"approximate": "tanh"}),
    "silu": ("SiLU", {}),
    "softplus": ("Softplus", {"beta": 1}),
    "elu": ("ELU", {"alpha": 1}),
    "leaky_relu": ("LeakyReLU", {"negative_slope": 0.01}),
    "selu": ("SELU", {}),
}
"""The module of each activation, with the options that it must have."""

NOTHING = ("Identity", "Dropout", "Dropout1d", "Dropout2d", "AlphaDropout")
OTHERS = ("Linear", "Conv2d", "LayerNorm", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "Flatten")
KNOWN = (*OTHERS, *NOTHING, *dict.fromkeys(kind for kind, _ in ACTIVATIONS.values()))


def _described(kind: str, part: Any) -> layers.Layer | None:
    """What becomes of a module that is known; None where it has options that cannot be kept."""
    match kind:
        case "Linear":
            return layers.Linear(part.out_features, bias=part.bias is not None)
        case "Conv2d" if part.padding_mode == "zeros":
            padding = 0 if part.padding == "valid" else part.padding
            window = part.kernel_size, part.stride, padding, part.dilation, part.groups
            return layers.Conv2d(part.out_channels, *window, bias=part.bias is not None)
        case "LayerNorm":
            axes, affine = len(part.normalized_shape), part.weight is not None
            return layers.LayerNorm(axes, part.eps, affine, part.bias is not None)
        case "MaxPool2d" if not (part.ceil_mode or part.return_indices) and pair(part.dilation) == (1, 1):
            return layers.MaxPool2d(part.kernel_size, part.stride, part.padding)
        case "AvgPool2d" if not part.ceil_mode and part.divisor_override is None:
            counts_zeros = part.count_include_pad or pair(part.padding) == (0, 0)
            return layers.AvgPool2d(part.kernel_size, part.stride, part.padding) if counts_zeros else None
        case "AdaptiveAvgPool2d" if part.output_size in (1, (1, 1)):
            return layers.GlobalAvgPool2d()
        case "Flatten" if (part.start_dim, part.end_dim) == (1, -1):
            return layers.Flatten()
        case _ if kind in NOTHING:
            return layers.Identity()
    for name, (wanted, options) in ACTIVATIONS.items():
        if kind == wanted and all(getattr(part, option) == value for option, value in options.items()):
            return layers.Activation(layers.ACTIVATIONS[name])
    return None


def _with_weights_of(layer: layers.Layer, part: Any) -> Any:
    shape = tuple(part.normalized_shape) if isinstance(layer, layers.LayerNorm) else (part.weight.shape[1],)
    if isinstance(layer, layers.Conv2d):
        # The image's size is of no account for the weights.
        shape = (part.in_channels, 1, 1)
    weights = layer.build(shape, jax.random.key(0))
    for kind in ("weight", "bias"):
        like, given = getattr(weights, kind), getattr(part, kind)
        if like is not None:
            value = jnp.asarray(given.detach().cpu().float().numpy()).reshape(like.shape)
            weights = eqx.tree_at(lambda module, kind=kind: getattr(module, kind), weights, value)
    return weights
