"""Any teacher: students of a sampler, of other approximations, and of trees, and what they keep of the gain.

    darkbayes reproduce teachers --datasets boston       five splits, on a few cores
    darkbayes reproduce teachers --datasets mnist        wants a GPU; a folder may be filled piece by piece by --resume
    darkbayes reproduce teachers --preset quick          two splits of Boston and shorter runs

Gain kept is (student - plug-in) / (teacher - plug-in) in log likelihood; the plug-in network is that of Tables 3 and 5.
Chains teach while they sample; ensemble, dropout, Bayes by backprop and SWAG by draws that are stored (`stored_chain`).
Of a random forest each tree is a draw, of gradient boosting each of several fits from other seeds, all scikit-learn's.
They know their training rows by heart: students learn what is said out of fold (`answers.out_of_fold`), in the batch
form (`distil_batch`). Trees say means alone: the noise around them is the one under which the training targets are
likeliest, out of fold. All students of stored draws and of trees are networks of one shape, by data set. Settings of
comparators are those of `boston.py` and `mnist.py`, which validation parts chose; chains are shorter than there.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import optax

import darkbayes as db
from darkbayes.baselines import SGD, SWAG, BayesByBackprop, Dropout, Ensemble
from darkbayes.estimates import estimate, ratio
from darkbayes.metrics import error, log_likelihood
from darkbayes.outcomes import ClassPrediction
from darkbayes.paper import boston, mnist, regression
from darkbayes.paper.common import Row, dataset_lines, falling_adam, fitted_draws, recorded, trained
from darkbayes.paper.regression import TRIAL, mixed, path_of, split_scores, split_table
from darkbayes.report import Names, RunWords, figures
from darkbayes.runs import row
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Key, PyTree

DATASETS = ("boston", "mnist")
METRICS = ("log_likelihood", "gain_kept", "rmse", "error")
TREES = ("forest", "boosting")
METHODS = ("sgd", "fisher_sgld", "ensemble", "dropout mc", "bbb", "swag", *TREES)
Scores = dict[str, dict[str, list[float]]]
"""The values of each metric of each method, one for every trial."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TeachersPreset:
    """The settings of the experiment; those of chains, comparators and splits are of the tables' own experiments."""

    trials: int = 5
    datasets: tuple[str, ...] = DATASETS
    methods: tuple[str, ...] = METHODS
    on: Literal["test", "validation"] = "test"
    table: regression.RegressionPreset
    digits: mnist.MnistPreset = mnist.PRESETS["best"]
    draws: int = 100  # Of each method that can make as many as one likes.
    draws_together: int = 20  # In each target of a student; fewer where there are fewer.
    updates: int = 20_000
    digit_updates: int = 300_000
    bbb_steps: int = 10_000
    bbb_initial_std: float = 0.05
    swag_rate: float = 0.03  # Of the walk, per mean loss.
    swag_points: int = 100
    trees: int = 100  # Of a forest, and of each booster.
    boosters: int = 10
    tree_queries: int = 20  # For each row, besides itself.


SHORT = dataclasses.replace(boston.PRESETS["quick"], noise=("sampled",))
BEST = dataclasses.replace(SHORT, steps=40_000, burn_in=10_000)
PRESETS = {
    "best": TeachersPreset(table=BEST),
    "quick": TeachersPreset(
        trials=2, datasets=("boston",), table=SHORT, updates=6_000, bbb_steps=4_000, boosters=3, tree_queries=5
    ),
}


def reproduce(run: db.Run, preset: TeachersPreset, trials: int, seed: int) -> list[Row]:
    """Run what is asked for and not there yet; returns rows of all that the folder has."""
    rows: list[Row] = []
    for name, part in PARTS.items():
        computed: dict[str, Callable[[], Scores]] = {}
        if name in preset.datasets:
            computed = dict(part(run, preset, trials, jax.random.key(seed)))
        scores: Scores = {}
        for method in METHODS:
            wanted = method in computed and method in preset.methods
            scores |= recorded(run, f"{name}/{path_of(method)}", computed.get(method, dict), wanted)
        rows += score_rows(name, scores)
    return sorted(rows, key=lambda row: METRICS.index(row["metric"]))


