"""What a step of a chain takes for the gradient, and what else it tells its sampler.

With U(theta) = -log p(theta) - sum_i log p(y_i | x_i, theta), a sampler needs an unbiased estimate of the gradient of U
from the batch B of M examples that a step sees. The plain one is the gradient of

    U_B(theta) = -log p(theta) - N/M sum_B log p(y_i | x_i, theta).

Others have less noise (`control_variates`, `svrg`) or come with more than the gradient: gradients of single examples
(`per_example`), the curvature (`with_curvature`) or a metric (`fisher_metric`). What comes with it reaches the
sampler as keyword arguments of its ``update``; one that does not ask for them is not disturbed.
"""

from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax

from darkbayes.model import Draw, Posterior
from darkbayes.types import Array, Data, Key, PyTree


class Estimate(NamedTuple):
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
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: PyTree
    ) -> Estimate:
        """The estimate from `batch`, which is the very object `data` if the step uses all examples."""
        ...


def energy(posterior: Posterior, batch: Data) -> Any:
    """U_B as a function of the draw."""
    return lambda params: -posterior.log_density(params, batch)


class _MinibatchGradients(eqx.Module):
    def init(self, posterior: Posterior, data: Data, params: Draw) -> PyTree:
        return ()

    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: PyTree
    ) -> Estimate:
        value, grads = jax.value_and_grad(energy(posterior, batch))(params)
        return Estimate(value, grads, {}, state)


def minibatch_gradients() -> Gradients:
    """The gradient of U_B and nothing else: what chains use unless told otherwise.

    >>> minibatch_gradients().init(None, None, None)
    ()
    """
    return _MinibatchGradients()
