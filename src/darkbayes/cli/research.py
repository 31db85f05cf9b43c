"""Commands for research: the paper's experiments, measurements, and data sets that go by a name."""

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from darkbayes.cli import common
from darkbayes.cli.common import Flag, Json, Number, OptionalFile, OptionalFolder, Quiet, Resume, value
from darkbayes.errors import InvalidInput

Experiment = Literal[
    "toy2d", "toy1d", "mnist", "boston", "uci", "tables", "doubt", "conformal", "shift", "active", "bandits",
    "teachers", "cifar10", "fashion",
]  # fmt: skip
Measurement = Literal[
    "backbone", "cluster", "compiling", "digits", "engine", "export", "faults", "kills", "memory", "mesh", "predict",
    "resume", "samplers", "scale", "service", "startup", "streaming", "targets", "truth",
]  # fmt: skip


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper."""

    experiment: tyro.conf.Positional[Experiment]
    """the experiment to run"""
    preset: Annotated[
        Literal["best", "literal", "augmented", "auto", "automatic", "default", "quick"] | None,
        value(None, default=False),
    ] = None
    """best: our settings. automatic (uci, doubt), default (tables, conformal): what `fit` does. One of these is the
    default. literal: the paper's Algorithm 1 and settings. auto: best, with a teacher that tunes itself (toy2d, toy1d).
    augmented (cifar10): best, on images cropped and mirrored at random. quick: smaller"""
    trials: Annotated[int | None, value("NUMBER", default=False)] = None
    """draws of the data, splits of it, or runs on it; the preset's number by default"""
    on: Literal["test", "validation"] | None = None
    """what to score on (mnist, boston, teachers, cifar10, fashion): the test part, or a part of the rest that settings
    are chosen by"""
    splits: Literal["standard", "paper"] | None = None
    """which splits (boston): the standard ones by default, or random ones of the paper's sizes"""
    datasets: Annotated[tuple[str, ...], value("NAME ...", default=False)] = ()
    """which data sets (uci, tables, doubt, conformal, bandits, teachers); others, and more trials, may be added to the
    same folder by --resume"""
    only: Literal["student", "dropout", "bbb", "ensemble"] | None = None
    """one kind of method to fit, and nothing else (mnist: a comparator; uci; cifar10 and fashion: beside SGD)"""
    seed: Number = 0  # the same seed gives the same bits on the same machine
    out: OptionalFolder = None  # the run's folder; runs/EXPERIMENT-PRESET by default
    resume: Resume = False
    report: Annotated[bool, value(None, default=False)] = True
    """write no report.html; `darkbayes report` does so later, on another machine as well"""
    quiet: Quiet = False
    json: Json = False

    def run(self) -> None:
        with_hmc = self.experiment in ("toy2d", "toy1d", "boston")
        common.require(*["numpyro"] * with_hmc, *["matplotlib", "jinja2"] * self.report)
        from darkbayes import paper, report
        from darkbayes.compiled import keep_compiled

        common.check_seed(self.seed)
        common.require_device()
        keep_compiled()
        preset = self.preset or next(iter(paper.EXPERIMENTS[self.experiment].PRESETS))
        name = f"{self.experiment}-{preset}" + (f"-{self.only}" if self.only else "")
        out = self.out or Path("runs") / name
        options = {name: getattr(self, name) for name in ("trials", "seed", "resume", "quiet", "on", "splits", "only")}
        results = paper.reproduce(self.experiment, preset, out=out, datasets=self.datasets or None, **options)
        presentation = paper.presentation(self.experiment)
        page = report.write_report(out, presentation) if self.report else None
        common.show(results, self.json, presentation.names)
        lines = {"teacher": report.choices_line(results), "chains": report.chains_line(results), "report": page}
        for name, line in lines.items():
            if line and not self.json:
                print(f"{name}: {line}")


REPOSITORY = Path(__file__).parents[3]  # Where `benchmarks/` lies, if this is a checkout.


def benchmark_module(name: str) -> Any:
    """A module of the benchmarks, which are no part of the installed package."""
    if Path(__file__).parents[2] != REPOSITORY / "src" or not (REPOSITORY / "benchmarks").is_dir():
        remedy = "clone the repository, then `pip install -e '.[all]'` in its folder"
        raise InvalidInput(f"benchmarks come with a checkout, not with the installed package: {remedy}")
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    return importlib.import_module(name)


@dataclass(frozen=True)
class Bench:
    """Measure what the package costs, or compare samplers; in a checkout."""

    what: tyro.conf.Positional[Measurement]
    """what to measure; targets, truth, backbone and predict take ten minutes, kills twenty, samplers and digits half an
    hour and more, faults two hours"""
    seed: Number = 0  # where random numbers start
    out: OptionalFile = None  # a JSON file for the results
    figure: OptionalFile = None  # an image file for the figure (samplers, targets): .png, .svg or .pdf
    seconds: Annotated[float | None, value("SECONDS", default=False)] = None
    """how long attackers stay (service); ten minutes by default"""
    quiet: Quiet = False
    json: Json = False

    def run(self) -> None:
        benchmark_module("benchmarks.command").run(**vars(self))


@dataclass(frozen=True)
class DataList:
    """List the data sets by name: what they are, and whether they ship, are cached or need a download."""

    json: Flag = False  # print the list as JSON instead of a table

    def run(self) -> None:
        from darkbayes.data.sources import CATALOGUE, whereabouts

        fields = ("name", "task", "rows", "features", "description", "home")
        sets = CATALOGUE.values()
        if self.json:
            rows = [{name: getattr(one, name) for name in fields} | {"where": whereabouts(one)} for one in sets]
            print(json.dumps(rows, indent=1))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("name", "task", "rows x features", "where"):
            table.add_column(heading, no_wrap=True, justify="right" if "x" in heading else "left")
        table.add_column("description")
        for one in sets:
            table.add_row(one.name, one.task, f"{one.rows:,} x {one.features}", whereabouts(one), one.description)
        Console(highlight=False).print(table)


@dataclass(frozen=True)
class DataGet:
    """Get a data set, check it and say where its files are and who served them.

    examples:
      darkbayes data get boston --out .
      darkbayes data get mnist
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """the data set; `darkbayes data list` shows all"""
    folder: OptionalFolder = None  # read the files in this folder and nowhere else
    offline: Flag = False  # read the cache and nothing else
    out: OptionalFolder = None  # copy the files into this folder: a table as NAME.csv, images as they are published
    quiet: Quiet = False

    def run(self) -> None:
        from darkbayes import files
        from darkbayes.data.sources import fetch, find

        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise InvalidInput(f"--out {self.out} is a file: name a folder")
        dataset = find(self.name)
        fetched = fetch(dataset, folder=self.folder, offline=self.offline, quiet=self.quiet)
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
class DataCommand:
    """List the data sets that go by a name, or get one."""

    command: (
        Annotated[DataList, tyro.conf.subcommand("list", prefix_name=False)]
        | Annotated[DataGet, tyro.conf.subcommand("get", prefix_name=False)]
    )

    def run(self) -> None:
        self.command.run()
