"""What the numbers of a fit mean, in sentences for a person who is no statistician."""

import math
from typing import NamedTuple

import numpy as np

from darkbayes.report.estimates import Estimate, estimate
from darkbayes.report.fitted.folder import Fit, Held
from darkbayes.report.fitted.numbers import (
    LEVEL,
    Kept,
    Spot,
    beyond,
    by_class,
    can_be_cut,
    confidence_verdict,
    errors,
    gain_kept,
    interval_verdict,
    least_sure,
    middle,
    most_entropy,
    noise_share,
    rank_correlation,
    risks,
)
from darkbayes.report.fitted.written import listed, percent, short, signed, with_error
from darkbayes.tables import RealTarget
from darkbayes.teacher.diagnostics.verdict import RHAT_MET

FEW_HELD_OUT = 100
"""Rows held out below which the scores are said to be rough."""
SURE = 0.9
"""The probability from which a classifier is called sure of an answer."""
MUCH, LITTLE = 0.5, 0.2
"""Shares of doubt from which more rows would help most, and below which they would help little."""
APART = 0.15
"""The difference of two shares of noise from which student and teacher are said to disagree."""
HELPS = 0.9
"""The error among the surest, as a share of that of all, above which being sure is said to mean little."""
KEEP = 0.8
"""The share of rows that the model keeps in the example of passing the others on."""
ALIKE = 0.95
"""Rank correlation of the uncertainties from which student and teacher are said to agree on what is hard."""


class Tile(NamedTuple):
    """One number that says much."""

    figure: str
    words: str


def title(fit: Fit) -> str:
    """What the page is about."""
    if fit.table is None:
        return f"What the model makes of the images in {fit.config['source']}"
    return f"What the model makes of {fit.target.name} in {fit.config['source']}"


def lead(fit: Fit) -> str:
    """What was learned from what."""
    what = f"to predict {fit.target.name}"
    if fit.classes:
        what = f"to tell {len(fit.classes)} classes of {fit.target.name} apart ({listed(list(fit.classes))})"
        if fit.table is None:
            what = f"to tell images of {len(fit.classes)} classes apart ({listed(list(fit.classes))})"
    learned = f"The model learned {what} from {fit.facts['trained']:,} {fit.cases} of {fit.config['source']}"
    if fit.held is None:
        return (
            f"{learned}. No {fit.cases} were held out (--held-out 0), so nothing on this page says how good it is: "
            "fit with a part held out to know."
        )
    return f"{learned}, and was then tested on {fit.held.rows:,} {fit.cases} that it had never seen."


def paragraphs(fit: Fit) -> list[tuple[str, str]]:
    """What the model knows and does not know: a few words that begin each paragraph, and the rest."""
    if fit.held is None:
        return [("What does it not know?", text)] if (text := _beyond(fit)) else []
    how_good = _how_far(fit, fit.held) if fit.real else _how_often(fit, fit.held)
    trusted = _intervals(fit, fit.held) if fit.real else _confidence(fit, fit.held)
    return [
        ("How good are its answers?", how_good),
        ("Can its certainty be trusted?", trusted),
        ("What does it not know?", _unknown(fit, fit.held)),
        ("Was it worth the effort?", _worth(fit, gain_kept(fit.held))),
    ]


def _how_far(fit: Fit, held: Held) -> str:
    target, missed = fit.real, np.abs(errors(held.student, held.y))
    assert target is not None
    half, most = np.quantile(missed, [0.5, 0.9])
    constant = math.exp(target.center) if target.transform == "log" else target.center
    usual = float(np.median(np.abs(held.y - constant)))
    text = (
        f"Half of its predictions of {target.name} were off by less than {short(half)}, nine in ten by less than "
        f"{short(most)}. "
    )
    text += (
        f"Always to answer {short(constant)}, the usual value, would be off by less than {short(usual)} half of the "
        "time"
    )
    if half >= usual:
        return f"{text}: the model is of no use yet."
    return f"{text}, {short(usual / half)} times as far." if half else f"{text}."


