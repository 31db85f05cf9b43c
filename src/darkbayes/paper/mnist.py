"""MNIST: Tables 3 and 4 of the paper, with a 784-400-400-10 network.

    darkbayes reproduce mnist --preset best       8 minutes on one H200, 5 trials side by side
    darkbayes reproduce mnist --preset literal    6 minutes on one H200, 5 trials side by side
    darkbayes reproduce mnist --preset quick      minutes on two cores: a subset, a smaller network, one trial

Test error and log likelihood. The paper: SGD 1.536 %, -0.0613; SGLD 1.271 %, -0.0419; student 1.307 %, -0.0502.
Ours: results/mnist-best.json and results/mnist-literal.json.

Pixels are divided by 126; 50,000 images to learn from, the last 10,000 of the training file to choose settings by
(``--on validation``), the 10,000 test images to report on. `literal` has the paper's settings: one chain, a constant
step of 4e-6, every 100th of a million steps kept, a student trained by SGD on slightly jittered training images. `best`
has the same posterior, but ten chains whose present draws are averaged, and a student trained by Adam on distorted and
noisy images. What the teacher predicts is averaged over all kept draws of all chains; no draw is stored.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import optax

from darkbayes import metrics
from darkbayes.baselines import SGD, BayesByBackprop, Dropout, Ensemble
from darkbayes.data import as_data, load
from darkbayes.errors import InvalidInput
from darkbayes.files import write_arrays
from darkbayes.model import GaussianPrior, Posterior, ScaleMixturePrior, mlp
from darkbayes.outcomes import ClassPrediction, Prediction
from darkbayes.outcomes.heads.classes import Softmax, SoftmaxHead
from darkbayes.paper import fitting, naming
from darkbayes.paper.costs import prediction_ms
from darkbayes.paper.fitting import fit_trials, trained
from darkbayes.predict import predict_average, predict_draws, predict_plugin, predict_student
from darkbayes.report import Names, RunWords, figures, number
from darkbayes.runs import Run, row
from darkbayes.student import DistillationState, Settings, Student, distillation, image_queries, jitter, side_by_side
from darkbayes.teacher import minibatch_chain
from darkbayes.teacher.samplers import sgld
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key, PyTree

PIXEL_SCALE = 126.0
CLASSES = 10
VALIDATION = 10_000
"""Images at the end of the training file to choose settings by."""
MC_DRAWS = 100
"""Draws from dropout and Bayes by backprop to predict with."""
ORDER = ("sgd", "sgld", "student", "dropout", "dropout mc", "bbb gaussian", "bbb mixture", "ensemble")


@dataclasses.dataclass(frozen=True)
class Comparators:
    """Settings of the methods that distillation is compared with; learning rates are per mean loss."""

    batch_size: int = 128
    learning_rate: float = 1e-3
    """Adam's, which falls to zero along a cosine."""
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
class Preset(fitting.Preset):
    """All the settings of the MNIST experiment."""

    queries: Literal["images", "jitter"]
    sgd_steps: int
    sgd_step_size: float = 5e-6
    """In the teacher's convention: half of it times the gradient at full-data scale."""
    noise: float = 0.3
    """The standard deviation of the noise on queries."""
    hidden: tuple[int, ...] = (400, 400)
    step_size: float = 4e-6
    batch_size: int = 100
    prior_precision: float = 1.0
    train: int = 50_000
    """Images to learn from, the first of the training file."""
    on: Literal["test", "validation"] = "test"
    comparators: Comparators | None = None
    only: Literal["dropout", "bbb", "ensemble"] | None = None
    """One kind of comparator to fit, and nothing else."""

    def __post_init__(self) -> None:
        if self.only is not None and self.comparators is None:
            raise InvalidInput(f"--only {self.only} does not apply to a preset without comparators: use --preset best")


BEST = Preset(
    trials=5,
    steps=400_000,
    burn_in=100_000,
    thin=200,
    settings=Settings(num_chains=10),
    optimiser="adam",
    learning_rate=1e-3,
    queries="images",
    sgd_steps=300_000,
    comparators=Comparators(),
)

