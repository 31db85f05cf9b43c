"""SGHMC with scales learned during burn-in (Springenberg, Klein, Falkner and Hutter, 2016).

With g the gradient of the log posterior estimated on a minibatch at full-data scale, step size eta, friction alpha and
temperature T,

    P     = 1 / sqrt V,
    v     <- (1 - alpha) v + eta/2 P g + sqrt(eta alpha T P - eta^2/4 P V P) xi,    xi ~ N(0, I),
    theta <- theta + v.

V, the mean square of g, stands for its variance, so that eta^2/4 P V P is the noise that the minibatch brings along and
that need not be added again. V is learned with a memory tau of its own for each weight, longer the noisier g is:

    r = 1 / (tau + 1),   mean <- mean + r (g - mean),   V <- V + r (g^2 - V),   tau <- tau (1 - mean^2 / V) + 1,

from tau = 0, which takes the first gradient as it is. After `adapt_steps` V is frozen: the update is then linear, and
on a Gaussian its law is exact. The paper's epsilon^2 is eta/2, and its temperature 1.

What is carried along is m = v / sqrt(eta/2 P), whose law depends neither on eta nor on P while these change.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from darkbayes.errors import require_positive, require_share
from darkbayes.teacher.samplers.adaptation import check_adapt_steps, noisy, root, still_adapting, zeros_in_single
from darkbayes.teacher.samplers.auto import Sampler, auto
from darkbayes.teacher.samplers.schedules import Rate, as_schedule
from darkbayes.types import Array, PyTree


class ScaleAdaptedState(NamedTuple):
    """The number of steps taken, the momentum with its friction, and the running estimates with their memory."""

    count: Array
    momentum: PyTree
    friction: Array
    memory: PyTree  # tau, for how many steps the estimates remember.
    mean: PyTree
    squares: PyTree


@auto
def scale_adapted_sghmc(
    step_size: Rate,
    friction: float = 0.1,
    *,
    adapt_steps: int | None,
    noisy_gradients: bool = True,
    damping: float = 1e-8,
    temperature: Rate = 1.0,
) -> Sampler:
    """Scale-adapted SGHMC as a gradient transformation; `update` needs the keyword argument ``key``.

    Args:
        step_size: eta, a number or a schedule of the step count.
        friction: alpha, in (0, 1]; 1 minus the momentum of an optimiser.
        adapt_steps: the steps after which V is frozen, at most the chain's burn-in; None to adapt for ever.
        noisy_gradients: whether gradients come from minibatches, whose noise is then not added again; False for
            full-data gradients.
        damping: added to V, for weights whose gradient vanishes.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)
    require_share("friction", friction, one=True)
    adapt_steps = check_adapt_steps(adapt_steps)
    require_positive("damping", damping)

    def init(params: PyTree) -> ScaleAdaptedState:
        zeros = zeros_in_single(params)
        count = jnp.zeros((), jnp.int32)
        return ScaleAdaptedState(count, zeros, jnp.asarray(friction, jnp.float32), zeros, zeros, zeros)

    def move(grads: PyTree, state: ScaleAdaptedState, noise: PyTree, **extra: Any) -> tuple[PyTree, ScaleAdaptedState]:
        half, heat = 0.5 * eta(state.count), warmth(state.count)
        singles = jax.tree.map(lambda g, square: g.astype(square.dtype), grads, state.squares)
        shares = jax.tree.map(lambda tau: still_adapting(1.0 / (tau + 1.0), state.count, adapt_steps), state.memory)
        mean = jax.tree.map(lambda old, r, g: old + r * (g - old), state.mean, shares, singles)
        squares = jax.tree.map(lambda old, r, g: old + r * (g**2 - old), state.squares, shares, singles)
        memory = jax.tree.map(lambda tau, m, v: tau * (1.0 - m**2 / (v + damping)) + 1.0, state.memory, mean, squares)

        def push(m: Array, g: Array, square: Array, xi: Array) -> Array:
            scale = 1.0 / jnp.sqrt(square + damping)
            brought = half * scale * square if noisy_gradients else jnp.zeros_like(square)
            spread = root(2.0 * friction * heat - brought)
            return (1.0 - friction) * m - jnp.sqrt(half * scale) * g + spread * xi.astype(m.dtype)

        momentum = jax.tree.map(push, state.momentum, singles, squares, noise)
        updates = jax.tree.map(lambda m, square: jnp.sqrt(half / jnp.sqrt(square + damping)) * m, momentum, squares)
        return updates, state._replace(momentum=momentum, memory=memory, mean=mean, squares=squares)

    return noisy(init, move)
