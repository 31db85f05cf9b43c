"""Commands for one's own data: from a file to a student, and what a student is for.

`predict`, `evaluate` and `serve` need the exported student and no JAX. The help of an option stands beside it in a
comment, or under it in a string.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from darkbayes.cli import common
from darkbayes.cli.common import Flag, Json, Number, OptionalFile, OptionalFolder, Quiet, Resume, value
from darkbayes.errors import InvalidInput, require_share
from darkbayes.outcomes import OUTCOMES, ClassTarget
from darkbayes.outcomes.base import AUTO

Required = tyro.conf.Positional[Path]
RunFolder = Annotated[Required, value("RUN", help="the run's folder")]
Student = Annotated[Required, value("RUN", help="a run's folder, or an exported .onnx file")]
OnBad = Annotated[
    Literal["refuse", "skip"],
    value(None, help="what to do with rows that cannot be read: refuse the file, or skip them and say which"),
]
Delimiter = Annotated[
    str | None,
    value("CHARACTER", default=False, help="what separates the fields of a CSV file; found out by default"),
]
ASIDE = ("delimiter", "out", "resume", "quiet", "json")  # Options of `Fit` that do not tell one run from another.


@dataclass(frozen=True)
class Fit:
    """Fit a table or a folder of images: a student, its scores, a report."""

    source: Annotated[Required, value("FILE|FOLDER")]
    """a CSV or Parquet file, or a folder with a subfolder of images for each class"""
    target: Annotated[tuple[str, ...], value("COLUMN ...", default=False)] = ()
    """the column to predict, or several columns of numbers; not for images"""
    task: Annotated[str, value("TASK")] = AUTO
    """what the target is: classification, counts or regression; by default its values tell"""
    likelihood: Annotated[str | None, value("NAME", default=False)] = None
    """how the sampled network speaks of it: one-noise or input-noise of numbers, negative-binomial or poisson of
    counts, softmax of classes; by default the one that predicts best on rows set aside"""
    head: Annotated[str | None, value("NAME", default=False)] = None
    """how the student does: of numbers mixture (the default) or gaussian"""
    effort: Annotated[float, value("TIMES")] = 1.0
    """how much work to do, as a multiple of the usual amount, which follows from the size of the table"""
    time_budget: Annotated[str, value("TIME")] = "15m"
    """when to stop at the latest, even if the work is not done: 60s, 5m, 1h, or none"""
    ignore: Annotated[tuple[str, ...], value("COLUMN ...", default=False)] = ()  # columns to leave out
    held_out: Annotated[float, value("SHARE")] = 0.2
    """the share of the rows that is kept for the report's scores; 0 to learn from all"""
    guarantee: Annotated[str, value("LEVEL")] = "auto"
    """the share of new rows whose truth the intervals, or sets of classes, are to hold, whatever the model: the rows
    held out calibrate them. auto: 0.9 if at least 100 are held out; or none"""
    hidden: Annotated[tuple[int, ...], value("WIDTH ...", default=False)] = ()
    """widths of the hidden layers of the network that is sampled; by default those that predict best on rows set
    aside"""
    activation: Annotated[str | None, value("NAME", default=False)] = None
    """what comes after each of them: silu (the default), relu, tanh, gelu and others"""
    student_hidden: Annotated[tuple[int, ...], value("WIDTH ...")] = (128, 128, 128)
    """widths of the student's hidden layers"""
    chains: Number = 8  # chains that sample side by side; as many again follow if their average is known too roughly
    delimiter: Delimiter = None
    seed: Number = 0  # the same seed gives the same bits on the same machine, unless the time budget ends the fit
    out: OptionalFolder = None  # the run's folder; runs/NAME-TARGET by default
    resume: Resume = False
    quiet: Quiet = False
    json: Json = False

    def run(self) -> None:
        common.require("pyarrow", "onnx", "onnxruntime", "matplotlib", "jinja2")
        common.check_seed(self.seed)
        if not 0.0 <= self.held_out < 1.0:
            raise InvalidInput(f"--held-out must be a share from 0 to below 1, such as 0.2, not {self.held_out}")
        if self.task not in OUTCOMES.tasks:
            raise InvalidInput(f"--task must be one of {', '.join(OUTCOMES.tasks)}, not {self.task}")
        if not self.source.exists():
            raise InvalidInput(f"{self.source} is not there: name a CSV or Parquet file, or a folder of images")
        from darkbayes.compiled import keep_compiled
        from darkbayes.files import read_json
        from darkbayes.fit import Options, fingerprint, fit_folder, guarantee_level
        from darkbayes.report import chains_line, guarantee_line, write_report
        from darkbayes.runs import check_folder

        name = "-".join([self.source.stem, *self.target]) if self.target else self.source.resolve().name
        name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
        out = self.out or Path("runs") / name
        check_folder(out, resume=self.resume)
        given = ("activation", "student_hidden", "chains", "effort", "likelihood", "head")
        chosen: Any = {name: getattr(self, name) for name in given} | {"hidden": self.hidden or None}
        options = Options(time_budget=common.seconds(self.time_budget), **chosen)
        keep_compiled()
        prepared = self._prepared()
        level = guarantee_level(self.guarantee, prepared.facts["held_out"])
        common.tell(prepared.notes, self.quiet)
        # What tells one run from another; the names of folders do not.
        config = {name: setting for name, setting in asdict(self).items() if name not in ASIDE}
        config |= {"source": self.source.name, "sha256": fingerprint(self.source)}
        how: Any = {"guarantee": level, "resume": self.resume, "quiet": self.quiet}
        results = fit_folder(prepared, config, options, self.seed, out, **how)
        page = write_report(out)
        common.show(results, self.json)
        if not self.json:
            print(f"chains: {chains_line(results)}")
            if promised := guarantee_line(read_json(out / "fit.json")):
                print(f"guarantee: {promised}")
            print(f"student: {out / 'student.onnx'}\nreport: {page}")

    def _prepared(self) -> Any:
        from darkbayes.fit import prepare_images, prepare_table
        from darkbayes.tables.images import read_image_folder
        from darkbayes.tables.reading import read_table

        split: Any = {"held_out": self.held_out, "seed": self.seed}
        if self.source.is_dir():
            for name in ("target", "ignore", "delimiter"):
                if given := getattr(self, name):
                    shown = given if isinstance(given, str) else " ".join(given)
                    raise InvalidInput(f"--{name} {shown} does not apply to a folder of images: leave it out")
            if self.task not in (AUTO, ClassTarget.task):
                raise InvalidInput(f"--task {self.task} does not apply to a folder of images: they are classified")
            return prepare_images(read_image_folder(self.source), self.source, **split)
        if not self.target:
            raise InvalidInput(f"--target is needed: which column of {self.source} is to be predicted?")
        table = read_table(self.source, delimiter=self.delimiter)
        task: Any = {"task": self.task, "likelihood": self.likelihood}
        return prepare_table(table, self.target, ignore=self.ignore, **task, **split)