def score_rows(dataset: str, scores: Scores) -> list[Row]:
    """Rows of every score, and of what students keep where their teacher gains something."""
    rows = [row(method, metric, values) for method, own in scores.items() for metric, values in own.items()]
    plug_in = np.asarray(scores.get("sgd", {}).get("log_likelihood", ()))
    for method in scores:
        if method.startswith(STUDENT) and len(plug_in):
            own, teacher = (np.asarray(scores[name]["log_likelihood"]) for name in (method, method[len(STUDENT) :]))
            share = ratio(own - plug_in, teacher - plug_in)
            if estimate(teacher - plug_in).value > 0:
                kept = {"mean": share.value, "se": share.error, "trials": len(own)}
                rows.append({"method": method, "metric": "gain_kept"} | kept)
    return [one | {"dataset": dataset} for one in rows]


STUDENT = "student of "
Part = Iterator[tuple[str, Callable[[], Scores]]]


def _named(name: str, scores: dict[str, Any], metrics: tuple[str, ...]) -> Scores:
    """The scores of a teacher and of its student under their names."""
    names = {"teacher": name, "student": STUDENT + name}
    return {
        full: {metric: [float(value) for value in scores[f"{part}.{metric}"]] for metric in metrics}
        for part, full in names.items()
    }


class Boston(regression.RegressionExperiment):
    """Teachers and students on splits of a table."""

    def __init__(self, run: db.Run, preset: TeachersPreset, trials: int, key: Key):
        splits = split_table(db.data.load("boston"), trials, 0, on=preset.on)
        super().__init__(run, preset.table, splits, key)
        self.settings = preset
        self.head = self.preset.head("input")
        self.queries = mixed([*map(db.queries.jitter, self.preset.jitter)])
        self.lessons = dataclasses.replace(self.preset.settings, update_every=1, reservoir=0)
        optimiser = falling_adam(self.preset.learning_rate, preset.updates)
        self.student = db.Student(db.mlp(self.preset.hidden, self.head.width), self.head, optimiser)

    def parts(self) -> Part:
        """Every method, and what computes its scores."""
        sampled, varying = self.posterior("sampled"), self.posterior("input")
        assert self.preset.comparators is not None
        own, settings = self.preset.comparators, self.settings
        sgd = trained(SGD, sampled, own, own.sgd_steps)
        walk: Any = {"walk": optax.sgd(settings.swag_rate), "points": settings.swag_points}
        stored = {
            "ensemble": (Ensemble(trained(SGD, varying, own, own.ensemble_steps), own.ensemble_size), 1),
            "dropout mc": (trained(Dropout, sampled, own, own.dropout_steps, rate=own.dropout_rate), settings.draws),
            "bbb": (
                trained(BayesByBackprop, sampled, own, settings.bbb_steps, initial_std=settings.bbb_initial_std),
                settings.draws,
            ),
            "swag": (trained(SWAG, sampled, own, own.sgd_steps, **walk), settings.draws),
        }
        yield "sgd", partial(self._plug_in, sgd)
        yield self.preset.sampler, self._sampled
        for name, (method, number) in stored.items():
            yield name, partial(self._stored, name, method, number)
        for name in TREES:
            yield name, partial(self._grown, name)

    def _plug_in(self, method: SGD) -> Scores:
        arrays = self.fitted("sgd", method, 1)
        return {"sgd": {metric: arrays[metric].tolist() for metric in ("log_likelihood", "rmse")}}

    def _sampled(self) -> Scores:
        sampler = self.preset.sampler
        scores = self._distil(f"boston/{path_of(STUDENT + sampler)}", "sampled")
        return _named(sampler, scores, ("log_likelihood", "rmse"))

    def _stored(self, name: str, method: Any, number: int) -> Scores:
        """The student of draws that are there."""
        draws = fitted_draws(method, self._key(name), len(self.splits), self.stacked, 0, number)
        inputs = [split.train.x for split in self.splits]
        lessons: Any = {"key": self._key(STUDENT + name), "updates": self.settings.updates, "thin": 100}
        weights = _learned(self, f"boston/{path_of(STUDENT + name)}", method.posterior, draws, inputs, **lessons)
        methods = {
            "teacher": lambda k, x: db.predict_draws(method.posterior, at(k, draws), x),
            "student": lambda k, x: db.predict_student(self.student, at(k, weights), x),
        }
        return _named(name, split_scores(methods, self.splits), ("log_likelihood", "rmse"))

    def _grown(self, name: str) -> Scores:
        """The student of trees, by what they say out of fold."""
        said: dict[str, list[Any]] = {"teacher": [], "student": []}
        for k, split in enumerate(self.splits):
            ask_key, learn_key = jax.random.split(jax.random.fold_in(self._key(name), k))
            x, y = (np.asarray(part) for part in split.train)
            fit = partial(grow, name, self.settings)
            lesson: Any = {"queries": self.queries, "times": self.settings.tree_queries}
            answers = db.student.answers.out_of_fold(fit, x, y[:, 0], self.head, ask_key, **lesson)
            batch: Any = {"updates": self.settings.updates, "batch_size": self.preset.settings.query_batch}
            done = db.student.distil_batch(answers, self.student, learn_key, **batch, quiet=self.run.quiet)
            teacher = db.student.answers.of_models(fit(x, y[:, 0]), split.test.x, self.head, noise=answers.noise)
            said["teacher"].append(teacher.prediction())
            said["student"].append(db.predict_student(self.student, done.params, split.test.x))
        methods = {part: lambda k, x, part=part: said[part][k] for part in said}
        return _named(name, split_scores(methods, self.splits), ("log_likelihood", "rmse"))


