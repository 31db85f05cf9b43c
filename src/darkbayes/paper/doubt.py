"""Is a student's doubt its teacher's, far from all that was seen? Probes that nobody trained on, on every table.

    darkbayes reproduce doubt                                        all tables; wants a GPU
    darkbayes reproduce doubt --datasets boston wine                 two of them
    darkbayes reproduce doubt --preset quick                         one small table, in minutes

A table is fitted as `darkbayes fit` does it, with a fifth of its rows held out. Rows of these become probes: one number
or all are moved by 1 to 100 ranges to either side (`fit/probing.py`). Beside the student of the fit there may be others
that learned from the same draws with as many lessons, and asked elsewhere: near the data alone, or also where draws
disagree most. The latter come no closer to their teacher on most tables and take half as long again on a CPU: that is
why they are no part of the default (`results/query-tuning.json`). No test score had a part in it.
"""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import darkbayes as db
from darkbayes.fit import Options, fit, predicted_by_student, prepare_table, table_queries
from darkbayes.fit.automatic import PICKS, QUERY_BATCH, make_student
from darkbayes.fit.probing import probes, ratios, within
from darkbayes.outcomes import Prediction
from darkbayes.paper.common import Row
from darkbayes.report import Names, RunWords
from darkbayes.runs import row
from darkbayes.student.queries import Context, Queries, disagreement, mix
from darkbayes.student.sizing import learn_from_draws
from darkbayes.tables import from_columns
from darkbayes.tables.schema import REACH, TableSchema

DATASETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "wine", "yacht", "airfoil", "iris", "cancer")
OWN = {"iris": "load_iris", "cancer": "load_breast_cancer"}  # Classes, from scikit-learn.
SEEKING, STEPS, SIZE = 0.125, 2, 3.0  # The share of queries that seek disagreement, their steps, and the longest.
BLIND = 0.8
"""Doubt below so much of the usual, where the teacher's is above it, overlooks that a row is strange."""
METRICS = ("spread_ratio_within", "spread_ratio_low", "spread_ratio_high", "spread_ratio_least", "spread_ratio_most")
METRICS += ("epistemic_ratio_within", "overlooked", "log_likelihood")


@dataclasses.dataclass(frozen=True)
class DoubtPreset:
    """The settings of the experiment."""

    trials: int = 1
    datasets: tuple[str, ...] = DATASETS
    effort: float = 1.0
    others: tuple[str, ...] = ()
    """Students of other queries, "near" and "seeking", each of which takes half a fit or more."""
    rows: int = 40
    """Rows that probes begin at."""


PRESETS = {"automatic": DoubtPreset(), "quick": DoubtPreset(datasets=("iris",), effort=0.1, others=("near",), rows=10)}


def reproduce(run: db.Run, preset: DoubtPreset, trials: int, seed: int) -> list[Row]:
    """Run what is asked for and not there yet; returns rows of all that the folder has."""
    scores: dict[tuple[str, str, str], list[float]] = {}
    for dataset, trial in itertools.product(DATASETS, range(max(trials, DoubtPreset.trials))):
        wanted = trial < trials and dataset in preset.datasets
        arrays = run.once(f"{dataset}-{trial}", partial(_probed, dataset, seed + trial, preset), wanted)
        for name, value in arrays.items():
            method, _, metric = name.rpartition(".")
            scores.setdefault((dataset, method, metric), []).append(float(value))
    rows = [row(method, metric, values) | {"dataset": name} for (name, method, metric), values in scores.items()]
    return sorted(rows, key=lambda row: METRICS.index(row["metric"]))


def _probed(dataset: str, seed: int, preset: DoubtPreset) -> dict[str, Any]:
    """Every measure of every student on one table."""
    columns, target_name = _columns(dataset)
    prepared = prepare_table(from_columns(columns, source=dataset), [target_name], seed=seed)
    schema, held_out, frame = prepared.schema, prepared.held_out, prepared.held_out_frame
    assert isinstance(schema, TableSchema)
    assert isinstance(frame, dict)
    assert held_out is not None
    queries: Any = table_queries(schema)
    options = Options(time_budget=None, effort=preset.effort)
    fitted = fit(prepared.train, schema.target, jax.random.key(seed), options, queries=queries)
    low, high = (queries.ends[k] + (2 * k - 1) * REACH * queries.numbers for k in (0, 1))
    elsewhere: dict[str, Queries] = {
        "near": queries.near(),
        "seeking": mix(disagreement(queries, STEPS, SIZE, low, high), queries, SEEKING),
    }
    student = make_student(schema.target, fitted.options, fitted.lessons)
    draws = jax.tree.map(jnp.asarray, fitted.draws)
    teacher = Context(fitted.posterior, draws, jnp.asarray(prepared.train.x))
    students: dict[str, Callable[[Any], Prediction]] = {"student": fitted.predict}
    for other in preset.others:
        key = jax.random.fold_in(jax.random.key(seed), len(other))
        params = learn_from_draws(student, elsewhere[other], teacher, key, fitted.lessons, QUERY_BATCH, 2 * PICKS)
        students[f"student, {other}"] = partial(predicted_by_student, student, params)
    x = schema.encode(probes(schema, frame, preset.rows))
    believed = fitted.predict_teacher(x)
    usual = float(np.median(fitted.predict_teacher(held_out.x).spreads()[0]))
    measures: dict[str, Any] = {"mclmc.log_likelihood": _score(fitted.predict_teacher, held_out)}
    for method, predict in students.items():
        said = predict(x)
        whole, doubt = ratios(said, believed)
        own = {"within": within(whole), "least": whole.min(), "most": whole.max()}
        own |= dict(zip(("low", "high"), np.quantile(whole, (0.025, 0.975)), strict=True))
        measures |= {f"{method}.spread_ratio_{name}": value for name, value in own.items()}
        measures[f"{method}.epistemic_ratio_within"] = within(doubt)
        blind = (said.spreads()[0] < BLIND * usual) & (believed.spreads()[0] > usual)
        measures |= {f"{method}.overlooked": blind.mean(), f"{method}.log_likelihood": _score(predict, held_out)}
    return measures


def _columns(dataset: str) -> tuple[dict[str, Any], str]:
    """A table by columns, and its target."""
    if dataset in OWN:
        import sklearn.datasets

        table: Any = getattr(sklearn.datasets, OWN[dataset])()
        named = {str(name): table.data[:, k] for k, name in enumerate(table.feature_names)}
        return named | {"class": table.target_names[table.target].astype(str)}, "class"
    table = db.data.load(dataset)
    return table.columns, table.target


def _score(predict: Callable[[Any], Prediction], data: Any) -> float:
    return db.metrics.log_likelihood(predict(data.x), np.asarray(data.y))


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    return RunWords(
        title="Doubt far from the data: student beside teacher",
        lead="Rows held out are moved by 1 to 100 ranges along one number or along all. Ratios are of the student's "
        "spread (of classes: entropy and 0.01 nats) to that of its teacher, at the same places. Log likelihoods are of "
        "rows held out, and of the standardised target.",
        trial="a random split into four fifths to learn from and one fifth that probes begin at",
        quick="one small table, a tenth of the work",
    )