def _blind(fit: Fit, held: Held) -> tuple[str, float]:
    """The most common class, and how often it is wrong always to answer it."""
    most = np.bincount(held.y, minlength=len(fit.classes))
    return fit.classes[int(most.argmax())], float(1 - most.max() / held.rows)


def _how_often(fit: Fit, held: Held) -> str:
    wrong = errors(held.student, held.y)
    common, blind = _blind(fit, held)
    text = f"It was wrong on {int(wrong.sum()):,} of {held.rows:,} {fit.cases} ({percent(wrong.mean())}). "
    text += f"Always to answer {common}, the most common class, would be wrong on {percent(blind)}"
    text += ": the model is of no use yet." if wrong.mean() >= blind else "."
    worst = by_class(fit)
    if worst and wrong.any() and len(worst) > 1:
        hardest = max(worst, key=lambda spot: spot.wrong / spot.rows)
        if hardest.wrong:
            text += f" It does worst on {hardest.name}: {hardest.wrong} of {hardest.rows} are taken for another class"
            text += f", most often {hardest.taken_for}." if len(fit.classes) > 2 else "."
    return text


def _intervals(fit: Fit, held: Held) -> str:
    target, student = fit.real, held.student
    assert target is not None
    found = interval_verdict(student.position)
    low, high = student.real.interval(target, LEVEL)
    inside = round(found.measured.value * held.rows)
    text = (
        f"With every prediction comes an interval that should hold the true value 9 times out of 10; half of them are "
        f"narrower than {short(float(np.median(high - low)))}. In the test, they held it in {inside:,} of "
        f"{held.rows:,} "
        f"{fit.cases}: promised 90%, measured {with_error(_in_percent(found.measured), 1)}%. In a test of this size, "
        "intervals that "
        f"keep their promise show {percent(found.low)} to {percent(found.high)}, "
    )
    return (
        text
        + {
            "kept": "so they can be trusted on data like these.",
            "timid": "so these are wider than they need to be: safe, but more cautious than promised.",
            "bold": "so these are too narrow: the model is surer than it should be, and its intervals must be taken "
            "with care.",
        }[found.verdict]
    )


def _in_percent(of: Estimate) -> Estimate:
    return Estimate(100 * of.value, None if of.error is None else 100 * of.error)


def _confidence(fit: Fit, held: Held) -> str:
    probs, wrong = held.student.classes.probs, errors(held.student, held.y) > 0
    confidence, found = probs.max(axis=1), confidence_verdict(held.student, held.y)
    useless = wrong.mean() >= _blind(fit, held)[1]
    text = ""
    if wrong.any() and not wrong.all():
        text = (
            f"When it is right, it gives its answer a probability of {percent(confidence[~wrong].mean())} on average; "
            f"when it is wrong, {percent(confidence[wrong].mean())}. "
        )
    sure = confidence >= SURE
    if sure.any():
        text += (
            f"It was at least {percent(SURE)} sure of {int(sure.sum()):,} {fit.cases}, and right on "
            f"{int((sure & ~wrong).sum()):,} of them. "
        )
    else:
        text += f"It was never {percent(SURE)} sure. "
    text += (
        f"In all it claimed to be right on {percent(confidence.mean())} and was right on "
        f"{percent(found.measured.value)}. Probabilities that are honest would show "
        f"{percent(max(found.low, 0))} to {percent(min(found.high, 1))} in a test of this size, "
    )
    return (
        text
        + {
            "kept": "so it is honest, about knowing little." if useless else "so these can be trusted on average.",
            "timid": "so these are too timid: the model could be surer than it is.",
            "bold": "so these are too bold: take them with care.",
        }[found.verdict]
    )


