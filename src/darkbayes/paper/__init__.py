"""The paper's experiments, a file each."""

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

from darkbayes.errors import InvalidInput, require_count
from darkbayes.paper import boston, mnist, toy1d, toy2d, uci
from darkbayes.paper.naming import METHODS, teacher
from darkbayes.report import Presentation
from darkbayes.report.run import ANY
from darkbayes.runs import Run

EXPERIMENTS: dict[str, ModuleType] = {"toy2d": toy2d, "toy1d": toy1d, "mnist": mnist, "boston": boston, "uci": uci}
"""Each has `PRESETS` and `reproduce`, and for people `NAMES` and `words`."""


def presentation(experiment: str, preset: str) -> Presentation:
    """How the runs of an experiment are shown; those of one that is not the paper's are shown plainly."""
    module = EXPERIMENTS.get(experiment)
    if module is None or preset not in module.PRESETS:
        return ANY
    methods = METHODS | {"sgld": teacher(module.PRESETS[preset])} | module.NAMES.methods
    return Presentation(dataclasses.replace(module.NAMES, methods=methods), module.words)


def reproduce(
    experiment: str,
    preset: str,
    *,
    trials: int | None,
    seed: int,
    out: Path,
    resume: bool,
    quiet: bool,
    **options: str | None,
) -> dict[str, Any]:
    """Run an experiment in the folder `out` and return its results; `options` replace settings of the preset."""
    module = EXPERIMENTS[experiment]
    if preset not in module.PRESETS:
        raise InvalidInput(f"--preset {preset} is not one of {experiment}'s: choose {', '.join(module.PRESETS)}")
    settings = module.PRESETS[preset]
    for name, value in options.items():
        if value is not None:
            if not hasattr(settings, name):
                raise InvalidInput(f"--{name} {value} does not apply to {experiment}: leave it out")
            settings = dataclasses.replace(settings, **{name: value})
    trials = settings.trials if trials is None else trials
    require_count("--trials", trials)
    config = {
        "experiment": experiment,
        "preset": preset,
        **dataclasses.asdict(settings),
        "trials": trials,
        "seed": seed,
    }
    if config["step_size"] == "auto":
        config |= dict.fromkeys(("steps", "burn_in", "thin"), "auto")  # Found along with it.
    run = Run(out, config, resume=resume, quiet=quiet)
    return run.finish(experiment, preset, module.reproduce(run, settings, trials, seed), seed)
