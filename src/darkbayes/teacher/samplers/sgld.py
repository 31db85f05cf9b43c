"""Stochastic gradient Langevin dynamics (Welling and Teh, 2011), the paper's teacher.

With g the gradient of the log posterior estimated on a minibatch at full-data scale, step size eta and
temperature T,

    theta <- theta + eta/2 g + sqrt(eta T) xi,    xi ~ N(0, I),

whose stationary law tends to p(theta | data)^(1/T) as eta -> 0. At a fixed eta and exact gradients a target
N(0, s^2) is sampled with variance T s^2 / (1 - eta / (4 s^2)).

Libraries that write the drift as epsilon g and the noise as sqrt(2 epsilon) xi use epsilon = eta/2.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from darkbayes.teacher.samplers.adaptation import noisy
from darkbayes.teacher.samplers.auto import Sampler, auto
from darkbayes.teacher.samplers.schedules import Rate, as_schedule
from darkbayes.types import Array, PyTree


class SGLDState(NamedTuple):
    """The number of steps taken, for schedules."""

    count: Array


@auto
def sgld(step_size: Rate, temperature: Rate = 1.0) -> Sampler:
    """SGLD as a gradient transformation; `update` needs the keyword argument ``key``.

    Args:
        step_size: eta, a number or a schedule of the step count.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior, less is colder, and 0 adds no noise.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.

    >>> transformation = sgld(1e-2)
    >>> weights = jnp.zeros(3)
    >>> state = transformation.init(weights)
    >>> updates, state = transformation.update(weights, state, weights, key=jax.random.key(0))
    >>> int(state.count)
    1
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)

    def move(grads: PyTree, state: SGLDState, noise: PyTree, **extra: Any) -> tuple[PyTree, SGLDState]:
        step = eta(state.count)
        spread = jnp.sqrt(step * warmth(state.count))
        return jax.tree.map(lambda g, xi: -0.5 * step * g + spread * xi, grads, noise), state

    return noisy(lambda params: SGLDState(jnp.zeros((), jnp.int32)), move)
