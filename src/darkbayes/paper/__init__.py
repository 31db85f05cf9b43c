"""The paper's experiments, a file each."""

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

from darkbayes.errors import require_count
from darkbayes.paper import toy1d, toy2d
from darkbayes.runs import Run

EXPERIMENTS: dict[str, ModuleType] = {"toy2d": toy2d, "toy1d": toy1d}


def reproduce(
    experiment: str, preset: str, *, trials: int | None, seed: int, out: Path, resume: bool, quiet: bool
) -> dict[str, Any]:
    """Run an experiment in the folder `out` and return its results."""
    module = EXPERIMENTS[experiment]
    settings = module.PRESETS[preset]
    trials = settings.trials if trials is None else trials
    require_count("--trials", trials)
    config = {
        "experiment": experiment,
        "preset": preset,
        **dataclasses.asdict(settings),
        "trials": trials,
        "seed": seed,
    }
    run = Run(out, config, resume=resume, quiet=quiet)
    return run.finish(experiment, preset, module.reproduce(run, settings, trials, seed), seed)
