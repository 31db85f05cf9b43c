"""The page of a fit, section by section; what it says of what is predicted is the outcome's business."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.outcomes.pictures import METHODS, LearningCurve, Picture, RiskCurve
from darkbayes.outcomes.words.base import HeldOut
from darkbayes.outcomes.words.text import in_percent, signed, with_error
from darkbayes.report import chains, choices
from darkbayes.report.figures import Drawing
from darkbayes.report.fitted import words
from darkbayes.report.fitted.choices import chosen, columns_table
from darkbayes.report.fitted.figures import drawn
from darkbayes.report.fitted.folder import FittedRun, read_run
from darkbayes.report.fitted.spots import risks
from darkbayes.report.page import (
    Cards,
    Contents,
    Facts,
    Figure,
    Gallery,
    Listing,
    Note,
    Part,
    Section,
    SplitTile,
    Thumbnail,
    Tiles,
    data_uri,
    write_page,
)
from darkbayes.report.tables import Column, Table, number
from darkbayes.tables.schema import Category

MOST_VALUES = 8
"""Columns of the most uncertain rows that are shown; of more, those on which predictions depend most."""
MOST_LETTERS = 40
"""Of a value in the table of the most uncertain rows."""
LEAST_CURVE = 3
"""Points that a curve over time must have."""
HEADINGS = {
    "log_likelihood": "log likelihood (higher is better)",
    "rmse": "RMSE (lower is better)",
    "coverage_90": "inside the 90% interval (90% is right)",
    "error": "wrong answers, % (lower is better)",
    "brier": "Brier score (lower is better)",
    "ece": "calibration error (lower is better)",
}
GLOSSARY = {
    "Student": "The model itself: one network, which predicts as if it were many.",
    "Teacher": "The many networks that fit the data well, from which the student learned. Their average is the "
    "Bayesian prediction.",
    "Plug-in network": "One network as large as the student, trained in the usual way, which knows no doubt.",
    "Noise": "Uncertainty that more data cannot remove (aleatoric).",
    "Doubt": "Uncertainty of the model about itself, which more data could remove (epistemic).",
}


def write_fitted(folder: Path) -> Path:
    """Write ``report.html`` into the folder of a fit.

    Args:
        folder: The fit's.

    Returns:
        The path of the page.
    """
    run = read_run(folder)
    return write_page(folder / "report.html", words.title(run), [*_overview(run), *_sections(run)])


def main_figure(folder: Path) -> Drawing:
    """The one figure that says most of a fit.

    Args:
        folder: The fit's.

    Returns:
        The figure.
    """
    run = read_run(folder)
    if run.held is None:
        raise InvalidInput(f"{folder} has nothing held out: there is no figure of it (fit with --held-out 0.2)")
    return drawn(run.words.trust(run.held)[0])


def _overview(run: FittedRun) -> list[Part]:
    """What a reader must know, in numbers and sentences."""
    parts: list[Part] = [Note(words.lead(run), "lead")]
    if run.held is not None:
        noise = run.words.noise_share(run.held.student)
        labels = (f"that more {run.cases} cannot remove (aleatoric)", "that they could (epistemic)")
        split = [] if noise != noise else [SplitTile("of its uncertainty", noise, ("noise", "doubt"), labels)]
        parts.append(Tiles([*words.tiles(run, run.held), *split]))
    parts += [Note(answer, opening=question) for question, answer in words.paragraphs(run)]
    cautions = words.cautions(run)
    parts += [Listing("Before you rely on it", cautions)] if cautions else []
    return [*parts, Contents()]


def _sections(run: FittedRun) -> list[Part]:
    held = run.held
    if held is None:
        text = (
            "Nothing was held out, so there are no scores, no calibration and no examples here. Fit with --held-out "
            f"0.2 to have them; a fit to all {run.cases} can be expected to do no worse than that one."
        )
        sections: list[Part | None] = [Section("No scores", [Note(text)])]
    else:
        sections = [_scores(run, held), _trust(run, held), _surest(run, held), _examples(run, held)]
    sections += [_columns(run), _fidelity(run), _chains(run), _choices(run)]
    sections.append(Section("Words on this page", [Facts(GLOSSARY | run.words.glossary())], "words", "Words"))
    origin: dict[str, Any] = {"source's sha256": run.config["sha256"]} | run.results["provenance"]
    names: dict[str, str] = {"version": "darkbayes", "jax": "JAX", "wall_s": "seconds"}
    facts = Facts({names.get(name, name): value for name, value in origin.items()})
    sections.append(Section("How this was made", [facts], "origin", "Origin"))
    return [section for section in sections if section is not None]


def _cards(pictures: list[Picture], *more: Note) -> Cards:
    figures = [Figure(drawn(picture), picture.caption, picture.alt, picture.title) for picture in pictures]
    return Cards([*figures, *more])


# What was held out


def _scores(run: FittedRun, held: HeldOut) -> Section:
    """Student, teacher and plug-in network side by side."""
    kept = words.gain(held)
    above = {"student": [signed(kept.own)], "sgld": [signed(kept.gain)], "sgd": ["–"]}
    labels = {
        "student": "student (one network)",
        "sgld": f"teacher ({run.facts['draws']:,} networks)",
        "sgd": "plug-in network",
    }
    metrics = [metric for metric in held.scores["sgd"] if all(metric in scores for scores in held.scores.values())]
    columns = [
        Column([HEADINGS.get(metric, metric)], {method: [_score(held, method, metric)] for method in METHODS})
        for metric in metrics
    ]
    columns.insert(1, Column(["log likelihood above the plug-in network"], above))
    notes = (
        f"± is one standard error over the {held.rows:,} {run.cases} held out. Differences from the plug-in network "
        f"are taken row by row, which makes them more certain than the scores. The {run.cases} are taken to be "
        "independent: where several belong to the same person or thing, the true errors are larger."
    )
    return Section(
        f"Scores on {run.cases} that it had never seen",
        [
            Table("", "", labels, columns, []),
            Note(words.kept_words(kept, run.cases), "strong"),
            Note(f"{notes} {run.words.score_note(held)}".strip(), "small"),
        ],
        "scores",
        "Scores",
    )


def _score(held: HeldOut, method: str, metric: str) -> str:
    score = held.scores[method][metric]
    return f"{with_error(in_percent(score), 1)}%" if metric.startswith("coverage") else with_error(score)


def _trust(run: FittedRun, held: HeldOut) -> Section:
    note = run.words.trust_note.format(cases=run.cases)
    parts = [Note(note)] * bool(note)
    return Section("Can its certainty be trusted?", [*parts, _cards(run.words.trust(held))], "trust", "Trust")


def _surest(run: FittedRun, held: HeldOut) -> Section:
    losses = {method: run.words.losses(judged.prediction, held.y) for method, judged in held.methods.items()}
    caption = (
        "A model that knows what it does not know has a line that rises to the right: what it is sure of, it gets "
        f"right. The left end rests on few {run.cases} and is rough."
    )
    pictures: list[Picture] = [
        RiskCurve(
            title="Errors among the surest" + (f": {own.name}" if len(losses["student"]) > 1 else ""),
            caption=caption,
            alt=f"{own.label} of student, teacher and plug-in network among the surest {run.cases}.",
            curves={method: risks(run.words, losses[method][place]) for method in METHODS},
            label=own.label,
            cases=run.cases,
        )
        for place, own in enumerate(losses["student"])
    ]
    note = Note(words.passing_on(run, held))
    return Section("What if it answers only when it is sure?", [_cards(pictures, note)], "surest", "Passing on")


def _examples(run: FittedRun, held: HeldOut) -> Section:
    """The most uncertain."""
    note = Note(
        f"Of the {run.cases} held out. {run.words.sizes_note} Where doubt is large, another example like it would "
        "teach the model most."
    )
    examples = [run.words.example(held.student, held.y, example["row"]) for example in run.examples]
    places = [str(example["place"]) for example in run.examples]
    parts: list[Part] = [note]
    if run.images is not None:
        rows = zip(examples, places, run.images, strict=True)
        parts.append(Gallery([Thumbnail(place, _thumbnail(image), example) for example, place, image in rows]))
    else:
        names = list((run.examples[0]["values"] or {}) if run.examples else {})
        important = [course["column"] for course in run.dependence][:MOST_VALUES]
        shown = names if len(names) <= MOST_VALUES else [name for name in names if name in important]
        cells = {
            place: [*example[:4], *(_value(run, name, row["values"][name]) for name in shown)]
            for place, example, row in zip(places, examples, run.examples, strict=True)
        }
        notes = []
        if len(shown) < len(names):
            notes.append(f"Of {len(names)} columns, those on which predictions depend most are shown")
        if any(cell[-1] in "↑↓?" for line in cells.values() for cell in line[4:] if cell):
            notes.append("↓ lower and ↑ higher than anything seen in training; ? a category that was not seen")
        header = ["prediction", "truth", "noise", "doubt", *shown]
        parts.append(Table("", "", {place: place for place in cells}, [Column(header, cells)], notes))
    return Section(f"The {run.cases} that it is least sure of", parts, "examples", "Most uncertain")


def _value(run: FittedRun, name: str, value: Any) -> str:
    """A value of a row, marked where nothing like it was seen."""
    column = run.columns[name]
    if value is None:
        return "missing"
    if isinstance(column, Category):
        text = str(value) if len(str(value)) <= MOST_LETTERS else f"{str(value)[:MOST_LETTERS]}…"
        return text if value in column.categories else f"{text} ?"
    return number(value) + (" ↓" if value < column.low else " ↑" if value > column.high else "")


def _thumbnail(image: np.ndarray) -> str:
    """A small image of values from 0 to 255, ``[channels, height, width]``."""
    import matplotlib.image

    pixels = np.moveaxis(np.asarray(image, np.uint8), 0, -1)
    pixels = np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, pixels, format="png", metadata={"Software": "darkbayes"})
    return data_uri("png", buffer.getvalue())


# The model, and how it came about


def _columns(run: FittedRun) -> Section | None:
    if not run.dependence:
        return None
    unit = f" in per cent{run.words.ignorance}" if run.words.ignorance else ""
    ticks = " Ticks at the foot: the rows held out." if run.held is not None else ""
    note = (
        "Above: what is predicted on average over training rows when this column alone takes each value. Below: noise "
        f"(aleatoric) and doubt (epistemic){unit}. Grey: values that were never seen; there doubt should grow, and "
        f"predictions are guesses.{ticks} The columns that matter most come first."
    )
    pictures = [
        picture
        for course in run.dependence
        for picture in run.words.along(course, run.columns[course["column"]], run.held)
    ]
    return Section("How it depends on each column", [Note(note), _cards(pictures)], "columns", "Columns")


def _fidelity(run: FittedRun) -> Section | None:
    held, pictures = run.held, _learning(run)
    notes = [] if held is None else [Note(words.fidelity(run, held))]
    if held is not None:
        pictures = [*run.words.answers(held), *run.words.doubts(held), *pictures]
    title = "Does the student speak for its teacher?"
    return Section(title, [*notes, _cards(pictures)], "fidelity", "Student and teacher") if pictures else None


def _learning(run: FittedRun) -> list[Picture]:
    lines = [line for line in run.curve if line["kl"] is not None]
    if len(lines) < LEAST_CURVE:
        return []
    runs = run.results.get("diagnostics", {}).get("student", {}).get("runs", [])
    picture = LearningCurve(
        title="How the student learned",
        caption="The line should fall and level off, near the dashed line at best: the teacher itself is as far from "
        "what it would say with endless draws.",
        alt="Distance of the student from its teacher over the steps.",
        steps=np.asarray([line["step"] for line in lines]),
        distances=np.asarray([line["kl"] for line in lines]),
        teacher_error=runs[0].get("teacher_error") if runs else None,
    )
    return [picture]


def _chains(run: FittedRun) -> Section:
    table = chains.chains_table(run.results)
    if table is None:
        parts: list[Part] = [Note("This run did not keep what its chains predicted.")]
    else:
        parts = [
            Note(
                "The teacher is explored by several chains from different starts. If they come to the same "
                "predictions, their average can be trusted."
            ),
            Note(f"Here: {chains.chains_line(run.results)}.", "strong"),
            # Of one student there is one row, which is easier to read from top to bottom.
            Facts(dict(zip(table.header[2:-1], table.rows[0][2:-1], strict=True))),
            Note(chains.CAPTION.rpartition(" Of several")[0], "small"),
        ]
    return Section("Did the chains agree?", parts, "chains", "Chains")


def _choices(run: FittedRun) -> Section:
    parts: list[Part] = [Facts(chosen(run))]
    table = choices.choices_table(run.results)
    if table is not None:
        explained = Note(f"In words: {choices.first_explanation(run.results)}.")
        numbers = Facts(dict(zip(table.header[2:], table.rows[0][2:], strict=True)))
        parts.append(Section("The teacher's sampler", [explained, numbers]))
    parts += [columns_table(run)] if run.columns else []
    return Section("What was chosen, and why", parts, "choices", "Choices")
