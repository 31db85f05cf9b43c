"""The automatic fit: from numbers to a student, with every choice made by measuring or by rule, and told.

    the network        an MLP for rows, a CNN for images
    the prior          a Gaussian on each weight, wider for classes
    the noise          of a real target: one level, inferred with the weights
    the sampler        the default one, tuned (`teacher/tuning.py`), from the ends of short optimisations
    the queries        training inputs with noise, and points between them; categories exchanged between rows; images
                       distorted
    the student        an ordinary network with a head for the aleatoric part

`Options` holds what may be chosen otherwise.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from darkbayes.baselines import SGD, raise_if_diverged
from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.model import (
    Draw,
    GaussianPrior,
    GaussianSampledNoise,
    Posterior,
    Softmax,
    cnn,
    mlp,
)
from darkbayes.predict import Predictive, predict_draws, predict_student
from darkbayes.progress import progress_bar
from darkbayes.runs import Run
from darkbayes.student import (
    Diagnosis,
    GaussianStudent,
    Queries,
    Settings,
    SoftmaxStudent,
    Student,
    compose,
    distillation,
    exchange,
    image_queries,
    jitter,
    mix,
    mixup,
)
from darkbayes.tables import TableSchema
from darkbayes.teacher import Choices, default_sampler, minibatch_chain, tune
from darkbayes.types import Data, Key, Network, PyTree

BATCH = 100
"""Examples in a minibatch, where there are more."""
JITTER = (0.02, 0.3)
"""Standard deviations of the noise on queries, each for half of those that have noise."""
BETWEEN = 0.25
"""The share of the queries that lie between two rows."""
PRIOR_NUMBER, PRIOR_CLASSES = 1.0, 0.25
"""The precision of the prior on every weight, for a real target and for classes."""
EXCHANGED = 0.1
"""The probability that a query takes a category from another row."""
NOISE_PRIOR = (1.0, 0.1)
"""Shape and rate of the Gamma prior on the noise precision of a standardised target."""
LEARNING_RATE = 5e-3
"""Of the student's Adam; it falls to zero along a cosine."""
QUERY_BATCH = 64
UPDATE_EVERY = 2
"""Steps of each chain before the student takes its turn."""
UPDATES = 15_000
"""Updates that a student needs; where the chains are done with fewer turns, it makes several in each."""
DRAWS = 400
"""Draws that are kept of all chains together, from which the teacher's own predictions are made."""
PICKS = 16
"""Kept draws of all chains together that enter each target, besides the present ones."""
CHANNELS, IMAGE_HIDDEN = (8, 16), 64
"""The CNN: channels of its two convolutions, and the width of its hidden layer."""
STARTS, START_STEPS, START_RATE = 16, 5_000, 5e-3
"""Optimisations whose ends chains begin at, the steps of each, and its learning rate, which falls to zero."""
TEACHER_SHARE = 0.5
"""The part of a time budget that the chains may use; the student has the rest."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What may be chosen of an automatic fit."""

    hidden: tuple[int, ...] = (50,)
    """The widths of the hidden layers of the network that is sampled; not for images."""
    student_hidden: tuple[int, ...] = (100, 100)
    """Those of the student; not for images."""
    chains: int = 8
    time_budget: float | None = 300.0
    """Seconds that sampling and distilling may take; None for as long as they want, at most 40,000 steps."""

    def __post_init__(self) -> None:
        for name in ("hidden", "student_hidden"):
            widths = getattr(self, name)
            if not isinstance(widths, tuple | list):
                raise InvalidInput(f"{name} must be a sequence of widths such as (50,), not {widths!r}")
            for width in widths:
                require_count(f"a width in {name}", width)
        require_count("chains", self.chains)
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

    def predict(self, x: Any) -> Predictive:
        """What the student predicts."""
        return predict_student(self.student, self.params, x)

    def predict_teacher(self, x: Any) -> Predictive:
        """What the kept draws predict together."""
        return predict_draws(self.posterior, self.draws, x)


