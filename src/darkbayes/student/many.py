"""Many distillations at once: the splits of a data set, or the trials of an experiment, in one compiled loop."""

from collections.abc import Iterator, Sequence

import equinox as eqx
import jax
import numpy as np

from darkbayes.student.diagnosis import Diagnosis, diagnose
from darkbayes.student.loop import Distillation, DistillationState, Snapshot, run_rounds, winners
from darkbayes.teacher.stacking import Stack, at, stack
from darkbayes.types import Array, Key, PyTree


class SideBySide(Stack[Distillation]):
    """Distillations of one kind that one compiled loop advances together; `side_by_side` makes one.

    It is used as a `Distillation` is; its states, and the weights that `best` returns, have a leading axis, and losses
    and divergences of snapshots are means over the runs.
    """

    @eqx.filter_jit
    def init(self, key: Key) -> DistillationState:
        return self.each(lambda parts, key: parts.init(key), jax.random.split(key, self.number))

    @eqx.filter_jit(donate="all-except-first")
    def burn(self, state: DistillationState, steps: Array) -> DistillationState:
        return self.each(lambda parts, state: parts.burn(state, steps), state)

    @eqx.filter_jit(donate="all-except-first")
    def advance(self, state: DistillationState, rounds: Array) -> tuple[DistillationState, Array]:
        return self.each(lambda parts, state: parts.advance(state, rounds), state)

    @eqx.filter_jit
    def divergences(self, state: DistillationState) -> Array:
        return self.each(lambda parts, state: parts.divergences(state), state)

    def best(self, state: DistillationState) -> PyTree:
        winner = winners(self.divergences(state), state)
        return jax.tree.map(lambda leaf: leaf[np.arange(self.number), winner], state.students)

    def diagnose(self, state: DistillationState, curve: Sequence[tuple[int, float]] = ()) -> Diagnosis:
        runs = [(self.member(place).chain, at(place, state)) for place in range(self.number)]
        return diagnose(runs, np.nanmin(self.divergences(state), axis=-1).tolist(), curve)

    def check_steps(self, steps: int) -> int:
        return self.shared.check_steps(steps)

    def run(self, state: DistillationState, steps: int, deadline: float | None = None) -> Iterator[Snapshot]:
        return run_rounds(self, self.example.chain, state, self.check_steps(steps), deadline)


def side_by_side(runs: Sequence[Distillation]) -> SideBySide:
    """Run distillations of one kind together, such as those of one experiment on many splits of its data.

    The runs may differ in their arrays (the data, the monitored inputs) and share all else: build networks, samplers
    and optimisers once. Arrays that are the same object in all runs are stored once.

    Args:
        runs: distillations of one kind.

    Returns:
        All of them, to be used as one `Distillation` is.

    >>> import darkbayes as db, optax
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> sampler, student = db.sgld(1e-2), db.Student(db.mlp([10], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    >>> def one(key):
    ...     teacher = db.minibatch_chain(posterior, sampler, *db.data.toy2d(key), batch_size=None, burn_in=10, thin=10)
    ...     return db.distillation(teacher, student, queries)
    >>> queries = db.queries.uniform_box(-10, 10)
    >>> runs = side_by_side([one(key) for key in jax.random.split(jax.random.key(0), 3)])
    >>> runs.init(jax.random.key(1)).updates.shape
    (3,)
    """
    together = stack("side_by_side", runs)
    return SideBySide(together.apart, together.shared, together.number)
