"""Active learning on MNIST: how many labels until 95 % of the digits are right, by who chooses what to label.

    darkbayes reproduce active --preset best      five seeds side by side: for a GPU
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
Nothing is compiled anew as labels grow. Settings were chosen on the last 10,000 images
of the training file, which are not in the pool, and none on the test images.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import darkbayes as db
from darkbayes.acquisition import choose
from darkbayes.data import load
from darkbayes.files import write_arrays
from darkbayes.outcomes import ClassPrediction
from darkbayes.paper.common import Row, named_key, rows_of
from darkbayes.paper.learners import Distilling, Dropping, Labels, LearnerSettings
from darkbayes.paper.mnist import CLASSES, PIXEL_SCALE, VALIDATION
from darkbayes.progress import progress_bar
from darkbayes.report import Names, RunWords, figures
from darkbayes.runs import row
from darkbayes.types import Data

GOAL = 95.0  # Per cent of the test images.
MOST_NEAR = 300  # Candidates among which a batch is chosen by distance, the most doubtful ones.
METHODS = ("student bald", "student bald batch", "student random", "student entropy", "sgld bald", "dropout bald")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActivePreset(LearnerSettings):
    """All the settings of the experiment."""

    trials: int = 5
    on: Literal["test", "validation"] = "test"


PRESETS = {
    "best": ActivePreset(),
    "quick": ActivePreset(
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


def images(preset: ActivePreset, quiet: bool) -> tuple[Data, Data]:
    """The pool, and the images to score on; pixels are scaled."""
    loaded = load("mnist", quiet=quiet)
    pool = db.data.as_data(loaded.train_x[: preset.pool] / PIXEL_SCALE, loaded.train_y[: preset.pool])
    if preset.on == "validation":
        return pool, db.data.as_data(loaded.train_x[-VALIDATION:] / PIXEL_SCALE, loaded.train_y[-VALIDATION:])
    return pool, db.data.as_data(loaded.test_x / PIXEL_SCALE, loaded.test_y)


def campaign(run: db.Run, preset: ActivePreset, method: str, pool: Data, held_out: Data, trials: int, seed: int) -> Any:
    """The errors of one method as its labels grow, ``[seeds, rounds]``, and the numbers of labels."""
    model, _, acquisition = method.partition(" ")
    # Those of all methods begin with the same labels.
    labels = Labels(preset, pool, [np.random.default_rng([seed, trial]) for trial in range(trials)])
    key = named_key(jax.random.key(seed), method)
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


def reproduce(run: db.Run, preset: ActivePreset, trials: int, seed: int) -> list[Row]:
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
