"""A teacher that tunes itself: step size, burn-in, thinning and length, each found by measuring.

The chains run in phases, each twice as long as the one before. At a few moments of a phase it is measured

    how stiff the posterior is    the largest eigenvalue s of eta/2 P H, H the Hessian: a step multiplies the distance
                                  from the mode along that direction by 1 - s. Beyond 2 chains diverge; below, SGLD
                                  inflates the variance to 1 / (1 - s/2) of the exact one, and momentum less;
    how hot minibatches make it   the variance that their gradients add to the sampler's own noise along that direction,
                                  which they heat most, as a share of it;

and after it eta is set so that both keep to their limits at nine of ten moments. Burn-in is over once eta has settled,
the log posterior rises over a phase no more than it fluctuates, and the phase is many times as long as the predictions
take to forget where they were. Thinning and length follow from that memory. The run itself begins afresh, with these
numbers and nothing else, so that its configuration is all it takes to repeat it.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from darkbayes.data.arrays import as_inputs
from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.teacher.chain import MinibatchChain
from darkbayes.teacher.exploration import Measured, explore, some_of, waiting
from darkbayes.types import Key

LEAST_STEPS, MOST_STEPS = 10_000, 30_000
"""Steps after burn-in: fewer do not teach a student, whatever the chains do; more must be asked for."""
FEWEST_STEPS = 3_000
"""Steps after burn-in that a run gets even if it then lasts longer than it may: a student of fewer is worth nothing."""

HEATING = 0.05
"""The share of the sampler's own noise that minibatches may add along the stiffest direction. With twice as much, and
what discretisation adds at the step sizes that this allows, the temperature is 1.2 there (`darkbayes bench truth`)."""


@dataclasses.dataclass(frozen=True)
class Choices:
    """What `tune` found, with the measurements behind it."""

    step_size: float
    """eta."""
    stiffness: float
    """eta/2 times the largest preconditioned curvature, at nine of ten moments at most this."""
    heating: float
    """The noise that minibatches add along the stiffest direction, as a share of the sampler's own: by so much the
    temperature is above 1 there."""
    burn_in: int
    """Steps."""
    autocorrelation: float
    """Steps that the predictions take to forget where they were: their integrated autocorrelation time, at nine of ten
    inputs at most this."""
    rhat: float
    """Split R-hat of the predictions over the last phase of burn-in, at nine of ten inputs at most this."""
    thin: int
    """Steps between two kept draws."""
    steps: int
    """Steps of each chain in all, burn-in included."""
    reason: str
    """What set the number of steps."""
    settled: bool = True
    """Whether burn-in had ended when it was to be stopped at the latest."""
    hurried: bool = False
    """Whether it was for want of time that there are no more steps."""

    @property
    def inflation(self) -> float:
        """By how much discretisation inflates the variance along the stiffest direction."""
        return 1 / (1 - self.stiffness / 2) - 1 if self.stiffness < 2 else math.inf

    def explain(self) -> str:
        """The choices in words."""
        ended = (
            "after which the log posterior no longer rose"
            if self.settled
            else "which was not enough for all to settle (standardise the inputs, or give a larger max_burn_in)"
        )
        return (
            f"step size {self.step_size:.3g}: discretisation inflates the variance along the stiffest direction by "
            f"{self.inflation:.0%}, minibatches add {self.heating:.0%} there; burn-in {self.burn_in:,} steps, "
            f"{ended}; predictions forget where they were within {self.autocorrelation:,.0f} steps, so one draw in "
            f"{self.thin} is kept; {self.steps:,} steps in all, {self.reason}"
        )


def tune(chain: MinibatchChain, key: Key, **settings: Any) -> tuple[MinibatchChain, Choices]:
    """Find the step size, burn-in, thinning and length of a chain whose sampler has ``step_size="auto"``.

    Args:
        chain: what to tune; its own `burn_in` and `thin` are replaced.
        key: where the randomness comes from.
        settings: as those of `tune_all`.

    Returns:
        The chain, ready to run, and what was chosen for it.

    >>> import jax, darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> chain = db.minibatch_chain(posterior, db.sgld("auto"), *data, batch_size=None)
    >>> chain, choices = tune(chain, jax.random.key(1))
    >>> 1e-3 < choices.step_size < 1e-1
    True
    """
    chains, choices = tune_all([chain], key, **settings)
    return chains[0], choices[0]


def tune_all(
    chains: Sequence[MinibatchChain],
    key: Key,
    *,
    num_chains: int = 4,
    inflation: float = 0.5,
    heating: float = HEATING,
    max_burn_in: int = 10_000,
    monitor: Any = None,
    steps: int | None = None,
    seconds: float | None = None,
    effective: int | None = None,
    within: float | None = None,
    max_steps: int | None = None,
    thin_by: int = 1,
    label: str | None = None,
) -> tuple[list[MinibatchChain], list[Choices]]:
    """Tune chains of one kind side by side, such as those on the splits of a data set.

    Each gets a step size of its own; burn-in, thinning and length are those that suffice for all.

    Args:
        chains: what to tune.
        key: where the randomness comes from.
        num_chains: how many chains of each to measure with, and that will run.
        inflation: by how much discretisation may inflate the variance along the stiffest direction.
        heating: the share of the sampler's own noise that minibatches may add to it along the stiffest direction.
        monitor: inputs to watch the predictions at; by default, some of the training inputs.
        max_burn_in: where to stop looking for the end of burn-in.
        steps: the length in steps, burn-in included, if it is given;
        seconds: or what the run may last, at the speed that is measured here, without the student's part;
        effective: or how many effectively independent predictions all chains together are to give. By default 1,000,
            within `LEAST_STEPS` and `MOST_STEPS` steps.
        within: what tuning and the run may last together at most, in seconds and at the speed that is measured here,
            without the student's part. Burn-in gets a third of it.
        max_steps: the length in steps at most, whatever else is asked for; more only for a first draw after burn-in.
        thin_by: what `thin` must be a multiple of (the student's `update_every`).
        label: what to call the progress bar; None for no bar.

    Returns:
        The chains, ready to run, and what was chosen for each.
    """
    for name, value in (("inflation", inflation), ("heating", heating), ("seconds", seconds), ("within", within)):
        if value is not None:
            require_positive(name, value)
    for name, value in (("num_chains", num_chains), ("max_burn_in", max_burn_in), ("thin_by", thin_by)):
        require_count(name, value)
    if max_steps is not None:
        require_count("max_steps", max_steps)
    given = {"steps": steps, "seconds": seconds, "effective": effective}
    if sum(value is not None for value in given.values()) > 1:
        raise InvalidInput(f"only one of steps, seconds and effective may be given, not {given}")
    for chain in chains:
        waiting(chain)
    watched = None if monitor is None else some_of(as_inputs(monitor))
    began = time.perf_counter()
    latest = None if within is None else began + within / 3
    measured = explore(chains, key, num_chains, inflation, heating, max_burn_in, latest, watched, label)
    tau = np.nanmax(measured.autocorrelation)
    thin = thin_by * max(1, round(min(tau / 10, 200) / thin_by))
    length, reason = _length(measured, tau, num_chains, steps, seconds, effective)
    hurried = seconds is not None
    if within is not None:
        left = within - (time.perf_counter() - began)
        most = max(measured.burn_in + FEWEST_STEPS, int(left / measured.seconds_per_step))
        if most < length:
            length, reason, hurried = most, f"as many as {within:g} seconds allow", True
    if max_steps is not None and max_steps < length:
        length, reason, hurried = max(measured.burn_in + thin, max_steps), "the most that were allowed", False
    length = measured.burn_in + -(-(length - measured.burn_in) // thin) * thin
    common: Any = {"burn_in": measured.burn_in, "thin": thin, "steps": length, "reason": reason, "hurried": hurried}
    choices = [Choices(**own, **common) for own in measured.of_each()]
    return [with_choices(*pair) for pair in zip(chains, choices, strict=True)], choices


def with_choices(chain: MinibatchChain, choices: Choices) -> MinibatchChain:
    """A chain whose sampler has ``step_size="auto"``, with what `tune` chose for it."""
    step_size = jnp.asarray(choices.step_size, jnp.float32)
    sampler = dataclasses.replace(waiting(chain), step_size=step_size, ramp=choices.burn_in // 10)
    return dataclasses.replace(chain, transformation=sampler, burn_in=choices.burn_in, thin=choices.thin)


def _length(
    measured: Measured, tau: float, num_chains: int, steps: int | None, seconds: float | None, effective: int | None
) -> tuple[int, str]:
    if steps is not None:
        return require_count("steps", steps, least=measured.burn_in + 1), "as asked for"
    if seconds is not None:
        length = int(seconds / measured.seconds_per_step)
        return max(length, measured.burn_in + LEAST_STEPS), f"as many as {seconds:g} seconds allow"
    wanted = require_count("effective", 1_000 if effective is None else effective)
    needed = math.ceil(wanted * tau / num_chains)
    if effective is None and not LEAST_STEPS <= needed <= MOST_STEPS:
        bound = min(max(needed, LEAST_STEPS), MOST_STEPS)
        why = "the fewest that teach a student" if needed < bound else f"the most by default, not the {needed:,}"
        return measured.burn_in + bound, f"{why} for {wanted:,} effective predictions"
    return measured.burn_in + needed, f"for {wanted:,} effective predictions"
