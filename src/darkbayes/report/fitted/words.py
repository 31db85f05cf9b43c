"""What the numbers of a fit mean, in sentences for a person who is no statistician, whatever is predicted."""

import math

import numpy as np

from darkbayes.metrics import Estimate, KeptGain, estimate, kept_gain
from darkbayes.outcomes.words.base import HeldOut, Tile
from darkbayes.outcomes.words.text import in_percent, listing, percent, short, signed, with_error
from darkbayes.report.fitted.folder import FittedRun
from darkbayes.report.fitted.spots import Beyond, beyond, can_be_cut, least_sure, rank_correlation, risks
from darkbayes.teacher.diagnostics.convergence import RHAT_MET

FEW_HELD_OUT = 100
"""Rows held out below which the scores are said to be rough."""
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
BEHIND = 0.05
"""Nats per row from which a student that is clearly behind its teacher gets a caution."""
MOST_NATS = 50.0
"""Differences beyond it are not turned into a factor."""


def title(run: FittedRun) -> str:
    """What the page is about."""
    return f"What the model makes of {run.target.name if run.columns else 'the images'} in {run.config['source']}"


def lead(run: FittedRun) -> str:
    """What was learned from what."""
    learned = (
        f"The model learned {run.words.task(run.cases)} from {run.facts['trained']:,} {run.cases} of "
        f"{run.config['source']}"
    )
    if run.held is None:
        return (
            f"{learned}. No {run.cases} were held out (--held-out 0), so nothing on this page says how good it is: fit "
            "with a part held out to know."
        )
    return f"{learned}, and was then tested on {run.held.rows:,} {run.cases} that it had never seen."


def gain(held: HeldOut) -> KeptGain:
    """What the student keeps of its teacher's gain over the plug-in network."""
    return kept_gain(*(held.methods[method].log_likelihood for method in ("student", "sgld", "sgd")))


def tiles(run: FittedRun, held: HeldOut) -> list[Tile]:
    """The numbers that say most."""
    own = gain(held).own
    if not math.isfinite(own.value):
        return run.words.tiles(held)
    factor = math.exp(max(min(own.value, MOST_NATS), -MOST_NATS))
    text = "the probability that an ordinary network gives to what really happens"
    figure = f"{factor:.2f} ×" if 0.01 < factor < 10 else f"{short(factor)} ×"
    return [*run.words.tiles(held), Tile(figure, text if own.clear else f"{text} (may be chance)")]


def paragraphs(run: FittedRun) -> list[tuple[str, str]]:
    """What the model knows and does not know: a few words that begin each paragraph, and the rest."""
    held, further = run.held, _beyond(run)
    if held is None:
        return [("What does it not know?", further)] if further else []
    return [
        ("How good are its answers?", run.words.how_good(held)),
        ("Can its certainty be trusted?", run.words.trusted(held)),
        ("What does it not know?", " ".join(filter(None, (_unknown(run, held), *_spots(run, held), further)))),
        ("Was it worth the effort?", _worth(held, gain(held).own)),
    ]


def _unknown(run: FittedRun, held: HeldOut) -> str:
    """How much of the uncertainty is noise, and what follows from it."""
    words, cases = run.words, run.cases
    noise, believed = words.noise_share(held.student), words.noise_share(held.teacher)
    text = (
        f"{percent(noise)} {words.whole} is noise (aleatoric): {cases} that look alike to the model and yet differ in "
        f"{words.name}. More {cases} cannot remove it; {'other columns' if run.columns else 'sharper images'} might. "
        f"The other {percent(1 - noise)} is doubt (epistemic): what the model has not learned yet, and more {cases} "
        "could remove."
    )
    if abs(noise - believed) > APART:
        return (
            f"{text} But its teacher puts the noise at {percent(believed)}: the student does not separate the two well."
        )
    if 1 - noise > MUCH:
        return f"{text} So more {cases} would help most."
    return f"{text} So more {cases} like these would help little." if 1 - noise < LITTLE else text


