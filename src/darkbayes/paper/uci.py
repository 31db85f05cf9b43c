"""Seven UCI data sets on the standard splits, one setting for all of them.

    darkbayes reproduce uci --preset best       on two cores, 20 splits of each side by side
    darkbayes reproduce uci --preset auto       the same, with a teacher that tunes itself
    darkbayes reproduce uci --preset quick      two splits, shorter chains: minutes

Test log likelihood and RMSE in the target's unit, beside the published numbers of other methods. Ours:
results/uci-best.json and results/uci-auto.json. The teacher has the benchmark's one hidden layer of 50 units, its
student two of 100. The settings are about Boston's, which were chosen there on validation parts, with shorter chains
and larger batches.
"""

from dataclasses import replace
from typing import Any

import jax

from darkbayes.data import Table, load
from darkbayes.errors import InvalidInput
from darkbayes.paper import boston
from darkbayes.paper.regression import Experiment, Preset, split_table
from darkbayes.runs import Run, row

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

PUBLISHED: dict[str, dict[str, tuple[tuple[float, float | None], ...]]] = {
    "log_likelihood": {
        "vi": ((-2.90, 0.07), (-3.39, 0.02), (-2.39, 0.03), (0.90, 0.01), (-2.89, 0.01), (-0.98, 0.01), (-3.43, 0.16)),
        "pbp": ((-2.57, 0.09), (-3.16, 0.02), (-2.04, 0.02), (0.90, 0.01), (-2.84, 0.01), (-0.97, 0.01), (-1.63, 0.02)),
        "dropout mc": (
            (-2.40, 0.04),
            (-2.93, 0.02),
            (-1.21, 0.01),
            (1.14, 0.01),
            (-2.80, 0.01),
            (-0.93, 0.01),
            (-1.25, 0.01),
        ),
        "ensemble": (
            (-2.41, None),
            (-3.06, None),
            (-1.38, None),
            (1.20, None),
            (-2.79, None),
            (-0.94, None),
            (-1.18, None),
        ),
    },
    "rmse": {
        "pbp": ((3.01, None), (5.67, None), (1.80, None), (0.10, None), (4.12, None), (0.64, None), (1.02, None)),
    },
}
"""Mean and standard error by data set: VI and PBP from Hernandez-Lobato and Adams (2015), MC dropout with a clean grid
search from Mukhoti, Stenetorp and Gal (2018), ensembles from Lakshminarayanan et al. (2017); all with one hidden layer
of 50 units."""


def reproduce(run: Run, preset: Preset, trials: int, seed: int) -> list[dict[str, Any]]:
    """Run teacher and student on all splits of all data sets; returns their rows and the published ones."""
    if preset.splits != "standard":
        raise InvalidInput(f"--splits {preset.splits} does not apply to uci: leave it out")
    rows = []
    for place, name in enumerate(DATASETS):
        table = load(name)
        assert isinstance(table, Table)
        splits = split_table(table, preset, trials, seed)
        experiment = Experiment(run, name, preset, splits, jax.random.fold_in(jax.random.key(seed), place))
        found = dict(zip(("sgld", "student"), experiment.distilled("sampled").values(), strict=True))
        for metric, published in PUBLISHED.items():
            for method, cells in published.items():
                mean, se = cells[place]
                quoted = {"method": f"{method}, published", "metric": metric, "mean": mean, "se": se}
                rows.append(quoted | {"published": True, "dataset": name})
            rows += [row(method, metric, list(found[method][metric])) | {"dataset": name} for method in found]
    return sorted(rows, key=lambda of: tuple(PUBLISHED).index(of["metric"]))
