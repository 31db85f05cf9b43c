"""Sampling and distilling as planned; and the same again with new chains, where the average is not known well enough.

What a student learns is the average over the chains. Its error falls with their number even where each stays in a mode
of its own, so that new chains from other starts are a remedy that works, which longer ones need not be. They take the
place of those that are done, burn in, and teach on by the same compiled program; what was kept of the earlier ones
stays, and the student's learning rate falls once more. So a fit does at most twice the work that was planned.

Whether they are needed follows from the draws, not from the clock; a time budget only says whether they may begin.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from darkbayes.runs import Run, Unkept
from darkbayes.student import Distillation
from darkbayes.student.diagnosis import chains_agreement
from darkbayes.student.loop import DistillationState, steps_of
from darkbayes.teacher.diagnostics.convergence import LARGE_ERROR, MEDIAN_ERROR
from darkbayes.types import Chain, Key, PyTree

TOO_ROUGH = ("few", "apart")
"""The verdicts on chains that more of them would mend."""


class Taught(NamedTuple):
    """What the lessons left."""

    state: DistillationState
    again: bool
    """Whether there were as many chains again."""
    note: str
    """Why there were or were not, if they were needed."""


def taught(
    parts: Distillation,
    longer: Distillation | None,
    key: Key,
    steps: int,
    *,
    weights: PyTree | None,
    deadline: float | None,
    run: Run | Unkept,
) -> Taught:
    """Run a distillation and, if need be, go on with new chains.

    Args:
        parts: the distillation.
        longer: the same with a student that learns twice as long; None if there may be no further chains.
        key: where the randomness comes from.
        steps: of each chain, burn-in included.
        weights: those that the student begins with; None for its own.
        deadline: a moment of ``time.time()`` until which all should be done; None for no limit.
        run: what keeps metrics and checkpoints, and goes on from them.

    Returns:
        The last state, and what was decided.
    """

    def as_given(parts: Distillation, key: Key, state: DistillationState) -> DistillationState:
        given = state.students if weights is None else jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], weights)
        return state._replace(students=given)

    def renewed(parts: Distillation, key: Key, state: DistillationState) -> DistillationState:
        return state if steps_of(state.teacher.begun) else parts.renewed(key, state)

    began = time.time()
    state = run.distil("student", parts, key, steps, deadline, as_given)
    if longer is None:
        return Taught(state, False, "")

    def decide() -> dict[str, Any]:
        # It would take as long again.
        return _decided(parts.chain, state, deadline is None or 2 * time.time() - began <= deadline)

    decided = run.decide("student/more", decide)
    if decided["again"]:
        state = run.distil("student", longer, key, 2 * steps, deadline, renewed)
    return Taught(state, **decided)


def _decided(chain: Chain, state: DistillationState, in_time: bool) -> dict[str, Any]:
    """Whether there will be as many chains again, and a note on it."""
    judged = chains_agreement(chain, state)
    if judged.verdict.code not in TOO_ROUGH:
        return {"again": False, "note": ""}
    known = f"{judged.error:.0%} of the spread at the median input, {judged.error_large:.0%} at 95% of them"
    goal = f"(the goal is {MEDIAN_ERROR:.0%} and {LARGE_ERROR:.0%})"
    done = "as many again were run from other starts" if in_time else "there was no time for as many again"
    return {"again": in_time, "note": f"the average over {judged.chains} chains was known to {known} {goal}: {done}"}
