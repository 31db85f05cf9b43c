"""The command line: thin, and the only place where a string names a thing."""

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from darkbayes.errors import DataError, Divergence, InvalidInput, RunError

EXAMPLES = """\
examples:
  darkbayes reproduce toy2d --preset quick       the paper's Table 2 in a minute
  darkbayes reproduce toy1d --out runs/mine      all trials, into a folder of one's choice
  darkbayes report runs/mine                     the report of a finished run, again
  darkbayes bench engine                         microseconds per step on this machine
  darkbayes data get mnist                       download a data set; `data list` shows all
"""


@dataclass(frozen=True)
class Fit:
    """Fit a table (CSV, Parquet) or a folder of images by class; writes a student, its scores and a report."""

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE|FOLDER")]
    """a CSV or Parquet file, or a folder with a subfolder of images for each class"""
    target: str | None = None
    """the column to predict; not for images"""
    task: Literal["auto", "regression", "classification"] = "auto"
    """whether to predict a number or a class; by default the target's values tell"""
    time_budget: str = "5m"
    """how long sampling and distilling may take at most: 60s, 5m, 1h, or none"""
    ignore: tuple[str, ...] = ()
    """columns to leave out"""
    held_out: float = 0.2
    """the share of the rows that is kept for the report's scores; 0 to learn from all"""
    hidden: tuple[int, ...] = (50,)
    """widths of the hidden layers of the network that is sampled (tables)"""
    student_hidden: tuple[int, ...] = (100, 100)
    """widths of the student's hidden layers (tables)"""
    chains: int = 8
    """chains that sample side by side"""
    delimiter: str | None = None
    """what separates the fields of a CSV file; found out by default"""
    seed: int = 0
    """the same seed gives the same bits on the same machine, unless the time budget ends the fit"""
    out: Path | None = None
    """the run's folder; runs/NAME-TARGET by default"""
    resume: bool = False
    """go on with the run that the folder holds"""
    quiet: bool = False
    """no progress bars and notes"""
    json: bool = False
    """print the results as JSON instead of a table"""

    def run(self) -> None:
        """Run it."""
        _require("pyarrow", "onnx", "matplotlib", "jinja2")
        _check_seed(self.seed)
        from darkbayes.fit import Options, fingerprint, fit_folder, prepare_images, prepare_table
        from darkbayes.tables import read_image_folder, read_table

        options = Options(tuple(self.hidden), tuple(self.student_hidden), self.chains, _seconds(self.time_budget))
        if self.source.is_dir():
            if self.target is not None:
                raise InvalidInput(f"--target {self.target} does not apply to a folder of images: leave it out")
            prepared = prepare_images(
                read_image_folder(self.source), self.source, held_out=self.held_out, seed=self.seed
            )
        else:
            if self.target is None:
                raise InvalidInput(f"--target is needed: which column of {self.source} is to be predicted?")
            table = read_table(self.source, delimiter=self.delimiter)
            prepared = prepare_table(
                table, self.target, task=self.task, ignore=self.ignore, held_out=self.held_out, seed=self.seed
            )
        name = self.source.resolve().name if self.target is None else f"{self.source.stem}-{self.target}"
        out = self.out or Path("runs") / "".join(of if of.isalnum() or of in "._-" else "-" for of in name)
        config = {
            "source": self.source.name,
            "sha256": fingerprint(self.source),
            "target": prepared.schema.target.name,
            "task": self.task,
            "ignore": list(self.ignore),
            "held_out": self.held_out,
            "seed": self.seed,
        }
        if not (self.quiet or self.json):
            for note in prepared.notes:
                print(f"- {note}")
        results = fit_folder(prepared, config, options, self.seed, out, resume=self.resume, quiet=self.quiet)
        from darkbayes import report

        page = report.write_report(out)
        _show(results, self.json)
        if not self.json:
            print(f"student: {out / 'student.onnx'}\nreport: {page}")


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper; writes results.json and report.html."""

    experiment: tyro.conf.Positional[Literal["toy2d", "toy1d", "mnist", "boston", "uci"]]
    """which experiment"""
    preset: Literal["best", "literal", "auto", "quick"] = "best"
    """best: our settings. literal: the paper's Algorithm 1 and settings. auto: best, with a teacher that tunes itself
    (toy2d, toy1d, uci). quick: best, smaller, one or two trials"""
    trials: int | None = None
    """draws of the data, splits of it, or runs on it; the preset's number by default"""
    on: Literal["test", "validation"] | None = None
    """what to score on (mnist, boston, uci): the test part, or a part of the rest that settings may be chosen by"""
    splits: Literal["standard", "paper"] | None = None
    """which splits (boston): the standard ones by default, or random ones of the paper's sizes"""
    only: Literal["dropout", "bbb", "ensemble"] | None = None
    """one kind of comparator to fit, and nothing else (mnist)"""
    seed: int = 0
    """the same seed gives the same bits on the same machine"""
    out: Path | None = None
    """the run's folder; runs/EXPERIMENT-PRESET by default"""
    resume: bool = False
    """go on with the run that the folder holds"""
    report: bool = True
    """whether to write report.html; `darkbayes report` does so later, on another machine as well"""
    quiet: bool = False
    """no progress bars"""
    json: bool = False
    """print the results as JSON instead of a table"""

    def run(self) -> None:
        """Run it."""
        _require(*["numpyro"] * (self.experiment not in ("mnist", "uci")), *["matplotlib", "jinja2"] * self.report)
        from darkbayes import paper, report

        _check_seed(self.seed)
        name = f"{self.experiment}-{self.preset}" + (f"-{self.only}" if self.only else "")
        out = self.out or Path("runs") / name
        results = paper.reproduce(
            self.experiment,
            self.preset,
            trials=self.trials,
            seed=self.seed,
            out=out,
            resume=self.resume,
            quiet=self.quiet,
            on=self.on,
            splits=self.splits,
            only=self.only,
        )
        page = report.write_report(out) if self.report else None
        _show(results, self.json)
        if (line := report.choices_line(results)) and not self.json:
            print(f"teacher: {line}")
        if (line := report.chains_line(results)) and not self.json:
            print(f"chains: {line}")
        if page and not self.json:
            print(f"report: {page}")


UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
"""Of durations, in seconds."""

FIGURED = ("samplers", "targets")
"""Benchmarks with a figure; their truth is NUTS."""


@dataclass(frozen=True)
class Bench:
    """Measure the engine (speed, memory, resumption, import time) or the service, or compare samplers and targets."""

    what: tyro.conf.Positional[Literal["engine", "memory", "resume", "samplers", "service", "startup", "targets"]]
    """which measurement; samplers and targets take a quarter of an hour"""
    seed: int = 0
    """where random numbers start"""
    out: Path | None = None
    """a JSON file for the results"""
    figure: Path | None = None
    """an image file for the figure (samplers, targets): .png, .svg or .pdf"""
    quiet: bool = False
    """no progress lines"""
    json: bool = False
    """print the results as JSON instead of a table"""

    def run(self) -> None:
        """Run it."""
        from darkbayes import bench, files, report

        _require(*["numpyro"] * (self.what in FIGURED), *["matplotlib"] * (self.figure is not None))
        if self.figure is not None:
            if self.what not in FIGURED:
                raise InvalidInput(f"--figure {self.figure} does not apply to {self.what}: leave it out")
            report.check_figure(self.figure)
        if self.out is not None and self.out.is_dir():
            raise InvalidInput(f"--out {self.out} is a folder: name a file")
        _check_seed(self.seed)
        results = bench.run(self.what, seed=self.seed, quiet=self.quiet)
        if self.out is not None:
            files.write_json(self.out, results)
        if self.figure is not None:
            report.write_bench_figure(results, self.figure)
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


@dataclass(frozen=True)
class DataList:
    """List the data sets by name: what they are, and whether they ship, are cached or need a download."""

    json: bool = False
    """print the list as JSON instead of a table"""

    def run(self) -> None:
        """Run it."""
        from darkbayes.data import CATALOGUE, whereabouts

        fields = ("name", "task", "rows", "features", "description", "home")
        rows = [
            {field: getattr(dataset, field) for field in fields} | {"where": whereabouts(dataset)}
            for dataset in CATALOGUE.values()
        ]
        if self.json:
            print(json.dumps(rows, indent=1))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("name", "task", "rows x features", "where"):
            table.add_column(heading, no_wrap=True, justify="right" if "x" in heading else "left")
        table.add_column("description")
        for row in rows:
            size = f"{row['rows']:,} x {row['features']}"
            table.add_row(row["name"], row["task"], size, row["where"], row["description"])
        Console(highlight=False).print(table)


@dataclass(frozen=True)
class DataGet:
    """Get a data set, check it and say where its files are and who served them."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """which data set; `darkbayes data list` shows all"""
    folder: Path | None = None
    """read the files in this folder and nowhere else"""
    offline: bool = False
    """read the cache and nothing else"""
    out: Path | None = None
    """copy the files into this folder: a table as NAME.csv, images as they are published"""
    quiet: bool = False
    """no progress bars and notes"""

    def run(self) -> None:
        """Run it."""
        from darkbayes import data, files

        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise InvalidInput(f"--out {self.out} is a file: name a folder")
        dataset = data.find(self.name)
        fetched = data.fetch(dataset, folder=self.folder, offline=self.offline, quiet=self.quiet)
        paths = fetched.paths
        if self.out is not None:
            # A table is wanted for reading, images are wanted as every other program expects them.
            paths = tuple(self.out / (path.name.removesuffix(".gz") if dataset.ships else path.name) for path in paths)
            for source, path in zip(fetched.paths, paths, strict=True):
                files.write_bytes(path, fetched.contents[path.name] if dataset.ships else source.read_bytes())
        print(f"{dataset.name} from {fetched.source}, checked:")
        for path in paths:
            print(f"  {path}")


@dataclass(frozen=True)
class Data:
    """List the data sets that go by a name, or get one."""

    command: (
        Annotated[DataList, tyro.conf.subcommand("list", prefix_name=False)]
        | Annotated[DataGet, tyro.conf.subcommand("get", prefix_name=False)]
    )

    def run(self) -> None:
        """Run it."""
        self.command.run()


def _seconds(text: str) -> float | None:
    """A duration in seconds, None for "none".

    >>> _seconds("60s"), _seconds("1.5m"), _seconds("none")
    (60.0, 90.0, None)
    """
    if text == "none":
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        return float(number) * UNITS[unit]
    except ValueError:
        raise InvalidInput(f"--time-budget {text} is no duration: write 60s, 5m, 1h or none") from None


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
    Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[tyro.conf.OmitArgPrefixes[Data], tyro.conf.subcommand("data")]
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
    except (InvalidInput, RunError, DataError, OSError) as problem:
        print(f"darkbayes: {problem}", file=sys.stderr)
        raise SystemExit(2) from None
    except Divergence as problem:
        print(f"darkbayes: {problem}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("darkbayes: interrupted; `reproduce` goes on from its last checkpoint with --resume", file=sys.stderr)
        raise SystemExit(130) from None
