"""A PyTorch ``Sequential`` as a network, with its weights: where chains may begin, and what a student may look like.

    network, params = darkbayes.from_torch(module)
    posterior = darkbayes.Posterior(darkbayes.model.started_at(network, params), ...)

Dropout becomes nothing: what it does to predictions in training is not a part of the network, and a posterior has
uncertainty without it. Batch norm is refused. In training mode the prediction for one example depends on the others
of its batch, so that the likelihood is no product over examples and there is no posterior to sample; in evaluation
mode it is a fixed map, which PyTorch itself folds into the layer before.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput
from darkbayes.model import layers
from darkbayes.types import Network, PyTree


def from_torch(module: Any) -> tuple[Network, PyTree]:
    """A ``torch.nn.Sequential`` as a network, and its weights; a Sequential within is part of it.

    It may hold Linear, Conv2d, LayerNorm, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d(1), Flatten, Identity, dropout and
    activations. The network's `init` draws random weights as ever; `started_at` begins from those returned here.

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
        raise InvalidInput(
            f"from_torch takes a torch.nn.Sequential, not {type(module).__name__}: what another module computes cannot "
            "be seen from its parts; rewrite it as a Sequential, or in JAX"
        )
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
        raise InvalidInput(f"{where} {_batch_norm(part)}")
    if kind in ("Softmax", "LogSoftmax"):
        raise InvalidInput(f"{where} is a part of the likelihood, which wants the logits: leave it out")
    if kind not in _KNOWN or type(part).__module__.partition(".")[0] != "torch":
        raise InvalidInput(f"{where} is none that is known here: use {', '.join(_KNOWN)}")
    if part._forward_hooks or part._forward_pre_hooks:
        raise InvalidInput(f"{where} has hooks, which may change what it computes: remove them")
    layer = _KNOWN[kind](part)
    if layer is None:
        raise InvalidInput(f"{where} has options without a counterpart here: leave them at their defaults")
    return layer


def _batch_norm(part: Any) -> str:
    """Why batch norm has no posterior, or needs none."""
    if part.training:
        return (
            "predicts for an example by the statistics of its batch, so that examples depend on each other and no "
            "posterior is defined: replace it by LayerNorm"
        )
    return (
        "is a fixed map in evaluation mode: fold it into the layer before with torch.nn.utils.fuse_linear_bn_eval or "
        "fuse_conv_bn_eval, or replace it by LayerNorm"
    )


def _linear(part: Any) -> layers.Layer:
    return layers.Linear(part.out_features, bias=part.bias is not None)


def _conv(part: Any) -> layers.Layer | None:
    if part.padding_mode != "zeros":
        return None
    padding = 0 if part.padding == "valid" else part.padding
    return layers.Conv2d(
        part.out_channels,
        part.kernel_size,
        part.stride,
        padding,
        part.dilation,
        part.groups,
        bias=part.bias is not None,
    )


def _layer_norm(part: Any) -> layers.Layer:
    return layers.LayerNorm(len(part.normalized_shape), part.eps, part.weight is not None, part.bias is not None)


def _max_pool(part: Any) -> layers.Layer | None:
    if part.ceil_mode or part.return_indices or layers.pair(part.dilation) != (1, 1):
        return None
    return layers.MaxPool2d(part.kernel_size, part.stride, part.padding)


def _avg_pool(part: Any) -> layers.Layer | None:
    counts_zeros = part.count_include_pad or layers.pair(part.padding) == (0, 0)
    if part.ceil_mode or part.divisor_override is not None or not counts_zeros:
        return None
    return layers.AvgPool2d(part.kernel_size, part.stride, part.padding)


def _global_pool(part: Any) -> layers.Layer | None:
    return layers.GlobalAvgPool2d() if part.output_size in (1, (1, 1)) else None


def _flatten(part: Any) -> layers.Layer | None:
    return layers.Flatten() if (part.start_dim, part.end_dim) == (1, -1) else None


def _identity(part: Any) -> layers.Layer:
    return layers.Identity()


def _activation(name: str, **options: Any) -> Callable[[Any], layers.Layer | None]:
    """An activation, if its options are those given."""

    def made(part: Any) -> layers.Layer | None:
        fits = all(getattr(part, option) == value for option, value in options.items())
        return layers.Activation(layers.ACTIVATIONS[name]) if fits else None

    return made


def _gelu(part: Any) -> layers.Layer:
    return layers.Activation(layers.ACTIVATIONS["gelu" if part.approximate == "none" else "gelu_tanh"])


_KNOWN: dict[str, Callable[[Any], layers.Layer | None]] = {
    "Linear": _linear,
    "Conv2d": _conv,
    "LayerNorm": _layer_norm,
    "MaxPool2d": _max_pool,
    "AvgPool2d": _avg_pool,
    "AdaptiveAvgPool2d": _global_pool,
    "Flatten": _flatten,
    "Identity": _identity,
    "Dropout": _identity,
    "Dropout1d": _identity,
    "Dropout2d": _identity,
    "AlphaDropout": _identity,
    "ReLU": _activation("relu"),
    "Tanh": _activation("tanh"),
    "Sigmoid": _activation("sigmoid"),
    "GELU": _gelu,
    "SiLU": _activation("silu"),
    "Softplus": _activation("softplus", beta=1),
    "ELU": _activation("elu", alpha=1),
    "LeakyReLU": _activation("leaky_relu", negative_slope=0.01),
    "SELU": _activation("selu"),
}
"""What becomes of each kind of module; None where it has options that cannot be kept."""


def _with_weights_of(layer: layers.Layer, part: Any) -> Any:
    """The weights of a module in the form that the layer keeps them in."""
    shape: tuple[int, ...]
    match layer:
        case layers.Linear():
            shape = (part.in_features,)
        case layers.Conv2d():
            # The image's size is of no account for the weights.
            shape = (part.in_channels, 1, 1)
        case _:
            shape = tuple(part.normalized_shape)
    weights = layer.build(shape, jax.random.key(0))
    for kind in ("weight", "bias"):
        like, given = getattr(weights, kind), getattr(part, kind)
        if like is not None:
            value = jnp.asarray(given.detach().cpu().float().numpy()).reshape(like.shape)
            weights = eqx.tree_at(lambda of, kind=kind: getattr(of, kind), weights, value)
    return weights
