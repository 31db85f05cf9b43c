"""The automatic fit: from numbers to a student, with every choice made by measuring or by rule, and told.

    the network        an MLP for rows, a CNN for images
    the prior          a Gaussian on each weight
    the noise          of a real target: one level, inferred with the weights
    the sampler        the default one, tuned (`teacher/tuning.py`)
    the queries        training inputs with noise; categories exchanged between rows; images distorted
    the student        an ordinary network with a head for the aleatoric part

`Options` holds what may be chosen otherwise.
"""

import dataclasses
import functools
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

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
    Context,
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
)
from darkbayes.tables import TableSchema
from darkbayes.teacher import AutoStep, Choices, MinibatchChain, default_sampler, minibatch_gradients, tune
from darkbayes.types import Array, Data, Key, Network, PyTree

BATCH = 100
"""Examples in a minibatch, drawn with replacement."""
LEAST_FILLED = 128
"""Rows that fewer examples are filled up to."""
MONITORED = 256
"""Queries at which the student is compared with its teacher as it learns."""
KEPT = 256
"""Generators of queries that are remembered, to be the same when they are asked for again."""
JITTER = (0.1, 0.5)
"""Standard deviations of the noise on queries, each for half of them."""
EXCHANGED = 0.1
"""The probability that a query takes a category from another row."""
NOISE_PRIOR = (1.0, 0.1)
"""Shape and rate of the Gamma prior on the noise precision of a standardised target."""
LEARNING_RATE = 5e-3
"""Of the student's Adam; it falls to zero along a cosine."""
QUERY_BATCH = 64
UPDATE_EVERY = 2
"""Steps of each chain before the student takes its turn."""
DRAWS = 400
"""Draws that are kept of all chains together, from which the teacher's own predictions are made."""
PICKS = 16
"""Kept draws of all chains together that enter each target, besides the present ones."""
CHANNELS, IMAGE_HIDDEN = (8, 16), 64
"""The CNN: channels of its two convolutions, and the width of its hidden layer."""
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


