"""What a page says of classes: how often answers are right, and whether probabilities are honest."""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from darkbayes.metrics import BINS, TWO_SIDED, estimate, wilson
from darkbayes.outcomes import pictures
from darkbayes.outcomes.pictures import METHODS, Picture, sample
from darkbayes.outcomes.words.base import Example, HeldOut, Losses, Promise, Tile, Words
from darkbayes.outcomes.words.text import listing, percent, short

SURE = 0.9
"""The probability from which a classifier is called sure of an answer."""
LEAST_CLASS = 5
"""Rows that a class must have for anything to be said of it."""
MOST_CONFUSED = 12
"""Classes up to which there is a confusion matrix."""
RELIABILITY_BINS = 10
DRAWS = 200
"""Tests that are simulated to see what calibration error chance alone brings."""


class ClassSpot(NamedTuple):
    """A class, how many rows are of it, how many are mistaken for another, and for which most."""

    name: str
    rows: int
    wrong: int
    mistaken_for: str | None
    uncertainty: float


class ClassWords(Words):
    """The words of a `ClassTarget`."""

    ignorance: ClassVar[str] = " of complete ignorance"
    typical: ClassVar[Any] = staticmethod(np.mean)
    everywhere: ClassVar[str] = "in all rows"
    whole: ClassVar[str] = "of all its uncertainty"
    stratified: ClassVar[str] = ", from each class alike"
    unit = "uncertainty (%)"
    sizes_note = (
        "Noise (aleatoric) and doubt (epistemic) are in per cent of complete ignorance, where all classes are equally "
        "likely."
    )
    trust_note: ClassVar[str] = (
        "Here the {cases} are sorted by how sure the answer is. Points below the dashed line are overconfident, points "
        "above it too cautious; a whisker that reaches the line may be chance. The bars count the {cases}."
    )

    def __init__(self, target: Any):
        """Of a target with a `name` and `classes`."""
        self.name, self.classes = target.name, target.classes
        self.most_entropy = math.log(len(self.classes))

    # Sentences

    def task(self, cases: str) -> str:
        """Which classes are told apart."""
        things = f"{len(self.classes)} classes of {self.name}"
        if cases != "rows":
            things = f"{cases} of {len(self.classes)} classes"
        return f"to tell {things} apart ({listing(self.classes)})"

    def tiles(self, held: HeldOut) -> list[Tile]:
        """Wrong answers, and certainty."""
        wrong = 1 - held.student.right(held.y).mean()
        claimed = held.student.probs.max(axis=1).mean()
        return [
            Tile(percent(wrong), f"of the {held.cases} tested get a wrong answer"),
            Tile(percent(claimed), f"sure on average, and right on {percent(1 - wrong)}"),
        ]

    def _blind(self, held: HeldOut) -> tuple[str, float]:
        """The most common class, and how often it is wrong always to answer it."""
        counts = np.bincount(held.y, minlength=len(self.classes))
        return self.classes[int(counts.argmax())], float(1 - counts.max() / held.rows)

    def how_good(self, held: HeldOut) -> str:
        """Wrong answers, against those of the most common class; the class that does worst."""
        wrong, (common, blind) = ~held.student.right(held.y), self._blind(held)
        text = f"It was wrong on {int(wrong.sum()):,} of {held.rows:,} {held.cases} ({percent(wrong.mean())}). "
        text += f"Always answering {common}, the most common class, would be wrong on {percent(blind)}"
        text += ": the model is of no use yet." if wrong.mean() >= blind else "."
        spots = self.by_class(held)
        worst = max(spots, key=lambda spot: spot.wrong / spot.rows, default=None)
        if worst is not None and worst.wrong and len(spots) > 1:
            text += f" It does worst on {worst.name}: {worst.wrong} of {worst.rows} are mistaken for another class"
            text += f", most often {worst.mistaken_for}." if len(self.classes) > 2 else "."
        return text

    def trusted(self, held: HeldOut) -> str:
        """Whether it is as often right as it claims."""
        confidence, right = held.student.probs.max(axis=1), held.student.right(held.y)
        promise = confidence_promise(held.student, held.y)
        text = ""
        if right.any() and not right.all():
            text = (
                f"When it is right, it gives its answer a probability of {percent(confidence[right].mean())} on "
                f"average; when it is wrong, {percent(confidence[~right].mean())}. "
            )
        sure = confidence >= SURE
        text += (
            f"It was at least {percent(SURE)} sure of {int(sure.sum()):,} {held.cases}, and right on "
            f"{int((sure & right).sum()):,} of them. "
            if sure.any()
            else f"It was never {percent(SURE)} sure. "
        )
        text += (
            f"Overall it claimed to be right on {percent(confidence.mean())} and was right on "
            f"{percent(promise.measured.value)}. Honest probabilities would give {percent(max(promise.low, 0))} to "
            f"{percent(min(promise.high, 1))} in a test of this size, "
        )
        useless = 1 - right.mean() >= self._blind(held)[1]
        kept = "so it is honest about knowing little." if useless else "so these can be trusted on average."
        bold = "so these are overconfident: treat them with care."
        return (
            text
            + {"kept": kept, "timid": "so these are too cautious: it could be surer.", "bold": bold}[promise.verdict]
        )

    def noise_share(self, prediction: Any) -> float:
        """Of all rows together."""
        noise, doubt = prediction.parts
        return float(noise.sum() / max((noise + doubt).sum(), 1e-300))

    def spot_errors(self, there: float, usual: float) -> str:
        """Shares of wrong answers."""
        return f"it was wrong on {percent(there)} there, and on {percent(usual)} overall"

    def by_class(self, held: HeldOut) -> list[ClassSpot]:
        """The classes with rows enough, those first whose rows leave the student least sure."""
        answers, entropy, spots = held.student.log_probs.argmax(axis=1), held.student.entropy, []
        for number, name in enumerate(self.classes):
            rows = held.y == number
            if rows.sum() >= LEAST_CLASS:
                others = np.bincount(answers[rows & (answers != number)], minlength=len(self.classes))
                other = self.classes[int(others.argmax())] if others.any() else None
                spots.append(ClassSpot(name, int(rows.sum()), int(others.sum()), other, float(entropy[rows].mean())))
        return sorted(spots, key=lambda spot: -spot.uncertainty)

    def hardest(self, held: HeldOut) -> str:
        """The class that it is least sure of, where there are more than two."""
        spots = self.by_class(held)
        return f"Of all classes it is least sure of {spots[0].name}." if spots and len(self.classes) > 2 else ""

    def agreement(self, held: HeldOut) -> str:
        """How many answers are the same, and how far probabilities are apart."""
        student, teacher = held.student, held.teacher
        same = (student.log_probs.argmax(axis=1) == teacher.log_probs.argmax(axis=1)).mean()
        apart = float(np.median(np.abs(student.probs - teacher.probs).sum(axis=1) / 2))
        return (
            f"They give the same answer to {percent(same)} of the {held.rows:,} {held.cases}; typically their "
            f"probabilities differ by {percent(apart)}"
        )

    def facts(self, form: str) -> dict[str, str]:
        """How many classes there are."""
        return {"Target": f"{self.name}, one of {len(self.classes)} classes"}

    def score_note(self, held: HeldOut) -> str:
        """What calibration error is chance."""
        chance = calibration_error_by_chance(held.student.probs.max(axis=1))
        return (
            "In a test of this size, even a student whose probabilities were all exactly right would show a "
            f"calibration error of {short(chance)}."
        )

    def glossary(self) -> dict[str, str]:
        """The scores of classes."""
        return super().glossary() | {
            "Brier score": "The squared distance of the probabilities from the truth, 0 at best and 2 at worst.",
            "Calibration error": "How far the share of right answers is from the certainty with which they were "
            "given, on average.",
        }

    # Sizes and errors

    def sizes(self, part: np.ndarray) -> np.ndarray:
        """Entropies in per cent of complete ignorance."""
        return 100 * np.maximum(part, 0) / self.most_entropy

    def size(self, value: float) -> str:
        """Per cent."""
        return percent(value / 100)

    def losses(self, prediction: Any, y: np.ndarray) -> list[Losses]:
        """1 where the answer is wrong."""
        wrong = (~prediction.right(y)).astype(np.float64)
        unsure = self.sizes(prediction.entropy)
        return [Losses(self.name, "share of wrong answers", "wrong answers (%)", wrong, unsure)]

    def risk(self, mean_squares: np.ndarray) -> np.ndarray:
        """Per cent wrong."""
        return 100 * mean_squares

    def risk_size(self, value: float) -> str:
        """Per cent."""
        return f"{value:.0f}%"

    def example(self, prediction: Any, y: np.ndarray, row: int) -> Example:
        """The two most probable classes."""
        probs, truth = prediction.probs[row], int(y[row])
        order = np.argsort(-probs, kind="stable")[:2].tolist()
        answer = ", ".join(f"{self.classes[k]} {percent(probs[k])}" for k in order)
        noise, doubt = (self.size(float(self.sizes(part[row]))) for part in prediction.parts)
        return Example(answer, self.classes[truth], noise, doubt, order[0] == truth)

    # Pictures

    def trust(self, held: HeldOut) -> list[Picture]:
        """Reliability of each method, and which class is mistaken for which."""
        shown: list[Picture] = [self._reliability(held, method) for method in METHODS]
        return [*shown, self._confusion(held)] if len(self.classes) <= MOST_CONFUSED else shown

    def _reliability(self, held: HeldOut, method: str) -> pictures.Reliability:
        name, prediction = METHODS[method], held.methods[method].prediction
        confidence, right, bins = prediction.probs.max(axis=1), prediction.right(held.y), RELIABILITY_BINS
        bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
        counts = np.bincount(bin_of, minlength=bins)
        some = counts > 0
        claimed, accuracy = (np.bincount(bin_of, each, bins)[some] / counts[some] for each in (confidence, right))
        promise = confidence_promise(prediction, held.y)
        verdict = {"kept": "as sure as it should be, on average", "timid": "too cautious", "bold": "overconfident"}
        claims = f"{percent(confidence.mean())} sure on average, right on {percent(promise.measured.value)}"
        return pictures.Reliability(
            title=f"{name[0].upper()}{name[1:]}: right as often as it is sure?",
            caption=f"{claims[0].upper()}{claims[1:]}: {verdict[promise.verdict]}.",
            alt=f"Reliability diagram of the {name}, with a histogram of its confidence.",
            method=method,
            counts=counts,
            claimed=claimed,
            accuracy=accuracy,
            whiskers=wilson(accuracy, counts[some]),
            begin=0.8 / len(self.classes) if len(self.classes) < 4 else 0.0,
            cases=held.cases,
        )

    def _confusion(self, held: HeldOut) -> pictures.Confusion:
        number, answers = len(self.classes), held.student.log_probs.argmax(axis=1)
        spots = (f"{spot.name}, {spot.wrong} of {spot.rows} wrong" for spot in self.by_class(held))
        return pictures.Confusion(
            title="Which class is mistaken for which?",
            caption="Right answers are on the diagonal. Look for dark squares off it: classes that are mistaken for "
            "each other.",
            alt="Confusion matrix of the student: " + "; ".join(spots),
            counts=np.bincount(held.y * number + answers, minlength=number**2).reshape(number, number),
            names=self.classes,
            cases=held.cases,
        )

    def answers(self, held: HeldOut) -> list[Picture]:
        """Probabilities of the true class."""
        rows = sample(held.rows)
        teacher, student = (100 * np.exp(which.log_prob(held.y))[rows] for which in (held.teacher, held.student))
        picture = pictures.StudentAgainstTeacher(
            title="The same probabilities?",
            caption=f"A point for each of the {held.cases}{held.sampled}. On the dashed line they are the same.",
            alt="Scatter of the student's probability of the true class against the teacher's.",
            points={"": (teacher, student)},
            label="probability of the true class (%)",
            limits=(0.0, 100.0),
        )
        return [picture]

    def lines(self, aim: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
        """Probabilities: of two classes the second's, of many those that change most."""
        if len(self.classes) == 2:
            return {f"probability of {self.classes[1]}": 100 * aim[:, 1]}, "probability (%)"
        changing = np.argsort(-np.ptp(aim, axis=0), kind="stable")[: pictures.MOST_LINES]
        return {self.classes[k]: 100 * aim[:, k] for k in sorted(changing.tolist())}, "probability (%)"


def confidence_promise(prediction: Any, y: np.ndarray) -> Promise:
    """Is a classifier as often right as it claims?"""
    confidence = prediction.probs.max(axis=1)
    # Were every confidence just right, this would be the scatter of the share of right answers.
    scatter = TWO_SIDED * math.sqrt(float(np.sum(confidence * (1 - confidence)))) / len(y)
    claimed = float(confidence.mean())
    return Promise.judge(estimate(prediction.right(y)), claimed - scatter, claimed + scatter)


def calibration_error_by_chance(confidence: np.ndarray) -> float:
    """What the calibration error would be on average if every confidence were just right."""
    random, bins = np.random.default_rng(0), np.minimum((confidence * BINS).astype(int), BINS - 1)
    draws = (random.random(len(confidence)) < confidence for _ in range(DRAWS))
    return float(np.mean([np.abs(np.bincount(bins, right - confidence)).sum() for right in draws]) / len(confidence))
