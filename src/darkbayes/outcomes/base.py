"""What every outcome has: a `Target`, which says what is predicted, and a `Prediction`, which says what is known of it.

An outcome is a file in this folder and, for what a network learns by, one of the same name in `heads/`. Nobody else
asks which outcome it is: what differs is a method here.

A target has three forms, with the rows along the first axis:

    values      as files hold them: numbers, or the names of classes
    truth       what predictions are scored by: numbers in the target's own unit, or the numbers of classes
    encoded     what a network learns: standardised numbers in float32, or the numbers of classes

Nothing here loads JAX before `likelihood` or `head` is called.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.metrics import LEVEL, RowScores
from darkbayes.outcomes.guarantee import Guarantee, calibrated
from darkbayes.tables.columns import Column, listed
from darkbayes.tables.schema import Frame

AUTO: Literal["auto"] = "auto"  # The task that is found out.
DIGITS, MOST_DIGITS = 7, 17  # Significant digits of numbers in single precision, and in double.
NOISE = (
    "Noise (aleatoric uncertainty) is what remains unknown even to a model that knows everything about the world but "
    "these inputs. More data would not lower it; other inputs might."
)
DOUBT = (
    "Doubt (epistemic uncertainty) is what the model has not learnt, for want of examples like this one. More of them "
    "would lower it. Where it is large, do not lean on the prediction."
)


@dataclasses.dataclass(frozen=True, repr=False)
class Prediction(abc.ABC):
    """What is predicted of some rows, whoever predicts it: draws, a student, a plug-in network, an exported file.

    Its fields are arrays with the rows along the first axis, or None for what is not known.

    Args:
        guarantee: what its intervals or sets promise, if they were calibrated.
    """

    guarantee: Guarantee | None = dataclasses.field(default=None, kw_only=True)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are known by name, from which the target's `prediction` makes the same again."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}

    def __len__(self) -> int:
        return len(next(iter(self.arrays().values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self):,} rows"

    def __getitem__(self, rows: Any) -> Self:
        return dataclasses.replace(self, **{name: value[rows] for name, value in self.arrays().items()})

    def joined(self, others: Sequence[Self]) -> Self:
        """These rows and those of others of the same kind, in their order."""
        parts = [self.arrays(), *(other.arrays() for other in others)]
        return dataclasses.replace(self, **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def summary(self) -> Self:
        """The same in few numbers per row, where there are many, such as those of hundreds of draws."""
        return self

    @property
    @abc.abstractmethod
    def aim(self) -> np.ndarray:
        """What is predicted, ``[rows, ...]``: probabilities, or the mean."""

    @property
    @abc.abstractmethod
    def uncertainty(self) -> np.ndarray:
        """How unsure it is of each row, ``[rows]``: an entropy, or a standard deviation."""

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Aleatoric and epistemic uncertainty of each row in a unit in which they add up: entropies, or variances."""

    @abc.abstractmethod
    def spreads(self) -> tuple[np.ndarray, np.ndarray]:
        """The whole and the epistemic uncertainty of each row, in a unit of which ratios mean something."""

    def course(self) -> dict[str, np.ndarray]:
        """What a page shows along a column, in units that may be averaged over rows: what is predicted, and `parts`."""
        noise, doubt = self.parts
        return {"aim": self.aim, "aleatoric": noise, "epistemic": doubt}

    @abc.abstractmethod
    def log_prob(self, y: Any) -> np.ndarray:
        """The log probability, or density, of the truth of each row."""

    @abc.abstractmethod
    def row_scores(self, y: Any) -> Mapping[str, RowScores]:
        """The parts of each row in every score that there is for such predictions (`darkbayes.metrics`)."""

    @abc.abstractmethod
    def strangeness(self, y: Any) -> np.ndarray:
        """How far the truth lies from what is predicted, in the prediction's own terms, ``[rows, outputs]``.

        It is zero or more, and what a guarantee holds are truths that are not too strange (`outcomes.guarantee`).
        """

    @abc.abstractmethod
    def covered(self, y: Any, level: float) -> np.ndarray:
        """Whether the interval, or the set of classes, of a level holds the truth, ``[rows, outputs]``."""

    @abc.abstractmethod
    def width(self, level: float) -> np.ndarray:
        """How wide that interval is, or how many classes that set has, ``[rows, outputs]``."""

    def position(self, y: Any) -> np.ndarray:
        """The probability of a value below the truth, ``[rows]``; nothing where values have no order."""
        return np.empty(0)


