"""Active learning on MNIST: how many labels until 95 % of the digits are right, by who chooses what to label.

    darkbayes reproduce active --preset best      about 10 minutes on one H200, five seeds side by side
    darkbayes reproduce active --preset quick     minutes on two cores: a smaller network, one seed, few labels

All begin with the same 20 labels, two of each digit, and get ten more at a time from a pool of 50,000 images. From
the pool, of which 10,000 at random are looked at each time, they choose

    student random        at random
    student entropy       by the entropy of what the student predicts
    student bald          by the student's mutual information: its entropy less the expected entropy that it has
                          distilled, from one forward pass
    student bald batch    by the same, but ten that differ: greedily by what is left of it given those chosen before,
                          with a Gaussian kernel on the student's last hidden layer (`darkbayes.acquisition.choose`). It
                          stands in for BatchBALD, whose joint entropies need draws
    sgld bald             by the mutual information of the teacher's draws, which also predict
    dropout bald          by that of Monte Carlo dropout, which also predicts

Teacher, student and dropout are the same convolutional network. All learn from labelled images and distorted copies of
them. To the teacher every copy is an observation, sixteen for a label: a likelihood to the power of sixteen, without
which the prior rules so few labels. Its chains (SGHMC) begin at trained networks and never stop: labels are added under
them. The student asks its teacher at images of the pool, whose labels nobody knows.
Nothing is compiled anew as labels grow. Settings were chosen on images of the pool, none on the test images.
"""

import dataclasses
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import darkbayes as db
from darkbayes.acquisition import choose
from darkbayes.baselines import SGD, Dropout
from darkbayes.data import load
from darkbayes.files import write_arrays
from darkbayes.outcomes import ClassPrediction
from darkbayes.paper.common import Draws, OneNetwork, Row, rows_of
from darkbayes.paper.growing import Growing, falling, passes, standing_for, train
from darkbayes.paper.mnist import CLASSES, PIXEL_SCALE, VALIDATION
from darkbayes.progress import progress_bar
from darkbayes.report import Names, RunWords, figures
from darkbayes.runs import row
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key, PyTree

GOAL = 95.0  # Per cent of the test images.
KERNEL, STRIDE = 5, 2  # Of the convolutions.
SCORED = 5_000  # Images that are predicted at a time.
MOST_NEAR = 300  # Candidates among which a batch is chosen by distance, the most doubtful ones.
METHODS = ("student bald", "student bald batch", "student random", "student entropy", "sgld bald", "dropout bald")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """All the settings of the experiment."""

    trials: int = 5
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
    on: Literal["test", "validation"] = "test"


PRESETS = {
    "best": Preset(),
    "quick": Preset(
        trials=1,
        channels=(8, 16),
        hidden=32,
        pool=5_000,
        candidates=1_000,
        most=60,
        chains=3,
        begin=300,
        settle=50,
        updates=100,
        query_batch=64,
        batch_size=32,
        dropout_steps=200,
    ),
}


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

    def __init__(self, preset: Preset, pool: Data, seeds: list[np.random.Generator]):
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
        x, y = (
            np.stack(self.x)[np.arange(len(rows))[:, None], rows],
            np.stack(self.y)[np.arange(len(rows))[:, None], rows],
        )
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


def at_random(seed: np.random.Generator, prediction: ClassPrediction, last: np.ndarray, number: int) -> np.ndarray:
    """Any images."""
    return seed.choice(len(prediction), number, replace=False)


def by_entropy(seed: np.random.Generator, prediction: ClassPrediction, last: np.ndarray, number: int) -> np.ndarray:
    """Those of the largest entropy."""
    return np.argsort(-prediction.entropy, kind="stable")[:number]


def by_bald(seed: np.random.Generator, prediction: ClassPrediction, last: np.ndarray, number: int) -> np.ndarray:
    """Those of the largest mutual information."""
    return np.argsort(-prediction.epistemic, kind="stable")[:number]


def by_bald_batch(seed: np.random.Generator, prediction: ClassPrediction, last: np.ndarray, number: int) -> np.ndarray:
    """Those of large mutual information that differ."""
    best = by_bald(seed, prediction, last, MOST_NEAR)
    return best[choose(prediction.epistemic[best], last[best], number)]


ACQUISITIONS: dict[str, Callable[..., np.ndarray]] = {
    "random": at_random,
    "entropy": by_entropy,
    "bald": by_bald,
    "bald batch": by_bald_batch,
}


