"""The automatic fit: from numbers to a student, with every choice made by measuring or by rule, and told.

    the network        an MLP, and what its outputs say: the best of few on rows set aside (`choosing.py`); of images
                       a small CNN, or a residual network on a GPU (`kinds.py`)
    the prior          a Gaussian on each weight, the narrower the wider the layer; how narrow is chosen likewise
    the sampler        microcanonical chains on all rows (`teacher/microcanonical.py`), from the ends of optimisations;
                       where that is too much work, the default sampler on minibatches, tuned (`teacher/tuning.py`)
    the queries        training inputs, with noise and without, points between them, and as many outside; categories
                       exchanged between rows; images distorted
    the student        an ordinary network with a head for the aleatoric part, which begins with the hidden layers of
                       several draws, and learns on where it is behind its teacher at the end

`Options` holds what may be chosen otherwise.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from darkbayes.errors import InvalidInput
from darkbayes.fit import sharing
from darkbayes.fit.choosing import Chosen, Model, cells, choose_model, make_posterior
from darkbayes.fit.kinds import LINEAR, make_network
from darkbayes.fit.lessons import taught
from darkbayes.fit.options import Options
from darkbayes.fit.pacing import affordable
from darkbayes.fit.sharing import FallingAdam, Start, TableQueries
from darkbayes.model import Draw, Posterior
from darkbayes.model.layers import ACTIVATIONS
from darkbayes.outcomes import Target
from darkbayes.predict import predict_draws, predict_student
from darkbayes.progress import LOGGER
from darkbayes.runs import Run, Unkept
from darkbayes.student import Diagnosis, Distillation, Settings, Snapshot, Student, distillation
from darkbayes.student.loop import DistillationState
from darkbayes.student.queries import Context, Queries, distortion, jitter, mix, mixup
from darkbayes.student.sizing import learn_from_draws
from darkbayes.tables.schema import TableSchema
from darkbayes.teacher.chain import MinibatchChain
from darkbayes.teacher.streaming import REUSE
from darkbayes.teacher.tuning import HEATING
from darkbayes.types import Data, Key, PyTree

BATCH = 100
"""Examples in a minibatch, drawn with replacement."""
JITTER = (0.0, 0.02, 0.3)
"""Standard deviations of the noise on rows that are asked, each for an equal part of those that have it. Where columns
depend on each other, as naval's do, rows with any noise lie off the data (`results/query-tuning.json`)."""
PIXELS = (0.02, 0.3)
"""Likewise of images, each for half."""
BETWEEN = 0.25
"""The share of the queries that lie between two rows."""
DISTORTED = 1 / 3
"""The share of the other queries that are distorted, if they are images."""
DISTORTION = {"strength": 0.043, "smoothness": 0.143, "shift": 0.029}
"""How far pixels move, as shares of an image's shorter side."""
OUTSIDE = 0.5
"""The share of the queries that reach outside, of a table."""
EXCHANGED = 0.1
"""The probability that a query takes a category from another row."""
LEARNING_RATE, HASTE, CLIP = 2e-3, 2.0, 1.0
"""Of the student's Adam, which falls to zero along a cosine; how many times as fast it learns at most where there are
fewer lessons than usual; and the norm that its gradients are cut down to."""
QUERY_BATCH = 64
UPDATE_EVERY = 2
"""Steps of each minibatch chain before the student takes its turn."""
UPDATES = 40_000
"""Updates that a student needs (`results/student-tuning.json`); where the chains are done with fewer turns, it makes
several in each."""
DRAWS = 400
"""Draws that are kept of all chains together, from which the teacher's own predictions are made."""
PICKS = 16
"""Kept draws of all chains together that enter each target, besides the present ones."""
TOO_FAR, CHECKED = 0.25, 1_000
"""Nats a row that a student may be behind its teacher before another head is tried, and the training rows looked at."""
BEHIND, FURTHER, FURTHER_RATE, WORTH = 0.1, 3, 5e-4, 0.2
"""Nats a row that it may be behind before it learns on from the draws that were kept; how many times at most it makes
as many updates again, and at which rate; and the share of what it is behind that each time has to gain."""
STARTS, START_EPOCHS, START_STEPS = 16, 200, (5_000, 20_000)
"""Optimisations at least whose ends chains begin at, two a chain where there may be as many again; the epochs of each,
and its steps at least and at most."""
WHOLE = 2e7
"""Rows times weights up to which every step of a chain is taken on all rows, per unit of effort; networks beyond are
left out of the choice where there are others."""
CONVOLVED_WHOLE, CONVOLVED_STARTS, CONVOLVED_UPDATES, CONVOLVED_RATE = 1e8, 1_000, 10_000, 3e-3
"""Of a small network that convolves: multiplications up to which every step is taken on all images, steps of each
optimisation, and updates of the student, all of which cost more than those of others, and its learning rate."""
WORK, LEAST_STEPS, MOST_STEPS = 9e10, 2_000, 12_000
"""Rows times weights times steps of all such chains together if they are as many as usual, and the steps of each at
least and at most."""
LONG_ENOUGH = 0.5
"""The share of the longest candidate's steps that a network's chains have to take: larger ones that look better in a
short trial, but whose chains would be cut shorter, come out worse (`results/network-tuning.json`)."""
BURN_IN = 1 / 3
"""The share of these steps before the first draw counts."""
CHOOSING_SHARE = 0.25
"""The part of a time budget after which no further network is tried."""
LEAST_CHOOSING = 15.0
"""Seconds without which only the simplest network is tried: compiling two would take longer."""
AFTERWARDS, AFTERWARDS_SHARE = 10.0, 0.2
"""Seconds of a time budget that scores and the report take, and the share of it that is left for them at most."""
SHORTEST, AMPLE = 60, 120.0
"""Steps that chains take however little time there is, and the seconds below which less is optimised before."""
TEACHER_SHARE = 0.5
"""The part of a time budget that minibatch chains may plan to use; the student has the rest."""


