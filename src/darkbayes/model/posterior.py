"""The one object that every method gets: network, likelihood, prior and the number of examples.

The log density of a draw theta, estimated on a batch of M of the N examples, is

    log p(theta) + N/M sum_i log p(y_i | x_i, theta).

`Posterior.full_scale` is where the N/M comes from; nothing else in the package multiplies by it. Where examples have
weights (`WeightedData`), each log p(y_i | x_i, theta) is multiplied by its own.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, require_count
from darkbayes.model.base import as_floats
from darkbayes.model.priors import Prior
from darkbayes.outcomes.heads.base import Likelihood
from darkbayes.types import Array, ArrayLike, Data, Key, Network, PyTree, WeightedData


class Draw(NamedTuple):
    """One point of the posterior: the network's weights and the likelihood's own parameters."""

    network: PyTree
    """The network's weights."""
    likelihood: PyTree
    """Such as a noise precision."""


class Posterior(eqx.Module):
    """What is believed of a network's weights after seeing `num_data` examples.

    >>> import darkbayes as db
    >>> posterior = Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> draw = posterior.init(jax.random.key(1), data.x)
    >>> posterior.log_density(draw, data).shape
    ()
    """

    network: Network
    """The network whose weights are uncertain."""
    likelihood: Likelihood
    """What its outputs say of a target."""
    prior: Prior
    """What is believed of the weights before data."""
    num_data: int = eqx.field(converter=partial(require_count, "num_data"))
    """N, the number of all examples, of which a batch may hold few."""
    in_turn: bool | None = None
    """Whether draws are computed one after the other, rather than all at once, when chains step and when draws predict.
    Convolutions with weights of their own for each draw may be slower at once than in turn. None to have it measured
    where a network convolves, and all at once elsewhere. Each way has bits of its own."""

    def __check_init__(self) -> None:
        if self.in_turn is not None and not isinstance(self.in_turn, bool):
            raise InvalidInput(f"in_turn must be True, False, or None to have it measured, not {self.in_turn!r}")

    def init(self, key: Key, x: Array) -> Draw:
        """A starting point for inputs like `x`."""
        return Draw(self.network.init(key, as_floats(x)), self.likelihood.init())

    def distribution(self, draw: Draw, x: Array) -> Any:
        """What one draw predicts at `x`."""
        return self.likelihood.distribution(draw.likelihood, self.network.apply(draw.network, as_floats(x)))

    def log_prior(self, draw: Draw) -> Array:
        return self.prior.log_prob(draw.network) + self.likelihood.log_prior(draw.likelihood)

    def log_likelihood(self, draw: Draw, batch: Data | WeightedData) -> Array:
        """The log likelihood of each example, ``[batch]``, times its weight where examples have any."""
        each = self.distribution(draw, batch.x).log_prob(batch.y)
        return each * batch.weights if isinstance(batch, WeightedData) else each

    def full_scale(self, of_examples: PyTree) -> PyTree:
        """The sum over all N examples, estimated without bias from those of a batch along the first axis: N/M times."""
        return jax.tree.map(lambda leaf: self.num_data * jnp.mean(leaf, axis=0), of_examples)

    def log_density(self, draw: Draw, batch: Data) -> Array:
        """The log posterior up to a constant, estimated without bias from the batch."""
        return self.log_prior(draw) + self.full_scale(self.log_likelihood(draw, batch))

    def log_joint(self, draw: Draw, data: Data, examples: Array | None = None) -> Array:
        """The same from all examples: the rows of `data`, or the first `examples` of them."""
        each = self.log_likelihood(draw, data)
        return self.log_prior(draw) + jnp.sum(
            each if examples is None else jnp.where(jnp.arange(len(each)) < examples, each, 0.0)
        )

    def of_shard(self, examples: int, share: ArrayLike) -> "Posterior":
        """This posterior as seen from a shard of its data, on which a chain spends a share q of its steps.

        The N_s examples there stand for N_s/q: the likelihood's part of the gradient is scaled by N_s/(M q), the
        prior's is not. Over a tour of all shards the steps then drift as the whole data would have it, as

            sum_s q_s [grad log p(theta) + 1/q_s grad log p(data_s | theta)] = grad log p(theta | data).

        >>> import darkbayes as db
        >>> posterior = Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
        >>> float(posterior.of_shard(6, share=0.25).num_data)
        24.0
        """
        # Not a count any more, and possibly known only when it runs: shares change, and nothing compiles anew.
        return eqx.tree_at(lambda posterior: posterior.num_data, self, jnp.asarray(examples / share, jnp.float32))

    def check(self, data: Data) -> None:
        """Refuse data that this posterior is not about, and a network that does not fit its likelihood."""
        self.likelihood.check_targets(data.y)
        if (given := len(data.x)) != self.num_data:
            made = f"num_data={self.num_data} examples"
            raise InvalidInput(f"the posterior was made for {made} but gets {given}: set num_data={given}")
        check_width("network", self.network, self.likelihood.width, type(self.likelihood).__name__, data.x)


def check_width(name: str, network: Network, width: int, wanted_by: str, x: Array) -> None:
    """Refuse a network whose outputs are not ``[batch, width]``, without running it."""
    shape = jax.eval_shape(
        lambda key, x: network.apply(network.init(key, x), x), jax.random.key(0), as_floats(x[:1])
    ).shape
    if shape != (1, width):
        wanted = f"{wanted_by} needs (1, {width}): give its last layer {width} outputs"
        raise InvalidInput(f"{name} returns shape {shape} for one row, but {wanted}")
