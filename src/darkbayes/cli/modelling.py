"""Commands for one's own data: from a file to a student, and what a student is for.

`predict`, `evaluate` and `serve` need the exported student and no JAX.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from darkbayes.cli.common import check_seed, require, seconds, show, tell
from darkbayes.errors import InvalidInput

RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
OnBad = Literal["refuse", "skip"]


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
        require("pyarrow", "onnx", "matplotlib", "jinja2")
        check_seed(self.seed)
        from darkbayes.fit import Options, fit_folder
        from darkbayes.report import write_report

        options = Options(tuple(self.hidden), tuple(self.student_hidden), self.chains, seconds(self.time_budget))
        prepared = self._prepared()
        tell(prepared.notes, self.quiet)
        out = self.out or Path("runs") / self._name()
        results = fit_folder(prepared, self._config(), options, self.seed, out, resume=self.resume, quiet=self.quiet)
        page = write_report(out)
        show(results, self.json)
        if not self.json:
            print(f"student: {out / 'student.onnx'}\nreport: {page}")

    def _prepared(self) -> Any:
        from darkbayes.fit import prepare_images, prepare_table
        from darkbayes.tables import read_image_folder, read_table

        if self.source.is_dir():
            if self.target is not None:
                raise InvalidInput(f"--target {self.target} does not apply to a folder of images: leave it out")
            images = read_image_folder(self.source)
            return prepare_images(images, self.source, held_out=self.held_out, seed=self.seed)
        if self.target is None:
            raise InvalidInput(f"--target is needed: which column of {self.source} is to be predicted?")
        table = read_table(self.source, delimiter=self.delimiter)
        return prepare_table(
            table, self.target, task=self.task, ignore=self.ignore, held_out=self.held_out, seed=self.seed
        )

    def _name(self) -> str:
        name = self.source.resolve().name if self.target is None else f"{self.source.stem}-{self.target}"
        return "".join(of if of.isalnum() or of in "._-" else "-" for of in name)

    def _config(self) -> dict[str, Any]:
        """What tells one run from another; the names of folders do not."""
        from darkbayes.fit import fingerprint

        return {
            "source": self.source.name,
            "sha256": fingerprint(self.source),
            "target": self.target,
            "task": self.task,
            "ignore": list(self.ignore),
            "held_out": self.held_out,
            "hidden": list(self.hidden),
            "student_hidden": list(self.student_hidden),
            "chains": self.chains,
            "time_budget": self.time_budget,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Predict:
    """Predict the rows of a file of any size, or images; CSV or Parquet comes out, in the same order."""

    folder: RunFolder
    """a run's folder, or an exported .onnx file"""
    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """a CSV or Parquet file with the columns of the fit; or an image, or a folder of images"""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])] = "-"
    """the file to write, .csv or .parquet; by default CSV to standard output"""
    level: float = 0.9
    """the probability that the intervals hold (regression)"""
    on_bad: OnBad = "refuse"
    """what to do with rows that cannot be read: refuse the file, or skip them and say which"""
    delimiter: str | None = None
    """what separates the fields of a CSV file; found out by default"""
    quiet: bool = False
    """no progress bar and notes"""

    def run(self) -> None:
        """Run it."""
        require("pyarrow", "onnxruntime")
        from darkbayes.progress import progress_bar
        from darkbayes.shipped import Shipped
        from darkbayes.tables import PredictionWriter

        shipped = Shipped(self.folder)
        batches = _batches(self.source, shipped.schema, self.on_bad, self.delimiter, target=False)
        unit: Any = getattr(batches, "unit", "file")
        number = unit if self.on_bad == "skip" or unit == "file" else None
        with (
            PredictionWriter(self.out, shipped.schema.target, level=self.level, number=number) as writer,
            progress_bar("predicting", None, quiet=self.quiet, unit="rows") as show_progress,
        ):
            for batch in batches:
                writer.write(
                    _predicted(shipped, batch), getattr(batch, "lines", None) if unit != "file" else batch.paths
                )
                show_progress(batches.num_rows)
        tell(batches.notes, self.quiet)


