"""MNIST under shift: are methods unsure where they should be, and what is left of them where digits change?

    darkbayes reproduce shift --preset best       3 trials side by side: for a GPU
    darkbayes reproduce shift --preset quick      minutes on two cores: a subset, a smaller network, one trial

The networks are those of `reproduce mnist`, 784-400-400-10 and trained alike: SGD, Monte Carlo dropout, an ensemble of
five, SGLD by 400 draws of ten chains, and the student, whose second head has distilled the expected entropy. So many
draws because each votes for one digit next to surely: of few, none may vote for the truth. They meet

    fashion, noise      Fashion-MNIST, and pixels that are uniform noise: is the uncertainty larger than on digits?
    rotated A           the test digits, turned by 15 to 90 degrees
    fgsm S, pgd S       test digits moved by up to S of the range of a pixel to make the truth less likely: by one step
                        along the sign of the gradient, or by twenty smaller ones from a random start. The gradient is
                        that of each method's own averaged predictive: an ensemble, and draws, are attacked as a whole,
                        and so is the student. Attacks are not carried over from one method to another

AUROC: total (entropy) and epistemic uncertainty (mutual information) of digits against those of the others. One network
by itself has no epistemic part. Error, log likelihood and the area under the risk-coverage curve (the mean error over
all shares of the surest images, by total uncertainty) on digits, turned digits and attacked ones.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import darkbayes as db
from darkbayes.data import load
from darkbayes.files import write_arrays
from darkbayes.metrics import auroc, error, log_likelihood, risk_coverage
from darkbayes.outcomes import ClassPrediction
from darkbayes.paper import mnist
from darkbayes.paper.common import Draws, OneNetwork, Row, fitted_draws, named_key
from darkbayes.paper.growing import kept_draws
from darkbayes.paper.mnist import CLASSES, PIXEL_SCALE
from darkbayes.report import Names, RunWords, figures
from darkbayes.runs import row
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Key

METHODS = ("sgd", "dropout mc", "ensemble", "sgld", "student")
ONLY = ("student", "dropout", "ensemble")
AWAY = ("fashion", "noise")  # Data sets that hold no digits.
WHITE = 255 / PIXEL_SCALE  # The largest value of a pixel.
TOGETHER = 1_000  # Images that are predicted at a time.
POINTS = 100  # Of the curve of risk against coverage.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShiftPreset(mnist.MnistPreset):
    """The settings of MNIST, and how digits are shifted."""

    trials: int = 3
    angles: tuple[int, ...] = (15, 30, 45, 60, 75, 90)
    strengths: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.3)
    attacked: int = 2_000  # Test images that are attacked, the first ones.
    pgd_steps: int = 20


def _preset(base: mnist.MnistPreset, kept: int, **changes: Any) -> ShiftPreset:
    own = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    # Some draws of each chain are kept, and not used to teach.
    settings = dataclasses.replace(base.settings, reservoir=kept, reservoir_picks=0)
    return ShiftPreset(**own | {"trials": 3, "settings": settings} | changes)


PRESETS = {
    "best": _preset(mnist.PRESETS["best"], 40),
    "quick": _preset(
        mnist.PRESETS["quick"], 4, trials=1, attacked=200, angles=(30, 60, 90), strengths=(0.05, 0.1, 0.2)
    ),
}


@eqx.filter_jit
def _said(model: Any, x: Array) -> tuple[Array, Array]:
    return model(x)


def predict(model: Any, x: Array) -> ClassPrediction:
    """What a model predicts of images, some at a time."""
    pieces = [_said(model, x[place : place + TOGETHER]) for place in range(0, len(x), TOGETHER)]
    log_probs, expected = (np.concatenate([np.asarray(piece[k], np.float64) for piece in pieces]) for k in (0, 1))
    return ClassPrediction(log_probs, expected)


@eqx.filter_jit
def attack(model: Any, x: Array, y: Array, key: Key, *, reach: Array, steps: Array, size: Array, start: Array) -> Array:
    """Images moved to where a model gives the truth less probability, no pixel by more than `reach` or out of range.

    They begin up to `start` away and take `steps` steps of `size` along the sign of the gradient.
    """

    def unlikeliness(moved: Array) -> Array:
        return -jnp.sum(jnp.take_along_axis(model(moved)[0], y[:, None], axis=1))

    def inside(moved: Array) -> Array:
        return jnp.clip(jnp.clip(moved, x - reach, x + reach), 0.0, WHITE)

    def step(_: Array, moved: Array) -> Array:
        return inside(moved + size * jnp.sign(jax.grad(unlikeliness)(moved)))

    begin = inside(x + start * jax.random.uniform(key, x.shape, x.dtype, -1.0, 1.0))
    return jax.lax.fori_loop(0, steps, step, begin)


def fgsm(model: Any, x: Array, y: Array, key: Key, strength: float) -> Array:
    """One step of the whole strength, a share of the range of a pixel (Goodfellow, Shlens and Szegedy, 2015)."""
    reach = jnp.float32(strength * WHITE)
    return attack(model, x, y, key, reach=reach, steps=jnp.int32(1), size=reach, start=jnp.float32(0.0))


def pgd(model: Any, x: Array, y: Array, key: Key, strength: float, steps: int) -> Array:
    """Many steps from a random start (Madry et al., 2018)."""
    reach = jnp.float32(strength * WHITE)
    return attack(model, x, y, key, reach=reach, steps=jnp.int32(steps), size=2.5 * reach / steps, start=reach)


def rotated(x: np.ndarray, angle: float) -> Array:
    """Images turned by an angle in degrees, black where there was nothing."""
    from scipy.ndimage import rotate

    return jnp.asarray(rotate(np.asarray(x), angle, axes=(2, 1), reshape=False, order=1), jnp.float32)


class ShiftExperiment(mnist.MnistExperiment):
    """Every method on digits and on what is put in their place."""

    head = db.outcomes.SoftmaxHead(CLASSES, decompose=True)
    preset: ShiftPreset

    def __init__(self, run: db.Run, preset: ShiftPreset, trials: int, seed: int):
        super().__init__(run, preset, trials)
        self.seed = seed

    def fixed(self) -> dict[str, Array]:
        """What all methods look at: what holds no digits, and turned digits."""
        x = np.asarray(self.held_out.x)
        fashion = load("fashion-mnist", quiet=self.run.quiet).test_x[: len(x)] / PIXEL_SCALE
        noise = np.random.default_rng(0).uniform(0.0, WHITE, x.shape)
        away = {"fashion": jnp.asarray(fashion, jnp.float32), "noise": jnp.asarray(noise, jnp.float32)}
        return away | {f"rotated {angle}": rotated(x, angle) for angle in self.preset.angles}

    def models(self, method: str, key: Key) -> list[Any]:
        """A method's models of all trials."""
        if method in ("sgld", "student"):
            state, weights = self.distil(key)
            if method == "student":
                return [OneNetwork(self.student, at(trial, weights)) for trial in range(self.trials)]
            posterior, draws = self.posterior, kept_draws(state)
        else:
            fitting, number = self.known_comparators().get(method) or (self.plug_in(), 1)
            posterior = fitting.posterior
            draws = fitted_draws(fitting, key, self.trials, self.data, None, number)
        return [Draws(posterior, at(trial, draws)) for trial in range(self.trials)]

    def measured(self, method: str, key: Key, fixed: dict[str, Array]) -> dict[str, Any]:
        """Every score of a method, ``[trials]`` by data set and metric; and what is drawn of the first trial."""
        model_key, attack_key = jax.random.split(key)
        # Teacher and student are those of one distillation.
        models = self.models(method, jax.random.key(self.seed) if method in ("sgld", "student") else model_key)
        scores: dict[str, list[float]] = {}
        drawn: dict[str, Any] = {}
        for trial, model in enumerate(models):
            digits = predict(model, self.held_out.x)
            for name, x in fixed.items():
                if name in AWAY:
                    away = predict(model, x)
                    scores.setdefault(f"{name}.auroc_total", []).append(auroc(digits.entropy, away.entropy))
                    if not _single(model):
                        doubt = auroc(digits.epistemic, away.epistemic)
                        scores.setdefault(f"{name}.auroc_epistemic", []).append(doubt)
                    if trial == 0:
                        drawn |= mixed_risks(name, digits, away, np.asarray(self.held_out.y))
            shifted = {"mnist": digits} | {name: predict(model, x) for name, x in fixed.items() if name not in AWAY}
            few = self.preset.attacked
            x, y = self.held_out.x[:few], self.held_out.y[:few]
            for place, strength in enumerate(self.preset.strengths):
                key = jax.random.fold_in(attack_key, place + len(self.preset.strengths) * trial)
                shifted[f"fgsm {strength:g}"] = predict(model, fgsm(model, x, y, key, strength))
                steps = self.preset.pgd_steps
                shifted[f"pgd {strength:g}"] = predict(model, pgd(model, x, y, key, strength, steps))
            for name, prediction in shifted.items():
                for metric, value in shift_scores(prediction, np.asarray(self.held_out.y)).items():
                    scores.setdefault(f"{name}.{metric}", []).append(value)
        return {name: np.asarray(values) for name, values in scores.items()} | drawn


