"""SGLD preconditioned by the Fisher information has the law that theory gives it, in any unit, minibatches or not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from teacher.samplers.cases import GRADIENTS, path

pytestmark = pytest.mark.usefixtures("strict")


def moments(
    transformation: optax.GradientTransformationExtraArgs,
    gradient: Any,
    start: np.ndarray,
    steps: int,
    squares: np.ndarray | None = None,
) -> np.ndarray:
    """The average of theta^2 over `steps` steps at every element of `start`, each of which is a chain of its own.

    Begins with a long memory of gradients with the mean `squares`, if given.
    """

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        theta, state, total = carry
        batch_key, noise_key = jax.random.split(key)
        updates, state = transformation.update(gradient(batch_key, theta), state, theta, key=noise_key)
        theta = optax.apply_updates(theta, updates)
        return (theta, state, total + theta**2), None

    @jax.jit
    def run(keys: jax.Array, theta: jax.Array) -> jax.Array:
        state = transformation.init(theta)
        if squares is not None:
            memory = jnp.broadcast_to(jnp.asarray(squares[None], jnp.float32), theta.shape)
            state = state._replace(count=jnp.int32(1_000_000), squares=memory)
        return jax.lax.scan(step, (theta, state, jnp.zeros_like(theta)), keys)[0][2] / steps

    keys = jax.random.split(jax.random.key(0), steps)
    return np.asarray(run(keys, jnp.asarray(start, jnp.float32)))


# The stationary law


def test_one_step_size_suits_weights_of_every_stiffness() -> None:
    """Stiffnesses H of 1, 100 and 1,000,000 at once, full-data gradients, every chain at home from the start.

    With P frozen, the variance is 1 / (H (1 - eta P H / 4)), and P is at its fixed point where V = H^2 times that:
    P H = 1 / (1 + eta/4) and H times the variance = 1 + eta/4 = 1.125, if the prior's lambda is far below H. As P
    fluctuates by 2 % (2 / (1 - decay) = 20,000 steps of correlation 4), the law is blurred by a fraction of a per
    cent: stated as 1 %. 1,000 chains of 3,000 steps: the standard error is 0.2 %, so chance alone fails it with
    probability below 1e-4 for another seed. The target's own variance and the plain SGLD's are far off.
    """
    stiffness, eta = np.array([1.0, 1e2, 1e6]), 0.5
    start = np.random.default_rng(0).normal(size=(1000, 3)) * np.sqrt((1 + eta / 4) / stiffness)
    row = jnp.asarray(stiffness[None], jnp.float32)
    sampler = db.samplers.fisher_sgld(eta, prior_precision=1e-3, batch_share=None, decay=0.9999)
    fixed_point = stiffness * (1 + eta / 4)
    scaled = moments(sampler, lambda key, theta: row * theta, start, 3000, fixed_point).mean(axis=0) * stiffness
    np.testing.assert_allclose(scaled, 1 + eta / 4, rtol=0.01)


def test_another_unit_of_a_weight_changes_nothing_but_the_unit() -> None:
    """In units of 1/128, H is 128^2 as large and so is lambda: every bit of the path stays, but for the exponents."""
    start = np.random.default_rng(0).normal(size=(3, 2))
    plain, fine = (
        moments(
            db.samplers.fisher_sgld(0.3, prior_precision=0.5 * unit**2, batch_share=0.1, decay=0.9),
            lambda key, theta, unit=unit: 2.0 * unit**2 * theta + unit * jax.random.normal(key, theta.shape),
            start / unit,
            steps=50,
        )
        for unit in (1.0, 128.0)
    )
    np.testing.assert_array_equal(fine * 128.0**2, plain)


@pytest.fixture(scope="module")
def regression(linear: db.Network) -> tuple[db.Posterior, db.Data, np.ndarray, np.ndarray]:
    """A thousand examples, two inputs in different units: posterior, data, and the exact mean and precision."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2)) * [1.0, 30.0]
    y = x @ [[1.0], [-0.02]] + rng.normal(size=(1000, 1))
    precision = np.eye(2) + x.T @ x
    posterior = db.Posterior(linear, db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(1.0), num_data=1000)
    return posterior, db.data.as_data(x, y), np.linalg.solve(precision, x.T @ y)[:, 0], precision


def minibatch_variances(
    sampler: optax.GradientTransformationExtraArgs, regression: Any, batch_size: int, steps: int, plain: bool = False
) -> np.ndarray:
    """Posterior variances by 200 chains on minibatches, in units of the exact ones."""
    posterior, data, mean, precision = regression
    covariance = np.linalg.inv(precision)
    start = np.random.default_rng(1).multivariate_normal(mean, covariance, size=200)

    def gradient(key: jax.Array, theta: jax.Array) -> jax.Array:
        def of_one(key: jax.Array, weights: jax.Array) -> jax.Array:
            rows = jax.random.randint(key, (batch_size,), 0, len(data.x))
            batch = db.Data(data.x[rows], data.y[rows])
            density = jax.grad(lambda w: posterior.log_density(db.model.Draw(w[:, None], None), batch))
            return -density(weights + jnp.asarray(mean, jnp.float32))

        return jax.vmap(of_one)(jax.random.split(key, len(theta)), theta)

    # The variance of the minibatch gradient, (N/M) F, and the mean square of the exact one, F + lambda.
    fixed_point = np.diag(precision - np.eye(2)) * len(data.x) / batch_size + np.diag(precision)
    squares = moments(sampler, gradient, start - mean, steps, None if plain else fixed_point)
    return squares.mean(axis=0) / np.diag(covariance)