PRESETS = {
    "best": BEST,
    "literal": Preset(
        trials=5,
        steps=1_000_000,
        burn_in=1_000,
        thin=100,
        settings=Settings(),
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
        settings=Settings(num_chains=4),
        sgd_steps=6_000,
        comparators=Comparators(dropout_steps=6_000, bbb_steps=6_000, ensemble_steps=2_000),
    ),
}

PAPER = {
    "error": {
        "sgd": 1.536,
        "sgld": 1.271,
        "student": 1.307,
        "dropout": 1.51,
        "bbb gaussian": 1.82,
        "bbb mixture": 1.36,
    },
    "log_likelihood": {"sgd": -0.0613, "sgld": -0.0419, "student": -0.0502},
    "ms_per_step": {"sgd": 1.3, "sgld with student": 3.2},
    "gain_kept": {"student": 0.57},
}
"""Dropout and Bayes by backprop as the paper quotes them from Blundell et al. (2015), the mixture from there."""


def reproduce(run: Run, preset: Preset, trials: int, seed: int) -> list[dict[str, Any]]:
    """Fit every method, all trials side by side; returns the rows of results."""
    data, held_out = split(preset, run.quiet)
    network = mlp(preset.hidden, CLASSES)
    posterior = Posterior(network, Softmax(CLASSES), GaussianPrior(preset.prior_precision), num_data=len(data.x))
    keys = dict(zip(("distil", "sgd", "others"), jax.random.split(jax.random.key(seed), 3), strict=True))

    student = preset.student(preset.hidden, SoftmaxHead(CLASSES))
    probs, seconds, draws = {}, {}, None
    if preset.only is None:
        distilled = run.once(
            "sgld", lambda: _distilled(run, preset, posterior, student, data, held_out, trials, keys["distil"])
        )
        probs |= {name: distilled[name] for name in ("sgld", "student")}
        seconds["sgld with student"] = float(distilled["seconds"]) / preset.steps
        draws = int(distilled["draws"])
        # The mean-loss rate of the teacher's own drift at full-data scale.
        rate = optax.sgd(preset.sgd_step_size / 2 * len(data.x))
        plug_in = SGD(posterior, rate, preset.sgd_steps, preset.batch_size)
        fitted = run.once("sgd", lambda: _fitted({"sgd": (plug_in, 0)}, data, held_out, trials, keys["sgd"]))
        probs["sgd"], seconds["sgd"] = fitted["sgd"], float(fitted["seconds"]) / preset.sgd_steps
    if preset.comparators is not None:
        for place, (name, methods) in enumerate(_comparators(preset, preset.comparators, posterior).items()):
            if preset.only is not None and not name.startswith(preset.only):
                continue
            key = jax.random.fold_in(keys["others"], place)
            arrays = run.once(name, lambda methods=methods, key=key: _fitted(methods, data, held_out, trials, key))
            probs |= {method: arrays[method] for method in methods}
    write_arrays(run.path / "figure.safetensors", {f"probs.{k}": v[0] for k, v in probs.items()} | {"y": held_out.y})
    rows = _scores(probs, held_out.y)
    rows += [
        row(name, "ms_per_step", [1e3 * s / trials], PAPER["ms_per_step"].get(name)) for name, s in seconds.items()
    ]
    return rows if draws is None else rows + _costs(run, preset, posterior, student, held_out.x, draws)


def split(preset: Preset, quiet: bool) -> tuple[Data, Data]:
    """What to learn from and what to report on, pixels scaled."""
    images = load("mnist", quiet=quiet)
    train = images.train_x / PIXEL_SCALE, images.train_y
    held_out = images.test_x / PIXEL_SCALE, images.test_y
    if preset.on == "validation":
        held_out = tuple(a[-VALIDATION:] for a in train)
    return as_data(train[0][: preset.train], train[1][: preset.train]), as_data(*held_out)


def _distilled(
    run: Run, preset: Preset, posterior: Posterior, student: Student, data: Data, held_out: Data, trials: int, key: Key
) -> dict[str, Any]:
    """The teacher's and the student's probabilities at the held-out images, ``[trials, images, classes]`` each."""
    sampler = sgld(preset.step_size)
    teacher = minibatch_chain(
        posterior, sampler, *data, batch_size=preset.batch_size, burn_in=preset.burn_in, thin=preset.thin
    )
    queries = image_queries(preset.noise) if preset.queries == "images" else jitter(preset.noise)
    parts = distillation(teacher, student, queries, preset.settings, monitor=held_out.x)
    state: DistillationState = run.distil("student", side_by_side([parts] * trials), key, preset.steps)
    weights = jax.tree.map(lambda leaf: leaf[:, 0], state.students)
    return {
        "sgld": predict_average(state.average).mean,
        "student": _each(lambda params: predict_student(student, params, held_out.x), weights, trials),
        "draws": state.average.count[0],
    }


