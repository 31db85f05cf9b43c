"""Three tables on the protocol of the package `bde` (sklearn-contrib-bde), beside it and others that are installed.

    darkbayes reproduce tables --preset default     what `darkbayes fit` does with a table, five splits of each
    darkbayes reproduce tables --preset best        sixteen times the effort, half again as many chains: for a GPU
    darkbayes reproduce tables --preset quick       one split of the smallest table, in minutes

A fifth of the rows is held out as scikit-learn's ``train_test_split(random_state=seed)`` does; inputs and target are
standardised by the rest, and scores are those of the standardised target. Every method sees the same rows, but for
the Gaussian process, which learns from `GP_ROWS` of them at most. Comparators run with the settings below, none of
which was chosen by these scores: `bde` with the network and chains of its paper, CatBoost, NGBoost, gradient boosting
and the Gaussian process at their packages' defaults.
"""

import dataclasses
import functools
import importlib.util
import itertools
import operator
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import darkbayes as db
from darkbayes.fit import Fitted, Options, fit
from darkbayes.outcomes import NumberTarget
from darkbayes.outcomes.number import NumberPrediction
from darkbayes.paper.common import Row, scored, teacher_of
from darkbayes.paper.regression import Split, standardised
from darkbayes.report import Names, RunWords
from darkbayes.runs import row
from darkbayes.types import Data

DATASETS = ("airfoil", "concrete", "bikesharing")
HELD_OUT = 0.2
GP_ROWS = 2_000  # A Gaussian process learns from so many at most: its cost grows with their cube.
METRICS = ("log_likelihood", "rmse", "average_error", "average_error_large", "halves_apart", "cpu_s", "predict_us")
BDE = {
    "hidden_layers": [16] * 4,
    "n_members": 10,
    "epochs": 1_000,
    "patience": 20,
    "warmup_steps": 50_000,
    "n_samples": 10_000,
    "n_thinning": 10,
}


@dataclasses.dataclass(frozen=True)
class TablesPreset:
    """The settings of the experiment."""

    trials: int = 5
    datasets: tuple[str, ...] = DATASETS
    effort: float = 1.0
    chains: int = 8
    student_hidden: tuple[int, ...] = Options.student_hidden
    comparators: tuple[str, ...] = ("bde", "catboost", "ngboost", "gp", "boosting")
    """Those of them that are installed run."""


PRESETS = {
    "best": TablesPreset(effort=16.0, chains=12, student_hidden=(256, 256, 256, 256), comparators=()),
    "default": TablesPreset(),
    "quick": TablesPreset(trials=1, datasets=("concrete",), effort=0.1, comparators=("boosting",)),
}


def split(name: str, seed: int) -> Split:
    """The rows to learn from and those held out, standardised."""
    table: Any = db.data.load(name)
    order, cut = np.random.RandomState(seed).permutation(len(table.y)), -int(-HELD_OUT * len(table.y) // 1)
    return standardised(table, order[cut:], order[:cut])


def reproduce(run: db.Run, preset: TablesPreset, trials: int, seed: int) -> list[Row]:
    """All methods on the splits that are asked for, each once; returns rows of all that the folder has, by data set."""
    rows = []
    comparators: dict[str, Callable[..., dict[str, Any]]] = {}
    known = {
        "bde": ("bde", _bde),
        "catboost": ("catboost", _catboost),
        "ngboost": ("ngboost", _ngboost),
        "gp": ("sklearn", _gp),
        "boosting": ("sklearn", _boosting),
    }
    for name in preset.comparators:
        package, method = known[name]
        if importlib.util.find_spec(package) is not None:
            comparators[name] = method
    for dataset in DATASETS:
        methods = {"student": functools.partial(_distilled, run, dataset)} | comparators
        scores: dict[tuple[str, str], dict[int, float]] = {}
        for trial, (method, score) in itertools.product(range(max(trials, TablesPreset.trials)), methods.items()):
            wanted, split_seed = trial < trials and dataset in preset.datasets, seed + trial
            compute = lambda: score(*split(dataset, split_seed)[:2], split_seed, preset)  # noqa: B023, E731
            for name, value in run.once(f"{dataset}-{trial}-{method}", compute, wanted).items():
                kind, _, metric = name.rpartition(".")
                scores.setdefault((kind or method, metric), {})[split_seed] = float(value)
        own = [
            row(method, metric, list(values.values())) | {"dataset": dataset, "seeds": list(values)}
            for (method, metric), values in scores.items()
        ]
        rows += sorted(own, key=lambda row: METRICS.index(row["metric"]))
    return rows


def _mixture(mean: np.ndarray, spread: np.ndarray) -> NumberPrediction:
    """Gaussians that weigh alike, ``[components, rows]``."""
    weights = np.full((*mean.shape, 1), -np.log(len(mean)))
    return NumberPrediction.standard(weights, mean[..., None], spread[..., None] ** 2, None, None)


def _distilled(run: db.Run, dataset: str, train: Data, test: Data, seed: int, preset: TablesPreset) -> dict[str, Any]:
    """The student, and its teacher under its own name, whose verdict the run keeps."""
    began = time.process_time()
    target = NumberTarget("y", "identity", 0.0, 1.0, float(np.min(train.y)), float(np.max(train.y)))
    how: Any = {name: getattr(preset, name) for name in ("effort", "chains", "student_hidden")}
    fitted = fit(train, target, jax.random.key(seed), Options(time_budget=None, **how))
    own: dict[str, Any] = {"cpu_s": time.process_time() - began}
    own |= scored(fitted.predict(test.x), test.y) | {"predict_us": _micros(fitted.predict, test.x)}
    run.decide(f"{dataset}-{seed}/student/model", lambda: dataclasses.asdict(fitted.chosen))
    run.decide(f"{dataset}-{seed}/student/diagnostics", fitted.diagnosis.as_dict)
    teacher = scored(fitted.predict_teacher(test.x), test.y) | {"halves_apart": _halves_apart(fitted, test)}
    judged = fitted.diagnosis.runs[0].agreement
    teacher |= {"average_error": judged.error, "average_error_large": judged.error_large}
    return own | {f"{teacher_of(fitted)}.{name}": value for name, value in teacher.items()}


def _halves_apart(fitted: Fitted, test: Data) -> float:
    """By how many nats the halves of the chains, whose draws lie one after another, differ in log likelihood."""
    half = len(jax.tree.leaves(fitted.draws)[0]) // 2
    parts = operator.itemgetter(slice(half)), operator.itemgetter(slice(half, None))
    halves = [fitted._replace(draws=jax.tree.map(part, fitted.draws)) for part in parts]
    first, second = (scored(one.predict_teacher(test.x), test.y)["log_likelihood"] for one in halves)
    return abs(first - second)


def _micros(predict: Callable[[Any], Any], x: Any) -> float:
    """Microseconds a row, the median of five."""
    times = []
    for _ in range(6):
        began = time.perf_counter()
        predict(x)
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:]) / len(x) * 1e6)


