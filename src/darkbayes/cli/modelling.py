"""Commands for one's own data: from a file to a student, and what a student is for.

`predict`, `evaluate` and `serve` need the exported student and no JAX. The help of an option stands beside it in a
comment, or under it in a string.
"""

import contextlib
import dataclasses
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from darkbayes.cli import common
from darkbayes.cli.common import Flag, Json, Number, OptionalFile, OptionalFolder, Quiet, Resume, value
from darkbayes.errors import InvalidInput, require_count, require_level
from darkbayes.outcomes import OUTCOMES, ClassTarget
from darkbayes.outcomes.base import AUTO
from darkbayes.tables.guessing import KINDS, Wishes

Required = tyro.conf.Positional[Path]
RunFolder = Annotated[Required, value("RUN", help="the run's folder")]
Student = Annotated[Required, value("RUN", help="a run's folder, or an exported .onnx file")]
OnBad = Annotated[
    Literal["refuse", "skip"],
    value(None, help="what to do with rows that cannot be read: refuse the file, or skip them and say which"),
]
Delimiter = Annotated[
    str | None,
    value("CHARACTER", default=False, help="what separates the fields of a CSV file; detected by default"),
]
Encoding = Annotated[
    str | None,
    value("NAME", default=False, help="of a CSV or JSON file, such as utf-8, cp1252 or utf-16; detected by default"),
]
Sheet = Annotated[str | None, value("NAME", default=False, help="of a spreadsheet; the first by default")]
Query = Annotated[
    str | None,
    value("SQL", default=False, help="what to read of a SQLite or DuckDB file; all of its only table by default"),
]
Names = Annotated[tuple[str, ...], value("COLUMN ...", default=False)]
Files = Annotated[tyro.conf.Positional[tuple[Path, ...]], value("FILE ...", default=False)]
GUESSES = (*KINDS, "decimal", "day_first", "missing", "transform")  # Options that overrule what is guessed of a table.
LAYOUT = ("delimiter", "encoding", "sheet", "query")  # Options that say how a file is laid out.
BACKBONE = ("backbone_size", "backbone_center", "backbone_scale", "backbone_output")  # What is said of a backbone.
PLACE = ("distributed", "coordinator", "processes", "process")  # What a process of several is told.
ASIDE = (*LAYOUT[:2], *PLACE, "data_devices", "out", "resume", "quiet", "json")
"""Options of `Fit` that do not tell one run from another."""
FORMULAS = "leave text in CSV that begins with = + - or @ as it is, which a spreadsheet may run"
KeepFormulas = Annotated[bool, value(None, default=False, help=FORMULAS)]


