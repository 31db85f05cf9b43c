"""Every sampler has the law that its paper's equations give it on a Gaussian, step size, minibatch noise and all.

The laws are in `laws.py`, written down without a look at the samplers. Thousands of independent chains run
until a hundredth of where they began is left, which in covariances is a ten-thousandth. One draw of each is then
compared with the law: every mean and every entry of the covariance of theta and velocity, as they are and whitened,
within 4 standard errors. That is the bar for each entry at a fixed seed; there are about 2,600 of them below, so that
with another seed about one run in seven would miss it somewhere by chance alone.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import linalg

import darkbayes as db
import laws

pytestmark = pytest.mark.usefixtures("strict", "optimised")

BAR = 4.0


def rotated(eigenvalues: list[float], seed: int) -> np.ndarray:
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(eigenvalues),) * 2))[0]
    return rotation * eigenvalues @ rotation.T


HESSIAN = rotated([1.0, 5.0, 30.0], seed=0)
NOISES = {"exact": np.zeros((3, 3)), "noisy": rotated([5.0, 15.0, 40.0], seed=1)}

Make = Callable[[Any, Any], optax.GradientTransformationExtraArgs]


@functools.partial(jax.jit, static_argnums=(0, 1))
def advance(
    make: Make,
    gradient: Callable[[Any, jax.Array, jax.Array], jax.Array],
    target: Any,
    chains: Any,
    seed: Any,
    steps: Any,
    step_size: Any,
    temperature: Any,
) -> Any:
    """So many steps of every chain; `chains` is None at first, or where another call left them.

    All numbers are arguments, so that a sampler compiles once. ``gradient(target, key, theta)`` is that of all chains.
    """
    sampler = make(step_size, temperature)

    def one(step: jax.Array, chains: Any) -> Any:
        theta, states = chains
        gradient_key, noise_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), step))
        keys = jax.random.split(noise_key, len(theta))

        def move(key: jax.Array, g: jax.Array, theta: jax.Array, state: Any) -> Any:
            updates, state = sampler.update(g, state, theta, key=key)
            return optax.apply_updates(theta, updates), state

        return jax.vmap(move)(keys, gradient(target, gradient_key, theta), theta, states)

    return jax.lax.fori_loop(0, steps, one, chains)


@functools.partial(jax.jit, static_argnums=0)
def begin(make: Make, theta: jax.Array, step_size: Any, temperature: Any) -> Any:
    return theta, jax.vmap(make(step_size, temperature).init)(theta)


def correlated(target: Any, key: jax.Array, theta: jax.Array) -> jax.Array:
    """The gradient of the negative log posterior on N(0, H^-1), with noise N(0, root root^T) as of minibatches."""
    hessian, root = target
    return theta @ hessian + jax.random.normal(key, theta.shape) @ root


def scores(values: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Means and entries of the covariance of ``values[chain]``, less what they should be, in standard errors.

    Each chain may have a covariance of its own; the errors are those of independent Gaussians.
    """
    values, entries = np.asarray(values, np.float64), np.triu_indices(values.shape[-1])
    covariance = np.broadcast_to(covariance, (len(values), *covariance.shape[-2:]))
    variances = np.diagonal(covariance, axis1=1, axis2=2)
    means = values.sum(axis=0) / np.sqrt(variances.sum(axis=0))
    products = values[:, :, None] * values[:, None, :] - covariance
    spread = variances[:, :, None] * variances[:, None, :] + covariance**2
    squares = products.sum(axis=0) / np.sqrt(spread.sum(axis=0))
    return np.concatenate([means, squares[entries]])


