"""How long it takes to predict with an average of many networks."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.model import Posterior
from darkbayes.types import Array, PyTree

DIFFERENT = 10
"""Networks that take turns; as many others would cost the same."""


def prediction_ms(posterior: Posterior, x: Array, networks: dict[str, int]) -> dict[str, Any]:
    """Measure how long averages take.

    Args:
        posterior: Of the networks, which classify.
        x: What to predict, all at once.
        networks: How many of them each method averages.

    Returns:
        The median milliseconds of each method.
    """
    members = jax.vmap(lambda key: posterior.init(key, x))(jax.random.split(jax.random.key(1), DIFFERENT))

    @jax.jit
    def average(number: Array, members: PyTree, x: Array) -> Array:
        def one(step: Array, total: Array) -> Array:
            draw = jax.tree.map(lambda leaf: leaf[step % DIFFERENT], members)
            return total + posterior.distribution(draw, x).probs

        return jax.lax.fori_loop(0, number, one, jnp.zeros((len(x), posterior.likelihood.width))) / number

    return {name: _median_ms(average, number, members, x) for name, number in networks.items()}


def _median_ms(function: Callable[..., Array], *arguments: Any) -> float:
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - began)
    return 1e3 * float(np.median(times))
