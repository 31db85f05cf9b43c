"""Stochastic gradient Hamiltonian Monte Carlo."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from teacher.samplers.cases import GRADIENTS, path

pytestmark = pytest.mark.usefixtures("strict")


def test_at_friction_one_sghmc_is_sgld() -> None:
    expected, _, _ = path(db.sgld(0.04, temperature=0.3), GRADIENTS)
    updates, _, _ = path(db.samplers.sghmc(0.04, friction=1.0, temperature=0.3), GRADIENTS)
    np.testing.assert_allclose(updates, expected, rtol=1e-5, atol=1e-7)


def test_sghmc_is_what_its_docstring_says() -> None:
    updates, noises, _ = path(db.samplers.sghmc(0.04, friction=0.3, noise_estimate=0.1, temperature=0.5), GRADIENTS)
    v = np.zeros(3)
    for g, xi, update in zip(GRADIENTS, noises, updates, strict=True):
        v = 0.7 * v - 0.02 * g + np.sqrt(0.04 * (0.3 * 0.5 - 0.1)) * xi
        np.testing.assert_allclose(update, v, rtol=1e-4, atol=1e-6)


def test_settings_may_be_injected() -> None:
    sampler = optax.inject_hyperparams(db.samplers.sghmc)(step_size=0.1, friction=0.2)
    params = jnp.ones(3)
    updates, _ = jax.jit(sampler.update)(params, sampler.init(params), params, key=jax.random.key(0))
    assert jnp.all(updates != 0)
