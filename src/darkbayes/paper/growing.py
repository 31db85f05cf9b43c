"""Chains that never stop while examples are added under them, and their student, for several seeds side by side.

The examples lie in arrays whose shapes never change, the first `number` rows of which count: nothing is compiled anew
as they grow.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import darkbayes as db
from darkbayes.baselines.optimise import Trained, optimise
from darkbayes.teacher.keeping import reservoir_init
from darkbayes.teacher.stacking import at
from darkbayes.types import Data, Key, PyTree


class Growing:
    """A distillation of each seed.

    Args:
        posterior: with as many examples as the arrays have rows.
        sampler, batch_size: of the chains.
        student, queries, settings: as for `distillation`; the settings' reservoir holds the draws of a round.
        data: the arrays of all seeds, ``[seeds, rows, ...]``.
        number, examples: how many rows count as rows to draw from, and how many examples they stand for.
        key: where the randomness comes from.
        updates: of the student, in every round.
        begin: steps of the chains before the first round.
        start: weights at which the chains begin, ``[seeds, chains, ...]``; None for random ones.
    """

    def __init__(
        self,
        posterior: db.Posterior,
        sampler: Any,
        student: db.Student,
        queries: Any,
        settings: db.Settings,
        data: Data,
        *,
        number: int,
        examples: float,
        key: Key,
        batch_size: int,
        updates: int,
        begin: int,
        start: PyTree = None,
    ):
        self.posterior, self.student, self.draws_each = posterior, student, settings.reservoir
        thin = updates // settings.reservoir * settings.update_every
        rows, count, runs = jnp.asarray(number, jnp.int32), jnp.asarray(examples, jnp.float32), []
        for seed in range(len(data.x)):
            own = at(seed, data)
            first = None if start is None else at(seed, start)
            chain = db.minibatch_chain(posterior, sampler, *own, batch_size=batch_size, thin=thin, start=first)
            chain = eqx.tree_at(lambda c: c.examples, chain, rows, is_leaf=lambda leaf: leaf is None)
            runs.append(db.distillation(chain, student, queries, settings, monitor=own.x[:2]))
        # How many there are is known only when it runs.
        runs = [eqx.tree_at(lambda r: r.chain.posterior.num_data, run, count) for run in runs]
        self.parts: Any = db.student.side_by_side(runs)
        self.put(data, number, examples)
        self.state = self.parts.init(key)
        self.state = self.parts.burn(self.state, np.int32(begin))

    def put(self, data: Data, number: int, examples: float) -> None:
        """Have other arrays in the same places."""
        arrays = (*data, jnp.asarray(number, jnp.int32), jnp.asarray(examples, jnp.float32))

        def places(parts: Any) -> tuple[Any, ...]:
            return (*parts.apart.chain.data, parts.shared.chain.examples, parts.shared.chain.posterior.num_data)

        self.parts = eqx.tree_at(places, self.parts, arrays, is_leaf=lambda leaf: leaf is None)

    def learn(self, data: Data, number: int, examples: float, settle: int) -> None:
        """A round: go on with these examples, and after `settle` steps teach the student and keep draws."""
        self.put(data, number, examples)
        state = self.parts.burn(self.state, np.int32(settle))
        # Draws from before are none of this posterior's.
        empty = jax.vmap(jax.vmap(partial(reservoir_init, self.draws_each)))(state.teacher.draws)
        state, _ = self.parts.advance(state._replace(reservoir=empty), np.int32(self.draws_each))
        self.state = state

    @property
    def weights(self) -> PyTree:
        """Of the student of each seed."""
        return jax.tree.map(lambda leaf: leaf[:, 0], self.state.students)

    @property
    def draws(self) -> PyTree:
        """Those of the last round, ``[seeds, chains * draws, ...]``."""
        return kept_draws(self.state)


def kept_draws(state: Any) -> PyTree:
    """The draws that the chains of each of several runs have kept, ``[runs, chains * draws, ...]``."""
    return jax.tree.map(lambda leaf: leaf.reshape(len(leaf), -1, *leaf.shape[3:]), state.reservoir.slots)


@eqx.filter_jit
def train(method: Trained, params: PyTree, data: Data, keys: Key) -> PyTree:
    """Train methods from where they are, each on the data of its seed, ``[seeds, ...]``."""

    def one(params: PyTree, data: Data, key: Key) -> PyTree:
        how: Any = {"batch_size": method.batch_size, "steps": method.steps}
        return optimise(method.loss, params, method.optimiser, data, key, **how)

    return jax.vmap(one)(params, data, keys)


@eqx.filter_jit
def passes(method: Trained, fitted: PyTree, keys: Key, number: int) -> PyTree:
    """Draws of each seed's fitted method, ``[seeds, number, ...]``."""
    return jax.vmap(lambda key, fitted: method.draws(key, fitted, number))(keys, fitted)


def standing_for(method: Trained, examples: float) -> Trained:
    """A method whose data stand for so many examples, which is known only when it runs."""
    return eqx.tree_at(lambda m: m.posterior.num_data, method, jnp.asarray(examples, jnp.float32))


def falling(learning_rate: float, updates: int) -> Any:
    """A learning rate that falls to zero along a cosine, and begins anew after so many updates."""
    return lambda count: learning_rate * 0.5 * (1 + jnp.cos(jnp.pi * (count % updates) / updates))
