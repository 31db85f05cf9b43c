"""The stochastic gradient Nose-Hoover thermostat (Ding et al., 2014): friction that finds its own value.

With g the gradient of the log posterior estimated on a minibatch at full-data scale, step size eta, temperature T, d
weights and zeta a friction that starts at alpha,

    v     <- (1 - zeta) v + eta/2 g + sqrt(eta alpha T) xi,    xi ~ N(0, I),
    theta <- theta + v,
    zeta  <- zeta + v.v / d - eta T / 2.

In equilibrium v has the variance eta T / 2 in each direction. Noise of minibatches, of which nothing need be known,
would make it larger; then zeta grows until the energy is right, by about eta C / 4 where C is the variance of g. The
paper's eta is half of ours and its temperature 1: d zeta = (p.p / d - T) dt with v = h p, zeta per step, h^2 = eta/2.

What is carried along is m = v / sqrt(eta/2), whose law does not depend on eta: a step size that changes leaves the
momentum as warm as it was. One thermostat serves all weights that the transformation sees: it is the mean energy that
is right, so it suits many weights of similar stiffness (``optax.multi_transform`` gives each group its own).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from darkbayes.errors import require_share
from darkbayes.teacher.noise import normal_like
from darkbayes.teacher.running import zeros_in_single
from darkbayes.teacher.schedules import as_schedule
from darkbayes.types import Array, Key, PyTree


class SGNHTState(NamedTuple):
    """The number of steps taken, the momentum and the friction zeta."""

    count: Array
    momentum: PyTree
    friction: Array


def sgnht(
    step_size: float | optax.Schedule, friction: float = 0.1, temperature: float | optax.Schedule = 1.0
) -> optax.GradientTransformationExtraArgs:
    """SG-NHT as a gradient transformation; `update` needs the keyword argument ``key``.

    Args:
        step_size: eta, a number or a schedule of the step count.
        friction: alpha, in (0, 1]; sets the noise that is added, and the friction to begin with.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior.

    >>> transformation = sgnht(1e-3)
    >>> weights = jnp.zeros(3)
    >>> state = transformation.init(weights)
    >>> updates, state = transformation.update(weights, state, weights, key=jax.random.key(0))
    >>> int(state.count)
    1
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)
    require_share("friction", friction, one=True)

    def init(params: PyTree) -> SGNHTState:
        return SGNHTState(jnp.zeros((), jnp.int32), zeros_in_single(params), jnp.asarray(friction, jnp.float32))

    def update(
        grads: PyTree, state: SGNHTState, params: PyTree | None = None, *, key: Key, **extra: Any
    ) -> tuple[PyTree, SGNHTState]:
        half, heat = 0.5 * eta(state.count), warmth(state.count)
        stride, spread = jnp.sqrt(half), jnp.sqrt(2.0 * friction * heat)

        def push(m: Array, g: Array, xi: Array) -> Array:
            keep = (1.0 - state.friction).astype(m.dtype)
            return keep * m - stride * g.astype(m.dtype) + spread * xi.astype(m.dtype)

        momentum = jax.tree.map(push, state.momentum, grads, normal_like(key, grads))
        updates = jax.tree.map(lambda m, g: (stride * m).astype(g.dtype), momentum, grads)
        leaves = jax.tree.leaves(momentum)
        energy = sum((jnp.sum(m.astype(jnp.float32) ** 2) for m in leaves), start=jnp.zeros(()))
        excess = energy / max(sum(m.size for m in leaves), 1) - heat
        return updates, SGNHTState(state.count + 1, momentum, state.friction + half * excess)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]
