"""A guarantee on request: do intervals and sets of classes hold the truth as often as was asked, and how wide are they?

    darkbayes reproduce conformal                                            20 splits of five tables and of digits
    darkbayes reproduce conformal --resume --datasets naval --trials 3       three splits of one of them
    darkbayes reproduce conformal --preset quick                             one split of two of them, in minutes

A split has three parts: a fifth of the rows to learn from, at most 2,000; half of the rest to calibrate; and the other
half to count. Coverage holds for any student, so that these are fitted with little effort, and their teachers have one
hidden layer. The tables are those that ship whose target is measured and whose rows are enough for a share of 0.9 to be
counted to a few hundredths. Of digits so few are learnt from that an answer alone is wrong more often than one time in
ten: sets are never empty, and where answers are right more often than is asked, so are sets.

MAPIE, where it is installed, is given what the student says of the same rows: its default, residuals as they are,
around the student's point; and residuals divided by the student's standard deviation, around its mean. Of classes it
makes its least ambiguous sets ("lac"), which may be empty.
"""

import dataclasses
import importlib.util
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import darkbayes as db
from darkbayes.fit import Options, Prepared, fit, prepare_table, table_queries
from darkbayes.metrics import LEVEL
from darkbayes.paper.common import Row, dataset_lines, recorded
from darkbayes.paper.regression import TRIAL
from darkbayes.report import Names, RunWords, figures
from darkbayes.runs import row
from darkbayes.tables import from_columns
from darkbayes.tables.schema import TableSchema

TABLES, DIGITS = ("airfoil", "bikesharing", "kin8nm", "naval", "power"), "digits"
DATASETS = (*TABLES, DIGITS)
METRICS = ("coverage_90", "width")
MOST_TRAINED, TRAINED_DIGITS = 2_000, 50
"""Rows to learn from: at most so many, and a fifth of a table; and of digits."""


@dataclasses.dataclass(frozen=True)
class ConformalPreset:
    """The settings of the experiment."""

    trials: int = 20
    datasets: tuple[str, ...] = DATASETS
    effort: float = 0.1
    hidden: tuple[int, ...] = (50,)
    activation: str = "silu"


PRESETS = {"default": ConformalPreset(), "quick": ConformalPreset(trials=1, datasets=("airfoil", DIGITS), effort=0.02)}


def reproduce(run: db.Run, preset: ConformalPreset, trials: int, seed: int) -> list[Row]:
    """Run the splits that are asked for and not there yet; returns rows of all that the folder has."""
    rows = []
    for name in DATASETS:
        records = []
        for trial in range(max(trials, ConformalPreset.trials)):
            wanted = trial < trials and name in preset.datasets
            compute = partial(split_scores, name, trial, preset, seed)
            records.append(recorded(run, f"{name}/trial-{trial}/scores", compute, wanted))
        methods = dict.fromkeys(method for scores in records for method in scores)
        for method, metric in itertools.product(methods, METRICS):
            values = [scores[method][metric] for scores in records if method in scores]
            rows.append(row(method, metric, values) | {"dataset": name})
    return sorted(rows, key=lambda row: METRICS.index(row["metric"]))


def split_scores(name: str, trial: int, preset: ConformalPreset, seed: int) -> dict[str, dict[str, float]]:
    """Coverage and width of every method on one split."""
    prepared = prepare_split(name, seed + trial)
    schema, held_out = prepared.schema, prepared.held_out
    assert isinstance(schema, TableSchema)
    assert held_out is not None
    target: Any = schema.target
    options = Options(preset.hidden, preset.activation, effort=preset.effort, time_budget=None)
    fitted = fit(prepared.train, target, jax.random.key(seed + trial), options, queries=table_queries(schema))
    student = target.own_unit(fitted.predict(held_out.x))
    # Rows held out are in the order of the table: which of them calibrate is a draw of its own.
    order = np.random.default_rng(seed + trial).permutation(len(prepared.truth))
    calibrating, counted = np.array_split(order, 2)
    own, y = student[counted], prepared.truth[counted]
    guarantee = target.guaranteed(student[calibrating], prepared.truth[calibrating], LEVEL).guarantee
    regions = {"student": own, "student guaranteed": dataclasses.replace(own, guarantee=guarantee)}
    scores = {method: _scores(said.covered(y, LEVEL), said.width(LEVEL)) for method, said in regions.items()}
    if importlib.util.find_spec("mapie") is not None:
        compared = _mapie_sets if name == DIGITS else _mapie_intervals
        scores |= compared(student, prepared.truth, calibrating, counted)
    return scores


