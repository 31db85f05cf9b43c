"""The 2-D toy problem, which several benchmarks run on."""

import jax.numpy as jnp

from darkbayes.model import Posterior, mlp
from darkbayes.model.priors import GaussianPrior
from darkbayes.outcomes.heads.classes import Softmax
from darkbayes.types import Array

POSTERIOR = Posterior(mlp([10], 2), Softmax(2), GaussianPrior(1.0), num_data=20)
"""The paper's 2-10-2 network."""


def grid(lines: int) -> Array:
    """Points of the square [-10, 10]^2, as many in each direction."""
    line = jnp.linspace(-10.0, 10.0, lines)
    return jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)
