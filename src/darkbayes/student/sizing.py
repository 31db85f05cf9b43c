"""A student that sizes itself: hidden layers are doubled until its divergence from the teacher stops falling.

All candidates learn from the same stored draws, such as those that a run's reservoirs hold at its end, so that nothing
is sampled again. Each is trained from a few starting points on queries of its own, and judged at held-out queries that
none of them learns from, by KL(average of all draws || student). A candidate is better than the one before if the fall
of the divergence is beyond twice its standard error, which counts the scatter over queries and over starting points,
and is worth having. The first that is not better ends the search, and the one before it is chosen.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.data.arrays import as_inputs
from darkbayes.errors import Divergence, InvalidInput, require_count
from darkbayes.estimates import standard_error
from darkbayes.model.posterior import Draw, Posterior
from darkbayes.student.beginning import holding
from darkbayes.student.loop import REMEDY, ask
from darkbayes.student.network import Student
from darkbayes.student.queries import Context, Queries
from darkbayes.teacher.keeping import Average, average_add, average_init
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Key, PyTree

WORTH_HAVING = 0.1
"""The least fall of the divergence, as a share of it, for which a student of twice the width is taken."""


class Sized(NamedTuple):
    """The chosen student, trained, and how all candidates fared."""

    student: Student
    params: PyTree
    hidden: tuple[int, ...]  # The widths of its hidden layers.
    curve: list[dict[str, Any]]
    """A row of results for each candidate: its KL from the teacher and its number of parameters."""


@eqx.filter_jit
def learn_from_draws(
    student: Student,
    queries: Queries,
    teacher: Context,
    key: Key,
    updates: int,
    query_batch: int,
    picks: int,
    start: PyTree | None = None,
) -> PyTree:
    """A student's weights after lessons from stored draws of a teacher, begun at `start` or at a point of its own."""
    init_key, update_key = jax.random.split(key)
    params = student.init(init_key, teacher.inputs) if start is None else start
    number = len(jax.tree.leaves(teacher.draws)[0])
    if student.holds_draws and start is None:
        order_key, rows_key, query_key = jax.random.split(jax.random.fold_in(init_key, 0), 3)
        # Those that it holds are to be far from each other, as those of different chains are.
        order = jax.random.permutation(order_key, number)
        asked = ask(queries, rows_key, query_key, query_batch, teacher)
        params = holding(student.network, params, at(order, teacher.draws.network), asked)

    def one(place: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        rows_key, query_key, pick_key = jax.random.split(jax.random.fold_in(update_key, place), 3)
        # One of each of as many equal parts: draws of a chain lie together, and chains are what differs most.
        parts = jnp.arange(picks) + jax.random.uniform(pick_key, (picks,))
        picked = jnp.minimum((parts * (number / picks)).astype(jnp.int32), number - 1)
        draws = jax.tree.map(lambda leaf: leaf[picked], teacher.draws)
        x = ask(queries, rows_key, query_key, query_batch, teacher._replace(draws=draws))
        said = jax.vmap(lambda draw: teacher.posterior.distribution(draw, x))(draws)
        return student.update(*carry, x, student.head.seen(jax.random.fold_in(query_key, 0), said))[:2]

    return jax.lax.fori_loop(0, updates, one, (params, student.optimiser.init(params)))[0]


_divergence = eqx.filter_jit(Student.divergence)


@eqx.filter_jit
def _average(posterior: Posterior, draws: Draw, x: Array) -> Average:
    """What all draws predict together at `x`, one draw after another."""

    def predictions(draw: Draw) -> Any:
        return jax.tree.map(lambda leaf: leaf[None], posterior.distribution(draw, x))

    nothing = average_init(jax.eval_shape(predictions, jax.tree.map(lambda leaf: leaf[0], draws)))
    return jax.lax.scan(lambda so_far, draw: (average_add(so_far, predictions(draw)), None), nothing, draws)[0]


def size_student(
    posterior: Posterior,
    draws: Draw,
    x: Any,
    make: Callable[[tuple[int, ...]], Student],
    queries: Queries,
    key: Key,
    *,
    start: Sequence[int] = (4,),
    most: int = 1024,
    updates: int = 5_000,
    query_batch: int = 100,
    picks: int = 16,
    restarts: int = 3,
    held_out: int = 1_000,
) -> Sized:
    """Grow a student until it is as close to its teacher as a wider one would be.

    Args:
        posterior: what the draws are of.
        draws: the teacher's draws, with one or more axes of draws in front, as `sample` or a reservoir hold them.
        x, make: the training inputs, from which queries start, and what makes a student of the widths of hidden layers.
        queries: where the students ask; they are judged at others of the same kind.
        key: where the randomness comes from.
        start, most: the widths of the first candidate's hidden layers, doubled together, and the largest to try.
        updates: updates of each candidate; make it enough for the widest.
        query_batch, picks: queries of each update, and draws that its targets are averaged over.
        restarts: starting points of each candidate; the divergence is their mean, the best of them is returned.
        held_out: queries to judge by.

    Returns:
        The chosen student, trained, and how all candidates fared.

    >>> import darkbayes as db, optax
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> draws = jax.vmap(lambda key: posterior.init(key, data.x))(jax.random.split(jax.random.key(1), 8))
    >>> def make(hidden):
    ...     return db.Student(db.mlp(hidden, 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-2))
    >>> queries = db.queries.uniform_box(-10, 10)
    >>> sized = size_student(posterior, draws, data.x, make, queries, jax.random.key(2), most=4, updates=50)
    >>> sized.hidden, sized.curve[0]["method"], sized.curve[0]["parameters"]
    ((4,), 'student 2-4-2', 22)
    """
    counts = {"most": most, "updates": updates, "query_batch": query_batch, "picks": picks, "held_out": held_out}
    for name, value in counts.items():
        require_count(name, value)
    require_count("restarts", restarts, least=2)
    hidden = tuple(require_count("a width in start", width) for width in start)
    if not hidden or max(hidden) > most:
        raise InvalidInput(f"start={tuple(start)} must name hidden layers of at most most={most} units")
    x = as_inputs(x)
    like = jax.eval_shape(posterior.init, key, x)
    draws = jax.tree.map(lambda leaf, one: jnp.reshape(leaf, (-1, *one.shape)), draws, like)
    judge_key, rows_key, train_key = jax.random.split(key, 3)
    teacher = Context(posterior, draws, x)
    judged = ask(queries, rows_key, judge_key, held_out, teacher)
    average = _average(posterior, draws, judged)

    curve: list[dict[str, Any]] = []
    best: tuple[Student, PyTree, tuple[int, ...]] | None = None
    before: np.ndarray | None = None
    while max(hidden) <= most:
        student = make(hidden)
        student.check(x)
        # Candidates are trained on the same queries and draws, so that their differences are their own.
        keys = jax.random.split(train_key, restarts)
        trained = [learn_from_draws(student, queries, teacher, one, updates, query_batch, picks) for one in keys]
        now = np.asarray([_divergence(student, params, average, judged) for params in trained], np.float64)
        if not np.isfinite(now).all():
            raise Divergence(f"a student with hidden layers {hidden} diverged: {REMEDY}")
        curve.append(_row(student, hidden, trained[0], now, x))
        if before is not None and not _better(before, now):
            break
        best = student, trained[int(now.mean(axis=1).argmin())], hidden
        hidden, before = tuple(2 * width for width in hidden), now
    assert best is not None
    curve[[row["hidden"] for row in curve].index(list(best[2]))]["chosen"] = True
    return Sized(*best, curve)


def _better(before: np.ndarray, now: np.ndarray) -> bool:
    """Whether divergences ``[restarts, queries]`` have fallen beyond their error, by as much as is worth having."""
    fall = before.mean() - now.mean()
    over_queries = before.mean(axis=0) - now.mean(axis=0)
    square = over_queries.var(ddof=1) / len(over_queries)
    square += sum(values.mean(axis=1).var(ddof=1) / len(values) for values in (before, now))
    return bool(fall > max(2 * np.sqrt(square), WORTH_HAVING * before.mean()))


def _row(student: Student, hidden: tuple[int, ...], params: PyTree, divergences: np.ndarray, x: Array) -> dict:
    """A candidate as a row of results; its error is over its starting points."""
    values = divergences.mean(axis=1)
    widths = x[0].size, *hidden, student.head.width
    return {
        "method": "student " + "-".join(map(str, widths)),
        "metric": "kl_from_teacher",
        "mean": float(values.mean()),
        "se": standard_error(values),
        "trials": len(values),
        "values": values.tolist(),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "hidden": list(hidden),
    }
