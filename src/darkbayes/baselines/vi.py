"""Practical variational inference (Graves, 2011): a factorised Gaussian with the divergence in closed form.

It lowers KL(q || p(theta)) - E_q log p(D | theta), divided by N, where the prior of every weight is one Gaussian
N(m, s^2). For q = prod_j N(mu_j, sigma_j^2),

    KL = sum_j log(s / sigma_j) + [(mu_j - m)^2 + sigma_j^2] / (2 s^2) - 1/2.

With `empirical` m and s^2 are kept at their optimum given q (section 5 of the paper),

    m = mean_j mu_j,   s^2 = mean_j [sigma_j^2 + (mu_j - m)^2],

where KL = sum_j log(s / sigma_j); the posterior's own prior of the weights is not used. Otherwise that prior must be a
`GaussianPrior`, and m = 0, s^2 = 1/precision. The expected log likelihood, and the likelihood's own parameters with
their prior, are averaged over draws; the gradients are reparameterised where Graves had approximations.
"""

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from darkbayes.baselines.meanfield import MeanField, Variational, entropy
from darkbayes.errors import InvalidInput
from darkbayes.model.posterior import Draw
from darkbayes.model.priors import GaussianPrior
from darkbayes.outcomes.heads.number import Normal, kl_normal
from darkbayes.types import Array, Data, Key


class VariationalInference(Variational):
    """Graves's variational inference with `samples` draws a step.

    >>> import jax, optax, darkbayes as db
    >>> data = db.data.toy1d(jax.random.key(0))
    >>> likelihood, prior = db.outcomes.GaussianSampledNoise(), db.priors.GaussianPrior(1.0)
    >>> posterior = db.Posterior(db.mlp([10], 1), likelihood, prior, num_data=20)
    >>> method = VariationalInference(posterior, optax.adam(1e-2), steps=100, batch_size=10)
    >>> method.draws(jax.random.key(2), method.fit(jax.random.key(1), data), 3).network[0].weight.shape
    (3, 10, 1)
    """

    empirical: bool = True
    """Whether the prior is fitted along with q, in place of the posterior's own."""

    def __check_init__(self) -> None:
        if not self.empirical and not isinstance(self.posterior.prior, GaussianPrior):
            raise InvalidInput(
                f"empirical=False needs a posterior with a GaussianPrior, not {type(self.posterior.prior).__name__}: "
                "use that, or BayesByBackprop"
            )

    def loss(self, key: Key, step: Array, params: MeanField, batch: Data) -> Array:
        def loss(draw: Draw) -> Array:
            log_prior = self.posterior.likelihood.log_prior(draw.likelihood)
            return -jnp.mean(self.posterior.log_likelihood(draw, batch)) - log_prior / self.posterior.num_data

        known = self.divergence(params) - entropy(params.std.likelihood)
        return self.expected(key, loss, params) + known / self.posterior.num_data

    def divergence(self, fitted: MeanField) -> Array:
        """The KL divergence of the weights' q from their prior."""
        mean, std = (ravel_pytree(part.network)[0] for part in (fitted.mean, fitted.std))
        weights = Normal(mean, std**2)
        if self.empirical:
            return kl_normal(weights, empirical_prior(weights))
        assert isinstance(self.posterior.prior, GaussianPrior)
        return kl_normal(weights, Normal(jnp.zeros(()), jnp.full((), 1 / self.posterior.prior.precision)))


def empirical_prior(weights: Normal) -> Normal:
    """The Gaussian of one mean and variance for all weights that is closest to theirs, KL(weights || .).

    >>> prior = empirical_prior(Normal(jnp.array([-1.0, 3.0]), jnp.array([1.0, 1.0])))
    >>> float(prior.mean), float(prior.variance)
    (1.0, 5.0)
    """
    mean = jnp.mean(weights.mean)
    return Normal(mean, jnp.mean(weights.variance + (weights.mean - mean) ** 2))
