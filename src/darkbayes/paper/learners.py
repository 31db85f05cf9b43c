"""Networks that learn digits from labels that they ask for. The experiment is `active.py`."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import darkbayes as db
from darkbayes.baselines import SGD, Dropout
from darkbayes.outcomes import ClassPrediction
from darkbayes.paper.common import Draws, OneNetwork
from darkbayes.paper.growing import Growing, falling, passes, standing_for, train
from darkbayes.paper.mnist import CLASSES
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key, PyTree

KERNEL, STRIDE = 5, 2  # Of the convolutions.
SCORED = 1_000  # Images that are predicted at a time, by all draws of all seeds.


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerSettings:
    """How labels are bought, and how networks learn from them."""

    channels: tuple[int, ...] = (24, 48)
    hidden: int = 64
    pool: int = 50_000  # Images to choose from, the first of the training file.
    candidates: int = 10_000  # Of them, at random, those that are looked at before each choice.
    first: int = 20  # Labels to begin with, as many of each digit.
    batch: int = 10
    most: int = 500  # Labels at which everyone stops.
    copies: int = 16  # Of each labelled image, all but the first distorted.
    weight: float = 16.0  # How many observations an image and its copies count for in the teacher's posterior.
    prior_precision: float = 0.02
    step_size: float = 4e-6
    friction: float = 0.1
    batch_size: int = 64
    chains: int = 8
    draws: int = 5  # Kept of each chain in every round.
    begin: int = 500  # Steps of training on the first labels, before the chains set out.
    settle: int = 150  # After each batch of labels, before the student listens again.
    updates: int = 300  # Steps with an update of the student each, in every round.
    query_batch: int = 256
    learning_rate: float = 1e-3  # Of the student; falls to zero along a cosine in every round.
    dropout_rate: float = 0.25
    dropout_prior: float = 1.0
    dropout_steps: int = 600
    dropout_draws: int = 40


def convolutional(channels: tuple[int, ...], hidden: int, outputs: int) -> db.Network:
    """Strided convolutions, a hidden layer and the outputs, rectified; parameters are a tuple of ``eqx.nn.Linear``.

    A convolution is a matrix product with patches: many networks side by side are then one batched product, where
    convolutions of a library would take one group after another.
    """

    def init(key: Key, x: Array) -> PyTree:
        side = x.shape[-1]
        inputs = [1, *channels]
        widths = [(KERNEL**2 * inputs[k], inputs[k + 1]) for k in range(len(channels))]
        for _ in channels:
            side = -(-side // STRIDE)
        widths += [(side**2 * inputs[-1], hidden), (hidden, outputs)]
        keys = jax.random.split(key, len(widths))
        return tuple(eqx.nn.Linear(*width, key=key) for width, key in zip(widths, keys, strict=True))

    def apply(params: PyTree, x: Array) -> Array:
        return jax.vmap(params[-1])(features(params, x))

    return db.Network(init, apply)


def features(params: PyTree, x: Array) -> Array:
    """What the last hidden layer of such a network makes of images, ``[images, hidden]``."""
    maps = x[..., None]
    for layer in params[:-2]:
        maps = jax.nn.relu(jax.vmap(jax.vmap(jax.vmap(layer)))(patches(maps)))
    return jax.nn.relu(jax.vmap(params[-2])(maps.reshape(len(x), -1)))


def patches(maps: Array) -> Array:
    """The windows of a strided convolution, zeros around the image, ``[images, rows, columns, KERNEL^2 channels]``."""
    half, (height, width) = KERNEL // 2, maps.shape[1:3]
    padded = jnp.pad(maps, ((0, 0), (half, half), (half, half), (0, 0)))
    shifted = [
        padded[:, down : down + height : STRIDE, right : right + width : STRIDE]
        for down in range(KERNEL)
        for right in range(KERNEL)
    ]
    return jnp.concatenate(shifted, axis=-1)


class FromPool(eqx.Module):
    """Queries at random images of the pool, which need no label."""

    pool: Array

    def __call__(self, key: Key, x: Array, context: Any) -> Array:
        return self.pool[jax.random.randint(key, (len(x),), 0, len(self.pool))]


class Labels:
    """Which images of the pool each seed has had labelled, as arrays whose shapes never change."""

    def __init__(self, preset: LearnerSettings, pool: Data, seeds: list[np.random.Generator]):
        self.preset, self.pool, self.seeds = preset, pool, seeds
        y, each = np.asarray(pool.y), preset.first // CLASSES
        self.chosen = [
            np.concatenate([seed.choice(np.flatnonzero(y == label), each, replace=False) for label in range(CLASSES)])
            for seed in seeds
        ]
        self.copying = [np.random.default_rng(seed.integers(2**32)) for seed in seeds]
        self.x: list[np.ndarray] = [np.empty((0, *pool.x.shape[1:]), np.float32) for _ in seeds]
        self.y: list[np.ndarray] = [np.empty(0, np.int32) for _ in seeds]
        self._copy(self.chosen)

    def _copy(self, rows: list[np.ndarray]) -> None:
        """Keep images, and distorted copies of them."""
        for seed, (own, generator) in enumerate(zip(rows, self.copying, strict=True)):
            x, y = self.pool.x[own], np.asarray(self.pool.y)[own]
            copies = [np.asarray(x)]
            for _ in range(self.preset.copies - 1):
                copies.append(np.asarray(_distorted(jax.random.key(int(generator.integers(2**31))), x)))
            self.x[seed] = np.concatenate([self.x[seed], *copies])
            self.y[seed] = np.concatenate([self.y[seed], *[y] * self.preset.copies])

    @property
    def number(self) -> int:
        return len(self.chosen[0])

    @property
    def rows(self) -> int:
        """How many rows of `data` hold labelled images and their copies."""
        return self.number * self.preset.copies

    def data(self, evenly: bool = False) -> Data:
        """The labelled images of every seed and their copies, and then others of them up to a length for all.

        `evenly` has each of them everywhere with the same probability, for those who draw from all rows.
        """
        length = self.preset.most * self.preset.copies
        order = [np.arange(length) % self.rows for _ in self.seeds]
        if evenly:
            order = [seed.integers(0, self.rows, length) for seed in self.copying]
        rows = np.stack(order)
        x, y = (np.stack(part)[np.arange(len(rows))[:, None], rows] for part in (self.x, self.y))
        return Data(jnp.asarray(x), jnp.asarray(y))

    def candidates(self) -> np.ndarray:
        """Images without a label, at random, of every seed ``[seeds, candidates]``."""
        size = len(self.pool.y)
        number = min(self.preset.candidates, size - self.preset.most)
        free = [np.setdiff1d(np.arange(size), chosen) for chosen in self.chosen]
        return np.stack([seed.choice(rows, number, replace=False) for seed, rows in zip(self.seeds, free, strict=True)])

    def add(self, rows: list[np.ndarray]) -> None:
        self.chosen = [np.concatenate([old, new]) for old, new in zip(self.chosen, rows, strict=True)]
        self._copy(rows)


@jax.jit
def _distorted(key: Key, x: Array) -> Array:
    return db.queries.distortion()(key, x, None)  # pyright: ignore[reportArgumentType]


class Opinion(eqx.Module):
    """What a method makes of some images of each seed: log probabilities, expected entropies and features."""

    log_probs: Any
    expected: Any
    features: Any

    def of_seed(self, seed: int) -> tuple[ClassPrediction, np.ndarray]:
        log_probs, expected, last = (np.asarray(part[seed], np.float64) for part in jax.tree.leaves(self))
        return ClassPrediction(log_probs, expected), last


# Each is made once, so that all methods of a run share what is compiled.


@functools.cache
def teacher_and_student(preset: LearnerSettings) -> tuple[db.Posterior, Any, db.Student]:
    """The posterior, the sampler and the student of all methods that distil."""
    network = convolutional(preset.channels, preset.hidden, CLASSES)
    prior, rows = db.priors.ScaledGaussianPrior(preset.prior_precision), preset.most * preset.copies
    posterior = db.Posterior(network, db.outcomes.Softmax(CLASSES), prior, num_data=rows)
    head = db.outcomes.SoftmaxHead(CLASSES, decompose=True)
    adam = optax.adam(falling(preset.learning_rate, preset.updates))
    student = db.Student(convolutional(preset.channels, preset.hidden, head.width), head, adam)
    return posterior, db.samplers.sghmc(preset.step_size, preset.friction), student


@functools.cache
def plug_in(preset: LearnerSettings) -> SGD:
    """How the networks that chains begin at are trained."""
    adam = optax.adam(falling(preset.learning_rate, preset.begin))
    return SGD(teacher_and_student(preset)[0], adam, preset.begin, preset.batch_size)


@functools.cache
def dropping(preset: LearnerSettings) -> Dropout:
    """Dropout, of the same network."""
    network, rows = convolutional(preset.channels, preset.hidden, CLASSES), preset.most * preset.copies
    prior = db.priors.GaussianPrior(preset.dropout_prior)
    posterior = db.Posterior(network, db.outcomes.Softmax(CLASSES), prior, num_data=rows)
    adam = optax.adam(falling(preset.learning_rate, preset.dropout_steps))
    return Dropout(posterior, adam, preset.dropout_steps, preset.batch_size, rate=preset.dropout_rate)


class Distilling:
    """Chains that never stop while labels are added, and their student; all seeds side by side."""

    def __init__(self, preset: LearnerSettings, pool: Data, labels: Labels, key: Key, by_draws: bool):
        self.preset, self.by_draws = preset, by_draws
        (posterior, sampler, student), updates = teacher_and_student(preset), preset.updates
        settings = db.Settings(preset.chains, preset.query_batch, reservoir=preset.draws)
        start_key, growing_key = jax.random.split(key)
        how: Any = {"key": growing_key, "batch_size": preset.batch_size, "updates": updates, "begin": preset.settle}
        parts = (posterior, sampler, student, FromPool(pool.x), settings, labels.data())
        start = self._starts(posterior, labels, start_key)
        self.growing = Growing(*parts, number=labels.rows, examples=self._examples(labels), start=start, **how)

    def _starts(self, posterior: db.Posterior, labels: Labels, key: Key) -> PyTree:
        """Trained networks for the chains to begin at, ``[seeds, chains, ...]``."""
        preset, data = self.preset, labels.data(evenly=True)
        init_key, train_key = jax.random.split(key)
        shape = len(data.x), preset.chains
        method = standing_for(plug_in(preset), self._examples(labels))
        keys, train_keys = (jax.random.split(one, shape) for one in (init_key, train_key))
        params = jax.vmap(jax.vmap(lambda key: posterior.init(key, data.x[0])))(keys)
        each = [train(method, at(k, _turned(params)), data, train_keys[:, k]) for k in range(preset.chains)]
        return _turned(jax.tree.map(lambda *leaves: jnp.stack(leaves), *each))

    def _examples(self, labels: Labels) -> float:
        return self.preset.weight * labels.number

    def learn(self, labels: Labels) -> None:
        """Go on with the labels that there are now."""
        self.growing.learn(labels.data(), labels.rows, self._examples(labels), self.preset.settle)

    def opinion(self, x: Array) -> Opinion:
        """On images ``[images, ...]`` that all seeds look at, or on those of each seed ``[seeds, images, ...]``."""
        growing = self.growing
        if self.by_draws:
            return in_pieces(Draws(growing.posterior, growing.draws), x)
        return in_pieces(OneNetwork(growing.student, growing.weights), x)


def _turned(tree: PyTree) -> PyTree:
    """With the first two axes of every leaf exchanged."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tree)


