"""Many distillations at once: the splits of a data set, or the trials of an experiment, in one compiled loop."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.student.diagnosis import Diagnosis, diagnose
from darkbayes.student.loop import Distillation, DistillationState, Snapshot, run_rounds, winners
from darkbayes.types import Array, Key, PyTree


class SideBySide(eqx.Module):
    """Distillations of one kind that one compiled loop advances together; `side_by_side` makes one.

    It is used as a `Distillation` is; its states, and the weights that `best` returns, have a leading axis.
    """

    apart: Distillation
    """What differs from run to run, stacked."""
    shared: Distillation
    number: int

    def _each(self, function: Callable[..., Any], *stacked: PyTree) -> Any:
        return jax.vmap(lambda apart, *rest: function(eqx.combine(apart, self.shared), *rest))(self.apart, *stacked)

    @eqx.filter_jit
    def init(self, key: Key) -> DistillationState:
        """The starting points of all runs, each with a key of its own."""
        return self._each(lambda parts, key: parts.init(key), jax.random.split(key, self.number))

    @eqx.filter_jit(donate="all-except-first")
    def burn(self, state: DistillationState, steps: Array) -> DistillationState:
        """Advance the chains alone."""
        return self._each(lambda parts, state: parts.burn(state, steps), state)

    @eqx.filter_jit(donate="all-except-first")
    def advance(self, state: DistillationState, rounds: Array) -> tuple[DistillationState, Array]:
        """Run whole rounds; returns the state and the mean loss of each student of each run over them."""
        return self._each(lambda parts, state: parts.advance(state, rounds), state)

    @eqx.filter_jit
    def divergences(self, state: DistillationState) -> Array:
        """KL(teacher so far || student) of each student of each run."""
        return self._each(lambda parts, state: parts.divergences(state), state)

    def best(self, state: DistillationState) -> PyTree:
        """The weights of the student of each run that is closest to its teacher."""
        winner = winners(self.divergences(state), state)
        return jax.tree.map(lambda leaf: leaf[np.arange(self.number), winner], state.students)

    def diagnose(self, state: DistillationState, curve: Sequence[tuple[int, float]] = ()) -> Diagnosis:
        """Judge every run, as `Distillation.diagnose` does; the curve is that of their mean."""
        chain = eqx.combine(self.apart, self.shared).chain
        apart = eqx.filter(self.apart.chain, eqx.is_array)

        def one(place: int) -> tuple[Any, Any]:
            own = jax.tree.map(lambda leaf: leaf[place], apart)
            return eqx.combine(own, chain), jax.tree.map(lambda leaf: leaf[place], state)

        divergences = np.nanmin(self.divergences(state), axis=-1)
        return diagnose([one(place) for place in range(self.number)], divergences.tolist(), curve)

    def check_steps(self, steps: int) -> int:
        """Refuse a length that ends before the first draw is kept."""
        return self.shared.check_steps(steps)

    def run(self, state: DistillationState, steps: int) -> Iterator[Snapshot]:
        """Run as `Distillation.run` does; losses and divergences are means over the runs."""
        chain = eqx.combine(self.apart, self.shared).chain
        return run_rounds(self, chain, state, self.check_steps(steps))


def side_by_side(runs: Sequence[Distillation]) -> SideBySide:
    """Run distillations of one kind together, such as those of one experiment on many splits of its data.

    The runs may differ in their arrays (the data, the monitored inputs) and share all else: build networks, samplers
    and optimisers once. Arrays that are the same object in all runs are stored once.

    >>> import darkbayes as db, optax
    >>> posterior = db.Posterior(db.mlp([10], 2), db.Softmax(2), db.GaussianPrior(1.0), num_data=20)
    >>> sampler, student = db.sgld(1e-2), db.Student(db.mlp([10], 2), db.SoftmaxStudent(2), optax.adam(1e-3))
    >>> def one(key):
    ...     teacher = db.minibatch_chain(posterior, sampler, *db.toy2d(key), batch_size=None, burn_in=10, thin=10)
    ...     return db.distillation(teacher, student, queries)
    >>> queries = db.uniform_box(-10, 10)
    >>> runs = side_by_side([one(key) for key in jax.random.split(jax.random.key(0), 3)])
    >>> runs.init(jax.random.key(1)).updates.shape
    (3,)
    """
    if not runs:
        raise InvalidInput("side_by_side needs at least one distillation, not an empty list")
    leaves, structures = zip(*[jax.tree.flatten(run) for run in runs], strict=True)
    if any(structure != structures[0] for structure in structures):
        raise InvalidInput("side_by_side needs runs of one kind: build networks, samplers and optimisers once")
    apart, shared = [], []
    for column in zip(*leaves, strict=True):
        first = column[0]
        same = all(other is first for other in column)
        if not same and eqx.is_array(first):
            shapes = sorted({np.shape(other) for other in column})
            if len(shapes) > 1:
                raise InvalidInput(f"side_by_side needs arrays of one shape, not {shapes}: give each run as many rows")
        elif others := [other for other in column if other is not first and other != first]:
            raise InvalidInput(
                f"side_by_side needs runs that differ in arrays alone, not {first!r} and {others[0]!r}: "
                "build networks, samplers and optimisers once"
            )
        apart.append(None if same or not eqx.is_array(first) else jnp.stack(column))
        shared.append(first if apart[-1] is None else None)
    apart, shared = (jax.tree.unflatten(structures[0], part) for part in (apart, shared))
    return SideBySide(apart, shared, len(runs))
