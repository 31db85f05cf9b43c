"""What a finished distillation is worth: do the chains agree, at what temperature, and does the student still follow?

Everything is computed at the end, on the host or by a few gradients; the loop itself only keeps the trace.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.student.plateau import Plateau, find_plateau
from darkbayes.teacher.diagnostics.convergence import Agreement, Verdict, agreement, monte_carlo_divergence, worst_of
from darkbayes.teacher.diagnostics.temperature import chains_kinetic_temperature, gradient_noise
from darkbayes.teacher.diagnostics.trace import trace_read
from darkbayes.teacher.reservoir import Reservoir
from darkbayes.types import Chain, PyTree

PAST_DRAWS = 8
"""Draws of each chain's reservoir at which gradients are taken, besides the present one."""
TEMPERATURE_OFF = 0.1
"""How far from 1 a temperature may be before it is worth a warning: a tenth of the posterior variance."""


class RunDiagnostics(NamedTuple):
    """The numbers of one run; None for what its chain does not offer."""

    agreement: Agreement
    temperature: float | None
    """The configurational temperature, mean over draws of all chains; 1 for the Bayes posterior."""
    temperature_se: float | None
    """Its standard error, from the means of the chains, or from the draws of a single one."""
    kinetic_temperature: float | None
    noise_to_signal: float | None
    """The variance of a minibatch gradient over the square of the full gradient, the median over draws."""
    divergence: float
    """KL(teacher || student) at the end, mean over the monitored inputs."""
    teacher_error: float
    """The divergence that the teacher's finite number of draws alone would explain."""

    @property
    def verdict(self) -> Verdict:
        return self.agreement.verdict

    def numbers(self) -> dict[str, float | int | str | None]:
        """All numbers by name, in a form for JSON."""
        own = {name: value for name, value in self._asdict().items() if name != "agreement"}
        found = {name: value for name, value in self.agreement._asdict().items() if name != "verdict"} | own
        return {"code": self.verdict.code} | {name: _finite(value) for name, value in found.items()}


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
        plateau = None if self.plateau is None else {k: _finite(v) for k, v in self.plateau._asdict().items()}
        return {
            "verdict": self.verdict._asdict(),
            "counts": dict(Counter(run.verdict.code for run in self.runs)),
            "warnings": [warning._asdict() for warning in self.warnings],
            "plateau": plateau,
            "runs": [run.numbers() for run in self.runs],
        }

    def __str__(self) -> str:
        return "\n".join(verdict.text for verdict in (self.verdict, *self.warnings))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def diagnose(
    runs: Sequence[tuple[Chain, Any]], divergences: Sequence[float], curve: Sequence[tuple[int, float]]
) -> Diagnosis:
    """Judge finished distillations by their chains and states, final divergences, and the mean divergence over time."""
    found = tuple(
        _diagnose_run(chain, state, float(divergence))
        for (chain, state), divergence in zip(runs, divergences, strict=True)
    )
    plateau = find_plateau(curve, float(np.mean([run.teacher_error for run in found])))
    warnings = [_temperature_warning(found)]
    if plateau is not None and plateau.stopped:
        remedy = "try hidden layers twice as wide, or wider queries"
        warnings.append(
            Verdict("student_stopped", f"the student has stopped following at KL {plateau.level:.3g}: {remedy}")
        )
    return Diagnosis(found, plateau, _verdict(found), tuple(filter(None, warnings)))


def _diagnose_run(chain: Chain, state: Any, divergence: float) -> RunDiagnostics:
    values, stride = trace_read(state.trace)
    judged = agreement(values, stride * int(chain.thin))
    draws = _some_draws(state.teacher.draws, state.reservoir)
    flat = jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]), draws)
    # Which minibatches are looked at is of no consequence: any key will do.
    gradients = gradient_noise(chain, flat, jax.random.key(0))
    temperature = error = noise = None
    if gradients is not None:
        by_draw = np.asarray(gradients.temperature, np.float64).reshape(judged.chains, -1)
        temperature, error = float(by_draw.mean()), _standard_error(by_draw)
        noise = float(np.median(gradients.noise_to_signal)) if hasattr(chain, "batch_size") else None
    return RunDiagnostics(
        agreement=judged,
        temperature=temperature,
        temperature_se=error,
        kinetic_temperature=chains_kinetic_temperature(state.teacher.states),
        noise_to_signal=noise,
        divergence=divergence,
        teacher_error=monte_carlo_divergence(state.average, max(np.nan_to_num(judged.effective), 1.0)),
    )


def _some_draws(present: PyTree, reservoir: Reservoir | None) -> PyTree:
    """The present draws and some past ones, ``[chains, draws, ...]``."""
    present = jax.tree.map(lambda leaf: leaf[:, None], present)
    filled = 0 if reservoir is None else min(int(reservoir.count[0]), len(jax.tree.leaves(reservoir.slots)[0][0]))
    if reservoir is None or filled == 0:
        return present
    # Evenly over the slots: as long as they fill, their order is that of time.
    rows = np.linspace(0, filled - 1, min(PAST_DRAWS, filled)).round().astype(int)
    return jax.tree.map(lambda now, past: jnp.concatenate([now, past[:, rows]], axis=1), present, reservoir.slots)


def _standard_error(by_draw: np.ndarray) -> float | None:
    means = by_draw.mean(axis=1) if len(by_draw) > 1 else by_draw[0]
    return float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None


def _temperature_warning(runs: Sequence[RunDiagnostics]) -> Verdict | None:
    known = [(run.temperature, run.temperature_se) for run in runs if run.temperature is not None]
    if not known or any(error is None for _, error in known):
        return None
    # The median run speaks for all: their temperatures have the same cause.
    temperature, error = sorted(known)[len(known) // 2]
    if not abs(temperature - 1.0) > max(TEMPERATURE_OFF, 3 * (error or 0.0)):
        return None
    cause = (
        "steps or minibatch noise are too large, or the burn-in too short"
        if temperature > 1
        else "the sampler's temperature is below 1, or the chains have not spread yet"
    )
    return Verdict("temperature", f"the draws are at temperature {temperature:.2f} instead of 1: {cause}")


def _verdict(runs: Sequence[RunDiagnostics]) -> Verdict:
    place = worst_of([run.agreement for run in runs])
    worst = runs[place].verdict
    if len(runs) == 1:
        return worst
    if worst.code == "agree":
        rhat, effective = max(run.agreement.rhat for run in runs), np.median([run.agreement.effective for run in runs])
        text = f"the chains agree in all {len(runs)} runs (R-hat at most {rhat:.2f}, {effective:,.0f} effective"
        return Verdict("agree", f"{text} predictions in the median run)")
    good = sum(run.verdict.code == "agree" for run in runs)
    return Verdict(worst.code, f"run {place}: {worst.text} ({good} of {len(runs)} runs agree)")