class Fitted(NamedTuple):
    """A student and its teacher."""

    posterior: Posterior
    """What was sampled."""
    student: Student
    """The student's network and head."""
    params: PyTree
    """The student's weights."""
    draws: Draw
    """A fair sample of the teacher's draws, along the first axis."""
    chosen: Chosen
    """The network that was sampled, and how it was chosen."""
    choices: dict[str, Any]
    """How the chains were run: `steps` in all, `burn_in`, `thin`, and an `explanation`."""
    diagnosis: Diagnosis
    """Whether the chains agree, and how closely the student follows them."""
    options: Options
    """Those given, with all that was chosen filled in."""
    notes: tuple[str, ...]
    """What was chosen of the networks, in words."""
    lessons: int
    """Updates that the student made."""

    def predict(self, x: Any) -> Any:
        """What the student predicts of the encoded target.

        Args:
            x: encoded inputs.

        Returns:
            A prediction.
        """
        return predicted_by_student(self.student, self.params, x)

    def predict_teacher(self, x: Any) -> Any:
        """What the kept draws predict of it together.

        Args:
            x: encoded inputs.

        Returns:
            A prediction.
        """
        return predicted_by_draws(self.posterior, self.draws, x)


def predicted_by_student(student: Student, params: PyTree, x: Any) -> Any:
    """`predict_student` by a program that other numbers of rows share."""
    return sharing.predicted(student.network, params, x, lambda params, x: predict_student(student, params, x))


