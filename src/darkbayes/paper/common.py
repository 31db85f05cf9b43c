"""What all experiments share: settings, how teachers are tuned and comparators fitted, and what pages are made of."""

import dataclasses
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import darkbayes as db
from darkbayes.baselines import PBP, raise_if_diverged
from darkbayes.files import read_json, write_json
from darkbayes.fit import Fitted
from darkbayes.metrics import log_likelihood, rmse
from darkbayes.outcomes.heads.base import Head
from darkbayes.report import figures
from darkbayes.teacher.chain import MinibatchChain
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key, PyTree

Row = dict[str, Any]
TUNED = "fisher_sgld with momentum"
"""The default sampler, which tunes itself."""
TEACHERS = ("sgld", "fisher_sgld", TUNED, "mclmc")
"""What teachers are called in results, by what ran."""


def falling_adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate falls to zero along a cosine over `steps` steps."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """The settings that every experiment has."""

    trials: int = 5
    step_size: float | Literal["auto"]
    """``"auto"`` for the default sampler, which finds it, and with it `steps`, `burn_in` and `thin`."""
    steps: int
    burn_in: int
    thin: int = 100
    settings: db.Settings
    optimiser: Literal["adam", "sgd", "stepped"] = "adam"
    """The student's. Adam's learning rate falls to zero along a cosine; that of SGD is what `sgd_rate` says."""
    learning_rate: float
    student_prior: float = 0.0

    def student(self, hidden: tuple[int, ...], head: Head) -> db.Student:
        updates = (self.steps - self.burn_in) // self.settings.update_every * self.settings.updates
        updates *= self.settings.repeats
        adam = self.optimiser == "adam"
        optimiser = falling_adam(self.learning_rate, updates) if adam else optax.sgd(self.sgd_rate(updates))
        return db.Student(db.mlp(hidden, head.width), head, optimiser, self.student_prior)

    def sgd_rate(self, updates: int) -> float | optax.Schedule:
        return self.learning_rate

    def teacher(self, posterior: db.Posterior, sampler: Any, data: Data, batch_size: int | None) -> MinibatchChain:
        lengths: Any = {"burn_in": self.burn_in, "thin": self.thin}
        return db.minibatch_chain(posterior, sampler, *data, batch_size=batch_size, **lengths)


class Draws(eqx.Module):
    """The average of what networks predict."""

    posterior: db.Posterior
    draws: PyTree

    def __call__(self, x: Array) -> tuple[Array, Array]:
        """Log probabilities and the expected entropy of each image."""
        said = jax.vmap(lambda draw: self.posterior.distribution(draw, x))(self.draws)
        together = jax.nn.logsumexp(said.log_probs, axis=0) - jnp.log(len(said.log_probs))
        return together, jnp.mean(said.entropy, axis=0)


class OneNetwork(eqx.Module):
    """What a student predicts, in one forward pass."""

    student: db.Student
    weights: PyTree

    def __call__(self, x: Array) -> tuple[Array, Array]:
        """Log probabilities and the expected entropy of each image."""
        predicted = self.student.predict(self.weights, x)
        assert predicted.aleatoric is not None
        return predicted.distribution.log_probs, predicted.aleatoric


def teacher_of(fitted: Fitted) -> str:
    """Which of `TEACHERS` a fit had: chains on all rows, or on minibatches with the step size that they found."""
    return TUNED if "step_size" in fitted.choices else "mclmc"


def scored(prediction: Any, y: Any, scale: float = 1.0) -> dict[str, float]:
    """Scores of a target that was divided by `scale`, in its own unit."""
    y = np.asarray(y)
    return {"log_likelihood": log_likelihood(prediction, y) - float(np.log(scale)), "rmse": scale * rmse(prediction, y)}


def trained(kind: Callable[..., Any], posterior: db.Posterior, settings: Any, steps: int, **extra: Any) -> Any:
    """A comparator that is trained by Adam, with the batches and the learning rate of all comparators."""
    return kind(posterior, falling_adam(settings.learning_rate, steps), steps, settings.batch_size, **extra)


def named_key(key: Key, name: str) -> Key:
    """A key for each name, whichever others there are."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def recorded(run: db.Run, name: str, compute: Callable[[], dict[str, Any]], wanted: bool) -> dict[str, Any]:
    """The scores in the file `name`.json, computed where they are `wanted` and not there yet; none where there is none.

    So a folder may be filled piece by piece.
    """
    path = run.path / f"{name}.json"
    if wanted and not path.exists():
        began = time.time()
        scores = compute()
        run.took(name, time.time() - began)
        write_json(path, {"scores": scores})
    return read_json(path)["scores"] if path.exists() else {}


