"""Kinds of networks that a fit samples and distils into, each described by a row of numbers.

- mlp: the widths of hidden layers; images are taken as rows of pixels
- head: the same, on the features of a backbone; there may be none
- cnn: by how much the first convolution makes an image smaller, the channels of convolutions, of which each but the
  first halves it, and the width of one hidden layer
- resnet: the depth of a residual network, and the channels of its first group
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from darkbayes.errors import InvalidInput
from darkbayes.model import mlp, resnet, sequential
from darkbayes.model.base import Layer
from darkbayes.model.layers import Activation, Conv2d, Flatten, Linear
from darkbayes.types import Network

KINDS = ("mlp", "head", "cnn", "resnet")
LINEAR = ("mlp", "head")
"""Those that have linear layers alone."""
ARTICLES = {"mlp": "an MLP", "cnn": "a CNN", "resnet": "a residual network"}
"""Those that take images, in words."""
CONVOLVED = 16
"""Pixels of the longer side that the first convolution of a cnn leaves at most."""
TEACHER, STUDENT = (8, 16, 32), (16, 32, 64)
"""Channels and hidden layer of the cnn that is sampled, and of its student."""
DEPTHS = {32: (20, 16), 0: (8, 16)}
"""Depth and channels of residual networks, for images from so many pixels of the shorter side on."""
LEAST_SIDE = 8
"""Pixels of an image's shorter side from which on there is something to convolve."""
MOST_CONVOLVED = 20_000
"""Images of which a CPU samples convolutions within the usual time."""


def make_network(
    kind: str, widths: Sequence[int], outputs: int, activation: Callable[..., Any] = jax.nn.relu
) -> Network:
    """A network of some kind.

    Args:
        kind: one of `KINDS`.
        widths: what describes it.
        outputs: how many it has.
        activation: what comes after each layer.

    Returns:
        The network.
    """
    if kind == "resnet":
        return resnet(outputs, *widths, activation=activation)
    if kind != "cnn":
        return mlp(widths, outputs, activation)
    stride, first, *channels, hidden = widths
    active = Activation(activation)
    convolved: list[Layer] = [Conv2d(first, 2 * stride + 1, stride, stride), active]
    for width in channels:
        convolved += [Conv2d(width, 3, 2, 1), active]
    return sequential([*convolved, Flatten(), Linear(hidden), active, Linear(outputs)])


def describe_network(kind: str, widths: Sequence[int]) -> str:
    """The same in words.

    Args:
        kind: one of `KINDS`.
        widths: what describes it.

    Returns:
        A phrase.

    >>> describe_network("mlp", (50,))
    'a hidden layer of 50'
    >>> describe_network("cnn", (1, 8, 16, 32))
    'convolutions of 8, 16 channels and a hidden layer of 32'
    """
    if kind == "resnet":
        return f"{widths[0]} residual layers of {widths[1]} channels and more"
    if kind == "cnn":
        return f"convolutions of {', '.join(map(str, widths[1:-1]))} channels and a hidden layer of {widths[-1]}"
    if len(widths) == 1:
        return f"a hidden layer of {widths[0]}"
    return f"hidden layers of {', '.join(map(str, widths))}" if widths else "no hidden layer"


def check_widths(kind: str, widths: Sequence[int]) -> None:
    """Refuse numbers that describe no network of a kind."""
    least = {"cnn": 3, "resnet": 2}.get(kind, 0)
    if len(widths) < least or (kind == "resnet" and len(widths) > 2):
        remedies = {
            "cnn": "a stride, channels and the width of a hidden layer, such as 1 8 16 32",
            "resnet": "depth and channels, such as 20 16",
        }
        raise InvalidInput(f"{' '.join(map(str, widths))!r} describes no {kind}: give {remedies[kind]}")


def usual_widths(kind: str, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """What describes the network that is sampled, and the student, for images of a shape.

    Args:
        kind: one of `KINDS`.
        shape: channels, height and width.

    Returns:
        Both; None for an MLP, of which several are tried.
    """
    if kind == "resnet":
        widths = next(widths for side, widths in DEPTHS.items() if min(shape[1:]) >= side)
        return widths, widths
    stride = -(-max(shape[1:]) // CONVOLVED)
    return ((stride, *TEACHER), (stride, *STUDENT)) if kind == "cnn" else None
