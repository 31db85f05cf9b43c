"""A network's weights by the names that PyTorch gives them, as plain arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from darkbayes.model.layers import Conv2d, of_network, with_weights
from darkbayes.types import Network

KINDS = ("weight", "bias")
"""What a layer's arrays are called, here and in PyTorch."""


def to_arrays(network: Network, params: Sequence[Any]) -> dict[str, np.ndarray]:
    """The weights of a network made of layers, in float32, named as in the ``torch.nn.Sequential`` of the same layers.

    ``files.write_arrays`` stores them as safetensors, from where ``safetensors.torch.load_file`` makes a state dict.

    >>> import jax, jax.numpy as jnp
    >>> from darkbayes import mlp
    >>> network = mlp([10], 2)
    >>> params = network.init(jax.random.key(0), jnp.zeros((1, 3)))
    >>> {name: array.shape for name, array in to_arrays(network, params).items()}
    {'1.weight': (10, 3), '1.bias': (10,), '3.weight': (2, 10), '3.bias': (2,)}
    """
    found = {}
    for place, (layer, weights) in enumerate(with_weights(of_network(network), params)):
        for kind in KINDS:
            array = getattr(weights, kind, None)
            if array is not None:
                # Equinox keeps the bias of a convolution with axes for height and width.
                shape = (-1,) if kind == "bias" and isinstance(layer, Conv2d) else np.shape(array)
                found[f"{place}.{kind}"] = np.asarray(array, np.float32).reshape(shape)
    return found
