"""Dropout (Srivastava et al., 2014), and its passes as draws (Gal and Ghahramani, 2016).

In training every example has masks of its own: a layer's input unit j is multiplied by z_j / (1 - rate), where z_j is 0
with probability `rate` (`input_rate` for the network's inputs) and 1 otherwise. The scaling keeps each unit's mean, so
the trained network as it is makes the standard prediction. The loss is

    -1/M sum_i log p(y_i | x_i, theta * z_i) - 1/N log p(theta),

the weight decay being the prior's, of the weights before masking. (Gal and Ghahramani's bound has that of the masked
weights, 1/(1 - rate) times as strong in expectation for a Gaussian prior: a matter of the prior's precision.)

Of images it is whole channels that are dropped. To drop unit or channel j is to drop column j of the next layer's
weights. So one stochastic pass is a draw of the posterior, theta * z, and Monte Carlo dropout ends in draws as every
other method does.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.baselines.optimise import Trained
from darkbayes.errors import InvalidInput, plain, require_count
from darkbayes.model.posterior import Draw
from darkbayes.types import Array, Data, Key, PyTree

Weighted = eqx.nn.Linear | eqx.nn.Conv2d


class _Masked(eqx.Module):
    """A layer behind a mask: the network calls it as it would the layer, so its activations need not be known."""

    layer: Weighted
    mask: Array

    def __call__(self, x: Array) -> Array:
        return self.layer(x * self.mask.reshape(-1, *[1] * (x.ndim - 1)))


class Dropout(Trained):
    """Dropout for networks made of layers, such as `mlp` and `resnet`: of the inputs of linear layers and convolutions.

    `fit` returns the trained network: the standard prediction is ``predict_plugin(posterior, fitted, x)``, that of MC
    dropout ``predict_draws(posterior, method.draws(key, fitted, 100), x)``.

    >>> import optax, darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> method = Dropout(posterior, optax.adam(1e-2), steps=100, batch_size=10, rate=0.5)
    >>> draws = method.draws(jax.random.key(2), method.fit(jax.random.key(1), data), 3)
    >>> draws.network[1].weight.shape
    (3, 2, 10)
    """

    rate: float = eqx.field(converter=plain)
    """The probability of dropping a hidden unit."""
    input_rate: float = eqx.field(converter=plain, default=0.0)
    """The probability of dropping an input."""

    def __check_init__(self) -> None:
        for name, value in (("rate", self.rate), ("input_rate", self.input_rate)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise InvalidInput(f"{name} must be a probability below 1 of dropping a unit, not {value!r}")

    def check(self, data: Data) -> None:
        super().check(data)
        _require_layers(jax.eval_shape(self.posterior.init, jax.random.key(0), data.x).network)

    def loss(self, key: Key, step: Array, params: Draw, batch: Data) -> Array:
        def of_example(key: Key, x: Array, y: Array) -> Array:
            masked = self._with_masks(key, params.network, _Masked)
            return self.posterior.log_likelihood(Draw(masked, params.likelihood), Data(x[None], y[None]))[0]

        log_likelihood = jax.vmap(of_example)(jax.random.split(key, len(batch.x)), batch.x, batch.y)
        return -jnp.mean(log_likelihood) - self.posterior.log_prior(params) / self.posterior.num_data

    def draws(self, key: Key, fitted: Draw, number: int) -> Draw:
        """`number` stochastic passes, each with one set of masks for whatever it is asked to predict."""
        _require_layers(fitted.network)

        def thinned(layer: Weighted, mask: Array) -> Any:
            weight = layer.weight * mask.reshape(1, -1, *[1] * (layer.weight.ndim - 2))
            return eqx.tree_at(lambda layer: layer.weight, layer, weight)

        def one(key: Key) -> Draw:
            return fitted._replace(network=self._with_masks(key, fitted.network, thinned))

        return jax.vmap(one)(jax.random.split(key, require_count("number", number)))

    def _with_masks(self, key: Key, params: PyTree, use: Callable[[Any, Array], Any]) -> PyTree:
        """Weights in which each layer is what `use` makes of it and of what its inputs are multiplied by."""
        parts, structure = jax.tree.flatten(params, is_leaf=_weighted)
        places = [place for place, part in enumerate(parts) if _weighted(part)]
        rates = [self.input_rate] + [self.rate] * (len(places) - 1)
        for place, rate, own in zip(places, rates, jax.random.split(key, len(places)), strict=True):
            weight = parts[place].weight
            kept = jax.random.bernoulli(own, 1 - rate, weight.shape[1:2]).astype(weight.dtype)
            parts[place] = use(parts[place], kept / (1 - rate))
        return jax.tree.unflatten(structure, parts)


def _weighted(part: Any) -> bool:
    return isinstance(part, Weighted) and getattr(part, "groups", 1) == 1


def _require_layers(params: Any) -> None:
    if not isinstance(params, tuple) or not any(map(_weighted, jax.tree.leaves(params, is_leaf=_weighted))):
        kinds = [type(layer).__name__ for layer in params] if isinstance(params, tuple) else type(params).__name__
        needed = "a network whose params are a tuple of eqx.nn.Linear or eqx.nn.Conv2d"
        raise InvalidInput(f"Dropout needs {needed}, not {kinds}: use mlp, cnn or resnet")
