"""The few shapes that every part shares, and the conventions behind them.

Conventions:

- A *draw* is one set of weights from the posterior; *draws* are the same pytree with a leading axis.
- Gradients handed to a sampler are those of the **negative** log posterior at full-data scale, the sign that
  optax expects, so that an optimiser and a sampler are interchangeable.
- Step sizes are those of the paper's Algorithm 1: the drift is half the step size times the gradient of the log
  posterior, the noise has variance step size times temperature.
- Random keys are typed (``jax.random.key``); a key is split where a step begins and each part is used once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
from jax.typing import ArrayLike

Array = jax.Array
Key = jax.Array
PyTree = Any

__all__ = ["Array", "ArrayLike", "Chain", "Data", "Info", "Key", "Network", "PyTree", "WeightedData"]


class Network(NamedTuple):
    """A network as two functions: ``init(key, x) -> params`` and ``apply(params, x) -> outputs``.

    ``x`` always carries a batch axis in front; ``outputs`` is ``[batch, width]``. Where it is known what layers
    ``apply`` goes through, as with `sequential`, they are told too, for those who take a network elsewhere.
    """

    init: Callable[[Key, Array], PyTree]
    """Random weights for inputs like `x`."""
    apply: Callable[[PyTree, Array], Array]
    """What the network makes of inputs."""
    layers: tuple[Any, ...] | None = None
    """Descriptions of the layers, in order; None if they are not known."""


class Data(NamedTuple):
    """Inputs and targets with the examples along the first axis."""

    x: Array
    """``[examples, ...]``."""
    y: Array
    """``[examples]`` for classes, ``[examples, outputs]`` for numbers."""


class WeightedData(NamedTuple):
    """Examples that count for more or less than one; taken wherever `Data` are."""

    x: Array
    y: Array
    weights: Array
    """``[examples]``: what each log likelihood is multiplied by. One of weight 2 is as good as two of weight 1."""


class Info(NamedTuple):
    """What one step of a chain reports besides its new state."""

    log_density: Array
    """The log posterior, or the minibatch estimate that the step used."""


class Chain(Protocol):
    """How a posterior is explored, one step at a time: all that a student knows of its teacher.

    A chain is a pytree, so that the data it holds enter compiled functions as arguments.
    """

    @property
    def posterior(self) -> Any:
        """The posterior that the chain explores (`darkbayes.model.Posterior`)."""
        ...

    @property
    def inputs(self) -> Array:
        """The training inputs, from which queries start."""
        ...

    @property
    def burn_in(self) -> int | Array:
        """How many steps to take before the first draw counts; an array where it may change without compiling anew."""
        ...

    @property
    def thin(self) -> int | Array:
        """How many steps lie between two kept draws; an array likewise."""
        ...

    def init(self, key: Key) -> Any:
        """A starting state; the current draw of any state is its ``params``."""
        ...

    def step(self, key: Key, state: Any) -> tuple[Any, Info]: ...