def _bde(train: Data, test: Data, seed: int, preset: TablesPreset) -> dict[str, Any]:
    from bde import BdeRegressor  # pyright: ignore[reportMissingImports]
    from bde.loss import GaussianNLL  # pyright: ignore[reportMissingImports]

    began, x = time.process_time(), np.asarray(test.x)
    model = BdeRegressor(seed=seed, loss=GaussianNLL(), **BDE)
    model.fit(x=np.asarray(train.x), y=np.asarray(train.y))
    seconds = time.process_time() - began
    raw = np.asarray(model.predict(x, raw=True), np.float64).reshape(-1, len(x), 2)
    how = {"cpu_s": seconds, "predict_us": _micros(lambda x: model.predict(x, raw=True), x)}
    spread = np.logaddexp(0.0, raw[..., 1]) + 1e-6  # As its own evaluation reads the second output.
    return scored(_mixture(raw[..., 0], spread), test.y) | how


def _gp(train: Data, test: Data, seed: int, preset: TablesPreset) -> dict[str, Any]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    began, some = time.process_time(), np.random.default_rng(seed).permutation(len(train.x))[:GP_ROWS]
    x, y = np.asarray(train.x, np.float64)[some], np.asarray(train.y, np.float64)[some, 0]
    kernel = ConstantKernel() * RBF([1.0] * x.shape[1]) + WhiteKernel()  # pyright: ignore[reportArgumentType]
    model = GaussianProcessRegressor(kernel, random_state=seed).fit(x, y)
    seconds = time.process_time() - began
    mean, spread = map(np.asarray, model.predict(np.asarray(test.x), return_std=True))
    return scored(_mixture(mean[None], spread[None]), test.y) | {"cpu_s": seconds}


def _catboost(train: Data, test: Data, seed: int, preset: TablesPreset) -> dict[str, Any]:
    from catboost import CatBoostRegressor  # pyright: ignore[reportMissingImports]

    began, quietly = time.process_time(), {"verbose": False, "allow_writing_files": False}
    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", random_seed=seed, **quietly)
    model.fit(np.asarray(train.x), np.asarray(train.y)[:, 0])
    seconds, x = time.process_time() - began, np.asarray(test.x)
    mean, variance = model.predict(x).T
    how = {"cpu_s": seconds, "predict_us": _micros(model.predict, x)}
    return scored(_mixture(mean[None], np.sqrt(variance)[None]), test.y) | how


def _ngboost(train: Data, test: Data, seed: int, preset: TablesPreset) -> dict[str, Any]:
    from ngboost import NGBRegressor  # pyright: ignore[reportMissingImports]

    began = time.process_time()
    model = NGBRegressor(random_state=seed, verbose=False).fit(np.asarray(train.x), np.asarray(train.y)[:, 0])
    seconds, x = time.process_time() - began, np.asarray(test.x)
    said = model.pred_dist(x)
    how = {"cpu_s": seconds, "predict_us": _micros(model.pred_dist, x)}
    return scored(_mixture(said.loc[None], said.scale[None]), test.y) | how


def _boosting(train: Data, test: Data, seed: int, preset: TablesPreset) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    began = time.process_time()
    model = HistGradientBoostingRegressor(random_state=seed).fit(np.asarray(train.x), np.asarray(train.y)[:, 0])
    seconds = time.process_time() - began
    mean = model.predict(np.asarray(test.x))[None]
    # It says nothing of a spread.
    return {"rmse": scored(_mixture(mean, np.ones_like(mean)), test.y)["rmse"], "cpu_s": seconds}


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    return RunWords(
        title="Tables, on the protocol of bde",
        lead="What a fit makes of three tables with no choice made by hand, beside other methods on the same rows. "
        "Scores are those of the standardised target.",
        trial="a random split into four fifths to learn from and one fifth to score on",
        quick="one split of one table, and a tenth of the work",
    )
