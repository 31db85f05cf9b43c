"""Chains against the posterior itself, along every direction; not against their own law.

The automatic default on minibatches where the posterior is known, and both it and MCLMC where NUTS knows it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db

ROWS, COLUMNS, PRECISION = 300, 8, 4.0


@pytest.fixture(scope="module")
def problem() -> Any:
    """Regression on random ReLU features of correlated columns: a Gaussian posterior that is known."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS))
    x = np.maximum(x @ rng.normal(size=(COLUMNS, 16)) / np.sqrt(COLUMNS) + rng.normal(size=16), 0.0)
    x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
    y = (x @ rng.normal(size=x.shape[1]) + rng.normal(size=ROWS) / np.sqrt(PRECISION)).astype(np.float32)[:, None]
    exact = np.asarray(x, np.float64)
    hessian = PRECISION * exact.T @ exact + np.eye(x.shape[1])
    network = db.Network(lambda key, x: jax.random.normal(key, (x.shape[1], 1)), lambda weights, x: x @ weights)
    posterior = db.Posterior(network, db.outcomes.Gaussian(PRECISION), db.priors.GaussianPrior(1.0), num_data=ROWS)
    return posterior, x, y, np.linalg.solve(hessian, PRECISION * exact.T @ y[:, 0]), hessian


def test_the_temperature_is_one_along_every_eigenvector(problem: Any) -> None:
    """With batches of a sixth of the data. Temperatures have standard errors of up to .05."""
    posterior, x, y, mean, hessian = problem
    # From the best weights, as fits do: how long it takes to get there is another question.
    start = db.model.Draw(np.tile(mean.astype(np.float32)[None, :, None], (16, 1, 1)), None)
    sampler = db.samplers.default_sampler(posterior, 50)
    chain = db.minibatch_chain(posterior, sampler, x, y, batch_size=50, start=jax.tree.map(jax.numpy.asarray, start))
    chain, choices = db.tune(chain, jax.random.key(0), num_chains=16)
    draws = db.sample(chain, jax.random.key(1), num_chains=16, num_draws=8_000 // choices.thin)
    away = np.asarray(draws.network, np.float64).reshape(-1, len(mean)) - mean
    values, vectors = np.linalg.eigh(hessian)
    warmth = ((away @ vectors) ** 2).mean(axis=0) * values
    assert warmth.min() > 0.88
    assert warmth.max() < 1.15
    # What the doubt at inputs that nobody has seen is made of.
    anywhere = np.random.default_rng(1).normal(size=(200, len(mean)))
    doubt = ((away @ anywhere.T) ** 2).mean(axis=0) / np.einsum(
        "ij,jk,ik->i", anywhere, np.linalg.inv(hessian), anywhere
    )
    assert abs(doubt.mean() - 1.0) < 0.1
    assert 0.75 < doubt.min() <= doubt.max() < 1.25


@pytest.fixture(scope="module")
def logistic_problem() -> Any:
    """A logistic regression on correlated columns, and the mean and covariance of its weights by NUTS."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
    y = (rng.random(200) < 1 / (1 + np.exp(-x @ [1.5, -1.0, 0.5, 0.0]))).astype(np.int32)

    def logits(weights: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.pad(x @ weights, ((0, 0), (1, 0)))

    network = db.Network(lambda key, x: jax.random.normal(key, (x.shape[1], 1)), logits)
    posterior = db.Posterior(network, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=200)
    draws = db.sample(
        db.teacher.nuts_chain(posterior, x, y, burn_in=150), jax.random.key(0), num_chains=8, num_draws=400
    )
    draws = np.asarray(draws.network, np.float64).reshape(-1, 4)
    return posterior, x, y, draws.mean(axis=0), np.cov(draws.T)


def along_eigenvectors(problem: Any, draws: Any) -> np.ndarray:
    """Draws in standard deviations of NUTS's along the eigenvectors of its covariance."""
    *_, mean, covariance = problem
    values, vectors = np.linalg.eigh(covariance)
    return (np.asarray(draws.network, np.float64).reshape(-1, len(mean)) - mean) @ vectors / np.sqrt(values)


@pytest.mark.parametrize("size", [40, 25], ids=["5 batches", "8 batches"])
def test_the_default_on_minibatches_is_where_nuts_is(size: int, logistic_problem: Any) -> None:
    """Anchors of gradients are renewed once for all batches, which `tune` must not mistake for gradients without noise
    where renewals and its measurements fall together, as they would at any power of two. NUTS's own standard errors are
    the largest: .05 for means and .03 for deviations."""
    posterior, x, y, mean, _ = logistic_problem
    start = db.model.Draw(jnp.tile(jnp.asarray(mean[:, None], jnp.float32), (8, 1, 1)), None)
    chain = db.minibatch_chain(
        posterior, db.samplers.default_sampler(posterior, size), x, y, batch_size=size, start=start
    )
    chain, choices = db.tune(chain, jax.random.key(1), num_chains=8, max_burn_in=2_000)
    assert choices.heating > 1e-2
    draws = db.sample(chain, jax.random.key(2), num_chains=8, num_draws=4_000 // choices.thin)
    along = along_eigenvectors(logistic_problem, draws)
    assert np.abs(along.mean(axis=0)).max() < 0.15
    # Along the stiffest direction `tune` lets discretisation and minibatches add to the variance, here about a quarter.
    assert np.abs(along.std(axis=0) - 1.0).max() < 0.15


def test_mclmc_on_all_data_is_where_nuts_is(logistic_problem: Any) -> None:
    """Again NUTS's standard errors are the largest: .05 for means and .03 for deviations."""
    posterior, x, y, *_ = logistic_problem
    chain = db.mclmc_chain(posterior, x, y, burn_in=1_000, thin=4)
    along = along_eigenvectors(logistic_problem, db.sample(chain, jax.random.key(3), num_chains=8, num_draws=500))
    assert np.abs(along.mean(axis=0)).max() < 0.15
    assert np.abs(along.std(axis=0) - 1.0).max() < 0.12
