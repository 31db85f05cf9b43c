"""Counts: Poisson and negative binomial likelihoods for the teacher, a negative binomial for the student.

A negative binomial of mean m and dispersion d is Poisson with a rate that is itself Gamma distributed, with mean m and
shape 1/d. So draws, of either kind, say what the rate may be, and the student learns the one Gamma distribution that
follows their mixture best: its loss is the cross entropy of rates,

    -E log Gamma(rate; a, a/m) = log Gamma(a) - a log(a/m) - (a - 1) E log rate + (a/m) E rate,

closed form in the shape a and the mean m, and an upper bound of that of counts up to a constant (whatever is done to
two distributions alike, here drawing Poisson counts from their rates, brings them no further apart). That distribution
has not quite the variance of the mixture, so both parts of it are learnt by themselves.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, digamma, gammaln

from darkbayes.errors import InvalidInput, require_positive
from darkbayes.outcomes.counts import CountPrediction, CountTarget, log_base
from darkbayes.outcomes.heads.base import Distribution, Head, Likelihood, Predicted, Statistics
from darkbayes.outcomes.heads.number import Normal, bent, kl_normal, normal_log_prob
from darkbayes.types import Array, PyTree

REACH = 8.0  # Logarithms of rates stay within so much of that of the mean count.
DISPERSIONS = (-7.0, 3.0)  # Ends of the logarithm of the dispersion.
SHAPES = (-6.0, 10.0)  # Those of a student's log shape of the rate: more than that of any draw, as draws may agree.
PARTS = (-30.0, 20.0)  # Those of the logarithms of both parts of the variance, over the base squared.
DISPERSION_PRIOR = (-2.0, 2.0)  # Mean and standard deviation of the Gaussian prior on the logarithm of the dispersion.


class CountDraw(Distribution):
    """A negative binomial distribution, or a Poisson one if it has no `dispersion`; ``[..., 1]``."""

    rate: Array
    """The mean."""
    dispersion: Array | None = None

    @property
    def variance(self) -> Array:
        return self.rate if self.dispersion is None else self.rate + self.dispersion * self.rate**2

    @property
    def log_rate(self) -> Array:
        """The expected logarithm of the rate that a count is drawn from."""
        if self.dispersion is None:
            return jnp.log(self.rate)
        return jnp.log(self.rate) + digamma(1 / self.dispersion) + jnp.log(self.dispersion)

    def log_prob(self, y: Array) -> Array:
        # No term is much larger than the sum: of large counts, rounding would be seen by nothing but the sampler.
        if self.dispersion is None:
            some = jnp.maximum(y, 1.0)
            excess = (self.rate - some) / some
            logs = some * (jnp.log1p(excess) - excess) - jnp.log(some) - _stirling(jnp.log(some))
            logs = jnp.where(y > 0, logs, -self.rate)
        else:
            shape = 1 / self.dispersion
            logs = -betaln(y + 1, shape) - jnp.log(y + shape)
            logs -= shape * jnp.log1p(self.rate / shape) + y * jnp.log1p(shape / self.rate)
        return jnp.sum(logs, axis=-1)

    def statistics(self) -> Statistics:
        return {"mean": self.rate, "variance": self.variance}

    def outputs(self) -> Array:
        return self.rate

    @classmethod
    def together(cls, predict: Callable[[PyTree], Any], draws: PyTree) -> Predicted:
        each = jax.lax.map(predict, draws)
        dispersion = jnp.zeros_like(each.rate) if each.dispersion is None else each.dispersion
        log_weights = jnp.full_like(each.rate, -jnp.log(len(each.rate)))
        return Predicted(CountMixture(log_weights, each.rate, dispersion), jnp.mean(each.variance, axis=0))

    @classmethod
    def from_arrays(cls, *parts: np.ndarray) -> "CountDraw":
        """Rates ``[rows]`` or ``[rows, 1]``, and dispersions if it is not Poisson."""
        rows, shapes = len(parts[0]), " and ".join(str(part.shape) for part in parts)
        if len(parts) > 2 or any(part.size not in (rows, 1) or not (part > 0).all() for part in parts):
            raise InvalidInput(f"it must return positive rates [rows], with dispersions or alone, not shape {shapes}")
        return cls(*(jnp.asarray(np.broadcast_to(part.ravel(), rows)[:, None], jnp.float32) for part in parts))

    @classmethod
    def averaged(cls, mean: Statistics, variance: Statistics) -> Predicted:
        """The negative binomial of the same mean and variance, as the draws themselves were not kept."""
        rate, more = mean["mean"], mean["variance"] + variance["mean"] - mean["mean"]
        dispersion = jnp.maximum(more, 0.0) / rate**2
        return Predicted(CountMixture(jnp.zeros_like(rate)[None], rate[None], dispersion[None]), mean["variance"])

    @classmethod
    def monte_carlo_divergence(cls, mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        return Normal.monte_carlo_divergence(mean, variance)

    @classmethod
    def spread(cls, mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        return Normal.spread(mean, variance)


class CountMixture(eqx.Module):
    """A mixture of negative binomial distributions, all of shape ``[components, batch, 1]``."""

    log_weights: Array
    """The logarithms of the components' weights."""
    rate: Array
    """Of each component."""
    dispersion: Array
    """Of each component."""

    def prediction(self, aleatoric: Any = None, epistemic: Any = None) -> CountPrediction:
        return CountPrediction.of_mixture(self.log_weights, self.rate, self.dispersion, aleatoric, epistemic)


