"""Agents that act to learn: what they meet, what they remember, and how they choose. The experiment is `bandits.py`."""

import abc
import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import darkbayes as db
from darkbayes.baselines import SGD, Dropout
from darkbayes.baselines.optimise import Trained
from darkbayes.paper.growing import Growing, falling, passes, standing_for, train
from darkbayes.types import Array, Data, Key, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """How agents learn."""

    hidden: tuple[int, ...] = (50, 50)
    prior_precision: float = 0.3
    noise_precision: float = 1.0  # Of rewards in units of the problem's scale.
    step_size: float = 1e-5
    friction: float = 0.05
    batch_size: int = 128
    chains: int = 8
    draws: int = 5  # Kept of each chain between two lessons.
    begin: int = 2_000
    settle: int = 50
    updates: int = 100  # Steps of a lesson: of chains, student, greedy and dropout.
    query_batch: int = 256
    jitter: float = 0.1  # On the contexts that the student asks about, where these are continuous.
    learning_rate: float = 1e-3
    dropout_rate: float = 0.2


class BanditProblem(NamedTuple):
    """What an agent meets, for each seed and context."""

    contexts: np.ndarray  # ``[seeds, contexts, width]``.
    expected: np.ndarray  # The worth of each arm, ``[seeds, contexts, arms]``.
    rewards: np.ndarray  # What it would give, likewise.
    scale: float  # Of rewards, for networks.
    continuous: bool

    @property
    def arms(self) -> int:
        return self.expected.shape[2]

    @property
    def inputs(self) -> np.ndarray:
        """The contexts as agents read them: each column standardised, without a look at rewards."""
        center, spread = self.standard
        return (self.contexts - center[:, None]) / spread[:, None]

    @property
    def standard(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each column, ``[seeds, width]``; one for a deviation of zero."""
        spread = self.contexts.std(axis=1)
        return self.contexts.mean(axis=1), np.where(spread > 0, spread, 1.0)

    @property
    def codes(self) -> np.ndarray:
        """What says which arm it is, beside a context, ``[arms, arms]``.

        Of a context's size: else a network would take it for granted that all arms are worth about the same.
        """
        return np.eye(self.arms) * self.contexts.shape[2] ** 0.5

    @property
    def uniform(self) -> np.ndarray:
        """The regret of choosing at random, in expectation, of each seed."""
        return (self.expected.max(axis=2) - self.expected.mean(axis=2)).sum(axis=1)


class History:
    """What an agent has seen, in arrays whose shapes never change: a row is a context with an arm, and its reward."""

    def __init__(self, problem: BanditProblem):
        self.problem, self.number, self.inputs = problem, 0, problem.inputs
        seeds, number, width = problem.contexts.shape
        self.x = np.zeros((seeds, number, width + problem.arms), np.float32)
        self.y = np.zeros((seeds, number, 1), np.float32)
        self.arms = np.zeros((seeds, number), np.int64)

    def act(self, arms: np.ndarray) -> None:
        """Choose arms ``[seeds, contexts]`` for the next contexts."""
        problem, new = self.problem, slice(self.number, self.number + arms.shape[1])
        self.arms[:, new] = arms
        self.x[:, new] = np.concatenate([self.inputs[:, new], problem.codes[arms]], axis=2)
        self.y[:, new] = np.take_along_axis(problem.rewards[:, new], arms[..., None], 2) / problem.scale
        self.number = new.stop

    def data(self) -> Data:
        """All rows so far, over and over."""
        rows = np.arange(self.x.shape[1]) % self.number
        return Data(jnp.asarray(self.x[:, rows]), jnp.asarray(self.y[:, rows]))

    @property
    def regret(self) -> np.ndarray:
        """The regret up to each context, ``[seeds, contexts]``."""
        expected = self.problem.expected[:, : self.number]
        chosen = np.take_along_axis(expected, self.arms[:, : self.number, None], 2)[..., 0]
        return np.cumsum(expected.max(axis=2) - chosen, axis=1)


def every_arm(inputs: np.ndarray, codes: np.ndarray) -> Array:
    """Each context, as agents read it, with the code of each arm, ``[seeds, contexts, arms, width]``."""
    shape = (*inputs.shape[:2], len(codes))
    wide = np.broadcast_to(inputs[:, :, None], (*shape, inputs.shape[2]))
    return jnp.asarray(np.concatenate([wide, np.broadcast_to(codes, (*shape, len(codes)))], axis=3), jnp.float32)


class RandomArms(eqx.Module):
    """Queries at contexts that were seen, with any arm; with noise on the contexts where they are continuous."""

    codes: Array
    noise: float

    def __call__(self, key: Key, x: Array, context: Any) -> Array:
        arm_key, noise_key = jax.random.split(key)
        seen = x[:, : x.shape[1] - len(self.codes)]
        seen = seen + self.noise * jax.random.normal(noise_key, seen.shape, seen.dtype)
        arms = jax.random.randint(arm_key, (len(x),), 0, len(self.codes))
        return jnp.concatenate([seen, self.codes[arms]], axis=1)


class Networks(NamedTuple):
    """What agents learn with, all of one architecture."""

    posterior: db.Posterior
    sampler: Any
    student: db.Student
    greedy: SGD
    dropout: Dropout


@functools.cache
def networks(settings: AgentSettings, rows: int) -> Networks:
    """Made once for all agents that remember so many rows, so that they share what is compiled."""
    likelihood = db.outcomes.Gaussian(settings.noise_precision)
    prior = db.priors.ScaledGaussianPrior(settings.prior_precision)
    posterior = db.Posterior(db.mlp(settings.hidden, 1), likelihood, prior, num_data=rows)
    head, updates = db.outcomes.GaussianHead(1, decompose=True), settings.updates
    adam = optax.adam(falling(settings.learning_rate, updates))
    student = db.Student(db.mlp(settings.hidden, head.width), head, adam)
    steady, size = optax.adam(settings.learning_rate), min(settings.batch_size, rows)
    greedy = SGD(posterior, steady, updates, size)
    dropout = Dropout(posterior, steady, updates, size, rate=settings.dropout_rate)
    return Networks(posterior, db.samplers.sghmc(settings.step_size, settings.friction), student, greedy, dropout)


class Agent(abc.ABC):
    """Learns from a history, and chooses arms for contexts ``[seeds, contexts, width]``."""

    def __init__(self, preset: AgentSettings, history: History, key: Key):
        self.preset, self.history, self.key = preset, history, key
        self.made = networks(preset, history.x.shape[1])
        self.posterior = self.made.posterior
        self.begin()

    @abc.abstractmethod
    def begin(self) -> None:
        """Prepare."""

    def split(self) -> Key:
        self.key, key = jax.random.split(self.key)
        return key

    @abc.abstractmethod
    def learn(self) -> None:
        """Take in what was seen since."""

    @abc.abstractmethod
    def values(self, x: Array) -> Any:
        """What each arm may be worth, for rows ``[seeds, contexts, arms, width]``: a sample, or a guess."""

    def choose(self, inputs: np.ndarray) -> np.ndarray:
        return np.argmax(self.values(every_arm(inputs, self.history.problem.codes)), axis=2)


class DistilledAgent(Agent):
    """Thompson sampling from a student's predictive."""

    def begin(self) -> None:
        preset, problem, updates = self.preset, self.history.problem, self.preset.updates
        queries = RandomArms(jnp.asarray(problem.codes, jnp.float32), preset.jitter if problem.continuous else 0.0)
        settings = db.Settings(preset.chains, preset.query_batch, reservoir=preset.draws)
        how: Any = {"batch_size": self.made.greedy.batch_size, "updates": updates, "begin": preset.begin}
        parts = (self.posterior, self.made.sampler, self.made.student, queries, settings, self.history.data())
        number = self.history.number
        self.growing = Growing(*parts, number=number, examples=number, key=self.split(), **how)

    def learn(self) -> None:
        number = self.history.number
        self.growing.learn(self.history.data(), number, number, self.preset.settle)

    def values(self, x: Array) -> Any:
        return _of_student(self.growing.student, self.growing.weights, x, self.split())


class Sampled(DistilledAgent):
    """Thompson sampling from the draws of the same teacher."""

    def values(self, x: Array) -> Any:
        return _of_draws(self.posterior, self.growing.draws, x, self.split())


@eqx.filter_jit
def _of_student(student: db.Student, weights: PyTree, x: Array, key: Key) -> Array:
    """A value of each arm of each context, from Gaussians of the student's means and epistemic variances."""

    def one(weights: PyTree, x: Array, key: Key) -> Array:
        predicted = student.predict(weights, x.reshape(-1, x.shape[-1]))
        assert predicted.epistemic is not None
        mean, doubt = (part[:, 0].reshape(x.shape[:-1]) for part in (predicted.distribution.mean, predicted.epistemic))
        return mean + jnp.sqrt(doubt) * jax.random.normal(key, mean.shape, mean.dtype)

    return jax.vmap(one)(weights, x, jax.random.split(key, len(x)))


@eqx.filter_jit
def _of_draws(posterior: db.Posterior, draws: PyTree, x: Array, key: Key) -> Array:
    """The value of each arm of each context by a draw of its own, picked at random."""

    def one(draws: PyTree, x: Array, key: Key) -> Array:
        picked = jax.random.randint(key, (len(x),), 0, len(jax.tree.leaves(draws)[0]))
        chosen = jax.tree.map(lambda leaf: leaf[picked], draws)
        return jax.vmap(lambda draw, x: posterior.distribution(draw, x).mean[:, 0])(chosen, x)

    return jax.vmap(one)(draws, x, jax.random.split(key, len(x)))


class Greedy(Agent):
    """The network of highest posterior density, trained on from where it was."""

    def begin(self) -> None:
        self.method = self.trained()
        x, seeds = jnp.asarray(self.history.x[0]), len(self.history.x)
        self.fitted = jax.vmap(lambda key: self.method.start(key, x))(jax.random.split(self.split(), seeds))

    def trained(self) -> Trained:
        return self.made.greedy

    def learn(self) -> None:
        history = self.history
        # Each row is as likely as any other in whatever is drawn of all.
        rows = np.random.default_rng(history.number).integers(0, history.number, history.x.shape[1])
        data = Data(jnp.asarray(history.x[:, rows]), jnp.asarray(history.y[:, rows]))
        method = standing_for(self.method, history.number)
        self.fitted = train(method, self.fitted, data, jax.random.split(self.split(), len(data.x)))

    def values(self, x: Array) -> Any:
        draws = jax.tree.map(lambda leaf: leaf[:, None], self.fitted)
        return _of_draws(self.posterior, draws, x, self.split())


class Dropped(Greedy):
    """Thompson sampling by passes of Monte Carlo dropout."""

    def trained(self) -> Trained:
        return self.made.dropout

    def values(self, x: Array) -> Any:
        keys = jax.random.split(self.split(), len(x))
        draws = passes(self.method, self.fitted, keys, x.shape[1])
        return _of_draws(self.posterior, draws, x, self.split())


class BayesianLinear:
    """Linear regression with a conjugate prior: slopes N(0, noise variance / precision), noise inverse gamma.

    With n rows X of targets y: the slopes have mean m = A^-1 X'y and covariance s^2 A^-1, A = precision + X'X, and s^2
    is inverse gamma with shape a + n/2 and rate b + (y'y - m'A m)/2.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, precision: float = 1.0, shape: float = 3.0, rate: float = 3.0):
        gram = precision * np.eye(x.shape[1]) + x.T @ x
        self.factor = np.linalg.cholesky(gram)
        self.mean = np.linalg.solve(gram, x.T @ y)
        self.shape = shape + len(y) / 2
        self.rate = rate + max(float(y @ y - self.mean @ gram @ self.mean), 0.0) / 2

    def sample(self, number: int, seed: np.random.Generator) -> np.ndarray:
        """Slopes from the posterior, ``[number, width]``."""
        noise = np.sqrt(self.rate / seed.gamma(self.shape, size=number))
        normal = seed.normal(size=(len(self.mean), number))
        return self.mean + (noise * np.linalg.solve(self.factor.T, normal)).T


class LinearAgent(Agent):
    """Thompson sampling by Bayesian linear regression of each arm."""

    def begin(self) -> None:
        self.random = [np.random.default_rng([7, seed]) for seed in range(len(self.history.x))]
        self.standard = self.history.problem.standard

    def features(self, x: np.ndarray) -> np.ndarray:
        """What the regressions read, ``[..., width]``, of rows ``[seeds, ..., width]``: contexts, and a constant."""
        contexts = np.asarray(x[..., : x.shape[-1] - self.history.problem.arms], np.float64)
        # As they came: columns of zeros and ones with one common prior do better than standardised ones.
        center, spread = (np.expand_dims(part, tuple(range(1, x.ndim - 1))) for part in self.standard)
        contexts = contexts * spread + center
        return np.concatenate([contexts, np.ones((*x.shape[:-1], 1))], axis=-1).astype(np.float64)

    def learn(self) -> None:
        history, arms = self.history, range(self.history.problem.arms)
        known = self.features(history.x)[:, : history.number]
        self.models = []
        for seed, x in enumerate(known):
            y, chosen = history.y[seed, : history.number, 0].astype(np.float64), history.arms[seed, : history.number]
            self.models.append([BayesianLinear(x[chosen == arm], y[chosen == arm]) for arm in arms])

    def values(self, x: Array) -> Any:
        rows = self.features(np.asarray(x))
        values = np.empty(rows.shape[:-1])
        for seed, (models, own) in enumerate(zip(self.models, self.random, strict=True)):
            for arm, model in enumerate(models):
                values[seed, :, arm] = np.sum(rows[seed, :, arm] * model.sample(rows.shape[1], own), axis=1)
        return values


class NeuralLinear(LinearAgent):
    """The same on the last hidden layer of a greedy agent's network (Riquelme, Tucker and Snoek, 2018)."""

    def begin(self) -> None:
        super().begin()
        self.greedy = Greedy(self.preset, self.history, self.split())

    def learn(self) -> None:
        self.greedy.learn()
        super().learn()

    def features(self, x: np.ndarray) -> np.ndarray:
        flat = jnp.asarray(x.reshape(len(x), -1, x.shape[-1]))
        hidden = np.asarray(_last_hidden(self.greedy.fitted.network, flat), np.float64)
        constant = np.ones((*hidden.shape[:-1], 1))
        return np.concatenate([hidden, constant], axis=-1).reshape(*x.shape[:-1], -1)


@jax.jit
def _last_hidden(layers: PyTree, x: Array) -> Array:
    def one(layers: PyTree, x: Array) -> Array:
        for layer in layers[:-1]:
            x = jax.nn.relu(jax.vmap(layer)(x))
        return x

    return jax.vmap(one)(layers, x)


AGENTS: dict[str, type[Agent]] = {
    "student thompson": DistilledAgent,
    "sgld thompson": Sampled,
    "neural linear": NeuralLinear,
    "linear": LinearAgent,
    "greedy": Greedy,
    "dropout thompson": Dropped,
}