def known(part: np.ndarray | None) -> np.ndarray:
    """A part of the uncertainty, if it is known."""
    if part is None:
        remedy = "distil a student with decompose=True, or predict with draws"
        raise InvalidInput(f"this prediction does not know its aleatoric part: {remedy}")
    return part


class Choice(NamedTuple):
    """What was found out of the columns to predict."""

    target: "Target"
    notes: list[str]  # What there is to know of the choice, in words.
    reason: str = ""  # Why the target has the form it has, for a report.


class Target(abc.ABC):
    """What is predicted, and all that is particular to it; a frozen dataclass that schemas store (`stored_as`)."""

    name: str
    """What it is called."""
    guarantee: Guarantee | None
    """What predictions of it promise, if they were calibrated."""
    task: ClassVar[str]  # What people call it.
    likelihoods: ClassVar[tuple[str, ...]]  # How a teacher's outputs may speak of it, by name, the default first.
    general: ClassVar[str] = ""  # The one of these of which the others are special cases, if there is one.
    heads: ClassVar[tuple[str, ...]]  # How a student's outputs may, likewise.
    transforms: ClassVar[tuple[str, ...]] = ()  # What of it may be modelled, where there is a choice.
    prior_precisions: ClassVar[tuple[float, ...]] = (0.1, 1.0, 0.01)
    """Of the teacher's biases a priori, to choose among, the default first; of its weights, times the fan-in."""
    truth_values: ClassVar[tuple[str, ...]] = ()
    """Outputs of an exported student that are such; all others are numbers."""
    measure: ClassVar[str] = "epistemic"  # What `doubt` is called in a file.
    views: ClassVar[tuple[str, ...]]  # How a page shows it: "bars" of probabilities, or a "quantity" with its interval.

    # What is predicted, found out from a table

    @classmethod
    @abc.abstractmethod
    def suits(cls, columns: Mapping[str, Column]) -> str | None:
        """Why columns, without missing values, look like such a target where nobody says what they are.

        In words for a note, empty where it goes without saying; None where they do not.
        """

    @classmethod
    @abc.abstractmethod
    def choose(
        cls, columns: Mapping[str, Column], rows: np.ndarray, inputs: np.ndarray, source: str, transform: str = AUTO
    ) -> Choice:
        """The target that predicts these columns; what does not fit is refused with the value and the remedy.

        Args:
            columns: those to predict, of all rows that have a value of each.
            rows: which of these train; statistics are of them alone.
            inputs: what the network reads in the rows that train, ``[rows, width]``.
            source: what messages call the table.
            transform: one of `transforms`, or the one that does best.
        """

    @classmethod
    def only(cls, columns: Mapping[str, Column], what: str = "column") -> tuple[str, Column]:
        """The one column to predict, and its name before it."""
        if len(columns) > 1:
            raise InvalidInput(f"{cls.task} predicts one {what}, not {listed(list(columns))}: name one target")
        return next(iter(columns.items()))

    @classmethod
    def strata(cls, columns: Mapping[str, Column]) -> np.ndarray | None:
        """What to split rows by so that both parts have some of each, ``[rows]``; None where it does not matter."""
        return None

    # Rows

    @property
    @abc.abstractmethod
    def columns(self) -> dict[str, tuple[str, ...] | None]:
        """The columns of a file that hold it, and the texts that each may hold; None for numbers."""

    def strays(self, values: Frame) -> list[tuple[int, str]]:
        """The rows whose values in these columns cannot be, and why."""
        return []

    def joined(self, values: Frame) -> np.ndarray:
        """The values of these columns as one array, with the rows along the first axis."""
        return values[self.name]

    @abc.abstractmethod
    def truth(self, values: np.ndarray) -> np.ndarray:
        """What predictions are scored by, from the values that files hold."""

    @abc.abstractmethod
    def encode(self, values: np.ndarray) -> np.ndarray:
        """What a network learns, from the values that files hold."""

    def indicators(self, encoded: np.ndarray) -> np.ndarray:
        """What is encoded as numbers that may be averaged, ``[rows, numbers]``."""
        return np.asarray(encoded, np.float64).reshape(len(encoded), -1)

    def by_trees(self, trees: Any, encoded: np.ndarray) -> Any:
        """What gradient boosting (`darkbayes.fit.neighbour`) predicts; None for an outcome that it knows nothing of."""
        return None

    # Networks

    def likelihood(self, kind: str | None = None) -> Any:
        """How a teacher's outputs speak of it (`outcomes.heads`): one of `likelihoods`, the first unless given."""
        self.check_kinds(kind, None)
        return self._likelihood(kind or self.likelihoods[0])

    def head(self, kind: str | None = None) -> Any:
        """How a student's do, with both parts of the uncertainty: one of `heads`, the first unless given."""
        self.check_kinds(None, kind)
        return self._head(kind or self.heads[0])

    @abc.abstractmethod
    def _likelihood(self, kind: str) -> Any:
        """That of this name, which is one of `likelihoods`."""

    @abc.abstractmethod
    def _head(self, kind: str) -> Any:
        """That of this name, which is one of `heads`."""

    @classmethod
    def check_kinds(cls, likelihood: str | None, head: str | None) -> None:
        """Refuse names of a likelihood or of a head that there are not for this outcome."""
        for what, kind, kinds in (("likelihood", likelihood, cls.likelihoods), ("head", head, cls.heads)):
            if kind is not None and kind not in kinds:
                raise InvalidInput(f"{what} {kind!r} is not one for {cls.task}: choose among {', '.join(kinds)}")

    @classmethod
    def answers(cls, task: str) -> bool:
        """Whether it is what this task asks for, or leaves open."""
        return task in (AUTO, cls.task)

    def own_unit(self, prediction: Any) -> Any:
        """What a network predicts of the encoded target, in the target's own unit."""
        return prediction if self.guarantee is None else dataclasses.replace(prediction, guarantee=self.guarantee)

    def each(self, prediction: Any, truth: np.ndarray) -> list[tuple[Any, np.ndarray]]:
        """What is predicted of each of several outputs, and its truth; nothing where there is one alone."""
        return []

    # Guarantees

    def guaranteed(self, prediction: Any, y: np.ndarray, level: float) -> Self:
        """The same, whose intervals or sets hold the truth of rows like these with a probability of `level` at least.

        The prediction is what the student says of rows that it never saw, in the target's own unit.
        """
        guarantee = calibrated(prediction.strangeness(y), level)
        return dataclasses.replace(self, guarantee=guarantee)  # pyright: ignore[reportArgumentType]

    @property
    def level(self) -> float:
        """That of intervals where nobody names one: the guarantee's, if there is one."""
        return LEVEL if self.guarantee is None else self.guarantee.level

    @property
    def promise(self) -> str:
        """The guarantee in words; nothing where there is none."""
        if self.guarantee is None:
            return ""
        level, rows = f"{100 * self.guarantee.level:g}%", f"{self.guarantee.rows:,} cases that it did not learn from"
        cases = f"at least {level} of new cases like those of the fit"
        return f"{level} {self.held_by} hold the truth in {cases}, by {rows}"

    held_by: ClassVar[str]  # What holds the truth of a row, in the plural.

    @abc.abstractmethod
    def change(self, prediction: Any) -> str:
        """What the guarantee makes of predictions, in words: "they are ..."; these may come without it."""

    def doubt(self, prediction: Any) -> np.ndarray:
        """How much a label of each row would teach, ``[rows]``: the epistemic part, in the unit that networks learn in.

        In the target's own unit rows of a large target would always come first, if its logarithm is what is learned.
        """
        return prediction.parts[1]

    # Predictions that come from a file, and go to one

    @property
    @abc.abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """What an exported student must compute."""

    @abc.abstractmethod
    def prediction(self, arrays: Mapping[str, np.ndarray]) -> Prediction:
        """The prediction that an exported student's outputs, or stored arrays, stand for."""

    @abc.abstractmethod
    def write_outputs(self, graph: Any, parts: Mapping[str, Any]) -> None:
        """Append to an ONNX graph what makes the outputs of what a head wrote (`Head.write`)."""

    @abc.abstractmethod
    def table(self, prediction: Any, level: float) -> dict[str, np.ndarray]:
        """The columns of a file of predictions, in their order; intervals hold the truth with probability `level`."""

    @property
    def digits(self) -> int:
        """Significant digits of what is predicted that mean something; a student computes in single precision."""
        return DIGITS

    @abc.abstractmethod
    def answer(self, prediction: Any, level: float) -> dict[str, np.ndarray]:
        """What the service says of each row, by name; as `table`, in a form for programs."""

    def described(self) -> dict[str, Any]:
        """What the service says of the target, and the words by which a page explains what it shows."""
        words = {"noise": NOISE, "doubt": DOUBT, "arithmetic": self.arithmetic, "guarantee": self.promise}
        return {"name": self.name, "words": words}

    @property
    @abc.abstractmethod
    def arithmetic(self) -> str:
        """In which unit the two uncertainties are, and how they add up."""

    @abc.abstractmethod
    def answer_form(self) -> dict[str, Any]:
        """The form of each row's answer, as JSON Schema has it: a property for each name of `answer`."""

    # People

    @abc.abstractmethod
    def words(self) -> Any:
        """What a page says of it, and which pictures it has (`outcomes.words`)."""