@dataclass(frozen=True)
class Fit:
    """Fit a table or a folder of images: a student, its scores, a report."""

    source: Annotated[tyro.conf.Positional[tuple[Path, ...]], value("FILE|FOLDER ...", default=False)]
    """a table, or several with the same columns: CSV, Parquet, xlsx, JSON, Arrow, SQLite or DuckDB; a folder of Parquet
    files; or one with a subfolder of images for each class"""
    target: Annotated[tuple[str, ...], value("COLUMN ...", default=False)] = ()
    """the column to predict, or several columns of numbers; not for images"""
    task: Annotated[str, value("TASK")] = AUTO
    """what the target is: classification, counts or regression; by default, inferred from its values"""
    likelihood: Annotated[str | None, value("NAME", default=False)] = None
    """the distribution that the sampled network predicts: one-noise or input-noise of numbers, negative-binomial or
    poisson of counts, softmax of classes; by default the most general, unless another predicts rows set aside clearly
    better"""
    head: Annotated[str | None, value("NAME", default=False)] = None
    """the student's distribution of numbers: mixture (the default) or gaussian"""
    effort: Annotated[float, value("TIMES")] = 1.0
    """how much work to do, as a multiple of the usual amount, which follows from the size of the table"""
    time_budget: Annotated[str, value("TIME")] = "15m"
    """after about how long sampling and learning end, even if work is left: 60s, 5m, 1h, or none; some is done in any
    case, and scores and the report follow"""
    ignore: Names = ()  # columns to leave out
    number: Names = ()  # columns to read as numbers, whatever they look like
    category: Names = ()  # columns to read as categories
    date: Names = ()
    """columns to read as dates; numbers such as 20210304, days as spreadsheets count them (43833), or seconds since
    1970, too"""
    text: Names = ()  # columns of free text whose words are to be read, by hashes; left out by default
    decimal: Annotated[str | None, value("MARK", default=False)] = None
    """the decimal mark, a point or a comma; detected by default"""
    day_first: Annotated[Literal["auto", "yes", "no"], value(None)] = "auto"
    """whether 3/4/2021 is in April; detected by default"""
    missing: Annotated[tuple[str, ...], value("TEXT ...", default=False)] = ()
    """texts that say that a value is missing; in columns of text all others are values then, such as NA. By default the
    usual ones, NA, None, ?, - and others; "" for none but empty cells"""
    transform: Annotated[Literal["auto", "none", "log"], value(None)] = "auto"
    """whether a number is modelled as it is (none) or by its logarithm; by default whichever a quick trial favours"""
    weights: Annotated[str | None, value("COLUMN", default=False)] = None
    """the column that says what each row counts for in training: 2 counts a row twice, 0 leaves it out"""
    class_weight: Annotated[str | None, value("balanced", default=False)] = None
    """what rows of each class count for: balanced for all classes alike, as if they were equally frequent"""
    held_out: Annotated[float, value("SHARE")] = 0.2
    """the share of the rows that is kept for the report's scores; 0 to learn from all"""
    guarantee: Annotated[str, value("LEVEL")] = "auto"
    """the share of new rows whose truth the intervals, or sets of classes, are to hold, whatever the model: the rows
    held out calibrate them. auto: 0.9 if at least 100 are held out; or none"""
    hidden: Annotated[tuple[int, ...], value("WIDTH ...", default=False)] = ()
    """widths of the hidden layers of the network that is sampled; by default the simplest that predict rows set
    aside about best"""
    activation: Annotated[str | None, value("NAME", default=False)] = None
    """activation of the hidden layers: silu (the default), relu, tanh, gelu and others"""
    student_hidden: Annotated[tuple[int, ...], value("WIDTH ...")] = (128, 128, 128, 128)
    """widths of the student's hidden layers"""
    network: Annotated[Literal["auto", "mlp", "cnn", "resnet"], value(None)] = "auto"
    """what kind of network reads images: by default a cnn, on a GPU a resnet; --hidden and --student-hidden are then
    the channels of convolutions and the width of a last layer, or depth and channels of a resnet"""
    backbone: OptionalFile = None
    """an ONNX file of a trained network that makes features of images, on which the sampled network and the student
    then work; the student's file holds it"""
    backbone_size: Annotated[tuple[int, ...], value("PIXELS ...", default=False)] = ()
    """height and width of the images that it reads, or one number for both; by default what the file says"""
    backbone_center: Annotated[tuple[float, ...], value("NUMBER ...", default=False)] = ()
    """what it expects to be subtracted from values of 0 to 255, one number or one for each channel; by default the mean
    of ImageNet for colours, 0 for grey"""
    backbone_scale: Annotated[tuple[float, ...], value("NUMBER ...", default=False)] = ()
    """what values are then divided by; by default the standard deviation of ImageNet for colours, 255 for grey"""
    backbone_output: Annotated[str | None, value("NAME", default=False)] = None
    """the value of its graph that holds the features, where it has several outputs or an earlier one is wanted"""
    memory: Annotated[str | None, value("SIZE", default=False)] = None
    """what the rows of a table may take in memory, such as 2GB; a CSV or Parquet file that would take more is streamed
    from a copy in the run's folder. By default half of the machine's memory"""
    chains: Number = 8  # chains that sample side by side; as many again are run if their average is known too roughly
    delimiter: Delimiter = None
    encoding: Encoding = None
    sheet: Sheet = None
    query: Query = None
    seed: Number = 0  # the same seed gives the same bits on the same machine, unless the time budget ends the fit
    out: OptionalFolder = None  # the run's folder; runs/NAME-TARGET by default
    distributed: Flag = False
    """be one of several processes that share the chains, each with the same command and a folder that all see; its
    place is read from the environment: Slurm, Open MPI, Kubernetes, Kubeflow"""
    coordinator: Annotated[str | None, value("HOST:PORT", default=False)] = None
    """the address of process 0, instead of what the environment says; with --processes and --process"""
    processes: Annotated[int | None, value("NUMBER", default=False)] = None  # how many processes there are
    process: Annotated[int | None, value("NUMBER", default=False)] = None  # which of them this one is, from 0
    data_devices: Number = 1  # of several processes: how many devices share the rows of each chain
    resume: Resume = False
    quiet: Quiet = False
    json: Json = False

    def run(self) -> None:
        if not self.distributed and all(getattr(self, name) is None for name in PLACE[1:]):
            if self.data_devices != 1:
                raise InvalidInput(f"--data-devices {self.data_devices} is for several processes: add --distributed")
            return self._run()
        common.require("jax")
        from darkbayes import processes

        processes.plainly()
        processes.join(self.coordinator, self.processes, self.process)
        with processes.noticing_loss():
            quiet = self.quiet or not processes.first()
            dataclasses.replace(self, distributed=True, quiet=quiet)._run()
            processes.gather(np.zeros(1))  # Nobody leaves before all is written.

    def _run(self) -> None:
        common.require("pyarrow", "onnx", "onnxruntime", "matplotlib", "jinja2")
        common.check_seed(self.seed)
        time_budget = common.seconds(self.time_budget)
        if not 0.0 <= self.held_out < 1.0:
            raise InvalidInput(f"--held-out must be a share from 0 to below 1, such as 0.2, not {self.held_out}")
        if self.task not in OUTCOMES.tasks:
            raise InvalidInput(f"--task must be one of {', '.join(OUTCOMES.tasks)}, not {self.task}")
        if self.class_weight not in (None, "balanced"):
            raise InvalidInput(f"--class-weight must be balanced, not {self.class_weight}")
        if not self.source:
            raise InvalidInput("no file is named: give a table, or a folder of images")
        for path in self.source:
            if not path.exists():
                raise InvalidInput(f"{path} does not exist: name a file that holds a table, or a folder of images")
        from darkbayes.compiled import keep_compiled
        from darkbayes.files import read_json
        from darkbayes.fit import Options, fingerprint, fit_folder, for_images, guarantee_level
        from darkbayes.progress import spoken
        from darkbayes.report import caution_lines, chains_line, guarantee_line, write_report
        from darkbayes.runs import check_folder
        from darkbayes.tables.decoding import read_again
        from darkbayes.tables.schema import TableSchema

        first = self.source[0]
        name = "-".join([first.stem, *self.target]) if self.target else first.resolve().name
        name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
        out = self.out or Path("runs") / name
        check_folder(out, resume=self.resume)
        common.require_device()
        keep_compiled()
        given = ("activation", "student_hidden", "chains", "effort", "likelihood", "head")
        chosen: Any = {name: getattr(self, name) for name in given} | {"hidden": self.hidden or None}
        options = Options(time_budget=time_budget, **chosen)
        with contextlib.ExitStack() as opened:
            sources = tuple(opened.enter_context(read_again(path)) for path in self.source)
            sha256 = " ".join(map(fingerprint, sources))
            prepared = self._prepared(sources, out, sha256)
        if not isinstance(prepared.schema, TableSchema):
            data = prepared.train.x
            options, note = for_images(options, data.shape[1:], len(data), self.network)
            prepared.notes.append(note)
        level = guarantee_level(self.guarantee, prepared.facts["held_out"])
        common.tell(prepared.notes, self.quiet)
        # What tells one run from another; the names of folders do not, nor what nobody said of the columns.
        said = {name: setting for name, setting in asdict(self).items() if name not in ASIDE}
        optional = (*GUESSES, "network", "backbone", "memory", *BACKBONE, *LAYOUT)
        unsaid = {name for name in optional if said.get(name) in ((), None, AUTO)}
        config = {name: setting for name, setting in said.items() if name not in unsaid}
        config |= {"source": ", ".join(path.name for path in self.source)}
        config |= {"sha256": sha256}
        if prepared.backbone is not None:
            config |= {"backbone": prepared.facts["backbone"]["name"], "backbone_sha256": prepared.backbone.key}
        how: Any = {"guarantee": level, "resume": self.resume, "quiet": self.quiet}
        with spoken(not self.quiet):
            results = fit_folder(prepared, config, options, self.seed, out, mesh=self._mesh(config), **how)
        if not results:
            return
        page = write_report(out)
        common.show(results, self.json)
        if not self.json:
            print(f"chains: {chains_line(results)}")
            if promised := guarantee_line(read_json(out / "fit.json")):
                print(f"guarantee: {promised}")
            for caution in caution_lines(out):
                print(f"caution: {caution}")
            print(f"student: {out / 'student.onnx'}\nreport: {page}")

    def _mesh(self, config: dict[str, Any]) -> Any:
        """The devices of all processes, once these are found to be about the same; None for a process alone."""
        if not self.distributed:
            return None
        import jax

        from darkbayes.mesh import device_mesh
        from darkbayes.processes import require_alike
        from darkbayes.version import __version__

        here = {"device": jax.devices()[0].device_kind, "data_devices": self.data_devices, "resume": self.resume}
        require_alike(darkbayes=__version__, jax=jax.__version__, **here, **config)
        devices, share = jax.device_count(), require_count("--data-devices", self.data_devices)
        those = f"{devices} devices of {jax.process_count()} processes"
        if devices % share:
            raise InvalidInput(f"--data-devices {share} must divide the {those}")
        groups = devices // share
        if self.chains % groups:
            those += f", --data-devices {share} to a chain" if share > 1 else ""
            chains, share = -(-self.chains // groups) * groups, devices // math.gcd(devices, self.chains)
            remedy = f"use --chains {chains}, or let devices share the rows of each chain (--data-devices {share})"
            raise InvalidInput(f"--chains {self.chains} cannot be divided among {those}: {remedy}")
        return device_mesh(share)

    def _prepared(self, sources: tuple[Path, ...], out: Path, sha256: str = "") -> Any:
        from darkbayes.export.backbone import MOST_SIDE, load_backbone
        from darkbayes.fit import (
            MEMORY,
            STORE,
            loaded_size,
            machine_memory,
            prepare_features,
            prepare_images,
            prepare_streamed,
            prepare_table,
        )
        from darkbayes.tables.images import list_image_folder, read_image_folder
        from darkbayes.tables.opening import parts_in
        from darkbayes.tables.reading import read_table

        split: Any = {"held_out": self.held_out, "seed": self.seed}
        first = sources[0]
        if first.is_dir() and not parts_in(first):
            tables = ("memory", "target", "ignore", *GUESSES, "weights", "class_weight", *LAYOUT)
            self._refuse_given(tables, "a folder of images")
            if len(sources) > 1:
                raise InvalidInput(f"{first} is a folder of images: name no other with it")
            if not ClassTarget.answers(self.task):
                raise InvalidInput(f"--task {self.task} does not apply to a folder of images: they are classified")
            ClassTarget.check_kinds(self.likelihood, self.head)
            if self.backbone is None:
                self._refuse_given(BACKBONE, "a folder of images without a --backbone")
                return prepare_images(read_image_folder(first), first, **split)
            if self.network != AUTO:
                raise InvalidInput(f"--network {self.network} does not go with a --backbone: leave it out")
            files = list_image_folder(first)
            how: Any = {name.removeprefix("backbone_"): getattr(self, name) or None for name in BACKBONE}
            backbone = load_backbone(self.backbone, images=files.size(MOST_SIDE), **how)
            return prepare_features(files, first, backbone, out, quiet=self.quiet, **split)
        self._refuse_given(("network", "backbone", *BACKBONE), "a table")
        if not self.target:
            raise InvalidInput(f"--target is needed: which column of {self.source[0]} is to be predicted?")
        task: Any = {name: getattr(self, name) for name in ("task", "likelihood", "head", "transform")}
        layout: Any = {name: getattr(self, name) for name in LAYOUT}
        memory = MEMORY * machine_memory() if self.memory is None else common.size(self.memory)
        if (out / STORE).exists() or loaded_size(sources) > memory:
            apart = ("weights", "class_weight", "distributed")
            self._refuse_given(apart, f"a table of more than {memory / 1e9:.3g} GB (--memory)")
            how = task | split | {"ignore": self.ignore, "wishes": self._wishes(), "layout": layout}
            return prepare_streamed(sources, self.target, out, memory=memory, sha256=sha256, **how)
        table = read_table(sources, wishes=self._wishes(), **layout)
        counts: Any = {"weights": self.weights, "balanced": self.class_weight is not None}
        return prepare_table(table, self.target, ignore=self.ignore, **task, **split, **counts)

    def _refuse_given(self, names: tuple[str, ...], source: str) -> None:
        for name in names:
            if (given := getattr(self, name)) and given != AUTO:
                shown = " ".join(map(str, given)) if isinstance(given, tuple) else given
                raise InvalidInput(f"--{name.replace('_', '-')} {shown} does not apply to {source}: leave it out")

    def _wishes(self) -> Wishes:
        said = [(name, kind) for kind in KINDS for name in getattr(self, kind)]
        said += [(name, "ignore") for name in self.ignore]
        kinds = dict(said)
        for name, kind in said:
            if kinds[name] != kind:
                raise InvalidInput(f"{name!r} is named by --{kind} and by --{kinds[name]}: name it once")
        decimal: Any = self.decimal
        order = None if self.day_first == "auto" else self.day_first == "yes"
        return Wishes({name: kind for name, kind in said if kind != "ignore"}, decimal, order, self.missing or None)


@dataclass(frozen=True)
class Predict:
    """Predict the rows of a file of any size, or images, in their order."""

    folder: Student
    source: Files
    """a table with the columns of the fit, in any file that `fit` takes, or several; or an image, or a folder"""
    out: Annotated[str, value("FILE", default=False, aliases=("-o",))] = "-"
    """the file to write, .csv or .parquet; by default CSV to standard output"""
    level: Annotated[float | None, value("SHARE", default=False)] = None
    """the probability that the intervals hold (regression); by default that of the guarantee, or 0.9"""
    keep_formulas: KeepFormulas = False
    on_bad: OnBad = "refuse"
    delimiter: Delimiter = None
    encoding: Encoding = None
    sheet: Sheet = None
    query: Query = None
    quiet: Quiet = False

    def run(self) -> None:
        common.require("pyarrow", "onnxruntime")
        from darkbayes.progress import progress_bar
        from darkbayes.shipped import Shipped
        from darkbayes.tables.writing import TableWriter

        common.check_output(self.out, self.source)
        shipped = Shipped(self.folder)
        level = shipped.schema.target.level if self.level is None else require_level("--level", self.level)
        layout: Any = {name: getattr(self, name) for name in LAYOUT}
        batches = shipped.batches(self.source, on_bad=self.on_bad, **layout)
        # The place of each row tells which is which if bad rows are skipped.
        unit = batches.unit if self.on_bad == "skip" or batches.unit == "file" else None
        with (
            TableWriter(self.out, keep_formulas=self.keep_formulas, digits=shipped.schema.target.digits) as writer,
            progress_bar("predicting", None, quiet=self.quiet, unit="rows") as show_progress,
        ):

            def formed(inputs: Any, places: Any) -> Any:
                numbered = {} if unit is None else {unit: places}
                return writer.formed(numbered | shipped.table(inputs, level))

            for some in batches.each(lambda batch: formed(batch.inputs, batch.places)):
                writer.append(some)
                show_progress(batches.num_rows, total=batches.estimate)
            if not batches.num_rows:
                writer.append(formed(shipped.no_inputs, batches.no_places))
        common.tell(batches.notes, self.quiet)


@dataclass(frozen=True)
class Evaluate:
    """Score a student on a file that has the target."""

    folder: Student
    source: Files
    """a table with the columns of the fit and the target, in any file that `fit` takes, or several; or a folder of
    images by class"""
    on_bad: OnBad = "refuse"
    delimiter: Delimiter = None
    encoding: Encoding = None
    sheet: Sheet = None
    query: Query = None
    quiet: Quiet = False
    json: Json = False

    def run(self) -> None:
        common.require("pyarrow", "onnxruntime")
        from darkbayes.metrics import Scores
        from darkbayes.progress import progress_bar
        from darkbayes.shipped import Shipped

        shipped = Shipped(self.folder)
        layout: Any = {name: getattr(self, name) for name in LAYOUT}
        batches = shipped.batches(self.source, on_bad=self.on_bad, target=True, **layout)
        target = shipped.schema.target
        scores, inside, apart = Scores(repr(target.name)), Scores(repr(target.name)), 0
        with progress_bar("scoring", None, quiet=self.quiet, unit="rows") as show_progress:
            for batch in batches:
                prediction, truth = shipped.predict(batch.inputs), target.truth(batch.target)
                scores.add(prediction, truth)
                for reasons in shipped.schema.outside(batch.inputs).values():
                    rows = np.flatnonzero([reason is None for reason in reasons])
                    inside.add(prediction[rows], truth[rows])
                    apart += len(reasons) - len(rows)
                show_progress(batches.num_rows, total=batches.estimate)
        common.tell(batches.notes, self.quiet)
        if 0 < apart < batches.num_rows:
            without = inside.result()["log_likelihood"].value
            beyond = f"{apart} of {batches.num_rows} rows are unlike all that was seen"
            common.tell([f"{beyond}; without them the log likelihood is {without:.4g}"], self.quiet)
        if batches.num_rows and scores.result()["log_likelihood"].value == -np.inf:
            impossible = "the log likelihood is minus infinity: the model holds at least one of these values impossible"
            common.tell([f"{impossible} (such as zero, where it models a logarithm)"], self.quiet)
        names = ", ".join(path.name for path in self.source)
        common.show({"experiment": "evaluate", "preset": names, "rows": scores.rows("student")}, self.json)


@dataclass(frozen=True)
class Suggest:
    """Name the rows of a pool that are worth labelling."""

    folder: Student
    source: Annotated[Required, value("FILE")]
    """a pool without targets: a table with the columns of the fit, in any file that `fit` takes, or images"""
    number: Annotated[int, value("NUMBER", aliases=("-n",))] = 10  # how many rows to name
    batch_aware: Flag = False
    """choose rows that are worth labelling together: what one of them would teach counts no more for rows near it"""
    out: Annotated[str, value("FILE", default=False, aliases=("-o",))] = "-"
    """the file to write, .csv or .parquet; by default CSV to standard output"""
    keep_formulas: KeepFormulas = False
    on_bad: OnBad = "refuse"
    delimiter: Delimiter = None
    encoding: Encoding = None
    sheet: Sheet = None
    query: Query = None
    quiet: Quiet = False

    def run(self) -> None:
        common.require("pyarrow", "onnxruntime")
        from darkbayes.acquisition import suggest
        from darkbayes.tables.writing import TableWriter

        common.check_output(self.out, (self.source,))
        how: Any = {name: getattr(self, name) for name in ("number", "batch_aware", "on_bad", "quiet", *LAYOUT)}
        with TableWriter(self.out, spare_quotes=True, keep_formulas=self.keep_formulas) as writer:
            suggestions = suggest(self.folder, self.source, **how)
            writer.write(suggestions.table())
        common.tell(suggestions.notes, self.quiet)


@dataclass(frozen=True)
class Report:
    """Write the report of a finished run again."""

    folder: RunFolder
    figure: OptionalFile = None  # write the paper's figure to this image file as well (.png, .svg or .pdf)

    def run(self) -> None:
        common.require("matplotlib", "jinja2")
        common.check_run(self.folder)
        from darkbayes import paper, report
        from darkbayes.files import read_json

        results = read_json(self.folder / "results.json", "experiment")
        presentation = paper.presentation(results["experiment"])
        print(report.write_report(self.folder, presentation))
        if self.figure is not None:
            report.write_figure(self.folder, self.figure, presentation)
            print(self.figure)


@dataclass(frozen=True)
class Export:
    """Write a student as a file: ONNX, PyTorch state dict, safetensors."""

    folder: RunFolder
    onnx: Flag = False  # columns or images in, predictions and both uncertainties out (the default)
    torch: Flag = False  # the weights as a state dict for the torch.nn.Sequential of the same layers
    safetensors: Flag = False  # the weights by name
    int8: Flag = False
    """ONNX with weights in 8 bits, less than a third of the size; the loss in log likelihood is reported"""
    on: OptionalFile = None
    """a file with the target to measure the loss of --int8 on, instead of the rows that the fit held out"""
    out: Annotated[Path | None, value("FILE", default=False, aliases=("-o",))] = None
    """the file to write; RUN/student with the ending of its kind by default"""

    def run(self) -> None:
        chosen = [name for name in ("onnx", "torch", "safetensors") if getattr(self, name)] or ["onnx"]
        if len(chosen) > 1:
            raise InvalidInput(f"--{' and --'.join(chosen)} are files of their own: name one")
        if self.int8 and not chosen == ["onnx"]:
            raise InvalidInput(f"--int8 is for ONNX: leave out --{chosen[0]}")
        if self.on is not None and not self.int8:
            raise InvalidInput(f"--on {self.on} is what the loss of --int8 is measured on: add --int8 or leave it out")
        needed = {"onnx": ["onnx"], "torch": ["torch"], "safetensors": []}[chosen[0]]
        common.require(*needed, *["onnxruntime", "pyarrow"] * (self.on is not None))
        common.check_run(self.folder)
        from darkbayes.fit import export_folder

        for line in export_folder(self.folder, chosen[0], self.out, int8=self.int8, on=self.on):
            print(line)


@dataclass(frozen=True)
class Serve:
    """Serve a student over HTTP: /predict, /v2, /metrics, /docs, and a page."""

    folder: Student
    host: Annotated[str, value("ADDRESS")] = "127.0.0.1"
    """the address to listen on; by default only this machine can reach it"""
    port: Number = 8000  # where to listen; 0 for any port that is free
    max_body: Annotated[int, value("BYTES")] = 8 * 2**20  # bytes that a request may have
    max_rows: Number = 10_000  # rows that a request may have
    timeout: Annotated[float, value("SECONDS")] = 20.0
    """seconds that a request may take; the process that works on it is killed then"""
    max_connections: Number = 8192  # connections at once; the slowest make room for more
    workers: Annotated[int | None, value("NUMBER", default=False)] = None
    """processes that predict, and half as many again for large requests; by default one for each processor, up to 4"""
    name: Annotated[str | None, value("NAME", default=False)] = None
    """the model's name in the Open Inference Protocol; that of the run or file by default"""
    allow_host: Annotated[tuple[str, ...], value("NAME ...", default=False)] = ()
    """host names it answers to, whose pages may ask; by default this machine's, or any if others can reach it"""
    access_log: Flag = False
    """write a line of JSON on standard error about each request, and each connection that is closed without one"""
    quiet: Flag = False  # say nothing but the address

    def run(self) -> None:
        common.require("fastapi", "uvicorn", "onnxruntime", "pyarrow")
        from darkbayes.serve import Limits, serve

        limits = Limits(self.max_body, self.max_rows, self.timeout, connections=self.max_connections)
        options = {key: getattr(self, key) for key in ("host", "port", "workers", "name", "access_log", "quiet")}
        serve(self.folder, limits=limits, allow_hosts=self.allow_host, **options)
