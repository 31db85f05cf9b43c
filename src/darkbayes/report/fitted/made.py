"""How a fit was made: what was chosen by rule, by measuring or by hand, whether the chains agreed, and its origin."""

from typing import Any

from darkbayes.outcomes.words.text import listing, short
from darkbayes.report import teachers
from darkbayes.report.fitted.folder import FittedRun
from darkbayes.report.page import Facts, Note, Part, Section
from darkbayes.report.tables import METRICS, Table
from darkbayes.tables.schema import Category

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


def how_it_was_made(run: FittedRun) -> Section:
    """All of it, folded."""
    origin: dict[str, Any] = {"source's sha256": run.config["sha256"]} | run.results["provenance"]
    names: dict[str, str] = {"version": "darkbayes", "jax": "JAX", "wall_s": "seconds"}
    metrics = {row["metric"] for row in run.results["rows"]}
    scores = {METRICS[metric][0]: text for metric, text in SCORES.items() if metric in metrics}
    chains: list[Part] = [Note("This run did not keep what its chains predicted.")]
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
        layers = [
            f"one hidden layer of {widths[0]} units"
            if len(widths) == 1
            else f"hidden layers of {' and '.join(map(str, widths))} units"
            for widths in (options["hidden"], options["student_hidden"])
        ]
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
        "Teacher": f"{teacher}, sampled by {options['chains']} chain{'s' * (options['chains'] > 1)}; its predictions "
        f"here average {facts['draws']:,} networks",
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


def _columns(run: FittedRun) -> Part:
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