class Start(NamedTuple):
    """What another fit of the same networks may go on from."""

    draws: Draw
    """Draws of the teacher, along the first axis, at which chains begin."""
    params: PyTree
    """The student's weights."""


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
    start: Start | None = None,
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
        start: what an earlier fit of the same networks found, to go on from.
    """
    options = options or Options()
    began = time.time()
    posterior = make_posterior(data, classes, options)
    if queries is None:
        queries = _table_queries(None, ()) if data.x.ndim == 2 else _image_queries()
    if start is not None:
        posterior = dataclasses.replace(posterior, network=_beginning(posterior.network, start.draws.network))
    tune_key, distil_key = jax.random.split(key)
    chain = make_chain(posterior, data)
    within = None if options.time_budget is None else TEACHER_SHARE * options.time_budget
    tuning: dict[str, Any] = {"num_chains": options.chains, "thin_by": UPDATE_EVERY, "within": within}
    if run is None:
        chain, choices = tune(chain, tune_key, label=None if quiet else "tuning", **tuning)
    else:
        (chain,), (choices,) = run.tune("student", [chain], tune_key, **tuning)
    chain = _as_arrays(chain)
    student = make_student(data.x.ndim, classes, options, (choices.steps - choices.burn_in) // UPDATE_EVERY)
    if start is not None:
        one = jax.tree.map(lambda leaf: leaf[None], start.params)
        student = dataclasses.replace(student, network=_beginning(student.network, one))
    kept, picks = -(-DRAWS // options.chains), -(-PICKS // options.chains)
    settings = Settings(options.chains, QUERY_BATCH, UPDATE_EVERY, reservoir=kept, reservoir_picks=picks)
    parts = distillation(chain, student, queries, settings, _monitored(chain, queries))
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
    draws = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :filled].reshape(-1, *leaf.shape[2:]), state.reservoir.slots)
    return Fitted(posterior, student, parts.best(state), draws, choices, parts.diagnose(state, curve))


def make_posterior(data: Data, classes: int | None, options: Options) -> Posterior:
    """What is believed of the weights."""
    likelihood = GaussianSampledNoise(1, *NOISE_PRIOR) if classes is None else Softmax(classes)
    network = _network(data.x.ndim, options.hidden, likelihood.width)
    return Posterior(network, likelihood, GaussianPrior(1.0), num_data=len(data.x))


def make_chain(posterior: Posterior, data: Data) -> MinibatchChain:
    """The chain to tune. What was compiled for one serves others of the same networks with about as many examples.

    The rows are filled up by repeating them, to one of few numbers of rows; minibatches are drawn from the examples
    alone, with replacement, so that the posterior is what it was.
    """
    posterior.check(data)
    number = len(data.x)
    rows = np.arange(rows_filled_up(number)) % number
    data = Data(*(jnp.asarray(np.asarray(of)[rows]) for of in data))
    posterior = posterior.of_shard(number, 1.0)  # All of it, but the number is an array.
    sampler = default_sampler(posterior, BATCH)
    return MinibatchChain(posterior, sampler, data, BATCH, 0, 1, minibatch_gradients(), jnp.asarray(number, jnp.int32))


def rows_filled_up(number: int) -> int:
    """The number of rows that so many examples become: four of each power of two, from `LEAST_FILLED` on.

    >>> [rows_filled_up(number) for number in (10, 128, 129, 500, 60_000)]
    [128, 128, 160, 512, 65536]
    """
    stride = max(2 ** ((number - 1).bit_length() - 3), LEAST_FILLED // 4)
    return max(-(-number // stride) * stride, LEAST_FILLED)


def _as_arrays(chain: MinibatchChain) -> MinibatchChain:
    """A tuned chain whose lengths are arrays, which others may have with the same compiled code."""
    sampler = chain.transformation
    assert isinstance(sampler, AutoStep)
    burn_in, thin, ramp = (jnp.asarray(of, jnp.int32) for of in (chain.burn_in, chain.thin, sampler.ramp))
    return dataclasses.replace(
        chain, transformation=dataclasses.replace(sampler, ramp=ramp), burn_in=burn_in, thin=thin
    )


@eqx.filter_jit
def _monitored(chain: MinibatchChain, queries: Queries) -> Array:
    """Queries that the student does not learn from, at which it is compared with its teacher."""
    key, init_key, rows_key = jax.random.split(jax.random.key(MONITORED), 3)
    draws = jax.tree.map(lambda leaf: leaf[None], chain.init(init_key).params)
    rows = jax.random.randint(rows_key, (MONITORED,), 0, len(chain.inputs))
    return queries(key, chain.inputs[rows], Context(chain.posterior, draws, chain.inputs))


class _FallingAdam(eqx.Module):
    """Adam whose learning rate falls to zero along a cosine; its length is an array, and nothing compiles anew."""

    updates: Array

    def _adam(self) -> optax.GradientTransformation:
        def rate(count: Any) -> Array:
            return LEARNING_RATE * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(count / self.updates, 1.0)))

        return optax.adam(rate)

    def init(self, params: PyTree) -> Any:
        return self._adam().init(params)

    def update(self, grads: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        return self._adam().update(grads, state, params)


def make_student(axes: int, classes: int | None, options: Options, updates: int) -> Student:
    """The student, whose learning rate falls to zero over `updates` updates."""
    family = GaussianStudent(decompose=True) if classes is None else SoftmaxStudent(classes, decompose=True)
    optimiser: Any = _FallingAdam(jnp.asarray(max(updates, 1), jnp.float32))
    return Student(_network(axes, options.student_hidden, family.width), family, optimiser)


def table_queries(schema: TableSchema) -> Queries:
    """Rows whose numbers have noise, and whose categories are sometimes another row's."""
    return _table_queries(len(schema.numbers) if schema.groups else None, schema.groups)


@functools.lru_cache(maxsize=KEPT)
def _table_queries(numbers: int | None, groups: tuple[tuple[int, ...], ...]) -> Queries:
    """Noise on the first so many columns, or on all; and groups of columns exchanged, if there are any."""
    near, far = (jitter(scale, None if numbers is None else range(numbers)) for scale in JITTER)
    noisy = mix(near, far, 0.5)
    return compose(noisy, exchange(groups, EXCHANGED)) if groups else noisy


_image_queries = functools.lru_cache(maxsize=1)(image_queries)


def _network(axes: int, hidden: tuple[int, ...], outputs: int) -> Network:
    return mlp(hidden, outputs) if axes == 2 else cnn(CHANNELS, IMAGE_HIDDEN, outputs)


def _beginning(network: Network, weights: PyTree) -> Network:
    """The same network, which begins at one of several weights, along their first axis."""
    return network._replace(init=_OneOf(jax.tree.map(jnp.asarray, weights)))


class _OneOf(eqx.Module):
    """An `init` that begins at one of several weights; being a pytree, it takes others without compiling anew."""

    weights: PyTree

    def __call__(self, key: Key, x: Any) -> PyTree:
        chosen = jax.random.randint(key, (), 0, len(jax.tree.leaves(self.weights)[0]))
        return jax.tree.map(lambda leaf: leaf[chosen], self.weights)