def grow(name: str, preset: TeachersPreset, x: np.ndarray, y: np.ndarray) -> list[Any]:
    """The trees of a random forest, or several boosters."""
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor

    if name == "forest":
        return RandomForestRegressor(preset.trees, max_features=1 / 3, random_state=0).fit(x, y).estimators_
    own: Any = {"n_estimators": preset.trees, "subsample": 0.5, "max_features": 1 / 3}
    return [GradientBoostingRegressor(**own, random_state=seed).fit(x, y) for seed in range(preset.boosters)]


class Digits(mnist.MnistExperiment):
    """Teachers and students on digits."""

    def __init__(self, run: db.Run, preset: TeachersPreset, trials: int, key: Key):
        super().__init__(run, dataclasses.replace(preset.digits, on=preset.on), trials)
        self.settings = preset
        self.keys: dict[str, Key] = dict(zip(("sgd", "ensemble", "dropout mc"), jax.random.split(key, 3), strict=True))
        optimiser = falling_adam(self.preset.learning_rate, preset.digit_updates)
        self.student = dataclasses.replace(self.student, optimiser=optimiser)
        self.lessons = self.preset.settings

    def parts(self) -> Part:
        """Every method, and what computes its scores."""
        yield "sgd", self._plug_in
        for name in ("ensemble", "dropout mc"):
            yield name, partial(self._stored, name, *self.known_comparators()[name])

    def _plug_in(self) -> Scores:
        probs = self.fitted({"sgd": (self.plug_in(), 0)}, self.keys["sgd"])["sgd"]
        return {"sgd": self._scored(list(map(ClassPrediction.from_probs, probs)))}

    def _stored(self, name: str, method: Any, number: int) -> Scores:
        """The student of draws that are there."""
        fit_key, learn_key = jax.random.split(self.keys[name])
        draws = fitted_draws(method, fit_key, self.trials, self.data, None, number)
        inputs = [self.data.x] * self.trials
        lessons: Any = {"key": learn_key, "updates": self.settings.digit_updates, "thin": 200}
        weights = _learned(self, f"mnist/{path_of(STUDENT + name)}", method.posterior, draws, inputs, **lessons)
        x, trials = self.held_out.x, range(self.trials)
        said = {
            name: [db.predict_draws(method.posterior, at(k, draws), x) for k in trials],
            STUDENT + name: [db.predict_student(self.student, at(k, weights), x) for k in trials],
        }
        return {method: self._scored(predictions) for method, predictions in said.items()}

    def _scored(self, predictions: list[Any]) -> dict[str, list[float]]:
        metrics = {"log_likelihood": log_likelihood, "error": error}
        return {name: [metric(one, self.held_out.y) for one in predictions] for name, metric in metrics.items()}


