"""The plug-in network that a student is compared with: what one would train without darkbayes, and trained well.

The weights of highest posterior density are sought by Adam. How many steps to take is found on a part of the training
rows that is kept aside: the moment of the best log likelihood there. Then the network is trained on all of them for as
many epochs.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from darkbayes.compiled import compiled_briefly
from darkbayes.data.arrays import minibatch
from darkbayes.fit import sharing
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
    order_key, look_key, fit_key = sharing.split(key, 3)
    data = jax.tree.map(np.asarray, data)
    order = sharing.permutation(order_key, len(data.x))
    cut = max(1, int(KEPT_ASIDE * len(order)))
    aside, rest = (sharing.some_rows(data, rows) for rows in (order[:cut], order[cut:]))
    _, scores = _train(posterior, rest, aside, look_key, MOST_STRIDES)
    best = 1 + int(np.nanargmax(scores))
    strides = min(MOST_STRIDES, round(best * len(data.x) / len(rest.x)))
    return _train(posterior, data, aside, fit_key, strides)[0], STRIDE * strides


def _train(posterior: Posterior, data: Data, aside: Data, key: Key, strides: int) -> tuple[Draw, np.ndarray]:
    posterior, filled, examples = sharing.filled_rows(posterior, data)
    aside, looked_at = jax.tree.map(sharing.fill_rows, aside), sharing.count(len(aside.x))
    batch = min(BATCH, len(data.x))
    draw, scores = _strides(posterior, filled, examples, batch, aside, looked_at, key, sharing.count(strides))
    return draw, np.asarray(scores)


@compiled_briefly
def _strides(
    posterior: Posterior,
    data: Data,
    examples: Array,
    batch_size: int,
    aside: Data,
    looked_at: Array,
    key: Key,
    strides: Array,
) -> tuple[Draw, Array]:
    """Weights after so many strides, and the log likelihood of the part kept aside after each.

    Of the rows, the first `examples` are learned from, and the first `looked_at` of those kept aside are looked at.
    """
    optimiser = optax.adam(LEARNING_RATE)
    start_key, step_key = jax.random.split(key)
    start = posterior.init(start_key, data.x)

    def step(carry: tuple[Any, Any], number: Array) -> tuple[tuple[Any, Any], None]:
        draw, state = carry
        # The second key is for losses that need one.
        batch_key, _ = jax.random.split(jax.random.fold_in(step_key, number))
        batch = minibatch(batch_key, data, batch_size, examples)
        grads = jax.grad(lambda draw: -posterior.log_density(draw, batch) / posterior.num_data)(draw)
        updates, state = optimiser.update(grads, state, draw)
        return (optax.apply_updates(draw, updates), state), None

    def stride(number: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        inner, scores = carry
        inner, _ = jax.lax.scan(step, inner, number * STRIDE + jnp.arange(STRIDE))
        each = posterior.log_likelihood(inner[0], aside)
        score = jnp.sum(jnp.where(jnp.arange(len(each)) < looked_at, each, 0.0)) / looked_at
        return inner, scores.at[number].set(score)

    nothing = jnp.full(MOST_STRIDES, -jnp.inf)
    inner, scores = jax.lax.fori_loop(0, strides, stride, ((start, optimiser.init(start)), nothing))
    return inner[0], scores
