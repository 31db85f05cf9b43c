"""A distillation from its beginning to its end, with a bar to look at."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from darkbayes.mesh import gathered, laid
from darkbayes.processes import agreed, noticing_loss
from darkbayes.progress import progress_bar
from darkbayes.student.diagnosis import Diagnosis
from darkbayes.student.loop import DistillationState, Settings, Snapshot, distillation, steps_of
from darkbayes.student.network import Student
from darkbayes.student.queries import Queries
from darkbayes.teacher.keeping import Average
from darkbayes.types import Chain, Key, PyTree


class Distilled(NamedTuple):
    """What a finished distillation leaves: the student, its weights, and what the teacher predicted."""

    student: Student
    """As it was given."""
    params: PyTree
    """Its weights, of the best restart."""
    average: Average
    """The teacher's average prediction at the monitored inputs."""
    state: DistillationState
    """All that the loop carried, at its end."""
    diagnostics: Diagnosis
    """Whether the chains agree, and whether the student still follows."""


def distil(
    chain: Chain,
    student: Student,
    queries: Queries,
    key: Key,
    *,
    steps: int,
    settings: Settings | None = None,
    monitor: Any = None,
    mesh: Mesh | None = None,
    quiet: bool = False,
) -> Distilled:
    """Sample with `chain` for `steps` steps, burn-in included, and teach `student` all the while.

    Args:
        chain, student, queries: the teacher, the student, and where it asks.
        key, steps: where the randomness comes from, and the steps of each chain, burn-in included.
        settings, monitor: how to run it, and inputs at which the two are compared meanwhile; see `distillation`.
        mesh: devices, of all processes, that divide the chains among them, see `mesh.device_mesh`; every process calls
            this with the same arguments, and each gets the whole result.
        quiet: no progress bar.

    Returns:
        The student's weights, with what the teacher predicted and a diagnosis.

    >>> import darkbayes as db, jax, optax
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> teacher = db.minibatch_chain(posterior, db.sgld(1e-2), *data, batch_size=None, burn_in=100, thin=10)
    >>> student = db.Student(db.mlp([10, 10], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    >>> done = distil(teacher, student, db.queries.uniform_box(-10, 10), jax.random.key(1), steps=200, quiet=True)
    >>> db.predict_student(student, done.params, data.x).probs.shape
    (20, 2)
    >>> done.diagnostics.verdict.text
    'one chain: agreement cannot be judged, use num_chains >= 2...'
    """
    parts = distillation(chain, student, queries, settings, monitor)
    parts.check_steps(steps)
    parts = parts.paced(lambda measure: bool(agreed(measure()) if mesh else measure()))
    label = None if quiet or jax.process_index() else "distilling"
    if mesh is None:
        state, curve = follow(parts, parts.init(key), steps, label=label)
    else:
        divided = parts.on(mesh)
        with noticing_loss():
            state, curve = follow(divided, divided.init(laid(key, mesh)), steps, label=label)
            state = gathered(state)
    return Distilled(student, parts.best(state), state.average, state, parts.diagnose(state, curve))


def follow(
    parts: Any,
    state: DistillationState,
    steps: int,
    *,
    deadline: float | None = None,
    label: str | None = None,
    watch: Callable[[Snapshot], None] = lambda snapshot: None,
) -> tuple[DistillationState, list[tuple[int, float]]]:
    """Run a distillation, or several `side_by_side`, to its end or the `deadline` and show a bar; `watch` sees all.

    Returned are the last state, and the divergence of the student from its teacher over the steps.
    """
    curve, start = [], steps_of(state.teacher.step)
    with progress_bar(label or "", steps, quiet=label is None, start=start) as show:
        for snapshot in parts.run(state, steps, deadline):
            state = snapshot.state
            curve += [(snapshot.step, snapshot.divergence)] if snapshot.marked else []
            show(snapshot.step, loss=snapshot.loss, KL=snapshot.divergence)
            watch(snapshot)
    return state, curve
