"""Residual networks on images: what `cifar10` and `fashion` share.

In each trial, on the same images and network:

    sgd             one network, by momentum along a cosine, with a multiple of the prior's weight decay
    ensemble        as many of them as there are chains
    dropout mc      draws of a network that was trained with whole channels dropped
    sghmc, sgld     the average over draws of chains that begin at the ensemble's networks; `cyclical` with steps that
                    fall in cycles, `cold` at that temperature below one at which a pilot run did best on images that
                    it had not seen
    student         one network of the same size, distilled from the first of these teachers while it samples

A filter that is followed by filter response norm predicts the same at any size, so that the size of its weights has its
prior's law under the posterior, too. There chains begin: each filter of a trained network is brought to the size that
the prior gives it, far above the one that training leaves it with, and chains need not walk there for most of a run.
Their steps are in units of that size; those of all other weights, of which few move what the network says a lot, are
shorter.

They are scored on test images; on corrupted ones, as CIFAR-10-C has them (Hendrycks and Dietterich, 2019), computed
here; and by how well uncertainty tells images of other data sets from them. Every network, and every few seconds of a
teacher, is stored as soon as it is done, so that a run that is ended after any ten minutes goes on by ``--resume``.
"""

import dataclasses
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
from darkbayes.baselines import SGD, Dropout, raise_if_diverged
from darkbayes.data import augmentation, load
from darkbayes.files import write_arrays
from darkbayes.metrics import auroc, brier, ece, error, gain_kept, log_likelihood
from darkbayes.model import by_products, computed_in, layers
from darkbayes.outcomes import ClassPrediction
from darkbayes.paper.common import Row, part
from darkbayes.report import Names, RunWords, figures, number
from darkbayes.runs import row
from darkbayes.student.loop import DistillationState
from darkbayes.teacher.chain import each
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key, PyTree

