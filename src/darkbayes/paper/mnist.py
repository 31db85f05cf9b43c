"""MNIST: Tables 3 and 4 of the paper, with a 784-400-400-10 network.

    darkbayes reproduce mnist --preset best       8 minutes on one H200, 5 trials side by side; literal: 6 minutes
    darkbayes reproduce mnist --preset quick      minutes on two cores: a subset, a smaller network, one trial

Test error and log likelihood. The paper: SGD 1.536 %, -0.0613; SGLD 1.271 %, -0.0419; student 1.307 %, -0.0502.

Pixels are divided by 126; the last 10,000 images of the training file are there to choose settings by (``--on
validation``). `literal` has the paper's settings: one chain, a student trained by SGD on slightly jittered images.
`best` has the same posterior, but ten chains whose present draws are averaged, and a student trained by Adam on
distorted and noisy images. What the teacher predicts is averaged over all kept draws; no draw is stored.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

import darkbayes as db
from darkbayes.baselines import SGD, BayesByBackprop, Dropout, Ensemble
from darkbayes.data import load
from darkbayes.files import write_arrays
from darkbayes.paper import common
from darkbayes.paper.common import Row, fit_trials, rows_of, trained
from darkbayes.report import Names, RunWords, figures, number
from darkbayes.runs import row
from darkbayes.student.loop import DistillationState
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key, PyTree

PIXEL_SCALE = 126.0
CLASSES = 10
VALIDATION = 10_000  # Images at the end of the training file to choose settings by.
MC_DRAWS = 100  # Draws from dropout and Bayes by backprop to predict with.
TIMED_IMAGES, TIMED_NETWORKS = 1000, 10
"""Images that are predicted when costs are measured, and the networks that take turns; more would cost the same."""
ONLY = ("dropout", "bbb", "ensemble")
ORDER = ("sgd", "sgld", "student", "dropout", "dropout mc", "bbb gaussian", "bbb mixture", "ensemble")


@dataclasses.dataclass(frozen=True)
class MnistComparators:
    """Settings of the methods that distillation is compared with; learning rates are per mean loss."""

    batch_size: int = 128
    learning_rate: float = 1e-3  # Adam's, which falls to zero along a cosine.
    dropout_steps: int = 150_000
    dropout_rate: float = 0.5
    dropout_input_rate: float = 0.2
    dropout_prior: float = 1.0
    bbb_steps: int = 30_000
    bbb_initial_std: float = 0.02
    bbb_gaussian_precision: float = 1.0
    bbb_mixture: tuple[float, float, float] = (0.5, 1.0, 0.0025)
    """The weight of the wide part of the scale mixture, and the standard deviations of both parts."""
    ensemble_size: int = 5
    ensemble_steps: int = 40_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class MnistPreset(common.Preset):
    """All the settings of the MNIST experiment."""

    queries: Literal["images", "jitter"] = "images"
    sgd_steps: int
    sgd_step_size: float = 5e-6  # In the teacher's convention: half of it times the gradient at full-data scale.
    noise: float = 0.3  # The standard deviation of the noise on queries.
    hidden: tuple[int, ...] = (400, 400)
    step_size: float = 4e-6
    batch_size: int = 100
    prior_precision: float = 1.0
    train: int = 50_000  # Images to learn from, the first of the training file.
    on: Literal["test", "validation"] = "test"
    comparators: MnistComparators | None = None
    only: Literal["dropout", "bbb", "ensemble"] | None = None  # One kind of comparator to fit, and nothing else.

    def __post_init__(self) -> None:
        if self.only is not None and self.comparators is None:
            without = "a preset without comparators"
            raise db.InvalidInput(f"--only {self.only} does not apply to {without}: use --preset best")


BEST = MnistPreset(
    steps=400_000,
    burn_in=100_000,
    thin=200,
    settings=db.Settings(num_chains=10),
    learning_rate=1e-3,
    sgd_steps=300_000,
    comparators=MnistComparators(),
)
PRESETS = {
    "best": BEST,
    "literal": MnistPreset(
        steps=1_000_000,
        burn_in=1_000,
        settings=db.Settings(),
        optimiser="sgd",
        learning_rate=0.005,
        queries="jitter",
        noise=0.001,
        student_prior=0.001,
        sgd_steps=1_000_000,
    ),
    "quick": dataclasses.replace(
        BEST,
        trials=1,
        train=5_000,
        hidden=(100, 100),
        step_size=4e-5,
        sgd_step_size=5e-5,
        steps=12_000,
        burn_in=4_000,
        thin=100,
        settings=db.Settings(num_chains=4),
        sgd_steps=6_000,
        comparators=MnistComparators(dropout_steps=6_000, bbb_steps=6_000, ensemble_steps=2_000),
    ),
}
BLUNDELL = {"dropout": 1.51, "bbb gaussian": 1.82, "bbb mixture": 1.36}
"""Of Blundell et al. (2015), as the paper quotes them; the mixture from there."""
PAPER = {
    "error": {"sgd": 1.536, "sgld": 1.271, "student": 1.307} | BLUNDELL,
    "log_likelihood": {"sgd": -0.0613, "sgld": -0.0419, "student": -0.0502},
    "ms_per_step": {"sgd": 1.3, "sgld with student": 3.2},
    "gain_kept": {"student": 0.57},
    "networks": {"sgld": 10_000, "student": 1},
    "predict_ratio": {"sgld": 10_000},
}


def reproduce(run: db.Run, preset: MnistPreset, trials: int, seed: int) -> list[Row]:
    """Fit every method, all trials side by side."""
    experiment = MnistExperiment(run, preset, trials)
    keys = dict(zip(("distil", "sgd", "others"), jax.random.split(jax.random.key(seed), 3), strict=True))
    probs, seconds, costs = {}, {}, []
    if preset.only is None:
        distilled = run.once("sgld", partial(experiment.distilled, keys["distil"]))
        probs |= {name: distilled[name] for name in ("sgld", "student")}
        fitted = run.once("sgd", partial(experiment.fitted, {"sgd": (experiment.plug_in(), 0)}, keys["sgd"]))
        probs["sgd"] = fitted["sgd"]
        seconds["sgld with student"] = run.seconds["sgld"] / preset.steps
        seconds["sgd"] = run.seconds["sgd"] / preset.sgd_steps
        costs = experiment.costs(int(distilled["draws"]))
    for place, (name, methods) in enumerate(experiment.comparators().items()):
        if preset.only is None or name.startswith(preset.only):
            key = jax.random.fold_in(keys["others"], place)
            arrays = run.once(name, partial(experiment.fitted, methods, key))
            probs |= {method: arrays[method] for method in methods}
    y = experiment.held_out.y
    write_arrays(run.path / "figure.safetensors", {f"probs.{k}": v[0] for k, v in probs.items()} | {"y": y})
    speeds = [scored(name, "ms_per_step", [1e3 * s / trials]) for name, s in seconds.items()]
    return scores(probs, y) + speeds + costs


def scored(method: str, metric: str, values: list[float]) -> Row:
    """A row with the paper's number, if it has one."""
    return row(method, metric, values, PAPER.get(metric, {}).get(method))


