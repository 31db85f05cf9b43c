"""A count: 0, 1, 2, ... of something, by mixtures of negative binomial distributions, Poisson ones among them.

A component has a rate m and a dispersion d: its mean is m, its variance m + d m^2. With d = 0 it is Poisson.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc, gammaincc, gammaln, xlogy

from darkbayes.errors import InvalidInput
from darkbayes.outcomes.base import AUTO, Choice
from darkbayes.outcomes.guarantee import Guarantee
from darkbayes.outcomes.quantity import (
    MOMENTS,
    QuantityPrediction,
    QuantityTarget,
    components_last,
    log_sum_exp,
    log_variance,
)
from darkbayes.tables.columns import Column
from darkbayes.tables.schema import Frame, stored_as

POISSON = 1e-7  # Dispersions below it are none: gamma functions of their inverses would cancel.
LEAST_DISTINCT, MOST_MEAN, LEAST_DISPERSION = 6, 100.0, 0.7
"""Different values, mean, and variance over the mean that whole numbers from 0 must have to be taken for counts."""
RARE = 0.2  # How frequent their largest value may be, as a share of the most frequent one: classes have no tail.
SUREST = 1 - 1e-15  # Probabilities of all counts add up to a little less than one.
MOST_COUNT = 2**24  # Beyond it not every whole number is a float32.


@dataclasses.dataclass(frozen=True, repr=False)
class CountPrediction(QuantityPrediction):
    """A mixture of negative binomial distributions.

    Args:
        rate, dispersion: of each component, ``[rows, 1, components]``.
    """

    rate: np.ndarray
    dispersion: np.ndarray

    @classmethod
    def of_mixture(
        cls, log_weights: Any, rate: Any, dispersion: Any, aleatoric: Any = None, epistemic: Any = None
    ) -> "CountPrediction":
        """Of mixtures ``[components, rows, 1]``, with the parts of their variance ``[rows, 1]``, which add up to it."""
        log_weights, rate, dispersion = components_last(log_weights, rate, dispersion)
        log_weights = log_weights - log_sum_exp(log_weights)[..., None]  # What a float32 leaves out of one.
        weights = np.exp(log_weights)
        mean = np.sum(weights * rate, axis=-1)
        within = np.sum(weights * (rate + dispersion * rate**2), axis=-1)
        total = within + np.sum(weights * (rate - mean[..., None]) ** 2, axis=-1)
        if aleatoric is not None:
            epistemic = np.maximum(total - aleatoric, 0.0) if epistemic is None else epistemic
            total = np.asarray(aleatoric, np.float64) + epistemic
        parts = (aleatoric, epistemic)
        noise, doubt = (None if part is None else np.sqrt(np.asarray(part, np.float64)) for part in parts)
        return cls(mean, np.sqrt(total), noise, doubt, log_weights, rate, dispersion)

    def summary(self) -> "CountPrediction":
        rate = self.mean[..., None]
        with np.errstate(divide="ignore", invalid="ignore"):
            dispersion = np.maximum(self.variance[..., None] - rate, 0.0) / rate**2
        nothing = np.zeros_like(rate)
        dispersion = np.where(rate > 0, dispersion, 0.0)
        return dataclasses.replace(self, log_weights=nothing, rate=rate, dispersion=dispersion)

    def log_prob(self, y: Any) -> np.ndarray:
        """The log probability of each row's count; minus infinity where it is none."""
        count = self.shaped(y)[..., None]
        possible = (count >= 0) & (count == np.floor(count))
        count = np.where(possible, count, 0.0)
        shape, poisson = 1.0 / np.maximum(self.dispersion, POISSON), self.dispersion < POISSON
        logs = xlogy(count, self.rate) - self.rate
        whole = shape + self.rate
        spread = gammaln(count + shape) - gammaln(shape) - shape * np.log1p(self.rate / shape)
        logs = np.where(poisson, logs, spread + xlogy(count, self.rate / whole)) - gammaln(count + 1)
        return log_sum_exp(np.where(possible, self.log_weights + logs, -np.inf))[:, 0]

    def cdf(self, y: Any) -> np.ndarray:
        count = np.floor(self.shaped(y))[..., None]
        shape, poisson = 1.0 / np.maximum(self.dispersion, POISSON), self.dispersion < POISSON
        top = np.maximum(count, 0.0) + 1
        below = np.where(poisson, gammaincc(top, self.rate), betainc(shape, top, shape / (shape + self.rate)))
        return np.sum(np.exp(self.log_weights) * np.where(count < 0, 0.0, below), axis=-1)

    def position(self, y: Any) -> np.ndarray:
        """The probability of a lower count, and a part of that of this one, at random: uniform if all is right."""
        low, high = self.cdf(self.shaped(y) - 1)[:, 0], self.cdf(y)[:, 0]
        return low + np.random.default_rng(0).random(len(low)) * (high - low)

    def below(self, y: Any) -> np.ndarray:
        return self.cdf(np.ceil(self.shaped(y)) - 1)

    @property
    def least(self) -> float:
        return 0.0

    @property
    def at_aim(self) -> tuple[np.ndarray, np.ndarray]:
        return np.floor(self.aim), np.ceil(self.aim)

    def quantile(self, share: Any) -> np.ndarray:
        """The least count of which the probability of at most it is `share` or more."""
        shares = self.shares(share)
        share = np.minimum(shares, SUREST)
        low, high = np.full(self.mean.shape, -1.0), np.ceil(self.mean + 4 * self.std) + 1
        while (short := self.cdf(high) < share).any():
            low, high = np.where(short, high, low), np.where(short, 2 * high, high)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            enough = self.cdf(middle) >= share
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(shares < 1, high, np.inf)