def fit(
    data: Data,
    classes: int | None,
    key: Key,
    options: Options | None = None,
    *,
    queries: Queries | None = None,
    run: Run | None = None,
    quiet: bool = True,
    start: Fitted | None = None,
) -> Fitted:
    """Sample the posterior of a network given `data`, and distil it.

    Args:
        data: standardised inputs, rows ``[examples, features]`` or images ``[examples, channels, height, width]``; and
            standardised real targets ``[examples, 1]``, or classes 0 .. K-1.
        classes: K, or None for a real target.
        key: where the randomness comes from.
        options: what is not to be chosen automatically.
        queries: where the student asks; by default at training inputs with noise, or images distorted.
        run: a folder to keep choices, metrics and checkpoints in, and to go on from.
        quiet: whether to show no progress bars.
        start: a fit of the same networks to go on from: its draws begin the chains, its student the student.
    """
    options = options or Options()
    began = time.time()
    posterior = make_posterior(data, classes, options)
    if queries is None:
        queries = jittered() if data.x.ndim == 2 else image_queries()
    tune_key, distil_key, start_key = jax.random.split(key, 3)
    batch_size = BATCH if posterior.num_data > BATCH else None
    begin = modes(posterior, data, batch_size, start_key) if start is None else start.draws
    sampler = default_sampler(posterior, batch_size)
    chain = minibatch_chain(posterior, sampler, *data, batch_size=batch_size, start=begin)
    within = None if options.time_budget is None else TEACHER_SHARE * options.time_budget
    tuning: dict[str, Any] = {"num_chains": options.chains, "thin_by": UPDATE_EVERY, "within": within}
    if run is None:
        chain, choices = tune(chain, tune_key, label=None if quiet else "tuning", **tuning)
    else:
        (chain,), (choices,) = run.tune("student", [chain], tune_key, **tuning)
    turns = (choices.steps - choices.burn_in) // UPDATE_EVERY
    updates = max(1, round(UPDATES / turns))
    student = make_student(data.x.ndim, classes, options, turns * updates)
    if start is not None:
        one = jax.tree.map(lambda leaf: leaf[None], start.params)
        student = dataclasses.replace(student, network=_beginning(student.network, one))
    kept, picks = -(-DRAWS // options.chains), -(-PICKS // options.chains)
    settings = Settings(options.chains, QUERY_BATCH, UPDATE_EVERY, updates, reservoir=kept, reservoir_picks=picks)
    parts = distillation(chain, student, queries, settings)
    deadline = None if options.time_budget is None else began + options.time_budget
    if run is not None:
        state, curve = run.distil("student", parts, distil_key, choices.steps, deadline), []
    else:
        state, curve = parts.init(distil_key), []
        with progress_bar("distilling", choices.steps, quiet=quiet) as show:
            for snapshot in parts.run(state, choices.steps, deadline):
                state = snapshot.state
                curve += [] if snapshot.divergence is None else [(snapshot.step, snapshot.divergence)]
                show(snapshot.step, loss=snapshot.loss, KL=snapshot.divergence)
    assert state.reservoir is not None
    filled = int(np.min(np.asarray(state.reservoir.count).clip(max=kept)))
    draws = jax.tree.map(lambda leaf: leaf[:, :filled].reshape(-1, *leaf.shape[2:]), state.reservoir.slots)
    return Fitted(posterior, student, parts.best(state), draws, choices, parts.diagnose(state, curve))


def modes(posterior: Posterior, data: Data, batch_size: int | None, key: Key) -> Draw:
    """Where chains begin: the ends of several short optimisations, along the first axis.

    Chains forget where they began, but from random weights that takes them far longer.
    """
    schedule = optax.cosine_decay_schedule(START_RATE, START_STEPS)
    method = SGD(posterior, optax.adam(schedule), START_STEPS, batch_size)
    found = _optimised(method, jax.random.split(key, STARTS), data)
    raise_if_diverged(found)
    return found


@eqx.filter_jit
def _optimised(method: SGD, keys: Key, data: Data) -> Draw:
    return jax.vmap(method.fit, in_axes=(0, None))(keys, data)


def make_posterior(data: Data, classes: int | None, options: Options) -> Posterior:
    """What is believed of the weights."""
    likelihood = GaussianSampledNoise(1, *NOISE_PRIOR) if classes is None else Softmax(classes)
    network = _network(data.x.ndim, options.hidden, likelihood.width)
    prior = GaussianPrior(PRIOR_NUMBER if classes is None else PRIOR_CLASSES)
    return Posterior(network, likelihood, prior, num_data=len(data.x))


def make_student(axes: int, classes: int | None, options: Options, updates: int) -> Student:
    """The student, whose learning rate falls to zero over `updates` updates."""
    family = GaussianStudent(decompose=True) if classes is None else SoftmaxStudent(classes, decompose=True)
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, max(updates, 1))
    return Student(_network(axes, options.student_hidden, family.width), family, optax.adam(schedule))


def jittered(columns: Sequence[int] | None = None) -> Queries:
    """Training inputs with little noise, or with more, and points between two of them."""
    near, far = (jitter(scale, columns) for scale in JITTER)
    return mix(mixup(), mix(near, far, 0.5), BETWEEN)


def table_queries(schema: TableSchema) -> Queries:
    """Rows whose numbers have noise, and whose categories are sometimes another row's."""
    if not schema.groups:
        return jittered()
    return compose(jittered(range(len(schema.numbers))), exchange(schema.groups, EXCHANGED))


def _network(axes: int, hidden: tuple[int, ...], outputs: int) -> Network:
    return mlp(hidden, outputs) if axes == 2 else cnn(CHANNELS, IMAGE_HIDDEN, outputs)


def _beginning(network: Network, weights: PyTree) -> Network:
    """The same network, which begins at one of several weights, along their first axis."""
    number = len(jax.tree.leaves(weights)[0])

    def init(key: Key, x: Any) -> PyTree:
        chosen = jax.random.randint(key, (), 0, number)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], weights)

    return network._replace(init=init)
