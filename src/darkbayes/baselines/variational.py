"""Factorised Gaussians over draws, fitted by reparameterised gradients: Bayes by backprop, and Graves's method.

    q(theta) = prod_j N(theta_j | mu_j, sigma_j^2),   sigma_j = log(1 + exp(rho_j)),

over the network's weights and the likelihood's own parameters alike. A draw is mu + sigma * xi with xi standard normal,
so that gradients of averages over draws reach mu and rho. Both lower KL(q || p(theta)) - E_q log p(D | theta), at
scale 1/N, with E log q in closed form.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from darkbayes.baselines.optimise import Trained
from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.model.posterior import Draw
from darkbayes.model.priors import GaussianPrior
from darkbayes.outcomes.heads.number import Normal, kl_normal
from darkbayes.outcomes.number import LOG_2PI
from darkbayes.teacher.noise import normal_like
from darkbayes.types import Array, ArrayLike, Data, Key, PyTree


class MeanField(eqx.Module):
    """A Gaussian for each parameter: its mean, and rho, the inverse softplus of its standard deviation."""

    mean: Draw
    """mu."""
    rho: Draw
    """The inverse softplus of sigma."""

    @property
    def std(self) -> Draw:
        return jax.tree.map(jax.nn.softplus, self.rho)

    def draw(self, key: Key) -> Draw:
        """One draw, differentiable in the means and rhos."""
        noise = normal_like(key, self.mean)
        return jax.tree.map(lambda mean, std, xi: mean + std * xi, self.mean, self.std, noise)

    def draws(self, key: Key, number: int) -> Draw:
        return jax.vmap(self.draw)(jax.random.split(key, require_count("number", number)))


class Variational(Trained):
    """A method that fits a `MeanField`, by an average over draws of it at each step."""

    samples: int = eqx.field(converter=partial(require_count, "samples"), default=1)
    """Draws of q at each step."""
    initial_std: float = eqx.field(converter=partial(require_positive, "initial_std"), default=0.01)
    """The standard deviation of every weight to begin with."""

    def start(self, key: Key, x: Array) -> MeanField:
        """Means where a plain network would start, and one standard deviation for all."""
        mean, rho = self.posterior.init(key, x), jnp.log(jnp.expm1(self.initial_std))
        return MeanField(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, rho), mean))

    def draws(self, key: Key, fitted: MeanField, number: int) -> Draw:
        return fitted.draws(key, number)

    def expected(self, key: Key, loss: Callable[[Draw], Array], fitted: MeanField) -> Array:
        return jnp.mean(jax.vmap(lambda key: loss(fitted.draw(key)))(jax.random.split(key, self.samples)))


class BayesByBackprop(Variational):
    """Bayes by backprop (Blundell et al., 2015). Learning fails unless the deviations start out small.

    On minibatch i = 1..M of an epoch, with draws theta of q, one for all of the minibatch, the paper's loss is

        pi_i [log q(theta) - log p(theta)] - sum over the minibatch of log p(y | x, theta),   sum_i pi_i = 1,

    with pi_i = 1/M ("uniform"), or 2^(M-i) / (2^M - 1) ("geometric"), which lets the prior rule the beginning of an
    epoch and the data the rest. Minibatches are independent, so an epoch is merely M = ceil(N / batch size) steps, and
    the uniform weights make every step unbiased. The prior is the posterior's: `GaussianPrior`, `ScaleMixturePrior`
    (the paper's), or any other with a density.

    >>> import optax, darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.ScaleMixturePrior(), num_data=20)
    >>> method = BayesByBackprop(posterior, optax.adam(1e-2), steps=100, batch_size=10)
    >>> method.draws(jax.random.key(2), method.fit(jax.random.key(1), data), 3).network[0].weight.shape
    (3, 10, 2)
    """

    kl_weights: Literal["uniform", "geometric"] = "uniform"
    """How the prior's share of the loss is spread over the minibatches of an epoch."""

    def __check_init__(self) -> None:
        if self.kl_weights not in ("uniform", "geometric"):
            raise InvalidInput(f"kl_weights must be 'uniform' or 'geometric', not {self.kl_weights!r}")

    def loss(self, key: Key, step: Array, params: MeanField, batch: Data) -> Array:
        weight = 1.0  # M pi_i, which is 1 on average over an epoch.
        if self.kl_weights == "geometric" and self.batch_size is not None:
            batches = -(-self.posterior.num_data // self.batch_size)
            weight = batches * geometric_weight(step % batches, batches)
        prior_share = weight / self.posterior.num_data

        def loss(draw: Draw) -> Array:
            log_likelihood = jnp.mean(self.posterior.log_likelihood(draw, batch))
            return -log_likelihood - prior_share * self.posterior.log_prior(draw)

        return self.expected(key, loss, params) - prior_share * entropy(params.std)


def geometric_weight(index: ArrayLike, batches: int) -> Array:
    """Blundell et al.'s share of the KL for minibatch `index` = 0 .. `batches` - 1, in powers that cannot overflow.

    >>> [round(float(geometric_weight(i, 3)), 4) for i in range(3)]
    [0.5714, 0.2857, 0.1429]
    """
    return jnp.exp2(-1.0 - jnp.asarray(index, jnp.float32)) / (1 - 2.0**-batches)


class VariationalInference(Variational):
    """Practical variational inference (Graves, 2011), with the divergence from a Gaussian prior in closed form.

    The prior of every weight is one Gaussian N(m, s^2). For q = prod_j N(mu_j, sigma_j^2),

        KL = sum_j log(s / sigma_j) + [(mu_j - m)^2 + sigma_j^2] / (2 s^2) - 1/2.

    With `empirical` m and s^2 are kept at their optimum given q (section 5 of the paper),

        m = mean_j mu_j,   s^2 = mean_j [sigma_j^2 + (mu_j - m)^2],

    where KL = sum_j log(s / sigma_j); the posterior's own prior of the weights is not used. Otherwise that prior must
    be a `GaussianPrior`, and m = 0, s^2 = 1/precision. The expected log likelihood, and the likelihood's own parameters
    with their prior, are averaged over draws; the gradients are reparameterised where Graves had approximations.

    >>> import optax, darkbayes as db
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
            given, remedy = type(self.posterior.prior).__name__, "use that, or BayesByBackprop"
            raise InvalidInput(f"empirical=False needs a posterior with a GaussianPrior, not {given}: {remedy}")

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


def entropy(std: PyTree) -> Array:
    """The entropy of independent Gaussians, -E log q, in nats, in place of a Monte Carlo estimate of it."""
    # Whose gradient is without noise anyhow: log q(mu + sigma * xi) is -log sigma plus a function of xi alone.
    return sum((jnp.sum(jnp.log(leaf) + 0.5 * (LOG_2PI + 1.0)) for leaf in jax.tree.leaves(std)), start=jnp.zeros(()))
