"""How much of a plan there is time for: the compiled loop is timed before it begins.

What it compiles is what the fit will run, so that a time budget includes compiling. The plan is shortened as a whole,
burn-in, chains and lessons alike, instead of being cut off where the time is up.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from darkbayes.mesh import laid
from darkbayes.processes import agreed
from darkbayes.student import Distillation
from darkbayes.types import Key

LOOK = 0.2
"""Seconds that a measurement lasts at least."""


def affordable(parts: Distillation, key: Key, steps: int, deadline: float, mesh: Mesh | None = None) -> float:
    """The share of a distillation that ends before the deadline, a moment of ``time.time()``; 0 where it is over.

    Nothing of what is run here is kept. Of processes that share it by a `mesh` every one asks, and what the first gets
    counts.
    """

    def timed(advance: Callable[[Any, Any], Any], state: Any, most: int) -> tuple[Any, float]:
        """The state after a look, and the seconds that each unit of work takes once it is compiled."""
        state, number = jax.block_until_ready(advance(state, np.int32(1))), 1
        while True:
            began = time.perf_counter()
            state = jax.block_until_ready(advance(state, np.int32(number)))
            took = time.perf_counter() - began
            if agreed(took > LOOK or number >= most):
                return state, took / number
            number = min(2 * number, most)

    if mesh is not None:
        parts, key = parts.on(mesh), laid(key, mesh)
    burn_in, thin = int(parts.chain.burn_in), int(parts.chain.thin)
    state, step = timed(lambda state, number: parts.burn(state, number), parts.init(key), burn_in)
    rounds = (steps - burn_in) // thin
    _, whole_round = timed(lambda state, number: parts.advance(state, number)[0], state, rounds)
    return float(np.clip((deadline - time.time()) / (burn_in * step + rounds * whole_round), 0.0, 1.0))
