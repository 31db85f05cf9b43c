"""The paper's experiments, a file each."""

import dataclasses
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from darkbayes.errors import InvalidInput, require_count
from darkbayes.paper.common import TEACHERS
from darkbayes.report import Names, Presentation
from darkbayes.report.run import ANY
from darkbayes.runs import Run

COSTS = ("networks", "parameters", "predict_ms", "predict_ratio")
# Each has `PRESETS` and `reproduce`, and for people `words`.
EXPERIMENTS: dict[str, ModuleType] = {
    name: importlib.import_module(f"darkbayes.paper.{name}")
    for name in (
        *("toy2d", "toy1d", "mnist", "boston", "uci", "tables", "doubt"),
        *("conformal", "shift", "active", "bandits", "teachers", "cifar10", "fashion"),
    )
}

PIECE = ("trials", "datasets", "only")
"""What of an experiment on several data sets to run this time."""

NAMES = Names(
    methods={
        "sgd": "SGD (plug-in)",
        "hmc": "HMC",
        "sgld": "SGLD",
        "fisher_sgld": "Fisher SGLD",
        "fisher_sgld with momentum": "Fisher SGLD with momentum",
        "sghmc": "SGHMC",
        "sghmc cyclical": "SGHMC, cyclical",
        "sghmc cold": "SGHMC, colder",
        "sghmc cyclical cold": "SGHMC, cyclical and colder",
        "sgld cold": "SGLD, colder",
        "sgld with student": "SGLD and its student",
        "pbp": "PBP",
        "vi": "variational inference",
        "dropout": "dropout (plug-in)",
        "dropout mc": "MC dropout",
        "dropout mc, bbb": "MC dropout, Bayes by backprop",
        "bbb gaussian": "Bayes by backprop, Gaussian prior",
        "bbb mixture": "Bayes by backprop, mixture prior",
        "ensemble": "deep ensemble",
        "ensemble 8": "deep ensemble of 8",
        "student bald": "student, BALD",
        "student bald batch": "student, BALD with diversity",
        "student entropy": "student, entropy",
        "student random": "student, random labels",
        "sgld bald": "teacher's draws, BALD",
        "dropout bald": "MC dropout, BALD",
        "student thompson": "student, Thompson",
        "sgld thompson": "teacher's draws, Thompson",
        "neural linear": "NeuralLinear",
        "linear": "linear, Thompson",
        "dropout thompson": "MC dropout, Thompson",
        "mclmc": "MCLMC (teacher)",
        "catboost": "CatBoost (RMSEWithUncertainty)",
        "ngboost": "NGBoost",
        "gp": "Gaussian process",
        "boosting": "gradient boosting",
        "student guaranteed": "student, guaranteed",
        "mapie": "MAPIE",
        "mapie normalised": "MAPIE, normalised",
        "vi, published": "VI, published",
        "pbp, published": "PBP, published",
        "dropout mc, published": "MC dropout, published",
        "ensemble, published": "deep ensemble, published",
        "best, published": "best published",
        "swag": "SWAG",
        "bbb": "Bayes by backprop",
        "forest": "random forest",
        "student of fisher_sgld": "student of Fisher SGLD",
        "student of dropout mc": "student of MC dropout",
        "student of bbb": "student of Bayes by backprop",
        "student of swag": "student of SWAG",
        "student of ensemble": "student of the ensemble",
        "student of forest": "student of the forest",
        "student of boosting": "student of boosting",
        "student, near": "student that asked near the data alone",
        "student, seeking": "student that sought disagreement too",
    },
    metrics={
        "kl_from_hmc": "KL(HMC || method)",
        "kl_to_hmc": "KL(method || HMC)",
        "rhat_max": "largest split R-hat of the predictions",
        "ms_per_step": "ms per step",
        "predict_ms": "ms for 1,000 images",
        "predict_ratio": "times the student's time",
        "width": "width, or classes in a set",
        "auroc_total": "AUROC by total uncertainty",
        "auroc_epistemic": "AUROC by epistemic uncertainty",
        "aurc": "area under the risk-coverage curve (%)",
        "regret": "regret (chance = 100)",
        "labels_to_95": "labels to 95 % right",
        "average_error": "error of the chains' average over the predictive spread, median row",
        "average_error_large": "the same, but for one row in twenty",
        "halves_apart": "nats between the halves of the chains",
        "cpu_s": "processor seconds to fit",
        "predict_us": "microseconds a row to predict",
        "spread_ratio_within": "share of probes with a spread within a factor of 2 of the teacher's",
        "spread_ratio_low": "spread over the teacher's, 2.5% point",
        "spread_ratio_high": "spread over the teacher's, 97.5% point",
        "spread_ratio_least": "spread over the teacher's, least",
        "spread_ratio_most": "spread over the teacher's, most",
        "epistemic_ratio_within": "share with an epistemic spread within a factor of 2",
        "overlooked": "share of probes whose strangeness is overlooked",
        "gain_kept": "share kept of the teacher's gain in log likelihood over SGD",
    },
    tables={"ms_per_step": "What a step of training takes"}
    | dict.fromkeys(COSTS, "What it takes to store and to predict"),
    teachers=TEACHERS,
)


def presentation(experiment: str) -> Presentation:
    """How the runs of an experiment are shown; those of one that is not the paper's are shown plainly."""
    return Presentation(NAMES, EXPERIMENTS[experiment].words) if experiment in EXPERIMENTS else ANY


def reproduce(
    experiment: str, preset: str, *, trials: int | None, seed: int, out: Path, resume: bool, quiet: bool, **options: Any
) -> dict[str, Any]:
    """Run an experiment in the folder `out` and return its results; `options` replace settings of the preset."""
    module = EXPERIMENTS[experiment]
    if preset not in module.PRESETS:
        raise InvalidInput(f"--preset {preset} is not one of {experiment}'s: choose {', '.join(module.PRESETS)}")
    settings = module.PRESETS[preset]
    for name, value in options.items():
        if value is not None:
            given = value if isinstance(value, tuple) else (value,)
            if not hasattr(settings, name) or not set(given) <= set(getattr(module, name.upper(), given)):
                raise InvalidInput(f"--{name} {' '.join(given)} does not apply to {experiment}: leave it out")
            settings = dataclasses.replace(settings, **{name: value})
    trials = require_count("--trials", settings.trials if trials is None else trials)
    config = {"experiment": experiment, "preset": preset} | dataclasses.asdict(settings)
    config |= {"trials": trials, "seed": seed}
    if "datasets" in config:
        for name in PIECE:
            config.pop(name, None)  # A folder may be filled piece by piece.
    if config.get("step_size") == "auto":
        config |= dict.fromkeys(("steps", "burn_in", "thin"), "auto")  # Found along with it.
    run = Run(out, config, resume=resume, quiet=quiet)
    return run.finish(experiment, preset, module.reproduce(run, settings, trials, seed), seed)
