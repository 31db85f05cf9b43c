"""Nine UCI data sets on the standard splits: what `darkbayes fit` makes of them, beside other methods.

    darkbayes reproduce uci                                              20 splits of each, 5 of protein; wants a GPU
    darkbayes reproduce uci --resume --datasets naval wine --trials 3    three splits of two of them
    darkbayes reproduce uci --preset quick                               two splits of the smallest, in minutes

A split that a folder has of a method is not run again, and whatever a folder has is in its results: a long run may be
made in pieces, and pieces made elsewhere may be copied in. Student and teacher are those of `fit/automatic.py`, with
every choice left to it. Deep ensemble and MC dropout are ours; each split chooses their settings among a few by a tenth
of its training part, and what it chose is in the results. Published numbers are of networks with one hidden layer of 50
units, 100 for protein.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import darkbayes as db
from darkbayes.baselines import SGD, Dropout, Ensemble, raise_if_diverged
from darkbayes.files import read_json, write_json
from darkbayes.fit import Model, Options, fit, make_posterior, prepare_table, table_queries
from darkbayes.outcomes import NumberTarget
from darkbayes.paper.common import Row, dataset_lines, named_key, scored, teacher_of, trained
from darkbayes.paper.regression import TRIAL, Split, split_table
from darkbayes.report import Names, RunWords, best_of_all, figures
from darkbayes.runs import row
from darkbayes.tables import from_columns
from darkbayes.tables.schema import TableSchema
from darkbayes.teacher.stacking import at
from darkbayes.types import Key

QUOTED = (*((method, "log_likelihood") for method in ("vi", "pbp", "dropout mc", "ensemble", "best")), ("pbp", "rmse"))
PUBLISHED: dict[str, tuple[tuple[float, float | None], ...]] = {
    "boston": ((-2.90, 0.07), (-2.57, 0.09), (-2.40, 0.04), (-2.41, None), (-2.40, None), (3.01, None)),
    "concrete": ((-3.39, 0.02), (-3.16, 0.02), (-2.93, 0.02), (-3.06, None), (-2.93, None), (5.67, None)),
    "energy": ((-2.39, 0.03), (-2.04, 0.02), (-1.21, 0.01), (-1.38, None), (-1.01, None), (1.80, None)),
    "kin8nm": ((0.90, 0.01), (0.90, 0.01), (1.14, 0.01), (1.20, None), (1.20, None), (0.10, None)),
    "naval": ((3.73, 0.12), (3.73, 0.01), (4.45, None), (5.63, None), (6.29, None), (0.01, None)),
    "power": ((-2.89, 0.01), (-2.84, 0.01), (-2.80, 0.01), (-2.79, None), (-2.79, None), (4.12, None)),
    "protein": ((-2.99, 0.01), (-2.97, 0.00), (-2.87, None), (-2.83, None), (-2.83, None), (4.73, None)),
    "wine": ((-0.98, 0.01), (-0.97, 0.01), (-0.93, 0.01), (-0.94, None), (-0.90, None), (0.64, None)),
    "yacht": ((-3.43, 0.16), (-1.63, 0.02), (-1.25, 0.01), (-1.18, None), (-0.47, None), (1.02, None)),
}
"""Means and standard errors of what is `QUOTED`, by data set: VI and PBP from Hernandez-Lobato and Adams (2015), MC
dropout with a clean grid search from Mukhoti, Stenetorp and Gal (2018), ensembles from Lakshminarayanan et al. (2017),
and the best that we have read of any method with that one hidden layer."""
DATASETS, FEWER = tuple(PUBLISHED), {"protein": 5}  # Those with fewer splits than 20.
ONLY, METRICS = ("student", "ensemble", "dropout"), ("log_likelihood", "rmse")
STANDARDISED = NumberTarget("y", "identity", 0.0, 1.0, -1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class UciPreset:
    """The settings of the experiment; where ensemble or dropout have several, each split chooses."""

    trials: int = 20
    datasets: tuple[str, ...] = DATASETS
    only: str | None = None  # The one of `ONLY` to run; a student comes with its teacher.
    effort: float = 1.0
    hidden: tuple[tuple[int, ...], ...] = ((50,), (100, 100))
    batch_size: int = 100
    learning_rate: float = 1e-2  # Adam's, which falls to zero.
    ensemble_steps: tuple[int, ...] = (200, 2_000, 20_000)
    ensemble_size: int = 5
    dropout_steps: int = 20_000
    dropout_rates: tuple[float, ...] = (0.01, 0.1, 0.3)
    dropout_draws: int = 100


QUICK = UciPreset(trials=2, datasets=("yacht",), effort=0.1, ensemble_steps=(200, 2_000), dropout_steps=2_000)
PRESETS = {"automatic": UciPreset(), "quick": QUICK}


def reproduce(run: db.Run, preset: UciPreset, trials: int, seed: int) -> list[Row]:
    """Run what is asked for and not there yet; returns rows of all that the folder has, and the published ones."""
    rows: list[Row] = []
    for name in DATASETS:
        most = FEWER.get(name, 20)
        number = min(trials, most) if name in preset.datasets else 0
        records: dict[str, list[Row]] = {}
        for method, run_on in METHODS.items():
            paths = [run.path / name / f"trial-{trial}" / f"{method.replace(' ', '-')}.json" for trial in range(most)]
            wanted = number if preset.only in (None, method.split()[0]) else 0
            missing = [trial for trial, path in enumerate(paths[:wanted]) if not path.exists()]
            for trial, record in zip(missing, run_on(run, name, missing, preset, seed), strict=True):
                run.took(f"{name}/trial-{trial}/{method}", record.pop("seconds"))
                write_json(paths[trial], record)
            for record in (read_json(path) for path in paths if path.exists()):
                for kind, scores in record["scores"].items():
                    records.setdefault(kind, []).append(scores | {"settings": record["settings"]})
        for (method, trial_scores), metric in itertools.product(records.items(), METRICS):
            own = row(method, metric, [scores[metric] for scores in trial_scores]) | {"dataset": name}
            rows.append(own | {"settings": [scores["settings"] for scores in trial_scores]})
    for name in dict.fromkeys(one["dataset"] for one in rows):
        for (method, metric), (mean, error) in zip(QUOTED, PUBLISHED[name], strict=True):
            quoted = {"method": f"{method}, published", "metric": metric, "mean": mean, "se": error}
            rows.append(quoted | {"published": True, "dataset": name})
    return sorted(rows, key=lambda row: METRICS.index(row["metric"]))


def _distilled(run: db.Run, name: str, trials: list[int], preset: UciPreset, seed: int) -> Iterator[dict[str, Any]]:
    """What `darkbayes fit` makes of the training part of each split: how student and teacher score on the rest."""
    for trial in trials:
        table: Any = db.data.load(name)
        began, key = time.time(), jax.random.split(jax.random.key(seed + trial))[0]
        split = db.data.standard_splits(len(table.y), trial + 1)[trial]
        columns = from_columns(table.columns, source=name)
        prepared = prepare_table(columns, [table.target], task="regression", split=split)
        schema, held_out = prepared.schema, prepared.held_out
        assert isinstance(schema, TableSchema)
        target: Any = schema.target
        assert held_out is not None
        options = Options(time_budget=None, effort=preset.effort)
        fitted = fit(prepared.train, target, key, options, queries=table_queries(schema))
        predictions = {"student": fitted.predict(held_out.x), teacher_of(fitted): fitted.predict_teacher(held_out.x)}
        run.decide(f"{name}/trial-{trial}/student/diagnostics", fitted.diagnosis.as_dict)
        yield {
            "scores": {kind: scored(target.own_unit(said), prepared.truth) for kind, said in predictions.items()},
            "settings": f"{fitted.chosen.model}, target: {target.transform}",
            "seconds": time.time() - began,
        }


def _compared(
    method: str, run: db.Run, name: str, trials: list[int], preset: UciPreset, seed: int
) -> Iterator[dict[str, Any]]:
    """A comparator on several splits side by side, each with the settings that do best on its validation part."""
    if not trials:
        return
    table: Any = db.data.load(name)
    began, ensemble = time.time(), method == "ensemble"
    inner, whole = (split_table(table, max(trials) + 1, seed, on=on) for on in ("validation", "test"))
    key = named_key(jax.random.key(seed), f"{name} {method}")
    grid: Any = list(itertools.product(preset.hidden, preset.ensemble_steps if ensemble else preset.dropout_rates))

    def scores(place: int, splits: list[Split], trials: list[int]) -> list[dict[str, float]]:
        """With one pair of settings."""
        hidden, own = grid[place]
        model = Model(hidden, "relu", "input-noise" if ensemble else "one-noise", STANDARDISED.prior_precisions[0])
        posterior = make_posterior(splits[0].train, STANDARDISED, model)
        if ensemble:
            fitting, draws = Ensemble(trained(SGD, posterior, preset, own), preset.ensemble_size), 1
        else:
            fitting, draws = trained(Dropout, posterior, preset, preset.dropout_steps, rate=own), preset.dropout_draws
        return _scores(fitting, draws, {trial: jax.random.fold_in(key, trial) for trial in trials}, splits)

    held = [[score["log_likelihood"] for score in scores(place, inner, trials)] for place in range(len(grid))]
    best, done = np.argmax(held, axis=0), {}
    for place in np.unique(best):
        those = [trial for trial, choice in zip(trials, best, strict=True) if choice == place]
        done |= dict(zip(those, scores(place, whole, those), strict=True))
    for trial, choice in zip(trials, best, strict=True):
        hidden, own = grid[choice]
        words = f"{'-'.join(map(str, hidden))}, " + (f"{own} steps" if ensemble else f"rate {own}")
        yield {"scores": {method: done[trial]}, "settings": words, "seconds": (time.time() - began) / len(trials)}


def _scores(fitting: Any, draws: int, keys: dict[int, Key], splits: list[Split]) -> list[dict[str, float]]:
    """How a comparator scores on some splits; what becomes of one does not depend on which others there are."""
    fit_keys, draw_keys = jnp.stack([jax.random.split(key) for key in keys.values()]).T
    parts = [splits[trial] for trial in keys]
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(split.train for split in parts))
    fitted = jax.jit(jax.vmap(fitting.fit))(fit_keys, data)
    raise_if_diverged(fitted)
    made = [fitting.draws(key, at(place, fitted), draws) for place, key in enumerate(draw_keys)]
    return [
        scored(db.predict_draws(fitting.posterior, some, split.test.x), split.test.y, split.scale)
        for some, split in zip(made, parts, strict=True)
    ]


METHODS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
    "student": _distilled,
    "ensemble": partial(_compared, "ensemble"),
    "dropout mc": partial(_compared, "dropout mc"),
}


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    rows = [row for row in results["rows"] if row["metric"] == "log_likelihood"]
    return RunWords(
        title="Regression on the UCI data sets, beside what others published",
        lead="The customary benchmark for uncertainty in regression: the standard splits, scores in the original units "
        "of the data. Published numbers are of one hidden layer of fifty units (a hundred for protein); ours are of "
        "networks that were chosen on training rows, and the student is larger.",
        summary=f"By log likelihood: {ahead}." if (ahead := best_of_all(rows, names)) else "",
        trial=TRIAL,
        quick="a subset of the data sets and splits, and shorter runs",
        figure="How far from the best published",
        caption="Log likelihood per test example, less the best published. Whiskers are standard errors.",
        alt="For each data set, how far the log likelihood of each of our methods is from the best published.",
        draw=lambda: differences(rows, names),
    )


def differences(rows: list[Row], names: Names) -> figures.Drawing:
    """Log likelihood of our methods on each data set, less the best published; whiskers are standard errors."""
    published = {row["dataset"]: row["mean"] for row in rows if row["method"] == "best, published"}
    own = [row for row in rows if not row.get("published")]
    methods, places = list(dict.fromkeys(row["method"] for row in own)), list(published)
    label = "log likelihood per test example above the best published (nats); further right is better"
    with dataset_lines(places, label) as (figure, axis):
        colours = (figures.BLUE, figures.ORANGE, figures.GREEN, figures.PURPLE, figures.GREY)
        for number, (method, colour, marker) in enumerate(zip(methods, colours, "os^Dv", strict=False)):
            some = [row for row in own if row["method"] == method]
            gaps = [row["mean"] - published[row["dataset"]] for row in some]
            heights = [places.index(row["dataset"]) + 0.15 * (number - (len(methods) - 1) / 2) for row in some]
            how = {"fmt": marker, "ms": 5, "capsize": 2, "color": colour, "label": names.method(method)}
            axis.errorbar(gaps, heights, xerr=[row["se"] or 0.0 for row in some], **how)
        axis.axvline(0.0, color=figures.GREY, lw=1, ls="--")
    return figure
