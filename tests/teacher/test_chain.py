"""Chains over minibatches: the N/M scaling against exact theory, optimisers as plug-in teachers, failures."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.teacher.chain import burn, start_chains, step_chains

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def stationary_moments(problem: Any, step_size: float, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The exact mean and covariance of SGLD on linear regression with batches drawn with replacement.

    On a batch B the update is theta <- A_B theta + c_B + sqrt(eta) xi with A_B = I - eta/2 H_B, where
    H_B = lambda I + N/M lambda_n sum_B x x^T and c_B = eta/2 N/M lambda_n sum_B x y. The stationary moments solve
    m = E[A] m + E[c] and S = E[A S A^T] + E[A m c^T + c m^T A^T + c c^T] + eta I, over all N^M batches.
    """
    x, y = np.asarray(problem.data.x, np.float64), np.asarray(problem.data.y, np.float64)[:, 0]
    scale = len(x) / batch_size * problem.noise_precision
    maps = []
    for rows in itertools.product(range(len(x)), repeat=batch_size):
        batch, targets = x[list(rows)], y[list(rows)]
        curvature = problem.prior_precision * np.eye(2) + scale * batch.T @ batch
        maps.append((np.eye(2) - step_size / 2 * curvature, step_size / 2 * scale * batch.T @ targets))
    mean_map, mean_shift = (np.mean(part, axis=0) for part in zip(*maps, strict=True))
    mean = np.linalg.solve(np.eye(2) - mean_map, mean_shift)
    source = step_size * np.eye(2)
    for a, c in maps:
        cross = np.outer(a @ mean, c)
        source += (cross + cross.T + np.outer(c, c)) / len(maps)
    squares = np.mean([np.kron(a, a) for a, _ in maps], axis=0)
    second = np.linalg.solve(np.eye(4) - squares, source.ravel()).reshape(2, 2)
    return mean, second - np.outer(mean, mean)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_minibatch_chains_have_the_moments_of_the_discrete_theory(
    batch_size: int, conjugate: Any, z_scores: Any
) -> None:
    """Analytic posterior mean; covariance with step and minibatch noise. Five entries at |z| < 4.6.

    Fails by chance with probability 2e-5 a case for another seed.
    """
    step_size = 0.02
    mean, covariance = stationary_moments(conjugate, step_size, batch_size)
    np.testing.assert_allclose(mean, conjugate.mean, rtol=1e-6)
    chain = db.minibatch_chain(
        conjugate.posterior, db.sgld(step_size), *conjugate.data, batch_size=batch_size, burn_in=200, thin=10
    )
    draws = db.sample(chain, jax.random.key(batch_size), num_chains=1500, num_draws=40).network[..., 0]
    assert np.abs(z_scores(draws.mean(axis=1), conjugate.mean)).max() < 4.6
    centred = np.asarray(draws, np.float64) - conjugate.mean
    outer = np.einsum("cti,ctj->cij", centred, centred) / draws.shape[1]
    entries = np.triu_indices(2)
    assert np.abs(z_scores(outer, covariance)[entries]).max() < 4.6
    # The minibatch noise is no small thing here: without it the covariance would be another.
    assert np.abs(z_scores(outer, conjugate.covariance)[entries]).max() > 10


@pytest.mark.parametrize("batch_size", [1, 4, None])
def test_a_chain_on_the_mean_of_gaussians_has_the_closed_form_variance(batch_size: int | None, z_scores: Any) -> None:
    """[1 + eta/4 (N lambda_n)^2 s^2/M] / [a (1 - eta a/4)] with a = lambda + N lambda_n and s^2 the targets' variance.

    Fails by chance with probability 2e-5 a case for another seed.
    """
    step_size, prior_precision, noise_precision = 0.05, 1.0, 2.0
    y = np.random.default_rng(0).normal(1.0, 0.7, size=(8, 1))
    mean_only = db.Network(lambda key, x: jnp.zeros(()), lambda theta, x: jnp.broadcast_to(theta, (len(x), 1)))
    posterior = db.Posterior(
        mean_only, db.outcomes.Gaussian(noise_precision), db.priors.GaussianPrior(prior_precision), num_data=8
    )
    chain = db.minibatch_chain(
        posterior, db.sgld(step_size), np.ones((8, 1)), y, batch_size=batch_size, burn_in=60, thin=5
    )
    draws = np.asarray(db.sample(chain, jax.random.key(0), num_chains=2000, num_draws=40).network, np.float64)
    curvature = prior_precision + 8 * noise_precision
    mean = 8 * noise_precision * y.mean() / curvature
    batch_noise = 0.0 if batch_size is None else (8 * noise_precision) ** 2 * y.var() / batch_size
    variance = (1 + step_size / 4 * batch_noise) / (curvature * (1 - step_size * curvature / 4))
    assert abs(z_scores(draws.mean(axis=1), mean)) < 4.4
    assert abs(z_scores(((draws - mean) ** 2).mean(axis=1), variance)) < 4.4


OPTIMISERS = {
    "sgd": optax.sgd(0.05),
    "momentum": optax.sgd(0.02, momentum=0.8, nesterov=True),
    "clipped": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.05)),
    "adam": optax.adam(optax.exponential_decay(0.1, 100, 0.5)),
    "rmsprop": optax.rmsprop(optax.exponential_decay(0.05, 100, 0.5)),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_any_optimiser_is_a_teacher_that_finds_the_map(name: str, conjugate: Any) -> None:
    with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to an integer array's power.
        chain = db.minibatch_chain(
            conjugate.posterior, OPTIMISERS[name], *conjugate.data, batch_size=None, burn_in=1500
        )
        draws = db.sample(chain, jax.random.key(0), num_chains=2, num_draws=1)
    np.testing.assert_allclose(draws.network[:, 0, :, 0], [conjugate.mean] * 2, atol=1e-3)