class Poisson(Likelihood):
    """Counts whose rate is `base` times the exponential of the output, bent smoothly into `REACH` on either side."""

    base: float = eqx.field(converter=partial(require_positive, "base"), default=1.0)

    @property
    def width(self) -> int:
        return 1

    def distribution(self, params: PyTree, outputs: Array) -> CountDraw:
        return CountDraw(jnp.exp(log_base(self.base) + bent(outputs, -REACH, REACH)))

    def check_targets(self, y: Array) -> None:
        values = np.asarray(y)
        if values.ndim != 2 or values.shape[1] != 1 or not np.issubdtype(values.dtype, np.floating):
            wanted = f"counts as floats of shape [examples, 1] for {type(self).__name__}"
            given = f"shape {values.shape} of {values.dtype}"
            raise InvalidInput(f"y must hold {wanted}, not {given}: convert y, and reshape it with y[:, None]")
        wrong = values[(values < 0) | (values != np.floor(values))]
        if wrong.size:
            raise InvalidInput(f"y holds {wrong[0]:g}, but {type(self).__name__} explains counts: correct it")


class NegativeBinomial(Poisson):
    """As `Poisson`, with a dispersion that is inferred with the weights; its logarithm has a Gaussian prior."""

    def init(self) -> Array:
        return jnp.full(1, DISPERSION_PRIOR[0], dtype=float)

    def log_prior(self, params: Array) -> Array:
        mean, std = DISPERSION_PRIOR
        return jnp.sum(normal_log_prob(params, mean, std**2))

    def distribution(self, params: Array, outputs: Array) -> CountDraw:
        rate = super().distribution(params, outputs).rate
        return CountDraw(rate, jnp.broadcast_to(jnp.exp(bent(params, *DISPERSIONS)), rate.shape))


class CountHead(Head):
    """A negative binomial: the logarithms of its mean, relative to `base`, and of its shape 1/dispersion."""

    learns_from: ClassVar[type[Distribution]] = CountDraw

    base: float = eqx.field(converter=partial(require_positive, "base"), default=1.0)
    decompose: bool = False
    """Whether two more outputs stand for the parts of the variance."""

    @property
    def width(self) -> int:
        return 4 if self.decompose else 2

    @property
    def targets(self) -> int:
        return 1

    def _read(self, outputs: Array) -> tuple[Array, Array, Array]:
        """The logarithms of mean, shape and variance."""
        log_mean = log_base(self.base) + bent(outputs[:, :1], -REACH, REACH)
        log_shape = bent(outputs[:, 1:2], *SHAPES)
        return log_mean, log_shape, jnp.logaddexp(log_mean, 2 * log_mean - log_shape)

    def _log_parts(self, outputs: Array) -> Array:
        """The logarithms of the aleatoric and of the epistemic variance, ``[batch, 2]``."""
        # Of a fixed unit: what is relative to the distribution has to follow all that it learns, and lags behind.
        return 2 * log_base(self.base) + bent(outputs[:, 2:], *PARTS)

    def loss(self, outputs: Array, targets: CountDraw) -> Array:
        """The cross entropy of rates, and exponential log likelihoods of both parts of the variance."""
        log_mean, log_shape, _ = self._read(outputs)
        rate, log_rate = jnp.mean(targets.rate, axis=0), jnp.mean(targets.log_rate, axis=0)
        # Of the rate over the mean, as the terms of the rate itself would cancel where the shape is large.
        distance = jnp.exp(log_shape) * (rate * jnp.exp(-log_mean) - 1 - (log_rate - log_mean))
        loss = jnp.sum(distance + log_rate + _stirling(log_shape), axis=-1)
        if self.decompose:
            # About the student's own mean: about that of few draws there would be too little, of one draw nothing.
            between = jnp.mean((targets.rate - jax.lax.stop_gradient(jnp.exp(log_mean))) ** 2, axis=0)
            parts = jnp.concatenate([jnp.mean(targets.variance, axis=0), between], axis=1)
            logs = self._log_parts(outputs)
            loss += 0.5 * jnp.sum(logs + parts * jnp.exp(-logs), axis=-1)
        return loss

    def predict(self, outputs: Array) -> Predicted:
        log_mean, log_shape, _ = self._read(outputs)
        rate = jnp.exp(log_mean)[None]
        mixture = CountMixture(jnp.zeros_like(rate), rate, jnp.exp(-log_shape)[None])
        return Predicted(mixture, *(jnp.split(jnp.exp(self._log_parts(outputs)), 2, axis=1) if self.decompose else ()))

    def divergence(self, average: Any, outputs: Array) -> Array:
        log_mean, _, log_variance = self._read(outputs)
        teacher = Normal.averaged(average.mean, average.variance).distribution
        return kl_normal(teacher, Normal(jnp.exp(log_mean), jnp.exp(log_variance)))

    def write(self, graph: Any, outputs: Any) -> tuple[CountTarget, dict[str, Any]]:
        rate, shape, *others = (outputs.astype(np.float64).columns([place]) for place in range(self.width))
        log_rate, log_shape = log_base(self.base) + bent(rate, -REACH, REACH, np), bent(shape, *SHAPES, np)
        parts: dict[str, Any] = {"log_rate": log_rate, "log_shape": log_shape}
        if self.decompose:
            parts["log_parts"] = [2 * log_base(self.base) + bent(other, *PARTS, np) for other in others]
        return CountTarget("y", self.base, 0.0, self.base), parts


def _stirling(log_shape: Array) -> Array:
    """log Gamma(a) - a log a + a, which is small where a is large, and would be lost in rounding there."""
    shape = jnp.exp(log_shape)
    exact = gammaln(shape) - shape * log_shape + shape
    series = 0.5 * (jnp.log(2 * jnp.pi) - log_shape) + 1 / (12 * shape) - 1 / (360 * shape**3)
    return jnp.where(shape < 10.0, exact, series)
