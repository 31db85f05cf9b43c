"""Dropout (Srivastava et al., 2014), and its passes as draws (Gal and Ghahramani, 2016).

In training every example has masks of its own: a layer's input unit j is multiplied by z_j / (1 - rate), where z_j is 0
with probability `rate` (`input_rate` for the network's inputs) and 1 otherwise. The scaling keeps each unit's mean, so
the trained network as it is makes the standard prediction. The loss is

    -1/M sum_i log p(y_i | x_i, theta * z_i) - 1/N log p(theta),

the weight decay being the prior's, of the weights before masking. (Gal and Ghahramani's bound has that of the masked
weights, 1/(1 - rate) times as strong in expectation for a Gaussian prior: a matter of the prior's precision.)

To drop unit j is to drop column j of the next layer's weights. So one stochastic pass is a draw of the posterior,
theta * z, and Monte Carlo dropout ends in draws as every other method does.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.baselines.optimise import Trained
from darkbayes.errors import InvalidInput, plain, require_count
from darkbayes.model.posterior import Draw
from darkbayes.types import Array, Data, Key

Layers = tuple[eqx.nn.Linear, ...]


class _Masked(eqx.Module):
    """A layer behind a mask: the network calls it as it would the layer, so its activations need not be known."""

    layer: eqx.nn.Linear
    mask: Array

    def __call__(self, x: Array) -> Array:
        return self.layer(x * self.mask)


class Dropout(Trained):
    """Dropout for networks like `mlp`, whose params are a tuple of the ``eqx.nn.Linear`` that it calls in turn.

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
            masks = self._masks(key, params.network)
            masked = tuple(_Masked(layer, mask) for layer, mask in zip(params.network, masks, strict=True))
            return self.posterior.log_likelihood(Draw(masked, params.likelihood), Data(x[None], y[None]))[0]

        log_likelihood = jax.vmap(of_example)(jax.random.split(key, len(batch.x)), batch.x, batch.y)
        return -jnp.mean(log_likelihood) - self.posterior.log_prior(params) / self.posterior.num_data

    def draws(self, key: Key, fitted: Draw, number: int) -> Draw:
        """`number` stochastic passes, each with one set of masks for whatever it is asked to predict."""
        _require_layers(fitted.network)

        def one(key: Key) -> Draw:
            masks = self._masks(key, fitted.network)
            weights = [layer.weight * mask[None] for layer, mask in zip(fitted.network, masks, strict=True)]
            return eqx.tree_at(lambda draw: [layer.weight for layer in draw.network], fitted, weights)

        return jax.vmap(one)(jax.random.split(key, require_count("number", number)))

    def _masks(self, key: Key, layers: Layers) -> list[Array]:
        """What each layer's inputs are multiplied by: 0, or 1/(1 - rate)."""
        rates = [self.input_rate] + [self.rate] * (len(layers) - 1)
        keys = jax.random.split(key, len(layers))
        return [
            jax.random.bernoulli(key, 1 - rate, layer.weight.shape[1:]).astype(layer.weight.dtype) / (1 - rate)
            for key, rate, layer in zip(keys, rates, layers, strict=True)
        ]


def _require_layers(params: Any) -> None:
    if not isinstance(params, tuple) or not all(isinstance(layer, eqx.nn.Linear) for layer in params):
        kinds = [type(layer).__name__ for layer in params] if isinstance(params, tuple) else type(params).__name__
        raise InvalidInput(f"Dropout needs a network whose params are a tuple of eqx.nn.Linear, not {kinds}: use mlp")
