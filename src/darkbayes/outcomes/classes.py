"""A class among several: probabilities, whose entropy is the uncertainty."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from darkbayes.errors import InvalidInput, require_level
from darkbayes.metrics import RowScores, confidence_bins
from darkbayes.outcomes.base import AUTO, Choice, Prediction, Target, known
from darkbayes.outcomes.guarantee import Guarantee
from darkbayes.tables.cells import TRUTH, objects
from darkbayes.tables.columns import Column, listed, texts_of
from darkbayes.tables.schema import Frame, stored_as

MOST_CLASSES = 1000  # Classes that a target may have.
MOST_COUNTED = 20  # Different whole numbers, from 0 or 1 without a gap, that are taken for classes; more are not.
WHOLE = 2**53  # From it on not every whole number is a float64.
LEAST_SHARE = 3  # Rows per class, on average, that whole numbers must have to be taken for classes.
DISTINCT = 0.9  # Share of different values above which they are too many for classes.
BETWEEN = "|"  # What stands between the names of a set of classes in a file.
LEAST_ENTROPY = 0.01  # Nats that are added where entropies are compared by their ratio.
FLOOR = 1e-6  # Probabilities are clipped there where two predictions are compared.


@dataclasses.dataclass(frozen=True, repr=False)
class ClassPrediction(Prediction):
    """Class probabilities.

    Args:
        log_probs: of each class, ``[rows, classes]``; the probability of an unlikely one may be too small for a float.
        expected_entropy: of a single draw, ``[rows]``, where it is known.
    """

    log_probs: np.ndarray
    expected_entropy: np.ndarray | None = None

    @classmethod
    def from_probs(cls, probs: Any, expected_entropy: np.ndarray | None = None) -> "ClassPrediction":
        """The same from probabilities, ``[rows, classes]``."""
        with np.errstate(divide="ignore"):
            return cls(np.log(np.asarray(probs, np.float64)), expected_entropy)

    @property
    def probs(self) -> np.ndarray:
        """The probability of each class."""
        return np.exp(self.log_probs)

    aim = probs
    mean = probs
    """The mean of the one-hot target."""

    @property
    def variance(self) -> np.ndarray:
        """The variance of each element of the one-hot target."""
        return self.probs * (1 - self.probs)

    @property
    def entropy(self) -> np.ndarray:
        """The whole uncertainty, in nats."""
        probs = self.probs
        return -np.sum(np.where(probs > 0, probs * np.where(probs > 0, self.log_probs, 0.0), 0.0), axis=-1)

    uncertainty = entropy
    total = entropy

    @property
    def aleatoric(self) -> np.ndarray:
        """The entropy that would remain if the weights were known: noise in the labels."""
        return np.minimum(known(self.expected_entropy), self.entropy)

    @property
    def epistemic(self) -> np.ndarray:
        """The mutual information of label and weights: what more data could remove."""
        return self.entropy - self.aleatoric

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Aleatoric and epistemic; what is not known to be doubt counts as noise, as a single network has it."""
        if self.expected_entropy is None:
            return self.entropy, np.zeros(len(self))
        return self.aleatoric, self.epistemic

    def spreads(self) -> tuple[np.ndarray, np.ndarray]:
        """Entropies, and a hundredth of a nat more: below that nobody minds a factor."""
        return self.entropy + LEAST_ENTROPY, self.parts[1] + LEAST_ENTROPY

    def codes(self, y: Any) -> np.ndarray:
        """The truth as an array, if it is one class per row."""
        codes, classes = np.asarray(y), self.log_probs.shape[-1]
        if codes.shape != self.log_probs.shape[:-1]:
            rows = self.log_probs.shape[:-1]
            raise InvalidInput(f"y has shape {codes.shape}, but the predictions are of shape {rows}: reshape y")
        if codes.dtype.kind not in "iu":
            raise InvalidInput(f"y has type {codes.dtype}: give integer classes 0..{classes - 1}")
        outside = (codes < 0) | (codes >= classes)
        if outside.any():
            raise InvalidInput(f"y holds label {codes[outside][0]}, outside 0..{classes - 1}: relabel it")
        return codes

    def log_prob(self, y: Any) -> np.ndarray:
        return np.take_along_axis(self.log_probs, self.codes(y)[..., None], axis=-1)[..., 0]

    def right(self, y: Any) -> np.ndarray:
        """Where the most probable class is the true one."""
        return self.log_probs.argmax(axis=-1) == self.codes(y)

    def row_scores(self, y: Any) -> Mapping[str, RowScores]:
        probs, right = self.probs, self.right(y)
        confidence, own = probs.max(axis=-1), np.exp(self.log_prob(y))
        return {
            "log_likelihood": RowScores(self.log_prob(y)),
            "error": RowScores(100.0 * ~right),
            "brier": RowScores((probs**2).sum(axis=-1) - 2 * own + 1),
            "ece": RowScores(right - confidence, confidence_bins(confidence)),
        } | self._set_scores(y)

    def _set_scores(self, y: Any) -> dict[str, RowScores]:
        if self.guarantee is None:
            return {}
        level, percent = self.guarantee.level, f"{100 * self.guarantee.level:g}"
        held, sizes = self.covered(y, level)[:, 0], self.width(level)[:, 0]
        return {f"set_coverage_{percent}": RowScores(held * 1.0), f"set_size_{percent}": RowScores(sizes)}

    def strangeness(self, y: Any) -> np.ndarray:
        """The logarithm of how improbable the class was."""
        return -self.log_prob(y)[:, None]

    def sets(self, level: float) -> np.ndarray:
        """The classes that may be, ``[rows, classes]``: the most probable ones that have a probability of `level`.

        With a guarantee of that level those that are not too strange: were the probabilities the true ones, no sets
        that hold the truth as often would be smaller on average. The most probable class is one of them in any case.
        """
        require_level("level", level)
        if self.guarantee is not None and level == self.guarantee.level:
            return self.log_probs >= np.minimum(self.log_probs.max(axis=-1, keepdims=True), -self.guarantee.bounds[0])
        order = np.argsort(-self.log_probs, axis=-1, kind="stable")
        probs = np.take_along_axis(self.probs, order, axis=-1)
        sets = np.empty(probs.shape, bool)
        np.put_along_axis(sets, order, np.cumsum(probs, axis=-1) - probs < level, axis=-1)
        return sets

    def covered(self, y: Any, level: float) -> np.ndarray:
        return np.take_along_axis(self.sets(level), self.codes(y)[..., None], axis=-1)

    def width(self, level: float) -> np.ndarray:
        return self.sets(level).sum(axis=-1, keepdims=True, dtype=np.float64)

    def scaled_log_prob(self, y: Any, temperature: float) -> np.ndarray:
        """The log probability of each row's class with the logits divided by `temperature`."""
        logits = self.log_probs / temperature
        top = logits.max(axis=-1, keepdims=True)
        normalised = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
        return ClassPrediction(normalised).log_prob(y)

    def kl(self, other: "ClassPrediction") -> np.ndarray:
        """KL(self || other) of each row, of probabilities clipped from below."""
        mine, theirs = (np.maximum(prediction.probs, FLOOR) for prediction in (self, other))
        return np.sum(mine * np.log(mine / theirs), axis=-1)


