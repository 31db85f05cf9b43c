"""SGLD preconditioned as RMSprop (Li, Chen, Carlson and Carin, 2016).

With g the gradient of the log posterior estimated on a minibatch at full-data scale, N the number of examples, V the
running mean of (g / N)^2, step size eta and temperature T,

    G = 1 / (damping + sqrt V),
    theta <- theta + eta/2 (G g + T Gamma) + sqrt(eta T G) xi,    xi ~ N(0, I),

with Gamma_i = dG_i / dtheta_i, what keeps the law right while G follows theta. Theta enters V through the present
gradient alone, whose weight in the mean is s = 1 - decay, so with h the diagonal of the Hessian of the negative log
posterior (g has the sign of the log posterior) Gamma = s G^2 (g / N) (h / N) / sqrt V. It is s times as small as the
rest and needs h, so it is left out unless asked for, as in the paper. Once G is frozen it is zero and the update is
linear: on a Gaussian its law is exact.

The paper's V starts at zero, which makes the first steps ten times too long; here they weigh alike. Until there are 1/s
of them V can still be the square of a single, small gradient, and Gamma without bounds: it sets in after that.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, require_count, require_positive, require_share
from darkbayes.teacher.samplers.adaptation import (
    check_adapt_steps,
    mean_of_squares,
    noisy,
    share_of_new,
    zeros_in_single,
)
from darkbayes.teacher.samplers.auto import Sampler, auto
from darkbayes.teacher.samplers.schedules import Rate, as_schedule
from darkbayes.types import Array, PyTree


class PSGLDState(NamedTuple):
    """The number of steps taken, and the running mean of the squares of the mean gradient."""

    count: Array
    squares: PyTree


@auto
def psgld(
    step_size: Rate,
    *,
    num_data: int,
    decay: float = 0.99,
    damping: float = 1e-5,
    gamma: bool = False,
    adapt_steps: int | None = None,
    temperature: Rate = 1.0,
) -> Sampler:
    """Preconditioned SGLD as a gradient transformation; `update` needs the keyword argument ``key``.

    Args:
        step_size: eta, a number or a schedule of the step count. In units of the mean gradient: about N times smaller
            than the learning rate of RMSprop.
        num_data: N.
        decay: how much of the running mean is kept at each step.
        damping: bounds the steps of weights whose gradient vanishes.
        gamma: whether to add Gamma; `update` then needs ``curvature``, an estimate of the diagonal of the Hessian of
            the negative log posterior in the shape of the gradients.
        adapt_steps: the steps after which G is frozen; None to adapt for ever.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)
    num_data = require_count("num_data", num_data)
    require_share("decay", decay)
    require_positive("damping", damping)
    adapt_steps = check_adapt_steps(adapt_steps)

    def move(
        grads: PyTree, state: PSGLDState, noise: PyTree, *, curvature: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, PSGLDState]:
        step, heat = eta(state.count), warmth(state.count)
        share = share_of_new(state.count, decay, adapt_steps)
        means = jax.tree.map(lambda g, square: g.astype(square.dtype) / num_data, grads, state.squares)
        squares = mean_of_squares(state.squares, means, share)
        scales = jax.tree.map(lambda square: 1.0 / (damping + jnp.sqrt(square)), squares)
        # Downhill, as the gradients are those of the negative log posterior.
        drifts = jax.tree.map(lambda scale, mean: scale * (num_data * mean), scales, means)
        if gamma:
            if curvature is None:
                raise InvalidInput("psgld(gamma=True) needs the curvature at each step: use gradients=with_curvature()")
            filled = state.count.astype(jnp.float32) * (1.0 - decay) >= 1.0
            weight = jnp.where(filled, share, jnp.zeros_like(share))

            def correct(drift: Array, scale: Array, mean: Array, square: Array, bend: Array) -> Array:
                root = jnp.maximum(jnp.sqrt(square), jnp.finfo(square.dtype).tiny)
                return drift + heat * weight * scale**2 * (mean / root) * bend.astype(square.dtype) / num_data

            drifts = jax.tree.map(correct, drifts, scales, means, squares, curvature)

        def shift(drift: Array, scale: Array, xi: Array) -> Any:
            return -0.5 * step * drift + jnp.sqrt(step * heat * scale) * xi.astype(scale.dtype)

        return jax.tree.map(shift, drifts, scales, noise), state._replace(squares=squares)

    return noisy(lambda params: PSGLDState(jnp.zeros((), jnp.int32), zeros_in_single(params)), move)
