"""Temperatures against known answers."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
import laws
from darkbayes.teacher.chain import start_chains, step_chains
from darkbayes.teacher.diagnostics.temperature import chains_kinetic_temperature, gradient_noise


@pytest.fixture(scope="module")
def exact(conjugate: Any) -> Any:
    """Draws from the known posterior at a temperature: ``exact(temperature, number)``."""

    def draws(temperature: float, number: int) -> db.model.Draw:
        spread = np.linalg.cholesky(temperature * conjugate.covariance)
        weights = conjugate.mean + np.random.default_rng(4).normal(size=(number, 2)) @ spread.T
        return db.model.Draw(jnp.asarray(weights[..., None], jnp.float32), ())

    return draws


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_exact_draws_have_their_temperature(temperature: float, conjugate: Any, exact: Any) -> None:
    """|z| < 4 over 4,000 draws; another seed fails with probability 6e-5."""
    actual = db.teacher.diagnostics.configurational_temperature(
        conjugate.posterior, exact(temperature, 4000), conjugate.data
    )
    assert abs(actual.mean() - temperature) < 4 * actual.std() / np.sqrt(4000)
    assert actual.std() / np.sqrt(4000) < 0.05


def test_the_noise_of_minibatches_is_that_of_independent_examples(conjugate: Any, exact: Any) -> None:
    """N^2/M times the trace of the covariance of the examples' gradients, over the square of their sum."""
    x, y = np.asarray(conjugate.data.x, np.float64), np.asarray(conjugate.data.y, np.float64)[:, 0]
    weights = np.array([2.0, 1.0])
    of_examples = conjugate.noise_precision * (x @ weights - y)[:, None] * x
    full = of_examples.sum(axis=0) + conjugate.prior_precision * weights
    expected = 36 / 2 * of_examples.var(axis=0).sum() / (full @ full)
    chain = db.minibatch_chain(conjugate.posterior, db.sgld(0.01), *conjugate.data, batch_size=2)
    copies = db.model.Draw(jnp.broadcast_to(jnp.asarray(weights, jnp.float32)[None, :, None], (500, 2, 1)), ())
    actual = gradient_noise(chain, copies, jax.random.key(0))
    assert actual is not None
    assert float(actual.noise_to_signal.mean()) == pytest.approx(expected, rel=0.1)
    np.testing.assert_allclose(actual.temperature, weights @ full / 2, rtol=1e-4)


class Momentum(NamedTuple):
    momentum: Any
    friction: Any = 0.0


def test_momenta_have_a_temperature_wherever_a_state_holds_them() -> None:
    momentum = {"w": np.sqrt(0.7) * np.random.default_rng(5).normal(size=(4, 5000))}
    assert db.teacher.diagnostics.kinetic_temperature(momentum) == pytest.approx(0.7, rel=0.05)
    apart = np.array([0.0, 0.0, 1.0, 1.0])
    states = (np.zeros(3), {"group": (Momentum(None), Momentum(momentum, apart))})
    expected = np.mean(momentum["w"] ** 2 * (1 - apart[:, None] / 2))
    assert chains_kinetic_temperature(states) == pytest.approx(expected)
    assert chains_kinetic_temperature((np.zeros(3), (), Momentum(None))) is None
    with pytest.raises(db.InvalidInput, match="not an empty tree"):
        db.teacher.diagnostics.kinetic_temperature({})


@pytest.mark.parametrize("friction", [0.1, 0.5])
def test_what_momenta_tend_to_as_steps_get_small(friction: float) -> None:
    """By the exact laws, in whose velocities v . v = eta/2 m . m."""
    eta, stiffness = 1e-4, np.array([0.5, 2.0])
    of_sghmc = laws.stationary(laws.sghmc(eta, np.diag(stiffness), None, 0.7, friction=friction))[2:, 2:]
    of_baoa = laws.stationary(laws.baoa(eta, np.diag(stiffness), None, 0.7, friction=friction))[2:, 2:]
    of_sgnht, actual = laws.sgnht(eta, stiffness, 0.0, 0.7, friction=friction)
    for covariance, kept in ((of_sghmc, friction), (of_baoa, 0.0), (laws.stationary(of_sgnht)[:, 1, 1], actual)):
        squares = np.diag(covariance) if covariance.ndim == 2 else covariance
        np.testing.assert_allclose(squares / (eta / 2) * (1 - kept / 2), 0.7, rtol=1e-3)


def test_the_momenta_of_chains_have_the_temperature_of_their_law(conjugate: Any, z_scores: Any) -> None:
    """SGHMC at temperature 0.7: 2,000 chains, in a step size at which the law is near its limit but not at it."""
    chain = db.minibatch_chain(
        conjugate.posterior, db.samplers.sghmc(0.01, friction=0.3, temperature=0.7), *conjugate.data, batch_size=None
    )

    @jax.jit
    def run(key: jax.Array) -> Any:
        chains = start_chains(chain, key, 2000)
        return jax.lax.fori_loop(0, 300, lambda _, now: step_chains(chain, now), chains).states

    states = run(jax.random.key(0))
    law = laws.sghmc(0.01, np.linalg.inv(conjugate.covariance), None, 0.7, friction=0.3)
    expected = np.trace(laws.stationary(law)[2:, 2:]) / 2 / 0.005 * (1 - 0.3 / 2)
    of_each = np.mean(np.asarray(states.transformation.momentum.network) ** 2, axis=(1, 2)) * (1 - 0.3 / 2)
    assert abs(z_scores(of_each, expected)) < 4
    assert chains_kinetic_temperature(states) == pytest.approx(of_each.mean(), rel=1e-4)
    assert expected == pytest.approx(0.7, rel=0.05)
