"""The one line that says whether the chains of a run agree, from what they predicted over time."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.teacher.diagnostics.convergence import (
    LEAST_DRAWS,
    autocorrelation_time,
    effective_sample_size,
    split_rhat,
)

RHAT_MET = 1.1
"""The bound of Gelman and Rubin (1992). The means of the chains' halves then scatter by half a posterior standard
deviation, and with four chains the average of all is known to a sixth of one."""
LEAST_EFFECTIVE = 100
"""Independent predictions that tell their mean to a tenth of the posterior's standard deviation."""

Code = Literal["agree", "few", "one_chain", "short", "apart", "temperature", "student_stopped"]
"""What a program may look for; the first five are about agreement, from best to worst."""
WORSE = ("agree", "few", "one_chain", "short", "apart")


class Verdict(NamedTuple):
    """A judgement in one line, and its code."""

    code: Code
    """For programs."""
    text: str
    """For people: what is, and what to do about it."""


class Agreement(NamedTuple):
    """How alike the predictions of chains are, and how many of them count; over the inputs predicted at."""

    chains: int
    """How many."""
    draws: int
    """Predictions of each chain that were looked at."""
    rhat: float
    """Split R-hat at the worst input."""
    rhat_median: float
    """Split R-hat at the median input."""
    effective: float
    """Effective number of predictions, the median over the inputs."""
    effective_worst: float
    """The same at the worst input."""
    autocorrelation_steps: float
    """Steps after which a chain's predictions are fresh, the median over the inputs."""
    verdict: Verdict
    """What follows from all this."""


def agreement(values: jax.typing.ArrayLike, steps_between: int = 1) -> Agreement:
    """Judge predictions ``[chains, draws, ...]``, made every `steps_between` steps of each chain.

    Where only some of the draws were traced, the effective number is that of the traced ones, and a lower bound.

    Args:
        values: what each chain predicted, ``[chains, draws, ...]``.
        steps_between: steps of a chain from one of these draws to the next.

    Returns:
        The numbers and what follows from them.

    >>> rng = np.random.default_rng(0)
    >>> agreement(rng.normal(size=(4, 200, 3))).verdict.code
    'agree'
    >>> agreement(rng.normal(size=(4, 200, 3)) + np.arange(4)[:, None, None]).verdict.text
    'the chains have not met (R-hat 1.60): run longer, with a longer burn-in, or use larger or cyclical steps'
    """
    values = np.asarray(values, np.float64)
    if values.ndim < 2 or values.shape[0] < 1:
        raise InvalidInput(f"agreement needs values [chains, draws, ...], not shape {values.shape}")
    chains, draws = values.shape[:2]
    if draws < LEAST_DRAWS:
        text = (
            f"{draws} {'draw' if draws == 1 else 'draws'} of each chain: too few to judge, run longer or keep more "
            "(a smaller thin)"
        )
        nothing = float("nan")
        return Agreement(chains, draws, nothing, nothing, nothing, nothing, nothing, Verdict("short", text))
    rhat, effective = np.ravel(split_rhat(values)), np.ravel(effective_sample_size(values))
    # A value that is not a number, or infinite, is as bad as can be.
    rhat = np.where(np.isnan(rhat), np.inf, rhat)
    worst, number = float(rhat.max()), float(np.median(effective))
    return Agreement(
        chains=chains,
        draws=draws,
        rhat=worst,
        rhat_median=float(np.median(rhat)),
        effective=number,
        effective_worst=float(effective.min()),
        autocorrelation_steps=float(np.median(autocorrelation_time(values, steps_between))),
        verdict=_judge(chains, worst, number),
    )


def _judge(chains: int, rhat: float, effective: float) -> Verdict:
    if chains == 1:
        halves = "" if rhat <= RHAT_MET else f"; its own halves differ (R-hat {rhat:.2f}): run longer"
        return Verdict("one_chain", f"one chain: agreement cannot be judged, use num_chains >= 2{halves}")
    if rhat > RHAT_MET:
        remedy = "run longer, with a longer burn-in, or use larger or cyclical steps"
        return Verdict("apart", f"the chains have not met (R-hat {rhat:.2f}): {remedy}")
    if effective < LEAST_EFFECTIVE:
        remedy = "run longer or use more chains"
        return Verdict(
            "few", f"the chains agree (R-hat {rhat:.2f}) on only {effective:,.0f} effective predictions: {remedy}"
        )
    return Verdict("agree", f"the chains agree (R-hat {rhat:.2f}, {effective:,.0f} effective predictions)")


def worst_of(runs: Sequence[Agreement]) -> int:
    """The place of the run that fares worst; of several with the same code, the one with the largest R-hat."""
    return max(range(len(runs)), key=lambda place: (WORSE.index(runs[place].verdict.code), runs[place].rhat))