def all_scores(values: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Scores of the values as they are, and of those whitened by the covariance, where every direction counts alike."""
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    white = np.einsum("...ij,...j->...i", root, np.asarray(values, np.float64))
    return np.concatenate([scores(values, covariance), scores(white, np.eye(values.shape[-1]))])


@dataclasses.dataclass(frozen=True)
class Case:
    """A sampler, and the law that its state should follow."""

    make: Make
    law: Callable[..., laws.Law]
    """``law(step_size, hessian, noise, temperature, state)``."""
    step_sizes: tuple[float, float]
    velocity: Callable[[float, Any], np.ndarray] | None = None
    """The paper's velocity from the sampler's state, if it has one."""
    adapt: int = 0
    """Steps to adapt before the law holds."""
    chains: int = 6000


def plain_velocity(step_size: float, state: Any) -> np.ndarray:
    return np.sqrt(step_size / 2) * np.asarray(state.momentum)


def psgld_law(step_size: float, hessian: Any, noise: Any, temperature: float, state: Any) -> laws.Law:
    return laws.sgld(step_size, hessian, noise, temperature, scale=1 / (0.01 + np.sqrt(state.squares)))


def fisher_law(step_size: float, hessian: Any, noise: Any, temperature: float, state: Any) -> laws.Law:
    """A quarter of the data in a batch: F = V/4 / (1 + 1/4)."""
    return laws.sgld(step_size, hessian, noise, temperature, scale=1 / (state.squares / 5 + 1.0))


def fisher_momentum_law(step_size: float, hessian: Any, noise: Any, temperature: float, state: Any) -> laws.Law:
    scale = 1 / (state.squares / 5 + 1.0)
    return laws.sghmc(step_size, hessian, noise, temperature, friction=0.4, scale=scale)


def scale_adapted_law(step_size: float, hessian: Any, noise: Any, temperature: float, state: Any) -> laws.Law:
    scale, brought = 1 / np.sqrt(state.squares), step_size**2 / 4
    assert (brought < step_size * 0.4 * temperature * scale).all(), "the law is that without the bound on the noise"
    return laws.sghmc(step_size, hessian, noise, temperature, friction=0.4, scale=scale, brought=brought)


CASES = {
    "sgld": Case(
        lambda eta, heat: db.sgld(eta, heat),
        lambda *setting: laws.sgld(*setting[:4]),
        (0.04, 0.08),
    ),
    "psgld": Case(
        lambda eta, heat: db.samplers.psgld(
            eta, num_data=50, decay=0.95, damping=0.01, adapt_steps=80, temperature=heat
        ),
        psgld_law,
        (0.004, 0.008),
        adapt=80,
        chains=2500,
    ),
    "fisher_sgld": Case(
        lambda eta, heat: db.samplers.fisher_sgld(
            eta, prior_precision=1.0, batch_share=0.25, decay=0.95, adapt_steps=80, temperature=heat
        ),
        fisher_law,
        (0.2, 0.4),
        adapt=80,
        chains=2500,
    ),
    "fisher_sgld with friction": Case(
        lambda eta, heat: db.samplers.fisher_sgld(
            eta, prior_precision=1.0, batch_share=0.25, friction=0.4, decay=0.95, adapt_steps=80, temperature=heat
        ),
        fisher_momentum_law,
        (0.08, 0.16),
        lambda eta, state: np.sqrt(eta / 2 / (state.squares / 5 + 1)) * state.momentum,
        adapt=80,
        chains=2500,
    ),
    "sghmc": Case(
        lambda eta, heat: db.samplers.sghmc(eta, friction=0.2, temperature=heat),
        lambda *setting: laws.sghmc(*setting[:4], friction=0.2),
        (0.06, 0.15),
        plain_velocity,
    ),
    "sghmc with a noise estimate": Case(
        lambda eta, heat: db.samplers.sghmc(eta, friction=0.5, noise_estimate=0.2, temperature=heat),
        lambda *setting: laws.sghmc(*setting[:4], friction=0.5, noise_estimate=0.2),
        (0.06, 0.15),
        plain_velocity,
    ),
    "scale_adapted_sghmc": Case(
        lambda eta, heat: db.samplers.scale_adapted_sghmc(eta, friction=0.4, adapt_steps=80, temperature=heat),
        scale_adapted_law,
        (0.06, 0.1),
        lambda eta, state: np.sqrt(eta / 2 / np.sqrt(state.squares)) * state.momentum,
        adapt=80,
        chains=2500,
    ),
    "baoa": Case(
        lambda eta, heat: db.samplers.baoa(eta, friction=0.2, temperature=heat),
        lambda *setting: laws.baoa(*setting[:4], friction=0.2),
        (0.06, 0.15),
        plain_velocity,
    ),
}

SETTINGS = [(step, noise, 1.0) for noise in NOISES for step in (0, 1)] + [(0, "noisy", 0.5)]


def settled(case: Case, step_size: float, noise: np.ndarray, temperature: float) -> tuple[np.ndarray, laws.Law]:
    """One draw of theta and velocity of each chain, long after its start, and the law of each."""
    target = (
        jnp.asarray(HESSIAN, jnp.float32),
        jnp.asarray(np.linalg.cholesky(noise + 1e-12 * np.eye(3)).T, jnp.float32),
    )
    start = np.random.default_rng(2).normal(size=(case.chains, 3)) @ np.linalg.cholesky(np.linalg.inv(HESSIAN)).T
    numbers = np.float32(step_size), np.float32(temperature)
    chains = begin(case.make, jnp.asarray(start, jnp.float32), *numbers)
    chains = advance(case.make, correlated, target, chains, 3, case.adapt, *numbers)
    state = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), chains[1])
    law = case.law(step_size, HESSIAN, noise, temperature, state)
    steps = math.ceil(math.log(0.01) / math.log(laws.slowest(law)))
    theta, state = advance(case.make, correlated, target, chains, 4, steps, *numbers)
    parts = [theta] if case.velocity is None else [theta, case.velocity(step_size, state)]
    return np.concatenate([np.asarray(part) for part in parts], axis=1), law


@pytest.mark.parametrize(("step", "noise", "temperature"), SETTINGS)
@pytest.mark.parametrize("name", CASES)
def test_a_sampler_has_its_stationary_law(name: str, step: int, noise: str, temperature: float) -> None:
    case = CASES[name]
    values, law = settled(case, case.step_sizes[step], NOISES[noise], temperature)
    assert np.abs(all_scores(values, laws.stationary(law))).max() < BAR
    # Few as the chains are, they see a fifth more or less; the target differs by far more where minibatches are noisy.
    assert np.abs(all_scores(values, 1.2 * laws.stationary(law))).max() > BAR
    if step == 1 and noise == "noisy" and name in ("sgld", "psgld", "sghmc", "baoa"):
        assert np.abs(all_scores(values[:, :3], np.linalg.inv(HESSIAN))).max() > 4 * BAR


# The thermostat, which is not linear: with many weights it stands still, and the law is that at its friction


STIFFNESS = np.array([1.0, 3.0, 10.0, 30.0])
VARIANCES = {"exact": np.zeros(4), "noisy": np.array([30.0, 20.0, 10.0, 40.0])}
EACH = 128


def independent(target: Any, key: jax.Array, theta: jax.Array) -> jax.Array:
    stiffness, spread = target
    return theta * stiffness + jax.random.normal(key, theta.shape) * spread


def thermostat(step_size: Any, temperature: Any) -> optax.GradientTransformationExtraArgs:
    return db.samplers.sgnht(step_size, friction=0.2, temperature=temperature)


@pytest.mark.parametrize(
    ("step_size", "noise", "temperature"),
    [(0.03, "exact", 1.0), (0.03, "noisy", 0.5), (0.06, "noisy", 1.0)],
)
def test_the_thermostat_finds_its_friction_and_has_the_law_that_goes_with_it(
    step_size: float, noise: str, temperature: float, z_scores: Any
) -> None:
    """128 weights of each of four stiffnesses, and noise of other variances: 200 chains from friction 0.2."""
    law, friction = laws.sgnht(step_size, STIFFNESS, VARIANCES[noise], temperature, friction=0.2)
    rows = [np.repeat(part, EACH)[None].astype(np.float32) for part in (STIFFNESS, np.sqrt(VARIANCES[noise]))]
    numbers = np.float32(step_size), np.float32(temperature)
    chains = begin(thermostat, jnp.zeros((200, 4 * EACH)), *numbers)
    steps = math.ceil(math.log(0.01) / math.log(laws.slowest(law)))
    theta, state = advance(thermostat, independent, tuple(rows), chains, 5, 2 * steps, *numbers)
    values = np.stack([theta, plain_velocity(step_size, state)], axis=-1).reshape(200, 4, EACH, 2).astype(np.float64)
    squares = np.einsum("cgni,cgnj->cgij", values, values) / EACH
    entries = (..., *np.triu_indices(2))
    actual = [z_scores(values.mean(axis=2), 0.0), z_scores(squares, laws.stationary(law))[entries]]
    assert max(np.abs(part).max() for part in actual) < BAR
    assert abs(z_scores(state.friction, friction)) < BAR


# Cycles: the law at every step is that of its step size and temperature


def cyclical_sgld(peak: Any, temperature: Any) -> optax.GradientTransformationExtraArgs:
    return db.sgld(*db.schedules.cyclical(peak, cycle=20, explore=0.4, temperature=temperature))


def cyclical_sghmc(peak: Any, temperature: Any) -> optax.GradientTransformationExtraArgs:
    schedules = db.schedules.cyclical(peak, cycle=20, explore=0.4, temperature=temperature)
    return db.samplers.sghmc(schedules.step_size, friction=0.2, temperature=schedules.temperature)


@pytest.mark.parametrize("steps", [45, 60])
@pytest.mark.parametrize("name", ["sgld", "sghmc"])
def test_a_sampler_in_cycles_has_the_law_of_each_step_in_turn(name: str, steps: int) -> None:
    """In the midst of a cycle's cold part, and at the end of a cycle, from all chains at one point.

    S <- A S A^T + Q with the step size and temperature of Zhang et al. (2020) for each step. Between two steps the
    velocity is scaled as the square root of the step size, so that it stays as warm as it was.
    """
    peak, noise = 0.1, NOISES["noisy"]
    start = np.array([1.0, -1.0, 2.0])
    mean, covariance, last = np.zeros(6), np.zeros((6, 6)), peak
    mean[:3] = start
    for step in range(steps):
        share = (step % 20) / 20
        eta, temperature = peak / 2 * (np.cos(np.pi * share) + 1), float(share >= 0.4)
        if name == "sgld":
            small = laws.sgld(eta, HESSIAN, noise, temperature)
            law = laws.Law(*(np.pad(part, ((0, 3), (0, 3))) for part in small))
        else:
            law = laws.sghmc(eta, HESSIAN, noise, temperature, friction=0.2)
        rescaled = law.transition @ np.diag([1.0] * 3 + [np.sqrt(eta / last)] * 3)
        mean, covariance = rescaled @ mean, rescaled @ covariance @ rescaled.T + law.noise
        last = eta
    make = {"sgld": cyclical_sgld, "sghmc": cyclical_sghmc}[name]
    target = [jnp.asarray(part, jnp.float32) for part in (HESSIAN, np.linalg.cholesky(noise).T)]
    chains = begin(make, jnp.broadcast_to(jnp.asarray(start, jnp.float32), (6000, 3)), np.float32(peak), np.float32(1))
    theta, state = advance(make, correlated, tuple(target), chains, 6, steps, np.float32(peak), np.float32(1))
    values = np.asarray(theta) - mean[:3]
    if name == "sghmc":
        values = np.concatenate([values, plain_velocity(last, state) - mean[3:]], axis=1)
    dim = values.shape[1]
    assert np.abs(all_scores(values, covariance[:dim, :dim])).max() < BAR


# The laws themselves


def test_the_stationary_covariance_solves_its_equation() -> None:
    for law in (
        laws.sgld(0.05, HESSIAN, NOISES["noisy"], 0.7),
        laws.sghmc(0.05, HESSIAN, NOISES["noisy"], 0.7, friction=0.1, scale=np.array([0.5, 2.0, 1.0])),
        laws.baoa(0.05, HESSIAN, NOISES["noisy"], 0.7, friction=0.1),
    ):
        np.testing.assert_allclose(laws.stationary(law), linalg.solve_discrete_lyapunov(*law), rtol=1e-9)


def test_the_law_of_sgld_is_its_closed_form() -> None:
    """T / (H (1 - eta/4 H)), and T + eta/4 C in place of T where C and H have the same eigenvectors."""
    eigenvalues, rotation = np.linalg.eigh(HESSIAN)
    variances = np.array([3.0, 1.0, 20.0])
    expected = (0.7 + 0.06 / 4 * variances) / (eigenvalues * (1 - 0.06 / 4 * eigenvalues))
    law = laws.sgld(0.06, HESSIAN, rotation * variances @ rotation.T, 0.7)
    np.testing.assert_allclose(laws.stationary(law), rotation * expected @ rotation.T, rtol=1e-9)


def test_at_friction_one_sghmc_has_the_law_of_sgld() -> None:
    with_momentum = laws.stationary(laws.sghmc(0.06, HESSIAN, NOISES["noisy"], friction=1.0))[:3, :3]
    np.testing.assert_allclose(with_momentum, laws.stationary(laws.sgld(0.06, HESSIAN, NOISES["noisy"])), rtol=1e-9)


def test_a_right_estimate_leaves_no_noise_added_twice() -> None:
    """beta = eta C / 4, whatever the temperature."""
    law = laws.sghmc(0.06, HESSIAN, 8.0 * np.eye(3), 0.5, friction=0.4, noise_estimate=0.06 / 4 * 8.0)
    np.testing.assert_allclose(
        laws.stationary(law), laws.stationary(laws.sghmc(0.06, HESSIAN, None, 0.5, friction=0.4)), rtol=1e-9
    )


@pytest.mark.parametrize("friction", [0.1, 0.5, 1.0])
def test_the_splitting_has_no_bias_and_the_others_one_that_falls_with_the_step_size(friction: float) -> None:
    target = np.linalg.inv(HESSIAN)
    for eta in (1e-3, 0.02, 0.2):
        covariance = laws.stationary(laws.baoa(eta, HESSIAN, None, 0.7, friction=friction))[:3, :3]
        np.testing.assert_allclose(covariance, 0.7 * target, rtol=1e-8)

    def bias(law: laws.Law) -> float:
        return float(np.abs(laws.stationary(law)[:3, :3] - target).max())

    for law in (laws.sgld, functools.partial(laws.sghmc, friction=friction)):
        ratio = bias(law(2e-3, HESSIAN, NOISES["noisy"])) / bias(law(1e-3, HESSIAN, NOISES["noisy"]))
        assert 1.9 < ratio < 2.1


def test_the_thermostat_has_no_bias_among_equals_and_one_that_falls_with_the_step_size_otherwise() -> None:
    for eta, variance, temperature in ((1.0, 0.0, 1.0), (0.5, 3.0, 1.0), (0.1, 8.0, 0.5)):
        alike = laws.sgnht(eta, np.full(2, 1.5), variance, temperature, friction=0.2)
        np.testing.assert_allclose(laws.stationary(alike.laws)[:, 0, 0], temperature / 1.5, rtol=1e-9)

    def bias(eta: float) -> float:
        actual = laws.sgnht(eta, STIFFNESS, VARIANCES["noisy"], friction=0.5)
        return float(np.abs(laws.stationary(actual.laws)[:, 0, 0] * STIFFNESS - 1).max())

    assert 1.9 < bias(2e-3) / bias(1e-3) < 2.1


def test_the_thermostat_rests_where_sghmc_would_have_been_told_the_noise() -> None:
    """At friction alpha + eta C / (4 T), but for the step's own error."""
    actual = laws.sgnht(1e-3, np.ones(2), 40.0, 0.5, friction=0.1)
    assert actual.friction == pytest.approx(0.1 + 1e-3 * 40 / 4 / 0.5, rel=0.01)


def test_a_step_size_that_never_settles_is_refused() -> None:
    with pytest.raises(db.InvalidInput, match="does not settle: use a smaller step size"):
        laws.stationary(laws.sgld(0.2, HESSIAN))
    with pytest.raises(db.InvalidInput, match="finds no friction below 1: use a smaller step size"):
        laws.sgnht(0.1, np.ones(2), 50.0, friction=0.1)
