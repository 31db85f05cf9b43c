"""Results as tables: one pivot, written for the terminal, Markdown or HTML."""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

METRICS = {
    "log_likelihood": "log likelihood",
    "error": "error (%)",
    "brier": "Brier score",
    "ece": "calibration error",
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage_90": "share inside the 90% interval",
    "kl_from_teacher": "KL(teacher || student)",
}
"""What the metrics that all results may have are called."""

FITTED = {"student": "student (one network)", "sgld": "teacher", "sgd": "plug-in network"}
"""What the methods of a fit are called."""

BETTER = {
    "log_likelihood": "the higher the better",
    "rmse": "the lower the better",
    "error": "the lower the better",
    "brier": "the lower the better",
    "ece": "the lower the better",
    "coverage_90": "the closer to 0.9 the better",
}
"""Which way a metric of the tables by data set is to be read."""
INPUT_NOISE = " input noise"
LABEL_WIDTH = 24
"""How wide the first column may be in a terminal."""


@dataclass(frozen=True)
class Names:
    """What the methods and metrics of results are called, and which of them stand together.

    >>> Names({"sgld": "SGLD"}).method("sgld input noise")
    'SGLD, noise from the input'
    """

    methods: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Beside those of `METRICS`."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Metrics that have a table of their own, with its title; all others share the first table."""
    rivals: tuple[str, ...] = ()
    """Two methods that stand side by side in the tables by data set, the better one marked."""

    def method(self, name: str) -> str:
        """What a method is called."""
        if INPUT_NOISE in name:
            return f"{self.method(name.replace(INPUT_NOISE, ''))}, noise from the input"
        return self.methods.get(name, name)

    def metric(self, name: str) -> str:
        """What a metric is called."""
        return self.metrics.get(name) or METRICS.get(name, name)

    def table(self, metric: str) -> str:
        """The title of the table that a metric belongs to."""
        return "Students of growing width" if metric == "kl_from_teacher" else self.tables.get(metric, "")


PLAIN = Names()
"""For results of which nothing is known."""


class Best(str):
    """The text of a cell that stands out."""

    __slots__ = ()
    best = True


class Column(NamedTuple):
    """One or two headings, and as many cells for every row that has any."""

    header: list[str]
    cells: dict[str, list[str]]


class Table(NamedTuple):
    """Columns of text over common rows, and notes for what concerns a single method."""

    title: str
    corner: str
    """What the rows are."""
    labels: dict[str, str]
    """What each row is called, by its key in the columns."""
    columns: list[Column]
    notes: list[str]
    kind = "table"

    @property
    def header(self) -> list[str]:
        """The headings from left to right."""
        return [self.corner, *(name for column in self.columns for name in column.header)]

    @property
    def rows(self) -> list[list[str]]:
        """The cells from left to right, row by row."""
        return [
            [label, *(cell for column in self.columns for cell in column.cells.get(key, [""] * len(column.header)))]
            for key, label in self.labels.items()
        ]


def group_table(corner: str, groups: Mapping[str, Any], columns: Mapping[str, Callable[[Any], str]]) -> Table:
    """A table with a row for each group of something, by its label, and what `columns` write of it."""
    written = {
        heading: {label: [write(group)] for label, group in groups.items()} for heading, write in columns.items()
    }
    shown = [Column([heading], cells) for heading, cells in written.items()]
    return Table("", corner, {label: label for label in groups}, shown, [])


def pivot(results: dict[str, Any], metrics: Sequence[str] = (), names: Names = PLAIN) -> list[Table]:
    """The tables of results.

    A row per method and a column per metric; beside it the paper's number, or our own bar, where there is one. A metric
    that concerns a single method becomes a note. Results on several data sets have a table per metric instead, with a
    row per data set and a column per method.

    Args:
        results: Those of a run.
        metrics: Some to show; all by default.
        names: What methods and metrics are called.

    Returns:
        The tables, each with what is shown in its cells.

    >>> row = {"method": "sgld", "metric": "rmse", "mean": 0.0004, "se": 0.0001, "paper": 0.007}
    >>> pivot({"rows": [row]}, names=Names({"sgld": "SGLD"}))[0].rows
    [['SGLD', '0.007', '0.00040 ± 0.00010']]
    """
    rows = [row for row in results["rows"] if not metrics or row["metric"] in metrics]
    if results.get("experiment") == "fit":
        return [_fitted(rows)] if rows else []
    if any("dataset" in row for row in rows):
        return [_by_dataset(metric, group, names) for metric, group in _grouped(rows, lambda row: row["metric"])]
    return [_by_method(title, group, names) for title, group in _grouped(rows, lambda row: names.table(row["metric"]))]