def fitted_trials(method: Any, key: Key, trials: int, data: Data, axis: int | None) -> tuple[PyTree, Key]:
    """A comparator fitted in all trials at once, whose data lie along `axis`, and a key for the draws of each."""
    fit_key, draw_key = jax.random.split(key)
    stacked = jax.jit(jax.vmap(method.fit, in_axes=(0, axis)))(jax.random.split(fit_key, trials), data)
    raise_if_diverged(stacked)
    return stacked, jax.random.split(draw_key, trials)


def fitted_draws(method: Any, key: Key, trials: int, data: Data, axis: int | None, number: int) -> PyTree:
    """Draws of a comparator that is fitted in all trials at once, ``[trials, draws, ...]``."""
    fitted, keys = fitted_trials(method, key, trials, data, axis)
    return jax.vmap(lambda key, one: method.draws(key, one, number))(keys, fitted)


def fit_trials(method: Any, key: Key, trials: int, data: Data, axis: int | None) -> Callable[[int, int, Array], Any]:
    """What a comparator predicts in a trial with so many draws, 0 for what was fitted itself, of inputs."""
    stacked, keys = fitted_trials(method, key, trials, data, axis)

    def predict(trial: int, draws: int, x: Array) -> Any:
        fitted = at(trial, stacked)
        if draws:
            return db.predict_draws(method.posterior, method.draws(keys[trial], fitted, draws), x)
        if isinstance(method, PBP):
            return db.predict_student(method, fitted, x)
        return db.predict_plugin(method.posterior, fitted, x)

    return predict


def part(arrays: dict[str, np.ndarray], method: str) -> dict[str, np.ndarray]:
    """The arrays of one method among those of several."""
    return {name.removeprefix(f"{method}."): value for name, value in arrays.items() if name.startswith(f"{method}.")}


def rows_of(results: dict[str, Any], metric: str) -> dict[str, Row]:
    """The rows of a metric by method."""
    return {row["method"]: row for row in results["rows"] if row["metric"] == metric}


@contextmanager
def titled_panels(titles: list[str], columns: int, height: float) -> Iterator[tuple[figures.Drawing, Any, list[Any]]]:
    """A figure, all its axes, so many side by side, and those of them that have the titles."""
    rows = -(-len(titles) // columns)
    size = figures.WIDTH, height * rows
    with figures.panels(rows, columns, size=size, sharex=True, sharey=True) as (figure, axes):
        yield figure, axes, figures.lettered(axes, titles)


@contextmanager
def dataset_lines(places: list[str], label: str) -> Iterator[tuple[figures.Drawing, Any]]:
    """A figure with a line for each data set, from top to bottom, and a legend above; what is drawn has `label`."""
    with figures.panels(size=(figures.WIDTH, 1.2 + 0.5 * len(places))) as (figure, ((axis,),)):
        yield figure, axis
        axis.set_yticks(range(len(places)), places)
        axis.invert_yaxis()
        axis.set_xlabel(label)
        figure.legend(loc="outside upper center", ncols=len(axis.get_legend_handles_labels()[1]), fontsize=8)
