"""What was chosen for a fit, by rule, by measuring or by hand."""

from darkbayes.outcomes.words.text import listing, short
from darkbayes.report.fitted.folder import FittedRun
from darkbayes.report.tables import Column, Table
from darkbayes.tables.schema import Category, Number


def chosen(run: FittedRun) -> dict[str, str]:
    """Every automatic choice, and what was chosen by hand."""
    facts, options, columns = run.facts, run.facts["options"], list(run.columns.values())
    form = facts.get("transform", "")
    choices = {
        "Data": f"{run.config['source']}, {facts['rows']:,} {run.cases}: {facts['trained']:,} to learn from, "
        f"{facts['held_out']:,} held out at random{run.words.stratified} (seed {run.config['seed']})",
        **run.words.facts(form),
    }
    if columns:
        numbers = sum(isinstance(column, Number) for column in columns)
        kinds = [f"{numbers} of numbers, standardised"] * bool(numbers)
        kinds += [f"{len(columns) - numbers} of categories, an input for each category"] * (len(columns) > numbers)
        flagged = [column.name for column in columns if column.flagged]
        missing = (
            f"Where {listing(flagged)} may be missing, an input of its own says so, and a missing number is replaced "
            "by the median"
        )
        choices["Columns"] = "; ".join(kinds) + f". {missing if flagged else 'No value was missing in training'}"
        choices["Columns left out"] = "; ".join(f"{name}: {why}" for name, why in run.ignored.items())
    else:
        choices["Images"] = " × ".join(map(str, run.schema.shape)) + " (channels, height, width)"
    # The form of the target has a line of its own.
    choices["Notes"] = "; ".join(note for note in facts["notes"] if not form or form not in note)
    teacher = f"a network with {_layers(options['hidden'])}" if columns else "a convolutional network"
    choices["Teacher"] = (
        f"{teacher}, sampled by {options['chains']} chain{'s' * (options['chains'] > 1)}; its predictions here average "
        f"{facts['draws']:,} networks"
    )
    layers = f"{_layers(options['student_hidden'])}, " if columns else ""
    choices["Student"] = f"one network, {layers}{facts['parameters']:,} weights"
    if "plug_in_steps" in facts:
        choices["Plug-in network"] = (
            f"as large as the student, trained for {facts['plug_in_steps']:,} steps: the number that did best on a "
            "part of the training data that was set aside for it"
        )
    budget = options["time_budget"]
    choices["Time budget"] = "none" if budget is None else f"{budget:g} seconds"
    return {name: text for name, text in choices.items() if text}


def _layers(hidden: list[int]) -> str:
    if len(hidden) == 1:
        return f"one hidden layer of {hidden[0]} units"
    return f"hidden layers of {' and '.join(map(str, hidden))} units"


def columns_table(run: FittedRun) -> Table:
    """What each column is."""
    cells = {name: _column(column) for name, column in run.columns.items()}
    return Table(
        "Columns",
        "column",
        {name: name for name in cells},
        [Column(["kind", "values in training", "had missing values"], cells)],
        [],
    )


def _column(column: Number | Category) -> list[str]:
    missing = "yes" if column.flagged else "no"
    if isinstance(column, Category):
        return [f"{len(column.categories)} categories", listing(column.categories), missing]
    return ["whole numbers" if column.whole else "numbers", f"{short(column.low)} to {short(column.high)}", missing]
