"""What tests of gradients share."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

import darkbayes as db


def single_batches(data: db.Data) -> db.Data:
    """All batches of one example."""
    return jax.tree.map(lambda leaf: leaf[:, None], data)


def close(first: Any, second: Any, tolerance: float = 1e-5) -> None:
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(np.abs(b).max()))


def estimates(
    gradients: db.teacher.gradients.Gradients, posterior: db.Posterior, data: db.Data, start: Any, here: Any
) -> db.teacher.gradients.GradientEstimate:
    """What each batch of one example tells at `here`, in a chain that began at `start`."""

    @jax.jit
    def run(key: jax.Array, start: Any, here: Any) -> Any:
        whole, rest = gradients.init(posterior, data, start), jax.random.split(key, 2)
        state = gradients.estimate(rest[0], posterior, data, data, start, whole).state
        batches = single_batches(data)

        def one(batch: db.Data) -> Any:
            estimated = gradients.estimate(rest[1], posterior, data, batch, here, state)
            return estimated._replace(extras=eqx.filter(estimated.extras, eqx.is_array))

        return jax.vmap(one)(batches)

    return run(jax.random.key(2), start, here)


def primitives(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            if hasattr(inner, "eqns"):
                yield from primitives(inner)