def prepare_split(name: str, seed: int) -> Prepared:
    """A data set of which some rows are to learn from, and all others held out."""
    if name == DIGITS:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        columns, trained = {f"pixel {k}": pixels for k, pixels in enumerate(x.T)} | {"digit": y}, TRAINED_DIGITS
    else:
        table: Any = db.data.load(name)
        columns, trained = table.columns, min(MOST_TRAINED, len(table.y) // 5)
    *_, target = columns
    order = np.random.default_rng(seed).permutation(len(columns[target]))
    split = np.sort(order[:trained]), np.sort(order[trained:])
    task = "classification" if name == DIGITS else "regression"
    return prepare_table(from_columns(columns, source=name), [target], task=task, split=split)


def _scores(held: np.ndarray, width: np.ndarray) -> dict[str, float]:
    return {"coverage_90": float(np.mean(held)), "width": float(np.mean(width))}


class _Stored:
    """An estimator for MAPIE, whose inputs are the numbers of rows that somebody else has predicted."""

    def __init__(self, values: np.ndarray, labels: np.ndarray | None = None):
        self.values, self.n_features_in_ = values, 1
        if labels is not None:
            self.classes_ = labels

    def fit(self, X: Any, y: Any = None) -> "_Stored":
        return self

    def predict(self, X: Any) -> np.ndarray:
        said = self.predict_proba(X)
        return said if said.ndim == 1 else self.classes_[said.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.values[np.asarray(X, np.int64)[:, 0]]

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _mapie_intervals(
    student: Any, y: np.ndarray, calibrating: np.ndarray, counted: np.ndarray
) -> dict[str, dict[str, float]]:
    """MAPIE's intervals around what the student says."""
    from mapie.conformity_scores import AbsoluteConformityScore, ResidualNormalisedScore  # pyright: ignore[reportMissingImports]
    from mapie.regression import SplitConformalRegressor  # pyright: ignore[reportMissingImports]

    spread: Any = _Stored(student.std[:, 0])
    kinds = {
        "mapie": (student.aim, AbsoluteConformityScore()),
        "mapie normalised": (student.mean, ResidualNormalisedScore(spread, prefit=True, sym=True)),
    }
    scores, truth = {}, y[:, 0]
    for method, (point, score) in kinds.items():
        estimator: Any = _Stored(point[:, 0])
        mapie = SplitConformalRegressor(estimator, confidence_level=LEVEL, conformity_score=score, prefit=True)
        mapie.conformalize(calibrating[:, None], truth[calibrating])
        low, high = mapie.predict_interval(counted[:, None])[1][:, :, 0].T
        scores[method] = _scores((low <= truth[counted]) & (truth[counted] <= high), high - low)
    return scores


def _mapie_sets(
    student: Any, y: np.ndarray, calibrating: np.ndarray, counted: np.ndarray
) -> dict[str, dict[str, float]]:
    """MAPIE's sets of classes by the student's probabilities."""
    from mapie.classification import SplitConformalClassifier  # pyright: ignore[reportMissingImports]

    # In single precision they add up to one only nearly, which MAPIE does not accept.
    probs = student.probs / student.probs.sum(axis=1, keepdims=True)
    estimator: Any = _Stored(probs, np.arange(probs.shape[1]))
    mapie = SplitConformalClassifier(estimator, confidence_level=LEVEL, conformity_score="lac", prefit=True)
    mapie.conformalize(calibrating[:, None], y[calibrating])
    sets = mapie.predict_set(counted[:, None])[1][:, :, 0]
    return {"mapie": _scores(sets[np.arange(len(counted)), y[counted]], sets.sum(axis=1))}


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    rows = [row for row in results["rows"] if row["metric"] == "coverage_90"]
    own = [row for row in rows if row["method"] == "student guaranteed"]
    shares = [share for row in own for share in row["values"]]
    return RunWords(
        title="Intervals and sets that hold the truth as often as was asked",
        lead=f"Split-conformal calibration of the student at {LEVEL:.0%}, on rows that it never saw, and how often "
        "other such rows are held; the student's own intervals, and MAPIE's on the same student, for comparison.",
        summary=f"Guaranteed: {np.mean(shares):.1%} of the truths were held, from {min(shares):.1%} to "
        f"{max(shares):.1%} in a single split." * bool(shares),
        trial=TRIAL,
        quick="fewer data sets and splits, and shorter runs",
        figure="How often the truth is held",
        caption="Each dot is a split. The dashed line is what was asked for.",
        alt="For each data set, the share of truths that the regions of each method hold in each split.",
        draw=lambda: coverages(rows, names),
    )


def coverages(rows: list[Row], names: Names) -> figures.Drawing:
    """The share of truths that each method holds in each split of each data set."""
    places, methods = (list(dict.fromkeys(row[name] for row in rows)) for name in ("dataset", "method"))
    with dataset_lines(places, "share of truths that are held") as (figure, axis):
        colours = (figures.GREY, figures.BLUE, figures.ORANGE, figures.GREEN)
        for number, (method, colour) in enumerate(zip(methods, colours, strict=False)):
            some = [row for row in rows if row["method"] == method]
            shares = [share for row in some for share in row["values"]]
            shift = 0.18 * (number - (len(methods) - 1) / 2)
            heights = [places.index(row["dataset"]) + shift for row in some for _ in row["values"]]
            axis.scatter(shares, heights, s=12, alpha=0.6, color=colour, label=names.method(method))
        axis.axvline(LEVEL, color=figures.GREY, lw=1, ls="--")
    return figure
