"""Draws that are there already, as a chain: an ensemble, passes of dropout, a Gaussian fit's draws, a run's own.

At each step every chain is at a stored draw, all equally often. The chains stay apart: step t of chain c is at the draw
(s_c + r_t) mod S, with starting places s_c that differ and a shift r_t that is random and the same for all. So the
targets of a student are averages over as many different draws as there are chains, and over all of them at once if
there are S chains.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.data.arrays import as_inputs
from darkbayes.errors import InvalidInput, require_count
from darkbayes.model import Draw, Posterior
from darkbayes.types import Array, Info, Key


class StoredState(NamedTuple):
    """The present draw, where the chain began, and how many steps it has taken."""

    params: Draw
    place: Array
    count: Array


class StoredChain(eqx.Module):
    """A chain over stored draws; `stored_chain` makes one."""

    posterior: Posterior
    draws: Draw
    inputs: Array
    start: Array
    """The places of all draws, at which chains begin, each at one of its own."""
    thin: int
    burn_in: int = 0

    def init(self, key: Key, place: Array | None = None) -> StoredState:
        place = jax.random.randint(key, (), 0, len(self.start)) if place is None else place
        return StoredState(self._at(place), place, jnp.zeros((), jnp.int32))

    def step(self, key: Key, state: StoredState) -> tuple[StoredState, Info]:
        # Not by the chain's own key: all chains move together.
        shift = jax.random.randint(jax.random.fold_in(jax.random.key(0), state.count), (), 0, len(self.start))
        params = self._at((state.place + shift) % len(self.start))
        return StoredState(params, state.place, state.count + 1), Info(jnp.zeros(()))

    def _at(self, place: Array) -> Draw:
        return jax.tree.map(lambda leaf: leaf[place], self.draws)


def stored_chain(posterior: Posterior, draws: Draw, x: Any, *, thin: int = 1) -> StoredChain:
    """Draws that are there already as a teacher for `distil`, such as those of a method in `baselines`.

    Args:
        posterior: what the draws are of, whoever made them.
        draws: with one or more axes of draws in front, as `sample` and the `draws` of a baseline return them.
        x: the training inputs, from which queries start.
        thin: steps between two looks at the monitored inputs; a step is an update of the student.

    Returns:
        The chain. With as many chains (``Settings.num_chains``) as there are draws, every target is the average of all.

    >>> import darkbayes as db, optax
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> ensemble = db.baselines.Ensemble(db.baselines.SGD(posterior, optax.adam(1e-2), 100, batch_size=10), size=5)
    >>> draws = ensemble.draws(jax.random.key(2), ensemble.fit(jax.random.key(1), data))
    >>> teacher = stored_chain(posterior, draws, data.x, thin=10)
    >>> student = db.Student(db.mlp([10, 10], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    >>> settings, queries = db.Settings(num_chains=5), db.queries.uniform_box(-6, 6)
    >>> done = db.distil(teacher, student, queries, jax.random.key(3), steps=100, settings=settings, quiet=True)
    >>> int(done.average.count)
    50
    """
    x, thin = as_inputs(x, keep_bytes=True), require_count("thin", thin)
    one = jax.eval_shape(posterior.init, jax.random.key(0), x)
    if (given := jax.tree.structure(draws)) != (wanted := jax.tree.structure(one)):
        raise InvalidInput(f"draws are of another network than the posterior's: they hold {given}, not {wanted}")
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws)]
    flat = []
    for leaf, like in zip(leaves, jax.tree.leaves(one), strict=True):
        axes = leaf.ndim - like.ndim
        if axes < 1 or leaf.shape[axes:] != like.shape or leaf.shape[:axes] != leaves[0].shape[:axes] or not leaf.size:
            shapes = f"shape {leaf.shape} for {like.shape}"
            raise InvalidInput(f"draws hold an array of {shapes}: put the draws of this posterior along axes in front")
        flat.append(leaf.reshape(-1, *like.shape))
    finite = np.all([np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in flat], axis=0)
    if not finite.all():
        raise InvalidInput(f"draws hold weights that are not finite, first in draw {np.argmin(finite)}: leave it out")
    stored = jax.tree.unflatten(wanted, [jnp.asarray(leaf) for leaf in flat])
    return StoredChain(posterior, stored, x, jnp.arange(len(finite), dtype=jnp.int32), thin)