def test_minibatches_add_their_noise_to_the_samplers_own(regression: Any) -> None:
    """Batches of M = 20 of N = 1,000, eta = 0.05: eta/4 N/M = 0.625 of the noise wanted comes on top, within 8 %.

    The standard error is 1.6 %, so that chance alone fails it with probability 1e-4 for another seed. What is taken off
    by the diagonal alone would be missing along the soft directions of a posterior that is not diagonal.
    """
    sampler = db.samplers.fisher_sgld(0.05, prior_precision=1.0, batch_share=0.02)
    np.testing.assert_allclose(minibatch_variances(sampler, regression, 20, 2000), 1.645, atol=0.13)


# The update


def test_an_update_is_what_the_docstring_says() -> None:
    """By hand in numpy, given the same random numbers: the mean square weighs the first ten steps alike."""
    eta, prior, share, decay = 0.1, 2.0, 0.25, 0.9
    sampler = db.samplers.fisher_sgld(eta, prior_precision=prior, batch_share=share, decay=decay)
    state, squares, update = sampler.init(jnp.zeros(3)), np.zeros(3), jax.jit(sampler.update)
    for t, g in enumerate(np.random.default_rng(0).normal(size=(15, 3)) * [0.1, 1.0, 10.0]):
        key = jax.random.key(t)
        updates, state = update(jnp.asarray(g, jnp.float32), state, key=key)
        squares = squares + max(1 / (t + 1), 1 - decay) * (g**2 - squares)
        scale = 1 / (share * squares / (1 + share) + prior)
        noise = np.sqrt(eta * scale) * np.asarray(jax.random.normal(key, (3,)))
        np.testing.assert_allclose(state.squares, squares, rtol=1e-5)
        np.testing.assert_allclose(updates, -eta / 2 * scale * g + noise, rtol=1e-4, atol=1e-6)
    assert int(state.count) == 15


def test_weights_that_the_data_say_nothing_about_move_on_the_scale_of_the_prior() -> None:
    sampler = db.samplers.fisher_sgld(0.04, prior_precision=4.0, batch_share=0.1)
    updates, _ = sampler.update(jnp.zeros(3), sampler.init(jnp.zeros(3)), key=jax.random.key(0))
    np.testing.assert_allclose(updates, 0.1 * np.asarray(jax.random.normal(jax.random.key(0), (3,))), rtol=1e-5)


def test_weights_of_half_precision_stay_so_and_their_squares_are_followed_in_single() -> None:
    """In half precision a mean square of 1 would not move by a thousandth of the way to 1.5."""
    weights = {"half": jnp.ones(2, jnp.bfloat16), "full": jnp.ones(2)}
    sampler = db.samplers.fisher_sgld(0.1, prior_precision=1.0, batch_share=0.5)
    state = sampler.init(weights)._replace(count=jnp.int32(10_000), squares={"half": jnp.ones(2), "full": jnp.ones(2)})
    grads = jax.tree.map(lambda leaf: jnp.sqrt(1.5).astype(leaf.dtype) * leaf, weights)
    updates, state = sampler.update(grads, state, weights, key=jax.random.key(0))
    assert {name: leaf.dtype for name, leaf in updates.items()} == {"half": jnp.bfloat16, "full": jnp.float32}
    np.testing.assert_allclose(state.squares["full"], 1.0005, rtol=1e-6)
    np.testing.assert_allclose(state.squares["half"], 1.0005, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior_precision": 0.0}, r"prior_precision must be a positive number, not 0\.0"),
        ({"batch_share": 0.0}, r"batch_share must lie in \(0, 1\], or be None for full-data gradients, not 0\.0"),
        ({"batch_share": 64}, r"batch_share must lie in \(0, 1\], or be None for full-data gradients, not 64"),
        ({"decay": 1.0}, r"decay must lie between 0 and 1, not 1\.0"),
        ({"decay": float("nan")}, r"decay must lie between 0 and 1, not nan"),
    ],
)
def test_bad_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.samplers.fisher_sgld(**{"step_size": 0.1, "prior_precision": 1.0, "batch_share": None} | arguments)


def test_the_fisher_information_freezes() -> None:
    sampler = db.samplers.fisher_sgld(0.1, prior_precision=1.0, batch_share=None, decay=0.8, adapt_steps=5)
    states = path(sampler, GRADIENTS)[2]
    assert np.all(states.squares[4] != states.squares[3])
    np.testing.assert_array_equal(states.squares[5:], np.broadcast_to(states.squares[4], (7, 3)))