@stored_as("classes")
@dataclasses.dataclass(frozen=True)
class ClassTarget(Target):
    """A target that is one of several classes.

    Args:
        name: of its column.
        classes: by their names.
        kind: what they are in the user's own files.
        guarantee: what sets of them promise, if they were calibrated.
    """

    name: str
    classes: tuple[str, ...]
    kind: Literal["text", "integer", "boolean"] = "text"
    guarantee: Guarantee | None = None

    task: ClassVar[str] = "classification"
    likelihoods: ClassVar[tuple[str, ...]] = ("softmax",)
    heads: ClassVar[tuple[str, ...]] = ("softmax",)
    # Where classes are told apart without an error nothing but the prior holds their scores. Under a looser one all
    # draws may be sure beyond measure, and a few rows that they are wrong about cost more than all others gain.
    prior_precisions: ClassVar[tuple[float, ...]] = (0.1, 1.0)
    truth_values: ClassVar[tuple[str, ...]] = ("set",)
    measure: ClassVar[str] = "mutual_information"
    views: ClassVar[tuple[str, ...]] = ("bars",)
    held_by: ClassVar[str] = "sets"

    @classmethod
    def of_folders(cls, names: tuple[str, ...], numbered: bool) -> "ClassTarget":
        """What is predicted of images that lie in a folder for each class, whose names are all numbers or not."""
        return cls("class", names, "integer" if numbered else "text")

    @classmethod
    def suits(cls, columns: Mapping[str, Column]) -> str | None:
        """Text and truth values are classes; so are whole numbers that are few, without a gap from 0 or 1, or two."""
        if len(columns) > 1:
            return None
        name, column = cls.only(columns)
        if column.kind != "number":
            return ""
        distinct = np.unique(column.values)
        if (distinct != np.floor(distinct)).any() or len(distinct) == 1:
            return None
        gapless = len(distinct) <= MOST_COUNTED and distinct[0] in (0, 1) and np.ptp(distinct) == len(distinct) - 1
        if (gapless or len(distinct) == 2) and len(column.values) >= LEAST_SHARE * len(distinct):
            return f"{name!r} holds {len(distinct)} different whole numbers, which are taken for classes"
        return None

    @classmethod
    def choose(
        cls, columns: Mapping[str, Column], rows: np.ndarray, inputs: np.ndarray, source: str, transform: str = AUTO
    ) -> Choice:
        name, column = cls.only(columns)
        if column.kind == "number" and (column.values != np.floor(column.values)).any():
            example = column.values[column.values != np.floor(column.values)][0]
            held = f"{name!r} holds the number {example}: choose the task regression"
            raise InvalidInput(f"classification predicts classes, but {held}", option="task", value="regression")
        if column.kind == "number" and (largest := float(np.abs(column.values).max())) >= WHOLE:
            held = f"{name!r} holds {largest:.0f}, and whole numbers of that size are rounded to even ones"
            raise InvalidInput(f"{source}: {held}: read them as text", option="category", value=name)
        values, notes = texts_of(column), []
        counts = Counter(values.tolist())
        if len(counts) == 1:
            why = "to tell classes apart, there must be examples of at least two"
            raise InvalidInput(f"{source}: {name!r} is {next(iter(counts))!r} in every row: {why}")
        if len(counts) > MOST_CLASSES or len(counts) > DISTINCT * len(values):
            why = f"{len(counts)} different values in {len(values)} rows: too many for classes. Is it the right column?"
            raise InvalidInput(f"{source}: {name!r} has {why}")
        if column.kind != "number":
            notes.append(f"{name!r} is one of {len(counts)} classes: {listed(sorted(counts))}")
        taught = set(values[rows].tolist())
        if len(taught) == 1:
            raise InvalidInput(f"{name!r} is {next(iter(taught))!r} in every row that trains: train on more rows")
        rare = [label for label, count in counts.items() if count == 1]
        if rare:
            each = " each" * (len(rare) > 1)
            notes.append(f"{name!r} is {listed(rare)} in a single row{each}: little can be learnt from it")
        if column.kind == "number":
            return Choice(cls(name, tuple(sorted(counts, key=float)), "integer"), notes)
        return Choice(cls(name, tuple(sorted(counts)), "boolean" if column.kind == "boolean" else "text"), notes)

    @classmethod
    def strata(cls, columns: Mapping[str, Column]) -> np.ndarray:
        return texts_of(cls.only(columns)[1])

    @property
    def columns(self) -> dict[str, tuple[str, ...] | None]:
        return {self.name: self.classes}

    def strays(self, values: Frame) -> list[tuple[int, str]]:
        known = {*self.classes, None}
        unknown = [(row, label) for row, label in enumerate(values[self.name].tolist()) if label not in known]
        classes = listed(self.classes)
        return [(row, f"{self.name!r} is {label!r}, none of the classes {classes}") for row, label in unknown]

    def truth(self, values: np.ndarray) -> np.ndarray:
        number = {name: k for k, name in enumerate(self.classes)}
        unknown = [name for name in dict.fromkeys(values.tolist()) if name not in number]
        if unknown:
            raise InvalidInput(f"{self.name} holds {unknown[0]!r}, which is none of the classes {list(self.classes)}")
        return np.asarray([number[name] for name in values.tolist()], np.int32)

    encode = truth

    @property
    def most_entropy(self) -> float:
        """The entropy of complete ignorance, in nats."""
        return math.log(len(self.classes))

    def indicators(self, encoded: np.ndarray) -> np.ndarray:
        return np.eye(len(self.classes))[encoded]

    def by_trees(self, trees: Any, encoded: np.ndarray) -> ClassPrediction:
        return self.own_unit(ClassPrediction.from_probs(trees.probabilities(encoded, len(self.classes))))

    def _likelihood(self, kind: str) -> Any:
        from darkbayes.outcomes.heads.classes import Softmax

        return Softmax(len(self.classes))

    def _head(self, kind: str) -> Any:
        from darkbayes.outcomes.heads.classes import SoftmaxHead

        return SoftmaxHead(len(self.classes), decompose=True)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Probabilities and entropies; the logarithms of the probabilities are newer, and not in every file."""
        return ("probs", "expected_entropy")

    def prediction(self, arrays: Mapping[str, np.ndarray]) -> ClassPrediction:
        expected = arrays.get("expected_entropy")
        expected = None if expected is None else np.asarray(expected, np.float64)
        if "log_probs" in arrays:
            return ClassPrediction(np.asarray(arrays["log_probs"], np.float64), expected, guarantee=self.guarantee)
        return dataclasses.replace(ClassPrediction.from_probs(arrays["probs"], expected), guarantee=self.guarantee)

    def write_outputs(self, graph: Any, parts: Mapping[str, Any]) -> None:
        number, last, logs = len(self.classes), np.asarray([1]), graph.add("LogSoftmax", parts["logits"], axis=1)
        probs = np.exp(logs)
        entropy = -graph.add("ReduceSum", probs * logs, last, keepdims=0)
        graph.output("probs", probs, [number])
        graph.output("log_probs", logs, [number])
        graph.output("entropy", entropy)
        if "share" in parts:
            expected = entropy * graph.add("Squeeze", graph.add("Sigmoid", parts["share"]), last)
            graph.output("expected_entropy", expected)
            graph.output("mutual_information", entropy - expected)
        if self.guarantee is not None:
            least = np.minimum(graph.add("ReduceMax", logs, last, keepdims=1), -self.guarantee.bounds[0])
            graph.output("set", graph.add("GreaterOrEqual", logs, least).of_type(bool), [number])

    @property
    def labels(self) -> np.ndarray:
        """The classes as they are in the user's own files."""
        if self.kind == "integer":
            numbers = [int(name) for name in self.classes]
            return np.asarray(numbers, np.uint64 if max(numbers) > np.iinfo(np.int64).max else np.int64)
        if self.kind == "boolean":
            return np.asarray([name == TRUTH[1] for name in self.classes], bool)
        return objects(self.classes)

    def table(self, prediction: ClassPrediction, level: float) -> dict[str, np.ndarray]:
        answer = self.answer(prediction, level)
        headline = {name: answer.pop(name) for name in ("prediction", "probability")}
        each = {f"probability_{name}": probs for name, probs in zip(self.classes, answer.pop("probs").T, strict=True)}
        if answer.pop("set", None) is not None:
            names = [BETWEEN.join(np.asarray(self.classes, object)[row]) for row in prediction.sets(self.level)]
            headline[f"set_{100 * self.level:g}"] = objects(names)
        return headline | each | answer

    def answer(self, prediction: ClassPrediction, level: float) -> dict[str, np.ndarray]:
        best = prediction.log_probs.argmax(axis=1) if len(prediction) else np.empty(0, np.int64)
        noise, doubt = prediction.parts
        answer = {
            "prediction": self.labels[best],
            "probability": prediction.probs.max(axis=1, initial=0.0),
            "entropy": prediction.entropy,
            "expected_entropy": noise,
            "mutual_information": doubt,
            "probs": prediction.probs,
        }
        if self.guarantee is not None:
            answer["set"] = objects(self.labels[row].tolist() for row in prediction.sets(self.level))
        return answer

    def change(self, prediction: Any) -> str:
        sizes = dataclasses.replace(prediction, guarantee=self.guarantee).width(self.level)
        return f"they name {sizes.mean():.2f} classes on average, and {(sizes == 1).mean():.0%} of them a single one"

    @property
    def arithmetic(self) -> str:
        return (
            f"Both are entropies in nats, of at most {self.most_entropy:.3g} when all {len(self.classes)} classes are "
            "equally probable; the bar and the percentages are shares of that."
        )

    def words(self) -> Any:
        from darkbayes.outcomes.words.classes import ClassWords

        return ClassWords(self)

    def described(self) -> dict[str, Any]:
        return super().described() | {"classes": self.labels.tolist(), "most_entropy": self.most_entropy}

    def answer_form(self) -> dict[str, Any]:
        number: dict[str, Any] = {"type": ["number", "null"]}
        kind = {"text": "string", "integer": "integer", "boolean": "boolean"}[self.kind]
        doubt = "The epistemic part: doubt of the model, which more data of this kind would lower."
        about = {"description": f"The classes that may be: {self.promise}."}
        return {
            "prediction": {"type": kind, "description": "The most probable class."},
            "probability": number | {"description": "Of that class."},
            "entropy": number | {"description": "Of the probabilities, in nats: the whole uncertainty."},
            "expected_entropy": number | {"description": "The aleatoric part: noise in the target."},
            "mutual_information": number | {"description": doubt},
            "probs": {"type": "array", "items": number, "description": "In the order of the classes of /schema."},
        } | ({} if self.guarantee is None else {"set": {"type": "array", "items": {"type": kind}} | about})