def _each(predict: Callable[[PyTree], Any], stacked: PyTree, trials: int) -> np.ndarray:
    """The probabilities of each trial."""
    return np.stack([predict(at(trial, stacked)).probs for trial in range(trials)])


def _comparators(preset: Preset, settings: Comparators, posterior: Posterior) -> dict[str, dict[str, tuple[Any, int]]]:
    """The methods to fit, each with the number of draws to predict with, 0 for the fitted network itself."""

    def with_prior(prior: Any) -> Posterior:
        return Posterior(posterior.network, posterior.likelihood, prior, posterior.num_data)

    rates = {"rate": settings.dropout_rate, "input_rate": settings.dropout_input_rate}
    prior = GaussianPrior(settings.dropout_prior)
    dropout = trained(Dropout, with_prior(prior), settings, settings.dropout_steps, **rates)
    member = trained(SGD, posterior, settings, settings.ensemble_steps)
    gaussian, mixture = (
        trained(BayesByBackprop, with_prior(prior), settings, settings.bbb_steps, initial_std=settings.bbb_initial_std)
        for prior in (GaussianPrior(settings.bbb_gaussian_precision), ScaleMixturePrior(*settings.bbb_mixture))
    )
    return {
        "dropout": {"dropout": (dropout, 0), "dropout mc": (dropout, MC_DRAWS)},
        "bbb-gaussian": {"bbb gaussian": (gaussian, MC_DRAWS)},
        "bbb-mixture": {"bbb mixture": (mixture, MC_DRAWS)},
        "ensemble": {"ensemble": (Ensemble(member, settings.ensemble_size), 1)},
    }


def _fitted(methods: dict[str, tuple[Any, int]], data: Data, held_out: Data, trials: int, key: Key) -> dict[str, Any]:
    """The probabilities of methods that share one fit, ``[trials, images, classes]`` each."""
    method = next(iter(methods.values()))[0]
    fitted, draw_keys = fit_trials(method, key, trials, data, axis=None)

    def predict(draws: int, trial: tuple[Key, PyTree]) -> Prediction:
        if draws == 0:
            return predict_plugin(method.posterior, trial[1], held_out.x)
        return predict_draws(method.posterior, method.draws(*trial, draws), held_out.x)

    return {
        name: _each(lambda trial, draws=draws: predict(draws, trial), (draw_keys, fitted), trials)
        for name, (_, draws) in methods.items()
    }


def _scores(probs: dict[str, np.ndarray], y: Array) -> list[dict[str, Any]]:
    """Rows for every metric of every method, and the share of the Bayesian gain that the student keeps."""
    rows, scores = [], {}
    for metric in (metrics.error, metrics.log_likelihood, metrics.brier, metrics.ece):
        for method in [name for name in ORDER if name in probs]:
            values = [metric(ClassPrediction.from_probs(trial), y) for trial in probs[method]]
            rows.append(row(method, metric.__name__, values, PAPER.get(metric.__name__, {}).get(method)))
            scores[method, metric.__name__] = values
    if "sgld" not in probs:
        return rows
    kept = [
        metrics.gain_kept(*of_trial)
        for of_trial in zip(*(scores[name, "log_likelihood"] for name in ("student", "sgld", "sgd")), strict=True)
    ]
    return [*rows, row("student", "gain_kept", kept, PAPER["gain_kept"]["student"])]


