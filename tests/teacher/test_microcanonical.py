"""Microcanonical chains against exact posteriors, and what they learn on the way."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import darkbayes as db
from darkbayes.errors import InvalidInput
from darkbayes.teacher.chain import burn, start_chains
from darkbayes.teacher.microcanonical import _turn

ROWS, COLUMNS, PRECISION = 120, 5, 4.0


@pytest.fixture(scope="module")
def problem():
    """Bayesian linear regression with correlated columns: its posterior is a Gaussian that is known."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(ROWS, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS))).astype(np.float32)
    y = (x @ rng.normal(size=COLUMNS) + rng.normal(size=ROWS) / np.sqrt(PRECISION)).astype(np.float32)[:, None]
    likelihood, prior = db.outcomes.Gaussian(PRECISION), db.priors.GaussianPrior(1.0)
    posterior = db.Posterior(db.mlp([], 1), likelihood, prior, num_data=ROWS)
    # The draw's arrays lie in the order of its leaves.
    draw = posterior.init(jax.random.key(0), jnp.asarray(x))
    rows = jax.vmap(
        lambda row: ravel_pytree(jax.grad(lambda d: posterior.network.apply(d.network, row[None])[0, 0])(draw))[0]
    )
    design = np.asarray(rows(jnp.asarray(x)), np.float64)
    hessian = PRECISION * design.T @ design + np.eye(COLUMNS + 1)
    mean = np.linalg.solve(hessian, PRECISION * design.T @ y[:, 0])
    return posterior, x, y, mean, hessian


def temperatures(problem, draws):
    """The variance of draws along each eigenvector of the Hessian, over the exact one; and how far the mean is off."""
    *_, mean, hessian = problem
    flat = np.asarray(jax.vmap(jax.vmap(lambda draw: ravel_pytree(draw)[0]))(draws), np.float64)
    values, vectors = np.linalg.eigh(hessian)
    along = (flat.reshape(-1, len(mean)) - mean) @ vectors * np.sqrt(values)
    return (along**2).mean(axis=0), np.abs(along.mean(axis=0)).max()


def test_draws_have_the_temperature_of_the_posterior_along_every_direction(problem):
    posterior, x, y, *_ = problem
    chain = db.mclmc_chain(posterior, x, y, burn_in=2_000, thin=8, energy_error=2e-4)
    warmth, off = temperatures(problem, db.sample(chain, jax.random.key(1), num_chains=16, num_draws=1_000))
    # Standard error of a temperature: about .02.
    assert warmth.min() > 0.9
    assert warmth.max() < 1.1
    assert off < 0.1


def test_adjusted_draws_are_exact_at_any_step_size(problem):
    posterior, x, y, *_ = problem
    # Half of the paths are rejected: what is left over of the error would show.
    chain = db.teacher.adjusted_mclmc_chain(posterior, x, y, burn_in=400, accept=0.5)
    warmth, off = temperatures(problem, db.sample(chain, jax.random.key(2), num_chains=16, num_draws=1_000))
    assert warmth.min() > 0.9
    assert warmth.max() < 1.1
    assert off < 0.1


def test_a_turn_keeps_the_length_and_counts_its_energy():
    """Along an exact path of one dimension's potential the kinetic energy gains what the potential loses."""
    keys = jax.random.split(jax.random.key(0))
    direction, gradient = (jax.random.normal(key, (7,)) for key in keys)
    direction = direction / jnp.linalg.norm(direction)
    turned, gained = _turn(direction, gradient, jnp.asarray(1e-3))
    assert np.isclose(float(jnp.linalg.norm(turned)), 1.0, atol=1e-6)
    # To first order the direction moves by the part of the gradient across it, the energy by the part along it.
    across = gradient - jnp.dot(gradient, direction) * direction
    np.testing.assert_allclose(turned - direction, 1e-3 / 6 * across, atol=2e-6)
    np.testing.assert_allclose(gained, 1e-3 * jnp.dot(gradient, direction), rtol=2e-2)


