"""What a posterior and a student ask of an outcome: how a network's outputs speak of a target, and how that is taught.

    Distribution    what one network says of a target
    Likelihood      how a teacher's outputs become a distribution, with whatever parameters it has of its own
    Head            how a student's outputs do, and the loss that teaches it what draws say on average

The loss of a student S at x, given draws theta^s, is the paper's equation (2),

    L(w | x) = -1/|Theta| sum_s E_{p(y | x, theta^s)} log S(y | x, w),

which differs from KL(teacher || student) by a constant.

With ``decompose=True`` a head has one more output per target, by which it knows the *aleatoric* part of its
uncertainty: the expected entropy of a draw (classes) or its expected variance (numbers). The rest is epistemic. The
aleatoric part is expressed as a share of the total, so that neither can be negative.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.outcomes.base import Prediction
from darkbayes.types import Array, Key, PyTree

Statistics = dict[str, Array]


class Predicted(NamedTuple):
    """A predictive distribution, and both parts of its uncertainty where they are known."""

    distribution: Any
    """The distribution, such as `NormalMixture`."""
    aleatoric: Array | None = None
    """The aleatoric part of its uncertainty."""
    epistemic: Array | None = None
    """The epistemic part, where it is known by itself and need not be had as a difference."""

    def prediction(self) -> Prediction:
        """The same in numpy, in the unit of what the network learned, for whoever scores, stores or draws it."""
        # One transfer for all arrays.
        return self.distribution.prediction(*jax.device_get((self.aleatoric, self.epistemic)))


class Distribution(eqx.Module):
    """What one network says of a target; with axes in front, what several say."""

    @abc.abstractmethod
    def log_prob(self, y: Array) -> Array:
        """The log density of targets, ``[...]``."""

    @abc.abstractmethod
    def statistics(self) -> Statistics:
        """What to average over draws to know the predictive distribution and its aleatoric part."""

    @abc.abstractmethod
    def outputs(self) -> Array:
        """What is predicted, ``[..., outputs]``: probabilities, or means."""

    def traced(self) -> Array:
        """What chains are compared by, ``[..., outputs]``: what is predicted, without what follows from the rest."""
        return self.outputs()

    @classmethod
    @abc.abstractmethod
    def together(cls, predict: Callable[[PyTree], Any], draws: PyTree) -> Predicted:
        """What draws, along the first axis, predict together: the mixture of what `predict` says of each."""

    @classmethod
    def from_arrays(cls, *parts: np.ndarray) -> "Distribution":
        """What a model from elsewhere says of each row, by the arrays that it returned, which are finite."""
        raise InvalidInput(f"{cls.__name__} is not made of arrays: write its `from_arrays`")

    @classmethod
    def unsaid(cls, first: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """What models that return one array leave unsaid, by targets that they never saw; None if it is nothing.

        `first` has the answers of all models, ``[models, rows, ...]``.
        """
        return None

    @classmethod
    @abc.abstractmethod
    def averaged(cls, mean: Statistics, variance: Statistics) -> Predicted:
        """What draws predict together, as far as the mean and the variance of their `statistics` know it."""

    @classmethod
    @abc.abstractmethod
    def monte_carlo_divergence(cls, mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        """KL(what infinitely many draws would predict || the average of n independent ones) times n, to second order.

        At each input, by the mean and the variance of the `statistics` of draws.
        """

    @classmethod
    @abc.abstractmethod
    def spread(cls, mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        """The predictive standard deviation of what is `traced`, by the mean and the variance of the `statistics`."""

    def prediction(self, aleatoric: Any = None, epistemic: Any = None) -> Prediction:
        """The same in numpy; what no prediction is made of is refused."""
        raise InvalidInput(f"{type(self).__name__} is what one draw says, not a prediction: use predict_draws")


class Likelihood(eqx.Module):
    """How a network's outputs speak of a target. Most have no parameters of their own."""

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Outputs that the network must have."""

    def init(self) -> PyTree:
        """A starting point of its own parameters."""
        return ()

    def log_prior(self, params: PyTree) -> Array | float:
        """The log density of its own parameters."""
        return 0.0

    @abc.abstractmethod
    def distribution(self, params: PyTree, outputs: Array) -> Any:
        """What a network with these outputs says."""

    @abc.abstractmethod
    def check_targets(self, y: Array) -> None:
        """Refuse targets that it cannot explain."""


class Head(eqx.Module):
    """How a student's outputs are read and taught; targets are distributions with the draws along the first axis."""

    learns_from: ClassVar[type[Distribution]]  # What its teacher's draws must say.

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Outputs that the network must have."""

    @property
    @abc.abstractmethod
    def targets(self) -> int:
        """Classes, or numbers, that it speaks of."""

    def seen(self, key: Key, targets: Any) -> Any:
        """What an update looks at of the draws' distributions: they themselves or, if it must be, samples of them."""
        return targets

    @abc.abstractmethod
    def loss(self, outputs: Array, targets: Any) -> Array:
        """The loss of each query, ``[batch]``."""

    @abc.abstractmethod
    def predict(self, outputs: Array) -> Predicted:
        """The predictive distribution, and both parts of its uncertainty where they were distilled."""

    @abc.abstractmethod
    def divergence(self, average: Any, outputs: Array) -> Array:
        """KL(teacher || student) of each query; for numbers, between distributions of the same moments."""

    def write(self, graph: Any, outputs: Any) -> tuple[Any, dict[str, Any]]:
        """Append to an ONNX graph what reads the network's outputs, a value with which numpy calculates.

        Returns the target, in the student's own unit, and the parts that a target's `write_outputs` takes.
        """
        raise InvalidInput(f"{type(self).__name__} has no ONNX form: write its graph in a method `write`")

    def check_teacher(self, likelihood: Likelihood | str, distribution: Distribution) -> None:
        """Refuse a teacher, by its likelihood or its name, of whose draws one says this, if it is of something else."""
        taught = eqx.filter_eval_shape(lambda draw: draw.outputs(), distribution).shape[-1]
        name = likelihood if isinstance(likelihood, str) else type(likelihood).__name__
        teacher = f"{name} (draws are {type(distribution).__name__}, {taught} wide)"
        if not isinstance(distribution, self.learns_from) or taught != self.targets:
            raise InvalidInput(
                f"{self} cannot learn from {teacher}: it follows draws that are {self.learns_from.__name__}, "
                f"{self.targets} wide; choose a head for {name}"
            )


