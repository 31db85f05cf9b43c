"""What a page about a model asks of the outcome that it predicts: sentences, and pictures as data.

A page lays out and draws; whatever depends on what is predicted is said here. *Noise* is the aleatoric part of the
uncertainty, *doubt* the epistemic one.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from darkbayes.estimates import Estimate
from darkbayes.metrics import risk_coverage
from darkbayes.outcomes.pictures import MOST_BARS, AlongColumn, Curves, Limits, Pair, Picture, Scatter, sample
from darkbayes.outcomes.words.text import short
from darkbayes.tables.schema import Number

FIRST = 10  # Rows that a curve over ever more rows begins with.
KEEP = 0.8  # The share of rows that the model keeps in the example of passing the others on.


@dataclasses.dataclass(frozen=True)
class Judged:
    """What a method said of the rows held out, and how it did."""

    prediction: Any
    log_likelihood: np.ndarray  # Of each row.
    position: np.ndarray  # The probability of a value below the true one; empty where values have no order.


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The rows held out, and what each method said of them."""

    y: np.ndarray
    methods: Mapping[str, Judged]
    scores: Mapping[str, Mapping[str, Estimate]]  # By method and metric.
    cases: str  # What the rows are called, in the plural.
    each: Sequence[Mapping[str, Estimate]] = ()  # The student's scores of each output, where there are several.

    @property
    def student(self) -> Any:
        return self.methods["student"].prediction

    @property
    def teacher(self) -> Any:
        return self.methods["sgld"].prediction

    @property
    def rows(self) -> int:
        return len(self.y)