def predicted_by_draws(posterior: Posterior, draws: Draw, x: Any) -> Any:
    """`predict_draws` by a program that other numbers of rows share."""

    def predict(weights: PyTree, x: np.ndarray) -> Any:
        return predict_draws(posterior, draws._replace(network=weights), x)

    return sharing.predicted(posterior.network, draws.network, x, predict)


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
    watch: Callable[[Snapshot], None] = lambda snapshot: None,
    rows: Any = None,
) -> Fitted:
    """Sample the posterior of a network given `data`, and distil it.

    Args:
        data: standardised inputs, rows ``[examples, features]`` or images ``[examples, channels, height, width]``; and
            encoded targets; `WeightedData` where examples have weights.
        target: what is predicted.
        key: where the randomness comes from.
        options: what is not to be chosen automatically.
        queries: where the student asks; by default at training inputs with noise, or images distorted.
        run: a folder to keep choices, metrics and checkpoints in, and to go on from.
        quiet: whether to show no progress bars.
        start: what an earlier fit of the same networks found, to go on from.
        watch: sees how a fit without a run's folder goes.
        rows: all examples, if `data` is a sample of them (`streamed.StreamedRows`), which are then streamed.

    Returns:
        The student, its teacher's draws, and all that was chosen.
    """
    options = options or Options()
    target.check_kinds(options.likelihood, options.head)
    if run is not None and start is not None:
        raise InvalidInput("a fit in a run's folder begins anew: give no start, or no run")
    began, x, keep = time.time(), np.asarray(data.x)[:1], run or Unkept(quiet=quiet, watch=watch)
    data, queries = _filled_up(data, queries)
    choose_key, start_key, tune_key, distil_key, other_key = sharing.split(key, 5)
    budget = np.inf if options.time_budget is None else options.time_budget
    latest, deadline = began + CHOOSING_SHARE * budget, began + budget - min(AFTERWARDS, AFTERWARDS_SHARE * budget)
    chosen = _chosen(data, target, options, choose_key, keep, latest)
    notes = (f"the sampled network has {chosen.model}: {chosen.reason}",)
    LOGGER.info("%s", notes[0])
    asked, options = options, _filled_in(options, chosen.model, target)
    posterior = make_posterior(data, target, chosen.model)
    starts = _starts(posterior, data, start, start_key, options)
    if rows is not None:
        posterior = dataclasses.replace(posterior, num_data=rows.number)
    work = cells(data, target, chosen.model)
    plan = _Plan(posterior, data, starts, target, queries, options)
    if rows is None and work <= options.effort * (CONVOLVED_WHOLE if options.network == "cnn" else WHOLE):
        lengths = functools.partial(plan.in_time, _lengths(work, options), distil_key, deadline, keep.mesh)
        choices = keep.decide("student/choices", lambda: [lengths()])[0]
        parts, lessons = plan.on_all_rows(choices)
    else:
        chain = dataclasses.replace(sharing.make_chain(posterior, data, BATCH), start=starts)
        feed = None if rows is None else rows.feed(data.x.shape[1], BATCH)
        chain, choices = _tuned(chain, tune_key, options, keep, 1.0 if feed is None else 1.0 + REUSE)
        chain = dataclasses.replace(chain, feed=feed)
        parts, lessons = plan.parts(chain, choices, UPDATE_EVERY)
    LOGGER.info("%s", choices["explanation"])
    student, longer, weights = parts.student, None, None
    if start is not None:
        student = dataclasses.replace(student, holds_draws=False)  # It goes on from weights of its own.
        parts = dataclasses.replace(parts, student=student)
        weights = sharing.reshaped(student.network, start.params, data.x)
    if options.max_steps is None:
        twice = dataclasses.replace(student, optimiser=_falling_adam(options, 2 * lessons))
        longer = dataclasses.replace(parts, student=twice)
    ends = None if np.isinf(deadline) else deadline
    taught_from = time.time()
    state, again, note = taught(parts, longer, distil_key, choices["steps"], weights=weights, deadline=ends, run=keep)
    notes, lessons = notes + ((note,) if note else ()), lessons * (1 + again)
    draws, params = _kept(state), parts.best(state)
    # One with little time to learn is behind because of that.
    if options.max_steps is None and "planned" not in choices:
        lesson = _Lesson(target, posterior, draws, data, queries, other_key, lessons)
        if options.network in LINEAR:
            latest = deadline - (time.time() - taught_from)  # It takes less than all lessons did.
            params, further, words = lesson.further(student, params, options, keep, latest)
            notes, lessons = notes + words, lessons + further
            state = state._replace(students=jax.tree.map(lambda leaf: np.asarray(leaf)[None], params))
        if asked.head is None:
            student, params, options, words = lesson.by_plainer_head(student, params, options)
            notes += words
    params = sharing.reshaped(student.network, params, x)
    draws = draws._replace(network=sharing.reshaped(posterior.network, draws.network, x))
    diagnosis = parts.diagnose(state, keep.curve)
    return Fitted(posterior, student, params, draws, chosen, choices, diagnosis, options, notes, lessons)


def _filled_in(options: Options, model: Model, target: Target) -> Options:
    """The options with what was chosen."""
    activation = options.student_activation or (model.activation if options.network in LINEAR else "relu")
    head = options.head or target.heads[0]
    return dataclasses.replace(options, **model._asdict(), head=head, student_activation=activation)


def _kept(state: DistillationState) -> Draw:
    """The draws in the reservoirs of all chains, along one axis."""
    assert state.reservoir is not None
    slots = state.reservoir.slots
    filled = int(np.min(np.asarray(state.reservoir.count).clip(max=jax.tree.leaves(slots)[0].shape[1])))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, :filled].reshape(-1, *leaf.shape[2:]), slots)