def split(preset: MnistPreset, quiet: bool) -> tuple[Data, Data]:
    """What to learn from and what to report on, pixels scaled."""
    images = load("mnist", quiet=quiet)
    train = images.train_x / PIXEL_SCALE, images.train_y
    held_out = images.test_x / PIXEL_SCALE, images.test_y
    if preset.on == "validation":
        held_out = tuple(a[-VALIDATION:] for a in train)
    return db.data.as_data(train[0][: preset.train], train[1][: preset.train]), db.data.as_data(*held_out)


class MnistExperiment:
    """Every method on the same images; what they predict are probabilities ``[trials, images, classes]``."""

    head = db.outcomes.SoftmaxHead(CLASSES)

    def __init__(self, run: db.Run, preset: MnistPreset, trials: int):
        self.run, self.preset, self.trials = run, preset, trials
        self.data, self.held_out = split(preset, run.quiet)
        network, prior = db.mlp(preset.hidden, CLASSES), db.priors.GaussianPrior(preset.prior_precision)
        self.posterior = db.Posterior(network, db.outcomes.Softmax(CLASSES), prior, num_data=len(self.data.x))
        self.student = preset.student(preset.hidden, self.head)
        self.queries = (db.queries.image_queries if preset.queries == "images" else db.queries.jitter)(preset.noise)

    def distil(self, key: Key) -> tuple[DistillationState, PyTree]:
        """Teachers and students at their end, and the students' weights, ``[trials, ...]``."""
        preset = self.preset
        teacher = preset.teacher(self.posterior, db.sgld(preset.step_size), self.data, preset.batch_size)
        monitor: Any = {"monitor": self.held_out.x}
        parts = db.distillation(teacher, self.student, self.queries, preset.settings, **monitor)
        state = self.run.distil("student", db.student.side_by_side([parts] * self.trials), key, preset.steps)
        return state, jax.tree.map(lambda leaf: leaf[:, 0], state.students)

    def plug_in(self) -> SGD:
        """The network that one optimiser finds, at the mean-loss rate of the teacher's own drift at full-data scale."""
        rate = optax.sgd(self.preset.sgd_step_size / 2 * len(self.data.x))
        return SGD(self.posterior, rate, self.preset.sgd_steps, self.preset.batch_size)

    def distilled(self, key: Key) -> dict[str, Any]:
        x, (state, weights) = self.held_out.x, self.distil(key)
        return {
            "sgld": db.predict_average(state.average).mean,
            "student": self._each(lambda trial: db.predict_student(self.student, at(trial, weights), x)),
            "draws": state.average.count[0],
        }

    def _each(self, predict: Callable[[int], Any]) -> np.ndarray:
        return np.stack([predict(trial).probs for trial in range(self.trials)])

    def comparators(self) -> dict[str, dict[str, tuple[Any, int]]]:
        """The methods to fit, each with the number of draws to predict with, 0 for the fitted network itself."""
        settings, posterior = self.preset.comparators, self.posterior
        if settings is None:
            return {}

        def method(kind: Any, prior: Any, steps: int, **own: Any) -> Any:
            return trained(kind, dataclasses.replace(posterior, prior=prior), settings, steps, **own)

        rates = {"rate": settings.dropout_rate, "input_rate": settings.dropout_input_rate}
        dropout = method(Dropout, db.priors.GaussianPrior(settings.dropout_prior), settings.dropout_steps, **rates)
        normal = db.priors.GaussianPrior(settings.bbb_gaussian_precision)
        priors = normal, db.priors.ScaleMixturePrior(*settings.bbb_mixture)
        steps, deviation = settings.bbb_steps, settings.bbb_initial_std
        gaussian, mixture = (method(BayesByBackprop, prior, steps, initial_std=deviation) for prior in priors)
        member = trained(SGD, posterior, settings, settings.ensemble_steps)
        return {
            "dropout": {"dropout": (dropout, 0), "dropout mc": (dropout, MC_DRAWS)},
            "bbb-gaussian": {"bbb gaussian": (gaussian, MC_DRAWS)},
            "bbb-mixture": {"bbb mixture": (mixture, MC_DRAWS)},
            "ensemble": {"ensemble": (Ensemble(member, settings.ensemble_size), 1)},
        }

    def known_comparators(self) -> dict[str, tuple[Any, int]]:
        """The same by method, whichever of them are fitted together."""
        return {name: part for parts in self.comparators().values() for name, part in parts.items()}

    def fitted(self, methods: dict[str, tuple[Any, int]], key: Key) -> dict[str, Any]:
        method, x = next(iter(methods.values()))[0], self.held_out.x
        predict = fit_trials(method, key, self.trials, self.data, axis=None)
        return {name: self._each(lambda trial, n=n: predict(trial, n, x)) for name, (_, n) in methods.items()}

    def costs(self, draws: int) -> list[Row]:
        """What it takes to store each method and to predict with it, measured."""
        x = self.held_out.x
        parameters = sum(leaf.size for leaf in jax.tree.leaves(self.student.init(jax.random.key(0), x)))
        networks = {"student": 1, "sgld": draws, "mc": MC_DRAWS}
        if self.preset.comparators is not None:
            networks["ensemble"] = self.preset.comparators.ensemble_size
        timed = self.run.once("costs", lambda: prediction_ms(self.posterior, x[:TIMED_IMAGES], networks))
        rows = []
        for name, count in networks.items():
            costs = {"networks": count, "parameters": count * parameters, "predict_ms": timed[name]}
            costs["predict_ratio"] = timed[name] / timed["student"]
            if name == "mc":  # Each stores a network of its own kind, and draws the others from it.
                del costs["parameters"]
            label = "dropout mc, bbb" if name == "mc" else name
            rows += [scored(label, metric, [float(value)]) for metric, value in costs.items()]
        return rows


