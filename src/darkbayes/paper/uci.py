"""Seven UCI data sets on the standard splits, one setting for all of them, beside published numbers of other methods.

    darkbayes reproduce uci --preset best       on two cores, 20 splits of each side by side
    darkbayes reproduce uci --preset auto       the same, with a teacher that tunes itself
    darkbayes reproduce uci --preset quick      two splits, shorter chains: minutes

The teacher has the benchmark's one hidden layer of 50 units, its student two of 100. The settings are about Boston's,
which were chosen there on validation parts, with shorter chains and larger batches.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import darkbayes as db
from darkbayes.paper import boston
from darkbayes.paper.common import Row
from darkbayes.paper.regression import TRIAL, Experiment, Preset, split_table
from darkbayes.report import Names, RunWords, figures
from darkbayes.runs import row

DATASETS = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")
BEST = replace(
    boston.BEST,
    noise=("sampled",),
    students=((100, 100),),
    batch_size=100,
    steps=40_000,
    burn_in=15_000,
    thin=50,
    settings=replace(boston.BEST.settings, update_every=2),
    comparators=None,
)
PRESETS = {
    "best": BEST,
    "auto": replace(BEST, step_size="auto"),
    "quick": replace(BEST, trials=2, steps=12_000, burn_in=4_000),
}
RIVALS = ("student", "pbp, published")  # Ours and the one to beat.
UNTOLD = (None,) * len(DATASETS)  # For numbers that were published without standard errors.
PUBLISHED: dict[str, dict[str, tuple[Sequence[float], Sequence[float | None]]]] = {
    "log_likelihood": {
        "vi": ((-2.90, -3.39, -2.39, 0.90, -2.89, -0.98, -3.43), (0.07, 0.02, 0.03, 0.01, 0.01, 0.01, 0.16)),
        "pbp": ((-2.57, -3.16, -2.04, 0.90, -2.84, -0.97, -1.63), (0.09, 0.02, 0.02, 0.01, 0.01, 0.01, 0.02)),
        "dropout mc": ((-2.40, -2.93, -1.21, 1.14, -2.80, -0.93, -1.25), (0.04, 0.02, 0.01, 0.01, 0.01, 0.01, 0.01)),
        "ensemble": ((-2.41, -3.06, -1.38, 1.20, -2.79, -0.94, -1.18), UNTOLD),
    },
    "rmse": {"pbp": ((3.01, 5.67, 1.80, 0.10, 4.12, 0.64, 1.02), UNTOLD)},
}
"""Means and standard errors by data set: VI and PBP from Hernandez-Lobato and Adams (2015), MC dropout with a clean
grid search from Mukhoti, Stenetorp and Gal (2018), ensembles from Lakshminarayanan et al. (2017); all with one hidden
layer of 50 units."""


def reproduce(run: db.Run, preset: Preset, trials: int, seed: int) -> list[Row]:
    """Run teacher and student on all splits of all data sets; returns their rows and the published ones."""
    if preset.splits != "standard":
        raise db.InvalidInput(f"--splits {preset.splits} does not apply to uci: leave it out")
    rows = []
    for place, name in enumerate(DATASETS):
        table = db.data.load(name)
        assert isinstance(table, db.data.Table)
        splits = split_table(table, preset, trials, seed)
        experiment = Experiment(run, name, preset, splits, jax.random.fold_in(jax.random.key(seed), place))
        scores = dict(zip(("sgld", "student"), experiment.distilled("sampled").values(), strict=True))
        for metric, published in PUBLISHED.items():
            for method, (means, errors) in published.items():
                quoted = {"method": f"{method}, published", "metric": metric, "mean": means[place], "se": errors[place]}
                rows.append(quoted | {"published": True, "dataset": name})
            rows += [row(method, metric, list(scores[method][metric])) | {"dataset": name} for method in scores]
    return sorted(rows, key=lambda row: tuple(PUBLISHED).index(row["metric"]))


def ahead(results: dict[str, Any]) -> tuple[list[str], int]:
    """The data sets on which the student's log likelihood is above its rival's, and how many there are in all."""
    rows = [row for row in results["rows"] if row["metric"] == "log_likelihood"]
    ours, theirs = ({row["dataset"]: row["mean"] for row in rows if row["method"] == rival} for rival in RIVALS)
    return [dataset for dataset, score in ours.items() if score > theirs[dataset]], len(ours)


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    above, number = ahead(results)
    return RunWords(
        title="Regression on the UCI data sets, beside what others published",
        lead="The customary benchmark for uncertainty in regression: one hidden layer of fifty units (the student has "
        "two of a hundred), the standard splits, scores in the original units of the data.",
        summary=f"The student, one network, has a higher log likelihood than PBP as published on {len(above)} of "
        f"{number} data sets" + (f" ({', '.join(above)})." if above else "."),
        trial=TRIAL,
        quick="a subset of the data sets or splits, and shorter runs",
        figure="How far from PBP",
        caption="Log likelihood per test example, less that of PBP as published. Whiskers are standard errors, the "
        "grey band that of PBP. Filled: ours; open: published.",
        alt="For each data set, how far the log likelihood of every method is from that of PBP.",
        draw=lambda: differences_from_pbp(results["rows"], names),
    )


def differences_from_pbp(rows: list[dict[str, Any]], names: Names) -> figures.Drawing:
    """Log likelihood on each data set, less that of PBP as it was published; whiskers are standard errors."""
    rows = [row for row in rows if row["metric"] == "log_likelihood"]
    rival = {row["dataset"]: row for row in rows if row["method"] == RIVALS[1]}
    others = [row["method"] for row in rows if row["method"] not in (*RIVALS, "sgld")]
    methods = list(dict.fromkeys((RIVALS[0], "sgld", *others)))
    places = {dataset: place for place, dataset in enumerate(rival)}
    with figures.panels(size=(figures.WIDTH, 1.2 + 0.6 * len(places))) as (figure, ((axis,),)):
        for dataset, place in places.items():
            error = rival[dataset]["se"] or 0.0
            axis.fill_betweenx([place - 0.4, place + 0.4], -error, error, color=figures.GREY, alpha=0.25, lw=0)
        colours = (figures.BLUE, figures.ORANGE, figures.GREY, figures.GREEN, figures.PURPLE)
        shifts = 0.15 * (np.arange(len(methods)) - (len(methods) - 1) / 2)
        for method, shift, colour, marker in zip(methods, shifts, colours, "osv^D", strict=False):
            own = [row for row in rows if row["method"] == method]
            differences = [row["mean"] - rival[row["dataset"]]["mean"] for row in own]
            heights, errors = zip(*((places[row["dataset"]] + shift, row["se"] or 0.0) for row in own), strict=True)
            fill = "white" if "published" in method else colour
            style = {"fmt": marker, "ms": 5, "capsize": 2, "color": colour, "mfc": fill, "label": names.method(method)}
            axis.errorbar(differences, heights, xerr=errors, **style)
        axis.axvline(0.0, color=figures.GREY, lw=1, ls="--")
        axis.set_yticks(list(places.values()), list(places))
        axis.invert_yaxis()
        axis.set_xlabel("log likelihood per test example above PBP's (nats); further right is better")
        figure.legend(loc="outside upper center", ncols=len(methods), fontsize=8)
    return figure