PARTS: dict[str, Callable[..., Part]] = {
    "boston": lambda *given: Boston(*given).parts(),
    "mnist": lambda *given: Digits(*given).parts(),
}


def _learned(
    experiment: Boston | Digits,
    name: str,
    posterior: db.Posterior,
    draws: PyTree,
    inputs: list[Array],
    *,
    key: Key,
    updates: int,
    thin: int,
) -> PyTree:
    """The weights of the students of draws ``[trials, draws, ...]`` in all trials, which learn side by side."""
    together = min(experiment.settings.draws_together, jax.tree.leaves(draws)[0].shape[1])
    settings = dataclasses.replace(experiment.lessons, num_chains=together)
    student, queries = experiment.student, experiment.queries
    teachers = [db.teacher.stored_chain(posterior, at(k, draws), x, thin=thin) for k, x in enumerate(inputs)]
    parts = db.student.side_by_side([db.distillation(teacher, student, queries, settings) for teacher in teachers])
    return parts.best(experiment.run.distil(name, parts, key, updates))


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    kept = [one for one in results["rows"] if one["metric"] == "gain_kept"]
    shares = ", ".join(f"{names.method(one['method'])} {one['mean']:.0%} ({one['dataset']})" for one in kept)
    return RunWords(
        title="Any teacher, and what its student keeps",
        lead="Students learn from chains while they sample, from stored draws of other approximations, and from trees. "
        "What they keep is the share of their teacher's gain in log likelihood over the plug-in network.",
        summary=f"Kept: {shares}." * bool(shares),
        trial=TRIAL + ", or a run from random starts of its own on the same images",
        quick="Boston alone, fewer splits and shorter runs",
        figure="Teachers and their students",
        caption="Mean log likelihood over the trials: a ring for each teacher, a dot for its student. The dashed line "
        "is the plug-in network.",
        alt="For each teacher, its log likelihood and that of its student.",
        draw=lambda: pairs(results, names),
        curves="256 queries that it did not learn from, mean over the trials",
    )


def pairs(results: dict[str, Any], names: Names) -> figures.Drawing:
    """The log likelihood of every teacher and its student, on the first data set that there is."""
    rows = [one for one in results["rows"] if one["metric"] == "log_likelihood"]
    means = {one["method"]: one["mean"] for one in rows if one["dataset"] == rows[0]["dataset"]}
    teachers = [method for method in means if STUDENT + method in means]
    with dataset_lines([names.method(one) for one in teachers], f"log likelihood on {rows[0]['dataset']}") as drawn:
        figure, axis = drawn
        places = range(len(teachers))
        own = [means[STUDENT + one] for one in teachers]
        axis.scatter([means[one] for one in teachers], places, s=50, fc="none", ec=figures.ORANGE, label="teacher")
        axis.scatter(own, places, s=16, color=figures.BLUE, label="student")
        if "sgd" in means:
            axis.axvline(means["sgd"], color=figures.GREY, lw=1, ls="--", label=names.method("sgd"))
    return figure
