"""The diagonal of the Hessian, estimated beside the gradient."""

import equinox as eqx
import jax

from darkbayes.errors import require_count
from darkbayes.model import Draw, Posterior
from darkbayes.teacher.gradients.base import Estimate, Gradients, diagonal_of_jacobian, energy
from darkbayes.types import Array, Data, Key, PyTree


class _WithCurvature(eqx.Module):
    gradients: Gradients | None
    probes: int

    def init(self, posterior: Posterior, data: Data, params: Draw) -> PyTree:
        return () if self.gradients is None else self.gradients.init(posterior, data, params)

    def estimate(
        self, key: Key, posterior: Posterior, data: Data, batch: Data, params: Draw, state: PyTree
    ) -> Estimate:
        inner_key, probe_key = jax.random.split(key)

        def gradient(params: Draw) -> tuple[PyTree, Array]:
            value, grads = jax.value_and_grad(energy(posterior, batch))(params)
            return grads, value

        grads, curvature, value = diagonal_of_jacobian(gradient, params, probe_key, self.probes)
        if self.gradients is None:
            return Estimate(value, grads, {"curvature": curvature}, state)
        estimate = self.gradients.estimate(inner_key, posterior, data, batch, params, state)
        return estimate._replace(extras=estimate.extras | {"curvature": curvature})


def with_curvature(gradients: Gradients | None = None, *, probes: int = 1) -> Gradients:
    """Gradients together with the diagonal of the Hessian of U_B (see `darkbayes.teacher.gradients.base`).

    The sampler gets ``curvature``: with z independent signs, z * (H z) has the mean diag(H) (Hutchinson, 1990), and
    is exact where H is diagonal. An entry may be negative: the estimate's noise is that of the entries off the
    diagonal, and a network's energy bends down in places.

    Args:
        gradients: where the gradient comes from, say `svrg`; the plain one unless given.
        probes: vectors of signs to average over; each costs about as much as a gradient.

    Returns:
        What to give `minibatch_chain` as `gradients`.

    >>> import darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([4], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> draw = posterior.init(jax.random.key(1), data.x)
    >>> estimate = with_curvature().estimate(jax.random.key(2), posterior, data, data, draw, ())
    >>> estimate.extras["curvature"].network[0].weight.shape
    (4, 2)
    """
    return _WithCurvature(gradients, require_count("probes", probes))