def _unknown(fit: Fit, held: Held) -> str:
    noise, believed = noise_share(held.student), noise_share(held.told["sgld"])
    whole = "of the variance of a usual prediction" if fit.real else "of all its uncertainty"
    text = (
        f"{percent(noise)} {whole} is noise: {fit.cases} that look alike to the model, and yet differ"
        f" in {fit.target.name}. No number of further {fit.cases} removes it; other "
        f"{'columns' if fit.table else 'or sharper images'} might. The other {percent(1 - noise)} is doubt, what the "
        f"model has not learned yet, and more {fit.cases} could remove it. "
    )
    if abs(noise - believed) > APART:
        text += f"But its teacher puts the noise at {percent(believed)}: the student does not tell the two apart well. "
    elif 1 - noise > MUCH:
        text += f"So more {fit.cases} would help most. "
    elif 1 - noise < LITTLE:
        text += f"So more {fit.cases} like these would help little. "
    spot = least_sure(fit)
    if spot is not None:
        text += _spot(fit, spot)
    elif can_be_cut(held):
        text += "No values of a single column make it much less sure than others. "
    if fit.classes and len(fit.classes) > 2:
        worst = by_class(fit)
        text += f" Of all classes it is least sure of {worst[0].name}. " if worst else ""
    return f"{text} {_beyond(fit)}".replace("  ", " ").strip()


def _beyond(fit: Fit) -> str:
    """What becomes of doubt where nothing was seen."""
    found = beyond(fit)
    if not found:
        return ""
    most = max(found, key=lambda of: of.doubt / max(of.usual, 1e-300))
    here, there = (f"±{short(of)}" if fit.real else percent(of) for of in (most.usual, most.doubt))
    blind = [of.column for of in found if of.doubt <= of.usual]
    text = ""
    if most.doubt > most.usual:
        text = (
            f"Beyond the values seen in training its doubt grows most along {most.column}: from {here} to {there}"
            f"{'' if fit.real else ' of complete ignorance'} at {short(most.value)}. "
        )
    if blind:
        text += (
            f"Its doubt does not grow beyond what was seen of {listed(blind)}: do not take its certainty there for "
            "knowledge."
        )
    return text


def _spot(fit: Fit, spot: Spot) -> str:
    if fit.real:
        sizes = f"±{short(spot.uncertainty)} there, ±{short(spot.usual)} in the usual row"
        truth = (
            f"; half of the predictions there were off by less than {short(spot.error)}, of all by less than "
            f"{short(spot.usual_error)}"
        )
    else:
        most = most_entropy(len(fit.classes))
        sizes = (
            f"{percent(spot.uncertainty / most)} of complete ignorance there, {percent(spot.usual / most)} in all rows"
        )
        truth = f"; it was wrong on {percent(spot.error)} there, on {percent(spot.usual_error)} of all"
    return f"It is least sure where {spot.column} {spot.where}: {sizes} ({spot.rows} rows{truth})."


def _worth(fit: Fit, kept: Kept) -> str:
    """The student against the plug-in network."""
    if not math.isfinite(kept.own.value):
        return (
            "Student or plug-in network called something impossible that happened, so that their log likelihoods "
            "cannot be compared."
        )
    factor = math.exp(min(abs(kept.own.value), 50.0))
    # "1.2 times as much", and "1.01 times as much" where two digits would hide the difference.
    times = f"{factor:.2f}" if factor < 2 else short(factor)
    text = "Beside it, one ordinary network of the same size was trained on the same data (the plug-in network). "
    if not kept.own.clear:
        return (
            f"{text}The two give what really happened about the same probability: the difference in log likelihood, "
            f"{signed(kept.own)} per {fit.cases[:-1]}, may be chance."
        )
    if kept.own.value > 0:
        return (
            f"{text}The model gave what really happened {times} times as much probability as that one did (log "
            f"likelihood {signed(kept.own)} per {fit.cases[:-1]})."
        )
    return (
        f"{text}That one did better: it gave what really happened {times} times as much probability (log likelihood of "
        f"the model less its own: {signed(kept.own)} per {fit.cases[:-1]}). Do not use this model before the cautions "
        "on this page are dealt with."
    )


