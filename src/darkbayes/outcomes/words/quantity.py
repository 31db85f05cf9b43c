"""What a page says of numbers and counts: how far off predictions are, and whether intervals keep their promise.

Of several at once, each is spoken of by its name, and has pictures of its own.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from darkbayes.metrics import LEVEL, Estimate, by_chance, estimate, scores
from darkbayes.outcomes import pictures
from darkbayes.outcomes.pictures import METHODS, Picture, sample
from darkbayes.outcomes.words.base import Example, HeldOut, Judged, Losses, Promise, Tile, Words
from darkbayes.outcomes.words.text import in_percent, listing, percent, short, with_error

COVERAGE = f"coverage_{100 * LEVEL:g}"


class QuantityWords(Words):
    """The words of a `QuantityTarget` of one output."""

    typical: ClassVar[Any] = staticmethod(np.median)
    everywhere: ClassVar[str] = "in a typical row"
    whole: ClassVar[str] = "of the variance of a typical prediction"
    density: ClassVar[str] = "probability density"
    sizes_note = (
        "Noise (aleatoric) and doubt (epistemic) are standard deviations; their squares add up to that of the "
        "prediction."
    )

    def __init__(self, target: Any):
        """Of a target with a `name`, the range that was seen, from `low` to `high`, and `logarithmic`."""
        self.target, self.name, self.logarithmic = target, target.name, target.logarithmic
        self.unit = f"± {self.name}"

    # Sentences

    def task(self, cases: str) -> str:
        """What is predicted."""
        return f"to predict {self.name}"

    def tiles(self, held: HeldOut) -> list[Tile]:
        """How near predictions are, and how many true values intervals hold."""
        missed = self.losses(held.student, held.y)[0].distances
        return [
            Tile(f"± {short(float(np.median(missed)))}", f"half of the predictions of {self.name} are this close"),
            Tile(
                percent(held.scores["student"][COVERAGE].value),
                f"of the true values lie in the intervals that promise {LEVEL:.0%}",
            ),
        ]

    def how_good(self, held: HeldOut) -> str:
        """Typical errors, against those of always answering the median."""
        half, most = np.quantile(self.losses(held.student, held.y)[0].distances, [0.5, 0.9])
        median = float(np.median(held.y))
        usual = float(np.median(np.abs(held.y - median)))
        text = (
            f"Half of its predictions of {self.name} were off by less than {short(half)}, nine in ten by less than "
            f"{short(most)}. Always answering {short(median)}, the median, would be off by less than {short(usual)} "
            "half of the time"
        )
        if half >= usual:
            return f"{text}: the model is of no use yet."
        return f"{text}, {short(usual / half)} times as far." if half else f"{text}."

    def trusted(self, held: HeldOut) -> str:
        """Whether the intervals hold as many true values as they promise."""
        low, high = held.student.interval(LEVEL)
        measured, promise = held.scores["student"][COVERAGE], interval_promise(held.methods["student"].position)
        text = (
            f"With every prediction of {self.name} comes an interval that should hold the true value 9 times out of "
            f"10; half of them are narrower than {short(float(np.median(high - low)))}. In the test, they held it in "
            f"{round(measured.value * held.rows):,} of {held.rows:,} {held.cases}: promised {LEVEL:.0%}, measured "
            f"{with_error(in_percent(measured), 1)}%. In a test of this size, intervals that keep their promise show "
            f"{percent(promise.low)} to {percent(promise.high)}, "
        )
        if promise.verdict == "kept" and measured.value > promise.high:
            return f"{text}and a little more where values are whole numbers, so they can be trusted on data like these."
        return (
            text
            + {
                "kept": "so they can be trusted on data like these.",
                "timid": "so these are wider than they need to be: safe, but more cautious than promised.",
                "bold": "so these are too narrow: the model is surer than it should be; treat its intervals with care.",
            }[promise.verdict]
        )

    def noise_share(self, prediction: Any) -> float:
        """In a typical row."""
        noise, doubt = prediction.parts
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            shares = noise / (noise + doubt)
        shares = shares[np.isfinite(shares)]
        return float(np.median(shares)) if len(shares) else math.nan

    def spot_errors(self, there: float, usual: float) -> str:
        """Half of the errors are below."""
        return (
            f"half of the predictions there were off by less than {short(there)}, overall by less than {short(usual)}"
        )

    def agreement(self, held: HeldOut) -> str:
        """How far apart the middles of their predictions are."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            apart = np.abs(held.student.middle - held.teacher.middle)
            share = float(np.nanmedian(apart / held.teacher.std))
        return (
            f"Half of the student's predictions of {self.name} are within {short(float(np.median(apart)))} of the "
            f"teacher's, {percent(share)} of the uncertainty that the teacher itself admits"
        )

    def facts(self, form: str) -> dict[str, str]:
        """Its range and its form."""
        seen = f"{self.name}, a number from {short(self.target.low)} to {short(self.target.high)} in training"
        return {"Target": seen, "Its form": form}

    def glossary(self) -> dict[str, str]:
        """The scores of quantities."""
        text = f"The root of the mean squared error: a typical error, in the unit of {self.name}, in which large ones "
        return super().glossary() | {"RMSE": f"{text}weigh most."}

    # Sizes and errors

    def sizes(self, part: np.ndarray) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(np.maximum(part, 0))

    def size(self, value: float) -> str:
        """On either side."""
        return f"±{short(value)}"

    def losses(self, prediction: Any, y: np.ndarray) -> list[Losses]:
        """The distance of the mean from the truth."""
        name = f"RMSE of {self.name}"
        return [Losses(self.name, name, name, np.abs(prediction.mean[:, 0] - np.ravel(y)), prediction.uncertainty)]

    def risk(self, mean_squares: np.ndarray) -> np.ndarray:
        """RMSE."""
        return np.sqrt(mean_squares)

    def risk_size(self, value: float) -> str:
        """In the target's unit."""
        return short(value)

    def example(self, prediction: Any, y: np.ndarray, row: int) -> Example:
        """Mean and standard deviation."""
        mean, std = float(prediction.mean[row, 0]), float(prediction.std[row, 0])
        noise, doubt = (self.size(float(self.sizes(part[row]))) for part in prediction.parts)
        return Example(with_error(Estimate(mean, std)), short(float(np.ravel(y)[row])), noise, doubt)

    # Pictures

    def limits(self, values: np.ndarray) -> pictures.Limits:
        """Ends of an axis that shows true values and what is near them."""
        low, high = min(self.target.low, float(values.min())), max(self.target.high, float(values.max()))
        if self.logarithmic:
            reach = (high / low) ** 0.15
            return low / reach, high * reach
        reach = 0.15 * ((high - low) or 1.0)
        return low - reach, high + reach

    def trust(self, held: HeldOut) -> list[Picture]:
        """Predictions against the truth, how many true values intervals of each level hold, and where these fall."""
        return [self._against_truth(held), self._coverage(held), self._positions(held)]

    def _against_truth(self, held: HeldOut) -> pictures.AgainstTruth:
        rows, student = sample(held.rows), held.student
        low, high = student.interval(LEVEL)
        return pictures.AgainstTruth(
            title="Predictions against the truth",
            caption=f"The middle of each prediction{held.sampled}, and its {LEVEL:.0%} interval; about one in ten "
            "should miss the dashed line. What lies beyond the frame is drawn at its edge.",
            alt=f"Predicted {self.name} with {LEVEL:.0%} intervals against the true {self.name}.",
            name=self.name,
            truth=np.ravel(held.y)[rows],
            middle=student.middle[rows, 0],
            low=low[rows, 0],
            high=high[rows, 0],
            limits=self.limits(held.y),
            log=self.logarithmic,
        )

    def _coverage(self, held: HeldOut) -> pictures.CoverageCurve:
        levels = np.linspace(0.05, 0.95, 19)
        shares = {
            method: np.asarray([inside(judged.position, level).mean() for level in levels])
            for method, judged in held.methods.items()
        }
        band = np.transpose([by_chance(held.rows, level) for level in levels.tolist()]) / held.rows
        measured = (
            f"{level:.0%} gives {inside(held.methods['student'].position, level).mean():.0%}"
            for level in (0.5, 0.8, 0.9)
        )
        return pictures.CoverageCurve(
            title="Do intervals keep their promise?",
            caption="How many true values the intervals of every level hold. A line inside the grey band keeps the "
            "promise, as far as a test of this size can tell.",
            alt="Measured coverage against the promised level: " + ", ".join(measured),
            levels=levels,
            shares=shares,
            band=(band[0], band[1]),
        )

    def _positions(self, held: HeldOut) -> pictures.Positions:
        bins = 20 if held.rows >= 1000 else 10
        return pictures.Positions(
            title="Where do true values fall?",
            caption="True values should be equally common anywhere in the predicted distributions: flat bars. A U "
            "means overconfident, a hump too cautious, a slope that predictions are too low (rising) or too high "
            "(falling).",
            alt="Histogram of the probability that the student gives to values below the true one (PIT).",
            counts=np.histogram(np.clip(held.methods["student"].position, 0, 1), bins, (0, 1))[0],
            band=by_chance(held.rows, 1 / bins),
            cases=held.cases,
        )

    def answers(self, held: HeldOut) -> list[Picture]:
        """The middles of their predictions."""
        rows = sample(held.rows)
        picture = pictures.StudentAgainstTeacher(
            title="The same predictions?",
            caption=f"A point for each of the {held.cases}{held.sampled}. On the dashed line they are the same.",
            alt=f"Scatter of the student's predictions of {self.name} against the teacher's.",
            points={"": (held.teacher.middle[rows, 0], held.student.middle[rows, 0])},
            label=self.name,
            limits=self.limits(held.y),
            log=self.logarithmic,
        )
        return [picture]

    def lines(self, aim: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
        """The mean."""
        return {"prediction": aim.reshape(len(aim))}, self.name


class SeveralWords(QuantityWords):
    """The words of several outputs: those of each, one after the other."""

    def __init__(self, parts: Sequence[QuantityWords]):
        """Of the words of each output."""
        self.parts, self.name = tuple(parts), listing([part.name for part in parts])

    def _each(self, method: str, held: HeldOut) -> list[Any]:
        """What the words of each output say of it."""
        return [getattr(part, method)(_output(held, place)) for place, part in enumerate(self.parts)]

    def tiles(self, held: HeldOut) -> list[Tile]:
        """The first of each."""
        return [tiles[0] for tiles in self._each("tiles", held)]

    def how_good(self, held: HeldOut) -> str:
        """Each by itself."""
        return " ".join(self._each("how_good", held))

    def trusted(self, held: HeldOut) -> str:
        """Each by itself."""
        return " ".join(self._each("trusted", held))

    def noise_share(self, prediction: Any) -> float:
        """The mean over the outputs."""
        return float(np.mean([part.noise_share(prediction.output(k)) for k, part in enumerate(self.parts)]))

    def agreement(self, held: HeldOut) -> str:
        """Each by itself."""
        return ". ".join(self._each("agreement", held))

    def facts(self, form: str) -> dict[str, str]:
        """The range of each."""
        return {"Targets": "; ".join(part.facts("")["Target"] for part in self.parts), "Their forms": form}

    def losses(self, prediction: Any, y: np.ndarray) -> list[Losses]:
        """Those of each."""
        pairs = ((part, prediction.output(k), y[:, k]) for k, part in enumerate(self.parts))
        return [losses for part, own, truth in pairs for losses in part.losses(own, truth)]

    def example(self, prediction: Any, y: np.ndarray, row: int) -> Example:
        """Each by its name."""
        examples = [part.example(prediction.output(k), y[:, k], row) for k, part in enumerate(self.parts)]
        names = [part.name for part in self.parts]
        fields = (
            ", ".join(f"{name} {getattr(each, field)}" for name, each in zip(names, examples, strict=True))
            for field in ("prediction", "truth", "noise", "doubt")
        )
        prediction, truth, noise, doubt = fields
        return Example(prediction, truth, noise, doubt)

    def trust(self, held: HeldOut) -> list[Picture]:
        """Those of each."""
        return self._named(self._each("trust", held))

    def answers(self, held: HeldOut) -> list[Picture]:
        """Those of each."""
        return self._named(self._each("answers", held))

    def doubts(self, held: HeldOut) -> list[Picture]:
        """Those of each."""
        return self._named(self._each("doubts", held))

    def along(self, course: Mapping[str, Any], column: Any, held: HeldOut | None) -> list[Picture]:
        """Those of each."""
        return self._named([part.along(self._course(course, k), column, held) for k, part in enumerate(self.parts)])

    def courses(self, course: Mapping[str, Any]) -> list[tuple[str, np.ndarray]]:
        """Those of each."""
        return [pair for k, part in enumerate(self.parts) for pair in part.courses(self._course(course, k))]

    def _named(self, pictures: list[list[Picture]]) -> list[Picture]:
        """Pictures of each output, with its name in their titles."""
        return [
            dataclasses.replace(picture, title=f"{part.name}: {picture.title}")
            for part, own in zip(self.parts, pictures, strict=True)
            for picture in own
        ]

    def _course(self, course: Mapping[str, Any], place: int) -> Mapping[str, Any]:
        """What is predicted of one output along a column; uncertainties that were not kept for each are unknown."""
        arrays = {name: np.asarray(course[name], np.float64) for name in ("aim", "aleatoric", "epistemic")}
        own = {
            name: values[:, place] if values.ndim > 1 else np.full(len(values), np.nan)
            for name, values in arrays.items()
        }
        return {**course, **own}


def _output(held: HeldOut, place: int) -> HeldOut:
    """What was said of one of several outputs."""
    truth, methods = held.y[:, place], {}
    for method in METHODS:
        judged, prediction = held.methods[method], held.methods[method].prediction.output(place)
        position = judged.position if place == 0 else prediction.position(truth)
        methods[method] = Judged(prediction, judged.log_likelihood, position)
    return dataclasses.replace(
        held, y=truth, methods=methods, scores={"student": scores(methods["student"].prediction, truth)}
    )


def inside(position: np.ndarray, level: float) -> np.ndarray:
    """1 where the true value lies inside the central interval of a level.

    >>> inside(np.array([0.01, 0.06, 0.5, 0.97]), 0.9)
    array([0., 1., 1., 0.])
    """
    return (np.abs(position - 0.5) <= level / 2).astype(np.float64)


def interval_promise(position: np.ndarray, level: float = LEVEL) -> Promise:
    """Do the intervals of a level hold as many true values as they promise?"""
    low, high = (count / len(position) for count in by_chance(len(position), level))
    return Promise.judge(estimate(inside(position, level)), low, high)
