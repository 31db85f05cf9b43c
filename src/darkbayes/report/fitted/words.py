"""What the numbers of a fit mean, in sentences for a person who is not a statistician, whatever is predicted."""

import math
from typing import Any

import numpy as np

from darkbayes.estimates import Estimate, estimate
from darkbayes.outcomes.words.base import HeldOut, Tile
from darkbayes.outcomes.words.text import listing, percent, short, signed
from darkbayes.report.fitted.folder import FittedRun

SHOWN = 4  # Cautions that a page shows without being asked; fits rarely have more.
FEW_TRAINED = 100  # Rows to learn from below which another sample would give another model.
FEW_HELD_OUT = 100  # Rows held out below which the scores are said to be rough.
MUCH, LITTLE = 0.5, 0.2  # Shares of doubt from which more rows would help most, and below which they would help little.
APART = 0.15  # The difference of two shares of noise from which student and teacher are said to disagree.
BEHIND = 0.05  # Nats per row from which a student that is clearly behind its teacher gets a caution.
MOST_NATS = 50.0  # Differences beyond it are not turned into a factor.


def tiles(run: FittedRun, held: HeldOut) -> list[Tile]:
    """The numbers that say most; of each of several outputs, the first."""
    each, own = [words.tiles(output) for words, output in run.words.outputs(held)], run.gain
    shown = each[0] if len(each) == 1 else [tiles[0] for tiles in each]
    if not math.isfinite(own.value):
        return shown
    factor = math.exp(max(min(own.value, MOST_NATS), -MOST_NATS))
    text = "the probability that an ordinary network gives to what really happens"
    figure = f"{factor:.2f} ×" if 0.01 < factor < 10 else f"{short(factor)} ×"
    return [*shown, Tile(figure, text if own.clear else f"{text} (may be chance)")]


def noise_share(run: FittedRun, held: HeldOut, method: str = "student") -> float:
    """The share of a method's uncertainty that is noise, on average over the outputs."""
    outputs = run.words.outputs(held)
    return float(np.mean([words.noise_share(output.methods[method].prediction) for words, output in outputs]))


def unknown(run: FittedRun, held: HeldOut) -> str:
    """How much of the uncertainty is noise, and what follows from it."""
    cases, noise, believed = run.cases, noise_share(run, held), noise_share(run, held, "sgld")
    text = (
        f"{percent(noise)} {run.words.whole} is noise (aleatoric): {cases} that look alike to the model and yet differ "
        f"in {run.words.name}. More {cases} cannot remove it; {'other columns' if run.columns else 'sharper images'} "
        f"might. The other {percent(1 - noise)} is doubt (epistemic): what the model has not learned yet, and more "
        f"{cases} could remove."
    )
    if abs(noise - believed) > APART:
        return f"{text} But its teacher puts the noise at {percent(believed)}: the student does not separate them well."
    if 1 - noise > MUCH:
        return f"{text} So more {cases} would help most."
    return f"{text} So more {cases} like these would help little." if 1 - noise < LITTLE else text


def guarantee_line(facts: dict[str, Any]) -> str:
    """What is guaranteed, what that changed, and how it did in a test; nothing where there is no guarantee."""
    given = facts.get("guarantee", {})
    parts = [given[part] for part in ("promise", "luck", "change") if part in given]
    return "; ".join([*parts, "scores are those without it"] if parts else parts)


def verdict(run: FittedRun) -> str:
    """What to do with the model, in a sentence."""
    if run.held is None:
        return "Nobody knows yet how good it is."
    useless = [own.name for own, one in run.words.outputs(run.held) if own.useless(one)]
    if useless:
        return f"Of no use yet: answering {listing(useless)} without looking would do as well."
    number = len(warnings(run))
    if not number:
        return f"Good to use on {run.cases} like these."
    return f"Use it with care: {number} caution{'s' * (number > 1)} below."


