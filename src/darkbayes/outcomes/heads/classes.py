"""Classes 0 .. K-1: a softmax for the teacher, and one for the student (section 2.1 of the paper)."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.outcomes.classes import FLOOR, ClassPrediction, ClassTarget
from darkbayes.outcomes.heads.base import Distribution, Head, Likelihood, Predicted, Statistics
from darkbayes.types import Array, PyTree

SUM_ERROR = 1e-3
"""How far from one the probabilities of a model from elsewhere may add up."""
LEAST_SHARE = 0.01
"""A probability below which the error of one is judged as if it were this."""


class Categorical(Distribution):
    """A distribution over classes, ``log_probs`` of shape ``[..., classes]``."""

    log_probs: Array

    @property
    def probs(self) -> Array:
        return jnp.exp(self.log_probs)

    @property
    def entropy(self) -> Array:
        """In nats."""
        return categorical_entropy(self.probs)

    def log_prob(self, y: Array) -> Array:
        # A one-hot product instead of indexing: its gradient is dense, which XLA fuses; that of indexing is a scatter.
        hot = jax.nn.one_hot(y, self.log_probs.shape[-1], dtype=self.log_probs.dtype)
        return jnp.sum(hot * self.log_probs, axis=-1)

    def statistics(self) -> Statistics:
        return {"probs": self.probs, "entropy": self.entropy}

    def outputs(self) -> Array:
        return self.probs

    def traced(self) -> Array:
        """Without the probability of the first class, which follows from the others."""
        return self.probs[..., 1:]

    @classmethod
    def together(cls, predict: Callable[[PyTree], Any], draws: PyTree) -> Predicted:
        """One draw after another: all at once would hold every hidden layer of every draw."""

        # Sums of entropies, and of probabilities in units of the largest so far, so that none is too small for a float;
        # with what rounding took from both (Kahan, 1965): 100,000 draws would otherwise add up to 1 - 1e-4.
        def add(state: tuple[Array, Array, Array], draw: PyTree) -> tuple[tuple[Array, Array, Array], None]:
            largest, sums, lost = state
            distribution = predict(draw)
            larger = jnp.maximum(largest, distribution.log_probs)
            sums, lost = (part.at[..., 1:].multiply(jnp.exp(largest - larger)) for part in (sums, lost))
            entropy, probs = distribution.entropy[..., None], jnp.exp(distribution.log_probs - larger)
            term = jnp.concatenate([entropy, probs], axis=-1) - lost
            return (larger, sums + term, (sums + term) - sums - term), None

        kind = jax.eval_shape(predict, jax.tree.map(lambda leaf: leaf[0], draws)).log_probs
        nothing = jnp.zeros((*kind.shape[:-1], kind.shape[-1] + 1), kind.dtype)
        least = jnp.full(kind.shape, jnp.finfo(kind.dtype).min, kind.dtype)
        (largest, sums, _), _ = jax.lax.scan(add, (least, nothing, nothing), draws)
        means = sums / len(jax.tree.leaves(draws)[0])
        return Predicted(cls(jnp.log(means[..., 1:]) + largest), means[..., 0])

    @classmethod
    def from_arrays(cls, *parts: np.ndarray) -> "Categorical":
        """Probabilities ``[rows, classes]``."""
        probs = parts[0]
        if len(parts) > 1 or probs.ndim != 2:
            given = " and ".join(f"shape {part.shape}" for part in parts)
            raise InvalidInput(f"it must return probabilities [rows, classes], not {given}: use its predict_proba")
        wrong = np.flatnonzero((probs < 0).any(axis=1) | (np.abs(probs.sum(axis=1) - 1.0) > SUM_ERROR))
        if wrong.size:
            raise InvalidInput(
                f"row {wrong[0]} has {probs[wrong[0]]}, which are not probabilities: apply a softmax to logits"
            )
        probs = probs / probs.sum(axis=1, keepdims=True)
        return cls(jnp.asarray(np.log(np.maximum(probs, np.finfo(np.float32).tiny)), jnp.float32))

    @classmethod
    def averaged(cls, mean: Statistics, variance: Statistics) -> Predicted:
        # What rounding did to a long average would show in their sum.
        return Predicted(cls(jnp.log(mean["probs"] / jnp.sum(mean["probs"], axis=-1, keepdims=True))), mean["entropy"])

    @classmethod
    def monte_carlo_divergence(cls, mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        return (0.5 * variance["probs"] / np.maximum(mean["probs"], FLOOR)).sum(axis=-1)

    @classmethod
    def spread(cls, mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        """That of whether it is the class."""
        probs = np.clip(mean["probs"][..., 1:], LEAST_SHARE, 1.0 - LEAST_SHARE)
        return np.sqrt(probs * (1.0 - probs))

    def prediction(self, aleatoric: Any = None, epistemic: Any = None) -> ClassPrediction:
        expected = None if aleatoric is None else np.asarray(aleatoric, np.float64)
        return ClassPrediction(np.asarray(self.log_probs, np.float64), expected)


class Softmax(Likelihood):
    """Classes 0 .. K-1; the outputs are logits."""

    num_classes: int = eqx.field(converter=partial(require_count, "num_classes", least=2))
    """K."""

    @property
    def width(self) -> int:
        return self.num_classes

    def distribution(self, params: PyTree, outputs: Array) -> Categorical:
        return Categorical(jax.nn.log_softmax(outputs, axis=-1))

    def check_targets(self, y: Array) -> None:
        values = np.asarray(y)
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
            given = f"shape {values.shape} of {values.dtype}"
            raise InvalidInput(f"y must be one integer class per row for Softmax, not {given}")
        outside = values[(values < 0) | (values >= self.num_classes)]
        if outside.size:
            last = self.num_classes - 1
            raise InvalidInput(f"y holds label {outside[0]}, outside 0..{last}: relabel it or raise num_classes")


class SoftmaxHead(Head):
    """Class probabilities.

    With a `temperature` T above 1 it learns at softened targets (Hinton, Vinyals and Dean, 2015): the loss is

        -T^2 sum_k q_k log S_k,   q ~ (average of the draws)^(1/T),   S ~ (student's probabilities)^(1/T),

    which is least where the student's own probabilities are the average, as without it, and cares more for classes that
    are unlikely. It is the average that is softened: an average of softened draws would not be the predictive. So let
    the targets be averages over many draws, or all of them.
    """

    learns_from: ClassVar[type[Distribution]] = Categorical

    num_classes: int = eqx.field(converter=partial(require_count, "num_classes", least=2))
    """Classes 0 .. K-1."""
    decompose: bool = False
    """Whether one more output stands for the aleatoric part of the entropy."""
    temperature: float = eqx.field(converter=partial(require_positive, "temperature"), default=1.0)

    @property
    def width(self) -> int:
        return self.num_classes + self.decompose

    @property
    def targets(self) -> int:
        return self.num_classes

    def loss(self, outputs: Array, targets: Categorical) -> Array:
        logits, average = outputs[:, : self.num_classes], jnp.mean(targets.probs, axis=0)
        if self.temperature != 1:
            logs = jnp.log(jnp.maximum(average, jnp.finfo(average.dtype).tiny))
            logits, average = logits / self.temperature, jax.nn.softmax(logs / self.temperature)
        loss = -(self.temperature**2) * jnp.sum(average * jax.nn.log_softmax(logits), axis=-1)
        if self.decompose:
            # Cross entropy of shares of the largest possible entropy: least at the mean of the targets, and bounded.
            most, target = np.log(self.num_classes), jnp.mean(targets.entropy, axis=0)
            share = jnp.clip(self._expected_entropy(outputs) / most, 1e-7, 1 - 1e-7)
            loss += -(target / most * jnp.log(share) + (1 - target / most) * jnp.log1p(-share))
        return loss

    def _expected_entropy(self, outputs: Array) -> Array:
        # The class probabilities are not to be bent to please this head.
        total = jax.lax.stop_gradient(categorical_entropy(jax.nn.softmax(outputs[:, : self.num_classes])))
        return total * jax.nn.sigmoid(outputs[:, self.num_classes])

    def predict(self, outputs: Array) -> Predicted:
        distribution = Categorical(jax.nn.log_softmax(outputs[:, : self.num_classes]))
        return Predicted(distribution, self._expected_entropy(outputs) if self.decompose else None)

    def divergence(self, average: Any, outputs: Array) -> Array:
        return kl_categorical(average.mean["probs"], self.predict(outputs).distribution.probs, floor=FLOOR)

    def write(self, graph: Any, outputs: Any) -> tuple[ClassTarget, dict[str, Any]]:
        target = ClassTarget("y", tuple(map(str, range(self.num_classes))), "integer")
        if not self.decompose:
            return target, {"logits": outputs}
        return target, {
            "logits": outputs.columns(range(self.num_classes)),
            "share": outputs.columns([self.num_classes]),
        }


def categorical_entropy(probs: Array) -> Array:
    """The entropy in nats along the last axis, with 0 log 0 = 0.

    >>> round(float(categorical_entropy(jnp.array([0.5, 0.5]))), 4)
    0.6931
    """
    return jnp.sum(jax.scipy.special.entr(probs), axis=-1)


def kl_categorical(p: Array, q: Array, floor: float = 0.0) -> Array:
    """KL(p || q) along the last axis, of probabilities clipped from below at `floor`.

    >>> float(kl_categorical(jnp.array([0.5, 0.5]), jnp.array([0.5, 0.5])))
    0.0
    """
    p, q = jnp.maximum(p, floor), jnp.maximum(q, floor)
    return jnp.sum(jax.scipy.special.rel_entr(p, q), axis=-1)