def _single(model: Any) -> bool:
    """Whether a model is one network that knows of no others."""
    return isinstance(model, Draws) and len(jax.tree.leaves(model.draws)[0]) == 1


def shift_scores(prediction: ClassPrediction, y: np.ndarray) -> dict[str, float]:
    """Error and area under the risk-coverage curve in per cent, and log likelihood; of the first labels."""
    truth = y[: len(prediction)]
    risks = risk_coverage(prediction.entropy, 100.0 * ~prediction.right(truth))
    return {
        "error": error(prediction, truth),
        "log_likelihood": log_likelihood(prediction, truth),
        "aurc": float(risks.mean()),
    }


def mixed_risks(name: str, digits: ClassPrediction, away: ClassPrediction, y: np.ndarray) -> dict[str, np.ndarray]:
    """Risk against coverage where half of the images hold no digit, so that any answer to them is wrong."""
    wrong = np.concatenate([~digits.right(y), np.ones(len(away), bool)])
    risks = risk_coverage(np.concatenate([digits.entropy, away.entropy]), 100.0 * wrong)
    places = np.linspace(0, len(risks) - 1, POINTS).round().astype(int)
    return {f"risk.{name}": risks[places], f"coverage.{name}": 100.0 * (places + 1) / len(risks)}


def reproduce(run: db.Run, preset: ShiftPreset, trials: int, seed: int) -> list[Row]:
    """Fit every method, shift the digits, and score; each method is stored once it is done."""
    experiment = ShiftExperiment(run, preset, trials, seed)
    fixed, rows, figure = experiment.fixed(), [], {}
    for method in METHODS:
        if not (preset.only is None or method.startswith(preset.only) or (preset.only, method) == ("student", "sgld")):
            continue
        key = named_key(jax.random.key(seed), method)
        arrays = run.once(method.replace(" ", "-"), partial(experiment.measured, method, key, fixed))
        for name, values in arrays.items():
            dataset, _, metric = name.rpartition(".")
            if name.startswith(("risk.", "coverage.")):
                figure[f"{name}.{method}"] = values
            else:
                rows.append(row(method, metric, list(values)) | {"dataset": dataset})
    write_arrays(run.path / "figure.safetensors", figure)
    metrics = ("auroc_total", "auroc_epistemic", "error", "log_likelihood", "aurc")
    return sorted(rows, key=lambda one: metrics.index(one["metric"]))


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    network = "-".join(map(str, (784, *config["hidden"], CLASSES)))
    return RunWords(
        title="MNIST under shift",
        lead=f"A {network} network learns digits by each method, and then meets clothes, noise, turned digits, and "
        "digits that were changed to mislead it by the gradient of its own averaged predictive. Strengths of attacks "
        "are shares of the range of a pixel.",
        summary=summary(results, names),
        trial="a run from random starts of its own, on the same images",
        quick=f"the first {config['train']:,} training images only, a smaller network ({network}) and fewer shifts",
        figure="What is left under shift",
        caption="(a, b) Digits turned by an angle. (c, d) Digits attacked by projected gradients of each method's own "
        "predictive, of growing strength. (e, f) Digits mixed with as many images that hold none: the share of wrong "
        "answers among the images that a method is surest of; first trial.",
        alt="Six panels with a line for each method: error and log likelihood against the angle and against the "
        "strength of an attack, and risk against coverage.",
        draw=lambda: lines(folder, results, names),
        curves="the images that are scored, mean over the trials",
    )


