"""What a page says of classes: how often answers are right, and whether probabilities are honest."""

import math
from typing import Any, ClassVar

import numpy as np

from darkbayes.estimates import TWO_SIDED, Estimate
from darkbayes.metrics import auroc, average_precision, binned, confidence_bins, ranking
from darkbayes.outcomes.pictures import MOST_LINES, Confusion, Curves, Picture, sample
from darkbayes.outcomes.words.base import Example, HeldOut, Promise, Tile, Words
from darkbayes.outcomes.words.text import listing, percent, short

SURE = 0.9  # The probability from which a classifier is called sure of an answer.
MOST_CONFUSED = 12  # Classes up to which there is a confusion matrix.
RELIABILITY_BINS = 10
GRID = np.linspace(0.0, 1.0, 201)  # Of false alarms, or recall, at which rankings are compared.
DRAWS = 200  # Tests that are simulated to see what calibration error chance alone brings.
VERDICTS = {
    "kept": "so these can be trusted on average.",
    "timid": "so these are too cautious: it could be surer.",
    "bold": "so these are overconfident: treat them with care.",
}


class ClassWords(Words):
    """The words of a `ClassTarget`."""

    in_percent: ClassVar[bool] = True
    whole: ClassVar[str] = "of all its uncertainty"
    stratified: ClassVar[str] = ", from each class alike"
    unit = "uncertainty (%)"
    risk_name = "wrong answers (%)"
    sizes_note: ClassVar[str] = (
        "Noise (aleatoric) and doubt (epistemic) are in per cent of complete ignorance, where all classes are equally "
        "likely."
    )

    def __init__(self, target: Any):
        self.name, self.classes = target.name, target.classes
        self.about = f"{self.name}, one of {len(self.classes)} classes"

    def task(self, cases: str) -> str:
        number = len(self.classes)
        things = f"{number} classes of {self.name}" if cases == "rows" else f"{cases} of {number} classes"
        return f"to tell {things} apart ({listing(self.classes)})"

    def tiles(self, held: HeldOut) -> list[Tile]:
        wrong, claimed = self._mistakes(held) / held.rows, held.student.probs.max(axis=1).mean()
        answers = Tile(percent(wrong), f"of the {held.cases} tested get a wrong answer")
        return [answers, Tile(percent(claimed), f"sure on average, and right on {percent(1 - wrong)}")]

    def how_good(self, held: HeldOut) -> str:
        mistakes, counts = self._mistakes(held), np.bincount(held.y, minlength=len(self.classes))
        common, blind = self.classes[int(counts.argmax())], 1 - counts.max() / held.rows
        return (
            f"It was wrong on {mistakes:,} of {held.rows:,} {held.cases} ({percent(mistakes / held.rows)}). Always "
            f"answering {common}, the most common class, would be wrong on {percent(blind)}"
            f"{': the model is of no use yet' * self.useless(held)}."
        )

    def useless(self, held: HeldOut) -> bool:
        return bool(held.rows - self._mistakes(held) <= np.bincount(held.y).max())

    def _mistakes(self, held: HeldOut) -> int:
        """How many answers of the student are wrong."""
        return round(held.scores["student"]["error"].value / 100 * held.rows)

    def broken(self, held: HeldOut) -> str:
        promise = confidence_promise(held)
        if promise.verdict != "bold":
            return ""
        claimed, right = percent(float(held.student.probs.max(axis=1).mean())), percent(promise.measured.value)
        return f"It is overconfident: it claimed to be right on {claimed}, and was on {right}."

    def trusted(self, held: HeldOut) -> str:
        confidence, right = held.student.probs.max(axis=1), held.student.right(held.y)
        promise, sure = confidence_promise(held), confidence >= SURE
        return (
            f"It claimed to be right on {percent(confidence.mean())} of the {held.cases}, and was right on "
            f"{percent(promise.measured.value)}. Honest probabilities would give {percent(max(promise.low, 0))} to "
            f"{percent(min(promise.high, 1))} in a test of this size, {VERDICTS[promise.verdict]} Of the "
            f"{int(sure.sum()):,} {held.cases} that it was at least {percent(SURE)} sure of, it was right on "
            f"{int((sure & right).sum()):,}."
        )

    def noise_share(self, prediction: Any) -> float:
        noise, doubt = prediction.parts
        return float(noise.sum() / max((noise + doubt).sum(), 1e-300))

    def agreement(self, held: HeldOut) -> str:
        student, teacher = held.student, held.teacher
        same = (student.log_probs.argmax(axis=1) == teacher.log_probs.argmax(axis=1)).mean()
        apart = float(np.median(np.abs(student.probs - teacher.probs).sum(axis=1) / 2))
        return (
            f"They give the same answer to {percent(same)} of the {held.rows:,} {held.cases}; typically their "
            f"probabilities differ by {percent(apart)}."
        )

    def score_note(self, held: HeldOut) -> str:
        chance = f"a calibration error of {short(calibration_error_by_chance(held.student.probs.max(axis=1)))}"
        return f"Probabilities that are exactly right would show {chance} in a test of this size."

    def sizes(self, part: np.ndarray) -> np.ndarray:
        return 100 * np.maximum(part, 0) / math.log(len(self.classes))

    def losses(self, prediction: Any, y: np.ndarray) -> np.ndarray:
        return (~prediction.right(y)).astype(np.float64)

    def risk(self, mean_loss: np.ndarray) -> np.ndarray:
        return 100 * mean_loss

    def example(self, held: HeldOut, row: int) -> Example:
        probs, truth = held.student.probs[row], int(held.y[row])
        order = np.argsort(-probs, kind="stable")[:2].tolist()
        answer = ", ".join(f"{self.classes[k]} {percent(probs[k])}" for k in order)
        noise, doubt = (percent(float(self.sizes(part[row])) / 100) for part in held.student.parts)
        return Example(answer, self.classes[truth], noise, doubt, order[0] == truth)

    def trust(self, held: HeldOut) -> list[Picture]:
        confusion = [self._confusion(held)] if len(self.classes) <= MOST_CONFUSED else []
        return [self._reliability(held), *confusion, *self._rankings(held)]

    def _reliability(self, held: HeldOut) -> Curves:
        """The share of right answers in bins of the probability of the answer, where there are any."""
        curves, whiskers = {}, {}
        for method, judged in held.methods.items():
            confidence, right = judged.prediction.probs.max(axis=1), judged.prediction.right(held.y)
            _, claimed, accuracy, low, high = binned(confidence, right, RELIABILITY_BINS)
            curves[method], whiskers[method] = (100 * claimed, 100 * accuracy), (100 * low, 100 * high)
        return Curves(
            title="Is it right as often as it is sure?",
            caption="Below the dashed line is overconfident, above it too cautious; where a whisker reaches the line, "
            "it may be chance.",
            alt="Reliability diagram: how often student, teacher and plug-in network are right where they are so sure.",
            x="how sure of its answer (%)",
            y="how often right (%)",
            curves=curves,
            whiskers={"student": whiskers["student"]},
            begin=80 / len(self.classes) if len(self.classes) < 4 else 0.0,
            promise=True,
        )

    def _rankings(self, held: HeldOut) -> list[Curves]:
        """How well probabilities put rows in order: ROC and precision against recall, of two classes or the mean."""
        present = [k for k in range(len(self.classes)) if 0 < np.sum(held.y == k) < held.rows]
        chosen = present[1:] if len(self.classes) == 2 else present
        if not chosen:
            return []
        of_whom = f"of {self.classes[1]}" if len(self.classes) == 2 else "over classes, each against the others"
        roc, recall, said = {}, {}, ("", "")
        for method, judged in held.methods.items():
            each = [ranked(judged.prediction.probs[:, k], held.y == k) for k in chosen]
            caught, precision, areas, averages = zip(*each, strict=True)
            roc[method], recall[method] = ((100 * GRID, 100 * np.mean(part, axis=0)) for part in (caught, precision))
            if method == "student":
                said = short(float(np.mean(areas))), short(float(np.mean(averages)))
        area, average = said
        return [
            Curves(
                title="Does it rank well? (ROC)",
                caption=f"Area under the student's curve {of_whom}: {area}; 0.5 is guessing, the dashed line.",
                alt=f"ROC curves of student, teacher and plug-in network; the student's area is {area}.",
                x="false alarms (%)",
                y="found (%)",
                curves=roc,
                promise=True,
            ),
            Curves(
                title="Precision and recall",
                caption=f"The student's average precision {of_whom}: {average}.",
                alt=f"Precision against recall of student, teacher and plug-in network; the student's: {average}.",
                x="recall: found (%)",
                y="precision: right when it says so (%)",
                curves=recall,
            ),
        ]

    def _confusion(self, held: HeldOut) -> Confusion:
        number, answers = len(self.classes), held.student.log_probs.argmax(axis=1)
        counts = np.bincount(held.y * number + answers, minlength=number**2).reshape(number, number)
        each = zip(self.classes, counts.sum(axis=1) - np.diag(counts), counts.sum(axis=1), strict=True)
        return Confusion(
            title="Which class is mistaken for which?",
            caption="Right answers are on the diagonal.",
            alt="Confusion matrix of the student: "
            + "; ".join(f"{name}, {wrong} of {rows} wrong" for name, wrong, rows in each),
            x=f"answer of the student ({held.cases})",
            y="true class",
            counts=counts,
            names=self.classes,
        )

    def answers(self, held: HeldOut) -> Picture:
        rows, label = sample(held.rows), "probability of the true class (%)"
        teacher, student = (100 * np.exp(which.log_prob(held.y))[rows] for which in (held.teacher, held.student))
        return self.scattered("The same probabilities?", label, {"": (teacher, student)}, (0.0, 100.0), False)

    def lines(self, aim: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
        if len(self.classes) == 2:
            return {f"probability of {self.classes[1]}": 100 * aim[:, 1]}, "probability (%)"
        changing = np.argsort(-np.ptp(aim, axis=0), kind="stable")[:MOST_LINES]
        return {self.classes[k]: 100 * aim[:, k] for k in sorted(changing.tolist())}, "probability (%)"


def ranked(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """How well scores tell rows apart: at `GRID`, what share is found for a share of false alarms, and the precision.

    Besides, the area under the first, and the average precision.

    >>> roc, precision, area, average = ranked(np.array([0.9, 0.8, 0.7, 0.1]), np.array([True, False, True, False]))
    >>> round(area, 2), round(average, 3)
    (0.75, 0.833)
    """
    both = scores[~positive], scores[positive]
    alarms, hits = ranking(*both)
    recall, precision = hits / hits[-1], hits[1:] / (alarms + hits)[1:]
    at_recall = precision[np.minimum(np.searchsorted(recall[1:], GRID), len(precision) - 1)]
    return np.interp(GRID, alarms / alarms[-1], recall), at_recall, auroc(*both), average_precision(*both)


def confidence_promise(held: HeldOut) -> Promise:
    """Is a classifier as often right as it claims?"""
    confidence, error = held.student.probs.max(axis=1), held.scores["student"]["error"]
    right = Estimate(1 - error.value / 100, error.error and error.error / 100)
    # Were every confidence just right, this would be the scatter of the share of right answers.
    scatter = TWO_SIDED * math.sqrt(float(np.sum(confidence * (1 - confidence)))) / held.rows
    claimed = float(confidence.mean())
    return Promise(right, claimed - scatter, claimed + scatter)


def calibration_error_by_chance(confidence: np.ndarray) -> float:
    """What the calibration error would be on average if every confidence were just right."""
    random, bins = np.random.default_rng(0), confidence_bins(confidence)
    draws = (random.random(len(confidence)) < confidence for _ in range(DRAWS))
    return float(np.mean([np.abs(np.bincount(bins, right - confidence)).sum() for right in draws]) / len(confidence))
