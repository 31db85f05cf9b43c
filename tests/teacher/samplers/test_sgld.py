"""The SGLD transformation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db

pytestmark = pytest.mark.usefixtures("strict")


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


def test_step_sizes_may_be_arrays_and_injected() -> None:
    db.sgld(jnp.float32(0.1))
    injected = optax.inject_hyperparams(db.sgld)(step_size=0.1)
    params = jnp.zeros(3)
    updates, _ = injected.update(params, injected.init(params), params, key=jax.random.key(0))
    assert jnp.all(updates != 0)