def summary(results: dict[str, Any], names: Names) -> str:
    """What the numbers say of clothes."""
    areas = {
        one["method"]: one["mean"]
        for one in results["rows"]
        if (one["metric"], one["dataset"]) == ("auroc_total", "fashion")
    }
    if not {"student", "sgld"} <= areas.keys():
        return ""
    shown = ", ".join(f"{names.method(name)} {area:.3f}" for name, area in areas.items() if name != "student")
    return f"By its total uncertainty the student tells clothes from digits with AUROC {areas['student']:.3f}; {shown}."


_LOOKS = zip((*figures.COLOURS[1:], figures.BLUE), ("--", ":", "-.", "--", "-"), "sv^Do", strict=True)
STYLES: dict[str, tuple[str, str, str]] = dict(zip(METHODS, _LOOKS, strict=True))


def lines(folder: Path, results: dict[str, Any], names: Names) -> figures.Drawing:
    """Error and log likelihood by angle and strength, and risk against coverage."""
    arrays = figures.figure_arrays(folder)
    means = {(one["dataset"], one["metric"], one["method"]): one["mean"] for one in results["rows"]}
    panels = [("rotated", "error"), ("rotated", "log_likelihood"), ("pgd", "error"), ("pgd", "log_likelihood")]
    titles = [*["turned digits"] * 2, *["attacked (PGD)"] * 2, "digits and clothes", "digits and noise"]
    labels = {"error": "error (%)", "log_likelihood": "log likelihood (nats)"}
    with figures.panels(3, 2, size=(figures.WIDTH, 8.4)) as (figure, axes):
        figures.lettered(axes, titles)
        for axis, (kind, metric) in zip(axes.flat, panels, strict=False):
            datasets = {one.partition(" ")[2]: one for one, _, _ in means if one.startswith(f"{kind} ")}
            places = sorted({"0": "mnist"} | datasets, key=float)
            for method in (name for name in METHODS if ("mnist", metric, name) in means):
                colour, dash, marker = STYLES[method]
                values = [means[(({"0": "mnist"} | datasets)[place], metric, method)] for place in places]
                how: Any = {"color": colour, "marker": marker, "ms": 4, "label": names.method(method)}
                axis.plot([float(place) for place in places], values, dash, **how)
            axis.set_xlabel("angle (degrees)" if kind == "rotated" else "strength (share of a pixel's range)")
            axis.set_ylabel(labels[metric])
        for axis, away in zip(axes[-1], AWAY, strict=True):
            for method in (name for name in METHODS if f"risk.{away}.{name}" in arrays):
                colour, dash, _ = STYLES[method]
                risk, coverage = (arrays[f"{part}.{away}.{method}"] for part in ("risk", "coverage"))
                axis.plot(coverage, risk, dash, color=colour)
            axis.set_xlabel("images answered, the surest first (%)")
            axis.set_ylabel("wrong answers (%)")
        figures.legend_below(figure, axes)
    return figure
