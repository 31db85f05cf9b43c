"""A number: a mixture of Gaussians for it, or for its logarithm.

For a target that is modelled as it is, mean and standard deviation are those of the mixture. For one that is modelled
by its logarithm they follow from the moments of log-normal distributions: with components of weight w, location m and
spread^2 = v, of whose overall variance e is epistemic,

    mean = sum_c w_c mu_c, where mu_c = exp(m_c + v_c/2),
    variance = mean^2 sum_c w_c [r_c^2 (exp(v_c) - 1) + (r_c - 1)^2], where r_c = mu_c / mean,
    epistemic part = mean^2 (exp(e) - 1),

and the aleatoric part is what is left.
"""

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import ndtr, ndtri

from darkbayes.errors import InvalidInput
from darkbayes.outcomes.base import AUTO, DIGITS, MOST_DIGITS, Choice
from darkbayes.outcomes.graphs import COMPONENT_OUTPUTS, MOST, MOST_EXPONENT, number_outputs
from darkbayes.outcomes.guarantee import Guarantee
from darkbayes.outcomes.quantity import (
    MOMENTS,
    QuantityPrediction,
    QuantityTarget,
    components_last,
    log_sum_exp,
    log_variance,
)
from darkbayes.outcomes.transform import choose_transform
from darkbayes.tables.columns import Column
from darkbayes.tables.schema import standardising, stored_as

LOG_2PI = math.log(2 * math.pi)
MOST_STEPS = 120  # In which a quantile of several components is sought.
ROUNDING, SHORT = 1e-15, 1e-9  # The share of a quantile by which the last step changes it, and one of Newton's.
SAMPLES, COMPONENTS = 2, 4  # Of the mixture head.
LARGEST, SMALLEST, FINEST = 1e30, 1e-30, 1e-10
"""Values of a target are at most so large; they differ by so much, and by such a share of their mean, at least."""
PLAIN = 1e20  # Up to which, and down to whose inverse, all that is predicted can be written in single precision.
NOISE_PRIOR = (1.0, 0.1)  # Shape and rate of the Gamma prior on the noise precision of a standardised target.


