"""What a fit's page tells in numbers, from what student, teacher and plug-in network said of the rows held out."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from darkbayes.report.estimates import Estimate, by_chance, estimate, ratio, root_mean
from darkbayes.report.fitted.folder import Fit, Held, Told
from darkbayes.tables import Number, RealTarget

LEVEL = 0.9
"""Of the intervals that are judged."""
GROUPS = 5
"""Parts of equal numbers of rows into which a column of numbers is cut to see where the model is least sure."""
LEAST_GROUP = 10
"""Rows that a part must have for anything to be said of it."""
LEAST_CLASS = 5
"""Likewise a class."""
REMARKABLE = 1.2
"""Times the usual uncertainty from which a part is worth a word."""
BINS = 15
"""Of the calibration error, as in its metric."""
FIRST = 10
"""Rows that a curve over ever more rows begins with."""


def errors(told: Told, y: np.ndarray) -> np.ndarray:
    """How far off each prediction is; for classes, 1 where it is wrong."""
    if told.position.size:
        return told.real.mean - y
    return (told.classes.probs.argmax(axis=1) != y).astype(np.float64)


def squares(told: Told, y: np.ndarray) -> np.ndarray:
    """The squared errors; one that no number holds is infinite."""
    with np.errstate(over="ignore"):
        return errors(told, y) ** 2


def scores(told: Told, y: np.ndarray) -> dict[str, Estimate]:
    """Every score of a method, with its standard error over the rows."""
    found = {"log_likelihood": estimate(told.log_likelihood)}
    if told.position.size:
        return found | {"rmse": root_mean(squares(told, y)), "coverage_90": estimate(covered(told.position, LEVEL))}
    probs, wrong = told.classes.probs, errors(told, y)
    distance = ((probs - np.eye(probs.shape[1])[y]) ** 2).sum(axis=1)
    confidence = probs.max(axis=1)
    return found | {
        "error": estimate(100 * wrong),
        "brier": estimate(distance),
        "ece": Estimate(calibration_error(confidence, 1 - wrong)),
    }


def covered(position: np.ndarray, level: float) -> np.ndarray:
    """1 where the true value lies inside the central interval of a level.

    >>> covered(np.array([0.01, 0.06, 0.5, 0.97]), 0.9)
    array([0., 1., 1., 0.])
    """
    return (np.abs(position - 0.5) <= level / 2).astype(np.float64)


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """The mean gap between confidence and accuracy over bins of equal width."""
    bin_of = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bin_of, right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def calibration_error_by_chance(confidence: np.ndarray, times: int = 200) -> float:
    """What the calibration error would be on average if every confidence were just right."""
    random = np.random.default_rng(0)
    return float(
        np.mean([calibration_error(confidence, random.random(len(confidence)) < confidence) for _ in range(times)])
    )


class Verdict(NamedTuple):
    """Whether a promise is kept: "kept", or "timid" or "bold" where chance does not explain the difference."""

    verdict: str
    measured: Estimate
    low: float
    high: float
    """Between which a kept promise would be measured in 19 of 20 such tests."""


def interval_verdict(position: np.ndarray, level: float = LEVEL) -> Verdict:
    """Do the intervals of a level hold as many true values as they promise?"""
    inside = covered(position, level)
    low, high = (of / len(inside) for of in by_chance(len(inside), level))
    share = estimate(inside)
    return Verdict("bold" if share.value < low else "timid" if share.value > high else "kept", share, low, high)


def confidence_verdict(told: Told, y: np.ndarray) -> Verdict:
    """Is a classifier as often right as it claims?"""
    confidence, right = told.classes.probs.max(axis=1), 1 - errors(told, y)
    claimed, share = float(confidence.mean()), estimate(right)
    # Were every confidence just right, this would be the scatter of the share of right answers.
    scatter = 1.96 * math.sqrt(float(np.sum(confidence * (1 - confidence)))) / len(y)
    low, high = claimed - scatter, claimed + scatter
    return Verdict("bold" if share.value < low else "timid" if share.value > high else "kept", share, low, high)


class Kept(NamedTuple):
    """What a student keeps of what its teacher gains over a plug-in network, in log likelihood per row."""

    gain: Estimate
    """Of the teacher over the plug-in network."""
    own: Estimate
    """Of the student over the plug-in network."""
    share: Estimate

    @property
    def told(self) -> bool:
        """Whether the share says anything: the gain must be there, and be no accident."""
        return self.gain.value > 0 and self.gain.clear and math.isfinite(self.share.value)


def gain_kept(held: Held) -> Kept:
    """Row by row, so that what is hard for all does not count as chance."""
    student, teacher, plug_in = (held.told[name].log_likelihood for name in ("student", "sgld", "sgd"))
    with np.errstate(invalid="ignore"):  # Where both are infinite.
        own, gain = student - plug_in, teacher - plug_in
    return Kept(estimate(gain), estimate(own), ratio(own, gain))


def noise_share(told: Told) -> float:
    """The share of the uncertainty that is noise: of a number in the usual row, of classes in all rows together."""
    noise, doubt = told.parts
    if not told.position.size:
        return float(noise.sum() / max((noise + doubt).sum(), 1e-300))
    with np.errstate(over="ignore", invalid="ignore"):
        shares = noise / (noise + doubt)
    known = shares[np.isfinite(shares)]
    return float(np.median(known)) if len(known) else math.nan


def most_entropy(classes: int) -> float:
    """The entropy of complete ignorance."""
    return math.log(classes)


def risks(told: Told, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The error on the share of rows that a method is surest of, for growing shares: RMSE, or per cent wrong."""
    order = np.argsort(told.doubted, kind="stable")
    losses = squares(told, y)[order] if told.position.size else 100 * errors(told, y)[order]
    count = np.arange(1, len(y) + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        risk = np.cumsum(losses) / count
    risk = np.sqrt(risk) if told.position.size else risk
    begin = min(FIRST, len(y)) - 1
    return count[begin:] / len(y), risk[begin:]


class Spot(NamedTuple):
    """A part of the rows, and how sure the model is there."""

    column: str
    where: str
    rows: int
    uncertainty: float
    usual: float
    error: float
    usual_error: float


def least_sure(fit: Fit) -> Spot | None:
    """Where, along one of the columns, the student is least sure of the rows held out; None where that is nowhere."""
    held = fit.held
    if held is None or fit.table is None:
        return None
    student = held.student
    typical = np.median if student.position.size else np.mean
    missed = np.abs(errors(student, held.y))
    usual, usual_error = float(typical(student.doubted)), float(typical(missed))
    spots = [
        Spot(
            name,
            where,
            int(rows.sum()),
            float(typical(student.doubted[rows])),
            usual,
            float(typical(missed[rows])),
            usual_error,
        )
        for name, values in held.columns.items()
        for where, rows in _parts(fit, name, values)
        if LEAST_GROUP <= rows.sum() <= held.rows / 2
    ]
    worst = max(spots, key=lambda spot: spot.uncertainty, default=None)
    return worst if worst is not None and worst.uncertainty > REMARKABLE * usual else None


def can_be_cut(held: Held) -> bool:
    """Whether there are rows enough to look for parts of which the model is least sure."""
    return bool(held.columns) and held.rows >= GROUPS * LEAST_GROUP


def _parts(fit: Fit, name: str, values: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The parts of a column in words, and the rows of each."""
    assert fit.table is not None
    column = next(of for of in fit.table.columns if of.name == name)
    if not isinstance(column, Number):
        for code in np.unique(values).tolist():
            where = f"is {column.categories[code]}" if code >= 0 else "is missing or unknown"
            yield where, values == code
        return
    missing = np.isnan(values)
    yield "is missing", missing
    if missing.all():
        return
    edges = np.unique(np.quantile(values[~missing], np.linspace(0, 1, GROUPS + 1)))
    for place, (low, high) in enumerate(pairwise(edges.tolist())):
        rows = (values >= low if place == 0 else values > low) & (values <= high)
        if rows.any():
            first, last = _brief(values[rows].min()), _brief(values[rows].max())
            if first == last:
                yield f"is {first}", rows
            elif place == 0:
                yield f"is {last} or less", rows
            elif high == edges[-1]:
                yield f"is {first} or more", rows
            else:
                yield f"is from {first} to {last}", rows


def _brief(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


class Beyond(NamedTuple):
    """How doubt grows along a column beyond the values that were seen; standard deviations, or shares of ignorance."""

    column: str
    value: float
    doubt: float
    usual: float
    """The mean over the values that were seen."""


def beyond(fit: Fit) -> list[Beyond]:
    """What becomes of doubt beyond the seen range of each column of numbers, at the end where it is larger."""
    numbers = {} if fit.table is None else {column.name: column for column in fit.table.numbers}
    found = []
    for of in fit.dependence:
        column = numbers.get(of["column"])
        if column is None:
            continue
        values, doubts = (np.asarray(of[name], np.float64) for name in ("values", "epistemic"))
        doubts = np.sqrt(np.maximum(doubts, 0)) if fit.real else np.maximum(doubts, 0) / most_entropy(len(fit.classes))
        seen = (values >= column.low) & (values <= column.high)
        end = 0 if doubts[0] > doubts[-1] else -1
        if seen.any() and not seen[end]:
            found.append(Beyond(of["column"], float(values[end]), float(doubts[end]), float(doubts[seen].mean())))
    return found


class ClassSpot(NamedTuple):
    """A class, how many rows are of it, how many are taken for another, and for which most."""

    name: str
    rows: int
    wrong: int
    taken_for: str | None
    uncertainty: float


def by_class(fit: Fit) -> list[ClassSpot]:
    """The classes with rows enough, those first whose rows leave the student least sure."""
    held = fit.held
    assert held is not None
    probs, entropy = held.student.classes.probs, held.student.classes.entropy
    answers, found = probs.argmax(axis=1), []
    for number, name in enumerate(fit.classes):
        rows = held.y == number
        if rows.sum() >= LEAST_CLASS:
            others = np.bincount(answers[rows & (answers != number)], minlength=len(fit.classes))
            taken_for = fit.classes[int(others.argmax())] if others.any() else None
            found.append(ClassSpot(name, int(rows.sum()), int(others.sum()), taken_for, float(entropy[rows].mean())))
    return sorted(found, key=lambda spot: -spot.uncertainty)


def middle(told: Told, target: RealTarget) -> np.ndarray:
    """The value that a method deems as likely exceeded as not."""
    location = told.real.location
    return np.exp(np.minimum(location, 700.0)) if target.transform == "log" else location


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Of the orders of two lists: 1 for the same order; NaN where one is constant.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.3]))
    1.0
    """
    ranks = [_ranks(of) for of in (a, b)]
    if any(np.ptp(of) == 0 for of in ranks):
        return math.nan
    return float(np.corrcoef(ranks)[0, 1].round(12))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Places in the order, the mean of their places for equal ones."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
