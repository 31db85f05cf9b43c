"""Bayes by backprop (Blundell et al., 2015): a factorised Gaussian fitted by reparameterised gradients.

It lowers the variational free energy KL(q || p(theta)) - E_q log p(D | theta). On minibatch i = 1..M of an epoch, with
draws theta of q, one for all of the minibatch, the paper's loss is

    pi_i [log q(theta) - log p(theta)] - sum over the minibatch of log p(y | x, theta),   sum_i pi_i = 1,

with pi_i = 1/M ("uniform"), or 2^(M-i) / (2^M - 1) ("geometric"), which lets the prior rule the beginning of an epoch
and the data the rest. Here it is multiplied by M/N, to be a mean loss, and E log q is in closed form. Minibatches are
independent, so an epoch is merely M = ceil(N / batch size) steps, and the uniform weights make every step unbiased.

The prior is the posterior's: `GaussianPrior`, `ScaleMixturePrior` (the paper's), or any other with a density.
"""

from typing import Literal

import jax.numpy as jnp

from darkbayes.baselines.meanfield import MeanField, Variational, entropy
from darkbayes.errors import InvalidInput
from darkbayes.model.posterior import Draw
from darkbayes.types import Array, ArrayLike, Data, Key


class BayesByBackprop(Variational):
    """Bayes by backprop with `samples` draws a step. Learning fails unless the deviations start out small.

    >>> import jax, optax, darkbayes as db
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
        prior_share = self._kl_weight(step) / self.posterior.num_data

        def loss(draw: Draw) -> Array:
            log_likelihood = jnp.mean(self.posterior.log_likelihood(draw, batch))
            return -log_likelihood - prior_share * self.posterior.log_prior(draw)

        return self.expected(key, loss, params) - prior_share * entropy(params.std)

    def _kl_weight(self, step: Array) -> ArrayLike:
        """M pi_i, which is 1 on average over an epoch."""
        if self.kl_weights == "uniform" or self.batch_size is None:
            return 1.0
        batches = -(-self.posterior.num_data // self.batch_size)
        return batches * geometric_weight(step % batches, batches)


def geometric_weight(index: ArrayLike, batches: int) -> Array:
    """Blundell et al.'s share of the KL for minibatch `index` = 0 .. `batches` - 1, in powers that cannot overflow.

    >>> [round(float(geometric_weight(i, 3)), 4) for i in range(3)]
    [0.5714, 0.2857, 0.1429]
    """
    return jnp.exp2(-1.0 - jnp.asarray(index, jnp.float32)) / (1 - 2.0**-batches)
