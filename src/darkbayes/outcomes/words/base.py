"""What a page about a model asks of the outcome that it predicts: sentences, and pictures as data.

A page lays out and draws; whatever depends on what is predicted is said here. *Noise* is the aleatoric part of the
uncertainty, *doubt* the epistemic one.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from darkbayes.metrics import Estimate
from darkbayes.outcomes.pictures import MOST_BARS, AlongColumn, Limits, Picture, StudentAgainstTeacher, sample
from darkbayes.outcomes.words.text import short
from darkbayes.tables.schema import Number


@dataclasses.dataclass(frozen=True)
class Judged:
    """What a method said of the rows held out, and how it did."""

    prediction: Any
    log_likelihood: np.ndarray
    """Of each row."""
    position: np.ndarray
    """The probability of a value below the true one; empty where values have no order."""


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The rows held out, and what each method said of them."""

    y: np.ndarray
    methods: Mapping[str, Judged]
    scores: Mapping[str, Mapping[str, Estimate]]
    """By method and metric."""
    cases: str
    """What the rows are called, in the plural."""
    columns: Mapping[str, np.ndarray]
    """Values of some columns; of categories their places, -1 for a missing or an unknown one."""

    @property
    def student(self) -> Any:
        """The student's prediction."""
        return self.methods["student"].prediction

    @property
    def teacher(self) -> Any:
        """The teacher's prediction."""
        return self.methods["sgld"].prediction

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.y)

    @property
    def sampled(self) -> str:
        """A remark for pictures that do not show all rows."""
        shown = len(sample(self.rows))
        return f" ({shown} of {self.rows:,}, at random)" if shown < self.rows else ""


class Promise(NamedTuple):
    """Whether a promise is kept: "kept", or "timid" or "bold" where chance does not explain the difference."""

    verdict: str
    measured: Estimate
    low: float
    high: float
    """Between which a kept promise would be measured in 19 of 20 such tests."""

    @classmethod
    def judge(cls, measured: Estimate, low: float, high: float) -> "Promise":
        """Bold where less was kept than chance explains, timid where more was."""
        verdict = "bold" if measured.value < low else "timid" if measured.value > high else "kept"
        return cls(verdict, measured, low, high)


class Losses(NamedTuple):
    """How far off a prediction is in each row, and how unsure of it."""

    name: str
    """What is predicted."""
    risk: str
    """What the error over many rows is called,"""
    label: str
    """also along an axis."""
    distances: np.ndarray
    unsure: np.ndarray
    """As `Words.size` writes it."""


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
    right: bool | None = None
    """None where an answer is neither right nor wrong."""


