"""Work that is due at some steps only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from darkbayes.teacher.gradients.anchors import when_due
from teacher.gradients.helpers import primitives

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def test_work_that_is_rarely_due_is_chosen_by_each_chain_and_skipped_if_no_one_needs_it() -> None:
    def step(due: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return when_due(due, lambda x, y: jnp.sin(x) * y, x, x, y)

    x, y = jnp.arange(6.0).reshape(2, 3), jnp.array([1.0, 2.0, 3.0])
    both = jax.vmap(jax.vmap(step, in_axes=(0, 0, 0)), in_axes=(None, 0, None))
    for due in (jnp.array([True, False, True]), jnp.zeros(3, bool), jnp.ones(3, bool)):
        np.testing.assert_allclose(both(due, x, y), jnp.where(due[None], jnp.sin(x) * y[None], x), rtol=1e-6)
    jaxpr = jax.make_jaxpr(both)(jnp.ones(3, bool), x, y)
    assert "cond" in list(primitives(jaxpr.jaxpr))
    assert "sin" not in [equation.primitive.name for equation in jaxpr.jaxpr.eqns]