@stored_as("counts")
@dataclasses.dataclass(frozen=True)
class CountTarget(QuantityTarget):
    """A target that counts something.

    Args:
        name: of its column.
        base: the mean count, which a network's outputs are relative to.
        low, high: the range that was seen.
        guarantee: what its intervals promise, if they were calibrated.
    """

    name: str
    base: float
    low: float
    high: float
    guarantee: Guarantee | None = None

    task: ClassVar[str] = "counts"
    likelihoods: ClassVar[tuple[str, ...]] = ("negative-binomial", "poisson")
    general: ClassVar[str] = "negative-binomial"
    heads: ClassVar[tuple[str, ...]] = ("negative-binomial",)

    @classmethod
    def suits(cls, columns: Mapping[str, Column]) -> str | None:
        name, column = next(iter(columns.items()))
        if len(columns) > 1 or column.kind != "number":
            return None
        values, counts = np.unique(column.values, return_counts=True)
        whole = values[0] == 0 and (values == np.floor(values)).all() and len(values) >= LEAST_DISTINCT
        if not whole or not 0 < (mean := column.values.mean()) <= MOST_MEAN:
            return None
        tail = values[counts.argmax()] <= values[-1] / 2 and counts[-1] <= RARE * counts.max()
        if not tail or column.values.var() < LEAST_DISPERSION * mean:
            return None
        held = f"{name!r} holds whole numbers from 0 to {values[-1]:g}"
        return f"{held}, of which large ones are rare: they are treated as counts"

    @classmethod
    def choose(
        cls, columns: Mapping[str, Column], rows: np.ndarray, inputs: np.ndarray, source: str, transform: str = AUTO
    ) -> Choice:
        name, column = cls.only(columns)
        wrong = column.values[:1] if column.kind != "number" else column.values[~_countable(column.values)]
        if len(wrong):
            shown = repr(wrong[0]) if column.kind != "number" else f"{wrong[0]:g}"
            held = f"counts are whole numbers from 0, but {name!r} holds {shown}"
            raise InvalidInput(f"{source}: {held}: correct it, or choose another task or likelihood")
        values = column.values[rows]
        if values.min() == values.max():
            raise InvalidInput(f"{source}: {name!r} is {values[0]:g} in every row: there is nothing to learn")
        target = cls(name, float(values.mean()), float(values.min()), float(values.max()))
        return Choice(target, [f"{name!r} counts something, {values.mean():.3g} on average"])

    def strays(self, values: Frame) -> list[tuple[int, str]]:
        numbers = values[self.name]
        wrong = np.flatnonzero(~_countable(numbers) & ~np.isnan(numbers))
        return [(row, f"{self.name!r} is {numbers[row]:g}, which is not a count") for row in wrong.tolist()]

    def encode(self, values: np.ndarray) -> np.ndarray:
        counts = np.asarray(values, np.float64)
        if not _countable(counts).all():
            raise InvalidInput(
                f"{self.name} holds {counts[~_countable(counts)][0]:g}, which is not a count: leave it out"
            )
        return counts.astype(np.float32).reshape(-1, 1)

    def by_trees(self, trees: Any, encoded: np.ndarray) -> CountPrediction:
        counts = encoded[:, 0].astype(np.float64)
        rate, before = trees.means(counts, "poisson")
        # By the method of moments: what is left of the variance above that of Poisson counts.
        dispersion = max(0.0, float(np.sum((counts - before) ** 2 - before) / np.sum(before**2)))
        rate = rate[None, :, None]
        return self.own_unit(CountPrediction.of_mixture(np.zeros_like(rate), rate, np.full_like(rate, dispersion)))

    def _likelihood(self, kind: str) -> Any:
        from darkbayes.outcomes.heads.counts import NegativeBinomial, Poisson

        return (Poisson if kind == "poisson" else NegativeBinomial)(self.base)

    def _head(self, kind: str) -> Any:
        from darkbayes.outcomes.heads.counts import CountHead

        return CountHead(self.base, decompose=True)

    def doubt(self, prediction: CountPrediction) -> np.ndarray:
        """The epistemic variance of the rate's logarithm."""
        return log_variance(prediction.mean, prediction.epistemic)[:, 0]

    @property
    def outputs(self) -> tuple[str, ...]:
        return (*MOMENTS, "rate", "dispersion")

    def prediction(self, arrays: Mapping[str, np.ndarray]) -> CountPrediction:
        components = self.components(arrays, ("rate", "dispersion"))
        return CountPrediction(**self.moments(arrays), **components, guarantee=self.guarantee)

    def write_outputs(self, graph: Any, parts: Mapping[str, Any]) -> None:
        rate, dispersion = np.exp(parts["log_rate"]), np.exp(-parts["log_shape"])
        values = {"mean": rate, "rate": rate, "dispersion": dispersion}
        variance = rate + dispersion * (rate * rate)
        if "log_parts" in parts:
            noise, doubt = map(np.exp, parts["log_parts"])
            values |= {"aleatoric_std": np.sqrt(noise), "epistemic_std": np.sqrt(doubt)}
            variance = noise + doubt
        for name, value in (values | {"std": np.sqrt(variance)}).items():
            graph.output(name, graph.add("Squeeze", value, np.asarray([1])))

    @property
    def ranges(self) -> list[dict[str, Any]]:
        return [{"name": self.name, "low": self.low, "high": self.high, "transform": "identity"}]


def _countable(values: np.ndarray) -> np.ndarray:
    return (values >= 0) & (values == np.floor(values)) & (values <= MOST_COUNT)


def log_base(base: float) -> float:
    """The logarithm of the rate that outputs of zero stand for."""
    return math.log(max(base, 1e-6))
