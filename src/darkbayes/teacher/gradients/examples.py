"""Gradients of single examples, and the metric that they make.

With l_i(theta) = -log p(y_i | x_i, theta), the gradient of U_B (see `darkbayes.teacher.gradients.base`) is that of the
prior plus N/M times the sum of the grad l_i. Knowing each of them costs memory, M times that of the weights, and gives
their spread, the noise of the minibatch (`per_example`), and the mean of their squares, the diagonal of the empirical
Fisher information, with how it changes with the weights (`fisher_metric`).
"""

from typing import Any

import jax

from darkbayes.errors import require_count
from darkbayes.model import Draw, Posterior
from darkbayes.teacher.gradients.base import Estimate, Gradients, Stateless, at_least_single, diagonal_of_jacobian
from darkbayes.types import Array, Data, Key, PyTree


def _of_examples(posterior: Posterior, batch: Data, params: Draw) -> tuple[Array, PyTree]:
    """Each l_i and its gradient, along the first axis."""

    def loss(params: Draw, example: Data) -> Array:
        alone = jax.tree.map(lambda leaf: leaf[None], example)
        return -posterior.log_likelihood(params, alone)[0]

    return jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0))(params, batch)


def _together(posterior: Posterior, params: Draw, losses: Array, gradients: PyTree) -> tuple[Array, PyTree]:
    """U_B and its gradient from those of the examples."""
    of_prior = jax.value_and_grad(lambda draw: -posterior.log_prior(draw))(params)
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), of_prior, posterior.full_scale((losses, gradients)))


class _PerExample(Stateless):
    def estimate(self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any) -> Estimate:
        losses, gradients = _of_examples(posterior, batch, params)
        value, grads = _together(posterior, params, losses, gradients)
        extras = {"per_example": gradients, "num_data": posterior.num_data, "all_data": batch is data}
        return Estimate(value, grads, extras, state)


def per_example() -> Gradients:
    """The plain gradient, together with the gradient of every example of the batch. `sgfs` needs it.

    The sampler gets ``per_example``, the gradients of l_i = -log p(y_i | x_i, theta) along a leading axis, not scaled
    by N and without the prior; ``num_data``, which is N; and ``all_data``, whether the batch is all of the data, so
    that the gradient has no noise.

    Returns:
        What to give `minibatch_chain` as `gradients`.

    >>> import darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([4], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> draw = posterior.init(jax.random.key(1), data.x)
    >>> batch = jax.tree.map(lambda leaf: leaf[:5], data)
    >>> estimate = per_example().estimate(jax.random.key(2), posterior, data, batch, draw, ())
    >>> estimate.grads.network[0].weight.shape, estimate.extras["per_example"].network[0].weight.shape
    ((4, 2), (5, 4, 2))
    """
    return _PerExample()


class _FisherMetric(Stateless):
    probes: int

    def estimate(self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any) -> Estimate:
        def fisher(params: Draw) -> tuple[PyTree, Any]:
            losses, gradients = _of_examples(posterior, batch, params)
            squares = jax.tree.map(lambda leaf: at_least_single(leaf) ** 2, gradients)
            return posterior.full_scale(squares), (losses, gradients)

        metric, metric_gradient, of_examples = diagonal_of_jacobian(fisher, params, key, self.probes)
        value, grads = _together(posterior, params, *of_examples)
        return Estimate(value, grads, {"metric": metric, "metric_gradient": metric_gradient}, state)


def fisher_metric(probes: int = 1) -> Gradients:
    """The plain gradient, together with the diagonal of the Fisher information and its gradient. `sgrld` needs it.

    The sampler gets ``metric``, F = N times the mean over the batch of (grad l_i)^2, and ``metric_gradient``, an
    estimate of dF_k/dtheta_k for every weight k: with J the Jacobian of F and z independent signs, z * (J z) has the
    mean diag(J) (Hutchinson, 1990). It is exact for one weight, and where F_k depends on theta_k alone.

    Args:
        probes: vectors of signs to average over; each costs about as much as a gradient.

    Returns:
        What to give `minibatch_chain` as `gradients`.
    """
    return _FisherMetric(require_count("probes", probes))
