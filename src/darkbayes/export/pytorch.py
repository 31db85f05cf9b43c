"""A network made of layers as PyTorch has it: plain arrays, a state dict, or the module itself.

Layer by layer it is the ``torch.nn.Sequential`` of the same names, so that the second layer's weights are ``1.weight``:

    student = darkbayes.Student(darkbayes.mlp([100], 3), ...)
    module = darkbayes.export.to_torch(student.network, params)
    module.load_state_dict(darkbayes.export.to_state_dict(student.network, params), strict=True)

It returns what the network returns; how a student's outputs are to be read is said in `darkbayes.outcomes.heads`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.model import layers
from darkbayes.model.base import Layer, layers_of, with_weights
from darkbayes.model.pytorch import ACTIVATIONS
from darkbayes.types import Network


def to_arrays(network: Network, params: Sequence[Any]) -> dict[str, np.ndarray]:
    """The weights of a network made of layers, in float32, named as in the ``torch.nn.Sequential`` of the same layers.

    ``files.write_arrays`` stores them as safetensors, from where ``safetensors.torch.load_file`` makes a state dict.

    Args:
        network: the network.
        params: its weights.

    Returns:
        The arrays, by name.

    >>> import jax, jax.numpy as jnp
    >>> from darkbayes import mlp
    >>> network = mlp([10], 2)
    >>> params = network.init(jax.random.key(0), jnp.zeros((1, 3)))
    >>> {name: array.shape for name, array in to_arrays(network, params).items()}
    {'1.weight': (10, 3), '1.bias': (10,), '3.weight': (2, 10), '3.bias': (2,)}
    """
    return dict(_arrays(layers_of(network), params))


def _arrays(described: tuple[Layer, ...], params: Sequence[Any], name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of layers by name, `name` being that of the layer that they are part of."""
    for place, (layer, weights) in enumerate(with_weights(described, params)):
        if isinstance(layer, layers.Residual):
            for (side, part), own in zip(layer.parts.items(), weights, strict=True):
                yield from _arrays(part, own, f"{name}{place}.{side}.")
        for kind in ("weight", "bias", "threshold"):
            array = getattr(weights, kind, None)
            if array is not None:
                # Equinox keeps the bias of a convolution with axes for height and width.
                shape = (-1,) if kind == "bias" and isinstance(layer, layers.Conv2d) else np.shape(array)
                yield f"{name}{place}.{kind}", np.asarray(array, np.float32).reshape(shape)


def to_state_dict(network: Network, params: Sequence[Any]) -> dict[str, Any]:
    """The weights as tensors that the equivalent ``torch.nn.Sequential`` loads with ``strict=True``.

    Args:
        network: one made of layers.
        params: its weights.

    Returns:
        The weights as tensors, by the names that PyTorch gives them.
    """
    import torch  # pyright: ignore[reportMissingImports]

    return {name: torch.tensor(array) for name, array in to_arrays(network, params).items()}


def to_torch(network: Network, params: Sequence[Any]) -> Any:
    """The network as a ``torch.nn.Sequential`` with its weights, in evaluation mode.

    Args:
        network: one made of layers.
        params: its weights.

    Returns:
        A ``torch.nn.Sequential``.
    """
    module = _sequential(layers_of(network), params)
    module.load_state_dict(to_state_dict(network, params), strict=True)
    return module.eval()


def _sequential(described: tuple[Layer, ...], params: Sequence[Any]) -> Any:
    from torch import nn  # pyright: ignore[reportMissingImports]

    return nn.Sequential(*(_module(nn, *pair) for pair in with_weights(described, params)))


def _module(nn: Any, layer: Layer, weights: Any) -> Any:
    """The module of one layer, its weights not yet loaded."""
    from darkbayes.export import modules

    match layer:
        case layers.Linear():
            return nn.Linear(weights.weight.shape[1], layer.outputs, bias=layer.bias)
        case layers.Conv2d():
            inputs = weights.weight.shape[1] * layer.groups
            window = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.bias
            return nn.Conv2d(inputs, layer.outputs, *window)
        case layers.LayerNorm():
            return nn.LayerNorm(weights.shape, layer.epsilon, layer.affine, layer.affine and layer.bias)
        case layers.GroupNorm():
            return nn.GroupNorm(layer.groups, weights.channels, layer.epsilon, layer.affine)
        case layers.FilterResponseNorm():
            return modules.FilterResponseNormModule(layer, len(weights.weight))
        case layers.Standardise():
            return modules.StandardiseModule(layer)
        case layers.Residual():
            return modules.ResidualModule(*map(_sequential, layer.parts.values(), weights))
        case layers.Activation():
            name, options = ACTIVATIONS[layer.name]
            return getattr(nn, name)(**options)
        case layers.MaxPool2d() | layers.AvgPool2d():
            return getattr(nn, type(layer).__name__)(layer.kernel_size, layer.stride, layer.padding)
        case layers.GlobalAvgPool2d():
            return nn.AdaptiveAvgPool2d(1)
        case layers.Flatten() | layers.Identity():
            return getattr(nn, type(layer).__name__)()
    raise InvalidInput(f"the layer {layer!r} has no counterpart in PyTorch: use one of darkbayes.model.layers")
