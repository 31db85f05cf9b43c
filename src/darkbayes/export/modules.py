"""PyTorch modules of the layers that PyTorch itself has none for. It needs torch.

Each keeps its description in `layer`, by which `from_torch` knows it again.
"""

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from darkbayes.model import layers


class FilterResponseNormModule(torch.nn.Module):
    """Divides each channel of an image by its root mean square; see `darkbayes.model.layers.FilterResponseNorm`."""

    def __init__(self, layer: layers.FilterResponseNorm, channels: int):
        super().__init__()
        self.layer = layer
        self.weight, self.bias, self.threshold = (torch.nn.Parameter(torch.zeros(channels)) for _ in range(3))

    def forward(self, x: Any) -> Any:
        weight, bias, threshold = (one[:, None, None] for one in (self.weight, self.bias, self.threshold))
        size = torch.sqrt(torch.mean(x**2, dim=(2, 3), keepdim=True) + self.layer.epsilon)
        return torch.maximum(weight * x / size + bias, threshold)


class StandardiseModule(torch.nn.Module):
    """(x - center) / scale, by numbers that stay."""

    def __init__(self, layer: layers.Standardise):
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        numbers = (self.layer.along(numbers, x.ndim - 2) for numbers in (self.layer.center, self.layer.scale))
        center, scale = (torch.tensor(one, device=x.device) for one in numbers)
        return (x - center) / scale


class ResidualModule(torch.nn.Module):
    """The sum of what two modules make of the same inputs."""

    def __init__(self, body: Any, shortcut: Any):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Any) -> Any:
        return self.body(x) + self.shortcut(x)
