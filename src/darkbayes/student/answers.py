"""What draws that are no networks of ours answer to fixed queries, and a student that learns these answers.

The batch form of Snelson and Ghahramani (2005): the predictions of all draws at a set of queries are stored, and the
student is fitted to their average, equation (2) of the paper with all draws in every target. It is the natural form
for a teacher that cannot be asked within a compiled loop: a list of models of scikit-learn or PyTorch, or anything else
that is called with rows. Draws of a posterior of ours may also be a `stored_chain`, which is asked anew at every step.

Models that have learned their training rows by heart would teach that they are sure there. `out_of_fold` has each row,
and each query made of it, answered by models that never saw it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.data.arrays import as_inputs
from darkbayes.errors import Divergence, InvalidInput, require_count
from darkbayes.model.posterior import Draw, Posterior
from darkbayes.namespaces import own
from darkbayes.outcomes.heads.base import Distribution, Head, Predicted
from darkbayes.progress import progress_bar
from darkbayes.student.loop import HELD_OUT, REMEDY
from darkbayes.student.network import Student
from darkbayes.student.queries import Context, Queries
from darkbayes.teacher.chain import each, in_chunks
from darkbayes.teacher.keeping import Average, average_add, average_init
from darkbayes.teacher.stored import stored_chain
from darkbayes.types import Array, Key, PyTree


class Answers(NamedTuple):
    """Queries, and what each draw says of them."""

    x: Array
    """The queries."""
    said: Any
    """A distribution of `outcomes` with the draws along the first axis, the queries along the second."""
    noise: Any = None
    """What was taken for the variance of the noise around answers that are means alone."""

    def prediction(self) -> Any:
        """What the draws predict together at each query."""
        return jax.device_get(_together(self.said)).prediction()


@eqx.filter_jit
def _together(said: Distribution) -> Predicted:
    return type(said).together(lambda one: one, said)


def of_draws(posterior: Posterior, draws: Draw, x: Any) -> Answers:
    """What stored draws of a posterior answer to queries.

    Args:
        posterior: what the draws are of, whoever made them.
        draws: with one or more axes of draws in front, as `sample` and the `draws` of a baseline return them.
        x: the queries.

    Returns:
        The answers.
    """
    stored = stored_chain(posterior, draws, x)
    return Answers(stored.inputs, _said_by(posterior, stored.draws, stored.inputs))


@eqx.filter_jit
def _said_by(posterior: Posterior, draws: Draw, x: Array) -> Distribution:
    # One draw after another: all at once would hold every hidden layer of every draw.
    return jax.lax.map(lambda draw: posterior.distribution(draw, x), draws)


def of_models(models: Sequence[Any], x: Any, head: Head, *, noise: Any = None) -> Answers:
    """What models answer to queries; together they are the teacher, each as likely as the others.

    Args:
        models: each has `predict_proba` or `predict`, or is called, with the rows ``[rows, ...]`` as a numpy array; it
            returns probabilities ``[rows, classes]``, or ``(mean, variance)``, or the mean alone.
        x: the queries.
        head: that of the student who is to learn from them.
        noise: the variance around answers that are means alone, one number or one for each output.

    Returns:
        The answers.

    >>> import darkbayes as db
    >>> models = [lambda x: np.full((len(x), 2), 0.5), lambda x: np.tile([0.9, 0.1], (len(x), 1))]
    >>> of_models(models, np.zeros((3, 1)), db.outcomes.SoftmaxHead(2)).prediction().probs[0].round(2).tolist()
    [0.7, 0.3]
    """
    x = as_inputs(x)
    parts = [_arrays(f"models[{place}]", model, np.array(x)) for place, model in enumerate(_some(models))]
    return Answers(x, _said(parts, head, noise), noise)


def out_of_fold(
    fit: Callable[[np.ndarray, np.ndarray], Sequence[Any]],
    x: Any,
    y: Any,
    head: Head,
    key: Key,
    *,
    queries: Queries | None = None,
    times: int = 10,
    folds: int = 10,
    noise: Any = None,
) -> Answers:
    """What models answer to training rows, and to queries made of them, that they have not been fitted on.

    Rows are divided into folds, all with about the same targets. For each fold models are fitted on the other rows, and
    answer for its rows and for the queries that start from them.

    Args:
        fit: ``fit(x, y)`` returns models as `of_models` takes them, the same number each time.
        x, y: the training rows, and their targets.
        head: that of the student who is to learn from them.
        key: where the randomness comes from.
        queries, times: a generator, and how often it is asked for queries from all rows; None for the rows alone.
        folds: how many.
        noise: the variance around answers that are means alone; unless given, the one under which the targets are
            likeliest, as the models have not seen them.

    Returns:
        The answers, those to the training rows first and in their order.
    """
    x, y = as_inputs(x), np.asarray(y)
    if y.ndim == 0 or len(y) != len(x):
        raise InvalidInput(f"x has {len(x)} rows but y has shape {y.shape}: they must pair up")
    require_count("times", times, least=0)
    if not 2 <= require_count("folds", folds) <= len(x):
        raise InvalidInput(f"folds={folds} must lie between 2 and the {len(x)} rows")
    fold_key, query_key = jax.random.split(key)
    # By rank among the targets: every fold has its share of each class, and of large and small numbers.
    chance, rows = np.asarray(jax.random.uniform(fold_key, (len(x),))), np.asarray(x)
    fold = np.empty(len(x), int)
    fold[np.lexsort((chance, y.reshape(len(y), -1)[:, 0]))] = np.arange(len(x)) % folds
    blocks, places, said = [], [], []
    for number, fold_key in enumerate(jax.random.split(query_key, folds)):
        held, others = np.flatnonzero(fold == number), fold != number
        models = _some(fit(rows[others], y[others]))
        blocks.append(_with_queries(queries, x[held], times, fold_key))
        # Queries go behind all rows.
        places.append(np.append(held, np.full(len(blocks[-1]) - len(held), len(x))))
        names = (f"models[{place}] of fold {number}" for place in range(len(models)))
        said.append([_arrays(name, model, blocks[-1]) for name, model in zip(names, models, strict=True)])
    if len({len(models) for models in said}) > 1:
        raise InvalidInput("fit returned more models for some folds than for others: let it return the same number")
    order = np.argsort(np.concatenate(places), kind="stable")
    parts = [
        [np.concatenate(pieces)[order] for pieces in zip(*by_fold, strict=True)] for by_fold in zip(*said, strict=True)
    ]
    if noise is None and len(parts[0]) == 1:
        noise = head.learns_from.unsaid(np.stack([arrays[0][: len(x)] for arrays in parts]), y)
    return Answers(jnp.asarray(np.concatenate(blocks)[order]), _said(parts, head, noise), noise)


def _with_queries(queries: Queries | None, x: Array, times: int, key: Key) -> np.ndarray:
    """Rows, and behind them queries that start from them and look at no other row."""
    if queries is None or not times:
        return np.array(x)
    return np.concatenate([x, *_asked(queries, jax.random.split(key, times), x)])


@eqx.filter_jit
def _asked(queries: Queries, keys: Key, x: Array) -> Array:
    # There is no posterior, and there are no draws, for a generator to look at.
    context: Any = Context(None, None, x)  # pyright: ignore[reportArgumentType]
    return jax.vmap(lambda key: queries(key, x, context))(keys)


def _some(models: Sequence[Any]) -> Sequence[Any]:
    if not isinstance(models, Sequence | np.ndarray) or not len(models):
        raise InvalidInput(f"models must be a list of at least one model, not {models!r}")
    return models


def _arrays(name: str, model: Any, rows: np.ndarray) -> list[np.ndarray]:
    """What a model returns for rows: finite arrays with a row for each."""
    ask = getattr(model, "predict_proba", None) or getattr(model, "predict", model)
    if not callable(ask):
        raise InvalidInput(f"{name} is {model!r}: give a function of rows, or what has predict_proba or predict")
    answer = ask(rows)
    arrays = [np.asarray(part, np.float64) for part in (answer if isinstance(answer, tuple) else (answer,))]
    for array in arrays:
        if array.ndim == 0 or len(array) != len(rows):
            raise InvalidInput(f"{name} returns shape {array.shape} for {len(rows)} rows: it must answer each of them")
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise InvalidInput(f"{name} returns what is not finite, first at row {row}: correct it or leave it out")
    return arrays


def _said(parts: Sequence[list[np.ndarray]], head: Head, noise: Any) -> Distribution:
    """The arrays that each model returned as one distribution, with the models along the first axis."""
    said = []
    for place, arrays in enumerate(parts):
        more = [np.asarray(noise, np.float64)] if noise is not None and len(arrays) == 1 else []
        try:
            said.append(head.learns_from.from_arrays(*arrays, *more))
        except InvalidInput as error:
            raise InvalidInput(f"models[{place}]: {error}") from None
        head.check_teacher(f"models[{place}]", said[-1])
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *said)


class Learned(NamedTuple):
    """A student that has learned answers."""

    student: Student
    """As it was given."""
    params: PyTree
    """Its weights, of the best restart."""
    divergence: float
    """KL(teacher || student), mean over queries that it did not learn from."""


def distil_batch(
    answers: Answers,
    student: Student,
    key: Key,
    *,
    updates: int,
    batch_size: int = 100,
    restarts: int = 1,
    quiet: bool = False,
) -> Learned:
    """Teach `student` what all draws answered together, the batch form of Snelson and Ghahramani (2005).

    Args:
        answers: queries, and the predictions of all draws there. A tenth of them, 256 at most, are kept to judge by.
        student: who learns.
        key: where the randomness comes from.
        updates, batch_size: updates of the student, and queries in each.
        restarts: students to train from different weights on the same queries; the one closest to its teacher is kept.
        quiet: no progress bar.

    Returns:
        The student's weights, and how close they came.

    >>> import darkbayes as db, optax
    >>> x, head = np.linspace(-1, 1, 50)[:, None], db.outcomes.GaussianHead()
    >>> answers = of_models([lambda x: x, lambda x: -x], x, head, noise=0.1)
    >>> student = db.Student(db.mlp([10], 2), head, optax.adam(1e-2))
    >>> done = distil_batch(answers, student, jax.random.key(0), updates=500, quiet=True)
    >>> done.divergence < 0.1
    True
    """
    counts = {"updates": updates, "batch_size": batch_size, "restarts": restarts}
    for name, value in counts.items():
        require_count(name, value)
    x, said = as_inputs(answers.x), answers.said
    if (number := len(x)) < 2:
        raise InvalidInput("answers hold one query: ask at more")
    for leaf in jax.tree.leaves(said):
        if leaf.ndim < 2 or leaf.shape[1] != number or not np.isfinite(leaf).all():
            remedy = "they must be finite, with the draws along the first axis and the queries along the second"
            raise InvalidInput(f"answers hold predictions of shape {leaf.shape} for {number} queries: {remedy}")
    student.check(x)
    student.head.check_teacher("the answers", said)
    judge_key, init_key, update_key = jax.random.split(key, 3)
    order = jax.random.permutation(judge_key, number)
    judged, learned = jnp.split(order, [min(HELD_OUT, max(number // 10, 1))])
    average = _average(_at(said, judged))
    params = jax.vmap(student.init, in_axes=(0, None))(jax.random.split(init_key, restarts), x)
    state = params, jax.vmap(student.optimiser.init)(params), jnp.zeros((), jnp.int32)
    lesson = x[learned], _at(said, learned)
    with progress_bar("distilling", updates, quiet=quiet) as show:
        advance = partial(_advance, student, lesson, update_key, batch_size)
        for chunk in in_chunks(advance, state, updates):
            state = chunk[0]
            show(chunk[1])
    divergences = np.asarray(_divergences(student, state[0], average, x[judged]))
    if not np.isfinite(divergences).any():
        raise Divergence(f"the student diverged: after {updates} updates it predicts nothing finite; {REMEDY}")
    best = int(np.nanargmin(divergences))
    return Learned(student, jax.tree.map(lambda leaf: leaf[best], state[0]), float(divergences[best]))


def _at(said: Distribution, rows: Array) -> Distribution:
    """What draws said of some queries."""
    return jax.tree.map(lambda leaf: leaf[:, rows], said)


@eqx.filter_jit
def _advance(
    student: Student, lesson: tuple[Array, Any], key: Key, batch_size: int, state: tuple[Any, Any, Array], number: Array
) -> tuple[Any, Any, Array]:
    """So many updates of each restart, all on the same queries."""
    x, said = lesson

    def one(_: Array, state: tuple[Any, Any, Array]) -> tuple[Any, Any, Array]:
        params, optimisers, count = state
        rows_key, seen_key = jax.random.split(jax.random.fold_in(key, count))
        rows = jax.random.randint(rows_key, (batch_size,), 0, len(x))
        targets = student.head.seen(seen_key, _at(said, rows))
        update = partial(student.update, x=x[rows], targets=targets)
        params, optimisers, _ = each(update, params, optimisers)
        return params, optimisers, count + 1

    return jax.lax.fori_loop(0, number, one, state)


@eqx.filter_jit
def _average(said: Distribution) -> Average:
    return average_add(average_init(said), said)


@eqx.filter_jit
def _divergences(student: Student, params: PyTree, average: Average, x: Array) -> Array:
    return jax.vmap(lambda one: jnp.mean(student.divergence(one, average, x)))(params)


def __dir__() -> list[str]:
    return own(globals())
