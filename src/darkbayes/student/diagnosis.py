"""What a finished distillation is worth: do the chains agree, at what temperature, and does the student still follow?

Everything is computed at the end, on the host or by a few gradients; the loop itself only keeps the trace.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from darkbayes.estimates import standard_error
from darkbayes.files import finite
from darkbayes.teacher.diagnostics.convergence import Agreement, Verdict, agreement, monte_carlo_divergence, worst_of
from darkbayes.teacher.diagnostics.temperature import (
    chains_kinetic_temperature,
    directional_temperatures,
    gradient_noise,
)
from darkbayes.teacher.keeping import at_traced, trace_read
from darkbayes.types import Chain

PAST_DRAWS, LEAST_PAST = 24, 8
"""Draws of each chain's reservoir at which gradients are taken, besides the present one; fewer of large networks, and
none along single directions then."""
MOST_NUMBERS = 2e7  # In the gradients of all these draws together.
TEMPERATURE_OFF = 0.1  # How far from 1 a temperature may be without a warning: a tenth of the posterior variance.
LEAST_POINTS = 6  # In the last third of a curve; with fewer neither the fall nor its noise can be told.
LEAST_FALL = 0.05  # A student whose divergence falls by less than this share over a third of the run has stopped.
WELL_ABOVE = 3.0  # How many times the teacher's own error a divergence must be before the student is to blame for it.


class RunDiagnostics(NamedTuple):
    """The numbers of one run; None for what its chain does not offer."""

    agreement: Agreement
    temperature: float | None  # The configurational one, mean over draws of all chains; 1 for the Bayes posterior.
    temperature_se: float | None  # Its standard error, from the means of the chains, or from the draws of a single one.
    temperature_stiffest: float | None  # The same along single directions, where it is known well enough.
    temperature_softest: float | None
    temperature_predictions: float | None
    kinetic_temperature: float | None
    noise_to_signal: float | None  # Variance of a minibatch gradient over the square of the full, median over draws.
    divergence: float  # KL(teacher || student) at the end, mean over the monitored inputs.
    teacher_error: float  # The divergence that the teacher's finite number of draws alone would explain.

    @property
    def verdict(self) -> Verdict:
        return self.agreement.verdict

    def numbers(self) -> dict[str, float | int | str | None]:
        numbers = self.agreement._asdict() | self._asdict()
        del numbers["verdict"], numbers["agreement"]
        return {"code": self.verdict.code} | finite(numbers)


class Plateau(NamedTuple):
    """How a divergence behaved over the last third of a run."""

    since: int
    level: float  # The mean over it.
    fall: float  # Along the line of least squares, with its standard error.
    error: float
    stopped: bool  # Whether it no longer falls while well above the teacher's own error.


class Diagnosis(NamedTuple):
    """What was found of a distillation, or of several side by side."""

    runs: tuple[RunDiagnostics, ...]
    """The numbers of each run."""
    plateau: Plateau | None
    """How the divergence behaved at the end, mean over the runs; None where the curve is too short to tell."""
    verdict: Verdict
    """Whether the chains agree; of several runs, in the worst."""
    warnings: tuple[Verdict, ...]
    """What else is worth knowing, from temperature to a student that has stopped following."""

    def as_dict(self) -> dict[str, Any]:
        """The same in a form for JSON."""
        return {
            "verdict": self.verdict._asdict(),
            "counts": dict(Counter(run.verdict.code for run in self.runs)),
            "warnings": [warning._asdict() for warning in self.warnings],
            "plateau": None if self.plateau is None else finite(self.plateau._asdict()),
            "runs": [run.numbers() for run in self.runs],
        }

    def __str__(self) -> str:
        return "\n".join(verdict.text for verdict in (self.verdict, *self.warnings))


def diagnose(
    runs: Sequence[tuple[Chain, Any]], divergences: Sequence[float], curve: Sequence[tuple[int, float]]
) -> Diagnosis:
    """Judge finished distillations by their chains and states, final divergences, and the mean divergence over time."""
    judged = tuple(_diagnose_run(*run, float(divergence)) for run, divergence in zip(runs, divergences, strict=True))
    plateau = find_plateau(curve, float(np.mean([run.teacher_error for run in judged])))
    warnings = _temperature_warning(judged)
    if plateau is not None and plateau.stopped:
        remedy = "try hidden layers twice as wide, or wider queries"
        text = f"the student has stopped following at KL {plateau.level:.3g}: {remedy}"
        warnings.append(Verdict("student_stopped", text))
    return Diagnosis(judged, plateau, _verdict(judged), tuple(warnings))


def chains_agreement(chain: Chain, state: Any) -> Agreement:
    """How well the average over all chains is known, those that others took the place of included."""
    values, stride = trace_read(state.trace)
    if begun := int(state.teacher.begun):
        before = -(-((begun - int(chain.burn_in)) // int(chain.thin)) // stride)  # Values, of the chains before.
        number = min(before, values.shape[1] - before)
        values = np.concatenate([values[:, before - number : before], values[:, before : before + number]])
    statistics = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (state.average.mean, state.average.variance))
    return agreement(values, stride * int(chain.thin), at_traced(state.average.kind.spread(*statistics)))


def _diagnose_run(chain: Chain, state: Any, divergence: float) -> RunDiagnostics:
    judged = chains_agreement(chain, state)
    # In numpy: no program is compiled for what it does as well.
    draws, reservoir = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], state.teacher.draws), state.reservoir
    filled = 0
    if reservoir is not None:
        filled = min(int(np.asarray(reservoir.count)[0]), jax.tree.leaves(reservoir.slots)[0].shape[1])
    small = optax.tree.size(state.teacher.draws) * PAST_DRAWS <= MOST_NUMBERS
    if reservoir is not None and filled:
        # Some past draws as well, evenly over the slots: as long as they fill, their order is that of time.
        past = PAST_DRAWS if small else LEAST_PAST
        rows = np.linspace(0, filled - 1, min(past, filled)).round().astype(int)
        draws = jax.tree.map(
            lambda now, past: np.concatenate([now, np.asarray(past)[:, rows]], axis=1), draws, reservoir.slots
        )
    flat = jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]), draws)
    # Which minibatches are looked at is of no consequence: any key will do.
    gradients = gradient_noise(chain, flat, jax.random.key(0))
    temperature = error = noise = None
    along: dict[str, float] = {}
    if gradients is not None:
        by_draw = np.asarray(gradients.temperature, np.float64).reshape(jax.tree.leaves(draws)[0].shape[:2])
        temperature = float(by_draw.mean())
        error = standard_error(by_draw.mean(axis=1) if len(by_draw) > 1 else by_draw[0])
        noise = float(np.median(gradients.noise_to_signal)) if hasattr(chain, "batch_size") else None
        if small and by_draw.shape[1] > LEAST_PAST:
            weights = np.concatenate(
                [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(flat)], axis=1, dtype=float
            )
            full, slope = (np.asarray(part, np.float64) for part in (gradients.full, gradients.slope))
            shape = (*by_draw.shape, -1)
            along = directional_temperatures(weights.reshape(shape), full.reshape(shape), slope.mean(axis=0))
    kinetic = chains_kinetic_temperature(state.teacher.states)
    teacher_error = monte_carlo_divergence(state.average, max(np.nan_to_num(judged.effective), 1.0))
    stiffest, softest, predictions = map(along.get, ("stiffest", "softest", "predictions"))
    return RunDiagnostics(
        judged, temperature, error, stiffest, softest, predictions, kinetic, noise, divergence, teacher_error
    )


def _temperature_warning(runs: Sequence[RunDiagnostics]) -> list[Verdict]:
    known = [(run.temperature, run.temperature_se) for run in runs if run.temperature is not None]
    if not known or any(error is None for _, error in known):
        return []
    # The median run speaks for all: their temperatures have the same cause.
    temperature, error = sorted(known)[len(known) // 2]
    if not abs(temperature - 1.0) > max(TEMPERATURE_OFF, 3 * (error or 0.0)):
        return []
    if temperature <= 0:  # No sampler has such a one: the draws are those of a few steps.
        text = "the chains have hardly moved from their start, so draws say nothing about the temperature: run longer"
        return [Verdict("temperature", f"{text} (a fit: more effort)")]
    cause = "steps or minibatch noise are too large, or the burn-in too short"
    if temperature < 1:
        cause = "the sampler's temperature is below 1, or the chains have not spread yet"
    return [Verdict("temperature", f"the draws are at temperature {temperature:.2f} instead of 1: {cause}")]


def _verdict(runs: Sequence[RunDiagnostics]) -> Verdict:
    place = worst_of([run.agreement for run in runs])
    worst = runs[place].verdict
    if len(runs) == 1:
        return worst
    if worst.code == "agree":
        error, rhat = (max(getattr(run.agreement, name) for run in runs) for name in ("error", "rhat"))
        text = f"in all {len(runs)} runs the average over the chains is known to {error:.0%} of the spread or better"
        return Verdict("agree", f"{text} at the median input (R-hat at most {rhat:.2f})")
    good = sum(run.verdict.code == "agree" for run in runs)
    return Verdict(worst.code, f"run {place}: {worst.text} ({good} of {len(runs)} runs agree)")


def find_plateau(curve: Sequence[tuple[int, float]], teacher_error: float) -> Plateau | None:
    """Look at the last third of a curve of ``(step, divergence)``; None where it has too few points.

    >>> falling = [(step, 1 / step) for step in range(1, 100)]
    >>> flat = [(step, 1 / min(step, 20)) for step in range(1, 100)]
    >>> [find_plateau(curve, 0.001).stopped for curve in (falling, flat)]
    [False, True]
    """
    if not curve:
        return None
    steps, values = np.asarray(curve, np.float64).T
    late = steps >= steps[0] + (steps[-1] - steps[0]) * 2 / 3
    steps, values = steps[late], values[late]
    if len(steps) < LEAST_POINTS or not np.isfinite(values).all():
        return None
    span, level = steps[-1] - steps[0], float(values.mean())
    centred = steps - steps.mean()
    slope = float(centred @ values / (centred @ centred))
    rest = values - level - slope * centred
    error = np.sqrt(rest @ rest / (len(rest) - 2) / (centred @ centred)) * span
    # Neighbouring points err alike: with correlation r between them, they count as (1 - r) / (1 + r) as many.
    correlation = np.clip(rest[1:] @ rest[:-1] / max(rest @ rest, 1e-300), 0.0, 0.9)
    error = float(error * np.sqrt((1 + correlation) / (1 - correlation)))
    fall = -slope * span
    stopped = fall <= max(2 * error, LEAST_FALL * level) and level > WELL_ABOVE * teacher_error
    return Plateau(int(steps[0]), level, float(fall), error, bool(stopped))
