"""The page of a fit, section by section; what it says of what is predicted is the outcome's business."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.estimates import Estimate
from darkbayes.outcomes.pictures import Picture
from darkbayes.outcomes.words.base import Example, HeldOut, Words
from darkbayes.outcomes.words.text import with_error
from darkbayes.report import teachers
from darkbayes.report.figures import Drawing, learning_curves
from darkbayes.report.fitted import words
from darkbayes.report.fitted.figures import SIZE, drawn, excursions
from darkbayes.report.fitted.folder import FittedRun, read_run
from darkbayes.report.page import data_uri, write_page
from darkbayes.report.tables import PageTable, described, number, pivot
from darkbayes.tables.schema import Category

MOST_VALUES = 6  # Columns of the most uncertain rows that are shown; of more, those on which predictions depend most.
MOST_WORTH = 8  # Columns whose worth is told.
MOST_ROWS = 8  # The most uncertain rows that are shown.
GALLERIES = {
    "": ("", ""),
    "sure": ("It is sure of", "The least uncertainty of all."),
    "noise": ("Unsure, for noise", "To the model they are ambiguous, and more images would not change that."),
    "doubt": ("Unsure, for doubt", "It has seen too little like them: more such images would teach it most."),
    "worst": ("The worst", "The least probability for the truth. Look for wrong labels here first."),
}
"""Title and explanation of groups of images."""
MOST_LETTERS = 40  # Of a value in the table of the most uncertain rows.
LEAST_CURVE = 3  # Points that a curve over time must have.


def write_fitted(folder: Path) -> Path:
    """Write ``report.html`` into the folder of a fit."""
    run = read_run(folder)
    about, form = run.words, run.facts.get("transform", "")
    outputs = [] if run.held is None else about.outputs(run.held)
    worth = run.facts.get("importance", [])[:MOST_WORTH]
    lost = [[one["column"], with_error(Estimate(one["mean"], one["se"]))] for one in worth]
    lines = [line for line in run.curve if line["kl"] is not None]
    runs = run.results.get("diagnostics", {}).get("student", {}).get("runs", [{}])
    learning = None
    if len(lines) >= LEAST_CURVE:
        learning = learning_curves({"student": lines}, {}, runs[0].get("teacher_error"), SIZE)
    return write_page(
        folder / "report.html",
        "fit.html",
        run=run,
        held=run.held,
        about=about,
        outputs=outputs,
        words=words,
        teachers=teachers,
        metrics=list(map(described, dict.fromkeys(row["metric"] for row in run.results["rows"]))),
        scores=pivot(run.results | {"rows": run.results["rows"] + run.facts.get("neighbour", {}).get("rows", [])}),
        worth=PageTable("", ["column", "log likelihood lost"], lost, []) if lost else None,
        trust=_cards([(own, picture) for own, one in outputs for picture in (*own.trust(one), own.surest(one))]),
        along=_cards(run.along),
        least_sure=_least_sure(run, outputs),
        fidelity=_cards([(own, picture) for own, one in outputs for picture in (own.answers(one), own.doubts(one))]),
        learning=learning,
        excursions=excursions(run.excursions) if run.excursions else None,
        form=form,
        # The form of the target has a line of its own.
        notes=[note for note in run.facts["notes"] if not form or form not in note],
    )


def caution_lines(folder: Path) -> list[str]:
    """What speaks against relying on the model of a fit, but for what its chains say."""
    return words.warnings(read_run(folder), chains=False)


def main_figure(folder: Path) -> Drawing:
    """The one figure that says most of a fit."""
    run = read_run(folder)
    if run.held is None:
        raise InvalidInput(f"{folder} has nothing held out: there is no figure of it (fit with --held-out 0.2)")
    own, held = run.words.outputs(run.held)[0]
    return drawn(own.trust(held)[0])


def _cards(pictures: Sequence[tuple[Words, Picture]]) -> list[tuple[str, Drawing, str, str]]:
    """Title, drawing, caption and text of pictures; the title names the output where there are several."""
    several = len({own.name for own, _ in pictures}) > 1
    titles = (f"{own.name}: {picture.title}" if several else picture.title for own, picture in pictures)
    pairs = zip(titles, (picture for _, picture in pictures), strict=True)
    return [(title, drawn(picture), picture.caption, picture.alt) for title, picture in pairs]


def _least_sure(run: FittedRun, outputs: list[tuple[Words, HeldOut]]) -> Any:
    """The most uncertain: a table of rows, or galleries of images."""
    if run.images is not None:
        return _galleries(run, outputs) if outputs else []
    least_sure = run.examples[:MOST_ROWS] if outputs else []
    places = [str(example["place"]) for example in least_sure]
    examples = [_example(outputs, example["row"]) for example in least_sure]
    names = list(least_sure[0]["values"] or {}) if least_sure else []
    important = [course["column"] for course in run.dependence][:MOST_VALUES]
    shown = names if len(names) <= MOST_VALUES else [name for name in names if name in important]

    def written(name: str, value: Any) -> str:
        """A value of a row, marked where nothing like it was seen."""
        column = run.columns[name]
        if value is None:
            return "missing"
        if isinstance(column, Category):
            text = str(value) if len(str(value)) <= MOST_LETTERS else f"{str(value)[:MOST_LETTERS]}…"
            return text if value in column.categories else f"{text} ?"
        return number(value) + (" ↓" if value < column.low else " ↑" if value > column.high else "")

    rows = [
        [place, *example[:4], *(written(name, row["values"][name]) for name in shown)]
        for place, example, row in zip(places, examples, least_sure, strict=True)
    ]
    notes = []
    if len(shown) < len(names):
        notes.append(f"Of {len(names)} columns, those on which predictions depend most are shown")
    if any(cell[-1] in "↑↓?" for line in rows for cell in line[5:] if cell):
        notes.append("↓ lower and ↑ higher than anything seen in training; ? a category that was not seen")
    return PageTable("", ["", "prediction", "truth", "noise", "doubt", *shown], rows, notes)


def _galleries(run: FittedRun, outputs: list[tuple[Words, HeldOut]]) -> list[tuple[str, str, list[Any]]]:
    """Title, explanation and images with their places and what is said of them, of each group."""
    assert run.images is not None
    groups: dict[str, list[Any]] = {}
    for example, image in zip(run.examples, run.images, strict=True):
        group = groups.setdefault(example.get("group", ""), [])  # Older runs have the most uncertain alone.
        if len(group) < MOST_ROWS:
            group.append((str(example["place"]), _thumbnail(image), _example(outputs, example["row"])))
    return [(*GALLERIES[name], group) for name, group in groups.items()]


def _example(outputs: list[tuple[Words, HeldOut]], row: int) -> Example:
    """What is said of a row; of several outputs, of each by its name."""
    examples = {own.name: own.example(held, row) for own, held in outputs}
    if len(examples) == 1:
        return next(iter(examples.values()))
    texts = (", ".join(f"{name} {example[k]}" for name, example in examples.items()) for k in range(4))
    prediction, truth, noise, doubt = texts
    return Example(prediction, truth, noise, doubt)


def _thumbnail(image: np.ndarray) -> str:
    """A small image of values from 0 to 255, ``[channels, height, width]``."""
    import matplotlib.image

    pixels = np.moveaxis(np.asarray(image, np.uint8), 0, -1)
    pixels = np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, pixels, format="png", metadata={"Software": "darkbayes"})
    return data_uri("png", buffer.getvalue())
