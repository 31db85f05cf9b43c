"""What tuning measures while chains burn in; `tuning.py` says what for."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from darkbayes.errors import Divergence, InvalidInput
from darkbayes.progress import progress_bar
from darkbayes.teacher.chain import Chains, MinibatchChain, MinibatchState, start_chains, step_chains
from darkbayes.teacher.diagnostics.convergence import effective_sample_size, split_rhat
from darkbayes.teacher.gradients.base import GradientEstimate, energy
from darkbayes.teacher.noise import normal_like
from darkbayes.teacher.samplers.auto import AutoStep
from darkbayes.teacher.stacking import Stack, stack
from darkbayes.types import Array, Data, Key, PyTree

MOMENTS, SLOTS = 4, 16  # Moments of measurement in a phase, and looks at the predictions from one to the next.
EARLIER = np.array([0.618, 0.236, 0.854, 0.0])
"""By how much earlier each moment comes than evenly, as a share of the steps between two looks. Anchors of gradients
that are renewed every so many steps (`svrg`) would otherwise be of one age at all moments, and of none at some lengths.
"""
FIRST_PHASE = 1024  # Steps.
PROBES = 2048  # Rows to measure the curvature and the log posterior on, where there are more.
POINTS = 32  # Training inputs to watch the predictions at.
MINIBATCHES = 8  # Gradients from which the noise of minibatches is measured.
SETTLED = 1.5  # The factor by which the step size may still want to change when burn-in ends.
RISE = 0.5  # Of the log posterior from the first to the second half of a phase at most, in standard deviations.
TRIES = 20  # How often a phase is begun again with smaller steps.
MEMORIES = 10  # How many autocorrelation times of the predictions the last phase of burn-in must span.


def waiting(chain: MinibatchChain) -> AutoStep:
    """The chain's sampler, which must be one with ``step_size="auto"``."""
    if not isinstance(chain.transformation, AutoStep):
        raise InvalidInput('tune needs a sampler that waits for its step size: use step_size="auto"')
    return chain.transformation


