"""The automatic fit: from numbers to a student, with every choice made by measuring or by rule, and told.

    the network        an MLP; it takes images as rows of pixels, since eight chains of a CNN are too slow for a CPU
    the prior          a Gaussian on each weight
    the likelihood     and the student's head: the outcome's first, unless others are chosen
    the sampler        the default one, tuned (`teacher/tuning.py`), from the ends of short optimisations
    the queries        training inputs with noise, and points between them; categories exchanged between rows; images
                       distorted
    the student        an ordinary network with a head for the aleatoric part

`Options` holds what may be chosen otherwise.
"""

import dataclasses
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.baselines import raise_if_diverged
from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.fit import sharing
from darkbayes.fit.sharing import FallingAdam, Start, TableQueries
from darkbayes.model import Draw, GaussianPrior, Posterior, mlp
from darkbayes.outcomes import Target
from darkbayes.predict import predict_draws, predict_student
from darkbayes.runs import Run
from darkbayes.student import Diagnosis, Distillation, Settings, Student, distillation
from darkbayes.student.loop import follow
from darkbayes.student.queries import Queries, distortion, jitter, mix, mixup
from darkbayes.tables.schema import TableSchema
from darkbayes.teacher import Choices, tune
from darkbayes.teacher.chain import MinibatchChain
from darkbayes.types import Data, Key, PyTree

BATCH = 100
"""Examples in a minibatch, drawn with replacement."""
JITTER = (0.02, 0.3)
"""Standard deviations of the noise on queries, each for half of those that have noise."""
BETWEEN = 0.25
"""The share of the queries that lie between two rows."""
DISTORTED = 1 / 3
"""The share of the other queries that are distorted, if they are images."""
DISTORTION = {"strength": 0.043, "smoothness": 0.143, "shift": 0.029}
"""How far pixels move, as shares of an image's shorter side."""
EXCHANGED = 0.1
"""The probability that a query takes a category from another row."""
LEARNING_RATE = 5e-3
"""Of the student's Adam; it falls to zero along a cosine."""
QUERY_BATCH = 64
UPDATE_EVERY = 2
"""Steps of each chain before the student takes its turn."""
UPDATES, MOST_AT_ONCE = 15_000, 4
"""Updates that a student needs; where the chains are done with fewer turns, it makes several in each, at most four."""
DRAWS = 400
"""Draws that are kept of all chains together, from which the teacher's own predictions are made."""
PICKS = 16
"""Kept draws of all chains together that enter each target, besides the present ones."""
STARTS, START_STEPS, START_RATE = 16, 5_000, 5e-3
"""Optimisations whose ends chains begin at, the steps of each, and its learning rate, which falls to zero."""
START_SHARE, TIMED_STEPS = 0.1, 20
"""The part of a time budget that these optimisations may use, and the steps that tell how long one takes."""
TEACHER_SHARE = 0.5
"""The part of a time budget that the chains may use; the student has the rest."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What may be chosen of an automatic fit."""

    hidden: tuple[int, ...] = (50,)
    """The widths of the hidden layers of the network that is sampled."""
    student_hidden: tuple[int, ...] = (100, 100)
    """Those of the student."""
    chains: int = 8
    time_budget: float | None = 300.0
    """Seconds that sampling and distilling may take; None for as long as they want, at most 40,000 steps."""
    max_steps: int | None = None
    """Steps of each chain at most, a third of them to find its settings and burn in; None for no limit of one's own.
    Unlike a time budget it has the same effect on every machine."""
    likelihood: str | None = None
    """How the teacher's outputs speak of the target, one of `Target.likelihoods`; the first unless given."""
    head: str | None = None
    """How the student's do, one of `Target.heads`."""

    def __post_init__(self) -> None:
        for name in ("hidden", "student_hidden"):
            widths = getattr(self, name)
            if not isinstance(widths, tuple | list):
                raise InvalidInput(f"{name} must be a sequence of widths such as (50,), not {widths!r}")
            for width in widths:
                require_count(f"a width in {name}", width)
        require_count("chains", self.chains)
        if self.max_steps is not None:
            require_count("max_steps (None for no limit)", self.max_steps)
        if self.time_budget is not None:
            require_positive("time_budget (in seconds, None for no limit)", self.time_budget)


