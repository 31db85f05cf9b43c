"""The command line: thin, and the only place where a string names a thing."""

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from darkbayes.errors import Divergence, InvalidInput, RunError

EXAMPLES = """\
examples:
  darkbayes reproduce toy2d --preset quick       the paper's Table 2 in a minute
  darkbayes reproduce toy1d --out runs/mine      all trials, into a folder of one's choice
  darkbayes report runs/mine                     the report of a finished run, again
  darkbayes bench engine                         microseconds per step on this machine
"""


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper against HMC; writes results.json and report.html."""

    experiment: tyro.conf.Positional[Literal["toy2d", "toy1d"]]
    """which experiment"""
    preset: Literal["best", "literal", "quick"] = "best"
    """best: our settings. literal: the paper's Algorithm 1 and settings. quick: best, smaller, one trial"""
    trials: int | None = None
    """draws of the data; the preset's number by default"""
    seed: int = 0
    """the same seed gives the same bits on the same machine"""
    out: Path | None = None
    """the run's folder; runs/EXPERIMENT-PRESET by default"""
    resume: bool = False
    """go on with the run that the folder holds"""
    quiet: bool = False
    """no progress bars"""
    json: bool = False
    """print the results as JSON instead of a table"""

    def run(self) -> None:
        """Run it."""
        _require("numpyro", "matplotlib", "jinja2")
        from darkbayes import paper, report

        _check_seed(self.seed)
        out = self.out or Path("runs") / f"{self.experiment}-{self.preset}"
        results = paper.reproduce(
            self.experiment,
            self.preset,
            trials=self.trials,
            seed=self.seed,
            out=out,
            resume=self.resume,
            quiet=self.quiet,
        )
        page = report.write_report(out)
        _show(results, self.json)
        if not self.json:
            print(f"report: {page}")


@dataclass(frozen=True)
class Bench:
    """Measure the engine itself: speed, memory, resumption, import time."""

    what: tyro.conf.Positional[Literal["engine", "memory", "resume", "startup"]]
    """which measurement"""
    seed: int = 0
    """where random numbers start"""
    out: Path | None = None
    """a JSON file for the results"""
    quiet: bool = False
    """no progress lines"""
    json: bool = False
    """print the results as JSON instead of a table"""

    def run(self) -> None:
        """Run it."""
        from darkbayes import bench, files

        if self.out is not None and self.out.is_dir():
            raise InvalidInput(f"--out {self.out} is a folder: name a file")
        _check_seed(self.seed)
        results = bench.run(self.what, seed=self.seed, quiet=self.quiet)
        if self.out is not None:
            files.write_json(self.out, results)
        _show(results, self.json)


@dataclass(frozen=True)
class Report:
    """Write the report of a finished run again."""

    folder: tyro.conf.Positional[Path]
    """the run's folder"""
    figure: Path | None = None
    """write the paper's figure to this image file as well (.png, .svg or .pdf)"""

    def run(self) -> None:
        """Run it."""
        _require("matplotlib", "jinja2")
        from darkbayes import report

        print(report.write_report(self.folder))
        if self.figure is not None:
            report.write_figure(self.folder, self.figure)
            print(self.figure)


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise InvalidInput(f"--seed must lie in 0..{2**32 - 1}, not {seed}")


def _require(*modules: str) -> None:
    """Refuse to begin what would fail at its end for want of an optional library."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInput(f"{', '.join(missing)} is not installed: pip install 'darkbayes[all]'")


def _show(results: dict, as_json: bool) -> None:
    if as_json:
        print(json.dumps(results, indent=1))
    else:
        from darkbayes.report import terminal

        terminal(results)


Command = (
    Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)


def main(arguments: list[str] | None = None) -> None:
    """The entry point; exits with 2 for what the user can mend, 1 for a run that diverged, 130 when interrupted."""
    if (sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        from darkbayes.version import __version__

        print(f"darkbayes {__version__}")
        return
    command = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="darkbayes",
        description="Distil a Bayesian neural network into one ordinary network while it is being sampled.\n\n"
        + EXAMPLES,
        args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    try:
        command.run()
    except (InvalidInput, RunError, OSError) as problem:
        print(f"darkbayes: {problem}", file=sys.stderr)
        raise SystemExit(2) from None
    except Divergence as problem:
        print(f"darkbayes: {problem}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("darkbayes: interrupted; `reproduce` goes on from its last checkpoint with --resume", file=sys.stderr)
        raise SystemExit(130) from None