class _Lesson(NamedTuple):
    """What a student may learn on from, or another one learn from."""

    target: Target
    posterior: Posterior
    draws: Draw
    data: Data
    queries: Queries
    key: Key
    lessons: int

    def further(
        self, student: Student, params: PyTree, options: Options, run: Run | Unkept, latest: float
    ) -> tuple[PyTree, int, tuple[str, ...]]:
        """The weights of a student that is behind its teacher after more updates, how many, and a note on it.

        None begin after the moment `latest`.
        """
        updates, teacher = round(slower(options.effort) * UPDATES), self._teacher()
        slow = dataclasses.replace(
            student, optimiser=FallingAdam(sharing.real(FURTHER_RATE), sharing.real(updates), CLIP)
        )

        def learned(params: PyTree, times: int) -> PyTree:
            key = jax.random.fold_in(self.key, times)
            picks = PICKS + options.chains  # As many as an update of the loop has.
            return learn_from_draws(slow, self.queries, teacher, key, updates, QUERY_BATCH, picks, params)

        weights: list[PyTree] = [params]

        def decide() -> dict[str, Any]:
            gaps = [self.behind(student, params)]
            while gaps[-1] > BEHIND and len(gaps) <= FURTHER and time.time() < latest:
                weights.append(learned(weights[-1], len(weights)))
                gaps.append(self.behind(student, weights[-1]))
                if not gaps[-1] <= (1 - WORTH) * gaps[-2]:
                    break
            return {"behind": np.nan_to_num(gaps).tolist()}  # JSON has no infinity.

        gaps = run.decide("student/further", decide)["behind"]
        times = len(gaps) - 1 if len(gaps) == 1 or gaps[-1] < gaps[-2] else len(gaps) - 2
        while len(weights) <= times:
            weights.append(learned(weights[-1], len(weights)))
        if not times:
            return params, 0, ()
        words = f"the student learned on from the draws that were kept, {times * updates:,} updates: "
        words += f"it is {gaps[times]:.2g} nats a row behind its teacher on training rows, and was {gaps[0]:.2g}"
        return weights[times], times * updates, (words,)

    def by_plainer_head(
        self, student: Student, params: PyTree, options: Options
    ) -> tuple[Student, PyTree, Options, tuple[str, ...]]:
        """The student, or one with the plainest head if that one is far behind its teacher and this one less."""
        plain = self.target.heads[-1]
        if options.head == plain or (gap := self.behind(student, params)) <= TOO_FAR:
            return student, params, options, ()
        plainer = dataclasses.replace(options, head=plain)
        other = make_student(self.target, plainer, self.lessons)
        learned = learn_from_draws(
            other, self.queries, self._teacher(), self.key, self.lessons, QUERY_BATCH, PICKS + options.chains
        )
        if not (less := self.behind(other, learned)) < gap:
            return student, params, options, ()
        words = f"{less:.2g} nats a row behind its teacher on training rows, and not {gap:.2g}"
        return other, learned, plainer, (f"the student has the head {plain!r}: with it, it is {words}",)

    def _teacher(self) -> Context:
        return Context(self.posterior, *map(jax.device_put, (self.draws, self.data.x)))

    def behind(self, student: Student, params: PyTree) -> float:
        """By how many nats a row a student predicts training rows worse than the draws."""
        data = self.data
        rows = np.linspace(0, len(data.x) - 1, min(len(data.x), CHECKED)).astype(int)
        x, y = np.asarray(data.x)[rows], np.asarray(data.y)[rows]
        both = predicted_by_draws(self.posterior, self.draws, x), predicted_by_student(student, params, x)
        scores = [prediction.log_prob(y) for prediction in both]
        return float(np.nan_to_num(np.mean(scores[0]) - np.mean(scores[1]), nan=np.inf))


