"""Underdamped Langevin dynamics by a symmetric splitting (Leimkuhler and Matthews, 2013; the form with one gradient).

With g the gradient of the log posterior estimated on a minibatch at full-data scale, step size eta, h = sqrt(eta/2),
temperature T and friction alpha = 1 - exp(-gamma h),

    B   m     <- m + h g,
    A   theta <- theta + h/2 m,
    O   m     <- (1 - alpha) m + sqrt(T (1 - (1 - alpha)^2)) xi,    xi ~ N(0, I),
    A   theta <- theta + h/2 m.

Theta has the law of the scheme BAOAB, which only cuts the kick B in two: on a Gaussian with exact gradients that is the
target itself, at any step size that is stable (eta H < 8 for the stiffest Hessian H); elsewhere the error is of order
h^2 = eta/2. Step size and friction mean what they do in SGHMC, as long as friction is small. At friction 1 this is the
limit method of Leimkuhler and Matthews, which moves as SGLD does at half the step size.
"""

from typing import Any

import jax
import jax.numpy as jnp

from darkbayes.errors import require_share
from darkbayes.teacher.samplers.adaptation import MomentumState, first_momentum, noisy
from darkbayes.teacher.samplers.auto import Sampler, auto
from darkbayes.teacher.samplers.schedules import Rate, as_schedule
from darkbayes.types import PyTree


@auto
def baoa(step_size: Rate, friction: float = 0.1, temperature: Rate = 1.0) -> Sampler:
    """BAOA as a gradient transformation; `update` needs the keyword argument ``key``.

    Args:
        step_size: eta, a number or a schedule of the step count.
        friction: alpha, in (0, 1]; 1 minus the momentum of an optimiser.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)
    require_share("friction", friction, one=True)

    def move(grads: PyTree, state: MomentumState, noise: PyTree, **extra: Any) -> tuple[PyTree, MomentumState]:
        stride = jnp.sqrt(0.5 * eta(state.count))
        spread = jnp.sqrt(friction * (2.0 - friction) * warmth(state.count))
        kicked = jax.tree.map(lambda m, g: m - stride * g.astype(m.dtype), state.momentum, grads)
        momentum = jax.tree.map(lambda m, xi: (1.0 - friction) * m + spread * xi.astype(m.dtype), kicked, noise)
        updates = jax.tree.map(lambda before, after: 0.5 * stride * (before + after), kicked, momentum)
        return updates, state._replace(momentum=momentum)

    # What is left of friction to be read off the momentum is none: here it acts exactly.
    return noisy(lambda params: first_momentum(params, 0.0), move)
