"""The stochastic gradient Nose-Hoover thermostat (Ding et al., 2014): friction that finds its own value.

With g the gradient of the log posterior estimated on a minibatch at full-data scale, step size eta, temperature T, d
weights and zeta a friction that starts at alpha,

    v     <- (1 - zeta) v + eta/2 g + sqrt(eta alpha T) xi,    xi ~ N(0, I),
    theta <- theta + v,
    zeta  <- zeta + v.v / d - eta T / (2 - zeta).

Noise of minibatches, of which nothing need be known, makes v larger than it should be; then zeta grows until the energy
is right, by eta C / (4 T) where C is the variance of g, just what SGHMC would need to be told. The paper's eta is half
of ours, and it has eta/2 where the thermostat here has eta / (2 - zeta), the variance of v for steps that are not
infinitely small: to aim at eta T / 2 leaves the variance of theta too small, by 5 % at friction 0.1, however small the
step. As it is, a Gaussian of many weights of equal stiffness and noise has the target's variance at any step size.

One thermostat serves all weights that the transformation sees: it is their mean energy that is right
(``optax.multi_transform`` gives each group its own).
"""

from typing import Any

import jax
import jax.numpy as jnp

from darkbayes.errors import require_share
from darkbayes.teacher.samplers.adaptation import MomentumState, first_momentum, noisy
from darkbayes.teacher.samplers.auto import Sampler, auto
from darkbayes.teacher.samplers.schedules import Rate, as_schedule
from darkbayes.types import Array, PyTree


@auto
def sgnht(step_size: Rate, friction: float = 0.1, temperature: Rate = 1.0) -> Sampler:
    """SG-NHT as a gradient transformation; `update` needs the keyword argument ``key``.

    Args:
        step_size: eta, a number or a schedule of the step count.
        friction: alpha, in (0, 1]; sets the noise that is added, and the friction to begin with.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)
    require_share("friction", friction, one=True)

    def move(grads: PyTree, state: MomentumState, noise: PyTree, **extra: Any) -> tuple[PyTree, MomentumState]:
        half, heat = 0.5 * eta(state.count), warmth(state.count)
        stride, spread = jnp.sqrt(half), jnp.sqrt(2.0 * friction * heat)

        def push(m: Array, g: Array, xi: Array) -> Array:
            keep = (1.0 - state.friction).astype(m.dtype)
            return keep * m - stride * g.astype(m.dtype) + spread * xi.astype(m.dtype)

        momentum = jax.tree.map(push, state.momentum, grads, noise)
        leaves = jax.tree.leaves(momentum)
        energy = sum((jnp.sum(m.astype(jnp.float32) ** 2) for m in leaves), start=jnp.zeros(()))
        # Beyond friction 1 v would change its sign at every step: never asked for, only passed on the way down.
        wanted = 2.0 * heat / (2.0 - jnp.minimum(state.friction, 1.0))
        excess = energy / max(sum(m.size for m in leaves), 1) - wanted
        updates = jax.tree.map(lambda m: stride * m, momentum)
        return updates, state._replace(momentum=momentum, friction=state.friction + half * excess)

    return noisy(lambda params: first_momentum(params, friction), move)