@dataclass(frozen=True)
class Evaluate:
    """Score a student on a file that has the target: log likelihood, error, calibration."""

    folder: RunFolder
    """a run's folder, or an exported .onnx file"""
    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """a CSV or Parquet file with the columns of the fit and the target; or a folder of images by class"""
    on_bad: OnBad = "refuse"
    """what to do with rows that cannot be read: refuse the file, or skip them and say which"""
    delimiter: str | None = None
    """what separates the fields of a CSV file; found out by default"""
    quiet: bool = False
    """no progress bar and notes"""
    json: bool = False
    """print the results as JSON instead of a table"""

    def run(self) -> None:
        """Run it."""
        require("pyarrow", "onnxruntime")
        from darkbayes.progress import progress_bar
        from darkbayes.shipped import Shipped
        from darkbayes.tables import Scores

        shipped = Shipped(self.folder)
        batches = _batches(self.source, shipped.schema, self.on_bad, self.delimiter, target=True)
        scores = Scores(shipped.schema.target)
        with progress_bar("scoring", None, quiet=self.quiet, unit="rows") as show_progress:
            for batch in batches:
                scores.add(_predicted(shipped, batch), batch.target)
                show_progress(batches.num_rows)
        tell(batches.notes, self.quiet)
        show({"experiment": "evaluate", "preset": "", "rows": scores.rows("student")}, self.json)


def _batches(source: Path, schema: Any, on_bad: OnBad, delimiter: str | None, *, target: bool) -> Any:
    from darkbayes.tables import TableSchema, read_batches, read_image_batches

    if isinstance(schema, TableSchema):
        return read_batches(source, schema, on_bad=on_bad, target=target, delimiter=delimiter)
    return read_image_batches(source, schema, on_bad=on_bad, target=target)


def _predicted(shipped: Any, batch: Any) -> Any:
    return shipped.predict(batch.frame if hasattr(batch, "frame") else batch.images)


@dataclass(frozen=True)
class Report:
    """Write the report of a finished run again."""

    folder: tyro.conf.Positional[Path]
    """the run's folder"""
    figure: Path | None = None
    """write the paper's figure to this image file as well (.png, .svg or .pdf)"""

    def run(self) -> None:
        """Run it."""
        require("matplotlib", "jinja2")
        from darkbayes import report

        print(report.write_report(self.folder))
        if self.figure is not None:
            report.write_figure(self.folder, self.figure)
            print(self.figure)


@dataclass(frozen=True)
class Export:
    """Write a run's student as a file for elsewhere: ONNX, a PyTorch state dict, or safetensors."""

    folder: RunFolder
    """the run's folder"""
    onnx: bool = False
    """raw columns or images in, predictions and both uncertainties out (the default)"""
    torch: bool = False
    """the weights as a state dict for the torch.nn.Sequential of the same layers"""
    safetensors: bool = False
    """the weights by name"""
    int8: bool = False
    """ONNX with weights in 8 bits: a quarter of the size"""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """the file to write; RUN/student with the ending of its kind by default"""

    def run(self) -> None:
        """Run it."""
        chosen = [name for name in ("onnx", "torch", "safetensors") if getattr(self, name)] or ["onnx"]
        if len(chosen) > 1:
            raise InvalidInput(f"--{' and --'.join(chosen)} are files of their own: name one")
        if self.int8 and not chosen == ["onnx"]:
            raise InvalidInput(f"--int8 is for ONNX: leave out --{chosen[0]}")
        require("onnx", *["torch"] * self.torch)
        from darkbayes.fit import export_folder

        for line in export_folder(self.folder, chosen[0], self.out, int8=self.int8):
            print(line)


@dataclass(frozen=True)
class Serve:
    """Serve a student over HTTP: /predict, /schema, /healthz, and a page to play with."""

    folder: RunFolder
    """a run's folder, or an exported .onnx file"""
    host: str = "127.0.0.1"
    """the address to listen on; by default only this machine can reach it"""
    port: int = 8000
    """where to listen; 0 for any port that is free"""
    max_body: int = 8 * 2**20
    """bytes that a request may have"""
    max_rows: int = 10_000
    """rows that a request may have"""
    timeout: float = 20.0
    """seconds that a request may take"""
    quiet: bool = False
    """say nothing but the address"""

    def run(self) -> None:
        """Run it."""
        require("fastapi", "uvicorn", "onnxruntime", "pyarrow")
        from darkbayes.serve import Limits, serve

        limits = Limits(self.max_body, self.max_rows, self.timeout)
        serve(self.folder, host=self.host, port=self.port, limits=limits, quiet=self.quiet)
