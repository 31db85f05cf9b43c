"""Numbers: Gaussian likelihoods for the teacher, a Gaussian or a mixture for the student (section 2.2 of the paper)."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, plain, require_count, require_positive
from darkbayes.outcomes.heads.base import Distribution, Head, Likelihood, Predicted, Share, Statistics
from darkbayes.outcomes.number import LOG_2PI, NumberPrediction, NumberTarget
from darkbayes.outcomes.several import SeveralTarget
from darkbayes.types import Array, ArrayLike, Key, PyTree

LOG_VARIANCES = -14.0, 14.0
"""What a student may claim of a standardised target; beyond, its loss would run out of numbers."""


class Normal(Distribution):
    """Independent Gaussians, one per output, ``mean`` and ``variance`` of shape ``[..., outputs]``."""

    mean: Array
    variance: Array

    def log_prob(self, y: Array) -> Array:
        return jnp.sum(normal_log_prob(y, self.mean, self.variance), axis=-1)

    def statistics(self) -> Statistics:
        return {"mean": self.mean, "variance": self.variance}

    def outputs(self) -> Array:
        return self.mean

    @classmethod
    def together(cls, predict: Callable[[PyTree], Any], draws: PyTree) -> Predicted:
        each = jax.lax.map(predict, draws)
        log_weights = jnp.full_like(each.mean, -jnp.log(len(each.mean)))
        mixture = NormalMixture(log_weights, each.mean, each.variance, joint=True)
        return Predicted(mixture, jnp.mean(each.variance, axis=0))

    @classmethod
    def from_arrays(cls, *parts: np.ndarray) -> "Normal":
        """Means, and variances of the noise around them, ``[rows, outputs]`` or ``[rows]``; or one variance for all."""
        if len(parts) != 2:
            raise InvalidInput("it returns means alone: let it return (mean, variance), or give noise, its variance")
        mean = parts[0].reshape(len(parts[0]), -1)
        if parts[0].ndim > 2 or parts[1].ndim > 2 or parts[1].size not in (1, mean.shape[1], mean.size):
            given = f"{parts[0].shape} and {parts[1].shape}"
            raise InvalidInput(f"means and variances must be [rows, outputs], not of shapes {given}")
        if not (parts[1] > 0).all():
            raise InvalidInput(f"the least variance is {parts[1].min():g}: variances must be positive")
        rows = len(mean) if parts[1].size == mean.size else 1
        variance = np.broadcast_to(parts[1].reshape(rows, -1), mean.shape)
        return cls(jnp.asarray(mean, jnp.float32), jnp.asarray(variance, jnp.float32))

    @classmethod
    def unsaid(cls, first: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The variance of each output's noise under which the mixture of the models makes the targets likeliest."""
        from scipy.optimize import minimize_scalar
        from scipy.special import logsumexp

        squares = (first.reshape(*first.shape[:2], -1) - y.reshape(len(y), -1)) ** 2

        def cost(log_variance: float, square: np.ndarray) -> float:
            # Up to a constant; an average over models of densities, and over rows of their logarithms.
            logs: Any = logsumexp(-0.5 * square / np.exp(log_variance), axis=0)
            return float(0.5 * log_variance - logs.mean())

        most = np.log(np.maximum(squares.mean(axis=(0, 1)), np.finfo(np.float32).tiny))
        best = [
            minimize_scalar(cost, args=(squares[..., k],), bounds=(top - 12.0, top + 1.0), method="bounded").x
            for k, top in enumerate(most)
        ]
        return np.exp(best)

    @classmethod
    def averaged(cls, mean: Statistics, variance: Statistics) -> Predicted:
        """The Gaussian of the same mean and variance, as the draws themselves were not kept."""
        return Predicted(cls(mean["mean"], mean["variance"] + variance["mean"]), mean["variance"])

    @classmethod
    def monte_carlo_divergence(cls, mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        """1/2 V(m) / s + 1/4 [V(v) + 2 V(m)^2] / s^2 for a Gaussian of variance s = E(v) + V(m)."""
        total = mean["variance"] + variance["mean"]
        parts = 0.5 * variance["mean"] / total + 0.25 * (variance["variance"] + 2 * variance["mean"] ** 2) / total**2
        return parts.sum(axis=-1)

    @classmethod
    def spread(cls, mean: dict[str, np.ndarray], variance: dict[str, np.ndarray]) -> np.ndarray:
        return np.sqrt(mean["variance"] + variance["mean"])

    def prediction(self, aleatoric: Any = None, epistemic: Any = None) -> NumberPrediction:
        one = self.mean[None]
        return NumberPrediction.standard(np.zeros(one.shape), one, self.variance[None], aleatoric, epistemic)


class NormalMixture(eqx.Module):
    """A mixture of Gaussians, all of shape ``[components, batch, outputs]``.

    With `joint` the outputs of a component go together, as those of one draw do, and its weight is the same for all of
    them; otherwise each output has a mixture of its own.
    """

    log_weights: Array
    """The logarithms of the components' weights."""
    mean: Array
    """Of each component."""
    variance: Array
    """Of each component."""
    joint: bool = False

    def log_prob(self, y: Array) -> Array:
        parts = normal_log_prob(y[None], self.mean, self.variance)
        if self.joint:
            return jax.nn.logsumexp(self.log_weights[..., 0] + jnp.sum(parts, axis=-1), axis=0)
        return jnp.sum(jax.nn.logsumexp(self.log_weights + parts, axis=0), axis=-1)

    def moments(self) -> Normal:
        """The Gaussian of the same mean and variance, ``[batch, outputs]``."""
        weights = jnp.exp(self.log_weights)
        mean = jnp.sum(weights * self.mean, axis=0)
        return Normal(mean, jnp.sum(weights * (self.variance + (self.mean - mean[None]) ** 2), axis=0))

    def prediction(self, aleatoric: Any = None, epistemic: Any = None) -> NumberPrediction:
        mixture = self.log_weights, self.mean, self.variance
        return NumberPrediction.standard(*mixture, aleatoric, epistemic, joint=self.joint)


class _RealLikelihood(Likelihood):
    @property
    def width(self) -> int:
        return self.num_outputs  # pyright: ignore[reportAttributeAccessIssue]

    def check_targets(self, y: Array) -> None:
        outputs = self.num_outputs  # pyright: ignore[reportAttributeAccessIssue]
        shape, dtype = np.shape(y), np.asarray(y).dtype
        if not np.issubdtype(dtype, np.floating) or shape[1:] != (outputs,):
            raise InvalidInput(
                f"y must hold floats of shape [examples, {outputs}] for {type(self).__name__}, "
                f"not shape {shape} of {dtype}: convert y, or reshape a single output with y[:, None]"
            )


class Gaussian(_RealLikelihood):
    """Gaussian targets around the outputs, with a known `noise_precision` (lambda_n of the paper)."""

    noise_precision: float = eqx.field(converter=partial(require_positive, "noise_precision"))
    num_outputs: int = eqx.field(converter=partial(require_count, "num_outputs"), default=1)
    """How many numbers are predicted."""

    def distribution(self, params: PyTree, outputs: Array) -> Normal:
        return Normal(outputs, jnp.full_like(outputs, 1.0 / self.noise_precision))


class GaussianSampledNoise(_RealLikelihood):
    """Gaussian targets whose noise precision is inferred with the weights, one per output.

    The parameter is the log precision; the precision has a Gamma prior of this `shape` and `rate`.
    """

    num_outputs: int = eqx.field(converter=partial(require_count, "num_outputs"), default=1)
    """How many numbers are predicted."""
    shape: float = eqx.field(converter=partial(require_positive, "shape"), default=6.0)
    rate: float = eqx.field(converter=partial(require_positive, "rate"), default=6.0)

    def init(self) -> Array:
        # Of a definite dtype: a weak one turns definite at the first step, and all is compiled anew.
        return jnp.full(self.num_outputs, jnp.log(self.shape / self.rate), dtype=float)

    def log_prior(self, params: Array) -> Array:
        # The Jacobian of the log turns the exponent shape - 1 into shape.
        constant = self.shape * jnp.log(self.rate) - jax.scipy.special.gammaln(self.shape)
        return jnp.sum(self.shape * params - self.rate * jnp.exp(params) + constant)

    def distribution(self, params: Array, outputs: Array) -> Normal:
        return Normal(outputs, jnp.broadcast_to(jnp.exp(-params), outputs.shape))


class GaussianInputNoise(_RealLikelihood):
    """Gaussian targets whose noise depends on the input: the outputs are means, then log variances.

    A single draw may claim any variance where it has seen no data, so the log variance is bent smoothly into
    [`min_log_variance`, `max_log_variance`]; inside, it is left as it is to within the softness of the bend.
    """

    num_outputs: int = eqx.field(converter=partial(require_count, "num_outputs"), default=1)
    """How many numbers are predicted."""
    min_log_variance: float = eqx.field(converter=plain, default=-8.0)
    max_log_variance: float = eqx.field(converter=plain, default=4.0)

    def __check_init__(self) -> None:
        low, high = self.min_log_variance, self.max_log_variance
        if not -np.inf < low < high < np.inf:
            raise InvalidInput(f"min_log_variance={low} must lie below max_log_variance={high}, both finite")

    @property
    def width(self) -> int:
        return 2 * self.num_outputs

    def distribution(self, params: PyTree, outputs: Array) -> Normal:
        mean, raw = jnp.split(outputs, 2, axis=-1)
        return Normal(mean, jnp.exp(bent(raw, self.min_log_variance, self.max_log_variance)))


def bent(raw: Any, low: float, high: float, numpy: Any = jnp) -> Any:
    """Values bent smoothly into [low, high]; inside, they are left as they are to within the softness of the bend."""

    def softplus(x: Any) -> Any:
        # log(1 + e^x) for numbers below 60 or so, beyond which it is x: a third of the cost of one for all numbers.
        return numpy.log(1.0 + numpy.exp(numpy.minimum(x, 30.0))) + numpy.maximum(x - 30.0, 0.0)

    span = high - low
    twice = span - softplus(span - softplus(raw - low))
    # Bent twice, it begins a little below 0: stretch it to begin there.
    least = span - float(np.logaddexp(0.0, span))
    return low + (twice - least) * span / (span - least)


class _NumberHead(Head):
    learns_from: ClassVar[type[Distribution]] = Normal

    @property
    def targets(self) -> int:
        return self.num_outputs  # pyright: ignore[reportAttributeAccessIssue]

    def divergence(self, average: Any, outputs: Array) -> Array:
        return kl_normal(Normal.averaged(average.mean, average.variance).distribution, self.moments(outputs))

    @abc.abstractmethod
    def moments(self, outputs: Array) -> Normal:
        """Mean and variance of what is predicted."""

    def _standard(self) -> SeveralTarget:
        """The target in the student's own unit."""
        parts = (NumberTarget(f"y{k}", "identity", 0.0, 1.0, -1.0, 1.0) for k in range(self.targets))
        return SeveralTarget(tuple(parts))


class GaussianHead(_NumberHead):
    """A mean mu and a log variance alpha per output.

    For draws with means f and variances v the loss is 1/2 [log 2 pi + alpha + e^-alpha {(f - mu)^2 + v}] on average.
    """

    num_outputs: int = eqx.field(converter=partial(require_count, "num_outputs"), default=1)
    """How many numbers are predicted."""
    decompose: bool = False
    """Whether an output per target stands for the aleatoric part."""

    @property
    def width(self) -> int:
        return self.num_outputs * (3 if self.decompose else 2)

    def _read(self, outputs: Array) -> tuple[Array, Array, Share]:
        number = self.num_outputs
        mean, log_variance = outputs[:, :number], jnp.clip(outputs[:, number : 2 * number], *LOG_VARIANCES)
        return mean, log_variance, Share(log_variance, outputs[:, 2 * number :])

    def loss(self, outputs: Array, targets: Normal) -> Array:
        mean, log_variance, share = self._read(outputs)
        center, noise = jnp.mean(targets.mean, axis=0), jnp.mean(targets.variance, axis=0)
        square = (center - mean) ** 2 + jnp.var(targets.mean, axis=0) + noise
        loss = jnp.sum(0.5 * (LOG_2PI + log_variance + jnp.exp(-log_variance) * square), axis=-1)
        return loss + share.loss(noise) if self.decompose else loss

    def moments(self, outputs: Array) -> Normal:
        mean, log_variance, _ = self._read(outputs)
        return Normal(mean, jnp.exp(log_variance))

    def predict(self, outputs: Array) -> Predicted:
        parts = self._read(outputs)[2].parts if self.decompose else ()
        return Predicted(self.moments(outputs), *parts)

    def write(self, graph: Any, outputs: Any) -> tuple[SeveralTarget, dict[str, Any]]:
        names = ["mean", "log_variance", "share"] if self.decompose else ["mean", "log_variance"]
        parts = []
        for number in range(self.num_outputs):
            places = {name: place * self.num_outputs + number for place, name in enumerate(names)}
            part = {name: outputs.columns([place]) for name, place in places.items()}
            parts.append(part | {"log_variance": graph.add("Clip", part["log_variance"], *LOG_VARIANCES)})
        return self._standard(), {"outputs": parts, "components": 1}


class Samples(NamedTuple):
    """Samples of what draws predict, ``[samples, batch, outputs]``, and the mean of their variances."""

    y: Array
    """The samples."""
    noise: Array
    """The mean of the draws' variances."""


class MixtureHead(_NumberHead):
    """A mixture of Gaussians per output, for predictive distributions that a single one cannot follow.

    The outputs are the logits of all components, then their means, then their log variances, each for every target;
    with ``decompose=True`` those for the aleatoric parts follow. The expectation in its loss has no closed form: it is
    taken from few samples of each draw's Gaussian, which is exact on average however narrow a component is, or by
    Gauss-Hermite quadrature, which is without noise and wrong by tenths of a nat where a component is a fifth as wide.
    """

    components: int = eqx.field(converter=partial(require_count, "components"))
    """Gaussians in each mixture."""
    num_outputs: int = eqx.field(converter=partial(require_count, "num_outputs"), default=1)
    """How many numbers are predicted."""
    quadrature: int = eqx.field(converter=partial(require_count, "quadrature"), default=20)
    """Nodes of the quadrature over each draw's Gaussian, where that is asked for."""
    decompose: bool = False
    samples: int | None = eqx.field(
        converter=lambda number: None if number is None else require_count("samples (None for quadrature)", number),
        default=4,
    )
    """Samples of each draw's Gaussian in an update, one from each of as many equal parts of it; None for quadrature."""

    def seen(self, key: Key, targets: Normal) -> "Normal | Samples":
        if self.samples is None:
            return targets
        parts = jnp.arange(self.samples, dtype=targets.mean.dtype).reshape(-1, *[1] * targets.mean.ndim)
        uniform = jax.random.uniform(key, (self.samples, *targets.mean.shape), targets.mean.dtype)
        within = jnp.clip((parts + uniform) / self.samples, 1e-6, 1.0 - 1e-6)
        y = targets.mean + jnp.sqrt(targets.variance) * jax.scipy.special.ndtri(within)
        return Samples(y.reshape(-1, *targets.mean.shape[1:]), jnp.mean(targets.variance, axis=0))

    @property
    def _mixture_width(self) -> int:
        return 3 * self.components * self.num_outputs

    @property
    def width(self) -> int:
        return self._mixture_width + (self.num_outputs if self.decompose else 0)

    def predict(self, outputs: Array) -> Predicted:
        mixture = self._mixture(outputs)
        return Predicted(mixture, *(self._share(outputs, mixture).parts if self.decompose else ()))

    def moments(self, outputs: Array) -> Normal:
        return self._mixture(outputs).moments()

    def _mixture(self, outputs: Array) -> NormalMixture:
        parts = outputs[:, : self._mixture_width].reshape(len(outputs), 3, self.components, self.num_outputs)
        logits, means, log_variances = parts.transpose(1, 2, 0, 3)
        return NormalMixture(
            jax.nn.log_softmax(logits, axis=0), means, jnp.exp(jnp.clip(log_variances, *LOG_VARIANCES))
        )

    def _share(self, outputs: Array, mixture: NormalMixture) -> Share:
        return Share(jnp.log(mixture.moments().variance), outputs[:, self._mixture_width :])

    def loss(self, outputs: Array, targets: "Normal | Samples") -> Array:
        mixture = self._mixture(outputs)
        if isinstance(targets, Samples):
            noise, loss = targets.noise, -jnp.mean(jax.vmap(mixture.log_prob)(targets.y), axis=0)
        else:
            nodes, weights = np.polynomial.hermite_e.hermegauss(self.quadrature)
            noise, spread = jnp.mean(targets.variance, axis=0), jnp.sqrt(targets.variance)

            def at_node(node: Array) -> Array:
                return jnp.mean(jax.vmap(mixture.log_prob)(targets.mean + node * spread), axis=0)

            values = jax.vmap(at_node)(jnp.asarray(nodes, outputs.dtype))
            loss = -jnp.tensordot(jnp.asarray(weights / weights.sum(), outputs.dtype), values, axes=1)
        return loss + self._share(outputs, mixture).loss(noise) if self.decompose else loss

    def write(self, graph: Any, outputs: Any) -> tuple[SeveralTarget, dict[str, Any]]:
        size, parts = self.components * self.num_outputs, []
        for number in range(self.num_outputs):
            own = np.arange(self.components) * self.num_outputs + number
            part = {"log_weights": graph.add("LogSoftmax", outputs.columns(own).astype(np.float64), axis=1)}
            log_variance = graph.add("Clip", outputs.columns(2 * size + own), *LOG_VARIANCES)
            part |= {"mean": outputs.columns(size + own), "log_variance": log_variance}
            parts.append(part | ({"share": outputs.columns([3 * size + number])} if self.decompose else {}))
        return self._standard(), {"outputs": parts, "components": self.components}


def normal_log_prob(y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Array:
    """The log density of a Gaussian, element by element.

    >>> round(float(normal_log_prob(0.0, 0.0, 1.0)), 4)
    -0.9189
    """
    return -0.5 * (LOG_2PI + jnp.log(variance) + jnp.subtract(y, mean) ** 2 / variance)


def kl_normal(p: Normal, q: Normal) -> Array:
    """KL(p || q) of Gaussians, summed over their outputs.

    >>> one = jnp.ones(1)
    >>> float(kl_normal(Normal(0 * one, one), Normal(one, one)))
    0.5
    """
    ratio = p.variance / q.variance
    return 0.5 * jnp.sum(ratio - 1.0 - jnp.log(ratio) + (p.mean - q.mean) ** 2 / q.variance, axis=-1)
