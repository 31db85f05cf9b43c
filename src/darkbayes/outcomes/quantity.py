"""What numbers and counts share: a mean with its standard deviation, both parts of it, and intervals."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtr, ndtri

from darkbayes.errors import InvalidInput, require_level
from darkbayes.metrics import LEVEL, RowScores
from darkbayes.outcomes.base import Prediction, Target, known

FAR = 6.0
"""Standard deviations of a Gaussian beyond which shares of a distribution are too small to be told from zero."""
MOMENTS = ("mean", "std", "aleatoric_std", "epistemic_std")  # What is known of every quantity, ``[rows, outputs]``.


@dataclasses.dataclass(frozen=True, repr=False)
class QuantityPrediction(Prediction):
    """A mixture of distributions for each output of each row, and its moments in the target's own unit.

    Args:
        mean, std: ``[rows, outputs]``.
        aleatoric_std, epistemic_std: the parts of the standard deviation, whose squares add up, where they are known.
        log_weights: of the components, ``[rows, outputs, components]``.
    """

    mean: np.ndarray
    std: np.ndarray
    aleatoric_std: np.ndarray | None
    epistemic_std: np.ndarray | None
    log_weights: np.ndarray

    @property
    def aim(self) -> np.ndarray:
        return self.mean

    @property
    def points(self) -> dict[str, np.ndarray]:
        """What may stand for a prediction, ``[rows, outputs]``; the first is what does."""
        return {"mean": self.mean}

    @property
    def variance(self) -> np.ndarray:
        return self.std**2

    total = variance

    @property
    def aleatoric(self) -> np.ndarray:
        """The variance that would remain if the weights were known: noise in the target."""
        return known(self.aleatoric_std) ** 2

    @property
    def epistemic(self) -> np.ndarray:
        """The variance of the draws' means: what more data could remove."""
        return known(self.epistemic_std) ** 2

    @property
    def uncertainty(self) -> np.ndarray:
        """The standard deviation; of several outputs, the root of the mean square."""
        return self.std[:, 0] if self.std.shape[1] == 1 else np.sqrt(np.mean(self.std**2, axis=1))

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Variances; what is not known to be doubt counts as noise, as a single network has it."""
        with np.errstate(over="ignore"):
            if self.aleatoric_std is None:
                return np.mean(self.variance, axis=1), np.zeros(len(self))
            return np.mean(self.aleatoric, axis=1), np.mean(self.epistemic, axis=1)

    def spreads(self) -> tuple[np.ndarray, np.ndarray]:
        """Standard deviations."""
        return self.uncertainty, np.sqrt(self.parts[1])

    def course(self) -> dict[str, np.ndarray]:
        """Of each output by itself; ``[rows]`` of one, ``[rows, outputs]`` of several."""
        if self.mean.shape[1] == 1:
            return super().course() | {"aim": self.aim[:, 0]}
        each = [self.output(place).course() for place in range(self.mean.shape[1])]
        return {name: np.stack([one[name] for one in each], axis=1) for name in each[0]}

    def shaped(self, y: Any) -> np.ndarray:
        """The truth as an array ``[rows, outputs]``, if it is one; one number is that of all."""
        truth = np.asarray(y, np.float64)
        if truth.ndim == 0:
            return np.full(self.mean.shape, truth)
        if truth.ndim == 1 and self.mean.shape[1] == 1:
            truth = truth[:, None]
        if truth.shape != self.mean.shape:
            shape = self.mean.shape
            raise InvalidInput(f"y has shape {truth.shape}, but the predictions are of shape {shape}: reshape y")
        return truth

    def output(self, place: int) -> Self:
        one = slice(place, place + 1)
        guarantee = None if self.guarantee is None else self.guarantee.output(place)
        own: Any = {name: value[:, one] for name, value in self.arrays().items()}
        return dataclasses.replace(self, **own, guarantee=guarantee)

    @abc.abstractmethod
    def cdf(self, y: Any) -> np.ndarray:
        """The probability of a value of at most `y`, ``[rows, outputs]``."""

    @abc.abstractmethod
    def quantile(self, share: Any) -> np.ndarray:
        """The value that is exceeded with probability 1 - `share`, or one for each output, ``[rows, outputs]``."""

    def shares(self, share: Any) -> np.ndarray:
        """Those that quantiles are asked for, checked, one for each output; ``[rows, outputs]``."""
        shares = np.asarray(share, np.float64)
        if not ((shares >= 0) & (shares <= 1)).all():
            raise InvalidInput(f"share must lie between 0 and 1, not {share!r}")
        try:
            return np.broadcast_to(shares, self.mean.shape)
        except ValueError:
            wanted = f"one number, or a number for each of {self.mean.shape} rows and outputs"
            raise InvalidInput(f"share must be {wanted}, not of shape {shares.shape}") from None

    def below(self, y: Any) -> np.ndarray:
        """The probability of a value that is less than `y`."""
        return self.cdf(y)

    @property
    def least(self) -> Any:
        """No value is lower."""
        return -np.inf

    @property
    def gaussian(self) -> dict[str, np.ndarray]:
        """`location` and `spread` ``[rows, outputs]`` of the Gaussian that each, or its logarithm, follows, if any."""
        return {}

    @property
    def at_aim(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the least interval that holds what is predicted."""
        return self.aim, self.aim

    @property
    def middle(self) -> np.ndarray:
        """The value that is as likely exceeded as not."""
        return self.quantile(0.5)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the central interval that holds the truth with probability `level`, each ``[rows, outputs]``.

        With a guarantee that of its level is the one calibrated; those of others lie around it or inside. Where the
        prediction itself would lie outside, as a mean may that few large values have moved, the interval ends there.
        """
        (low, high), (least, most) = self._central(level), self.at_aim
        return np.minimum(low, least), np.maximum(high, most)

    def _central(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        require_level("level", level)
        if self.guarantee is None:
            return self.quantile(0.5 - level / 2), self.quantile(0.5 + level / 2)
        promised, bounds, own = self.guarantee.level, np.asarray(self.guarantee.bounds), ndtri(0.5 + level / 2)
        if level == promised:
            return self.reach(bounds)
        return self.reach(np.maximum(bounds, own) if level > promised else np.minimum(bounds, own))

    def strangeness(self, y: Any) -> np.ndarray:
        """The least `reach` that holds the truth, in standard deviations of a Gaussian."""
        truth = self.shaped(y)
        share = np.minimum(np.minimum(self.cdf(truth), 1 - self.below(truth)), 0.5)
        low, high = self.reach(np.full(truth.shape[1], FAR))
        beyond = np.maximum(low - truth, truth - high) / self.std
        with np.errstate(divide="ignore"):
            return np.where(beyond > 0, FAR + beyond, np.minimum(-ndtri(share), FAR))

    def reach(self, deviations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the central interval that has the share of so many standard deviations of a Gaussian.

        For each output a number of them. From `FAR` on both ends move on by the prediction's own standard deviation.
        """
        near = np.minimum(deviations, FAR)
        more = (deviations - near) * self.std
        low, high = self.quantile(ndtr(-near)), self.quantile(ndtr(near))
        return np.maximum(low - more, self.least), high + more

    def covered(self, y: Any, level: float) -> np.ndarray:
        """Whether the truth lies inside the central interval of a level, ``[rows, outputs]``."""
        low, high = self.interval(level)
        truth = self.shaped(y)
        return (low <= truth) & (truth <= high)

    def width(self, level: float) -> np.ndarray:
        low, high = self.interval(level)
        return high - low

    def row_scores(self, y: Any) -> Mapping[str, RowScores]:
        """Coverage is that of the own intervals, with a guarantee or without; the guaranteed ones have another name."""
        with np.errstate(over="ignore"):
            squares = (self.aim - self.shaped(y)) ** 2
        own, guaranteed = dataclasses.replace(self, guarantee=None), {}
        if self.guarantee is not None:
            level = self.guarantee.level
            guaranteed[f"guaranteed_coverage_{100 * level:g}"] = RowScores(self.covered(y, level).mean(axis=1))
        return {
            "log_likelihood": RowScores(self.log_prob(y)),
            "rmse": RowScores(squares.mean(axis=1), root=True),
            f"coverage_{100 * LEVEL:g}": RowScores(own.covered(y, LEVEL).mean(axis=1)),
        } | guaranteed