class Fitted(NamedTuple):
    """A student and its teacher."""

    posterior: Posterior
    student: Student
    params: PyTree
    draws: Draw
    """A fair sample of the teacher's draws, along the first axis."""
    choices: Choices
    diagnosis: Diagnosis

    def predict(self, x: Any) -> Any:
        """What the student predicts of the encoded target."""
        return predict_student(self.student, self.params, x)

    def predict_teacher(self, x: Any) -> Any:
        """What the kept draws predict of it together."""
        return predict_draws(self.posterior, self.draws, x)


def fit(
    data: Data,
    target: Target,
    key: Key,
    options: Options | None = None,
    *,
    queries: Queries | None = None,
    run: Run | None = None,
    quiet: bool = True,
    start: Start | None = None,
) -> Fitted:
    """Sample the posterior of a network given `data`, and distil it.

    Args:
        data: standardised inputs, rows ``[examples, features]`` or images ``[examples, channels, height, width]``; and
            encoded targets.
        target: what is predicted.
        key: where the randomness comes from.
        options: what is not to be chosen automatically.
        queries: where the student asks; by default at training inputs with noise, or images distorted.
        run: a folder to keep choices, metrics and checkpoints in, and to go on from.
        quiet: whether to show no progress bars.
        start: what an earlier fit of the same networks found, to go on from.
    """
    options = options or Options()
    if run is not None and start is not None:
        raise InvalidInput("a fit in a run's folder begins anew: give no start, or no run")
    began = time.time()
    posterior = make_posterior(data, target, options)
    x = np.asarray(data.x)[:1]
    data, queries = _filled_up(data, queries)
    tune_key, distil_key, start_key = jax.random.split(key, 3)
    chain = sharing.make_chain(posterior, data, BATCH)
    chain = dataclasses.replace(chain, start=_starts(chain, start, start_key, options))
    tuning: dict[str, Any] = {
        "num_chains": options.chains,
        "thin_by": UPDATE_EVERY,
        "within": None if options.time_budget is None else TEACHER_SHARE * options.time_budget,
        "live": sharing.share_of_weights(posterior.network, x, data.x),
    }
    if options.max_steps is not None:
        tuning |= {"max_steps": options.max_steps, "max_burn_in": max(1, options.max_steps // 3)}
    if run is None:
        chain, choices = tune(chain, tune_key, label=None if quiet else "tuning", **tuning)
    else:
        (chain,), (choices,) = run.tune("student", [chain], tune_key, **tuning)
    chain = sharing.with_arrays(chain)
    turns = (choices.steps - choices.burn_in) // UPDATE_EVERY
    updates = min(max(1, round(UPDATES / turns)), MOST_AT_ONCE)
    student = make_student(target, options, turns * updates)
    kept, picks = -(-DRAWS // options.chains), -(-PICKS // options.chains)
    settings = Settings(options.chains, QUERY_BATCH, UPDATE_EVERY, updates, reservoir=kept, reservoir_picks=picks)
    # What is our own needs no check, which takes as long as a short fit.
    make = Distillation if isinstance(queries, TableQueries) else distillation
    parts = make(chain, student, queries, settings, sharing.monitored(chain, queries))
    deadline = None if options.time_budget is None else began + options.time_budget
    if run is not None:
        state, curve = run.distil("student", parts, distil_key, choices.steps, deadline), []
    else:
        state = parts.init(distil_key)
        if start is not None:
            students = sharing.reshaped(student.network, start.params, data.x)
            state = state._replace(students=jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], students))
        label = None if quiet else "distilling"
        state, curve = follow(parts, state, choices.steps, deadline=deadline, label=label)
    assert state.reservoir is not None
    filled = int(np.min(np.asarray(state.reservoir.count).clip(max=kept)))
    draws = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :filled].reshape(-1, *leaf.shape[2:]), state.reservoir.slots)
    draws = draws._replace(network=sharing.reshaped(posterior.network, draws.network, x))
    params = sharing.reshaped(student.network, parts.best(state), x)
    return Fitted(posterior, student, params, draws, choices, parts.diagnose(state, curve))


