"""The plug-in network: the weights of highest posterior density, found by stochastic gradients.

It lowers -1/N log p(theta | D), whose minibatch estimate over M examples is

    -1/M sum_i log p(y_i | x_i, theta) - 1/N log p(theta),

the mean loss with the weight decay that the prior asks for. The likelihood's own parameters, such as a noise precision,
are found with the weights.
"""

import jax

from darkbayes.baselines.optimise import Trained
from darkbayes.model.posterior import Draw
from darkbayes.types import Array, Data, Key


class SGD(Trained):
    """Maximum a posteriori by any optimiser; it ends in a single draw.

    >>> import optax, darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> method = SGD(posterior, optax.adam(1e-2), steps=100, batch_size=10)
    >>> fitted = method.fit(jax.random.key(1), data)
    >>> db.predict_draws(posterior, method.draws(jax.random.key(2), fitted, 1), data.x).probs.shape
    (20, 2)
    """

    def loss(self, key: Key, step: Array, params: Draw, batch: Data) -> Array:
        return -self.posterior.log_density(params, batch) / self.posterior.num_data

    def draws(self, key: Key, fitted: Draw, number: int = 1) -> Draw:
        """The one draw there is, whatever the `number`."""
        return jax.tree.map(lambda leaf: leaf[None], fitted)