@dataclass(frozen=True)
class Predict:
    """Predict the rows of a file of any size, or images, in their order."""

    folder: Student
    source: Annotated[Required, value("FILE")]
    """a CSV or Parquet file with the columns of the fit; or an image, or a folder of images"""
    out: Annotated[str, value("FILE", default=False, aliases=("-o",))] = "-"
    """the file to write, .csv or .parquet; by default CSV to standard output"""
    level: Annotated[float | None, value("SHARE", default=False)] = None
    """the probability that the intervals hold (regression); by default that of the guarantee, or 0.9"""
    on_bad: OnBad = "refuse"
    delimiter: Delimiter = None
    quiet: Quiet = False

    def run(self) -> None:
        common.require("pyarrow", "onnxruntime")
        from darkbayes.progress import progress_bar
        from darkbayes.shipped import Shipped
        from darkbayes.tables.writing import TableWriter

        shipped = Shipped(self.folder)
        level = shipped.schema.target.level if self.level is None else require_share("--level", self.level)
        batches = shipped.batches(self.source, on_bad=self.on_bad, delimiter=self.delimiter)
        # The place of each row tells which is which if bad rows are skipped.
        unit = batches.unit if self.on_bad == "skip" or batches.unit == "file" else None
        with (
            TableWriter(self.out) as writer,
            progress_bar("predicting", None, quiet=self.quiet, unit="rows") as show_progress,
        ):

            def write(prediction: Any, places: Any, outside: Any) -> None:
                numbered = {} if unit is None else {unit: places}
                writer.write(numbered | shipped.schema.target.table(prediction, level) | outside)

            for batch in batches:
                write(shipped.predict(batch.inputs), batch.places, shipped.schema.outside(batch.inputs))
                show_progress(batches.num_rows, total=batches.estimate)
            if not batches.num_rows:
                write(shipped.predict_nothing(), batches.no_places, shipped.schema.outside(shipped.no_inputs))
        common.tell(batches.notes, self.quiet)


