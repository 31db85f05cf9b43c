"""What was chosen for a fit, by rule, by measuring or by hand."""

from darkbayes.report.fitted.folder import Fit
from darkbayes.report.fitted.written import listed, short
from darkbayes.tables import Number, RealTarget


def chosen(fit: Fit) -> dict[str, str]:
    """Every automatic choice, and what was chosen by hand."""
    facts, options = fit.facts, fit.facts["options"]
    found = {"Data": _data_words(fit)}
    if isinstance(fit.target, RealTarget):
        found["Target"] = (
            f"{fit.target.name}, a number from {short(fit.target.low)} to {short(fit.target.high)} in training"
        )
        if facts.get("transform"):
            found["Its form"] = facts["transform"]
    else:
        found["Target"] = f"{fit.target.name}, one of {len(fit.classes)} classes"
    if fit.table:
        numbers, categories = fit.table.numbers, fit.table.categories
        columns = [f"{len(numbers)} of numbers, standardised"] * bool(numbers)
        columns += [f"{len(categories)} of categories, an input for each category"] * bool(categories)
        flagged = [column.name for column in fit.table.columns if column.flagged]
        found["Columns"] = "; ".join(columns) + (
            f". Missing values in {listed(flagged)} are told to the network as such, those of numbers by the median "
            "as well"
            if flagged
            else ". No value was missing in training"
        )
        if fit.table.ignored:
            found["Columns left out"] = "; ".join(f"{name}: {why}" for name, why in fit.table.ignored.items())
    else:
        found["Images"] = " × ".join(map(str, fit.schema.shape)) + " (channels, height, width)"
    # The form of the target has a line of its own.
    found["Notes"] = "; ".join(
        note for note in facts["notes"] if not facts.get("transform") or facts["transform"] not in note
    )
    wide = " and ".join
    teacher = (
        f"one hidden layer of {options['hidden'][0]} units"
        if len(options["hidden"]) == 1
        else f"hidden layers of {wide(map(str, options['hidden']))} units"
    )
    found["Teacher"] = (
        f"{'a network with ' + teacher if fit.table else 'a convolutional network'}, sampled by {options['chains']} "
        f"chain{'s' * (options['chains'] > 1)}; its predictions here average {facts['draws']:,} networks"
    )
    layers = f"hidden layers of {wide(map(str, options['student_hidden']))} units, " if fit.table else ""
    found["Student"] = f"one network, {layers}{facts['parameters']:,} weights"
    if "plug_in_steps" in facts:
        found["Plug-in network"] = (
            f"as large as the student, trained for {facts['plug_in_steps']:,} steps: the number that did best on a "
            "part "
            "of the training data that was kept aside for it"
        )
    budget = options["time_budget"]
    found["Time budget"] = "none" if budget is None else f"{budget:g} seconds"
    return {name: text for name, text in found.items() if text}


def _data_words(fit: Fit) -> str:
    facts = fit.facts
    text = f"{fit.config['source']}, {facts['rows']:,} {fit.cases}: {facts['trained']:,} to learn from, "
    text += f"{facts['held_out']:,} held out at random"
    if fit.classes:
        text += ", in each class alike"
    return text + f" (seed {fit.config['seed']})"


def columns_table(fit: Fit) -> dict[str, list]:
    """What each column is, as a table."""
    assert fit.table is not None
    rows = []
    for column in fit.table.columns:
        if isinstance(column, Number):
            kind, values = (
                "whole numbers" if column.whole else "numbers",
                f"{short(column.low)} to {short(column.high)}",
            )
        else:
            kind, values = f"{len(column.categories)} categories", listed(list(column.categories))
        rows.append([column.name, kind, values, "yes" if column.flagged else "no"])
    return {"header": ["column", "kind", "values in training", "had missing values"], "rows": rows}