STEEP = 20.0
"""The logarithm of the ratio of two variances beyond which a loss goes on along a straight line."""


class Share(NamedTuple):
    """The aleatoric part of a variance, as a share of it that one output of a student stands for."""

    log_variance: Array
    """The logarithm of the whole variance."""
    output: Array
    """The student's output, the logit of the share."""

    @property
    def log_aleatoric(self) -> Array:
        """The whole is not to be bent to please this output."""
        return jax.lax.stop_gradient(self.log_variance) + jax.nn.log_sigmoid(self.output)

    @property
    def parts(self) -> tuple[Array, Array]:
        """Both parts, each by itself: a small one is lost in a difference."""
        log_epistemic = self.log_variance + jax.nn.log_sigmoid(-self.output)
        return jnp.exp(self.log_aleatoric), jnp.exp(log_epistemic)

    def loss(self, variance: Array) -> Array:
        """An exponential log likelihood of the draws' mean variance: least there, on every scale; ``[batch]``.

        Where the part is too small by many orders of magnitude, as a student's may be at its first questions, it goes
        on along a straight line: it would be infinite otherwise.
        """
        least = jnp.maximum(self.log_aleatoric, jnp.log(variance) - STEEP)
        ratio = variance * jnp.exp(-least) * (1.0 + least - self.log_aleatoric)
        return 0.5 * jnp.sum(self.log_aleatoric + ratio, axis=-1)
