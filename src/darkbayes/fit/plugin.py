"""The plug-in network that a student is compared with: what one would train without darkbayes, and trained well.

The weights of highest posterior density are sought by Adam. How many steps to take is found on a part of the training
rows that is kept aside: the moment of the best log likelihood there. Then the network is trained on all of them for as
many epochs.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from darkbayes.baselines import SGD
from darkbayes.data import minibatch
from darkbayes.model import Draw, Posterior
from darkbayes.types import Array, Data, Key

LEARNING_RATE = 3e-3
BATCH = 100
STRIDE, MOST_STRIDES = 100, 60
"""Steps between two looks at the part kept aside, and how many looks there are."""
KEPT_ASIDE = 0.2
"""The share of the rows to find the number of steps on."""


def plug_in(posterior: Posterior, data: Data, key: Key) -> tuple[Draw, int]:
    """The plug-in network's weights, and the number of steps that were found best."""
    order_key, look_key, fit_key = jax.random.split(key, 3)
    order = np.asarray(jax.random.permutation(order_key, len(data.x)))
    cut = max(1, int(KEPT_ASIDE * len(order)))
    aside, rest = (Data(data.x[rows], data.y[rows]) for rows in (order[:cut], order[cut:]))
    _, scores = _train(dataclasses.replace(posterior, num_data=len(rest.x)), rest, aside, look_key, MOST_STRIDES)
    best = 1 + int(np.nanargmax(scores))
    strides = min(MOST_STRIDES, round(best * len(data.x) / len(rest.x)))
    return _train(posterior, data, aside, fit_key, strides)[0], STRIDE * strides


def _train(posterior: Posterior, data: Data, aside: Data, key: Key, strides: int) -> tuple[Draw, np.ndarray]:
    draw, scores = _strides(posterior, data, aside, key, np.int32(strides))  # pyright: ignore[reportArgumentType]
    return draw, np.asarray(scores)


@eqx.filter_jit
def _strides(posterior: Posterior, data: Data, aside: Data, key: Key, strides: Array) -> tuple[Draw, Array]:
    """Weights after so many strides, and the log likelihood of the part kept aside after each."""
    method = SGD(posterior, optax.adam(LEARNING_RATE), STRIDE, min(BATCH, len(data.x)))
    start_key, step_key = jax.random.split(key)
    start = method.start(start_key, data.x)

    def step(carry: tuple[Any, Any], number: Array) -> tuple[tuple[Any, Any], None]:
        draw, state = carry
        batch_key, loss_key = jax.random.split(jax.random.fold_in(step_key, number))
        batch = minibatch(batch_key, data, method.batch_size)
        grads = jax.grad(method.loss, argnums=2)(loss_key, number, draw, batch)
        updates, state = method.optimiser.update(grads, state, draw)
        return (optax.apply_updates(draw, updates), state), None

    def stride(number: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        inner, scores = carry
        inner, _ = jax.lax.scan(step, inner, number * STRIDE + jnp.arange(STRIDE))
        score = jnp.mean(posterior.distribution(inner[0], aside.x).log_prob(aside.y))
        return inner, scores.at[number].set(score)

    nothing = jnp.full(MOST_STRIDES, -jnp.inf)
    inner, scores = jax.lax.fori_loop(0, strides, stride, ((start, method.optimiser.init(start)), nothing))
    return inner[0], scores