def _costs(
    run: Run, preset: Preset, posterior: Posterior, student: Student, x: Array, draws: int, images: int = 1000
) -> list[dict[str, Any]]:
    """What it takes to store each method and to predict `images` images with it, measured."""
    parameters = sum(leaf.size for leaf in jax.tree.leaves(student.init(jax.random.key(0), x)))
    networks = {"student": 1, "sgld": draws, "mc": MC_DRAWS}
    if preset.comparators is not None:
        networks["ensemble"] = preset.comparators.ensemble_size
    timed = run.once("costs", lambda: prediction_ms(posterior, x[:images], networks))
    rows = []
    for name, count in networks.items():
        label = "dropout mc, bbb" if name == "mc" else name
        rows.append(row(label, "networks", [count], {"sgld": 10_000, "student": 1}.get(name)))
        if name != "mc":  # Each stores a network of its own kind, and draws the others from it.
            rows.append(row(label, "parameters", [count * parameters]))
        rows.append(row(label, "predict_ms", [float(timed[name])]))
        ratio = float(timed[name] / timed["student"])
        rows.append(row(label, "predict_ratio", [ratio], 10_000 if name == "sgld" else None))
    return rows


COSTS = {
    "networks": "networks",
    "parameters": "parameters",
    "predict_ms": "ms for 1,000 images",
    "predict_ratio": "times the student's time",
}


NAMES = Names(
    methods={
        "sgld with student": "SGLD and its student",
        "dropout": "dropout (plug-in)",
        "bbb gaussian": "Bayes by backprop, Gaussian prior",
        "bbb mixture": "Bayes by backprop, mixture prior",
        "dropout mc, bbb": "MC dropout, Bayes by backprop",
    },
    metrics=COSTS
    | {"ms_per_step": "ms per step", "gain_kept": "share kept of the teacher's gain in log likelihood over SGD"},
    tables=dict.fromkeys(COSTS, "What it takes to store and to predict")
    | {"ms_per_step": "What a step of training takes"},
)


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    network, train = "-".join(map(str, (784, *config["hidden"], CLASSES))), f"{config['train']:,}"
    return RunWords(
        title="MNIST: Tables 3 and 4 of Bayesian Dark Knowledge",
        lead=f"A {network} network learns handwritten digits from {train} images. SGLD averages the predictions of "
        "many networks drawn from the posterior; the student is one network of the same size, distilled from them. "
        "Errors are in per cent of the images, log likelihoods in nats per image.",
        summary=_summary(results),
        trial="a run from random starts of its own, on the same images",
        quick=f"the first {train} training images only, a smaller network ({network}) and shorter runs",
        figure="Is a method as often right as it is sure?",
        caption="Images are sorted into 15 bins by the probability that the method gives to its own answer. Bars show "
        "how often the answer is right, with 95% intervals; a calibrated method's bars reach the dashed line. "
        "Below, the share of images in each bin, on a logarithmic scale. First trial.",
        alt="Bars of the accuracy against the confidence, and of the share of images, one panel for each method.",
        draw=lambda: reliability(folder, names),
        curves="the images that are scored, mean over the trials",
    )


def _summary(results: dict[str, Any]) -> str:
    error, score, kept = (naming.rows_of(results, metric) for metric in ("error", "log_likelihood", "gain_kept"))
    if "student" not in error:
        return "A comparator on its own, without teacher and student."
    networks, ratio = (naming.rows_of(results, metric)["sgld"]["mean"] for metric in ("networks", "predict_ratio"))
    student, teacher = (
        f"{number(error[name]['mean'])}% of the images with a log likelihood of {number(score[name]['mean'])}"
        for name in ("student", "sgld")
    )
    text = f"The student, one network, errs on {student}; SGLD, the average of {number(networks)}, on {teacher}. "
    if score["sgld"]["mean"] > score["sgd"]["mean"]:
        text += f"The student keeps {kept['student']['mean']:.0%} of what SGLD gains in log likelihood over SGD. "
    return text + f"Predicting with the student takes 1/{number(ratio)} of the time."


def reliability(folder: Path, names: Names, bins: int = 15) -> figures.Drawing:
    """How often SGD, SGLD and the student are right where they are so sure, in the bins of the calibration error."""
    arrays = figures.figure_arrays(folder)
    others, students = figures.methods_in(arrays, "probs.", ("sgd", "sgld"))
    # A comparator that was run alone is all there is.
    methods = others + students[:1] or figures.methods_in(arrays, "probs.", ORDER)[0][:3]
    return figures.reliability(
        {names.method(name): arrays[f"probs.{name}"] for name in methods}, arrays["y"], bins, "images"
    )
