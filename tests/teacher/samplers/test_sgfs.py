"""Fisher scoring has the law that theory gives it, at any step size, with and without minibatch noise."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db

pytestmark = pytest.mark.usefixtures("strict")

FROZEN = {"adapt_steps": 1}
STEP_SIZES = [0.1, 1.0, 4.0]


# An exact Gaussian, whose precision is what the sampler believes it to be


def test_the_full_form_samples_a_gaussian_exactly_at_any_step_size(z_scores: Any) -> None:
    """N(0, T H^-1) with H = N I + lambda and gradients of covariance N^2/n I: nothing of the step is left in the law.

    Six entries at |z| < 4.5: fails by chance with probability 4e-5 a case for another seed. The chains are at home from
    the start, as the law is known.
    """
    num_data, size, prior_precision, temperature = 50, 10, 2.0, 0.5
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(3, 3))
    information = mixing @ mixing.T / 5
    hessian = num_data * information + prior_precision * np.eye(3)
    law = temperature * np.linalg.inv(hessian)
    single = {"information": information, "hessian": hessian, "law": np.linalg.cholesky(law)}
    single |= {"noise": np.linalg.cholesky(num_data**2 / size * information)}
    single = {name: jnp.asarray(value, jnp.float32) for name, value in single.items()}

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def run(step_size: jax.Array, key: jax.Array) -> jax.Array:
        sampler = db.samplers.sgfs(
            step_size, prior_precision=prior_precision, temperature=temperature, full=True, **FROZEN
        )
        start = single["law"] @ jax.random.normal(jax.random.fold_in(key, 1), (3,))
        state = sampler.init(start)._replace(count=jnp.int32(1), information=single["information"])

        def step(carry: Any, key: jax.Array) -> Any:
            theta, state, total = carry
            batch_key, noise_key = jax.random.split(key)
            grads = single["hessian"] @ theta + single["noise"] @ jax.random.normal(batch_key, (3,))
            updates, state = sampler.update(
                grads, state, key=noise_key, per_example=jnp.zeros((size, 3)), num_data=num_data, all_data=False
            )
            theta = optax.apply_updates(theta, updates)
            return (theta, state, total + theta[:, None] * theta[None, :]), None

        start = start, state, jnp.zeros((3, 3))
        return jax.lax.scan(step, start, jax.random.split(key, 150))[0][2] / 150

    entries = np.triu_indices(3)
    keys = jax.random.split(jax.random.key(0), 1000)
    for step_size in STEP_SIZES:
        squares = run(jnp.float32(step_size), keys)
        assert np.abs(z_scores(squares, law)[entries]).max() < 4.5


def test_with_all_data_a_step_size_of_four_makes_every_step_a_fresh_draw() -> None:
    """Then M = 2H, and theta - H^-1 grad(theta) is the mode, wherever theta is."""
    information = jnp.array([[2.0, 0.5], [0.5, 1.0]])
    hessian = 10 * information + jnp.eye(2)
    mode = jnp.array([1.0, -2.0])
    sampler = db.samplers.sgfs(4.0, prior_precision=1.0, full=True, **FROZEN)

    def after(theta: jax.Array) -> jax.Array:
        state = sampler.init(theta)._replace(count=jnp.int32(1), information=information)
        extras = {"per_example": jnp.zeros((10, 2)), "num_data": 10, "all_data": True}
        updates, _ = sampler.update(hessian @ (theta - mode), state, key=jax.random.key(0), **extras)
        return theta + updates

    np.testing.assert_allclose(after(mode), after(mode + 5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("all_data", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_an_update_is_that_of_the_paper_with_the_prior_in_it(full: bool, all_data: bool) -> None:
    eta, temperature, num_data, size = 0.7, 0.5, 40, 5
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(size, 3))
    grads = {"a": jnp.asarray(rng.normal(size=2), jnp.float32), "b": jnp.asarray(rng.normal(size=(1, 1)), jnp.float32)}
    examples = jnp.asarray(rows, jnp.float32)
    examples = {"a": examples[:, :2], "b": examples[:, 2:, None]}
    sampler = db.samplers.sgfs(eta, prior_precision=1.5, temperature=temperature, full=full)
    key = jax.random.key(1)
    updates, state = sampler.update(
        grads, sampler.init(grads), key=key, per_example=examples, num_data=num_data, all_data=all_data
    )

    information = np.cov(rows.T) if full else np.diag(rows.var(axis=0, ddof=1))
    precision = num_data * information + 1.5 * np.eye(3)
    noise = 0.0 if all_data else num_data**2 / size * information
    nu = np.linalg.cholesky(4 * temperature / eta * precision) @ np.asarray(jax.random.normal(key, (3,)))
    flat = np.concatenate([grads["a"], np.ravel(grads["b"])])
    expected = 2 * np.linalg.solve(precision + noise / temperature + 4 / eta * precision, nu - flat)
    np.testing.assert_allclose(np.concatenate([updates["a"], np.ravel(updates["b"])]), expected, rtol=1e-4)
    assert updates["b"].shape == (1, 1)
    assert int(state.count) == 1


def test_the_information_is_a_running_mean_until_it_is_frozen() -> None:
    weights = jnp.zeros(1)
    for decay, expected in ((1.0, [2.0, 3.0, 4.0, 4.0]), (0.25, [2.0, 3.5, 5.375, 5.375])):
        sampler = db.samplers.sgfs(1.0, prior_precision=1.0, decay=decay, adapt_steps=3)
        state, seen = sampler.init(weights), []
        for variance in (2.0, 4.0, 6.0, 8.0):
            rows = jnp.sqrt(variance / 2) * jnp.array([[1.0], [-1.0]])
            extras = {"per_example": rows, "num_data": 10, "all_data": False}
            _, state = sampler.update(weights, state, key=jax.random.key(0), **extras)
            seen.append(float(state.information[0]))
        np.testing.assert_allclose(seen, expected, rtol=1e-6)


# Linear regression, where the minibatch noise depends on the weights and the model is not quite true


@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("full", [False, True])
def test_the_moments_on_a_regression_are_those_of_the_linear_law(
    full: bool, batch_size: int | None, conjugate: Any, batch_noise: Any, regression_moments: Any, z_scores: Any
) -> None:
    """S = A S A^T + 4 M^-1 [C(S) + 4B/eta] M^-1, A = 1 - 2 M^-1 H, with the information frozen at the posterior's mean.

    Five entries at |z| < 4, at three step sizes: fails by chance with probability 1e-3 a case for another seed.
    """
    num_data, prior_precision = 6, conjugate.prior_precision
    information = batch_noise(num_data, np.zeros((2, 2))) / num_data
    information = information if full else np.diag(np.diag(information))
    hessian = np.linalg.inv(conjugate.covariance)
    chain = db.minibatch_chain(
        conjugate.posterior,
        db.sgld(1.0),
        *conjugate.data,
        batch_size=batch_size,
        gradients=db.teacher.gradients.per_example(),
    )
    frozen = jnp.asarray(information if full else np.diag(information)[:, None], jnp.float32)

    @jax.jit
    def run(step_size: jax.Array, keys: jax.Array) -> Any:
        sampler = db.samplers.sgfs(step_size, prior_precision=prior_precision, full=full, **FROZEN)
        at = dataclasses.replace(chain, transformation=sampler)

        def start(key: jax.Array) -> Any:
            state = at.init(key)
            known = frozen if full else state.params._replace(network=frozen)
            return state._replace(transformation=state.transformation._replace(count=jnp.int32(1), information=known))

        return regression_moments(at, jax.vmap(start)(keys), burn_in=100, steps=200)

    keys = jax.random.split(jax.random.key(1), 1000)
    entries = np.triu_indices(2)
    for step_size in STEP_SIZES:
        precision = num_data * information + prior_precision * np.eye(2)
        excess = 0.0 if batch_size is None else num_data / batch_size
        scale = np.linalg.inv((1 + 4 / step_size) * precision + excess * num_data * information)
        decay, law = np.eye(2) - 2 * scale @ hessian, np.zeros((2, 2))
        assert np.abs(np.linalg.eigvals(decay)).max() < 1
        for _ in range(500):
            noise = batch_noise(batch_size, law) + 4 / step_size * precision
            law = decay @ law @ decay.T + 4 * scale @ noise @ scale

        mean, square = run(jnp.float32(step_size), keys)
        assert np.abs(z_scores(mean, conjugate.mean)).max() < 4
        assert np.abs(z_scores(square, law)[entries]).max() < 4


# The border


def test_what_cannot_work_is_refused() -> None:
    weights = jnp.zeros(3)
    with pytest.raises(
        db.InvalidInput, match=r"full=True needs a matrix of 3 x 3 .* above full_limit=2: use full=False"
    ):
        db.samplers.sgfs(1.0, prior_precision=1.0, full=True, full_limit=2).init(weights)
    sampler = db.samplers.sgfs(1.0, prior_precision=1.0)
    state = sampler.init(weights)
    with pytest.raises(db.InvalidInput, match=r"gradients=per_example\(\)"):
        sampler.update(weights, state, key=jax.random.key(0))
    with pytest.raises(db.InvalidInput, match="batch_size=1, use 2 or more"):
        sampler.update(weights, state, key=jax.random.key(0), per_example=weights[None], num_data=8)
    for wrong in ({"decay": 0.0}, {"adapt_steps": 0}, {"prior_precision": 0.0}, {"temperature": -1.0}):
        with pytest.raises(db.InvalidInput, match=next(iter(wrong))):
            db.samplers.sgfs(1.0, **({"prior_precision": 1.0} | wrong))