class Distilling:
    """Chains that never stop while labels are added, and their student; all seeds side by side."""

    def __init__(self, preset: Preset, pool: Data, labels: Labels, key: Key, by_draws: bool):
        self.preset, self.by_draws = preset, by_draws
        network = convolutional(preset.channels, preset.hidden, CLASSES)
        prior, rows = db.priors.ScaledGaussianPrior(preset.prior_precision), preset.most * preset.copies
        posterior = db.Posterior(network, db.outcomes.Softmax(CLASSES), prior, num_data=rows)
        head, updates = db.outcomes.SoftmaxHead(CLASSES, decompose=True), preset.updates
        rate = optax.adam(falling(preset.learning_rate, updates))
        student = db.Student(convolutional(preset.channels, preset.hidden, head.width), head, rate)
        sampler = db.samplers.sghmc(preset.step_size, preset.friction)
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
        method = SGD(
            posterior, optax.adam(falling(preset.learning_rate, preset.begin)), preset.begin, preset.batch_size
        )
        method = standing_for(method, self._examples(labels))
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

    def __init__(self, preset: Preset, key: Key):
        self.preset, self.key = preset, key
        network, rows = convolutional(preset.channels, preset.hidden, CLASSES), preset.most * preset.copies
        prior = db.priors.GaussianPrior(preset.dropout_prior)
        posterior = db.Posterior(network, db.outcomes.Softmax(CLASSES), prior, num_data=rows)
        adam = optax.adam(optax.cosine_decay_schedule(preset.learning_rate, preset.dropout_steps))
        self.method = Dropout(posterior, adam, preset.dropout_steps, preset.batch_size, rate=preset.dropout_rate)

    def learn(self, labels: Labels) -> None:
        self.key, start_key, fit_key, draw_key = jax.random.split(self.key, 4)
        data, seeds = labels.data(evenly=True), len(labels.chosen)
        starts, fits, draws = (jax.random.split(key, seeds) for key in (start_key, fit_key, draw_key))
        params = jax.vmap(lambda key: self.method.start(key, data.x[0]))(starts)
        fitted = train(standing_for(self.method, labels.number), params, data, fits)
        self.draws = passes(self.method, fitted, draws, self.preset.dropout_draws)

    def opinion(self, x: Array) -> Opinion:
        return in_pieces(Draws(self.method.posterior, self.draws), x)


def images(preset: Preset, quiet: bool) -> tuple[Data, Data]:
    """The pool, and the images to score on; pixels are scaled."""
    loaded = load("mnist", quiet=quiet)
    pool = db.data.as_data(loaded.train_x[: preset.pool] / PIXEL_SCALE, loaded.train_y[: preset.pool])
    if preset.on == "validation":
        return pool, db.data.as_data(loaded.train_x[-VALIDATION:] / PIXEL_SCALE, loaded.train_y[-VALIDATION:])
    return pool, db.data.as_data(loaded.test_x / PIXEL_SCALE, loaded.test_y)


def campaign(run: db.Run, preset: Preset, method: str, pool: Data, held_out: Data, trials: int, seed: int) -> Any:
    """The errors of one method as its labels grow, ``[seeds, rounds]``, and the numbers of labels."""
    model, _, acquisition = method.partition(" ")
    # Those of all methods begin with the same labels.
    labels = Labels(preset, pool, [np.random.default_rng([seed, trial]) for trial in range(trials)])
    key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(method.encode()))
    how = Dropping(preset, key) if model == "dropout" else Distilling(preset, pool, labels, key, model == "sgld")
    pick, y = ACQUISITIONS[acquisition], np.asarray(held_out.y)
    errors, numbers, expectations = [], [], []
    with progress_bar(method, preset.most, quiet=run.quiet, unit="labels") as show:
        while True:
            how.learn(labels)
            said = how.opinion(held_out.x)
            predictions = [said.of_seed(place)[0] for place in range(trials)]
            errors.append([db.metrics.error(prediction, y) for prediction in predictions])
            expectations.append([db.metrics.log_likelihood(prediction, y) for prediction in predictions])
            numbers.append(labels.number)
            show(labels.number, error=float(np.mean(errors[-1])))
            done = (np.min(errors, axis=0) <= 100.0 - GOAL).all()
            if done or labels.number + preset.batch > preset.most:
                break
            rows = labels.candidates()
            said, chosen = how.opinion(pool.x[rows]), []
            for place, generator in enumerate(labels.seeds):
                chosen.append(rows[place][pick(generator, *said.of_seed(place), preset.batch)])
            labels.add(chosen)
    shares = [np.bincount(np.asarray(pool.y)[rows], minlength=CLASSES) for rows in labels.chosen]
    return {
        "labels": np.asarray(numbers),
        "errors": np.asarray(errors).T,
        "log_likelihood": np.asarray(expectations).T,
        "classes": np.asarray(shares),
    }