def _spots(run: FittedRun, held: HeldOut) -> list[str]:
    """Where the model is least sure."""
    words, spots = run.words, least_sure(run, held)
    texts = [
        f"It is least sure of {spot.name} where {spot.column} {spot.where}: {words.size(spot.uncertainty)}"
        f"{words.ignorance} there, {words.size(spot.usual)} {words.everywhere} ({spot.rows} rows; "
        f"{words.spot_errors(spot.error, spot.usual_error)})."
        for spot in spots
    ]
    if not texts and can_be_cut(held):
        texts = ["No values of a single column make it much less sure than others."]
    return [*texts, words.hardest(held)]


def _beyond(run: FittedRun) -> str:
    """What becomes of doubt where nothing was seen."""
    ends: dict[str, list[Beyond]] = {}
    for end in beyond(run):
        ends.setdefault(end.name, []).append(end)
    texts = []
    for name, own in ends.items():
        about = f" about {name}" if len(ends) > 1 else ""
        most = max(own, key=lambda end: end.doubt / max(end.usual, 1e-300))
        if most.doubt > most.usual:
            texts.append(
                f"Beyond the values seen in training its doubt{about} grows most along {most.column}: from "
                f"{run.words.size(most.usual)} to {run.words.size(most.doubt)}{run.words.ignorance} at "
                f"{short(most.value)}."
            )
        if blind := [end.column for end in own if end.doubt <= end.usual]:
            texts.append(
                f"Its doubt{about} does not grow beyond the values seen of {listing(blind)}: do not mistake its "
                "certainty there for knowledge."
            )
    return " ".join(texts)


def _worth(held: HeldOut, own: Estimate) -> str:
    """The student against the plug-in network."""
    if not math.isfinite(own.value):
        return (
            "Student or plug-in network called something impossible that happened, so their log likelihoods cannot be "
            "compared."
        )
    factor = math.exp(min(abs(own.value), MOST_NATS))
    # "1.2 times as much", and "1.01 times as much" where two digits would hide the difference.
    times, each = f"{factor:.2f}" if factor < 2 else short(factor), f"per {held.cases[:-1]}"
    text = "Beside it, one ordinary network of the same size was trained on the same data (the plug-in network). "
    if not own.clear:
        return (
            f"{text}The two give what really happened about the same probability: the difference in log likelihood, "
            f"{signed(own)} {each}, may be chance."
        )
    if own.value > 0:
        return (
            f"{text}The model gave what really happened {times} times as much probability as that one did (log "
            f"likelihood {signed(own)} {each})."
        )
    return (
        f"{text}That one did better: it gave what really happened {times} times as much probability (log likelihood of "
        f"the model minus its own: {signed(own)} {each}). Do not use this model before the cautions on this page are "
        "dealt with."
    )


def kept_words(kept: KeptGain, cases: str) -> str:
    """How much of the Bayesian gain the student keeps, or why that cannot be said."""
    size = f"{signed(kept.gain)} per {cases[:-1]}"
    if not math.isfinite(kept.gain.value) or not math.isfinite(kept.own.value):
        return "A log likelihood is infinite, so the share of the gain that the student keeps cannot be computed."
    if kept.gain.value <= 0:
        return (
            f"Here the teacher has no higher log likelihood than the plug-in network ({size}), so there is no gain of "
            "which the student could keep a share."
        )
    if not kept.gain.clear:
        return (
            f"The teacher's gain over the plug-in network in log likelihood, {size}, may be chance: the share of it "
            "that the student keeps would say nothing."
        )
    share = with_error(in_percent(kept.share), 0)
    more = " More than 100%: the student did even better than its teacher." if kept.share.value > 1 else ""
    less = " Below 0%: the student did worse than the plug-in network." if kept.share.value < 0 else ""
    return (
        f"Averaging over many networks instead of one gains {size} in log likelihood. Of this gain, the student keeps "
        f"{share}%, in one network.{more}{less}"
    )