class _Plan(NamedTuple):
    """What sampling and distilling begin with."""

    posterior: Posterior
    data: Data
    starts: Draw
    target: Target
    queries: Queries
    options: Options

    def parts(self, chain: Any, choices: dict[str, Any], every: int) -> tuple[Distillation, int]:
        """The distillation of a chain, whose student takes its turn after `every` steps, and its updates."""
        options, queries = self.options, self.queries
        turns = (choices["steps"] - choices["burn_in"]) // every
        whole = choices.get("planned", turns)  # A plan that was shortened has fewer turns, and no more in each.
        lessons = CONVOLVED_UPDATES if options.network == "cnn" else UPDATES
        updates = max(1, round(slower(options.effort) * lessons / whole)) if options.max_steps is None else 1
        student = make_student(self.target, options, turns * updates)
        kept, picks = -(-DRAWS // options.chains), -(-PICKS // options.chains)
        settings = Settings(options.chains, QUERY_BATCH, every, reservoir=kept, reservoir_picks=picks)
        # What is our own needs no check, which takes as long as a short fit.
        make = Distillation if isinstance(queries, TableQueries) else distillation
        near = queries.near() if isinstance(queries, TableQueries) else queries
        parts = make(chain, student, queries, settings, sharing.monitored(chain, near))
        return dataclasses.replace(parts, updates=sharing.count(updates)), turns * updates

    def on_all_rows(self, choices: dict[str, Any]) -> tuple[Distillation, int]:
        """The same of a chain on all rows."""
        lengths = {name: choices[name] for name in ("burn_in", "thin")}
        chain = sharing.whole_chain(self.posterior, self.data, self.starts, effort=self.options.effort, **lengths)
        return self.parts(chain, choices, 1)

    def in_time(self, choices: dict[str, Any], key: Key, deadline: float, mesh: Mesh | None) -> dict[str, Any]:
        """The lengths of chains on all rows, shorter where they would end after the deadline."""
        if np.isinf(deadline) or self.options.max_steps is not None:
            return choices
        share = affordable(self.on_all_rows(choices)[0], key, choices["steps"], deadline, mesh)
        return choices if share == 1 else _shortened(choices, share, self.options)


def _chosen(data: Data, target: Target, options: Options, key: Key, run: Run | Unkept, deadline: float) -> Chosen:
    """The model, chosen once."""
    models = _affordable(options.candidates(target), data, target, options)
    if len(models) > 1 and options.time_budget is not None and CHOOSING_SHARE * options.time_budget < LEAST_CHOOSING:
        return Chosen(models[0], f"the simplest, as there is no time to choose in {options.time_budget:g} seconds")

    def choose() -> dict[str, Any]:
        return dataclasses.asdict(choose_model(data, target, models, key, options.max_steps, deadline))

    decided = run.decide("student/model", choose)
    hidden, *others = decided["model"]
    return Chosen(Model(tuple(hidden), *others), decided["reason"], tuple(decided["tried"]))


def _affordable(models: list[Model], data: Data, target: Target, options: Options) -> list[Model]:
    """Those of the models whose chains take their steps on all rows, and are about as long as any of them has."""

    def size(model: Model) -> Model:
        return model._replace(prior=1.0)  # Whatever its prior, a network is as large.

    works = {model: cells(data, target, model) for model in dict.fromkeys(map(size, models))}
    steps = {model: _lengths(work, options)["steps"] for model, work in works.items()}
    small = [model for model in models if works[size(model)] <= options.effort * WHOLE] or models
    least = LONG_ENOUGH * max(steps[size(model)] for model in small)
    return [model for model in small if steps[size(model)] >= least]


def slower(effort: float) -> float:
    """How much of an effort goes into what pays less and less: ever longer chains and lessons."""
    return min(effort, effort**0.5)


def _lengths(work: int, options: Options) -> dict[str, Any]:
    """How long chains on all rows run, by the work that a step is: rows times weights."""
    # More chains than usual are more work, and not shorter: to take more is what a fit advises where there are too few.
    wanted = options.effort * WORK / (work * min(options.chains, Options.chains))
    steps = round(min(max(wanted, options.effort * LEAST_STEPS), slower(options.effort) * MOST_STEPS))
    reason = (
        "by the size of the table" if options.effort == 1 else f"by the size of the table and effort {options.effort:g}"
    )
    if options.max_steps is not None and options.max_steps < steps:
        steps, reason = max(options.max_steps, 2), "the most that were allowed"
    return _explained(steps, reason, options)


def _explained(steps: int, reason: str, options: Options) -> dict[str, Any]:
    """So many steps, and how they are used."""
    burn_in = max(1, round(BURN_IN * steps))
    thin = max(1, (steps - burn_in) * options.chains // (4 * DRAWS))
    explanation = (
        f"microcanonical chains on all rows; burn-in {burn_in:,} steps, in which each finds its step size and length; "
        f"one draw in {thin} is kept; {steps:,} steps in all, {reason}"
    )
    return {"steps": steps, "burn_in": burn_in, "thin": thin, "reason": reason, "explanation": explanation}


def _shortened(choices: dict[str, Any], share: float, options: Options) -> dict[str, Any]:
    """A plan of which there is time for a share only."""
    steps = max(round(share * choices["steps"]), SHORTEST)
    reason = f"as many as there is time for: {choices['steps']:,} were planned"
    return _explained(steps, reason, options) | {"planned": choices["steps"] - choices["burn_in"], "hurried": True}


def _tuned(
    chain: MinibatchChain, key: Key, options: Options, run: Run | Unkept, hotter: float
) -> tuple[MinibatchChain, dict[str, Any]]:
    """A tuned chain on minibatches, whose noise will be so many times what is measured, and what was chosen for it."""
    tuning: dict[str, Any] = {
        "num_chains": options.chains,
        "heating": HEATING / hotter,
        "thin_by": UPDATE_EVERY,
        "within": None if options.time_budget is None else TEACHER_SHARE * options.time_budget,
    }
    if options.max_steps is not None:
        tuning |= {"max_steps": options.max_steps, "max_burn_in": max(1, options.max_steps // 3)}
    (chain,), (choices,) = run.tune("student", [chain], key, **tuning)
    return sharing.with_arrays(chain), dataclasses.asdict(choices) | {"explanation": choices.explain()}


def _filled_up(data: Data, queries: Queries | None) -> tuple[Data, Queries]:
    """Rows with columns of zeros up to one of few widths, unless somebody's own queries are not prepared for them."""
    data = jax.tree.map(np.asarray, data)
    if data.x.ndim != 2:
        return data, queries or _image_queries(min(data.x.shape[2:]))
    width = data.x.shape[1]
    queries = queries or _row_queries(width, np.stack([data.x.min(axis=0), data.x.max(axis=0)]))
    if not isinstance(queries, TableQueries):
        return data, queries
    columns = sharing.filled_up(width, sharing.LEAST_COLUMNS)
    return data._replace(x=sharing.fill_columns(data.x, columns)), queries.over(columns)  # pyright: ignore[reportArgumentType]


def _starts(posterior: Posterior, data: Data, start: Start | None, key: Key, options: Options) -> Draw:
    """Where chains begin, along the first axis: the ends of several optimisations, or draws of an earlier fit.

    Chains forget where they began, but from random weights that takes them far longer.
    """
    number = max(STARTS, options.chains if options.max_steps is not None else 2 * options.chains)
    if start is None:
        least, most = (CONVOLVED_STARTS, CONVOLVED_STARTS) if options.network == "cnn" else START_STEPS
        steps = int(np.clip(START_EPOCHS * len(data.x) // sharing.START_BATCH, least, most))
        steps = steps if options.time_budget is None else math.ceil(min(options.time_budget / AMPLE, 1.0) * steps)
        steps = steps if options.max_steps is None else min(steps, -(-options.max_steps // 4))
        LOGGER.info("optimising the %d networks that chains begin at, %d steps each", number, steps)
        return sharing.optimised(posterior, data, key, number, steps)
    rows = np.linspace(0, len(jax.tree.leaves(start.draws)[0]) - 1, number).round().astype(int)
    some = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], start.draws)
    return jax.device_put(some._replace(network=sharing.reshaped(posterior.network, some.network, data.x)))


def make_student(target: Target, options: Options, updates: int) -> Student:
    """The student, whose learning rate falls to zero over `updates` updates."""
    head, activation = target.head(options.head), options.student_activation or "relu"
    network = make_network(options.network, options.student_hidden, head.width, ACTIVATIONS[activation])
    holds_draws = options.network in LINEAR and activation == options.activation
    return Student(network, head, _falling_adam(options, updates), holds_draws=holds_draws)


def _falling_adam(options: Options, updates: int) -> Any:
    updates, rate = max(updates, 1), CONVOLVED_RATE
    if options.network != "cnn":
        rate = LEARNING_RATE * min(max(UPDATES / updates, 1.0) ** 0.5, HASTE)
    return FallingAdam(sharing.real(rate), sharing.real(updates), CLIP)


def table_queries(schema: TableSchema) -> Queries:
    """Rows whose numbers have noise or that lie between two rows, and whose categories are sometimes another row's."""
    (width,) = schema.shape
    return _row_queries(width, schema.ends, schema.groups)


def _row_queries(width: int, ends: np.ndarray, groups: tuple[tuple[int, ...], ...] = ()) -> Queries:
    return sharing.table_queries(width, ends, groups, JITTER, BETWEEN, EXCHANGED, OUTSIDE)


@functools.cache
def _image_queries(side: int) -> Queries:
    near, far = map(jitter, PIXELS)
    distorted = distortion(**{name: share * side for name, share in DISTORTION.items()})
    return mix(mixup(), mix(distorted, mix(near, far, 0.5), DISTORTED), BETWEEN)
