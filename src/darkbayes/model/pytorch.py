"""Modules of PyTorch as networks, read from the graph of what they call (``torch.fx``).

A sum of two rows of layers, as residual networks have it, becomes `Residual`: both rows begin at the nearest place that
all of their paths lead through.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput
from darkbayes.model import layers
from darkbayes.model.base import pair
from darkbayes.model.networks import sequential
from darkbayes.types import Network, PyTree


def from_torch(module: Any) -> tuple[Network, PyTree]:
    """A PyTorch module as a network, and its weights.

    It may be a ``torch.nn.Sequential`` or have a `forward` of its own, and call Linear, Conv2d, LayerNorm, GroupNorm,
    MaxPool2d, AvgPool2d, AdaptiveAvgPool2d(1), Flatten, Identity, dropout, activations and sums of two of their
    results, as residual networks do. The network's `init` draws random weights as ever; `started_at` begins from those
    returned here. Dropout becomes nothing: what it does in training is no part of the network, and a posterior has
    uncertainty without it. Batch norm is refused: in training mode the prediction for an example depends on the others
    of its batch, so that there is no posterior; in evaluation mode it is a fixed map, which PyTorch folds into the
    layer before.

    Args:
        module: a ``torch.nn.Module`` of one input, trained or not.

    Returns:
        The network and the module's weights.
    """
    nodes, parts = _traced(module)
    described, params = _row(nodes[0], nodes[-1].args[0], _ways(nodes), parts)
    return sequential(described), params


def _traced(module: Any) -> tuple[list[Any], dict[str, Any]]:
    """The nodes of the graph that a module calls, from its input to its result, and its parts by name."""
    from torch import fx, nn  # pyright: ignore[reportMissingImports]

    if not isinstance(module, nn.Module):
        raise InvalidInput(f"from_torch takes a torch.nn.Module, not {type(module).__name__}")

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            ours = isinstance(getattr(m, "layer", None), layers.Layer)
            return ours or super().is_leaf_module(m, module_qualified_name)

    tracer = Tracer()
    root = nn.Sequential(module) if tracer.is_leaf_module(module, "") else module
    try:
        nodes = list(tracer.trace(root).nodes)
    except Exception as problem:  # Whatever its forward does with a stand-in for its input.
        remedy = "rewrite it without branches on what it computes, or in JAX"
        raise InvalidInput(f"what {type(module).__name__} computes cannot be traced ({problem}): {remedy}") from None
    inputs = [node for node in nodes if node.op == "placeholder"]
    if len(inputs) != 1 or not isinstance(nodes[-1].args[0], fx.Node):
        raise InvalidInput(f"{type(module).__name__} must take one array and return one: wrap it in a module that does")
    return nodes, dict(root.named_modules())


def _ways(nodes: list[Any]) -> dict[Any, list[Any]]:
    """For each node the nodes that every path from the input to it leads through, itself first and then backwards."""
    ways: dict[Any, list[Any]] = {}
    for node in nodes:
        before = ways.get(node.args[0], []) if node.args and not isinstance(node.args[0], list) else []
        if _is_sum(node):
            other = ways[node.args[1]]
            before = before[next(place for place, one in enumerate(before) if one in other) :]
        ways[node] = [node, *before]
    return ways


def _row(start: Any, end: Any, ways: dict[Any, list[Any]], parts: dict[str, Any]) -> tuple[list[layers.Layer], PyTree]:
    """The layers on the way from one node to another, and their weights."""
    row, params = [], []
    for place, node in enumerate(ways[end]):
        if node is start:
            return row[::-1], tuple(params[::-1])
        if _is_sum(node):
            sides = [_row(ways[end][place + 1], side, ways, parts) for side in node.args]
            layer = layers.Residual(*(tuple(described) for described, _ in sides))
            weights = tuple(own for _, own in sides)
        elif node.op == "call_module":
            layer = _layer(node.target, parts[node.target])
            weights = _with_weights_of(layer, parts[node.target]) if layer.weighted else None
            if layer.weighted and [other.target for other in ways].count(node.target) > 1:
                raise InvalidInput(f"layer {node.target} is called twice and shares its weights: make it two layers")
        else:
            layer, weights = _function(node), None
        row.append(layer)
        params += [weights] if layer.weighted else []
    raise InvalidInput("the module's result does not come from its input alone: leave out constants")


def _is_sum(node: Any) -> bool:
    both = len(node.args) == 2 and all(hasattr(one, "op") for one in node.args)
    return _name(node) in ("add", "iadd", "add_") and both and not node.kwargs


def _name(node: Any) -> str:
    """What a node calls, if it is no module."""
    return "" if node.op == "call_module" else getattr(node.target, "__name__", str(node.target))


def _function(node: Any) -> layers.Layer:
    """The layer of a function that is called without a module."""
    name = _name(node)
    options = node.args[1:], {key: value for key, value in node.kwargs.items() if key != "inplace"}
    if name in layers.ACTIVATIONS and options == ((), {}):
        return layers.Activation(layers.ACTIVATIONS[name])
    if name == "flatten" and options in (((1,), {}), ((1, -1), {}), ((), {"start_dim": 1})):
        return layers.Flatten()
    if name == "adaptive_avg_pool2d" and options in (((1,), {}), (((1, 1),), {})):
        return layers.GlobalAvgPool2d()
    remedy = f"use a sum, flatten(x, 1), one of {', '.join(layers.ACTIVATIONS)}, or modules"
    raise InvalidInput(f"the module calls {node.format_node()}, which is not known here: {remedy}")


def _layer(name: str, part: Any) -> layers.Layer:
    """The description of one module, which `name` places in an error."""
    kind = type(part).__name__
    where = f"layer {name}, {part},"
    if "BatchNorm" in kind:
        depend = "predicts for an example by the statistics of its batch, so that examples depend on each other"
        fixed = "is a fixed map in evaluation mode: fold it into the layer before with"
        fixed += " torch.nn.utils.fuse_linear_bn_eval or fuse_conv_bn_eval, or"
        why = f"{depend} and no posterior is defined:" if part.training else fixed
        raise InvalidInput(f"{where} {why} replace it by GroupNorm or LayerNorm")
    if kind in ("Softmax", "LogSoftmax"):
        raise InvalidInput(f"{where} is a part of the likelihood, which wants the logits: leave it out")
    if isinstance(getattr(part, "layer", None), layers.Layer):
        return part.layer
    if kind not in KNOWN or type(part).__module__.partition(".")[0] != "torch":
        raise InvalidInput(f"{where} is not known here: use {', '.join(KNOWN)}")
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
OTHERS = ("Linear", "Conv2d", "LayerNorm", "GroupNorm", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "Flatten")
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
        case "GroupNorm":
            return layers.GroupNorm(part.num_groups, part.eps, part.affine)
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
    match layer:
        case layers.LayerNorm():
            shape = tuple(part.normalized_shape)
        case layers.Linear():
            shape = (part.in_features,)
        case layers.Conv2d():
            shape = (part.in_channels, 1, 1)  # The image's size is of no account for the weights.
        case _:
            shape = (part.num_channels if isinstance(layer, layers.GroupNorm) else len(part.weight), 1, 1)
    weights = layer.build(shape, jax.random.key(0))
    for kind in ("weight", "bias", "threshold"):
        like = getattr(weights, kind, None)
        if like is not None:
            value = jnp.asarray(getattr(part, kind).detach().cpu().float().numpy()).reshape(like.shape)
            weights = eqx.tree_at(lambda module, kind=kind: getattr(module, kind), weights, value)
    return weights