def _fitted(rows: list[dict[str, Any]]) -> Table:
    """The scores of a fit, with its own names for the methods."""
    draws = next((f" ({row['draws']:,} draws)" for row in rows if "draws" in row), "")
    names = Names(FITTED | {"sgld": FITTED["sgld"] + draws})
    table = _by_method("", [row for row in rows if row["metric"] != "gain_kept"], names)
    return table._replace(notes=[_kept(row) for row in rows if row["metric"] == "gain_kept"])


def _kept(row: dict[str, Any]) -> str:
    """What the student keeps of its teacher's gain, if there is a gain that is no accident."""
    if not row.get("clear"):
        return "the teacher is not clearly better than the plug-in network, so there is no gain to keep a share of"
    error = f" ± {row['se']:.0%}" if row["se"] is not None else ""
    return f"the student keeps {row['mean']:.0%}{error} of what the teacher gains over the plug-in network"


def _grouped(rows: list[dict[str, Any]], key: Any) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups.items()


def _by_method(title: str, rows: list[dict[str, Any]], names: Names) -> Table:
    by_metric = dict(_grouped(rows, lambda row: row["metric"]))
    shared = [metric for metric, group in by_metric.items() if len(group) > 1] or list(by_metric)
    return Table(
        title=title,
        corner="method",
        labels={row["method"]: names.method(row["method"]) for row in rows if row["metric"] in shared},
        columns=[_column(names.metric(metric), by_metric[metric]) for metric in shared],
        notes=[_note(row, names) for row in rows if row["metric"] not in shared],
    )


def _column(label: str, rows: list[dict[str, Any]]) -> Column:
    if any("paper" in row for row in rows):
        cells = {row["method"]: [number(row.get("paper")), measured(row)] for row in rows}
        return Column([f"{label}, paper", f"{label}, ours"], cells)
    if any("bar" in row for row in rows):
        return Column([label, "bar"], {row["method"]: [measured(row), _bar(row)] for row in rows})
    return Column([label], {row["method"]: [measured(row)] for row in rows})


def _by_dataset(metric: str, rows: list[dict[str, Any]], names: Names) -> Table:
    means = {(row["dataset"], row["method"]): row["mean"] for row in rows}
    direction = BETTER.get(metric, "")
    by_method = dict(_grouped(rows, lambda row: row["method"]))

    def cell(row: dict[str, Any]) -> str:
        rivals = [means[row["dataset"], method] for method in names.rivals if (row["dataset"], method) in means]
        ahead = (max if "higher" in direction else min)(rivals, default=None)
        marked = row["method"] in names.rivals and len(rivals) == len(names.rivals) and row["mean"] == ahead
        return Best(measured(row)) if marked else measured(row)

    label = names.metric(metric)
    return Table(
        title=", ".join(filter(None, (f"{label[0].upper()}{label[1:]}", direction))),
        corner="data set",
        labels={row["dataset"]: row["dataset"] for row in rows},
        columns=[
            Column([names.method(method)], {row["dataset"]: [cell(row)] for row in by_method[method]})
            for method in sorted(by_method, key=lambda method: method not in names.rivals)
        ],
        notes=[],
    )


def _bar(row: dict[str, Any]) -> str:
    return f"{row['bar_is']} {number(row['bar'])}" if "bar" in row else ""


def _note(row: dict[str, Any], names: Names) -> str:
    beside = [f" (the paper: {number(row['paper'])})"] if "paper" in row else []
    beside += [f" (bar: {_bar(row)})"] if "bar" in row else []
    return f"{names.method(row['method'])}: {names.metric(row['metric'])} {measured(row)}{''.join(beside)}"


def measured(row: dict[str, Any]) -> str:
    """Mean and standard error as text; what others published, to the digits that they gave.

    >>> measured({"mean": 1.3068, "se": 0.0169}), measured({"mean": -2.9, "se": 0.07, "published": True})
    ('1.307 ± 0.017', '-2.90 ± 0.07')
    """
    if row.get("mean") is None:
        return ""
    mean, error = row["mean"], row.get("se")
    if row.get("published"):
        digits = max(2, *(len(str(value).partition(".")[2]) for value in (mean, error or 0)))
        return " ± ".join(f"{value:.{digits}f}" for value in (mean, error) if value is not None)
    if error is None:
        return number(mean)
    return f"{_rounded(mean, error)} ± {_rounded(error, error)}"


