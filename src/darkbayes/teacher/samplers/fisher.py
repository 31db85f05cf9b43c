"""SGLD preconditioned by the diagonal of the Fisher information, learned as it runs, with momentum if wanted.

Plain SGLD has one step size for all weights: it must suit the stiffest, and the others crawl. With g the gradient of
the log posterior estimated on M of N examples, V the running mean of g^2 and lambda the precision of the prior,

    F = s V / (1 + s),   s = M / N        the information in the data about each weight,
    P = 1 / (F + lambda)                  about the posterior variance of each weight, given all others,
    v     <- (1 - alpha) v + eta/2 P g + sqrt(alpha eta T P) xi,    xi ~ N(0, I),
    theta <- theta + v,

where T is the temperature. eta has no unit, so that one value suits many data sets. Near the posterior V is the sum of
the variance of g, (N/M) F, and of the squares of the exact gradient, F on average, hence the factor; with full-data
gradients F = V. (The prior's part of V is left out: P only sets the pace.) At friction alpha = 1 there is no momentum.
What is carried along is m = v / sqrt(eta P / 2), whose law depends neither on eta nor on P.

The noise that minibatches bring along is not taken off the sampler's own. Its diagonal, which is all that is known,
says too much of soft directions, which then freeze, and too little of stiff ones, which heat up; `tune` keeps the step
small enough for the stiffest instead.

This is the diagonal form of Fisher scoring (Ahn, Korattikara and Welling, 2012) with the noise of Langevin dynamics. P
changes slowly, so its gradient, which an exact sampler would add, is left out (Li et al., 2016). Once P is frozen the
update is linear, and on a Gaussian its law is exact.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from darkbayes.errors import InvalidInput, require_positive, require_share
from darkbayes.model import Posterior
from darkbayes.teacher.samplers.adaptation import (
    check_adapt_steps,
    mean_of_squares,
    noisy,
    share_of_new,
    zeros_in_single,
)
from darkbayes.teacher.samplers.auto import AutoStep, auto
from darkbayes.teacher.samplers.schedules import as_schedule
from darkbayes.types import Array, PyTree


class FisherState(NamedTuple):
    """The number of steps taken, the running mean of the squares of the gradients, and the momentum, if any."""

    count: Array
    squares: PyTree
    momentum: PyTree
    friction: Array


@auto
def fisher_sgld(
    step_size: float | optax.Schedule,
    *,
    prior_precision: float | Array,
    batch_share: float | Array | None,
    friction: float = 1.0,
    decay: float = 0.999,
    adapt_steps: int | None = None,
    temperature: float | optax.Schedule = 1.0,
) -> optax.GradientTransformationExtraArgs:
    """Preconditioned SGLD as a gradient transformation; `update` needs the keyword argument ``key``.

    Args:
        step_size: eta, a number or a schedule of the step count; 0.01 to 0.05 for most networks.
        prior_precision: lambda, which bounds the steps of weights that the data say nothing about.
        batch_share: M / N, the share of the examples in a minibatch; None for full-data gradients. An array may be
            above one: examples drawn with replacement may be more than there are, and what is above holds for them.
        friction: alpha, in (0, 1]; 1 for no momentum.
        decay: how much of the running mean is kept at each step.
        adapt_steps: the steps after which P is frozen; None to adapt for ever.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)
    require_positive("prior_precision", prior_precision)
    if eqx.is_array(batch_share):
        require_positive("batch_share", batch_share)
    elif batch_share is not None and not 0.0 < batch_share <= 1.0:
        raise InvalidInput(f"batch_share must lie in (0, 1], or be None for full-data gradients, not {batch_share!r}")
    require_share("friction", friction, one=True)
    require_share("decay", decay)
    adapt_steps = check_adapt_steps(adapt_steps)
    information = 1.0 if batch_share is None else batch_share / (1 + batch_share)

    def init(params: PyTree) -> FisherState:
        zeros = zeros_in_single(params)
        momentum = None if friction == 1.0 else zeros
        return FisherState(jnp.zeros((), jnp.int32), zeros, momentum, jnp.asarray(friction, jnp.float32))

    def move(grads: PyTree, state: FisherState, noise: PyTree, **extra: Any) -> tuple[PyTree, FisherState]:
        step, spread = eta(state.count), jnp.sqrt(2.0 * friction * warmth(state.count))
        squares = mean_of_squares(state.squares, grads, share_of_new(state.count, decay, adapt_steps))
        strides = jax.tree.map(lambda square: jnp.sqrt(0.5 * step / (information * square + prior_precision)), squares)

        def push(g: Array, stride: Array, xi: Array) -> Array:
            return -stride * g.astype(stride.dtype) + spread * xi.astype(stride.dtype)

        momentum = jax.tree.map(push, grads, strides, noise)
        if state.momentum is not None:
            momentum = jax.tree.map(lambda new, old: new + (1.0 - friction) * old, momentum, state.momentum)
        kept = None if state.momentum is None else momentum
        return jax.tree.map(jnp.multiply, strides, momentum), state._replace(squares=squares, momentum=kept)

    return noisy(init, move)


def default_sampler(
    posterior: Posterior, batch_size: int | None, prior_precision: float | Array | None = None
) -> AutoStep:
    """The sampler to begin with: `fisher_sgld` with momentum, which waits for its step size.

    Args:
        posterior: what it will explore.
        batch_size: examples of a step; None for all of them.
        prior_precision: of the weights that the prior binds most; by default its `precision`, or 1.

    Returns:
        The sampler.
    """
    share = None if batch_size is None else batch_size / posterior.num_data
    if share is not None and not eqx.is_array(share):
        share = min(1.0, share)
    precision = getattr(posterior.prior, "precision", 1.0) if prior_precision is None else prior_precision
    return fisher_sgld("auto", prior_precision=precision, batch_share=share, friction=0.1)