def test_a_sampled_noise_level_moves_with_the_weights(linear: db.Network, conjugate: Any) -> None:
    posterior = db.Posterior(linear, db.outcomes.GaussianSampledNoise(), db.priors.GaussianPrior(), num_data=6)
    chain = db.minibatch_chain(posterior, db.sgld(0.01), *conjugate.data, batch_size=2)
    draws = db.sample(chain, jax.random.key(0), num_chains=3, num_draws=4)
    assert draws.likelihood.shape == (3, 4, 1)
    assert len(np.unique(draws.likelihood)) == 12


def test_stored_draws_are_those_after_burn_in_at_every_thin_th_step(conjugate: Any) -> None:
    def draws(burn_in: int, thin: int, number: int) -> jax.Array:
        chain = db.minibatch_chain(
            conjugate.posterior, db.sgld(0.01), *conjugate.data, batch_size=2, burn_in=burn_in, thin=thin
        )
        return db.sample(chain, jax.random.key(4), num_chains=2, num_draws=number).network

    np.testing.assert_allclose(draws(3, 2, 3), draws(0, 1, 9)[:, [4, 6, 8]], rtol=1e-6)


def test_chains_start_and_move_independently(conjugate: Any) -> None:
    chain = db.minibatch_chain(conjugate.posterior, db.sgld(0.01), *conjugate.data, batch_size=2)
    chains = start_chains(chain, jax.random.key(0), 5)
    moved = burn(chain, start_chains(chain, jax.random.key(0), 5), jnp.int32(3))
    assert len(np.unique(chains.draws.network[:, 0])) == 5
    assert len(np.unique(moved.draws.network[:, 0] - chains.draws.network[:, 0])) == 5
    assert int(moved.step) == 3


def test_a_single_chain_takes_the_step_of_its_chain(conjugate: Any) -> None:
    """One chain is run without a batch axis."""
    chain = db.minibatch_chain(conjugate.posterior, db.sgld(0.01), *conjugate.data, batch_size=2)
    chains = start_chains(chain, jax.random.key(0), 1)
    stepped = eqx.filter_jit(step_chains)(chain, chains)
    (key,) = jax.random.split(jax.random.fold_in(chains.key, 0), 1)
    state, info = eqx.filter_jit(chain.step)(key, jax.tree.map(lambda leaf: leaf[0], chains.states))
    np.testing.assert_allclose(stepped.draws.network[0], state.params.network, rtol=1e-6)
    assert info.log_density.shape == ()


def test_failure_is_noted_at_its_first_step_with_its_chain(conjugate: Any) -> None:
    def step_size(count: jax.Array) -> jax.Array:
        return jnp.where(count < 3, 1e-3, jnp.where(count == 3, jnp.inf, 1e-3)).astype(jnp.float32)

    chain = db.minibatch_chain(conjugate.posterior, db.sgld(step_size), *conjugate.data, batch_size=None)
    chains = burn(chain, start_chains(chain, jax.random.key(0), 2), jnp.int32(20))
    assert chains.failure.step.tolist() == [4, 4]
    assert not np.isfinite(chains.failure.log_density).any()


def test_a_diverging_chain_is_explained(conjugate: Any) -> None:
    chain = db.minibatch_chain(conjugate.posterior, db.sgld(1e6), *conjugate.data, batch_size=None, burn_in=50)
    with pytest.raises(
        db.Divergence, match=r"teacher diverged: at step \d+ the log posterior of chain \d.*smaller step"
    ):
        db.sample(chain, jax.random.key(0), num_chains=2, num_draws=1)


def test_large_inputs_are_named_when_a_chain_diverges(conjugate: Any) -> None:
    chain = db.minibatch_chain(
        conjugate.posterior, db.sgld(1.0), 1e6 * conjugate.data.x, conjugate.data.y, batch_size=None, burn_in=50
    )
    with pytest.raises(db.Divergence, match=r"or standardise the inputs \(the largest is 1e\+06 in size\)"):
        db.sample(chain, jax.random.key(0), num_chains=1, num_draws=1)


def test_a_chain_that_diverges_in_its_very_last_step_is_caught(conjugate: Any) -> None:
    chain = db.minibatch_chain(
        conjugate.posterior, db.sgld(lambda t: jnp.where(t < 2, 1e-3, jnp.inf)), *conjugate.data, batch_size=None
    )
    with pytest.raises(db.Divergence, match="teacher diverged"):
        db.sample(chain, jax.random.key(0), num_chains=1, num_draws=3)


# Diagnostics


def test_split_rhat_is_the_textbook_formula() -> None:
    values = np.random.default_rng(0).normal(size=(3, 10, 2))
    halves = np.concatenate([values[:, :5], values[:, 5:]])
    within, between = halves.var(axis=1, ddof=1).mean(axis=0), 5 * halves.mean(axis=1).var(axis=0, ddof=1)
    np.testing.assert_allclose(
        db.teacher.diagnostics.split_rhat(values), np.sqrt((4 / 5 * within + between / 5) / within)
    )


def test_split_rhat_sees_a_trend_within_one_chain() -> None:
    assert db.teacher.diagnostics.split_rhat(np.linspace(0, 1, 100)[None]) > 1.5


def test_split_rhat_of_values_that_never_move_is_one() -> None:
    assert db.teacher.diagnostics.split_rhat(np.ones((3, 10))) == 1.0


def test_split_rhat_of_chains_stuck_at_different_values_is_not_one() -> None:
    assert db.teacher.diagnostics.split_rhat(np.repeat([[0.0], [1.0]], 10, axis=1)) > 1.01