def kept_words(fit: Fit, kept: Kept) -> str:
    """How much of the Bayesian gain the student keeps, or why that cannot be said."""
    gain = f"{signed(kept.gain)} per {fit.cases[:-1]}"
    if not math.isfinite(kept.gain.value) or not math.isfinite(kept.own.value):
        return "A log likelihood is infinite, so that the share of the gain that the student keeps cannot be told."
    if kept.gain.value <= 0:
        return (
            f"Here the teacher has no higher log likelihood than the plug-in network ({gain}), so that there is no "
            "gain "
            "of which the student could keep a share."
        )
    if not kept.gain.clear:
        return (
            f"The teacher's gain over the plug-in network in log likelihood, {gain}, may be chance: the share of it "
            "that "
            "the student keeps would say nothing."
        )
    share = with_error(_in_percent(kept.share), 0)
    more = " More than 100%: the student did even better than its teacher." if kept.share.value > 1 else ""
    less = " Below 0%: the student did worse than the plug-in network." if kept.share.value < 0 else ""
    return (
        f"Averaging over many networks instead of one gains {gain} in log likelihood. Of this gain, the student keeps "
        f"{share}%, in one network.{more}{less}"
    )


def cautions(fit: Fit) -> list[str]:
    """What a reader must know before leaning on the model."""
    found = []
    if fit.held is not None and fit.held.rows < FEW_HELD_OUT:
        found.append(
            f"Only {fit.held.rows} {fit.cases} were held out: all scores are rough, and would differ for another split."
        )
    if fit.stopped_at is not None:
        planned = fit.results["choices"]["student"][0]["steps"]
        found.append(
            f"The time budget ended the fit after {fit.stopped_at:,} of {planned:,} steps: the student had not "
            "finished "
            "learning. Give it more (--time-budget)."
        )
    found += _chains_caution(fit)
    if fit.held is not None and _unlike_teacher(fit.held):
        found.append(
            "The student does not speak for its teacher: it gives what happened clearly less probability, "
            f"{signed(_behind(fit.held))} in log likelihood. More time (--time-budget) may help"
            f"{', or a larger student (--student-hidden)' if fit.table else ''}."
        )
    if fit.table is not None and fit.table.ignored:
        reasons: dict[str, list[str]] = {}
        for name, reason in fit.table.ignored.items():
            reasons.setdefault(reason, []).append(name)
        found += [f"Left out: {listed(names)} ({reason})." for reason, names in reasons.items()]
    if fit.facts.get("dropped"):
        found.append(f"{fit.facts['dropped']:,} rows have no {fit.target.name}, and were left out.")
    return found


def _chains_caution(fit: Fit) -> list[str]:
    """What it means that the chains do not agree, or that nobody knows."""
    diagnosed = fit.results.get("diagnostics", {}).get("student", {})
    code, runs = diagnosed.get("verdict", {}).get("code", "agree"), diagnosed.get("runs", [])
    if code == "agree" or not runs:
        return []
    run = runs[0]
    rhat = f" (R-hat {run['rhat']:.2f}; up to {RHAT_MET:g} is agreement)" if run.get("rhat") else ""
    text = {
        "apart": f"The teacher's {run['chains']} chains did not come to the same predictions{rhat}.",
        "few": f"The teacher's chains agree, but on {short(run.get('effective') or 0.0)} independent predictions only.",
        "one_chain": "The teacher is one chain, and nothing tells whether another would say the same.",
        "short": "The teacher's chains were too short to judge.",
    }[code]
    if any("seconds allow" in of.get("reason", "") for of in fit.results.get("choices", {}).get("student", [])):
        text += " They had no time for more: give them a larger --time-budget."
    if fit.held is not None:
        text += (
            f" The scores here were measured on {fit.cases} held out and hold all the same; but doubt may be told too "
            "small or too large."
        )
    return [text]


BEHIND = 0.05
"""Nats per row from which a student that is clearly behind its teacher gets a caution."""