def components_last(*parts: Any) -> list[np.ndarray]:
    """Mixtures ``[components, ...]`` as arrays ``[..., components]`` in double."""
    return [np.moveaxis(np.asarray(part, np.float64), 0, -1) for part in parts]


def log_sum_exp(values: np.ndarray) -> np.ndarray:
    """log sum exp along the last axis."""
    top = values.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return top[..., 0] + np.log(np.sum(np.exp(values - top), axis=-1))


def log_variance(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The variance of the logarithm of a log-normal quantity of this mean and variance, log(1 + variance / mean^2).

    >>> variance = np.expm1(0.25) * np.exp(2 * 3.0 + 0.25)  # Of exp(Z), where Z has mean 3 and variance 1/4.
    >>> round(float(log_variance(np.exp(3.125), variance)), 6)
    0.25
    """
    return np.log1p(variance / np.maximum(mean, np.finfo(np.float32).tiny) ** 2)


class QuantityTarget(Target):
    """A target of one or several outputs that are quantities."""

    measure: ClassVar[str] = "epistemic_variance"
    views: ClassVar[tuple[str, ...]] = ("quantity",)
    held_by: ClassVar[str] = "intervals"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def columns(self) -> dict[str, tuple[str, ...] | None]:
        return dict.fromkeys(self.names)

    def truth(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, np.float64).reshape(len(values), len(self.names))

    def moments(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The moments of a prediction from a file's outputs."""
        shape = (len(arrays["mean"]), -1)
        known = {name: np.asarray(arrays[name], np.float64).reshape(shape) for name in MOMENTS if name in arrays}
        return dict.fromkeys(MOMENTS) | known

    def components(self, arrays: Mapping[str, np.ndarray], names: tuple[str, ...]) -> dict[str, Any]:
        """The components of a prediction from a file's outputs; one component has no weight where none is given."""
        shape = (len(arrays["mean"]), len(self.names), -1)
        parts = {name: np.asarray(arrays[name], np.float64).reshape(shape) for name in names}
        weights = arrays.get("log_weights")
        parts["log_weights"] = np.zeros_like(parts[names[0]]) if weights is None else np.asarray(weights, np.float64)
        return parts | {"log_weights": parts["log_weights"].reshape(shape)}

    def table(self, prediction: Any, level: float) -> dict[str, np.ndarray]:
        columns, percent = {}, f"{100 * level:g}"
        for place, name in enumerate(self.names):
            own, prefix = prediction.output(place), f"{name}_" if len(self.names) > 1 else ""
            low, high = own.interval(level)
            noise, doubt = (np.sqrt(part) for part in own.parts)
            moments = {kind: point[:, 0] for kind, point in own.points.items()}
            moments |= {"std": own.std[:, 0], "aleatoric_std": noise, "epistemic_std": doubt}
            moments |= {f"lower_{percent}": low[:, 0], f"upper_{percent}": high[:, 0]}
            columns |= {prefix + column: values for column, values in moments.items()}
        return columns

    def answer(self, prediction: Any, level: float) -> dict[str, np.ndarray]:
        """Moments, interval and Gaussian; of several outputs, lists in the order of `names`."""
        moments = {name: value for name in MOMENTS if (value := getattr(prediction, name)) is not None}
        interval = {"interval": np.stack(prediction.interval(level), axis=-1)}
        columns = prediction.points | moments | interval | prediction.gaussian
        if len(self.names) == 1:
            columns = {name: value[:, 0] for name, value in columns.items()}
        return columns

    def change(self, prediction: Any) -> str:
        widths = []
        for guarantee in (self.guarantee, None):
            widths.append(np.mean(dataclasses.replace(prediction, guarantee=guarantee).width(self.level), axis=0))
        ratios = [f"{after / max(before, 1e-300):.2f}" for after, before in zip(*widths, strict=True)]
        if len(ratios) > 1:
            ratios = [f"{ratio} ({name})" for ratio, name in zip(ratios, self.names, strict=True)]
        return f"they are {', '.join(ratios)} times as wide as the student's own"

    @property
    def arithmetic(self) -> str:
        return "The percentages are shares of the variance: it is the squares of the two that add up."

    @property
    def logarithmic(self) -> bool:
        """Whether an axis of its values is."""
        return False

    def words(self) -> Any:
        from darkbayes.outcomes.words.quantity import QuantityWords

        return QuantityWords(self)

    def described(self) -> dict[str, Any]:
        return super().described() | {"names": list(self.names), "outputs": self.ranges}

    @property
    @abc.abstractmethod
    def ranges(self) -> list[dict[str, Any]]:
        """For each output its name, `low` and `high` of what was seen, and the `transform` that it is modelled by."""

    def answer_form(self) -> dict[str, Any]:
        about = {
            "mean": "",
            "std": "Of the whole: its square is the sum of the next two's squares.",
            "aleatoric_std": "Noise in the target, which more data would not lower.",
            "epistemic_std": "Doubt of the model, which more data of this kind would.",
        }
        number: dict[str, Any] = {"type": ["number", "null"]}
        form = {name: number | ({"description": text} if text else {}) for name, text in about.items()}
        form["interval"] = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
        if len(self.names) == 1:
            return form
        return {name: {"type": "array", "items": part} for name, part in form.items()}