def cautions(run: FittedRun) -> list[str]:
    """What a reader must know before relying on the model."""
    texts = warnings(run)
    reasons: dict[str, list[str]] = {}
    for name, reason in run.ignored.items():
        reasons.setdefault(reason, []).append(name)
    texts += [f"Left out: {listing(names)} ({reason})." for reason, names in reasons.items()]
    if run.facts.get("dropped"):
        texts.append(f"{run.facts['dropped']:,} rows have no {run.words.name}, and were left out.")
    return texts


def _of_the_table(run: FittedRun) -> list[str]:
    """What may be wrong with the rows themselves."""
    texts = [
        f"{leak['column']} alone gives {run.words.name} away ({percent(leak['alone'])} of its variance on rows held "
        f"out; the next column: {percent(leak['next'])}). Is it known when you predict? If not, --ignore it."
        for leak in run.facts.get("leaks", [])
    ]
    if drifting := [one["column"] for one in run.facts.get("drift", [])]:
        texts.append(
            f"Rows change along the file: {listing(drifting, 3)} differ{'s' * (len(drifting) == 1)} between its first "
            "and last third. If it is in order of time, these scores, on rows picked at random, flatter the model."
        )
    if run.facts["trained"] < FEW_TRAINED:
        texts.append(f"Only {run.facts['trained']} {run.cases} to learn from: another sample would give another model.")
    return texts


def warnings(run: FittedRun, *, chains: bool = True) -> list[str]:
    """What speaks against relying on the model; what its `chains` do is said elsewhere, too."""
    held, texts = run.held, _of_the_table(run)
    if held is not None and held.rows < FEW_HELD_OUT:
        texts.append(f"Only {held.rows} {run.cases} were held out: all scores are rough.")
    if run.stopped_at is not None:
        steps = "{:,} of {:,} steps".format(*run.stopped_at)
        more = "the student had not finished learning. Give it more (--time-budget)."
        texts.append(f"The time budget ended the fit after {steps}: {more}")
    verdict = run.results.get("diagnostics", {}).get("student", {}).get("verdict", {"code": "agree"})
    if chains and verdict["code"] != "agree":
        choices = run.results.get("choices", {}).get("student", [])
        hurried = any(choice.get("hurried", False) for choice in choices)
        more = " There was no time for more: give it a larger --time-budget." * hurried
        texts.append(f"Of the teacher: {verdict['text']}.{more} Its doubt may be too small or too large.")
    if held is not None:
        with np.errstate(invalid="ignore"):
            behind = estimate(held.methods["student"].log_likelihood - held.methods["sgld"].log_likelihood)
        if behind.clear and behind.value < -BEHIND:
            texts.append(
                "The student does not speak for its teacher: it gives what happened clearly less probability, "
                f"{signed(behind)} in log likelihood. More time (--time-budget) may help"
                f"{', or a larger student (--student-hidden)' if run.columns else ''}."
            )
        texts += [text for own, one in run.words.outputs(held) if (text := own.broken(one))]
        if "neighbour" in run.facts:
            ahead = Estimate(*run.facts["neighbour"]["ahead"])
            if ahead.value is not None and ahead.clear and ahead.value < 0:
                texts.append(f"Gradient boosting did better than the student: {signed(ahead)} in log likelihood.")
        own = run.gain
        if own.clear and own.value < 0:
            texts.append(f"The plug-in network did better than the student: {signed(own)} in log likelihood.")
    texts += [
        f"Beyond the values seen of {listing(columns)} its doubt about {name} does not grow: do not mistake its "
        "certainty there for knowledge."
        for name, columns in _blind(run).items()
    ]
    return texts


def _blind(run: FittedRun) -> dict[str, list[str]]:
    """For each output the columns of numbers along which doubt does not grow beyond what was seen."""
    blind: dict[str, list[str]] = {}
    for words, picture in run.along:
        if picture.seen is None or np.isnan(picture.doubt).any():
            continue
        values = np.asarray(picture.values)
        seen = (values >= picture.seen[0]) & (values <= picture.seen[1])
        beyond = picture.doubt[[0, -1]][~seen[[0, -1]]]
        if seen.any() and len(beyond) and beyond.max() <= picture.doubt[seen].mean():
            blind.setdefault(words.name, []).append(picture.x)
    return blind
