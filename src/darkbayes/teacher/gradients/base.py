"""What a step of a chain takes for the gradient, and what else it tells its sampler.

With U(theta) = -log p(theta) - sum_i log p(y_i | x_i, theta), a sampler needs an unbiased estimate of the gradient of U
from the batch B of M examples that a step sees. The plain one is the gradient of

    U_B(theta) = -log p(theta) - N/M sum_B log p(y_i | x_i, theta).

Others have less noise (`control_variates`, `svrg`) or come with more than the gradient: gradients of single examples
(`per_example`), the curvature (`with_curvature`) or a metric (`fisher_metric`). What comes with it reaches the
sampler as keyword arguments of its ``update``; one that does not ask for them is not disturbed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import require_count
from darkbayes.model import Draw, Posterior
from darkbayes.teacher.noise import signs_like
from darkbayes.types import Array, Data, Key, PyTree


class GradientEstimate(NamedTuple):
    """What one step knows of U where it stands."""

    value: Array
    """U, up to a constant."""
    grads: PyTree
    """The gradient of U, in the dtypes of the weights."""
    extras: dict[str, Any]
    """Keyword arguments for the sampler's ``update``."""
    state: PyTree
    """What the estimator carries to the next step."""


class Gradients(Protocol):
    """A way to estimate gradients. A pytree, so that arrays it holds enter compiled functions as arguments."""

    def init(self, posterior: Posterior, data: Data, params: Draw) -> PyTree:
        """What is carried from step to step, at the chain's start."""
        ...

    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any
    ) -> GradientEstimate:
        """The estimate from `batch`, which is the very object `data` if the step uses all examples."""
        ...


def energy(posterior: Posterior, batch: Data) -> Any:
    """U_B as a function of the draw."""
    return lambda params: -posterior.log_density(params, batch)


class Stateless(eqx.Module):
    """Of a kind that carries nothing from step to step."""

    def init(self, posterior: Posterior, data: Data, params: Draw) -> PyTree:
        return ()


class _MinibatchGradients(Stateless):
    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any
    ) -> GradientEstimate:
        value, grads = jax.value_and_grad(energy(posterior, batch))(params)
        return GradientEstimate(value, grads, {}, state)


def minibatch_gradients() -> Gradients:
    """The gradient of U_B and nothing else: what chains use unless told otherwise.

    Returns:
        What to give `minibatch_chain` as `gradients`.
    """
    return _MinibatchGradients()


def at_least_single(leaf: Array) -> Array:
    """In single precision if it was half."""
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def whole_gradient(posterior: Posterior, data: Data, params: Draw, chunk_size: int) -> tuple[Array, PyTree]:
    """U and its gradient on all examples, `chunk_size` at a time to spare memory, in single precision at least."""
    number = len(data.x)
    size = min(chunk_size, number)

    def of_rows(start: Array | int, rows: int) -> tuple[Array, PyTree]:
        part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, rows), data)
        return jax.value_and_grad(lambda draw: -jnp.sum(posterior.log_likelihood(draw, part)))(params)

    def add(total: tuple[Array, PyTree], part: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        return jax.tree.map(lambda sum_, leaf: sum_ + leaf.astype(sum_.dtype), total, part)

    of_prior = jax.value_and_grad(lambda draw: -posterior.log_prior(draw))(params)
    total = jax.tree.map(at_least_single, of_prior)
    whole, left_over = divmod(number, size)
    if whole == 1:
        total = add(total, of_rows(0, size))
    else:
        total = jax.lax.fori_loop(0, whole, lambda k, total: add(total, of_rows(k * size, size)), total)
    return add(total, of_rows(whole * size, left_over)) if left_over else total


def diagonal_of_jacobian(
    function: Callable[[PyTree], tuple[PyTree, Any]], params: PyTree, key: Key, probes: int
) -> tuple[PyTree, PyTree, Any]:
    """The value of `function`, an estimate of the diagonal of its Jacobian J, and what it returns besides the value.

    With z independent signs, z * (J z) has the mean diag(J) (Hutchinson, 1990); `probes` vectors of them are averaged.
    """

    def probe(key: Key) -> tuple[PyTree, PyTree, Any]:
        signs = signs_like(key, params)
        value, change, besides = jax.jvp(function, (params,), (signs,), has_aux=True)
        return value, jax.tree.map(lambda sign, leaf: sign.astype(leaf.dtype) * leaf, signs, change), besides

    axes = (None, 0, None)  # Only the change depends on the key.
    value, changes, besides = jax.vmap(probe, out_axes=axes)(jax.random.split(key, probes))
    return value, jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), changes), besides


class _WithCurvature(eqx.Module):
    gradients: Gradients | None
    probes: int

    def init(self, posterior: Posterior, data: Data, params: Draw) -> PyTree:
        return () if self.gradients is None else self.gradients.init(posterior, data, params)

    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any
    ) -> GradientEstimate:
        inner_key, probe_key = jax.random.split(key)

        def gradient(params: Draw) -> tuple[PyTree, Array]:
            value, grads = jax.value_and_grad(energy(posterior, batch))(params)
            return grads, value

        grads, curvature, value = diagonal_of_jacobian(gradient, params, probe_key, self.probes)
        if self.gradients is None:
            return GradientEstimate(value, grads, {"curvature": curvature}, state)
        estimate = self.gradients.estimate(inner_key, posterior, data, batch, params, state)
        return estimate._replace(extras=estimate.extras | {"curvature": curvature})


def with_curvature(gradients: Gradients | None = None, *, probes: int = 1) -> Gradients:
    """Gradients together with the diagonal of the Hessian of U_B (see the head of this file).

    The sampler gets ``curvature``: with z independent signs, z * (H z) has the mean diag(H) (Hutchinson, 1990), and
    is exact where H is diagonal. An entry may be negative: the estimate's noise is that of the entries off the
    diagonal, and a network's energy bends down in places.

    Args:
        gradients: where the gradient comes from, say `svrg`; the plain one unless given.
        probes: vectors of signs to average over; each costs about as much as a gradient.

    Returns:
        What to give `minibatch_chain` as `gradients`.
    """
    return _WithCurvature(gradients, require_count("probes", probes))


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
    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any
    ) -> GradientEstimate:
        losses, gradients = _of_examples(posterior, batch, params)
        value, grads = _together(posterior, params, losses, gradients)
        extras = {"per_example": gradients, "num_data": posterior.num_data, "all_data": batch is data}
        return GradientEstimate(value, grads, extras, state)


def per_example() -> Gradients:
    """The plain gradient, with that of every example of the batch: M times the memory of the weights. `sgfs` needs it.

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

    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: Any
    ) -> GradientEstimate:
        def fisher(params: Draw) -> tuple[PyTree, Any]:
            losses, gradients = _of_examples(posterior, batch, params)
            squares = jax.tree.map(lambda leaf: at_least_single(leaf) ** 2, gradients)
            return posterior.full_scale(squares), (losses, gradients)

        metric, metric_gradient, of_examples = diagonal_of_jacobian(fisher, params, key, self.probes)
        value, grads = _together(posterior, params, *of_examples)
        return GradientEstimate(value, grads, {"metric": metric, "metric_gradient": metric_gradient}, state)


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