class Promise(NamedTuple):
    """What was measured of a promise, and between which a kept one would be measured in 19 of 20 such tests."""

    measured: Estimate
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Bold where less was kept than chance explains, timid where more was, or kept."""
        return "bold" if self.measured.value < self.low else "timid" if self.measured.value > self.high else "kept"


class Tile(NamedTuple):
    """One number that says much."""

    figure: str
    words: str


class Example(NamedTuple):
    """What is said of one row, and what is true."""

    prediction: str
    truth: str
    noise: str
    doubt: str
    right: bool | None = None  # None where an answer is neither right nor wrong.


class Words(abc.ABC):
    """What a page says of one outcome and shows of it.

    `name` is that of the target and `about` what it is. Uncertainties have sizes: `unit` names their axis, `sizes_note`
    explains them, and noise and doubt are shares of a `whole`. `risk_name` is what the error over rows is called.
    """

    name: str
    about: str
    unit: str
    sizes_note: ClassVar[str]
    whole: ClassVar[str]
    risk_name: str
    logarithmic: bool = False  # Whether an axis of what is predicted is.
    in_percent: ClassVar[bool] = False  # Whether predictions and sizes of uncertainties are.
    stratified: ClassVar[str] = ""  # How rows were held out, if not simply at random.

    # Each output of several

    def outputs(self, held: HeldOut) -> "list[tuple[Words, HeldOut]]":
        """The words of each output, and what was said of it."""
        return [(self, held)]

    def courses(self, course: Mapping[str, Any]) -> "list[tuple[Words, Mapping[str, Any]]]":
        """The words of each output, and what is predicted of it along a column."""
        return [(self, course)]

    # Sentences

    @abc.abstractmethod
    def task(self, cases: str) -> str:
        """What the model learned: "to ..."."""

    @abc.abstractmethod
    def tiles(self, held: HeldOut) -> list[Tile]:
        """The numbers that say most, the first of them of the answers."""

    @abc.abstractmethod
    def how_good(self, held: HeldOut) -> str:
        """How good the student's answers are, and what answering without looking would give."""

    @abc.abstractmethod
    def trusted(self, held: HeldOut) -> str:
        """Whether its certainty can be trusted."""

    @abc.abstractmethod
    def useless(self, held: HeldOut) -> bool:
        """Whether answering without looking would do as well."""

    @abc.abstractmethod
    def broken(self, held: HeldOut) -> str:
        """That it is surer than it should be, in a sentence; nothing where it keeps its promise."""

    @abc.abstractmethod
    def noise_share(self, prediction: Any) -> float:
        """The share of the uncertainty that is noise; NaN where there is none."""

    @abc.abstractmethod
    def agreement(self, held: HeldOut) -> str:
        """How near student and teacher are, in a sentence."""

    def score_note(self, held: HeldOut) -> str:
        """What to know of the scores; a sentence or nothing."""
        return ""

    # Sizes and errors

    @abc.abstractmethod
    def sizes(self, part: np.ndarray) -> np.ndarray:
        """Parts of the uncertainty, as `Prediction.parts` has them, in the unit in which they are shown."""

    @abc.abstractmethod
    def losses(self, prediction: Any, y: np.ndarray) -> np.ndarray:
        """The square of how far off each row is."""

    @abc.abstractmethod
    def risk(self, mean_loss: np.ndarray) -> np.ndarray:
        """The error over many rows, as it is shown."""

    @abc.abstractmethod
    def example(self, held: HeldOut, row: int) -> Example:
        """What the student says of one row."""

    def risks(self, prediction: Any, y: np.ndarray) -> Pair:
        """The error on the per cent of rows that a method is surest of, for growing shares."""
        with np.errstate(over="ignore", invalid="ignore"):
            risk = self.risk(risk_coverage(prediction.uncertainty, self.losses(prediction, y)))
        begin = min(FIRST, len(risk)) - 1
        return 100 * np.arange(begin + 1, len(risk) + 1) / len(risk), risk[begin:]

    # Pictures

    @abc.abstractmethod
    def trust(self, held: HeldOut) -> list[Picture]:
        """Whether its certainty can be trusted; the first picture is the one that says most of the model."""

    @abc.abstractmethod
    def answers(self, held: HeldOut) -> Picture:
        """What the student answers, against what its teacher does."""

    @abc.abstractmethod
    def lines(self, aim: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
        """What is predicted along a column, from what `Prediction.aim` is there, and the name of its axis."""

    def surest(self, held: HeldOut) -> Picture:
        """What is gained by passing the least sure rows on to a person."""
        curves = {method: self.risks(judged.prediction, held.y) for method, judged in held.methods.items()}
        shares, risk = curves["student"]
        whole, most = (short(float(risk[np.searchsorted(shares, 100 * share)])) for share in (1.0, KEEP))
        return Curves(
            title="What if it answers only when it is sure?",
            caption=f"{self.risk_name}: {most} on the surest {KEEP:.0%} of the {held.cases}, {whole} on all. A rising "
            "line means that it knows what is hard.",
            alt=f"{self.risk_name} of student, teacher and plug-in network among the surest {held.cases}.",
            x=f"{held.cases} answered, the surest first (%)",
            y=self.risk_name,
            log=self.logarithmic,
            curves=curves,
        )

    def scattered(self, title: str, label: str, points: Mapping[str, Pair], limits: Limits, log: bool) -> Scatter:
        """What the student says against what its teacher does."""
        alt = f"Scatter of the student's {label} against the teacher's."
        x, y = (f"{method}: {label}" for method in ("teacher", "student"))
        return Scatter(title=title, alt=alt, x=x, y=y, log=log, points=points, limits=limits)

    def doubts(self, held: HeldOut) -> Picture:
        """The student's noise and doubt, against the teacher's."""
        rows = sample(held.rows)
        pairs = [[self.sizes(part)[rows] for part in prediction.parts] for prediction in (held.teacher, held.student)]
        points = {kind: (pairs[0][place], pairs[1][place]) for place, kind in enumerate(("noise", "doubt"))}
        sizes = np.asarray(pairs)
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        low, high = np.quantile(sizes, [0.01, 0.99]).tolist() if len(sizes) else (1.0, 1.0)
        limits: Limits = (0.7 * low, 1.4 * high) if self.logarithmic else (0.0, 1.1 * high)
        return self.scattered("The same uncertainties?", self.unit, points, limits, self.logarithmic)

    def along(self, course: Mapping[str, Any], column: Any) -> AlongColumn:
        """What is predicted along a column of the schema, from its values with `aim`, `aleatoric`, `epistemic`."""
        lines, label = self.lines(np.asarray(course["aim"], np.float64))
        noise, doubt = (self.sizes(np.asarray(course[part], np.float64)) for part in ("aleatoric", "epistemic"))
        seen, extent, caption = None, "", ""
        if isinstance(column, Number):
            values: Any = np.asarray(course["values"], np.float64)
            seen, extent = (column.low, column.high), f", seen from {short(column.low)} to {short(column.high)}"
        else:
            names = ["(missing)" if value is None else str(value) for value in course["values"]]
            aims = np.stack(list(lines.values()))
            with np.errstate(invalid="ignore"):  # Those that fit side by side, which differ most from the mean.
                apart = np.nan_to_num(np.abs(aims - np.nanmean(aims, axis=1, keepdims=True)).max(axis=0))
            shown = np.sort(np.argsort(-apart, kind="stable")[:MOST_BARS])
            if len(shown) < len(names):
                caption = f"The {len(shown)} of {len(names)} categories whose predictions differ most."
            values, noise, doubt = tuple(names[k] for k in shown), noise[shown], doubt[shown]
            lines = {name: line[shown] for name, line in lines.items()}
        alt = f"Above, {label} along {column.name}{extent}; below, noise and doubt."
        about: Any = {"title": column.name, "caption": caption, "alt": alt, "x": column.name, "y": label}
        about |= {"log": self.logarithmic, "unit": self.unit, "whole": self.in_percent, "seen": seen}
        return AlongColumn(**about, values=values, lines=lines, noise=noise, doubt=doubt)
