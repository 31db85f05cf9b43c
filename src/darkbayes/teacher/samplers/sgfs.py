"""Stochastic gradient Fisher scoring (Ahn, Korattikara and Welling, 2012).

With g the gradient of the log posterior estimated on n of N examples, drawn with replacement, I the covariance over
examples of the gradients of single log likelihoods, lambda the precision of the prior and T the temperature,

    H = N I + lambda                       about the precision of the posterior,
    C = N^2/n I                            the covariance of g, or 0 if g is of all data,
    M = H + C/T + 4B/eta,
    theta <- theta + 2 M^-1 (g + nu),      nu ~ N(0, 4 T B/eta).

At T = 1 and without prior this is their rule, as H + C = gamma N I with gamma = (n + N)/n. The prior belongs in M as
its curvature, or else the law is off where the data say little.

Why this M: on a posterior N(m, H^-1), where g = -H (theta - m) + noise of covariance C, the stationary covariance S
solves S = (1 - 2 M^-1 H) S (1 - 2 M^-1 H)^T + 4 M^-1 (C + 4 T B/eta) M^-1. Put S = T H^-1: all cancels if
M - H = C/T + 4B/eta. So the law is **exact for every eta and every B**, discrete steps and minibatch noise included, as
far as the posterior is Gaussian and H is its precision (I is that where the model is true).

B is free; here it is H, so that eta has no unit and M = (1 + 4/eta) H + C/T. Then eta -> 0 is Langevin dynamics,
theta <- theta + eta/2 H^-1 g + N(0, eta T H^-1), right for any posterior. A step shrinks the distance to the mode by
1 - 2/(1 + 4/eta + N/n): with all data, eta = 4 makes every step a fresh draw; with minibatches, forgetting takes at
least about N/(2n) steps. eta -> infinity adds no noise but the minibatch's, and with all data only jumps from side to
side. The diagonal form has the diagonals of I in H, C and M: exact where H is diagonal, and right as eta -> 0. Strongly
correlated weights need a small eta, as a step is stable while M - H is positive definite.

I is a running mean over steps; freeze it (`adapt_steps`) for draws from one fixed transition.
"""

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.teacher.samplers.adaptation import InformationState, noisy, share_of_new
from darkbayes.teacher.samplers.auto import Sampler, auto
from darkbayes.teacher.samplers.schedules import Rate, as_schedule
from darkbayes.types import Array, PyTree


@auto
def sgfs(
    step_size: Rate,
    *,
    prior_precision: float,
    temperature: Rate = 1.0,
    full: bool = False,
    full_limit: int = 1000,
    decay: float = 0.999,
    adapt_steps: int | None = None,
) -> Sampler:
    """Fisher scoring as a gradient transformation; chains need ``gradients=per_example()`` and batches of two or more.

    Args:
        step_size: eta, which has no unit, a number or a schedule of the step count; 0.05 to 0.3 for networks, whose
            posteriors are far from Gaussian, 1 to 4 where they are near.
        prior_precision: lambda, which bounds the steps of weights that the data say nothing about.
        temperature: T, a number or a schedule. 1 samples the Bayes posterior; below 1 is colder than Bayes.
        full: the whole matrix I instead of its diagonal: d^2 numbers and d^3 operations a step for d weights.
        full_limit: the largest d for which `full` is allowed.
        decay: how much of the running mean I is kept at each step; the first steps weigh alike, and with 1 all do (the
            paper's kappa_t = 1/t).
        adapt_steps: I is learned for so many steps and then frozen; None to learn throughout.

    Returns:
        The transformation, or with ``step_size="auto"`` an `AutoStep` that waits for `tune`.
    """
    eta, warmth = as_schedule("step_size", step_size), as_schedule("temperature", temperature)
    require_positive("prior_precision", prior_precision)
    full_limit = require_count("full_limit", full_limit)
    if not 0.0 < decay <= 1.0:
        raise InvalidInput(f"decay must lie above 0 and not above 1, not {decay!r}")
    if adapt_steps is not None:
        adapt_steps = require_count("adapt_steps", adapt_steps)

    def init(params: PyTree) -> InformationState:
        # Single precision whatever the weights are: in half, a thousandth more or less is lost.
        information = optax.tree.zeros_like(params, dtype=jnp.float32)
        if full:
            size = optax.tree.size(params)
            if size > full_limit:
                large = f"a matrix of {size} x {size} for these weights, above full_limit={full_limit}"
                raise InvalidInput(f"full=True needs {large}: use full=False, or allow it with full_limit={size}")
            information = jnp.zeros((size, size), jnp.float32)
        return InformationState(jnp.zeros((), jnp.int32), information)

    def move(
        grads: PyTree, state: InformationState, noise: PyTree, *, per_example=None, num_data=None, all_data=False, **_
    ) -> tuple[PyTree, InformationState]:
        if per_example is None or num_data is None:
            raise InvalidInput("sgfs needs gradients of single examples: minibatch_chain(..., gradients=per_example())")
        if not jax.tree.leaves(grads):
            return grads, state
        number = len(jax.tree.leaves(per_example)[0])
        if number < 2:
            spread = "the spread over the examples of a batch"
            raise InvalidInput(f"sgfs needs {spread}: batch_size={number}, use 2 or more")
        step, warm = eta(state.count), warmth(state.count)
        excess = 0.0 if all_data else num_data / number
        share = share_of_new(state.count, decay, adapt_steps)
        grads, per_example, noise = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (grads, per_example, noise))
        if full:
            flat, restore = ravel_pytree(grads)
            rows = jax.vmap(lambda tree: ravel_pytree(tree)[0])(per_example)
            centred = rows - jnp.mean(rows, axis=0, keepdims=True)
            information = state.information + share * (centred.T @ centred / (number - 1) - state.information)
            of_data = num_data * information
            precision = of_data + prior_precision * jnp.eye(len(flat), dtype=jnp.float32)
            scale = (1 + 4 / step) * precision + (excess / warm) * of_data
            nu = jnp.sqrt(4 * warm / step) * (jnp.linalg.cholesky(precision) @ ravel_pytree(noise)[0])
            updates = restore(2 * jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(scale), True), nu - flat))
        else:

            def learn(information: Array, examples: Array) -> Array:
                return information + share * (jnp.var(examples, axis=0, ddof=1) - information)

            def shift(g: Array, information: Array, xi: Array) -> Array:
                of_data = num_data * information
                precision = of_data + prior_precision
                scale = (1 + 4 / step) * precision + (excess / warm) * of_data
                return 2 * (jnp.sqrt(4 * warm / step * precision) * xi - g) / scale

            information = jax.tree.map(learn, state.information, per_example)
            updates = jax.tree.map(shift, grads, information, noise)
        return updates, state._replace(information=information)

    return noisy(init, move)