def _filled_up(data: Data, queries: Queries | None) -> tuple[Data, Queries]:
    """Rows with columns of zeros up to one of few widths, unless somebody's own queries are not prepared for them."""
    data = Data(*map(np.asarray, data))  # pyright: ignore[reportArgumentType]
    if data.x.ndim != 2:
        return data, queries or _image_queries(min(data.x.shape[2:]))
    width = data.x.shape[1]
    queries = queries or _row_queries(width, width)
    if not isinstance(queries, TableQueries):
        return data, queries
    columns = sharing.filled_up(width, sharing.LEAST_COLUMNS)
    return data._replace(x=sharing.fill_columns(data.x, columns)), queries.over(columns)  # pyright: ignore[reportArgumentType]


def _starts(chain: MinibatchChain, start: Start | None, key: Key, options: Options) -> Draw:
    """Where chains begin, along the first axis: the ends of several short optimisations, or draws of an earlier fit.

    Chains forget where they began, but from random weights that takes them far longer.
    """
    if start is None:

        def ends(steps: int) -> Draw:
            optimiser = FallingAdam(START_RATE, jnp.asarray(steps, jnp.float32))
            return jax.block_until_ready(sharing.modes(chain, optimiser, key, STARTS))

        steps = START_STEPS if options.max_steps is None else min(START_STEPS, -(-options.max_steps // 4))
        if options.time_budget is not None:
            ends(1)  # Compiles, which is not to be timed.
            began = time.perf_counter()
            ends(TIMED_STEPS)
            each = (time.perf_counter() - began) / TIMED_STEPS
            steps = min(steps, max(TIMED_STEPS, int(START_SHARE * options.time_budget / each)))
        found = ends(steps)
        raise_if_diverged(found)
        return found
    rows = np.linspace(0, len(jax.tree.leaves(start.draws)[0]) - 1, STARTS).round().astype(int)
    some = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], start.draws)
    weights = sharing.reshaped(chain.posterior.network, some.network, chain.inputs)
    return jax.tree.map(jnp.asarray, some._replace(network=weights))


def make_posterior(data: Data, target: Target, options: Options) -> Posterior:
    """What is believed of the weights."""
    target.check_kinds(options.likelihood, options.head)
    likelihood = target.likelihood(options.likelihood)
    prior = GaussianPrior(target.prior_precision)
    return Posterior(mlp(options.hidden, likelihood.width), likelihood, prior, num_data=len(data.x))


def make_student(target: Target, options: Options, updates: int) -> Student:
    """The student, whose learning rate falls to zero over `updates` updates."""
    head = target.head(options.head)
    optimiser: Any = FallingAdam(LEARNING_RATE, jnp.asarray(max(updates, 1), jnp.float32))
    return Student(mlp(options.student_hidden, head.width), head, optimiser)


def table_queries(schema: TableSchema) -> Queries:
    """Rows whose numbers have noise or that lie between two rows, and whose categories are sometimes another row's."""
    (width,) = schema.shape
    return _row_queries(width, len(schema.numbers), schema.groups)


def _row_queries(width: int, numbers: int, groups: tuple[tuple[int, ...], ...] = ()) -> Queries:
    return sharing.table_queries(width, numbers, groups, JITTER, BETWEEN, EXCHANGED)


@functools.cache
def _image_queries(side: int) -> Queries:
    near, far = map(jitter, JITTER)
    distorted = distortion(**{name: share * side for name, share in DISTORTION.items()})
    return mix(mixup(), mix(distorted, mix(near, far, 0.5), DISTORTED), BETWEEN)
