"""A network made of layers as PyTorch has it: a state dict, or the module itself.

Layer by layer it is the ``torch.nn.Sequential`` of the same names, so that the second layer's weights are ``1.weight``:

    student = darkbayes.Student(darkbayes.mlp([100], 3), ...)
    module = darkbayes.to_torch(student.network, params)
    module.load_state_dict(darkbayes.to_state_dict(student.network, params), strict=True)

It returns what the network returns; how a student's outputs are to be read is said in `darkbayes.outcomes.heads`.
"""

from collections.abc import Sequence
from typing import Any

from darkbayes.errors import InvalidInput
from darkbayes.export.weights import to_arrays
from darkbayes.model import layers
from darkbayes.types import Network

ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("ReLU", {}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "gelu": ("GELU", {}),
    "gelu_tanh": ("GELU", {"approximate": "tanh"}),
    "silu": ("SiLU", {}),
    "softplus": ("Softplus", {}),
    "elu": ("ELU", {}),
    "leaky_relu": ("LeakyReLU", {}),
    "selu": ("SELU", {}),
}
"""The module of each activation, and its options."""


def to_state_dict(network: Network, params: Sequence[Any]) -> dict[str, Any]:
    """The weights as tensors that the equivalent ``torch.nn.Sequential`` loads with ``strict=True``."""
    import torch  # pyright: ignore[reportMissingImports]

    return {name: torch.tensor(array) for name, array in to_arrays(network, params).items()}


def to_torch(network: Network, params: Sequence[Any]) -> Any:
    """The network as a ``torch.nn.Sequential`` with its weights, in evaluation mode."""
    from torch import nn  # pyright: ignore[reportMissingImports]

    pairs = layers.with_weights(layers.of_network(network), params)
    module = nn.Sequential(*(_module(nn, layer, weights) for layer, weights in pairs))
    module.load_state_dict(to_state_dict(network, params), strict=True)
    return module.eval()


def _module(nn: Any, layer: layers.Layer, weights: Any) -> Any:
    """The module of one layer, its weights not yet loaded."""
    match layer:
        case layers.Linear():
            return nn.Linear(weights.weight.shape[1], layer.outputs, bias=layer.bias)
        case layers.Conv2d():
            options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
            inputs = weights.weight.shape[1] * layer.groups
            return nn.Conv2d(inputs, layer.outputs, layer.kernel_size, groups=layer.groups, bias=layer.bias, **options)
        case layers.LayerNorm():
            return nn.LayerNorm(weights.shape, layer.epsilon, layer.affine, layer.affine and layer.bias)
        case layers.Activation():
            name, options = ACTIVATIONS[layer.name]
            return getattr(nn, name)(**options)
        case layers.MaxPool2d():
            return nn.MaxPool2d(layer.kernel_size, layer.stride, layer.padding)
        case layers.AvgPool2d():
            return nn.AvgPool2d(layer.kernel_size, layer.stride, layer.padding)
        case layers.GlobalAvgPool2d():
            return nn.AdaptiveAvgPool2d(1)
        case layers.Flatten():
            return nn.Flatten()
        case layers.Identity():
            return nn.Identity()
    raise InvalidInput(f"the layer {layer!r} has no counterpart in PyTorch: use one of darkbayes.layers")
