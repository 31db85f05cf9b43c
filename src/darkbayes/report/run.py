"""The page of a run, made from the files of its folder and nothing else; what it says is the experiment's business."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from darkbayes.errors import InvalidInput
from darkbayes.files import read_json
from darkbayes.report import teachers
from darkbayes.report.figures import Drawing, learning_curves, size_curve
from darkbayes.report.page import check_figure, write_image, write_page
from darkbayes.report.tables import PLAIN, Best, Names, pivot, repeated

Results = dict[str, Any]
Config = dict[str, Any]


@dataclass(frozen=True)
class RunWords:
    """What the page of a run says beside its numbers."""

    title: str
    lead: str = ""
    summary: str = ""  # What the numbers say, in a sentence or two.
    trial: str = ""  # What a trial is.
    quick: str = ""  # How the preset `quick` is smaller than the experiment itself.
    figure: str = ""  # The title of the experiment's figure.
    caption: str = ""
    alt: str = ""  # What there is to see in the figure, for who does not see it.
    draw: Callable[[], Drawing] | None = None
    curves: str = "the inputs that were watched"  # Where students were compared with their teacher as they learned.


class Presentation(NamedTuple):
    """How an experiment shows its runs."""

    names: Names  # What methods and metrics are called.
    words: Callable[[Path, Results, Config, Names], RunWords]
    """What is said of the run in a folder, given its results, its settings and these names."""


ANY = Presentation(PLAIN, lambda folder, results, config, names: RunWords(results["experiment"]))
"""Shows the runs of an experiment that is not known."""


def write_report(folder: Path, presentation: Presentation = ANY) -> Path:
    """Write ``report.html`` into a finished run's folder, as its experiment presents it."""
    results, config = read_json(folder / "results.json", "experiment", "rows"), read_json(folder / "config.json")
    if results["experiment"] == "fit":
        from darkbayes.report.fitted.page import write_fitted

        return write_fitted(folder)
    names, words = presentation.names, presentation.words(folder, results, config, presentation.names)
    tables, sizes = pivot(results, names=names), [row for row in results["rows"] if row["metric"] == "kl_from_teacher"]
    return write_page(
        folder / "report.html",
        "run.html",
        results=results,
        config=config,
        words=words,
        teachers=teachers,
        tables=tables,
        repeated=repeated(results),
        marked=any(isinstance(cell, Best) for table in tables for row in table.rows for cell in row),
        sizes=size_curve(sizes, names) if sizes else None,
        learning=_learning(folder, results),
    )


def write_figure(folder: Path, path: Path, presentation: Presentation = ANY) -> None:
    """Write the figure of a finished run as an image, in the format that the name of `path` ends in."""
    check_figure(path)
    results = read_json(folder / "results.json")
    if results["experiment"] == "fit":
        from darkbayes.report.fitted.page import main_figure

        write_image(main_figure(folder), path)
        return
    draw = presentation.words(folder, results, read_json(folder / "config.json"), presentation.names).draw
    if draw is None:
        raise InvalidInput(f"--figure {path} does not apply to {results['experiment']}, which has none: leave it out")
    write_image(draw(), path)


def _learning(folder: Path, results: Results) -> dict[str, Any] | None:
    """How the students of the first trial learned, as a drawing; which they are, and whether one stopped following."""
    paths = [*folder.glob("trial-0/student*/metrics.jsonl"), *folder.glob("student*/metrics.jsonl")]
    curves = {}
    for path in sorted(paths, key=lambda path: (len(str(path)), path)):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if known := [line for line in lines if line["kl"] is not None]:
            curves[teachers.student_label(path.parent.name)] = known
    if not curves:
        return None
    backwards = reversed(results.get("diagnostics", {}).items())
    diagnoses = {teachers.student_label(name): diagnosis for name, diagnosis in backwards}
    plateaus = {name: diagnoses[name]["plateau"] for name in curves if name in diagnoses and diagnoses[name]["plateau"]}
    errors = sorted(run["teacher_error"] for diagnosis in diagnoses.values() for run in diagnosis["runs"])
    drawing = learning_curves(curves, plateaus, errors[len(errors) // 2] if errors else None)
    stopped = any(plateau["stopped"] for plateau in plateaus.values())
    return {"drawing": drawing, "students": list(curves), "stopped": stopped}
