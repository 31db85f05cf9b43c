"""Diagonals that are estimated by random signs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db

pytestmark = pytest.mark.usefixtures("strict_dtypes")


@pytest.fixture(scope="module")
def probed(posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]) -> Any:
    """The extras of 4,000 keys."""

    @jax.jit
    def run(keys: jax.Array, draw: db.model.Draw) -> Any:
        def one(key: jax.Array) -> Any:
            curvature = db.teacher.gradients.with_curvature().estimate(key, posterior, data, data, draw, ()).extras
            return (
                curvature
                | db.teacher.gradients.fisher_metric(probes=2).estimate(key, posterior, data, data, draw, ()).extras
            )

        return jax.vmap(one)(keys)

    return run(jax.random.split(jax.random.key(3), 4000), draws[0])


def flat_rows(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(tree)], axis=1)


def test_the_curvature_has_the_diagonal_of_the_hessian_for_mean(
    probed: Any, posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw], z_scores: Any
) -> None:
    """Three entries at |z| < 4: fails by chance with probability 2e-4 for another seed."""
    flat, restore = jax.flatten_util.ravel_pytree(draws[0])
    hessian = jax.jit(jax.hessian(lambda flat: -posterior.log_density(restore(flat), data)))(flat)
    assert np.abs(z_scores(flat_rows(probed["curvature"]), np.diag(hessian))).max() < 4


def test_the_gradient_of_the_metric_has_the_diagonal_of_its_jacobian_for_mean(
    probed: Any, posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw], z_scores: Any
) -> None:
    """Three entries at |z| < 4: fails by chance with probability 2e-4 for another seed."""
    flat, restore = jax.flatten_util.ravel_pytree(draws[0])

    def metric(flat: jax.Array) -> jax.Array:
        of_examples = jax.jacobian(lambda flat: posterior.log_likelihood(restore(flat), data))(flat)
        return jnp.sum(of_examples**2, axis=0)

    value, jacobian = jax.jit(lambda flat: (metric(flat), jax.jacobian(metric)(flat)))(flat)
    np.testing.assert_allclose(flat_rows(probed["metric"])[0], value, rtol=1e-4)
    assert np.abs(z_scores(flat_rows(probed["metric_gradient"]), np.diag(jacobian))).max() < 4
