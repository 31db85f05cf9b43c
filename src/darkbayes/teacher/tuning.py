"""A teacher that tunes itself: step size, burn-in, thinning and length, each found by measuring.

The chains run in phases, each twice as long as the one before. At a few moments of a phase it is measured

    how stiff the posterior is    the largest eigenvalue s of eta/2 P H, H the Hessian: a step
                                  multiplies the distance from the mode along that direction by 1 - s. Beyond 2 chains
                                  diverge; below, SGLD inflates the variance to 1 / (1 - s/2) of the exact one, and
                                  momentum less;
    how hot minibatches make it   the variance that their gradients add to the sampler's own noise, as a share of it;

and after it eta is set so that both keep to their limits at nine of ten moments. It is also measured how many steps the
predictions take to forget where they were. Burn-in is over once eta has settled, the log posterior rises over a phase
no more than it fluctuates, and the phase is many times as long as the predictions' memory. Thinning and length follow
from that memory.

The run itself begins afresh, with these numbers and nothing else, so that its configuration is all it takes to repeat
it.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.data import as_inputs
from darkbayes.errors import Divergence, InvalidInput, require_count, require_positive, require_share
from darkbayes.model import Posterior
from darkbayes.progress import progress_bar
from darkbayes.teacher.auto import AutoStep, largest_eigenvalue
from darkbayes.teacher.chains import MinibatchChain, MinibatchState
from darkbayes.teacher.diagnostics import effective_sample_size, split_rhat
from darkbayes.teacher.fisher import fisher_sgld
from darkbayes.teacher.gradients import Estimate, energy
from darkbayes.teacher.parallel import Chains, start_chains, step_chains
from darkbayes.teacher.stacking import Stack, stack
from darkbayes.types import Array, Data, Key

FRICTION = 0.1
"""Of the default sampler."""
MOMENTS, SLOTS = 4, 16
"""A phase has so many moments of measurement, and so many looks at the predictions from one to the next."""
FIRST_PHASE = 1024
"""Steps."""
PROBES = 2048
"""Rows to measure the curvature and the log posterior on, where there are more."""
POINTS = 32
"""Training inputs to watch the predictions at."""
MINIBATCHES = 8
"""Gradients from which the noise of minibatches is measured."""
MOST_COMPENSATED = 0.5
"""The share of its noise that a sampler which takes minibatch noise into account may leave to the minibatches."""
SETTLED = 1.5
"""The factor by which the step size may still want to change when burn-in ends."""
RISE = 0.5
"""How far the log posterior may rise from the first to the second half of a phase, in standard deviations."""
MEMORIES = 10
"""How many autocorrelation times of the predictions the last phase of burn-in must span."""
LEAST_STEPS, MOST_STEPS = 10_000, 30_000
"""Steps after burn-in: fewer do not teach a student, whatever the chains do; more must be asked for."""
FEWEST_STEPS = 3_000
"""Steps after burn-in that a run gets even if it then lasts longer than it may: a student of fewer is worth nothing."""


@dataclasses.dataclass(frozen=True)
class Choices:
    """What `tune` found, with the measurements behind it."""

    step_size: float
    stiffness: float
    """eta/2 times the largest preconditioned curvature, at nine of ten moments at most this."""
    heating: float
    """The share of the noise that comes from minibatches, on top of the sampler's own or, if it takes that into
    account, within it."""
    burn_in: int
    autocorrelation: float
    """Steps that the predictions take to forget where they were: their integrated autocorrelation time, at nine of ten
    inputs at most this."""
    rhat: float
    """Split R-hat of the predictions over the last phase of burn-in, at nine of ten inputs at most this."""
    thin: int
    steps: int
    """Steps of each chain in all, burn-in included."""
    reason: str
    """What set the number of steps."""
    settled: bool = True
    """Whether burn-in had ended when it was to be stopped at the latest."""

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
            f"{self.inflation:.0%}, minibatches bring {self.heating:.0%} of the noise; burn-in {self.burn_in:,} steps, "
            f"{ended}; predictions forget where they were within {self.autocorrelation:,.0f} steps, so one draw in "
            f"{self.thin} is kept; {self.steps:,} steps in all, {self.reason}"
        )


def tune(chain: MinibatchChain, key: Key, **settings: Any) -> tuple[MinibatchChain, Choices]:
    """Find the step size, burn-in, thinning and length of a chain whose sampler has ``step_size="auto"``.

    Args:
        chain: what to tune; its own `burn_in` and `thin` are replaced.
        key: where the randomness comes from.
        settings: as those of `tune_all`.

    >>> import darkbayes as db
    >>> data = db.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.Softmax(2), db.GaussianPrior(1.0), num_data=20)
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
    heating: float = 0.1,
    max_burn_in: int = 10_000,
    monitor: Any = None,
    steps: int | None = None,
    seconds: float | None = None,
    effective: int | None = None,
    within: float | None = None,
    max_steps: int | None = None,
    thin_by: int = 1,
    live: float = 1.0,
    label: str | None = None,
) -> tuple[list[MinibatchChain], list[Choices]]:
    """Tune chains of one kind side by side, such as those on the splits of a data set.

    Each gets a step size of its own; burn-in, thinning and length are those that suffice for all.

    Args:
        chains: what to tune.
        key: where the randomness comes from.
        num_chains: how many chains of each to measure with, and that will run.
        inflation: by how much discretisation may inflate the variance along the stiffest direction.
        heating: the share of the sampler's own noise that minibatches may add to it.
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
        live: the share of the weights that the data can tell anything of; others, such as those of an input that is
            always zero, are not heated by minibatches, and do not count.
        label: what to call the progress bar; None for no bar.
    """
    for name, value in (("inflation", inflation), ("heating", heating), ("seconds", seconds), ("within", within)):
        if value is not None:
            require_positive(name, value)
    for name, value in (("num_chains", num_chains), ("max_burn_in", max_burn_in), ("thin_by", thin_by)):
        require_count(name, value)
    if max_steps is not None:
        require_count("max_steps", max_steps)
    require_share("live", live, one=True)
    given = {"steps": steps, "seconds": seconds, "effective": effective}
    if sum(value is not None for value in given.values()) > 1:
        raise InvalidInput(f"only one of steps, seconds and effective may be given, not {given}")
    for chain in chains:
        waiting(chain)
    watched = None if monitor is None else as_inputs(monitor)[:: max(1, len(monitor) // POINTS)][:POINTS]
    began = time.perf_counter()
    latest = None if within is None else began + within / 3
    measured = _explore(chains, key, num_chains, inflation, heating, max_burn_in, latest, watched, live, label)
    tau = np.nanmax(measured.autocorrelation)
    thin = thin_by * max(1, round(min(tau / 10, 200) / thin_by))
    length, reason = _length(measured, tau, num_chains, steps, seconds, effective)
    if within is not None:
        left = within - (time.perf_counter() - began)
        most = max(measured.burn_in + FEWEST_STEPS, int(left / measured.seconds_per_step))
        if most < length:
            length, reason = most, f"as many as {within:g} seconds allow"
    if max_steps is not None and max_steps < length:
        length, reason = max(measured.burn_in + thin, max_steps), "the most that were allowed"
    length = measured.burn_in + -(-(length - measured.burn_in) // thin) * thin
    choices = [
        Choices(
            step_size=float(measured.step_size[k]),
            stiffness=float(measured.stiffness[k]),
            heating=float(measured.heating[k]),
            burn_in=measured.burn_in,
            autocorrelation=float(measured.autocorrelation[k]),
            rhat=float(measured.rhat[k]),
            thin=thin,
            steps=length,
            reason=reason,
            settled=bool(measured.settled[k]),
        )
        for k in range(len(chains))
    ]
    return [with_choices(chain, of) for chain, of in zip(chains, choices, strict=True)], choices


def waiting(chain: MinibatchChain) -> AutoStep:
    """The chain's sampler, which must be one with ``step_size="auto"``."""
    if not isinstance(chain.transformation, AutoStep):
        raise InvalidInput('tune needs a sampler that waits for its step size: use step_size="auto"')
    return chain.transformation


def with_choices(chain: MinibatchChain, choices: Choices) -> MinibatchChain:
    """A chain whose sampler has ``step_size="auto"``, with what `tune` chose for it."""
    step_size = jnp.asarray(choices.step_size, jnp.float32)
    sampler = dataclasses.replace(waiting(chain), step_size=step_size, ramp=choices.burn_in // 10)
    return dataclasses.replace(chain, transformation=sampler, burn_in=choices.burn_in, thin=choices.thin)


def default_sampler(posterior: Posterior, batch_size: int | None) -> AutoStep:
    """The sampler to begin with: `fisher_sgld` with momentum, which waits for its step size.

    >>> import darkbayes as db
    >>> posterior = db.Posterior(db.mlp([10], 2), db.Softmax(2), db.GaussianPrior(1.0), num_data=20)
    >>> default_sampler(posterior, batch_size=None).tuned
    False
    """
    share = None if batch_size is None else batch_size / posterior.num_data
    if not eqx.is_array(share):
        share = None if share is None else min(1.0, share)
    precision = getattr(posterior.prior, "precision", 1.0)
    return fisher_sgld("auto", prior_precision=precision, batch_share=share, friction=FRICTION)


def _length(
    measured: "_Measured",
    tau: float,
    num_chains: int,
    steps: int | None,
    seconds: float | None,
    effective: int | None,
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


@dataclasses.dataclass(frozen=True)
class _Measured:
    """What exploring found, for each of the chains."""

    step_size: np.ndarray
    stiffness: np.ndarray
    heating: np.ndarray
    autocorrelation: np.ndarray
    rhat: np.ndarray
    settled: np.ndarray
    burn_in: int
    seconds_per_step: float


def _explore(
    chains: Sequence[MinibatchChain],
    key: Key,
    num_chains: int,
    inflation: float,
    heating: float,
    max_burn_in: int,
    latest: float | None,
    monitor: Array | None,
    live: float,
    label: str | None,
) -> _Measured:
    all_chains = stack("tune_all", [_with_step(chain, jnp.ones((), jnp.float32)) for chain in chains])
    most_stiff = 2 * inflation / (1 + inflation)
    most_hot = MOST_COMPENSATED if waiting(chains[0]).compensates else heating
    start_key, look_key = jax.random.split(key)
    states = _start(all_chains, start_key, num_chains)
    # A phase of no steps: stiffness is proportional to eta, and tells what the start allows.
    eta = np.ones(len(chains))
    seen = _phase(_with_steps(all_chains, eta), states, np.int32(0), look_key, monitor)[1]  # pyright: ignore[reportArgumentType]
    eta = most_stiff / np.maximum(np.quantile(np.asarray(seen.stiffness), 0.9, axis=(1, 2)), 1e-30)
    done, phase, length, tries = 0, 1, FIRST_PHASE, 0
    with progress_bar(label or "", max_burn_in, quiet=label is None) as show:
        while True:
            all_chains = _with_steps(all_chains, eta)
            began = time.perf_counter()
            looks = length // (MOMENTS * SLOTS)
            after, seen = jax.block_until_ready(
                _phase(all_chains, states, np.int32(looks), jax.random.fold_in(look_key, phase), monitor)  # pyright: ignore[reportArgumentType]
            )
            took = time.perf_counter() - began
            seen = jax.tree.map(np.asarray, seen)
            finite = np.isfinite(seen.log_density).all(axis=(1, 2)) & np.isfinite(seen.stiffness).all(axis=(1, 2))
            if not finite.all():
                # Back to where this phase began, for those that left the finite numbers, with smaller steps.
                tries += 1
                if tries > 20:
                    raise Divergence(
                        "no step size was found at which the chains stay finite: standardise the inputs and targets"
                    )
                eta = np.where(finite, eta, eta / 4)
                continue
            states, done, phase = after, done + length, phase + 1
            show(min(done, max_burn_in))
            stiff = np.quantile(seen.stiffness, 0.9, axis=(1, 2))
            hot = _of_the_live(np.mean(seen.heating, axis=(1, 2)), live, waiting(chains[0]).compensates)
            change = np.minimum(most_stiff / np.maximum(stiff, 1e-30), most_hot / np.maximum(hot, 1e-30))
            used, eta = eta, eta * np.clip(change, 0.1, 10.0)
            tau, rhat = _memory(seen.outputs, length)
            settled = (change < SETTLED) & (change > 1 / SETTLED)
            ended = settled & (_rise(seen.log_density) < RISE) & (MEMORIES * tau < length)
            late = latest is not None and time.perf_counter() + 2 * took > latest
            if ended.all() or done + 2 * length > max_burn_in or late:
                break
            length *= 2
    factor = eta / used
    return _Measured(eta, stiff * factor, hot * factor, tau / factor, rhat, ended, done, took / length)


def _of_the_live(hot: np.ndarray, live: float, compensates: bool) -> np.ndarray:
    """The heating of the weights that are heated, a share `live` of those over which its mean `hot` was taken.

    >>> _of_the_live(np.array([0.2]), 0.5, compensates=False), _of_the_live(np.array([0.5]), 0.5, compensates=True)
    (array([0.4]), array([0.66666667]))
    """
    if live == 1.0:
        return hot
    added = (hot / (1 - hot) if compensates else hot) / live
    return added / (1 + added) if compensates else added


def _rise(log_density: np.ndarray) -> np.ndarray:
    """How far the mean log posterior of the second half of a phase is above that of the first, in standard deviations.

    `log_density` is ``[runs, chains, looks]``.
    """
    half = log_density.shape[-1] // 2
    first, second = log_density[..., :half], log_density[..., half:]
    spread = np.sqrt(second.var(axis=-1).mean(axis=-1))
    return (second.mean(axis=(1, 2)) - first.mean(axis=(1, 2))) / np.maximum(spread, 1e-30)


def _memory(outputs: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Autocorrelation time in steps and R-hat of the predictions, at nine of ten inputs, for each run."""
    number = outputs.shape[1] * outputs.shape[2]
    flat = outputs.reshape(*outputs.shape[:3], -1)
    effective = np.stack([np.quantile(effective_sample_size(of), 0.1) for of in flat])
    rhat = np.stack([np.quantile(split_rhat(of), 0.9) for of in flat])
    return number / effective * length / outputs.shape[2], rhat


class _Seen(eqx.Module):
    """What was measured in a phase, ``[runs, chains, moments or looks, ...]``."""

    stiffness: Array
    heating: Array
    log_density: Array
    outputs: Array


def _with_step(chain: MinibatchChain, step_size: Array | None) -> MinibatchChain:
    return dataclasses.replace(chain, transformation=dataclasses.replace(waiting(chain), step_size=step_size))


def _with_steps(chains: Stack[MinibatchChain], step_sizes: np.ndarray) -> Stack[MinibatchChain]:
    stacked = jnp.asarray(step_sizes, jnp.float32)
    shared = _with_step(chains.shared, None)
    return dataclasses.replace(chains, apart=_with_step(chains.apart, stacked), shared=shared)


@eqx.filter_jit
def _start(chains: Stack[MinibatchChain], key: Key, num_chains: int) -> Chains:
    keys = jax.random.split(key, chains.number)
    return chains.each(lambda chain, key: start_chains(chain, key, num_chains), keys)


@eqx.filter_jit
def _phase(
    chains: Stack[MinibatchChain], states: Chains, steps: Array, key: Key, monitor: Array | None
) -> tuple[Chains, _Seen]:
    """`MOMENTS` times, `SLOTS` looks `steps` apart and a measurement."""

    def of_run(chain: MinibatchChain, key: Key, states: Chains) -> tuple[Chains, _Seen]:
        probe = _probe(chain)
        points = chain.inputs[:: max(1, len(chain.inputs) // POINTS)][:POINTS] if monitor is None else monitor

        def look(states: Chains, _: Any) -> tuple[Chains, tuple[Array, Array]]:
            states = jax.lax.fori_loop(0, steps, lambda _, now: step_chains(chain, now), states)
            log_density = jax.vmap(lambda draw: chain.posterior.log_density(draw, probe))(states.draws)
            outputs = jax.vmap(lambda draw: _outputs(chain, draw, points))(states.draws)
            return states, (log_density, outputs)

        def moment(states: Chains, key: Key) -> tuple[Chains, tuple[Array, Array, Array, Array]]:
            states, (log_density, outputs) = jax.lax.scan(look, states, length=SLOTS)
            keys = jax.random.split(key, len(jax.tree.leaves(states.states)[0]))
            stiff, hot = jax.vmap(lambda state, key: _measure(chain, state, key))(states.states, keys)
            return states, (stiff, hot, log_density, outputs)

        states, (stiff, hot, log_density, outputs) = jax.lax.scan(moment, states, jax.random.split(key, MOMENTS))
        log_density, outputs = (of.reshape(MOMENTS * SLOTS, *of.shape[2:]) for of in (log_density, outputs))
        return states, _Seen(*(jnp.swapaxes(of, 0, 1) for of in (stiff, hot, log_density, outputs)))

    return chains.each(of_run, jax.random.split(key, chains.number), states)


def _probe(chain: MinibatchChain) -> Data:
    """Rows to measure on, spread over the data."""
    stride = max(1, len(chain.inputs) // PROBES)
    return Data(chain.data.x[::stride], chain.data.y[::stride])


def _outputs(chain: MinibatchChain, draw: Any, x: Array) -> Array:
    """What a draw predicts at `x`: probabilities or means."""
    statistics = chain.posterior.distribution(draw, x).statistics()
    return statistics["probs"] if "probs" in statistics else statistics["mean"]


def _measure(chain: MinibatchChain, state: MinibatchState, key: Key) -> tuple[Array, Array]:
    """Stiffness and heating at the present draw of a chain."""
    stiff_key, noise_key, batch_key = jax.random.split(key, 3)
    noise_keys, batch_keys = jax.random.split(noise_key, 2 * MINIBATCHES), jax.random.split(batch_key, MINIBATCHES)
    probe = _probe(chain)

    def estimate(key: Key) -> Estimate:
        batch_key, own_key = jax.random.split(key)
        return chain.estimate(batch_key, own_key, state)

    def move(key: Key, of: Estimate) -> Any:
        return chain.transformation.update(of.grads, state.transformation, state.params, key=key, **of.extras)[0]

    def respond(direction: Any, of: Estimate) -> Any:
        """How much less far a step goes if the gradient grows by `direction`."""
        moved = jax.jvp(lambda grads: move(noise_keys[0], of._replace(grads=grads)), (of.grads,), (direction,))[1]
        return jax.tree.map(jnp.negative, moved)

    first = estimate(batch_keys[0])
    stiff = largest_eigenvalue(
        lambda direction: respond(
            jax.jvp(jax.grad(energy(chain.posterior, probe)), (state.params,), (direction,))[1], first
        ),
        state.params,
        stiff_key,
    )
    if chain.batch_size is None:
        return stiff, jnp.zeros(())
    by_noise = jax.vmap(lambda key: move(key, first))(noise_keys)
    by_batch = jax.lax.map(lambda key: move(noise_keys[0], estimate(key)), batch_keys)

    def share(noisy: Array, batched: Array) -> Array:
        # The mean of 1 / (a variance estimated from n values) is too large by (n - 1) / (n - 3).
        n = len(noisy)
        own = jnp.maximum(jnp.var(noisy, axis=0, ddof=1), 1e-30) * (n - 1) / (n - 3)
        return jnp.ravel(jnp.var(batched, axis=0, ddof=1) / own)

    added = jnp.mean(jnp.concatenate(jax.tree.leaves(jax.tree.map(share, by_noise, by_batch))))
    return stiff, added / (1 + added) if waiting(chain).compensates else added