def labels_to_goal(labels: np.ndarray, errors: np.ndarray) -> tuple[list[float], int]:
    """The labels at which each seed first reached the goal, and how many never did: those count with the most labels.

    >>> labels_to_goal(np.asarray([20, 30, 40]), np.asarray([[9.0, 5.0, 6.0], [9.0, 8.0, 7.0]]))
    ([30.0, 40.0], 1)
    """
    reached = errors <= 100.0 - GOAL
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), len(labels) - 1)
    return [float(number) for number in labels[first]], int((~reached.any(axis=1)).sum())


def reproduce(run: db.Run, preset: Preset, trials: int, seed: int) -> list[Row]:
    """Every method, all seeds side by side; each is stored once it is done."""
    pool, held_out = images(preset, run.quiet)
    rows, figure = [], {}
    for method in METHODS:
        name = method.replace(" ", "-")
        arrays = run.once(name, partial(campaign, run, preset, method, pool, held_out, trials, seed))
        values, never = labels_to_goal(arrays["labels"], arrays["errors"])
        rows.append(row(method, "labels_to_95", values) | {"never": never})
        figure |= {f"{kind}.{method}": arrays[kind] for kind in ("labels", "errors")}
    write_arrays(run.path / "figure.safetensors", figure)
    return rows


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    return RunWords(
        title="Active learning on MNIST",
        lead=f"A convolutional network begins with {config['first']} labels and gets {config['batch']} more at a time, "
        "of the images that each method chooses. How many does it need for 95 % of the test images? A seed that never "
        "gets there counts with the most labels there were.",
        summary=summary(results, names),
        trial="a run from labels and weights of its own; all methods begin with the same labels",
        quick="a smaller network, a smaller pool, and few labels",
        figure="How errors fall as labels are added",
        caption="Error on the test images, mean over the seeds, with the range between them. A line ends where all of "
        "its seeds have reached the goal.",
        alt="Error in per cent against the number of labels, a line for each method, and a dashed line at five.",
        draw=lambda: curves(folder, names),
    )


def summary(results: dict[str, Any], names: Names) -> str:
    """What the numbers say."""
    rows = rows_of(results, "labels_to_95")
    if not {"student bald", "student random"} <= rows.keys():
        return ""
    bald, random = rows["student bald"], rows["student random"]
    least = "at least " if random["never"] else ""
    if bald["never"]:
        return f"Not every seed gets to {GOAL:g} % with the labels that there were."
    return (
        f"The student needs {bald['mean']:.0f} labels that it chooses by its own doubt, where {least}"
        f"{random['mean']:.0f} at random are needed."
    )


def curves(folder: Path, names: Names) -> figures.Drawing:
    """Errors against labels."""
    arrays = figures.figure_arrays(folder)
    methods = [method for method in METHODS if f"errors.{method}" in arrays]
    dashes = ("-", "--", ":", "-.", "-", "--")
    colours = (*figures.COLOURS, "#E69F00")
    with figures.panels(size=(figures.WIDTH, 4.2)) as (figure, axes):
        ((axis,),) = axes
        for method, colour, dash in zip(methods, colours, dashes, strict=False):
            labels, errors = arrays[f"labels.{method}"], arrays[f"errors.{method}"]
            axis.plot(labels, errors.mean(axis=0), dash, color=colour, label=names.method(method))
            if len(errors) > 1:
                axis.fill_between(labels, errors.min(axis=0), errors.max(axis=0), color=colour, alpha=0.12, lw=0)
        axis.axhline(100.0 - GOAL, color="black", lw=0.8, ls=(0, (4, 4)), label=f"{GOAL:g} % right")
        axis.set_yscale("log")
        axis.set_yticks([3, 5, 10, 20, 50], labels=["3", "5", "10", "20", "50"])
        axis.minorticks_off()
        axis.set_xlabel("labels")
        axis.set_ylabel("error on the test images (%)")
        figures.legend_below(figure, axes, ncols=4)
    return figure
