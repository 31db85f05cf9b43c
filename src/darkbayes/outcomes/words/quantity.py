"""What a page says of numbers and counts: how far off predictions are, and whether intervals keep their promise.

Of several at once, each is spoken of by its name, and has pictures of its own.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from darkbayes.estimates import Estimate, by_chance, estimate
from darkbayes.metrics import LEVEL
from darkbayes.outcomes.pictures import Curves, Limits, Picture, Scatter, sample
from darkbayes.outcomes.words.base import Example, HeldOut, Judged, Promise, Tile, Words
from darkbayes.outcomes.words.text import listing, percent, short, with_error

COVERAGE = f"coverage_{100 * LEVEL:g}"
VERDICTS = {
    "kept": "so they can be trusted on data like these.",
    "timid": "so these are wider than they need to be: safe, but more cautious than promised.",
    "bold": "so these are too narrow: the model is surer than it should be.",
}


class QuantityWords(Words):
    """The words of a `QuantityTarget` of one output."""

    whole: ClassVar[str] = "of the variance of a typical prediction"
    sizes_note: ClassVar[str] = (
        "Noise (aleatoric) and doubt (epistemic) are standard deviations; their squares add up to that of the "
        "prediction."
    )

    def __init__(self, target: Any):
        """Of a target with a `name`, the range that was seen, from `low` to `high`, `logarithmic` and a `guarantee`."""
        self.target, self.name, self.logarithmic = target, target.name, target.logarithmic
        self.unit, self.risk_name = f"± {self.name}", f"RMSE of {self.name}"
        self.about = f"{self.name}, a number from {short(target.low)} to {short(target.high)} in training"

    def task(self, cases: str) -> str:
        return f"to predict {self.name}"

    def tiles(self, held: HeldOut) -> list[Tile]:
        half, share = float(np.median(self._missed(held))), percent(held.scores["student"][COVERAGE].value)
        close = Tile(f"± {short(half)}", f"half of the predictions of {self.name} are this close")
        if (guarantee := self.target.guarantee) is None:
            return [close, Tile(share, f"of the true values lie in the intervals that promise {LEVEL:.0%}")]
        before = f"before they were calibrated, those that promise {LEVEL:.0%} held {share}"
        return [
            close,
            Tile(percent(guarantee.level), f"of new cases at least lie in the guaranteed intervals; {before}"),
        ]

    def how_good(self, held: HeldOut) -> str:
        half, most = np.quantile(self._missed(held), [0.5, 0.9])
        median, usual = self._blind(held)
        text = (
            f"Half of its predictions of {self.name} were off by less than {short(half)}, nine in ten by less than "
            f"{short(most)}. Always answering {short(median)}, the median, would be off by less than {short(usual)} "
            "half of the time"
        )
        return f"{text}: the model is of no use yet." if self.useless(held) else f"{text}."

    def _blind(self, held: HeldOut) -> tuple[float, float]:
        """The median, and how far off it is half of the time."""
        median = float(np.median(held.y))
        return median, float(np.median(np.abs(held.y - median)))

    def useless(self, held: HeldOut) -> bool:
        return bool(np.median(self._missed(held)) >= self._blind(held)[1])

    def broken(self, held: HeldOut) -> str:
        """With a guarantee what people get is calibrated, however narrow the network's own intervals are."""
        promise = interval_promise(held.methods["student"].position)
        if promise.verdict != "bold" or self.target.guarantee is not None:
            return ""
        share = percent(promise.measured.value)
        return f"Its intervals of {self.name} are too narrow: those that promise {LEVEL:.0%} hold {share}."

    def trusted(self, held: HeldOut) -> str:
        low, high = held.student.interval(LEVEL)
        measured, promise = held.scores["student"][COVERAGE], interval_promise(held.methods["student"].position)
        shown = Estimate(100 * measured.value, measured.error and 100 * measured.error)
        more = ", of whole numbers a little more" * (promise.verdict == "kept" and measured.value > promise.high)
        its = "Its" if self.target.guarantee is None else "Before they were calibrated, its"
        return (
            f"{its} {LEVEL:.0%} intervals, half of them narrower than {short(float(np.median(high - low)))}, held the "
            f"true {self.name} in {round(measured.value * held.rows):,} of {held.rows:,} {held.cases}, "
            f"{with_error(shown, 1)}%. Intervals that keep their promise hold {percent(promise.low)} to "
            f"{percent(promise.high)} in a test of this size{more}, {VERDICTS[promise.verdict]}"
        )

    def noise_share(self, prediction: Any) -> float:
        noise, doubt = prediction.parts
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            shares = noise / (noise + doubt)
        shares = shares[np.isfinite(shares)]
        return float(np.median(shares)) if len(shares) else math.nan

    def agreement(self, held: HeldOut) -> str:
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            apart = np.abs(held.student.middle - held.teacher.middle)
            share = float(np.nanmedian(apart / held.teacher.std))
        return (
            f"Half of the student's predictions of {self.name} are within {short(float(np.median(apart)))} of the "
            f"teacher's, {percent(share)} of the uncertainty that the teacher itself admits."
        )

    def sizes(self, part: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(part, 0))

    def losses(self, prediction: Any, y: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return (prediction.aim[:, 0] - np.ravel(y)) ** 2

    def _missed(self, held: HeldOut) -> np.ndarray:
        """The distance of the prediction from the truth."""
        return np.sqrt(self.losses(held.student, held.y))

    def risk(self, mean_loss: np.ndarray) -> np.ndarray:
        return np.sqrt(mean_loss)

    def example(self, held: HeldOut, row: int) -> Example:
        point, std = (float(moment[row, 0]) for moment in (held.student.aim, held.student.std))
        noise, doubt = (f"±{short(float(self.sizes(part[row])))}" for part in held.student.parts)
        return Example(with_error(Estimate(point, std)), short(float(np.ravel(held.y)[row])), noise, doubt)

    def limits(self, values: np.ndarray) -> Limits:
        low, high = min(self.target.low, float(values.min())), max(self.target.high, float(values.max()))
        if self.logarithmic:
            reach = (high / low) ** 0.15
            return low / reach, high * reach
        reach = 0.15 * ((high - low) or 1.0)
        return low - reach, high + reach

    def trust(self, held: HeldOut) -> list[Picture]:
        return [self._coverage(held), self._against_truth(held)]

    def _coverage(self, held: HeldOut) -> Curves:
        levels = np.linspace(0.05, 0.95, 19)
        shares = {
            method: np.asarray([inside(judged.position, level).mean() for level in levels])
            for method, judged in held.methods.items()
        }
        band = np.transpose([by_chance(held.rows, level) for level in levels.tolist()]) / held.rows
        measured = ", ".join(f"{levels[k]:.0%} gives {shares['student'][k]:.0%}" for k in (9, 15, 17))
        return Curves(
            title="Do intervals keep their promise?",
            caption="Inside the grey band they do, as far as such a test can tell; below it they are too narrow."
            + " They are the networks' own, before they were calibrated." * (self.target.guarantee is not None),
            alt=f"Measured coverage against the promised level: {measured}",
            x="promised: level of the interval (%)",
            y="measured: true values inside (%)",
            curves={method: (100 * levels, 100 * share) for method, share in shares.items()},
            promise=True,
            band=(100 * levels, 100 * band[0], 100 * band[1]),
        )

    def _against_truth(self, held: HeldOut) -> Scatter:
        rows, middle = sample(held.rows), held.student.middle[:, 0]
        sampled = f" ({len(rows)} of {held.rows:,}, at random)" if len(rows) < held.rows else ""
        low, high = (end[:, 0] for end in held.student.interval(LEVEL))
        truth = np.ravel(held.y)
        holds = (low <= truth) & (truth <= high)
        kinds = {"interval holds the true value": rows[holds[rows]], "interval misses it": rows[~holds[rows]]}
        return Scatter(
            title="Predictions against the truth",
            caption=f"Each prediction{sampled} with its {LEVEL:.0%} interval; about one in ten should miss the "
            "dashed line.",
            alt=f"Predicted {self.name} with {LEVEL:.0%} intervals against the true {self.name}.",
            x=f"true {self.name}",
            y=f"predicted {self.name}",
            log=self.logarithmic,
            points={kind: (truth[own], middle[own]) for kind, own in kinds.items()},
            whiskers={kind: (low[own], high[own]) for kind, own in kinds.items()},
            limits=self.limits(held.y),
        )

    def answers(self, held: HeldOut) -> Picture:
        teacher, student = (which.middle[sample(held.rows), 0] for which in (held.teacher, held.student))
        limits = self.limits(held.y)
        return self.scattered("The same predictions?", self.name, {"": (teacher, student)}, limits, self.logarithmic)

    def lines(self, aim: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
        return {"prediction": aim.reshape(len(aim))}, self.name


class SeveralWords(QuantityWords):
    """The words of several outputs, of which each has its own."""

    def __init__(self, parts: Sequence[QuantityWords]):
        self.parts, self.name = tuple(parts), listing([part.name for part in parts])
        self.about = "; ".join(part.about for part in parts)

    def outputs(self, held: HeldOut) -> list[tuple[Words, HeldOut]]:
        outputs = []
        for place, part in enumerate(self.parts):
            truth, methods = held.y[:, place], {}
            for method, judged in held.methods.items():
                prediction = judged.prediction.output(place)
                position = judged.position if place == 0 else prediction.position(truth)
                methods[method] = Judged(prediction, judged.log_likelihood, position)
            own = {"student": held.each[place]}
            outputs.append((part, dataclasses.replace(held, y=truth, methods=methods, scores=own)))
        return outputs

    def courses(self, course: Mapping[str, Any]) -> list[tuple[Words, Mapping[str, Any]]]:
        each = {}
        for name in ("aim", "aleatoric", "epistemic"):
            values = np.asarray(course[name], np.float64)
            each[name] = values.T if values.ndim > 1 else np.full((len(self.parts), len(values)), np.nan)
        own = ({name: values[place] for name, values in each.items()} for place in range(len(self.parts)))
        return [(part, {**course, **values}) for part, values in zip(self.parts, own, strict=True)]


def inside(position: np.ndarray, level: float) -> np.ndarray:
    """1 where the true value lies inside the central interval of a level.

    >>> inside(np.array([0.01, 0.06, 0.5, 0.97]), 0.9)
    array([0., 1., 1., 0.])
    """
    return (np.abs(position - 0.5) <= level / 2).astype(np.float64)


def interval_promise(position: np.ndarray, level: float = LEVEL) -> Promise:
    """Do the intervals of a level hold as many true values as they promise?"""
    low, high = (count / len(position) for count in by_chance(len(position), level))
    return Promise(estimate(inside(position, level)), low, high)