CLASSES = 10
TOGETHER = 1_000  # Images that are predicted at a time.
ONLY = ("student", "dropout", "ensemble")
CORRUPTIONS: dict[str, tuple[float, float, float]] = {
    "noise": (0.04, 0.08, 0.1),
    "blur": (0.4, 0.7, 1.0),
    "contrast": (0.75, 0.4, 0.15),
    "brightness": (0.05, 0.15, 0.3),
}
"""At severities 1, 3 and 5: the standard deviation of noise, that of the smoothing in pixels, the share of the contrast
that is left, and what is added; of the range of a pixel."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PicturesPreset:
    """All the settings of an experiment on images."""

    trials: int = 1
    dataset: Literal["cifar10", "fashion-mnist"]
    away: tuple[str, ...]  # Data sets that hold none of the classes.
    pool: int = 1  # The side of the squares whose means the network sees in place of pixels.
    depth: int = 20
    width: int = 16
    center: tuple[float, ...]  # Of the pixels of each channel.
    scale: tuple[float, ...]
    compute: Literal["bfloat16", "float32"] = "float32"
    train: int = 50_000  # Images to learn from, the first of the training file.
    validation: int = 5_000  # Of these, the last, which a pilot run does not learn from.
    scored: int = 10_000  # Test images.
    shifted: int = 2_000  # Of these, the first, that are corrupted; and images of other data sets.
    augment: bool = False  # Whether batches are cropped and mirrored; a student's queries always are.
    on: Literal["test", "validation"] = "test"
    only: Literal["student", "dropout", "ensemble"] | None = None  # One kind of method, beside the plug-in network.
    batch_size: int = 128
    prior_precision: float = 5.0
    sgd_steps: int = 8_000  # Of each network of the ensemble, at which a chain begins.
    sgd_rate: float = 0.1  # Of momentum 0.9, at the scale of a mean loss.
    decay: float = 1.0  # Their weight decay, in units of the prior's: it sets how fast directions of filters turn.
    dropout_rate: float = 0.1
    dropout_draws: int = 50
    chains: int = 4
    ensemble: int = (
        4  # Of the networks that chains begin at; all of them are an ensemble of their own, if they are more.
    )
    teachers: tuple[str, ...] = ("sghmc", "sghmc cyclical", "sghmc cold", "sghmc cyclical cold", "sgld", "sgld cold")
    """Each a sampler, and how it runs; the first teaches the student."""
    step_size: float = 1e-6  # Of a filter, in units of its size squared.
    cold_step_size: float | None = None  # Below a temperature of one; None for the same.
    rest: float = 0.3  # The step size of the other weights, in units of `step_size`.
    friction: float = 0.1
    peak: float = 4.0  # The step size at the start of a cycle, in units of `step_size`.
    cycle: int = 1_000
    steps: int = 40_000  # Of the first teacher.
    other_steps: int = 8_000  # Of the others.
    burn_in: int = 4_000
    thin: int = 250
    kept: int = 20  # Draws of each chain that predict shifted images, and from which those that teach are picked.
    picks: int = 1
    temperatures: tuple[float, ...] = (0.3, 0.1, 0.03)  # Among which a pilot run chooses, if there are several.
    pilot_steps: int = 6_000
    student_decay: float = 5e-4  # The student's weight decay; it learns as the networks above do, by momentum.
    query_batch: int = 256
    teach_every: int = 1  # Steps of the first teacher before the student takes its turn,
    asked: int = 1  # batches of queries in it,
    repeats: int = 1  # and updates by each of them.
    noise: float = 16.0  # The standard deviation of the noise on a quarter of the queries, in levels of a pixel.

    def rounded(self, steps: int) -> int:
        """So many steps after burn-in, in whole cycles."""
        return self.burn_in + max((steps - self.burn_in) // self.cycle, 1) * self.cycle


def reproduce(run: db.Run, preset: PicturesPreset, trials: int, seed: int) -> list[Row]:
    """Every method in every trial, one after the other: networks of this size fill a device by themselves."""
    measured: dict[tuple[str, str, str], list[float]] = {}
    for trial in range(trials):
        key = jax.random.fold_in(jax.random.key(seed), trial)
        experiment = PicturesExperiment(run, preset, key, f"trial-{trial}/")
        predictions = experiment.predictions()
        for place, value in scores(predictions, experiment.held_out, preset).items():
            measured.setdefault(place, []).append(value)
        if trial == 0:
            probs = {f"probs.{method}": np.exp(arrays["test"]) for method, arrays in predictions.items()}
            write_arrays(run.path / "figure.safetensors", probs | {"y": np.asarray(experiment.held_out.y)})
    return [row(method, metric, values) | {"dataset": name} for (method, metric, name), values in measured.items()]


class PicturesExperiment:
    """One trial: every method on the same images, stored under `folder` as soon as it is done."""

    head = db.outcomes.SoftmaxHead(CLASSES, decompose=True)

    def __init__(self, run: db.Run, preset: PicturesPreset, key: Key, folder: str):
        self.run, self.preset, self.folder = run, preset, folder
        self.keys = dict(zip(("sgd", "dropout", "teach", "pilot"), jax.random.split(key, 4), strict=True))
        self.data, self.held_out, self.shifts = images(preset, run.quiet)
        prior = db.priors.GaussianPrior(preset.prior_precision)
        in_turn = jax.default_backend() == "cpu"  # As is quicker for products: a GPU has them all at once.
        network, likelihood = self._network(CLASSES), db.outcomes.Softmax(CLASSES)
        self.posterior = db.Posterior(network, likelihood, prior, len(self.data.x), in_turn)
        decayed = db.priors.GaussianPrior(preset.decay * preset.prior_precision)
        self.optimised = dataclasses.replace(self.posterior, prior=decayed)
        moved = augmentation.compose(augmentation.crop(4), augmentation.flip())
        self.augment = moved if preset.augment else None
        near = db.queries.augmented(moved)
        noisy = db.queries.compose(near, db.queries.jitter(preset.noise))
        mixed = db.queries.compose(near, db.queries.mixup())
        self.queries = db.queries.mix(db.queries.mix(noisy, mixed, 0.5), near, 0.5)

    def _network(self, outputs: int) -> db.Network:
        preset = self.preset
        body = db.resnet(outputs, preset.depth, preset.width).layers or ()
        pool = [layers.AvgPool2d(preset.pool)] if preset.pool > 1 else []
        network = db.sequential([layers.Standardise(preset.center, preset.scale), *pool, *body])
        return computed_in(by_products(network), preset.compute)

    def predictions(self) -> dict[str, dict[str, np.ndarray]]:
        """What each method says: log probabilities of the test images and of each shift, and expected entropies."""
        preset, only = self.preset, self.preset.only
        all_said = {"sgd": self._once("sgd", lambda: self._said_by(self.members(1)))}
        if only in (None, "ensemble"):
            for number in dict.fromkeys((min(preset.ensemble, preset.chains), preset.chains)):
                name = "ensemble" if number <= preset.ensemble else f"ensemble {number}"
                all_said[name] = self._once(name.replace(" ", "-"), partial(self._said_by, self.members(number)))
        for name in preset.teachers if only is None else preset.teachers[: only == "student"]:
            said = self._once(name.replace(" ", "-"), partial(self.taught, name))
            for method in (name, "student"):
                own = part(said, method)
                all_said |= {method: own} if own else {}
        if only in (None, "dropout"):
            all_said["dropout mc"] = self._once("dropout-mc", lambda: self._said_by(self.passes()))
        return all_said

    def _once(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, np.ndarray]:
        return self.run.once(f"{self.folder}{name}", compute)

    def _optimiser(self, steps: int) -> optax.GradientTransformation:
        rate = optax.cosine_decay_schedule(self.preset.sgd_rate, steps)
        return optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(rate, momentum=0.9))

    def members(self, number: int | None = None) -> PyTree:
        """The first networks at which chains begin, or all, along an axis; they are trained side by side."""
        preset, in_turn = self.preset, self.posterior.in_turn
        method = SGD(
            self.optimised, self._optimiser(preset.sgd_steps), preset.sgd_steps, preset.batch_size, augment=self.augment
        )
        keys = jax.vmap(partial(jax.random.fold_in, self.keys["sgd"]))(jnp.arange(preset.chains))

        def train(keys: Key, data: Data) -> PyTree:
            return each(lambda key: method.train(key, data), keys, in_turn=in_turn)

        return jax.tree.map(lambda leaf: leaf[:number], self._fitted("members", train, keys))

    def passes(self) -> PyTree:
        """Draws of dropout."""
        steps, rate = self.preset.sgd_steps, self.preset.dropout_rate
        common: Any = {"rate": rate, "augment": self.augment}
        method = Dropout(self.optimised, self._optimiser(steps), steps, self.preset.batch_size, **common)
        fit_key, draw_key = jax.random.split(self.keys["dropout"])
        fitted = self._fitted("dropout-weights", method.train, fit_key)
        return method.draws(draw_key, fitted, self.preset.dropout_draws)

    def _fitted(self, name: str, train: Callable[[Key, Data], PyTree], key: Key) -> PyTree:
        """What `train` makes of the data, once."""

        def fit() -> dict[str, Any]:
            fitted = jax.jit(train)(key, self.data)
            raise_if_diverged(fitted)
            return {f"{place:03}": leaf for place, leaf in enumerate(jax.tree.leaves(fitted))}

        stored = self._once(name, fit)
        like = jax.eval_shape(self.posterior.init, self.keys["sgd"], self.data.x)
        return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(stored[name]) for name in sorted(stored)])

    def _said_by(self, draws: PyTree) -> dict[str, np.ndarray]:
        """What draws predict together, of test images and of each shift."""
        predict = partial(db.predict_draws, self.posterior, draws)
        return {name: value for kind, x in self._asked().items() for name, value in said(kind, predict, x).items()}

    def _asked(self) -> dict[str, Array]:
        return {"test": self.held_out.x} | self.shifts

    def taught(self, name: str) -> dict[str, np.ndarray]:
        """A teacher's predictions, by their average over all draws or, of shifts, by those kept; and its student's."""
        preset, first = self.preset, name == self.preset.teachers[0]
        temperature = self.temperature() if "cold" in name else 1.0
        steps = preset.steps if first else preset.other_steps
        student, state = self.sampled(name, temperature, steps, teach=first)
        draws = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), state.reservoir.slots)  # pyright: ignore[reportOptionalMemberAccess]
        parts = self._said_by(draws)
        average = db.predict_average(state.average)
        parts |= {"test": average.log_probs, "test.expected": average.expected_entropy}
        result = {f"{name}.{kind}": value for kind, value in parts.items()}
        if first:
            predict = partial(db.predict_student, student, at(0, state.students))
            for kind, x in self._asked().items():
                result |= {f"student.{own}": value for own, value in said(kind, predict, x).items()}
        return result

    def sampled(
        self, name: str, temperature: float, steps: int, *, teach: bool
    ) -> tuple[db.Student, DistillationState]:
        """A teacher at its end, and its student, who learns next to nothing unless it is to `teach`."""
        preset, cyclical, length = self.preset, "cyclical" in name, self.preset.rounded(steps)
        thin = preset.cycle if cyclical else preset.thin
        size = preset.step_size if temperature == 1.0 else preset.cold_step_size or preset.step_size
        rate: Any = {"step_size": size, "temperature": temperature}
        if cyclical:
            rate = db.schedules.cyclical(preset.peak * size, preset.cycle, temperature=temperature)._asdict()
        friction = {} if name.startswith("sgld") else {"friction": preset.friction}
        precision = preset.prior_precision / temperature
        start = at_prior(self.members(), precision)
        sampler = getattr(db.samplers, name.split()[0])(**rate, **friction)
        sampler = in_units(sampler, units(at(0, start), precision, preset.rest))
        lengths: Any = {"batch_size": preset.batch_size, "burn_in": preset.burn_in, "thin": thin}
        chain = db.minibatch_chain(self.posterior, sampler, *self.data, **lengths, start=start, augment=self.augment)
        rounds = (length - preset.burn_in) // thin
        every, asked, repeats = (preset.teach_every, preset.asked, preset.repeats) if teach else (thin, 1, 1)
        settings = db.Settings(
            num_chains=preset.chains,
            query_batch=preset.query_batch,
            update_every=every,
            updates=asked,
            repeats=repeats,
            reservoir=min(preset.kept, rounds),
            reservoir_picks=preset.picks,
        )
        optimiser = self._optimiser(rounds * thin // every * asked * repeats)
        student = db.Student(self._network(self.head.width), self.head, optimiser, preset.student_decay)
        parts = db.distillation(chain, student, self.queries, settings, monitor=self.held_out.x)
        folder = f"{self.folder}{'student' if teach else name.replace(' ', '-') + '-chains'}"
        return student, self.run.distil(folder, parts, self.keys["teach"], length)

    def temperature(self) -> float:
        """The one below 1 at which chains that never saw the validation images predict them best."""
        preset = self.preset
        if len(preset.temperatures) == 1:
            return preset.temperatures[0]

        def chosen() -> dict[str, Any]:
            pilot = dataclasses.replace(preset, on="validation")
            short = PicturesExperiment(self.run, pilot, self.keys["pilot"], f"{self.folder}pilot/")
            likelihoods = {}
            for temperature in preset.temperatures:
                _, state = short.sampled(f"sghmc {temperature:g}", temperature, preset.pilot_steps, teach=False)
                likelihoods[f"{temperature:g}"] = log_likelihood(db.predict_average(state.average), short.held_out.y)
            return {"temperature": float(max(likelihoods, key=likelihoods.__getitem__)), "log_likelihood": likelihoods}

        return self.run.decide(f"{self.folder}temperature", chosen)["temperature"]


def sizes(draw: PyTree, size: Callable[[eqx.nn.Conv2d], Array], other: float) -> PyTree:
    """A tree like a draw, with `size` for the weights of each convolution and `other` for all the rest."""

    def spread(node: Any) -> PyTree:
        number = size(node) if isinstance(node, eqx.nn.Conv2d) else jnp.float32(other)
        return jax.tree.map(lambda leaf: number.reshape(-1, *[1] * (leaf.ndim - 1)) if number.ndim else number, node)

    return jax.tree.map(spread, draw, is_leaf=lambda node: isinstance(node, eqx.nn.Conv2d))


def units(draw: PyTree, precision: float, rest: float) -> PyTree:
    """The size that the prior gives a filter, for each of its weights; the root of `rest` for all other weights."""
    return sizes(draw, lambda conv: jnp.sqrt(jnp.float32((conv.weight[0].size + 1) / precision)), rest**0.5)


def at_prior(draws: PyTree, precision: float) -> PyTree:
    """Draws that predict the same, each filter of which has the size that the prior gives it."""

    def scaled(draw: PyTree) -> PyTree:
        def own(conv: eqx.nn.Conv2d) -> Array:
            bias: Any = conv.bias
            squares = jnp.sum(conv.weight**2, axis=(1, 2, 3)) + jnp.ravel(bias) ** 2
            return jnp.sqrt((conv.weight[0].size + 1) / precision / squares)

        return jax.tree.map(jnp.multiply, draw, sizes(draw, own, 1.0))

    return jax.vmap(scaled)(draws)


def in_units(sampler: Any, units: PyTree) -> optax.GradientTransformationExtraArgs:
    """A sampler that walks in coordinates in which each weight is divided by its unit, which changes no posterior."""
    scaled = optax.stateless(lambda updates, params: jax.tree.map(jnp.multiply, updates, units))
    return optax.chain(scaled, sampler, scaled)


def said(kind: str, predict: Callable[[Array], Any], x: Array) -> dict[str, np.ndarray]:
    """Log probabilities and expected entropies of images, which are predicted some at a time."""
    pieces = [predict(x[place : place + TOGETHER]) for place in range(0, len(x), TOGETHER)]
    log_probs, expected = ([getattr(piece, name) for piece in pieces] for name in ("log_probs", "expected_entropy"))
    return {kind: np.concatenate(log_probs), f"{kind}.expected": np.concatenate(expected)}


def images(preset: PicturesPreset, quiet: bool) -> tuple[Data, Data, dict[str, Array]]:
    """Images to learn from, those to score on, and shifts of the latter; all in bytes."""
    everything = load(preset.dataset, quiet=quiet)
    x, y = coloured(everything.train_x)[: preset.train], everything.train_y[: preset.train]
    held_out = coloured(everything.test_x)[: preset.scored], everything.test_y[: preset.scored]
    if preset.on == "validation":
        rest = len(x) - preset.validation
        held_out, (x, y) = (x[rest:], y[rest:]), (x[:rest], y[:rest])
    few = held_out[0][: preset.shifted]
    shifts = {
        f"{kind} {severity}": corrupted(few, kind, by)
        for kind, amounts in CORRUPTIONS.items()
        for severity, by in zip((1, 3, 5), amounts, strict=True)
    }
    for name in preset.away:
        away: Any = load(name, quiet=quiet)
        shifts[name] = fitting(coloured(away.test_x)[: preset.shifted], x.shape[1:])
    return db.data.as_data(x, y), db.data.as_data(*held_out), {name: jnp.asarray(one) for name, one in shifts.items()}


def coloured(x: np.ndarray) -> np.ndarray:
    """Images with an axis of channels, one where they are grey."""
    return x[:, None] if x.ndim == 3 else x


def fitting(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images of another data set in the channels and the size of this one: grey ones repeated, edges filled or cut."""
    grey = x.mean(axis=1, keepdims=True).astype(np.uint8)
    x = grey if shape[0] == 1 else np.broadcast_to(x, (len(x), shape[0], *x.shape[2:]))
    for axis, wanted in enumerate(shape[1:], start=2):
        more = wanted - x.shape[axis]
        if more > 0:
            x = np.pad(x, [(more // 2, more - more // 2) if axis == one else (0, 0) for one in range(4)])
        x = np.take(x, np.arange(wanted) + max(-more, 0) // 2, axis=axis)
    return np.ascontiguousarray(x)


def corrupted(x: np.ndarray, kind: str, by: float) -> np.ndarray:
    """Images of bytes after one of `CORRUPTIONS`."""
    from scipy.ndimage import gaussian_filter

    share = x.astype(np.float32) / 255
    if kind == "noise":
        share = share + by * np.random.default_rng(0).normal(size=x.shape)
    elif kind == "blur":
        share = gaussian_filter(share, (0, 0, by, by))
    elif kind == "contrast":
        middle = share.mean(axis=(2, 3), keepdims=True)
        share = middle + by * (share - middle)
    else:
        share = share + by
    return (255 * np.clip(share, 0, 1)).round().astype(np.uint8)


def scores(
    predictions: dict[str, dict[str, np.ndarray]], held_out: Data, preset: PicturesPreset
) -> dict[tuple[str, str, str], float]:
    """Every score by method, metric and data set."""
    y, measured = np.asarray(held_out.y), {}
    for method, arrays in predictions.items():
        whole = ClassPrediction(arrays["test"], arrays["test.expected"])
        for metric in (error, log_likelihood, brier, ece):
            measured[method, metric.__name__, preset.dataset] = metric(whole, y)
        for name in (one for one in arrays if one != "test" and not one.endswith(".expected")):
            prediction = ClassPrediction(arrays[name], arrays[f"{name}.expected"])
            if name not in preset.away:
                for metric in (error, log_likelihood):
                    measured[method, metric.__name__, name] = metric(prediction, y[: len(prediction)])
                continue
            measured[method, "auroc_total", name] = auroc(whole.entropy, prediction.entropy)
            if method != "sgd":  # One network by itself has no epistemic part.
                measured[method, "auroc_epistemic", name] = auroc(whole.epistemic, prediction.epistemic)
    if "student" in predictions:
        likelihoods = (
            measured[one, "log_likelihood", preset.dataset] for one in ("student", preset.teachers[0], "sgd")
        )
        measured["student", "gain_kept", preset.dataset] = gain_kept(*likelihoods)
    metrics = list(dict.fromkeys(metric for _, metric, _ in measured))
    return dict(sorted(measured.items(), key=lambda one: metrics.index(one[0][1])))


def words(title: str, folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    network = f"residual network of depth {config['depth']} and width {config['width']}"
    changed = "cropped and mirrored at random" if config["augment"] else "as they are"
    return RunWords(
        title=title,
        lead=f"A {network} learns {config['train']:,} images, {changed}. Chains begin at the networks of the ensemble; "
        "the student is one network of the same size, distilled from the first teacher. Errors are in per cent, log "
        "likelihoods in nats per image; severities of corruptions are those of CIFAR-10-C.",
        summary=summary(results, config),
        trial="a run from random starts of its own, on the same images",
        quick=f"the first {config['train']:,} training images only, a smaller {network} and shorter runs",
        figure="Is a method as often right as it is sure?",
        caption="How often answers are right, by the probability that the method gives them, with 95% intervals; a "
        "calibrated method's bars reach the dashed line. Below, the share of images in each bin. First trial.",
        alt="Bars of the accuracy against the confidence, and of the share of images, one panel for each method.",
        draw=lambda: reliability(folder, config, names),
        curves="the images that are scored",
    )


def summary(results: dict[str, Any], config: dict[str, Any]) -> str:
    """What the numbers say of test images."""
    means = {
        (one["method"], one["metric"]): one["mean"] for one in results["rows"] if one["dataset"] == config["dataset"]
    }
    if ("student", "error") not in means:
        return ""
    student, teacher, plugin = ("student", config["teachers"][0], "sgd")
    said = ", ".join(
        f"{name} {number(means[method, 'error'])}% and {means[method, 'log_likelihood']:.3f}"
        for name, method in (("the student", student), ("its teacher", teacher), ("one trained network", plugin))
    )
    return f"Error and log likelihood: {said}. The student keeps {means['student', 'gain_kept']:.0%} of the gain."


def reliability(folder: Path, config: dict[str, Any], names: Names) -> figures.Drawing:
    """How often the plug-in network, the teacher and the student are right where they are so sure."""
    arrays = figures.figure_arrays(folder)
    wanted = [name for name in ("sgd", config["teachers"][0], "student") if f"probs.{name}" in arrays]
    return figures.reliability({names.method(k): arrays[f"probs.{k}"] for k in wanted}, arrays["y"], 15, "images")
