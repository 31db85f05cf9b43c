"""SGLD preconditioned as RMSprop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
from darkbayes.errors import InvalidInput
from teacher.samplers.cases import GRADIENTS, path

pytestmark = pytest.mark.usefixtures("strict")


def test_psgld_is_what_its_docstring_says_and_freezes() -> None:
    transformation = db.samplers.psgld(0.1, num_data=20, decay=0.8, damping=0.01, adapt_steps=8, temperature=0.5)
    updates, noises, states = path(transformation, GRADIENTS)
    squares = np.zeros(3)
    for t, (g, xi) in enumerate(zip(GRADIENTS, noises, strict=True)):
        if t < 8:
            squares += max(1 / (t + 1), 0.2) * ((g / 20) ** 2 - squares)
        scale = 1 / (0.01 + np.sqrt(squares))
        np.testing.assert_allclose(states.squares[t], squares, rtol=1e-5)
        np.testing.assert_allclose(updates[t], -0.05 * scale * g + np.sqrt(0.05 * scale) * xi, rtol=1e-4, atol=1e-6)


def test_gamma_is_the_derivative_of_the_metric() -> None:
    """By automatic differentiation of G in theta, through the slope of an energy that is no parabola."""
    num_data = 20

    def energy(theta: jax.Array) -> jax.Array:
        return 7.0 * (jnp.log(jnp.cosh(theta)) + 0.1 * theta**4)

    def metric(theta: jax.Array, squares: jax.Array) -> jax.Array:
        return 1 / (0.01 + jnp.sqrt(0.9 * squares + 0.1 * (jax.grad(energy)(theta) / num_data) ** 2))

    @jax.jit
    def found_and_expected(theta: jax.Array, squares: jax.Array) -> tuple[jax.Array, jax.Array]:
        slope, curvature = jax.vmap(jax.grad(energy))(theta), jax.vmap(jax.grad(jax.grad(energy)))(theta)
        updates = []
        for gamma in (True, False):
            sampler = db.samplers.psgld(0.1, num_data=num_data, decay=0.9, damping=0.01, gamma=gamma, temperature=0.5)
            state = sampler.init(theta)._replace(count=jnp.int32(1000), squares=squares)
            updates.append(sampler.update(slope, state, theta, key=jax.random.key(0), curvature=curvature)[0])
        return updates[0] - updates[1], 0.1 / 2 * 0.5 * jax.vmap(jax.grad(metric))(theta, squares)

    actual, expected = found_and_expected(jnp.array([0.3, -1.2, 2.0]), jnp.array([0.5, 0.02, 3.0]))
    np.testing.assert_allclose(actual, expected, rtol=1e-3)


@pytest.mark.parametrize(("count", "there"), [(0, False), (3, False), (4, True)])
def test_gamma_sets_in_when_the_mean_of_squares_is_filled(count: int, there: bool) -> None:
    theta, slope = jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0])
    updates = []
    for gamma in (True, False):
        sampler = db.samplers.psgld(0.1, num_data=20, decay=0.75, gamma=gamma)
        state = sampler.init(theta)._replace(count=jnp.int32(count))
        updates.append(sampler.update(slope, state, theta, key=jax.random.key(0), curvature=jnp.ones(2))[0])
    assert np.all(updates[0] != updates[1]) == there
    assert np.all(updates[0] == updates[1]) != there


def test_gamma_without_curvature_is_refused() -> None:
    sampler = db.samplers.psgld(0.1, num_data=20, gamma=True)
    with pytest.raises(InvalidInput, match=r"gamma=True.* needs the curvature .*: use gradients=with_curvature\(\)"):
        sampler.update(jnp.ones(3), sampler.init(jnp.ones(3)), key=jax.random.key(0))
