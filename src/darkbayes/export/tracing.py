"""A trained module as a backbone, without a file between."""

import io
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from darkbayes.errors import InvalidInput, first_line, require_count
from darkbayes.export.backbone import Backbone, load_backbone
from darkbayes.export.onnx import write_layers
from darkbayes.model import layers
from darkbayes.model.base import Layer, layers_of
from darkbayes.types import Network

OPSET = 17  # That PyTorch writes; it is brought to that of students.


def backbone_of(module: Any, shape: Sequence[int], **how: Any) -> Backbone:
    """A trained module as a backbone.

    Args:
        module: a ``torch.nn.Module``; an ``equinox.nn.Sequential`` of convolutions, linear layers, pooling and
            activations; or a pair of a network of darkbayes and its weights. It makes features of images.
        shape: channels, height and width of an image.
        **how: the `center`, `scale` and `output` of `load_backbone`.

    Returns:
        The backbone.

    >>> import jax, jax.numpy as jnp
    >>> keys = jax.random.split(jax.random.key(0))
    >>> convolve = eqx.nn.Conv2d(3, 4, 3, key=keys[0])
    >>> module = eqx.nn.Sequential([convolve, eqx.nn.Lambda(jax.nn.relu), eqx.nn.Lambda(jnp.ravel)])
    >>> backbone_of(module, (3, 8, 8)).features(np.zeros((5, 3, 8, 8))).shape
    (5, 144)
    """
    size = tuple(require_count("shape", side) for side in shape)
    if type(module).__module__.startswith("torch.") or hasattr(module, "state_dict"):
        return load_backbone(_from_torch(module, size), **how)
    described, params = _described(module)
    from darkbayes.export.graph import Graph

    graph = Graph()
    x = write_layers(graph, described, params, graph.input("images", np.float32, size), size)
    graph.output("features", graph.add("Flatten", x))
    graph.outputs[-1][1].type.tensor_type.ClearField("shape")
    return load_backbone(graph.written("backbone", {}), **how)


def _from_torch(module: Any, shape: tuple[int, ...]) -> bytes:
    """As PyTorch writes it, in evaluation mode."""
    import torch  # pyright: ignore[reportMissingImports]

    was, buffer = module.training, io.BytesIO()
    target: Any = buffer
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # That there is another way of writing, which needs more packages.
            like, free = torch.zeros(1, *shape), {"images": {0: "batch"}}
            names: Any = {"input_names": ["images"], "output_names": ["features"], "dynamic_axes": free}
            torch.onnx.export(module.eval(), (like,), target, dynamo=False, opset_version=OPSET, **names)
    except Exception as problem:  # Whatever its forward does, or PyTorch does not know to write.
        remedy = "write it as an ONNX file by other means, and name that"
        why = first_line(problem)
        raise InvalidInput(f"{type(module).__name__} cannot be written as ONNX ({why}): {remedy}") from None
    finally:
        module.train(was)
    return buffer.getvalue()


def _described(module: Any) -> tuple[tuple[Layer, ...], tuple[Any, ...]]:
    """The layers of a network and their weights."""
    if isinstance(module, tuple) and len(module) == 2 and isinstance(module[0], Network):
        return layers_of(module[0]), module[1]
    if not isinstance(module, eqx.nn.Sequential):
        wanted = "a torch.nn.Module, an equinox.nn.Sequential, or a network and its weights"
        raise InvalidInput(f"a backbone is made of {wanted}, not {type(module).__name__}")
    described = tuple(map(_layer, module.layers))
    return described, tuple(weights for layer, weights in zip(described, module.layers, strict=True) if layer.weighted)


def _layer(module: Any) -> Layer:
    """The description of a layer of Equinox, whose weights are ours as they are."""
    match module:
        case eqx.nn.Linear():
            return layers.Linear(int(module.out_features), module.use_bias)
        case eqx.nn.Conv2d() if not isinstance(module.padding, str):
            (top, bottom), (left, right) = module.padding
            if (top, left) == (bottom, right):
                window: Any = module.kernel_size, module.stride, (top, left), module.dilation, module.groups
                return layers.Conv2d(module.out_channels, *window, bias=module.use_bias)
        case eqx.nn.Lambda() if getattr(module.fn, "__name__", "") in ("ravel", "flatten"):
            return layers.Flatten()
        case eqx.nn.Lambda():
            return layers.Activation(module.fn)
        case eqx.nn.MaxPool2d() | eqx.nn.AvgPool2d() if not module.use_ceil and not any(np.ravel(module.padding)):
            kind: Any = layers.MaxPool2d if isinstance(module, eqx.nn.MaxPool2d) else layers.AvgPool2d
            return kind(module.kernel_size, module.stride)
        case eqx.nn.GroupNorm():
            return layers.GroupNorm(module.groups, module.eps, module.channelwise_affine)
        case eqx.nn.Identity() | eqx.nn.Dropout():
            return layers.Identity()
    raise InvalidInput(f"{module!r} has no counterpart among darkbayes.model.layers: use one of those")
