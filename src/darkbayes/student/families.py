"""What a student can say, and the loss that teaches it to say what the draws say on average.

The loss of a student S at x, given draws theta^s, is the paper's equation (2),

    L(w | x) = -1/|Theta| sum_s E_{p(y | x, theta^s)} log S(y | x, w),

which differs from KL(teacher || student) by a constant. It is closed form for `SoftmaxStudent` and
`GaussianStudent`; for `MixtureStudent` the inner expectation is taken by Gauss-Hermite quadrature.

With ``decompose=True`` a student has one more output per target, from which it tells the *aleatoric* part of its
uncertainty: the expected entropy of a draw (classification) or its expected variance (regression). The rest is
epistemic. The aleatoric part is expressed as a fraction of the total, so that neither can be negative.
"""

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import plain, require_count
from darkbayes.model import (
    Categorical,
    Distribution,
    Normal,
    NormalMixture,
    categorical_entropy,
    kl_categorical,
    kl_normal,
)
from darkbayes.model.distributions import LOG_2PI
from darkbayes.teacher import Average
from darkbayes.types import Array


class Family(Protocol):
    """How a student's outputs are read and taught; `targets` are distributions with the draws along the first axis."""

    @property
    def width(self) -> int: ...

    def loss(self, outputs: Array, targets: Distribution) -> Array:
        """The loss of each query, ``[batch]``."""
        ...

    def predict(self, outputs: Array) -> tuple[Categorical | Normal | NormalMixture, Array | None]:
        """The predictive distribution and its aleatoric part (None where it was not distilled)."""
        ...

    def divergence(self, average: Average, outputs: Array) -> Array:
        """KL(teacher || student) of each query; for regression, between Gaussians of the same moments."""
        ...


class SoftmaxStudent(eqx.Module):
    """Class probabilities, section 2.1 of the paper."""

    num_classes: int = eqx.field(converter=plain)
    decompose: bool = False

    def __check_init__(self) -> None:
        require_count("num_classes", self.num_classes, least=2)

    @property
    def width(self) -> int:
        return self.num_classes + self.decompose

    def loss(self, outputs: Array, targets: Categorical) -> Array:
        log_probs = jax.nn.log_softmax(outputs[:, : self.num_classes])
        loss = -jnp.sum(jnp.mean(targets.probs, axis=0) * log_probs, axis=-1)
        if self.decompose:
            loss += self._entropy_loss(outputs, jnp.mean(targets.entropy, axis=0))
        return loss

    def _entropy_loss(self, outputs: Array, target: Array) -> Array:
        # Cross entropy of shares of the largest possible entropy: least at the mean of the targets, and bounded.
        most = np.log(self.num_classes)
        share = jnp.clip(self._expected_entropy(outputs) / most, 1e-7, 1 - 1e-7)
        return -(target / most * jnp.log(share) + (1 - target / most) * jnp.log1p(-share))

    def _expected_entropy(self, outputs: Array) -> Array:
        # The class probabilities are not to be bent to please this head.
        total = jax.lax.stop_gradient(categorical_entropy(jax.nn.softmax(outputs[:, : self.num_classes])))
        return total * jax.nn.sigmoid(outputs[:, self.num_classes])

    def predict(self, outputs: Array) -> tuple[Categorical, Array | None]:
        distribution = Categorical(jax.nn.log_softmax(outputs[:, : self.num_classes]))
        return distribution, self._expected_entropy(outputs) if self.decompose else None

    def divergence(self, average: Average, outputs: Array) -> Array:
        return kl_categorical(average.mean["probs"], self.predict(outputs)[0].probs, floor=1e-6)