@dataclasses.dataclass(frozen=True, repr=False)
class NumberPrediction(QuantityPrediction):
    """A mixture of Gaussians for each output, or for its logarithm.

    Args:
        location, spread: mean and standard deviation of each component.
        logs: for each output, whether the mixture is of its logarithm.
        joint: whether the outputs of a component go together, as those of one draw do, and have one weight.
    """

    location: np.ndarray
    spread: np.ndarray
    logs: tuple[bool, ...] = (False,)
    joint: bool = False

    @classmethod
    def standard(
        cls,
        log_weights: Any,
        mean: Any,
        variance: Any,
        aleatoric: Any = None,
        epistemic: Any = None,
        joint: bool = False,
    ) -> "NumberPrediction":
        """Of mixtures ``[components, rows, outputs]``, with the parts of their variances ``[rows, outputs]``."""
        log_weights, location, variance = components_last(log_weights, mean, variance)
        # In single precision they add up to one only nearly, which quantiles far out would show.
        log_weights = log_weights - log_sum_exp(log_weights)[..., None]
        weights = np.exp(log_weights)
        center = np.sum(weights * location, axis=-1)
        total = np.sum(weights * (variance + (location - center[..., None]) ** 2), axis=-1)
        noise = None if aleatoric is None else np.asarray(aleatoric, np.float64)
        doubt = None if epistemic is None else np.sqrt(np.asarray(epistemic, np.float64))
        if noise is not None and doubt is None:
            doubt = np.sqrt(np.maximum(total - noise, 0.0))
        elif noise is not None and doubt is not None:
            # Known in single precision, they add up only nearly.
            factor = total / np.maximum(noise + doubt**2, np.finfo(np.float64).tiny)
            noise, doubt = noise * factor, doubt * np.sqrt(factor)
        logs = (False,) * center.shape[-1]
        noise = None if noise is None else np.sqrt(noise)
        return cls(center, np.sqrt(total), noise, doubt, log_weights, location, np.sqrt(variance), logs, joint)

    @property
    def aim(self) -> np.ndarray:
        """The mean; where the mixture is of logarithms the median, as the tail of a log-normal rules its mean."""
        return np.where(np.asarray(self.logs), self.middle, self.mean) if any(self.logs) else self.mean

    @property
    def points(self) -> dict[str, np.ndarray]:
        return ({"median": self.middle} if any(self.logs) else {}) | super().points

    def summary(self) -> "NumberPrediction":
        """The one Gaussian of the same mean and variance; of logarithms, of theirs."""
        weights = np.exp(self.log_weights)
        location = np.sum(weights * self.location, axis=-1, keepdims=True)
        variance = np.sum(weights * (self.spread**2 + (self.location - location) ** 2), axis=-1, keepdims=True)
        nothing = np.zeros_like(location)
        return dataclasses.replace(self, log_weights=nothing, location=location, spread=np.sqrt(variance), joint=False)

    @property
    def gaussian(self) -> dict[str, np.ndarray]:
        parts = {"location": self.location, "spread": self.spread}
        return {name: part[..., 0] for name, part in parts.items()} if self.spread.shape[-1] == 1 else {}

    def output(self, place: int) -> "NumberPrediction":
        return dataclasses.replace(super().output(place), logs=self.logs[place : place + 1])

    def own_unit(self, targets: Sequence["NumberTarget"]) -> "NumberPrediction":
        """In the targets' own units, one target for each output, from what a network says of their encoded values."""
        scale, center = (np.asarray([getattr(target, name) for target in targets]) for name in ("scale", "center"))
        least, most = math.exp(-MOST_EXPONENT / 2), math.exp(MOST_EXPONENT / 2)
        std, both = np.clip(self.std, least, most) * scale, (self.aleatoric_std, self.epistemic_std)
        noise, doubt = (None if part is None else np.minimum(part * scale, std) for part in both)
        spread = np.clip(self.spread, least, most) * scale[:, None]
        location = self.location * scale[:, None] + center[:, None]
        logs = tuple(target.logarithmic for target in targets)
        mean = self.mean * scale + center
        own = NumberPrediction(mean, std, noise, doubt, self.log_weights, location, spread, logs, self.joint)
        return own._log_normal() if any(logs) else own

    def _log_normal(self) -> "NumberPrediction":
        """With moments of the outputs whose logarithms the mixtures are of, in place of those of the logarithms."""
        variance, weights = self.spread**2, np.exp(self.log_weights)
        means = np.exp(np.minimum(self.location + variance / 2, MOST_EXPONENT))
        mean = np.sum(weights * means, axis=-1)
        share = means / mean[..., None]
        bounded = np.expm1(np.minimum(variance, MOST_EXPONENT))
        total = np.sum(weights * (share**2 * bounded + (share - 1) ** 2), axis=-1)
        parts = [total]
        if self.epistemic_std is not None:
            doubt = np.minimum(np.expm1(np.minimum(self.epistemic_std**2, MOST_EXPONENT)), total)
            rest = np.maximum(total - doubt, 0.0)
            if self.spread.shape[-1] == 1 and self.aleatoric_std is not None:
                # exp(v) - exp(e) of one component, but not as a difference.
                room = MOST_EXPONENT - np.minimum(self.epistemic_std**2, MOST_EXPONENT)
                rest = (1 + doubt) * np.expm1(np.minimum(self.aleatoric_std**2, room))
            parts += [rest, doubt]
        spreads = [np.minimum(mean * np.sqrt(part), MOST) for part in parts]
        old = (self.std, self.aleatoric_std, self.epistemic_std)
        logs = np.asarray(self.logs)
        std, *known = (np.where(logs, new, kept) for new, kept in zip(spreads, old, strict=False))  # pyright: ignore[reportArgumentType]
        noise, doubt = known or (None, None)
        center = np.where(logs, mean, self.mean)
        return dataclasses.replace(self, mean=center, std=std, aleatoric_std=noise, epistemic_std=doubt)

    def _modelled(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """What the mixtures are of, at values `y` of the outputs, and the logarithm of its slope."""
        values = self.shaped(y)
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithms = np.log(values)
        logarithms = np.where(values > 0, logarithms, -np.inf)
        logs = np.asarray(self.logs)
        return np.where(logs, logarithms, values), np.where(logs, -logarithms, 0.0)

    def _components(self, y: Any) -> np.ndarray:
        """The log density of each component at `y`, without its weight, ``[rows, outputs, components]``."""
        values, slope = self._modelled(y)
        with np.errstate(invalid="ignore"):
            z = (values[..., None] - self.location) / self.spread
            logs = -0.5 * (z**2 + LOG_2PI) - np.log(self.spread) + slope[..., None]
        return np.where(np.isneginf(values)[..., None], -np.inf, logs)

    def log_prob_each(self, y: Any) -> np.ndarray:
        """The log density of each output by itself, ``[rows, outputs]``."""
        return log_sum_exp(self.log_weights + self._components(y))

    def log_prob(self, y: Any) -> np.ndarray:
        if self.joint:
            return log_sum_exp(self.log_weights[:, 0] + self._components(y).sum(axis=1))
        return self.log_prob_each(y).sum(axis=1)

    def scaled_log_prob(self, y: Any, scale: float) -> np.ndarray:
        """The log density of mean + scale (Y - mean), of all outputs together."""
        return self.log_prob(self.mean + (self.shaped(y) - self.mean) / scale) - self.mean.shape[1] * math.log(scale)

    def cdf(self, y: Any) -> np.ndarray:
        z = (self._modelled(y)[0][..., None] - self.location) / self.spread
        return np.sum(np.exp(self.log_weights) * ndtr(z), axis=-1)

    def position(self, y: Any) -> np.ndarray:
        """The probability of a value below the truth; of several outputs, the first's."""
        return self.cdf(y)[:, 0]

    def quantile(self, share: Any) -> np.ndarray:
        """In closed form for one component, by Newton's method between those of several."""
        shares = self.shares(share)
        if self.spread.shape[-1] == 1:
            value = self.location[..., 0] + ndtri(shares) * self.spread[..., 0]
        else:
            parts = (np.exp(self.log_weights), self.location, self.spread)
            weights, location, spread = (np.ascontiguousarray(part.reshape(-1, part.shape[-1]).T) for part in parts)
            value = _mixture_quantiles(weights, location, spread, shares.ravel()).reshape(self.mean.shape)
        return np.where(np.asarray(self.logs), np.exp(np.minimum(value, MOST_EXPONENT)), value)

    @property
    def least(self) -> Any:
        return np.where(np.asarray(self.logs), 0.0, -np.inf)

    def crps(self, y: Any) -> np.ndarray:
        """The continuous ranked probability score, summed over outputs, ``[rows]``; not for logarithms."""
        if any(self.logs):
            raise InvalidInput("crps has no closed form for a target that is modelled by its logarithm")
        weights, variance = np.exp(self.log_weights), self.spread**2
        reach = np.sum(weights * _mean_absolute(self.shaped(y)[..., None] - self.location, variance), axis=-1)
        apart = np.zeros_like(reach)
        for k in range(weights.shape[-1]):
            gap = _mean_absolute(self.location[..., k, None] - self.location, variance[..., k, None] + variance)
            apart += weights[..., k] * np.sum(weights * gap, axis=-1)
        return np.sum(reach - 0.5 * apart, axis=-1)

    def kl(self, other: "NumberPrediction") -> np.ndarray:
        """KL between the Gaussians of the same moments, summed over outputs."""
        ratio = self.variance / other.variance
        return 0.5 * np.sum(ratio - 1.0 - np.log(ratio) + (self.mean - other.mean) ** 2 / other.variance, axis=-1)


def _mixture_quantiles(weights: np.ndarray, location: np.ndarray, spread: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Of mixtures ``[components, number]``, each at a share of its own.

    The quantile lies between those of the components. A step of Newton's that leaves the interval, or is not half as
    long as the one before, gives way to halving it. Where Newton's steps are short the next would be its square.
    """
    ends = location + ndtri(share) * spread
    low, high = ends.min(axis=0), ends.max(axis=0)
    value, length, rows = np.sum(weights * ends, axis=0), high - low, np.arange(len(share))
    quantile = value.copy()
    for _ in range(MOST_STEPS):
        z = (value - location) / spread
        error = np.sum(weights * ndtr(z), axis=0) - share
        slope = np.sum(weights / spread * np.exp(-0.5 * z**2), axis=0) / math.sqrt(2 * math.pi)
        low, high = np.where(error < 0, value, low), np.where(error < 0, high, value)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = value - error / slope
        # Also where the slope is zero, and nothing can be compared.
        useful = (newton >= low) & (newton <= high) & (2 * np.abs(newton - value) <= length)
        stepped = np.where(useful, newton, 0.5 * (low + high))
        length = np.abs(stepped - value)
        quantile[rows] = value = stepped
        going = np.flatnonzero(length > np.where(useful, SHORT, ROUNDING) * np.abs(value))
        if not len(going):
            break
        rows, value, length, low, high = (part[going] for part in (rows, value, length, low, high))
        weights, location, spread = (part[:, going] for part in (weights, location, spread))
        share = share[going]
    return quantile


def _mean_absolute(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E|Z| of a Gaussian Z."""
    deviation = np.sqrt(variance)
    z = mean / deviation
    return mean * (2 * ndtr(z) - 1) + 2 * deviation * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)


class NumbersTarget(QuantityTarget):
    """What one number and several share."""

    task: ClassVar[str] = "regression"
    likelihoods: ClassVar[tuple[str, ...]] = ("one-noise", "input-noise")
    general: ClassVar[str] = "input-noise"
    heads: ClassVar[tuple[str, ...]] = ("mixture", "gaussian")
    transforms: ClassVar[tuple[str, ...]] = ("none", "log")

    @property
    @abc.abstractmethod
    def numbers(self) -> "tuple[NumberTarget, ...]":
        """Each of them."""

    def _likelihood(self, kind: str) -> Any:
        """Gaussian noise of one level that is inferred, or of a level that depends on the input."""
        from darkbayes.outcomes.heads.number import GaussianInputNoise, GaussianSampledNoise

        if kind == "input-noise":
            return GaussianInputNoise(len(self.numbers))
        return GaussianSampledNoise(len(self.numbers), *NOISE_PRIOR)

    def _head(self, kind: str) -> Any:
        from darkbayes.outcomes.heads.number import GaussianHead, MixtureHead

        if kind == "mixture":
            return MixtureHead(COMPONENTS, len(self.numbers), decompose=True, samples=SAMPLES)
        return GaussianHead(len(self.numbers), decompose=True)

    def by_trees(self, trees: Any, encoded: np.ndarray) -> NumberPrediction:
        means, variances = np.empty((2, 1, len(trees.new), encoded.shape[1]))
        for place, values in enumerate(encoded.astype(np.float64).T):
            means[0, :, place], before = trees.means(values)
            variances[0, :, place] = np.mean((values - before) ** 2)
        return self.own_unit(NumberPrediction.standard(np.zeros_like(means), means, variances))

    def own_unit(self, prediction: NumberPrediction) -> NumberPrediction:
        return super().own_unit(prediction.own_unit(self.numbers))

    @property
    def digits(self) -> int:
        """More where a number differs by a small part of itself, or is far from one."""
        return max(number.own_digits for number in self.numbers)

    def doubt(self, prediction: NumberPrediction) -> np.ndarray:
        """The epistemic variance of what is standardised, the mean over outputs."""
        variance, scale = prediction.epistemic, np.asarray([number.scale for number in self.numbers])
        variance = np.where(np.asarray(prediction.logs), log_variance(prediction.mean, variance), variance)
        return np.mean(variance / scale**2, axis=1)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (*MOMENTS, "location", "spread")

    def prediction(self, arrays: Mapping[str, np.ndarray]) -> NumberPrediction:
        components = self.components(arrays, ("location", "spread"))
        logs = tuple(number.logarithmic for number in self.numbers)
        return NumberPrediction(**self.moments(arrays), **components, logs=logs, guarantee=self.guarantee)


@stored_as("real")
@dataclasses.dataclass(frozen=True)
class NumberTarget(NumbersTarget):
    """A target that is a number.

    Args:
        name: of its column.
        transform: what of it is standardised.
        center, scale: what is subtracted, and what it is divided by.
        low, high: the range that was seen, in the target's own unit.
        guarantee: what its intervals promise, if they were calibrated.
    """

    name: str
    transform: Literal["identity", "log"]
    center: float
    scale: float
    low: float
    high: float
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        if self.transform not in ("identity", "log"):
            raise InvalidInput(f"the transform of {self.name} must be identity or log, not {self.transform!r}")

    @classmethod
    def suits(cls, columns: Mapping[str, Column]) -> str | None:
        return "" if len(columns) == 1 and all(column.kind == "number" for column in columns.values()) else None

    @classmethod
    def choose(
        cls, columns: Mapping[str, Column], rows: np.ndarray, inputs: np.ndarray, source: str, transform: str = AUTO
    ) -> Choice:
        """Modelled by its logarithm where a quick trial does better with it, unless somebody says."""
        name, column = cls.only(columns, "number")
        if column.kind != "number":
            held = f"{name!r} holds {column.values[0]!r}"
            raise InvalidInput(f"regression predicts numbers, but {held}: choose the task classification")
        y = column.values[rows]
        if len(y) == 0 or y.min() == y.max():
            what = f"is {y[0]:g} in every row" if len(y) else "has no value in the rows that train"
            raise InvalidInput(f"{source}: {name!r} {what}: there is nothing to learn")
        if (largest := float(np.abs(y).max())) > LARGEST:
            raise InvalidInput(f"{source}: {name!r} holds {largest:g}, beyond {LARGEST:g}: give it in a larger unit")
        lowest = column.values.min()  # Of the rows held out as well, which must have a logarithm too.
        if transform == AUTO and lowest <= 0:
            modelled, how, guess = "identity", "it is modelled as it is: not all of its values are positive", ""
        elif transform == AUTO:
            tried = choose_transform(inputs, y)
            modelled, how, guess = tried.transform, str(tried), " (transform)"
        else:
            modelled, said = ("log", "by its logarithm") if transform == "log" else ("identity", "as it is")
            how, guess = f"it is modelled {said}, as you asked", ""
            if modelled == "log" and lowest <= 0:
                held = f"{name!r} holds {lowest:g}, which has no logarithm"
                raise InvalidInput(f"{source}: {held}: choose another transform", option="transform", value="none")
        center, scale = standardising(np.log(y) if modelled == "log" else y)
        least = y.min() if modelled == "log" else scale
        if least < SMALLEST:
            small = f"the values of {name!r}, or the differences between them, are as small as {least:g}"
            raise InvalidInput(f"{source}: {small}: use a smaller unit")
        if scale < FINEST * abs(center):
            few = f"differs by {scale:.3g} around {center:.6g}, for which the 16 digits of a number are too few"
            raise InvalidInput(f"{source}: {name!r} {few}: subtract {y.mean():.6g} from it")
        target = cls(name, modelled, center, scale, float(y.min()), float(y.max()))
        return Choice(target, [f"{name!r} is a number; {how}{guess}"], how)

    def encode(self, values: np.ndarray) -> np.ndarray:
        numbers = np.asarray(values, np.float64)
        if self.transform == "log":
            if not (numbers > 0).all():
                raise InvalidInput(f"{self.name} is modelled by its logarithm, but holds {numbers.min()}: leave it out")
            numbers = np.log(numbers)
        return ((numbers - self.center) / self.scale).astype(np.float32)[:, None]

    @property
    def numbers(self) -> "tuple[NumberTarget, ...]":
        return (self,)

    @property
    def logarithmic(self) -> bool:
        return self.transform == "log"

    @property
    def own_digits(self) -> int:
        """The `digits` of this number alone."""
        sizes = [self.scale, abs(self.center)]
        if self.logarithmic:
            sizes = [self.scale, 1.0, *np.exp(np.clip([self.center, -self.center], 0.0, MOST_EXPONENT)).tolist()]
        if max(sizes) > PLAIN or (self.scale < 1 / PLAIN and not self.logarithmic):
            return MOST_DIGITS
        ratio = (1.0 if self.logarithmic else abs(self.center)) / self.scale
        return min(DIGITS + max(math.floor(math.log10(max(ratio, 1.0))) - 1, 0), MOST_DIGITS)

    def write_outputs(self, graph: Any, parts: Mapping[str, Any]) -> None:
        for name, value in number_outputs(graph, self, parts["outputs"][0]).items():
            components = [parts["components"]] * (name in COMPONENT_OUTPUTS and parts["components"] > 1)
            graph.output(name, value, components)

    @property
    def ranges(self) -> list[dict[str, Any]]:
        return [{"name": self.name, "transform": self.transform, "low": self.low, "high": self.high}]