def cautions(run: FittedRun) -> list[str]:
    """What a reader must know before relying on the model."""
    held, texts = run.held, []
    if held is not None and held.rows < FEW_HELD_OUT:
        texts.append(
            f"Only {held.rows} {run.cases} were held out: all scores are rough, and another split would differ."
        )
    if run.stopped_at is not None:
        planned = run.results["choices"]["student"][0]["steps"]
        texts.append(
            f"The time budget ended the fit after {run.stopped_at:,} of {planned:,} steps: the student had not "
            "finished learning. Give it more (--time-budget)."
        )
    texts += _chains_caution(run)
    if held is not None:
        with np.errstate(invalid="ignore"):
            behind = estimate(held.methods["student"].log_likelihood - held.methods["sgld"].log_likelihood)
        if behind.clear and behind.value < -BEHIND:
            texts.append(
                "The student does not speak for its teacher: it gives what happened clearly less probability, "
                f"{signed(behind)} in log likelihood. More time (--time-budget) may help"
                f"{', or a larger student (--student-hidden)' if run.columns else ''}."
            )
    reasons: dict[str, list[str]] = {}
    for name, reason in run.ignored.items():
        reasons.setdefault(reason, []).append(name)
    texts += [f"Left out: {listing(names)} ({reason})." for reason, names in reasons.items()]
    if run.facts.get("dropped"):
        texts.append(f"{run.facts['dropped']:,} rows have no {run.target.name}, and were left out.")
    return texts


def _chains_caution(run: FittedRun) -> list[str]:
    """What it means that the chains do not agree, or that nobody knows."""
    diagnosed = run.results.get("diagnostics", {}).get("student", {})
    code, chains = diagnosed.get("verdict", {}).get("code", "agree"), diagnosed.get("runs", [])
    if code == "agree" or not chains:
        return []
    first = chains[0]
    rhat = f" (R-hat {first['rhat']:.2f}; up to {RHAT_MET:g} is agreement)" if first.get("rhat") else ""
    effective = short(first.get("effective") or 0.0)
    text = {
        "apart": f"The teacher's {first['chains']} chains did not come to the same predictions{rhat}.",
        "few": f"The teacher's chains agree, but on only {effective} independent predictions.",
        "one_chain": "The teacher is one chain, and nothing shows whether another would say the same.",
        "short": "The teacher's chains were too short to judge.",
    }[code]
    choices = run.results.get("choices", {}).get("student", [])
    if any("seconds allow" in choice.get("reason", "") for choice in choices):
        text += " They had no time for more: give them a larger --time-budget."
    if run.held is not None:
        text += (
            f" The scores here were measured on {run.cases} held out and hold all the same; but its doubt may be too "
            "small or too large."
        )
    return [text]


def passing_on(run: FittedRun, held: HeldOut) -> str:
    """What is gained by passing the least sure rows on to a person."""
    texts, little = [], False
    for losses in run.words.losses(held.student, held.y):
        shares, risk = risks(run.words, losses)
        whole, most, half = (float(risk[int(np.searchsorted(shares, share))]) for share in (1.0, KEEP, 0.5))
        sizes = [run.words.risk_size(value) for value in (whole, most, half)]
        texts.append(f"its {losses.risk} goes from {sizes[0]} to {sizes[1]}, and is {sizes[2]} on the surest half")
        little = little or half >= HELPS * whole > 0
    text = (
        f"Let the model answer the {percent(KEEP)} of the {run.cases} that it is surest of, and pass the others on to "
        f"a person: {'; '.join(texts)}."
    )
    hardly = " That is not much: the model can hardly tell which of its answers are wrong."
    return text + hardly * little


def fidelity(run: FittedRun, held: HeldOut) -> str:
    """How alike student and teacher are."""
    order = rank_correlation(held.student.uncertainty, held.teacher.uncertainty)
    same = "One of them is equally unsure of everything."
    if math.isfinite(order):
        same = (
            f"Their orders of the {run.cases} by uncertainty correlate to {order:.2f} (1: the same order, 0: unrelated)"
        )
        same += ": the student knows what is hard." if order >= ALIKE else "."
    return f"{run.words.agreement(held)}. {same}"