def test_the_energy_error_is_met_and_settings_are_frozen_after_burn_in(problem):
    posterior, x, y, *_ = problem
    chain = db.mclmc_chain(posterior, x, y, burn_in=1_000, thin=1, energy_error=1e-3)
    state = start_chains(chain, jax.random.key(0), 4)
    burnt = burn(chain, state, jnp.int32(1_000))
    settings = jax.tree.map(np.asarray, burnt.states.settings)  # Its memory is given to what follows.
    later = burn(chain, burnt, jnp.int32(1_000))
    np.testing.assert_array_equal(later.states.settings.step_size, settings.step_size)
    np.testing.assert_array_equal(later.states.settings.length, settings.length)
    assert 1e-4 < float(jnp.median(later.states.energy_error)) < 1e-2
    # The length is that of the posterior, not of the prior.
    *_, hessian = problem
    spread = np.sqrt(np.trace(np.linalg.inv(hessian)))
    assert 0.4 < float(jnp.median(later.states.settings.length)) / spread < 2.0


def test_a_chain_of_paths_soon_has_its_step_size_and_counts_its_gradients(problem):
    posterior, x, y, *_ = problem
    chain = db.teacher.adjusted_mclmc_chain(posterior, x, y, burn_in=400)
    soon = burn(chain, start_chains(chain, jax.random.key(0), 4), jnp.int32(25))
    step, number = np.median(soon.states.settings.step_size), np.max(soon.states.gradients)
    # The n-th path has n steps at most, of two gradients each.
    assert 25 < number <= 1 + 25 * 26
    later = burn(chain, soon, jnp.int32(375))
    (step_size, length, *_), spent = jax.tree.map(np.asarray, (later.states.settings, later.states.gradients))
    assert 1 / 3 < step / np.median(step_size) < 3
    # A path has L / eps steps on average, half a step more as their number is whole.
    after = burn(chain, later, jnp.int32(400)).states.gradients
    assert np.mean(after - spent) == pytest.approx(np.mean(2 * 400 * (length / step_size + 0.5)), rel=0.1)


def test_rows_that_only_fill_up_do_not_count(problem):
    posterior, x, y, *_ = problem
    chain = db.mclmc_chain(posterior, x, y)
    more = db.mclmc_chain(posterior, x, y)
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), more.data)
    more = dataclasses.replace(more, data=twice, examples=jnp.asarray(ROWS))
    first, second = (one.init(jax.random.key(0)) for one in (chain, more))
    np.testing.assert_allclose(first.log_density, second.log_density, rtol=1e-5)
    np.testing.assert_allclose(first.gradient, second.gradient, rtol=1e-4, atol=1e-3)


def test_chains_begin_at_draws_of_their_own(problem):
    posterior, x, y, *_ = problem
    start = jax.vmap(lambda key: posterior.init(key, jnp.asarray(x)))(jax.random.split(jax.random.key(0), 6))
    chains = start_chains(db.mclmc_chain(posterior, x, y, start=start), jax.random.key(1), 6)
    flat = np.asarray(jax.vmap(lambda draw: ravel_pytree(draw)[0])(chains.draws))
    assert len(np.unique(flat, axis=0)) == 6


def test_a_step_out_of_the_numbers_is_not_taken(problem):
    posterior, x, y, *_ = problem
    chain = db.mclmc_chain(posterior, x, y, burn_in=100)
    state = chain.init(jax.random.key(0))
    far = state._replace(settings=state.settings._replace(step_size=jnp.asarray(1e30)))
    after, info = chain.step(jax.random.key(1), far)
    assert np.isfinite(info.log_density)
    assert float(after.settings.step_size) < 1e30
    np.testing.assert_array_equal(ravel_pytree(after.params)[0], ravel_pytree(state.params)[0])


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (db.mclmc_chain, {"energy_error": 0.0}),
        (db.mclmc_chain, {"burn_in": 0}),
        (db.teacher.adjusted_mclmc_chain, {"accept": 1.0}),
        (db.teacher.adjusted_mclmc_chain, {"thin": 0}),
    ],
)
def test_bad_settings_are_refused(problem, make, wrong):
    posterior, x, y, *_ = problem
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        make(posterior, x, y, **wrong)


def test_chains_on_data_of_their_own_run_side_by_side_as_alone(problem):
    posterior, x, y, *_ = problem
    chain = db.mclmc_chain(posterior, x, y, burn_in=10, thin=1)

    def walked(key, y):
        own = dataclasses.replace(chain, data=chain.data._replace(y=y))
        return ravel_pytree(own.step(key, own.init(key))[0].params)[0]

    keys, both = jax.random.split(jax.random.key(5)), jnp.stack([jnp.asarray(y), 2.0 * jnp.asarray(y)])
    together = jax.vmap(walked)(keys, both)
    alone = jnp.stack([walked(key, own) for key, own in zip(keys, both, strict=True)])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)