class Words(abc.ABC):
    """What a page says of one outcome and shows of it."""

    name: str
    """Of the target."""
    unit: str
    """What an axis of sizes of uncertainties is called."""
    sizes_note: str
    """What these sizes are, in a sentence."""
    logarithmic: bool = False
    """Whether an axis of what is predicted is."""
    density: ClassVar[str] = "probability"
    """What is given to a value: a probability, or a density of it."""
    trust_note: ClassVar[str] = ""
    """How to read the pictures of `trust`; "{cases}" stands for the cases."""
    ignorance: ClassVar[str] = ""
    """What sizes of uncertainties are a share of, if they are: " of ..."."""
    typical: ClassVar[Any]
    """How the usual one of many errors or uncertainties is found: `np.median` or `np.mean`."""
    everywhere: ClassVar[str]
    """Where the usual uncertainty is."""
    whole: ClassVar[str]
    """What noise and doubt are shares of."""
    stratified: ClassVar[str] = ""
    """How rows were held out, if not simply at random."""

    # Sentences

    @abc.abstractmethod
    def task(self, cases: str) -> str:
        """What the model learned: "to ..."."""

    @abc.abstractmethod
    def tiles(self, held: HeldOut) -> list[Tile]:
        """The numbers that say most."""

    @abc.abstractmethod
    def how_good(self, held: HeldOut) -> str:
        """How good the student's answers are, and what answering without looking would give."""

    @abc.abstractmethod
    def trusted(self, held: HeldOut) -> str:
        """Whether its certainty can be trusted."""

    @abc.abstractmethod
    def noise_share(self, prediction: Any) -> float:
        """The share of the uncertainty that is noise; NaN where there is none."""

    @abc.abstractmethod
    def spot_errors(self, there: float, usual: float) -> str:
        """The typical error in some rows, and in all."""

    def hardest(self, held: HeldOut) -> str:
        """What it is least sure of, beside the values of columns; a sentence or nothing."""
        return ""

    @abc.abstractmethod
    def agreement(self, held: HeldOut) -> str:
        """How near student and teacher are; a sentence without its full stop."""

    @abc.abstractmethod
    def facts(self, form: str) -> dict[str, str]:
        """What the target is, among the choices that were made; `form` says why it is modelled as it is."""

    def score_note(self, held: HeldOut) -> str:
        """What to know of the scores; a sentence or nothing."""
        return ""

    def glossary(self) -> dict[str, str]:
        """Words that a page about this outcome uses, explained."""
        likelihood = (
            f"The logarithm of the {self.density} given to what really happened, on average. It rewards being right "
            "and being honest about it. 0.1 more is about 10% more probability."
        )
        return {"Log likelihood": likelihood}

    # Sizes and errors

    @abc.abstractmethod
    def sizes(self, part: np.ndarray) -> np.ndarray:
        """Parts of the uncertainty, as `Prediction.parts` has them, in the unit in which they are shown."""

    @abc.abstractmethod
    def size(self, value: float) -> str:
        """Such a size in words."""

    @abc.abstractmethod
    def losses(self, prediction: Any, y: np.ndarray) -> list[Losses]:
        """How far off each row is, for each thing that is predicted."""

    @abc.abstractmethod
    def risk(self, mean_squares: np.ndarray) -> np.ndarray:
        """The error over many rows, from the mean of the squared distances."""

    @abc.abstractmethod
    def risk_size(self, value: float) -> str:
        """Such an error in words."""

    @abc.abstractmethod
    def example(self, prediction: Any, y: np.ndarray, row: int) -> Example:
        """What is said of one row."""

    # Pictures

    @abc.abstractmethod
    def trust(self, held: HeldOut) -> list[Picture]:
        """Whether its certainty can be trusted; the first picture is the one that says most of the model."""

    @abc.abstractmethod
    def answers(self, held: HeldOut) -> list[Picture]:
        """What the student answers, against what its teacher does."""

    def doubts(self, held: HeldOut) -> list[Picture]:
        """The student's noise and doubt, against the teacher's."""
        rows = sample(held.rows)
        pairs = [[self.sizes(part)[rows] for part in prediction.parts] for prediction in (held.teacher, held.student)]
        points = {kind: (pairs[0][place], pairs[1][place]) for place, kind in enumerate(("noise", "doubt"))}
        sizes = np.asarray(pairs)
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        limits: Limits = (0.0, 1.08 * float(np.quantile(sizes, 0.995)) if len(sizes) else 1.0)
        if self.logarithmic and len(sizes):
            low, high = np.quantile(sizes, [0.01, 0.99]).tolist()
            limits = (0.7 * low, 1.4 * high)
        picture = StudentAgainstTeacher(
            title="The same uncertainties?",
            caption="Above the dashed line the student's are too large, below it too small.",
            alt="Scatter of the student's noise and doubt against the teacher's.",
            points=points,
            label=self.unit,
            limits=limits,
            log=limits[0] > 0,
        )
        return [picture]

    @abc.abstractmethod
    def lines(self, aim: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
        """What is predicted along a column, from what `Prediction.aim` is there, and the name of its axis."""

    def along(self, course: Mapping[str, Any], column: Any, held: HeldOut | None) -> list[Picture]:
        """What is predicted along a column.

        Args:
            course: its values, with `aim`, `aleatoric` and `epistemic` for each.
            column: what the schema says of it.
            held: the rows held out, if there are any.

        Returns:
            A picture for each thing that is predicted.
        """
        lines, label = self.lines(np.asarray(course["aim"], np.float64))
        noise, doubt = (self.sizes(np.asarray(course[part], np.float64)) for part in ("aleatoric", "epistemic"))
        seen, caption, ticks = None, "", np.empty(0)
        if isinstance(column, Number):
            values: Any = np.asarray(course["values"], np.float64)
            seen, extent = (column.low, column.high), f", seen from {short(column.low)} to {short(column.high)}"
            if held is not None and column.name in held.columns:
                ticks = held.columns[column.name][sample(held.rows)]
        else:
            names, extent = ["(missing)" if value is None else str(value) for value in course["values"]], ""
            shown = _most_varied(list(lines.values()))
            if len(shown) < len(names):
                caption = f"The {len(shown)} of {len(names)} categories whose predictions differ most."
            values, noise, doubt = tuple(names[k] for k in shown), noise[shown], doubt[shown]
            lines = {name: line[shown] for name, line in lines.items()}
        picture = AlongColumn(
            title=column.name,
            caption=caption,
            alt=f"Above, {label} along {column.name}{extent}; below, noise and doubt.",
            column=column.name,
            values=values,
            lines=lines,
            label=label,
            noise=noise,
            doubt=doubt,
            unit=self.unit,
            whole=bool(self.ignorance),
            seen=seen,
            ticks=ticks,
            log=self.logarithmic,
        )
        return [picture]

    def courses(self, course: Mapping[str, Any]) -> list[tuple[str, np.ndarray]]:
        """For each thing that is predicted its name, and the sizes of its doubt along a column."""
        return [(self.name, self.sizes(np.asarray(course["epistemic"], np.float64)))]


def _most_varied(lines: Sequence[np.ndarray]) -> np.ndarray:
    """The categories that fit side by side, those whose predictions differ most from the mean."""
    aim = np.stack(lines)
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.abs(aim - np.nanmean(aim, axis=1, keepdims=True)).max(axis=0))
    return np.sort(np.argsort(-apart, kind="stable")[:MOST_BARS])
