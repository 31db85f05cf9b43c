"""Stochastic gradient Riemannian Langevin dynamics (Patterson and Teh, 2013) with a diagonal Fisher metric.

With g the gradient of the log posterior estimated on a minibatch at full-data scale, l_i = -log p(y_i | x_i, theta),
lambda the precision of the prior, step size eta and temperature T,

    F <- decay F + (1 - decay) N mean_i (grad l_i)^2      the information in the data about each weight,
    G = F + lambda,
    Gamma_k = d/dtheta_k (1/G_k) = -(1 - decay) d/dtheta_k [N mean_i (grad l_i)_k^2] / G_k^2,
    theta <- theta + eta/2 [g/G + T Gamma] + sqrt(eta T/G) xi,    xi ~ N(0, I).

eta has no unit. Gamma makes up for a metric that changes with theta: as eta -> 0 and with exact gradients, the law
tends to p(theta | data)^(1/T) with it. Without it (`gamma` False) it tends to something else: for decay = 0 and one
weight, to a density proportional to G(theta) p(theta | data) at T = 1.

Gamma knows the present batch's share of F only: all of it with decay = 0, as theory wants it. But F and g then share
the chance of one batch, and Gamma the noise of its random signs (see `fisher_metric`): decay = 0 is for all data and
few weights. With decay near 1, F hardly feels one step, and Gamma all but vanishes, as it should. Once frozen
(`adapt_steps`) G is constant and Gamma 0: on a posterior N(m, H^-1) with gradients of covariance C the stationary
covariance S solves S = A S A^T + eta T/G + eta^2/4 G^-1 C G^-1, where A = 1 - eta/2 G^-1 H.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.teacher.samplers.adaptation import InformationState, noisy, share_of_new
from darkbayes.teacher.samplers.auto import Sampler, auto
from darkbayes.teacher.samplers.schedules import Rate, as_schedule
from darkbayes.types import Array, PyTree


@auto
def sgrld(
    step_size: Rate,
    *,
    prior_precision: float,
    temperature: Rate = 1.0,
    decay: float = 0.99,
    gamma: bool = True,
    adapt_steps: int | None = None,
) -> Sampler:
    """Riemannian Langevin dynamics as a gradient transformation; chains need ``gradients=fisher_metric()``.

    Args:
        step_size: eta, which has no unit, a number or a schedule of the step count; 0.01 to 0.1 for most networks.
        prior_precision: lambda, which bounds the steps of weights that the data say nothing about.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior; below 1 is colder than Bayes.
        decay: how much of F is kept at each step; 0 for the present batch alone. The first steps weigh alike.
        gamma: whether to add the term Gamma.
        adapt_steps: F is learned for so many steps and then frozen; None to learn throughout.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature, zero=True)
    require_positive("prior_precision", prior_precision)
    if not 0.0 <= decay < 1.0:
        raise InvalidInput(f"decay must lie in [0, 1), not {decay!r}")
    if adapt_steps is not None:
        adapt_steps = require_count("adapt_steps", adapt_steps)

    def init(params: PyTree) -> InformationState:
        # Single precision whatever the weights are: in half, a thousandth more or less is lost.
        return InformationState(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params, dtype=jnp.float32))

    def move(
        grads: PyTree, state: InformationState, noise: PyTree, *, metric: Any = None, metric_gradient: Any = None, **_
    ) -> tuple[PyTree, InformationState]:
        if metric is None or metric_gradient is None:
            raise InvalidInput("sgrld needs a metric and its gradient: minibatch_chain(..., gradients=fisher_metric())")
        step, warm = eta(state.count), warmth(state.count)
        share = share_of_new(state.count, decay, adapt_steps)

        def learn(information: Array, now: Array) -> Array:
            return information + share * (now.astype(jnp.float32) - information)

        def shift(g: Array, information: Array, change: Array, xi: Array) -> Any:
            scale = 1.0 / (information + prior_precision)
            drift = -scale * g.astype(jnp.float32)
            if gamma:
                drift = drift - warm * share * change.astype(jnp.float32) * scale**2
            return 0.5 * step * drift + jnp.sqrt(step * warm * scale) * xi.astype(jnp.float32)

        information = jax.tree.map(learn, state.information, metric)
        updates = jax.tree.map(shift, grads, information, metric_gradient, noise)
        return updates, state._replace(information=information)

    return noisy(init, move)