class Outcomes:
    """The outcomes there are.

    Args:
        kinds: in the order in which they are tried where nobody says what a column is.
    """

    def __init__(self, kinds: Sequence[type[Target]]):
        self.kinds = tuple(kinds)

    @property
    def tasks(self) -> tuple[str, ...]:
        return (AUTO, *sorted({kind.task for kind in self.kinds}))

    def likelihoods(self, *without: type[Target]) -> tuple[str, ...]:
        """Those of all outcomes, some left out."""
        kinds = [kind for kind in self.kinds if kind not in without]
        return tuple(dict.fromkeys(name for kind in kinds for name in kind.likelihoods))

    def kind(
        self, columns: Mapping[str, Column], task: str, notes: list[str], likelihood: str | None = None
    ) -> type[Target]:
        """The kind of target that columns are, for one of `tasks`, with a likelihood if it must have one.

        A choice that was made is added to the notes, in words.
        """
        if task not in self.tasks:
            raise InvalidInput(f"task must be one of {', '.join(self.tasks)}, not {task!r}")
        candidates = [kind for kind in self.kinds if task in (AUTO, kind.task)]
        if likelihood is not None and task == AUTO:
            candidates = [kind for kind in candidates if likelihood in kind.likelihoods]
            if not candidates:
                raise InvalidInput(f"likelihood must be one of {', '.join(self.likelihoods())}, not {likelihood!r}")
        reasons = {kind: reason for kind in candidates if (reason := kind.suits(columns)) is not None}
        if reasons:
            kind, reason = next(iter(reasons.items()))
            if task == AUTO and reason:
                others = " or ".join(dict.fromkeys(other.task for other in list(reasons)[1:]))
                notes.append(f"{reason} (otherwise: task {others})" if others else reason)
            return kind
        name, column = next(((name, each) for name, each in columns.items() if each.kind != "number"), (None, None))
        if task == AUTO and column is not None:
            held = f"{name!r} holds {column.values[0]!r}"
            if likelihood is not None:
                such = f"likelihood {likelihood!r} is for {candidates[0].task}, but {held}"
                raise InvalidInput(f"{such}: leave the likelihood out, or predict a column of numbers")
            raise InvalidInput(f"several targets must all be numbers, but {held}: predict it by itself")
        # What takes several columns comes last.
        return candidates[-1 if len(columns) > 1 else 0]
