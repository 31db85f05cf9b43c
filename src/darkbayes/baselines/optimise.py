"""What all comparators share: one compiled loop over minibatches, and what a method must say to be trained by it.

A comparator is fitted on a `Posterior`, as a teacher is, and ends in draws of it, so that ``predict_draws`` gives the
common predictive form. It says what the optimiser starts from (`start`), what it lowers (`loss`) and how the result
becomes draws (`draws`); `fit` is the same for all. It is a pure function of a key and the data, so that

    jax.vmap(method.fit)(keys, stacked_data)                   fits many data sets of one size at once,
    jax.vmap(method.fit, in_axes=(0, None))(keys, data)        runs several trials on one.

Losses are at scale 1/N: the negative log posterior, or the bound on it, divided by the number of examples. It is the
customary mean loss, and learning rates mean what they do elsewhere; samplers, by contrast, get full-data gradients.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from jax.core import Tracer

from darkbayes.data.arrays import check_batch_size, minibatch
from darkbayes.data.augmentation import Augment
from darkbayes.errors import Divergence, InvalidInput, plain, require_count
from darkbayes.model.posterior import Draw, Posterior
from darkbayes.types import Array, Data, Key, PyTree


def optimise(
    loss: Callable[[Key, Array, PyTree, Data], Array],
    params: PyTree,
    optimiser: optax.GradientTransformation,
    data: Data,
    key: Key,
    *,
    batch_size: int | None,
    steps: int,
) -> PyTree:
    """Lower ``loss(key, step, params, batch)`` by `steps` steps of `optimiser`; steps count from 0.

    Args:
        loss, params: what to lower, a function of a key, the step, the parameters and a batch; and where to begin.
        optimiser: one of optax's.
        data, key: all examples, and where the randomness comes from.
        batch_size, steps: examples a step, drawn with replacement, None for all of them; and how many steps to take.

    Returns:
        The parameters after the last step.

    >>> data = Data(jax.numpy.ones((8, 1)), jax.numpy.ones((8, 1)))
    >>> error = lambda key, step, slope, batch: jax.numpy.mean((slope * batch.x - batch.y) ** 2)
    >>> slope = jax.numpy.zeros(())
    >>> round(float(optimise(error, slope, optax.sgd(0.1), data, jax.random.key(0), batch_size=2, steps=100)), 3)
    1.0
    """
    optimiser = optax.with_extra_args_support(optimiser)

    def step(count: Array, carry: tuple[PyTree, Any]) -> tuple[PyTree, Any]:
        params, state = carry
        batch_key, loss_key = jax.random.split(jax.random.fold_in(key, count))
        batch = minibatch(batch_key, data, batch_size)
        value, grads = jax.value_and_grad(loss, argnums=2)(loss_key, count, params, batch)
        updates, state = optimiser.update(grads, state, params, value=value)
        return optax.apply_updates(params, updates), state

    return jax.lax.fori_loop(0, steps, step, (params, optimiser.init(params)))[0]


class Trained(eqx.Module):
    """A method that an optimiser trains; its subclasses are the methods."""

    posterior: Posterior
    """What is fitted."""
    optimiser: optax.GradientTransformation
    """One of optax's."""
    steps: int = eqx.field(converter=partial(require_count, "steps"))
    """How many steps it takes."""
    batch_size: int | None = eqx.field(converter=plain)
    """Examples a step, drawn with replacement; None for all of them."""
    augment: Augment | None = eqx.field(default=None, kw_only=True)
    """What is done to the inputs of every batch, such as ``db.data.augmentation.flip()``."""

    def __check_init__(self) -> None:
        if not isinstance(self.optimiser, optax.GradientTransformation):
            raise InvalidInput(f"optimiser must be one of optax's, such as optax.adam(1e-3), not {self.optimiser!r}")
        check_batch_size(self.batch_size, self.posterior.num_data)

    def start(self, key: Key, x: Array) -> PyTree:
        """What the optimiser starts from, for inputs like `x`; a point of the posterior unless a method has its own."""
        return self.posterior.init(key, x)

    @abstractmethod
    def loss(self, key: Key, step: Array, params: PyTree, batch: Data) -> Array:
        """What the optimiser lowers, at scale 1/N."""

    @abstractmethod
    def draws(self, key: Key, fitted: PyTree, number: int) -> Draw:
        """`number` draws of the posterior from what `fit` returned, along a leading axis."""

    def check(self, data: Data) -> None:
        """Refuse data that the posterior is not about; of data being traced only the shapes are known."""
        if not isinstance(data.y, Tracer):
            self.posterior.check(data)
        elif len(data.x) != self.posterior.num_data:
            raise InvalidInput(f"data holds {len(data.x)} examples a fit, not num_data={self.posterior.num_data}")

    def train(self, key: Key, data: Data) -> PyTree:
        """What the optimiser makes of the start; traceable."""
        start_key, loop_key = jax.random.split(key)
        start, size = self.start(start_key, data.x), self.batch_size
        return optimise(self._augmented_loss, start, self.optimiser, data, loop_key, batch_size=size, steps=self.steps)

    def _augmented_loss(self, key: Key, step: Array, params: PyTree, batch: Data) -> Array:
        if self.augment is not None:
            batch = batch._replace(x=self.augment(jax.random.fold_in(key, 0), batch.x))
        return self.loss(key, step, params, batch)

    def fit(self, key: Key, data: Data) -> Any:
        """Train from a random start. A result that is not finite is an error, but under ``jax.vmap`` it is returned."""
        self.check(data)
        fitted = _fit(self, key, data)
        raise_if_diverged(fitted)
        return fitted


@eqx.filter_jit
def _fit(method: Trained, key: Key, data: Data) -> PyTree:
    return method.train(key, data)


def raise_if_diverged(fitted: PyTree) -> None:
    """Refuse a fit whose numbers are not all finite, as ``jax.vmap(method.fit)`` may return it.

    Args:
        fitted: what a method's `fit` returned; nothing is asked of it while it is traced.
    """
    leaves = [leaf for leaf in jax.tree.leaves(fitted) if not isinstance(leaf, Tracer)]
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise Divergence("the fit diverged: use a smaller learning rate (try a tenth), or standardise the data")


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
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> method = Ensemble(SGD(posterior, optax.adam(1e-2), steps=100, batch_size=10), size=5)
    >>> draws = method.draws(jax.random.key(2), method.fit(jax.random.key(1), data))
    >>> draws.network[0].weight.shape
    (5, 10, 2)
    """

    member: Trained
    """The method that is fitted from each start."""
    size: int = eqx.field(converter=partial(require_count, "size"), default=5)
    """How many starts."""

    def __check_init__(self) -> None:
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