def _rounded(value: float, error: float) -> str:
    """`value` to the second significant digit of its error."""
    digits = 1 - math.floor(math.log10(error)) if error > 0 else 4
    return f"{value:.{max(digits, 0)}f}"


def number(value: float | None) -> str:
    """A number to four digits, or nothing."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def markdown(results: dict[str, Any], metrics: Sequence[str] = (), names: Names = PLAIN) -> str:
    """The tables of `pivot` in Markdown, with their notes and where they come from."""
    parts = []
    for table in pivot(results, metrics, names):
        parts += [f"*{table.title}*"] if table.title else []
        parts.append(markdown_table(table.header, table.rows))
        parts += [". ".join(table.notes) + "."] if table.notes else []
    return "\n\n".join([*parts, f"Made by {made_by(results)}."])


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Text cells as a table in Markdown."""

    def text(cell: str) -> str:
        plain = cell.replace("|", "\\|")
        return f"**{plain}**" if isinstance(cell, Best) else plain

    return "\n".join("| " + " | ".join(map(text, line)) + " |" for line in (header, ["---"] * len(header), *rows))


def made_by(results: dict[str, Any]) -> str:
    """How the numbers were made."""
    origin = results["provenance"]
    commit = origin["commit"] or "none"
    commit = commit[:10] + commit[40:]  # Whole it has 40 letters, and perhaps a remark.
    made = f"`{origin['command']}`, {repeated(results)}, seed {origin['seed']}, {origin['device']}, at commit {commit}"
    return made + (f" ({origin['note']})" if "note" in origin else "")


def repeated(results: dict[str, Any]) -> str:
    """Over how many trials the numbers were taken, and how."""
    rows = [row for row in results["rows"] if not row.get("published")]
    if any("held_out" in row for row in rows):
        return f"± standard error over {rows[0]['held_out']:,} examples held out"
    number = max(row["trials"] for row in rows)
    if any(row.get("statistic") == "median" for row in rows):
        return f"median of {number}"
    return f"mean ± standard error over {number} trials" if number > 1 else "one trial"


def terminal(results: dict[str, Any], names: Names = PLAIN) -> None:
    """Print the tables for a person; one that is too wide for the terminal is continued below."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console()
    if not results["rows"]:
        console.print("nothing was held out: there are no scores", highlight=False)
    for table in pivot(results, names=names):
        console.print(_heading(results, table), style="bold", highlight=False)
        for part in _parts(table, console.width):
            shown = RichTable(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
            for heading, *cells in zip(part.header, *part.rows, strict=True):
                shown.add_column(
                    textwrap.fill(heading, _width(heading, cells)), justify="left" if not shown.columns else "right"
                )
            for label, *line in part.rows:
                cells = [f"[bold]{cell}[/]" if isinstance(cell, Best) else cell for cell in line]
                shown.add_row(textwrap.fill(label, LABEL_WIDTH), *cells)
            console.print(shown)
        for note in table.notes:
            console.print(note, highlight=False)


def _heading(results: dict[str, Any], table: Table) -> str:
    if results["experiment"] == "fit":
        return f"scores {repeated(results)}"
    if results["experiment"] == "evaluate":
        return f"scores on {results['preset']}"
    return ": ".join(filter(None, (f"{results['experiment']}, preset {results['preset']}", table.title)))


def _width(heading: str, cells: Sequence[str]) -> int:
    """How wide a column must be; long headings are broken between words."""
    return max(min(len(heading), 6), *map(len, (*heading.split(), *cells)))


def _parts(table: Table, width: int) -> Iterator[Table]:
    """The table in parts of whole columns that fit into the width, each with the rows that it says something of."""
    lines = [line for label in table.labels.values() for line in textwrap.wrap(label, LABEL_WIDTH)]
    start = 1 + 2 + _width(table.corner, lines)  # The table's edge, and two spaces before each column.
    columns, used = [], start
    for column in table.columns:
        cells = [column.cells.get(key, [""] * len(column.header)) for key in table.labels]
        below = zip(column.header, zip(*cells, strict=True), strict=True)
        needed = sum(2 + _width(name, texts) for name, texts in below)
        if columns and used + needed > width:
            yield _part(table, columns)
            columns, used = [], start
        columns.append(column)
        used += needed
    yield _part(table, columns)


def _part(table: Table, columns: list[Column]) -> Table:
    labels = {key: label for key, label in table.labels.items() if any(key in column.cells for column in columns)}
    return table._replace(columns=columns, labels=labels)
