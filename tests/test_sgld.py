"""SGLD has the stationary law that theory gives it, not merely something near the target."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import linalg

import darkbayes as db

pytestmark = pytest.mark.usefixtures("strict")


def second_moments(
    transformation: optax.GradientTransformationExtraArgs, precision: np.ndarray, chains: int, burn_in: int, steps: int
) -> np.ndarray:
    """Each chain's average of theta theta^T over `steps` steps on N(0, precision^-1), with exact gradients.

    The chains are the rows of one array of weights: the sampler gives every weight noise of its own.
    """
    precision = jnp.asarray(precision, jnp.float32)

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        theta, state, total = carry
        updates, state = transformation.update(theta @ precision, state, theta, key=key)
        theta = optax.apply_updates(theta, updates)
        total = total + (state.count > burn_in).astype(jnp.float32) * theta[:, :, None] * theta[:, None, :]
        return (theta, state, total), None

    @jax.jit
    def run(keys: jax.Array) -> jax.Array:
        theta = jnp.zeros((chains, len(precision)))
        start = theta, transformation.init(theta), jnp.zeros((chains, *precision.shape))
        return jax.lax.scan(step, start, keys)[0][2] / steps

    return np.asarray(run(jax.random.split(jax.random.key(0), burn_in + steps)))


@pytest.mark.parametrize("step_size", [0.2, 0.5, 1.0, 2.0])
def test_sgld_has_the_exact_stationary_variance_on_a_gaussian(step_size: float, z_scores: Any) -> None:
    """1/(1 - eta/4) on N(0, 1); fails by chance with probability 1e-5 a case for another seed."""
    squares = second_moments(db.sgld(step_size), np.eye(1), chains=4000, burn_in=100, steps=1000)[:, 0, 0]
    assert abs(z_scores(squares, 1 / (1 - step_size / 4))) < 4.4
    # Near misses are told apart: the target's own variance, and the drift eta instead of eta/2.
    assert abs(z_scores(squares, 1.0)) > 10
    assert abs(z_scores(squares, 0.5 / (1 - step_size / 2) if step_size < 2 else np.inf)) > 10


@pytest.mark.parametrize("temperature", [0.1, 3.0])
def test_the_temperature_multiplies_the_stationary_variance(temperature: float, z_scores: Any) -> None:
    """Fails by chance with probability 1e-5 a case for another seed."""
    squares = second_moments(db.sgld(0.5, temperature), np.eye(1), chains=2000, burn_in=100, steps=300)[:, 0, 0]
    assert abs(z_scores(squares, temperature / (1 - 0.5 / 4))) < 4.4


def test_sgld_has_the_exact_stationary_covariance_on_a_correlated_gaussian(z_scores: Any) -> None:
    """The solution of S = A S A^T + eta I, A = I - eta/2 P, in 5-D; 15 entries at |z| < 4.7.

    Fails by chance with probability 4e-5 for another seed.
    """
    rng = np.random.default_rng(1)
    mixing = rng.normal(size=(5, 5)) / np.sqrt(5)
    precision = mixing @ mixing.T + 0.5 * np.eye(5)
    step_size = 1.0 / np.linalg.eigvalsh(precision).max()
    stationary = linalg.solve_discrete_lyapunov(np.eye(5) - step_size / 2 * precision, step_size * np.eye(5))
    # The same in closed form in the eigenbasis, as the sampler's docstring has it.
    np.testing.assert_allclose(
        stationary, np.linalg.inv(precision @ (np.eye(5) - step_size / 4 * precision)), rtol=1e-6
    )

    moments = second_moments(db.sgld(step_size), precision, chains=4000, burn_in=150, steps=500)
    entries = np.triu_indices(5)
    assert np.abs(z_scores(moments, stationary)[entries]).max() < 4.7
    assert np.abs(z_scores(moments, np.linalg.inv(precision))[entries]).max() > 10


def test_an_update_is_half_a_step_downhill_plus_noise_of_variance_eta() -> None:
    grads, key = jnp.array([1.0, -2.0, 0.0]), jax.random.key(3)
    transformation = db.sgld(0.04, temperature=0.25)
    updates, _ = transformation.update(grads, transformation.init(grads), key=key)
    noise, _ = transformation.update(jnp.zeros(3), transformation.init(grads), key=key)
    np.testing.assert_allclose(updates - noise, -0.02 * grads, atol=1e-7)
    np.testing.assert_allclose(noise, np.sqrt(0.04 * 0.25) * jax.random.normal(key, (3,)), rtol=1e-5)


def test_sgld_follows_schedules_of_step_size_and_temperature() -> None:
    transformation = db.sgld(lambda t: jnp.where(t < 1, 0.5, 2.0), lambda t: jnp.where(t < 1, 1.0, 4.0))
    grads, state = jnp.ones(4), transformation.init(jnp.ones(4))
    for eta, temperature in ((0.5, 1.0), (2.0, 4.0), (2.0, 4.0)):
        key = jax.random.key(0)
        updates, state = transformation.update(grads, state, key=key)
        expected = -0.5 * eta * np.ones(4) + np.sqrt(eta * temperature) * np.asarray(jax.random.normal(key, (4,)))
        np.testing.assert_allclose(updates, expected, rtol=1e-5)
    assert int(state.count) == 3


def test_sgld_composes_with_clipping() -> None:
    transformation = optax.chain(optax.clip_by_global_norm(1.0), db.sgld(1e-12))
    weights = jnp.zeros(2)
    updates, _ = transformation.update(
        jnp.array([3e8, 4e8]), transformation.init(weights), weights, key=jax.random.key(0)
    )
    assert np.abs(updates).max() < 1e-5


def test_a_mask_makes_a_last_layer_sampler() -> None:
    weights = {"body": jnp.ones(3), "head": jnp.ones(2)}
    transformation = optax.chain(
        optax.masked(db.sgld(0.1), {"body": False, "head": True}),
        optax.masked(optax.set_to_zero(), {"body": True, "head": False}),
    )
    updates, _ = transformation.update(weights, transformation.init(weights), weights, key=jax.random.key(0))
    np.testing.assert_array_equal(updates["body"], 0.0)
    assert np.abs(updates["head"]).min() > 0


# Schedules


def test_the_stepped_schedule_halves_where_the_paper_halves() -> None:
    schedule = db.stepped(1e-5, factor=0.5, every=80_000)
    steps, expected = [0, 79_999, 80_000, 159_999, 160_000, 400_000], [1, 1, 1 / 2, 1 / 2, 1 / 4, 1 / 32]
    np.testing.assert_allclose([float(schedule(t)) for t in steps], 1e-5 * np.array(expected), rtol=1e-6)


def test_the_polynomial_schedule_is_that_of_welling_and_teh() -> None:
    steps = np.array([0, 1, 10, 12_345, 10**7])
    values = [float(db.polynomial(0.3, offset=2.5, power=0.55)(jnp.int32(t))) for t in steps]
    np.testing.assert_allclose(values, 0.3 * (2.5 + steps) ** -0.55, rtol=1e-5)


@pytest.mark.parametrize("schedule", [db.stepped(0.1, 0.5, 2), db.polynomial(0.1)], ids=["stepped", "polynomial"])
def test_schedules_work_on_traced_counts(schedule: optax.Schedule) -> None:
    counts = jnp.arange(5, dtype=jnp.int32)
    traced = jax.vmap(schedule)(counts)
    np.testing.assert_allclose(traced, [float(schedule(int(t))) for t in counts], rtol=1e-6)


def test_groups_of_parameters_get_noise_of_their_own() -> None:
    """``optax.multi_transform`` hands one key to every group."""
    groups = optax.multi_transform({"a": db.sgld(1.0), "b": db.sgld(1.0)}, {"x": "a", "y": "b"})
    params = {"x": jnp.zeros(1000), "y": jnp.zeros(1000)}
    updates, _ = groups.update(params, groups.init(params), params, key=jax.random.key(0))
    correlation = np.corrcoef(updates["x"], updates["y"])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(1000)


def test_a_schedule_that_begins_below_zero_is_refused() -> None:
    with pytest.raises(db.InvalidInput, match=r"step_size at the first step must be a positive number, not -1\.0"):
        db.sgld(lambda count: -1.0)


def test_step_sizes_may_be_arrays_and_injected() -> None:
    db.sgld(jnp.float32(0.1))
    injected = optax.inject_hyperparams(db.sgld)(step_size=0.1)
    params = jnp.zeros(3)
    updates, _ = injected.update(params, injected.init(params), params, key=jax.random.key(0))
    assert jnp.all(updates != 0)
