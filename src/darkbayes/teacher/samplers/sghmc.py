"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin, 2014): SGLD with momentum.

With g the gradient of the log posterior estimated on a minibatch at full-data scale, step size eta, friction alpha,
temperature T and beta an estimate of the noise that the minibatch brings along,

    v     <- (1 - alpha) v + eta/2 g + sqrt(eta (alpha T - beta)) xi,    xi ~ N(0, I),
    theta <- theta + v.

At friction 1 this is SGLD. At a small one a step still moves by a drift of eta/2 g, but steps add up over 1/alpha of
them, so that stiff and soft directions can differ by more. Where C is the variance of g, beta = eta C / 4 leaves
no noise added twice. The paper's eta is half of ours and its temperature 1.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from darkbayes.errors import InvalidInput, require_positive, require_share
from darkbayes.teacher.samplers.adaptation import MomentumState, first_momentum, noisy
from darkbayes.teacher.samplers.auto import Sampler, auto
from darkbayes.teacher.samplers.schedules import Rate, as_schedule
from darkbayes.types import Array, PyTree


@auto
def sghmc(step_size: Rate, friction: float = 0.1, noise_estimate: float = 0.0, temperature: Rate = 1.0) -> Sampler:
    """SGHMC as a gradient transformation; `update` needs the keyword argument ``key``.

    Args:
        step_size: eta, a number or a schedule of the step count.
        friction: alpha, in (0, 1]; 1 minus the momentum of an optimiser.
        noise_estimate: beta, below the friction; 0 trusts the step size to be small. Where it exceeds alpha T, no noise
            is added.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)
    require_share("friction", friction, one=True)
    require_positive("noise_estimate", noise_estimate, zero=True)
    traced = isinstance(friction, Tracer) or isinstance(noise_estimate, Tracer)
    if not traced and not noise_estimate < friction:
        remedy = "use more friction, or a smaller step size and with it a smaller estimate"
        raise InvalidInput(f"noise_estimate={noise_estimate!r} must lie below friction={friction!r}: {remedy}")

    def move(grads: PyTree, state: MomentumState, noise: PyTree, **extra: Any) -> tuple[PyTree, MomentumState]:
        stride = jnp.sqrt(0.5 * eta(state.count))
        spread = jnp.sqrt(2.0 * jnp.maximum(friction * warmth(state.count) - noise_estimate, 0.0))

        def push(m: Array, g: Array, xi: Array) -> Array:
            return (1.0 - friction) * m - stride * g.astype(m.dtype) + spread * xi.astype(m.dtype)

        momentum = jax.tree.map(push, state.momentum, grads, noise)
        return jax.tree.map(lambda m: stride * m, momentum), state._replace(momentum=momentum)

    return noisy(lambda params: first_momentum(params, friction), move)
