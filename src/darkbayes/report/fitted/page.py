"""The page of a fit, section by section; what it says of what is predicted is the outcome's business."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.outcomes.pictures import Picture
from darkbayes.outcomes.words.base import Example, HeldOut, Words
from darkbayes.outcomes.words.text import listing, short
from darkbayes.report import teachers
from darkbayes.report.figures import Drawing, learning_curves
from darkbayes.report.fitted import words
from darkbayes.report.fitted.figures import SIZE, drawn
from darkbayes.report.fitted.folder import FittedRun, read_run
from darkbayes.report.page import Cards, Facts, Figure, Gallery, Listing, Note, Section, Tiles, data_uri, write_page
from darkbayes.report.tables import METRICS, Table, number, pivot
from darkbayes.tables.schema import Category

MOST_VALUES = 6  # Columns of the most uncertain rows that are shown; of more, those on which predictions depend most.
MOST_ROWS = 8  # The most uncertain rows that are shown.
MOST_LETTERS = 40  # Of a value in the table of the most uncertain rows.
LEAST_CURVE = 3  # Points that a curve over time must have.
ALONG = (
    "Above: what is predicted on average over training rows when this column alone takes each value. Below: noise "
    "(aleatoric) and doubt (epistemic). Grey: never seen; there doubt should grow."
)
GLOSSARY = {
    "Student": "The model itself: one network, which predicts as if it were many.",
    "Teacher": "The many networks that fit the data well, from which the student learned. Their average is the "
    "Bayesian prediction.",
    "Plug-in network": "One network as large as the student, trained in the usual way, which knows no doubt.",
    "Noise": "Uncertainty that more data cannot remove (aleatoric).",
    "Doubt": "Uncertainty of the model about itself, which more data could remove (epistemic).",
}
SCORES = {
    "log_likelihood": "The logarithm of the probability (or its density) given to what really happened, on average. "
    "Higher is better: 0.1 more is about 10% more probability.",
    "rmse": "A typical error in the unit of the target, in which large ones weigh most. Lower is better.",
    "coverage_90": "How many true values lie inside. 0.9 is right.",
    "error": "Wrong answers. Lower is better.",
    "brier": "The squared distance of the probabilities from the truth, 0 at best and 2 at worst.",
    "ece": "How far the share of right answers is from the certainty with which they were given, on average.",
}


def write_fitted(folder: Path) -> Path:
    """Write ``report.html`` into the folder of a fit."""
    run = read_run(folder)
    held, about = run.held, run.words
    parts: list[Any] = [Note(words.lead(run), "lead")]
    if held is not None:
        outputs = about.outputs(held)
        trusted = " ".join(own.trusted(one) for own, one in outputs)
        pictures = [(own, picture) for own, one in outputs for picture in (*own.trust(one), own.surest(one))]
        note = f"± is one standard error over the {held.rows:,} {run.cases} held out. {about.score_note(held)}".strip()
        parts += [
            Tiles(words.tiles(run, held), words.noise_share(run, held)),
            Note(" ".join(own.how_good(one) for own, one in outputs)),
            Section("Can its certainty be trusted?", [Note(trusted), _cards(pictures)]),
            Section(f"Scores on {run.cases} that it had never seen", [*pivot(run.results), Note(note, "small")]),
            Section("What does it not know?", [Note(words.unknown(run, held))]),
        ]
    if cautions := words.cautions(run):
        parts.append(Listing("Before you rely on it", cautions))
    if run.dependence:
        parts.append(Section("How it depends on each column", [Note(ALONG), _cards(run.along)]))
    if held is not None:
        parts.append(_examples(run, held))
    parts += [*_fidelity(run), _how_it_was_made(run)]
    title = f"What the model makes of {about.name if run.columns else 'the images'} in {run.config['source']}"
    return write_page(folder / "report.html", title, parts)


def main_figure(folder: Path) -> Drawing:
    """The one figure that says most of a fit."""
    run = read_run(folder)
    if run.held is None:
        raise InvalidInput(f"{folder} has nothing held out: there is no figure of it (fit with --held-out 0.2)")
    own, held = run.words.outputs(run.held)[0]
    return drawn(own.trust(held)[0])


def _cards(pictures: Sequence[tuple[Words, Picture]]) -> Cards:
    """Pictures, with the name of the output in their titles where there are several."""
    several = len({own.name for own, _ in pictures}) > 1
    titles = (f"{own.name}: {picture.title}" if several else picture.title for own, picture in pictures)
    pairs = zip(titles, (picture for _, picture in pictures), strict=True)
    return Cards([Figure(drawn(picture), picture.caption, picture.alt, title) for title, picture in pairs])


def _examples(run: FittedRun, held: HeldOut) -> Section:
    """The most uncertain."""
    hint = "Where doubt is large, another example would teach the model most."
    parts: list[Any] = [Note(f"{run.words.sizes_note} {hint}")]
    outputs, least_sure = run.words.outputs(held), run.examples[:MOST_ROWS]
    places = [str(example["place"]) for example in least_sure]
    examples = [_example(outputs, example["row"]) for example in least_sure]
    if run.images is not None:
        sources = map(_thumbnail, run.images[:MOST_ROWS])
        parts.append(Gallery(list(zip(places, sources, examples, strict=True))))
    else:
        names = list(least_sure[0]["values"] or {}) if least_sure else []
        important = [course["column"] for course in run.dependence][:MOST_VALUES]
        shown = names if len(names) <= MOST_VALUES else [name for name in names if name in important]
        rows = [
            [place, *example[:4], *(_value(run, name, row["values"][name]) for name in shown)]
            for place, example, row in zip(places, examples, least_sure, strict=True)
        ]
        notes = []
        if len(shown) < len(names):
            notes.append(f"Of {len(names)} columns, those on which predictions depend most are shown")
        if any(cell[-1] in "↑↓?" for line in rows for cell in line[5:] if cell):
            notes.append("↓ lower and ↑ higher than anything seen in training; ? a category that was not seen")
        parts.append(Table("", ["", "prediction", "truth", "noise", "doubt", *shown], rows, notes))
    return Section(f"The {run.cases} that it is least sure of", parts)


def _example(outputs: list[tuple[Words, HeldOut]], row: int) -> Example:
    """What is said of a row; of several outputs, of each by its name."""
    examples = {own.name: own.example(held, row) for own, held in outputs}
    if len(examples) == 1:
        return next(iter(examples.values()))
    texts = (", ".join(f"{name} {example[k]}" for name, example in examples.items()) for k in range(4))
    prediction, truth, noise, doubt = texts
    return Example(prediction, truth, noise, doubt)


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


def _fidelity(run: FittedRun) -> list[Section]:
    """What student and teacher say side by side, and how the student learned, as far as it is known."""
    outputs = [] if run.held is None else run.words.outputs(run.held)
    pictures = [(own, picture) for own, held in outputs for picture in (own.answers(held), own.doubts(held))]
    figures, lines = list(_cards(pictures).figures), [line for line in run.curve if line["kl"] is not None]
    if len(lines) >= LEAST_CURVE:
        runs = run.results.get("diagnostics", {}).get("student", {}).get("runs", [{}])
        drawing = learning_curves({"student": lines}, {}, runs[0].get("teacher_error"), SIZE)
        caption = "The line should fall and level off, at best near the teacher's own error."
        alt = "Distance of the student from its teacher over steps."
        figures.append(Figure(drawing, caption, alt, "How the student learned"))
    notes = [Note(" ".join(own.agreement(held) for own, held in outputs))] if outputs else []
    return [Section("Does the student speak for its teacher?", [*notes, Cards(figures)])] if figures else []


def _how_it_was_made(run: FittedRun) -> Section:
    """All of it, folded."""
    origin: dict[str, Any] = {"source's sha256": run.config["sha256"]} | run.results["provenance"]
    names: dict[str, str] = {"version": "darkbayes", "jax": "JAX", "wall_s": "seconds"}
    metrics = {row["metric"] for row in run.results["rows"]}
    scores = {METRICS[metric][0]: text for metric, text in SCORES.items() if metric in metrics}
    chains: list[Any] = [Note("This run did not keep what its chains predicted.")]
    if table := teachers.chains_table(run.results):
        line = teachers.chains_line(run.results)
        chains = [
            Note(f"The teacher is explored by chains from different starts. Here: {line}."),
            # Of one student there is one row, which is easier to read from top to bottom.
            Facts(dict(zip(table.header[2:-1], table.rows[0][2:-1], strict=True))),
            Note(teachers.CHAINS_CAPTION, "small"),
        ]
    sections = [
        Section("What was chosen, and why", [Facts(_chosen(run))]),
        Section("Did the chains agree?", chains),
        *([Section("Columns", [_columns(run)])] if run.columns else []),
        Section("Words on this page", [Facts(GLOSSARY | scores)]),
        Section("Origin", [Facts({names.get(name, name): value for name, value in origin.items()})]),
    ]
    return Section("How this was made", sections, folded=True)


def _chosen(run: FittedRun) -> dict[str, str]:
    """Every automatic choice, and what was chosen by hand."""
    facts, options, form = run.facts, run.facts["options"], run.facts.get("transform", "")
    teacher, student = "a convolutional network", "one network"
    if run.columns:
        each = (options["hidden"], options["student_hidden"])
        forms = ("one hidden layer" if len(widths) == 1 else "hidden layers" for widths in each)
        layers = [f"{form} of {' and '.join(map(str, widths))} units" for form, widths in zip(forms, each, strict=True)]
        teacher, student = f"a network with {layers[0]}", f"one network, {layers[1]}"
    chosen = {
        "Data": f"{run.config['source']}, {facts['rows']:,} {run.cases}: {facts['trained']:,} to learn from, "
        f"{facts['held_out']:,} held out at random{run.words.stratified} (seed {run.config['seed']})",
        "Target": run.words.about,
        "Its form": form,
        "Columns left out": "; ".join(f"{name}: {why}" for name, why in run.ignored.items()),
        "Images": "" if run.columns else " × ".join(map(str, run.schema.shape)) + " (channels, height, width)",
        # The form of the target has a line of its own.
        "Notes": "; ".join(note for note in facts["notes"] if not form or form not in note),
        "Teacher": f"{teacher}{_model(facts)}, sampled by {options['chains']} chain{'s' * (options['chains'] > 1)}; "
        f"its predictions here average {facts['draws']:,} networks",
        "Its sampler": teachers.first_explanation(run.results),
        "Student": f"{student}, {facts['parameters']:,} weights",
        "Time budget": "none" if options["time_budget"] is None else f"{options['time_budget']:g} seconds",
    }
    if "plug_in_steps" in facts:
        chosen["Plug-in network"] = (
            f"as large as the student, trained for {facts['plug_in_steps']:,} steps: the number that did best on a "
            "part of the training data that was set aside for it"
        )
    return {name: text for name, text in chosen.items() if text}


def _model(facts: dict[str, Any]) -> str:
    """What else is told of the network that was sampled, and why it was chosen."""
    if "model" not in facts:
        return ""
    _, activation, likelihood, *prior = facts["model"]["model"]
    tried = [
        f"{' x '.join(map(str, each['hidden']))}, {each['likelihood']}, prior {each.get('prior', 1):g}: "
        + ("diverged" if each["log_likelihood"] is None else f"{each['log_likelihood']:.3f}")
        for each in facts["model"]["tried"]
    ]
    others = f" (log likelihood there: {'; '.join(tried)})" if tried else ""
    likelihood += f", prior precision {prior[0]:g}" if prior else ""
    return f", {activation}, {likelihood} ({facts['model']['reason']}{others})"


def _columns(run: FittedRun) -> Table:
    """What each column is, and how it becomes inputs."""
    rows = []
    for name, column in run.columns.items():
        if isinstance(column, Category):
            kind, values = f"{len(column.categories)} categories, an input for each", listing(column.categories)
        else:
            kind = "whole numbers, standardised" if column.whole else "numbers, standardised"
            values = f"{short(column.low)} to {short(column.high)}"
        missing = "an input says so; a number is replaced by the median" if column.flagged else "never in training"
        rows.append([name, kind, values, missing])
    return Table("", ["column", "kind", "values in training", "where missing"], rows, [])