def in_pieces(models: Draws | OneNetwork, x: Array) -> Opinion:
    """What the model of each seed says of images, so many at a time that they fit anywhere."""
    pieces = []
    for place in range(0, x.shape[-3], SCORED):
        pieces.append(jax.device_get(_each_seed(models, x[..., place : place + SCORED, :, :])))
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *pieces)


@eqx.filter_jit
def _each_seed(models: Any, x: Array) -> Opinion:
    def one(model: Any, x: Array) -> Opinion:
        last = features(model.weights, x) if isinstance(model, OneNetwork) else jnp.zeros((len(x), 1))
        log_probs, expected = model(x)
        return Opinion(log_probs, expected, last)

    return eqx.filter_vmap(one, in_axes=(eqx.if_array(0), None if x.ndim == 3 else 0))(models, x)


class Dropping:
    """Monte Carlo dropout, trained anew whenever there are more labels; all seeds side by side."""

    def __init__(self, preset: LearnerSettings, key: Key):
        self.preset, self.key, self.method = preset, key, dropping(preset)

    def learn(self, labels: Labels) -> None:
        self.key, start_key, fit_key, draw_key = jax.random.split(self.key, 4)
        data, seeds = labels.data(evenly=True), len(labels.chosen)
        starts, fits, draws = (jax.random.split(key, seeds) for key in (start_key, fit_key, draw_key))
        params = jax.vmap(lambda key: self.method.start(key, data.x[0]))(starts)
        fitted = train(standing_for(self.method, labels.number), params, data, fits)
        self.draws = passes(self.method, fitted, draws, self.preset.dropout_draws)

    def opinion(self, x: Array) -> Opinion:
        return in_pieces(Draws(self.method.posterior, self.draws), x)