def prediction_ms(posterior: db.Posterior, x: Array, networks: dict[str, int]) -> dict[str, Any]:
    """The median milliseconds that averages over so many networks take."""
    keys = jax.random.split(jax.random.key(1), TIMED_NETWORKS)
    members = jax.vmap(lambda key: posterior.init(key, x))(keys)

    @jax.jit
    def average(number: Array, members: PyTree, x: Array) -> Array:
        def add(step: Any, total: Array) -> Array:
            return total + posterior.distribution(at(step % TIMED_NETWORKS, members), x).probs

        return jax.lax.fori_loop(0, number, add, jnp.zeros((len(x), CLASSES))) / number

    def seconds(number: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(average(number, members, x))
        return time.perf_counter() - began

    # The first of each fills caches.
    return {name: 1e3 * float(np.median([seconds(count) for _ in range(6)][1:])) for name, count in networks.items()}


def scores(probs: dict[str, np.ndarray], y: Array) -> list[Row]:
    """Rows for every metric of every method, and the share of the Bayesian gain that the student keeps."""
    rows = []
    for metric in (db.metrics.error, db.metrics.log_likelihood, db.metrics.brier, db.metrics.ece):
        for method in [name for name in ORDER if name in probs]:
            values = [metric(db.outcomes.ClassPrediction.from_probs(trial), y) for trial in probs[method]]
            rows.append(scored(method, metric.__name__, values))
    if "sgld" in probs:
        likelihoods = rows_of({"rows": rows}, "log_likelihood")
        trials = zip(*(likelihoods[name]["values"] for name in ("student", "sgld", "sgd")), strict=True)
        rows.append(scored("student", "gain_kept", [db.metrics.gain_kept(*trial) for trial in trials]))
    return rows


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    network, train = "-".join(map(str, (784, *config["hidden"], CLASSES))), f"{config['train']:,}"
    return RunWords(
        title="MNIST: Tables 3 and 4 of Bayesian Dark Knowledge",
        lead=f"A {network} network learns handwritten digits from {train} images. SGLD averages many networks drawn "
        "from the posterior; the student is one network of the same size, distilled from them. Errors are in per cent, "
        "log likelihoods in nats per image.",
        summary=summary(results),
        trial="a run from random starts of its own, on the same images",
        quick=f"the first {train} training images only, a smaller network ({network}) and shorter runs",
        figure="Is a method as often right as it is sure?",
        caption="How often answers are right, by the probability that the method gives them, with 95% intervals; a "
        "calibrated method's bars reach the dashed line. Below, the share of images in each bin. First trial.",
        alt="Bars of the accuracy against the confidence, and of the share of images, one panel for each method.",
        draw=lambda: reliability(folder, names),
        curves="the images that are scored, mean over the trials",
    )


def summary(results: dict[str, Any]) -> str:
    """What the numbers say."""
    if "student" not in rows_of(results, "error"):
        return "A comparator on its own, without teacher and student."

    def mean(metric: str, method: str) -> float:
        return rows_of(results, metric)[method]["mean"]

    student, teacher = (number(mean("error", name)) for name in ("student", "sgld"))
    average = f"SGLD, the average of {number(mean('networks', 'sgld'))}"
    text = f"The student, one network, errs on {student}% of the images; {average}, on {teacher}%. "
    if mean("log_likelihood", "sgld") > mean("log_likelihood", "sgd"):
        text += f"The student keeps {mean('gain_kept', 'student'):.0%} of what SGLD gains in log likelihood over SGD. "
    return text + f"Predicting with the student takes 1/{number(mean('predict_ratio', 'sgld'))} of the time."


def reliability(folder: Path, names: Names) -> figures.Drawing:
    """How often SGD, SGLD and the student are right where they are so sure, in the bins of the calibration error."""
    arrays = figures.figure_arrays(folder)
    others, students = figures.methods_in(arrays, "probs.", ("sgd", "sgld"))
    # A comparator that was run alone is all there is.
    methods = others + students[:1] or figures.methods_in(arrays, "probs.", ORDER)[0][:3]
    return figures.reliability({names.method(k): arrays[f"probs.{k}"] for k in methods}, arrays["y"], 15, "images")