@dataclass(frozen=True)
class Evaluate:
    """Score a student on a file that has the target."""

    folder: Student
    source: Annotated[Required, value("FILE")]
    """a CSV or Parquet file with the columns of the fit and the target; or a folder of images by class"""
    on_bad: OnBad = "refuse"
    delimiter: Delimiter = None
    quiet: Quiet = False
    json: Json = False

    def run(self) -> None:
        common.require("pyarrow", "onnxruntime")
        from darkbayes.metrics import Scores
        from darkbayes.progress import progress_bar
        from darkbayes.shipped import Shipped

        shipped = Shipped(self.folder)
        batches = shipped.batches(self.source, on_bad=self.on_bad, target=True, delimiter=self.delimiter)
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
        common.show({"experiment": "evaluate", "preset": self.source.name, "rows": scores.rows("student")}, self.json)


@dataclass(frozen=True)
class Suggest:
    """Name the rows of a pool that are worth labelling."""

    folder: Student
    source: Annotated[Required, value("FILE")]
    """a pool without targets: a CSV or Parquet file of any size with the columns of the fit, or a folder of images"""
    number: Annotated[int, value("NUMBER", aliases=("-n",))] = 10  # how many rows to name
    batch_aware: Flag = False
    """choose rows that are worth labelling together: what one of them would teach counts no more for rows near it"""
    out: Annotated[str, value("FILE", default=False, aliases=("-o",))] = "-"
    """the file to write, .csv or .parquet; by default CSV to standard output"""
    on_bad: OnBad = "refuse"
    delimiter: Delimiter = None
    quiet: Quiet = False

    def run(self) -> None:
        common.require("pyarrow", "onnxruntime")
        from darkbayes.acquisition import suggest
        from darkbayes.tables.writing import TableWriter

        how: Any = {name: getattr(self, name) for name in ("number", "batch_aware", "on_bad", "delimiter", "quiet")}
        with TableWriter(self.out, spare_quotes=True) as writer:
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

        results = read_json(self.folder / "results.json")
        presentation = paper.presentation(results["experiment"])
        print(report.write_report(self.folder, presentation))
        if self.figure is not None:
            report.write_figure(self.folder, self.figure, presentation)
            print(self.figure)


@dataclass(frozen=True)
class Export:
    """Write a student as a file: ONNX, PyTorch state dict, safetensors."""

    folder: RunFolder
    onnx: Flag = False  # raw columns or images in, predictions and both uncertainties out (the default)
    torch: Flag = False  # the weights as a state dict for the torch.nn.Sequential of the same layers
    safetensors: Flag = False  # the weights by name
    int8: Flag = False
    """ONNX with weights in 8 bits, a quarter of the size of a large student; the loss in log likelihood is told"""
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
        common.require("onnx", *["torch"] * self.torch, *["onnxruntime", "pyarrow"] * (self.on is not None))
        common.check_run(self.folder)
        from darkbayes.fit import export_folder

        for line in export_folder(self.folder, chosen[0], self.out, int8=self.int8, on=self.on):
            print(line)


@dataclass(frozen=True)
class Serve:
    """Serve a student over HTTP: /predict, /schema, /docs, and a page."""

    folder: Student
    host: Annotated[str, value("ADDRESS")] = "127.0.0.1"
    """the address to listen on; by default only this machine can reach it"""
    port: Number = 8000  # where to listen; 0 for any port that is free
    max_body: Annotated[int, value("BYTES")] = 8 * 2**20  # bytes that a request may have
    max_rows: Number = 10_000  # rows that a request may have
    timeout: Annotated[float, value("SECONDS")] = 20.0  # seconds that a request may take
    quiet: Flag = False  # say nothing but the address

    def run(self) -> None:
        common.require("fastapi", "uvicorn", "onnxruntime", "pyarrow")
        from darkbayes.serve import Limits, serve

        limits = Limits(self.max_body, self.max_rows, self.timeout)
        serve(self.folder, host=self.host, port=self.port, limits=limits, quiet=self.quiet)
