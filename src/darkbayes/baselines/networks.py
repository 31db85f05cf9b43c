"""Plain networks: one that is trained by an optimiser, and several of them together."""

from typing import Any

import equinox as eqx
import jax

from darkbayes.baselines.optimise import Trained, raise_if_diverged
from darkbayes.errors import InvalidInput, plain, require_count
from darkbayes.model.posterior import Draw, Posterior
from darkbayes.types import Array, Data, Key


class SGD(Trained):
    """The plug-in network: the weights of highest posterior density, found by any optimiser. It ends in one draw.

    It lowers -1/N log p(theta | D), whose minibatch estimate over M examples is

        -1/M sum_i log p(y_i | x_i, theta) - 1/N log p(theta),

    the mean loss with the weight decay that the prior asks for. The likelihood's own parameters, such as a noise
    precision, are found with the weights.

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


class Ensemble(eqx.Module):
    """Deep ensembles (Lakshminarayanan, Pritzel and Blundell, 2017): `size` fits of `member`, usually an `SGD`.

        p(y | x) = 1/K sum_k p(y | x, theta_k),

    each theta_k from a random start and a random order of all the data, trained side by side. Give a regression
    `GaussianInputNoise` to have the means and variances of the paper; its adversarial examples are left out.

    >>> import optax, darkbayes as db
    >>> from darkbayes.baselines import SGD
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> method = Ensemble(SGD(posterior, optax.adam(1e-2), steps=100, batch_size=10), size=5)
    >>> draws = method.draws(jax.random.key(2), method.fit(jax.random.key(1), data))
    >>> draws.network[0].weight.shape
    (5, 10, 2)
    """

    member: Trained
    """The method that is fitted from each start."""
    size: int = eqx.field(converter=plain, default=5)
    """How many starts."""

    def __check_init__(self) -> None:
        require_count("size", self.size)
        if not isinstance(self.member, Trained):
            raise InvalidInput(f"member must be a method to fit, such as SGD(...), not {self.member!r}")

    @property
    def posterior(self) -> Posterior:
        return self.member.posterior

    def fit(self, key: Key, data: Data) -> Any:
        """What `member` returns, with a leading axis of members."""
        fitted = jax.vmap(self.member.fit, in_axes=(0, None))(jax.random.split(key, self.size), data)
        raise_if_diverged(fitted)
        return fitted

    def draws(self, key: Key, fitted: Any, number: int = 1) -> Draw:
        """`number` draws of each member, along one leading axis; an `SGD` has one."""
        keys = jax.random.split(key, self.size)
        draws = jax.vmap(lambda key, member: self.member.draws(key, member, number))(keys, fitted)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