class GaussianStudent(eqx.Module):
    """A mean mu and a log variance alpha per output, section 2.2 of the paper.

    For draws with means f and variances v the loss is 1/2 [log 2 pi + alpha + e^-alpha {(f - mu)^2 + v}] on average.
    """

    num_outputs: int = eqx.field(converter=plain, default=1)
    decompose: bool = False

    def __check_init__(self) -> None:
        require_count("num_outputs", self.num_outputs)

    @property
    def width(self) -> int:
        return self.num_outputs * (3 if self.decompose else 2)

    def loss(self, outputs: Array, targets: Normal) -> Array:
        mean, log_variance = outputs[:, : self.num_outputs], outputs[:, self.num_outputs : 2 * self.num_outputs]
        center = jnp.mean(targets.mean, axis=0)
        noise = jnp.mean(targets.variance, axis=0)
        square = (center - mean) ** 2 + jnp.var(targets.mean, axis=0) + noise
        loss = 0.5 * (LOG_2PI + log_variance + jnp.exp(-log_variance) * square)
        loss = jnp.sum(loss, axis=-1)
        if self.decompose:
            loss += _aleatoric_loss(self._log_aleatoric(outputs), targets)
        return loss

    def _log_aleatoric(self, outputs: Array) -> Array:
        total = jax.lax.stop_gradient(outputs[:, self.num_outputs : 2 * self.num_outputs])
        return total + jax.nn.log_sigmoid(outputs[:, 2 * self.num_outputs :])

    def predict(self, outputs: Array) -> tuple[Normal, Array | None]:
        mean, log_variance = outputs[:, : self.num_outputs], outputs[:, self.num_outputs : 2 * self.num_outputs]
        return Normal(mean, jnp.exp(log_variance)), jnp.exp(self._log_aleatoric(outputs)) if self.decompose else None

    def epistemic(self, outputs: Array) -> Array | None:
        """What is not aleatoric of the variance, told apart from it: a small part is lost in a difference."""
        log_variance, head = outputs[:, self.num_outputs : 2 * self.num_outputs], outputs[:, 2 * self.num_outputs :]
        return jnp.exp(log_variance + jax.nn.log_sigmoid(-head)) if self.decompose else None

    def divergence(self, average: Average, outputs: Array) -> Array:
        return kl_normal(_moments(average), self.predict(outputs)[0])


class MixtureStudent(eqx.Module):
    """A mixture of Gaussians per output, for predictive distributions that a single one cannot follow.

    The outputs are the logits of all components, then their means, then their log variances, each for every target;
    with ``decompose=True`` those for the aleatoric parts follow.
    """

    components: int = eqx.field(converter=plain)
    num_outputs: int = eqx.field(converter=plain, default=1)
    quadrature: int = eqx.field(converter=plain, default=20)
    """Nodes of the quadrature over each draw's Gaussian; more where a component may be far narrower than it."""
    decompose: bool = False

    def __check_init__(self) -> None:
        require_count("components", self.components)
        require_count("num_outputs", self.num_outputs)
        require_count("quadrature", self.quadrature)

    @property
    def _mixture_width(self) -> int:
        return 3 * self.components * self.num_outputs

    @property
    def width(self) -> int:
        return self._mixture_width + (self.num_outputs if self.decompose else 0)

    def predict(self, outputs: Array) -> tuple[NormalMixture, Array | None]:
        mixture = self._mixture(outputs)
        return mixture, jnp.exp(self._log_aleatoric(outputs, mixture)) if self.decompose else None

    def _mixture(self, outputs: Array) -> NormalMixture:
        parts = outputs[:, : self._mixture_width].reshape(len(outputs), 3, self.components, self.num_outputs)
        logits, means, log_variances = parts.transpose(1, 2, 0, 3)
        return NormalMixture(jax.nn.log_softmax(logits, axis=0), means, jnp.exp(log_variances))

    def _log_aleatoric(self, outputs: Array, mixture: NormalMixture) -> Array:
        # The mixture is not to be bent to please this head.
        total = jax.lax.stop_gradient(jnp.log(mixture.moments().variance))
        return total + jax.nn.log_sigmoid(outputs[:, self._mixture_width :])

    def loss(self, outputs: Array, targets: Normal) -> Array:
        mixture = self._mixture(outputs)
        nodes, weights = np.polynomial.hermite_e.hermegauss(self.quadrature)
        spread = jnp.sqrt(targets.variance)

        def at_node(node: Array) -> Array:
            return jnp.mean(jax.vmap(mixture.log_prob)(targets.mean + node * spread), axis=0)

        values = jax.vmap(at_node)(jnp.asarray(nodes, outputs.dtype))
        loss = -jnp.tensordot(jnp.asarray(weights / weights.sum(), outputs.dtype), values, axes=1)
        if self.decompose:
            loss += _aleatoric_loss(self._log_aleatoric(outputs, mixture), targets)
        return loss

    def divergence(self, average: Average, outputs: Array) -> Array:
        return kl_normal(_moments(average), self.predict(outputs)[0].moments())


def _aleatoric_loss(log_part: Array, targets: Normal) -> Array:
    """An exponential log likelihood of the draws' variances: least at their mean, on every scale of them."""
    return 0.5 * jnp.sum(log_part + jnp.mean(targets.variance, axis=0) * jnp.exp(-log_part), axis=-1)


def _moments(average: Average) -> Normal:
    return Normal(average.mean["mean"], average.mean["variance"] + average.variance["mean"])