def _behind(held: Held) -> Estimate:
    with np.errstate(invalid="ignore"):
        return estimate(held.student.log_likelihood - held.told["sgld"].log_likelihood)


def _unlike_teacher(held: Held) -> bool:
    behind = _behind(held)
    return behind.clear and behind.value < -BEHIND


def tiles(fit: Fit) -> list[Tile]:
    """The numbers that say most."""
    held = fit.held
    if held is None:
        return []
    kept, found = gain_kept(held), []
    if fit.real:
        missed = np.abs(errors(held.student, held.y))
        inside = interval_verdict(held.student.position).measured.value
        found.append(
            Tile(f"± {short(float(np.median(missed)))}", f"half of the predictions of {fit.target.name} are this close")
        )
        found.append(Tile(percent(inside), "of true values lie in the intervals that promise 90%"))
    else:
        wrong = errors(held.student, held.y)
        found.append(Tile(percent(wrong.mean()), f"of the {fit.cases} tested get a wrong answer"))
        claimed = held.student.classes.probs.max(axis=1).mean()
        found.append(Tile(percent(claimed), f"sure on average, and right on {percent(1 - wrong.mean())}"))
    if math.isfinite(kept.own.value):
        factor = math.exp(max(min(kept.own.value, 50.0), -50.0))
        figure = f"{factor:.2f} ×" if 0.01 < factor < 10 else f"{short(factor)} ×"
        found.append(
            Tile(
                figure,
                "the probability that an ordinary network gives to what really happens"
                + ("" if kept.own.clear else " (may be chance)"),
            )
        )
    return found


def passing_on(fit: Fit) -> str:
    """What is won by passing the least sure rows on to a person."""
    assert fit.held is not None
    held, unit = fit.held, "RMSE" if fit.real else "share of wrong answers"
    shares, risk = risks(held.student, held.y)
    most, half = (float(risk[int(np.searchsorted(shares, share))]) for share in (KEEP, 0.5))
    whole = float(risk[-1])

    def written(value: float) -> str:
        return short(value) if fit.real else f"{value:.0f}%"

    text = (
        f"Let the model answer the {percent(KEEP)} of the {fit.cases} that it is surest of, and pass the others on "
        "to a "
        f"person: its {unit} goes from {written(whole)} to {written(most)}. On the surest half it is {written(half)}. "
    )
    if not half < HELPS * whole:
        text += "That is not much: the model can hardly tell which of its answers are wrong."
    return text


def fidelity(fit: Fit) -> str:
    """How alike student and teacher are."""
    assert fit.held is not None
    held, (student, teacher) = fit.held, (fit.held.told[name] for name in ("student", "sgld"))
    order = rank_correlation(student.doubted, teacher.doubted)
    same = (
        f"The order in which they doubt the {fit.cases} agrees to {order:.2f} (1: the same order, 0: no relation)"
        if math.isfinite(order)
        else "One of them doubts everything alike"
    )
    verdict = ": the student knows what is hard." if order >= ALIKE else "."
    if isinstance(fit.target, RealTarget):
        apart = np.abs(middle(student, fit.target) - middle(teacher, fit.target))
        with np.errstate(invalid="ignore", over="ignore"):
            share = np.median(np.abs(student.real.location - teacher.real.location) / teacher.real.spread)
        return (
            f"Half of the student's predictions are within {short(float(np.median(apart)))} of the teacher's, "
            f"{percent(float(share))} of the uncertainty that the teacher itself admits. {same}{verdict}"
        )
    agree = (student.classes.probs.argmax(axis=1) == teacher.classes.probs.argmax(axis=1)).mean()
    apart = np.abs(student.classes.probs - teacher.classes.probs).sum(axis=1) / 2
    return (
        f"They give the same answer to {percent(agree)} of the {held.rows:,} {fit.cases}; their probabilities differ "
        "by "
        f"{percent(float(np.median(apart)))} in the usual one. {same}{verdict}"
    )