def some_of(inputs: Array) -> Array:
    """At most `POINTS` inputs to watch the predictions at, spread over all of them."""
    return inputs[:: max(1, len(inputs) // POINTS)][:POINTS]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What `explore` measured, of each of the chains."""

    step_size: np.ndarray
    stiffness: np.ndarray
    heating: np.ndarray
    autocorrelation: np.ndarray
    rhat: np.ndarray
    settled: np.ndarray
    burn_in: int
    seconds_per_step: float

    def of_each(self) -> list[dict[str, Any]]:
        """By chain, what was measured of it alone."""
        arrays = {name: value.tolist() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return [dict(zip(arrays, values, strict=True)) for values in zip(*arrays.values(), strict=True)]


def explore(
    chains: Sequence[MinibatchChain],
    key: Key,
    num_chains: int,
    inflation: float,
    heating: float,
    max_burn_in: int,
    latest: float | None,
    monitor: Array | None,
    label: str | None,
) -> Measured:
    """Run chains through their burn-in, a phase after the other, and find the step size of each; see `tune_all`."""
    all_chains = stack("tune_all", [_with_step(chain, jnp.ones((), jnp.float32)) for chain in chains])
    most_stiff = 2 * inflation / (1 + inflation)
    start_key, look_key = jax.random.split(key)
    states = _start(all_chains, start_key, num_chains)
    # A phase of no steps: stiffness is proportional to eta, and tells what the start allows.
    eta = np.ones(len(chains))
    seen = _phase(_with_steps(all_chains, eta), states, np.int32(0), look_key, monitor)[1]  # pyright: ignore[reportArgumentType]
    eta = most_stiff / np.maximum(np.quantile(np.asarray(seen.stiffness), 0.9, axis=(1, 2)), 1e-30)
    done, phase, length = 0, 1, FIRST_PHASE
    with progress_bar(label or "", max_burn_in, quiet=label is None) as show:
        while True:
            phase_key = jax.random.fold_in(look_key, phase)
            states, seen, eta, took = _finite_phase(all_chains, states, eta, length, phase_key, monitor)
            done, phase = done + length, phase + 1
            show(min(done, max_burn_in))
            stiff = np.quantile(seen.stiffness, 0.9, axis=(1, 2))
            hot = np.mean(seen.heating, axis=(1, 2))
            change = np.minimum(most_stiff / np.maximum(stiff, 1e-30), heating / np.maximum(hot, 1e-30))
            used, eta = eta, eta * np.clip(change, 0.1, 10.0)
            tau, rhat = _memory(np.asarray(seen.outputs), length)
            settled = (change < SETTLED) & (change > 1 / SETTLED)
            ended = settled & (_rise(np.asarray(seen.log_density)) < RISE) & (MEMORIES * tau < length)
            late = latest is not None and time.perf_counter() + 2 * took > latest
            if ended.all() or done + 2 * length > max_burn_in or late:
                break
            length *= 2
    factor = eta / used
    return Measured(eta, stiff * factor, hot * factor, tau / factor, rhat, ended, done, took / length)


def _finite_phase(
    chains: Stack[MinibatchChain], states: Chains, eta: np.ndarray, length: int, key: Key, monitor: Array | None
) -> tuple[Chains, Any, np.ndarray, float]:
    """A phase of `length` steps, begun again with smaller ones where chains leave the finite numbers.

    Returns the states after it, what was seen (on the host), the step sizes of it, and how many seconds it took.
    """
    for _ in range(TRIES):
        began = time.perf_counter()
        steps: Any = np.int32(length // (MOMENTS * SLOTS))
        after, seen = jax.block_until_ready(_phase(_with_steps(chains, eta), states, steps, key, monitor))
        took = time.perf_counter() - began
        seen = jax.tree.map(np.asarray, seen)
        finite = np.isfinite(seen.log_density).all(axis=(1, 2)) & np.isfinite(seen.stiffness).all(axis=(1, 2))
        if finite.all():
            return after, seen, eta, took
        eta = np.where(finite, eta, eta / 4)
    raise Divergence("no step size was found at which the chains stay finite: standardise the inputs and targets")


def _rise(log_density: np.ndarray) -> np.ndarray:
    """How far the log posterior, ``[runs, chains, looks]``, rises from half to half, in standard deviations."""
    half = log_density.shape[-1] // 2
    first, second = log_density[..., :half], log_density[..., half:]
    spread = np.sqrt(second.var(axis=-1).mean(axis=-1))
    return (second.mean(axis=(1, 2)) - first.mean(axis=(1, 2))) / np.maximum(spread, 1e-30)


def _memory(outputs: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Autocorrelation time in steps and R-hat of the predictions, at nine of ten inputs, for each run."""
    number = outputs.shape[1] * outputs.shape[2]
    flat = outputs.reshape(*outputs.shape[:3], -1)
    effective = np.stack([np.quantile(effective_sample_size(run), 0.1) for run in flat])
    rhat = np.stack([np.quantile(split_rhat(run), 0.9) for run in flat])
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
    """`MOMENTS` times, `SLOTS` looks about `steps` apart and a measurement."""
    earlier = jnp.floor(EARLIER * steps).astype(jnp.int32)
    lengths = jnp.full((MOMENTS, SLOTS), steps).at[:, -1].add(-earlier).at[1:, 0].add(earlier[:-1])

    def of_run(chain: MinibatchChain, key: Key, states: Chains) -> tuple[Chains, _Seen]:
        probe = _probe(chain)
        points = some_of(chain.inputs) if monitor is None else monitor

        def look(states: Chains, length: Array) -> tuple[Chains, tuple[Array, Array]]:
            states = jax.lax.fori_loop(0, length, lambda _, now: step_chains(chain, now), states)
            log_density = jax.vmap(lambda draw: chain.posterior.log_density(draw, probe))(states.draws)
            outputs = jax.vmap(lambda draw: chain.posterior.distribution(draw, points).outputs())(states.draws)
            return states, (log_density, outputs)

        def moment(states: Chains, x: tuple[Key, Array]) -> tuple[Chains, tuple[Array, Array, Array, Array]]:
            key, lengths = x
            states, (log_density, outputs) = jax.lax.scan(look, states, lengths)
            keys = jax.random.split(key, len(jax.tree.leaves(states.states)[0]))
            stiff, hot = jax.vmap(lambda state, key: _measure(chain, state, key))(states.states, keys)
            return states, (stiff, hot, log_density, outputs)

        states, (stiff, hot, log_density, outputs) = jax.lax.scan(
            moment, states, (jax.random.split(key, MOMENTS), lengths)
        )
        log_density, outputs = (seen.reshape(MOMENTS * SLOTS, *seen.shape[2:]) for seen in (log_density, outputs))
        return states, _Seen(*(jnp.swapaxes(seen, 0, 1) for seen in (stiff, hot, log_density, outputs)))

    return chains.each(of_run, jax.random.split(key, chains.number), states)


def _probe(chain: MinibatchChain) -> Data:
    """Rows to measure on, spread over the data."""
    return jax.tree.map(lambda leaf: leaf[:: max(1, len(leaf) // PROBES)], chain.data)


def _measure(chain: MinibatchChain, state: MinibatchState, key: Key) -> tuple[Array, Array]:
    """Stiffness and heating at the present draw of a chain."""
    stiff_key, noise_key, batch_key = jax.random.split(key, 3)
    noise_keys, batch_keys = jax.random.split(noise_key, 4 * MINIBATCHES), jax.random.split(batch_key, MINIBATCHES)
    probe = _probe(chain)

    def estimate(key: Key) -> GradientEstimate:
        batch_key, own_key = jax.random.split(key)
        return chain.estimate(batch_key, own_key, state)

    def move(key: Key, known: GradientEstimate) -> Any:
        return chain.transformation.update(known.grads, state.transformation, state.params, key=key, **known.extras)[0]

    first = estimate(batch_keys[0])

    def less_far(direction: Any) -> Any:
        """How much less far the next step goes if the present place moves by `direction`."""
        steeper = jax.jvp(jax.grad(energy(chain.posterior, probe)), (state.params,), (direction,))[1]
        moved = jax.jvp(lambda grads: move(noise_keys[0], first._replace(grads=grads)), (first.grads,), (steeper,))[1]
        return jax.tree.map(jnp.negative, moved)

    stiff, direction = largest_eigenvalue(less_far, state.params, stiff_key)
    if chain.batch_size is None:
        return stiff, jnp.zeros(())
    by_noise = jax.vmap(lambda key: move(key, first))(noise_keys)
    by_batch = jax.lax.map(lambda key: move(noise_keys[0], estimate(key)), batch_keys)

    # Minibatches heat the stiffest direction most, as their noise grows with what the data say: along it, in units
    # of the sampler's own noise, the variances are compared.
    own = jax.tree.map(lambda noisy: jnp.maximum(jnp.var(noisy, axis=0, ddof=1), 1e-30), by_noise)
    along = jax.tree.map(lambda leaf, variance: leaf / variance, direction, own)

    def spread(moves: PyTree) -> Array:
        parts = jax.tree.map(lambda leaf, weight: jnp.sum((leaf * weight).reshape(len(leaf), -1), axis=1), moves, along)
        return jnp.var(sum(jax.tree.leaves(parts)), ddof=1)

    return stiff, spread(by_batch) / jnp.maximum(spread(by_noise), 1e-30)


def largest_eigenvalue(
    operator: Callable[[PyTree], PyTree], like: PyTree, key: Key, iterations: int = 20
) -> tuple[Array, PyTree]:
    """The size of the largest eigenvalue of a linear operator on pytrees like `like`, by power iteration; and where to.

    >>> size, _ = largest_eigenvalue(lambda v: 2 * v * jnp.arange(1.0, 4.0), jnp.zeros(3), jax.random.key(0))
    >>> round(float(size), 2)
    6.0
    """
    direction = jax.tree.map(lambda xi, leaf: xi.astype(leaf.dtype), normal_like(key, like), like)

    def iterate(_: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        size = optax.tree.norm(carry[0])
        turned = operator(jax.tree.map(lambda leaf: leaf / size.astype(leaf.dtype), carry[0]))
        return turned, optax.tree.norm(turned).astype(jnp.float32)

    direction, size = jax.lax.fori_loop(0, iterations, iterate, (direction, jnp.zeros(())))
    return size, direction
