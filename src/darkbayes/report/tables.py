"""Results as tables: one pivot, written for the terminal, Markdown or HTML."""

import math
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from darkbayes.outcomes.words.text import MOST_WRITTEN, short

Row = dict[str, Any]  # A number of results: its `method`, `metric`, `mean` and more.
METRICS = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text("utf-8"))
STANDARD = 90
"""The level of the intervals and sets that the file has metrics of, in per cent."""
FITTED = {
    "student": "student (one network)",
    "sgld": "teacher",
    "sgd": "plug-in network",
    "trees": "gradient boosting (scikit-learn)",
}
"""What the methods of a fit are called."""
INPUT_NOISE = " input noise"
MOST_COLUMNS = 10  # Methods beyond which each has a row, and data sets have the columns.
LABEL_WIDTH = 24  # How wide the first column may be in a terminal.


def described(metric: str) -> dict[str, str]:
    """What is known of a metric; of intervals and sets, whatever their level.

    >>> described("guaranteed_coverage_80")["name"], described("unknown")
    ('share inside the guaranteed 80% interval', {})
    """
    kind, _, level = metric.rpartition("_")
    if metric in METRICS or not re.fullmatch(r"[\d.]+", level):
        return METRICS.get(metric, {})
    percent, share = f"{STANDARD}%", f"{STANDARD / 100:g}"
    like = METRICS.get(f"{kind}_{STANDARD}", {})
    return {
        key: text.replace(percent, f"{level}%").replace(share, f"{float(level) / 100:g}") for key, text in like.items()
    }


@dataclass(frozen=True)
class Names:
    """What the methods and metrics of results are called, and which of them stand together.

    >>> Names({"sgld": "SGLD"}).method("sgld input noise")
    'SGLD, noise from the input'
    """

    methods: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)  # Beside those of `METRICS`.
    tables: Mapping[str, str] = field(default_factory=dict)
    """Metrics that have a table of their own, with its title; all others share the first table."""
    teachers: tuple[str, ...] = ()
    """Those that students learn from; tables by data set then mark the best, and say how often that is the student."""

    def method(self, name: str) -> str:
        if INPUT_NOISE in name:
            return f"{self.method(name.replace(INPUT_NOISE, ''))}, noise from the input"
        return self.methods.get(name, name)

    def metric(self, name: str) -> str:
        return self.metrics.get(name) or described(name).get("name", name)

    def table(self, metric: str) -> str:
        """The title of the table that a metric belongs to."""
        return "Students of growing width" if metric == "kl_from_teacher" else self.tables.get(metric, "")


PLAIN = Names()  # For results of which nothing is known.


class Best(str):
    """The text of a cell that stands out."""

    __slots__ = ()
    best = True


class PageTable(NamedTuple):
    """Cells of text from left to right, row by row, and notes for what concerns a single method."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]

    def parts(self, width: int) -> "Iterator[PageTable]":
        """The table in parts of whole columns that fit into the width, each with the rows that it says something of."""
        corner, *columns = zip(self.header, *self.rows, strict=True)
        labels = [line for label in corner[1:] for line in textwrap.wrap(label, LABEL_WIDTH)]
        start = 1 + 2 + _width(corner[0], labels)  # The table's edge, and two spaces before each column.
        together: list[list[tuple[str, ...]]] = []  # A bar stays with its metric, and ours with the paper's.
        for column in columns:
            if together and (column[0] == "bar" or together[-1][-1][0].endswith(", paper")):
                together[-1].append(column)
            else:
                together.append([column])
        parts, used = [[]], start
        for group in together:
            needed = sum(2 + _width(column[0], column[1:]) for column in group)
            if parts[-1] and used + needed > width:
                parts.append([])
                used = start
            parts[-1] += group
            used += needed
        for part in parts:
            header, *rows = (list(line) for line in zip(corner, *part, strict=True))
            yield self._replace(header=header, rows=[row for row in rows if any(row[1:])])


def _width(heading: str, cells: Sequence[str]) -> int:
    """How wide a column must be; long headings are broken between words."""
    return max(min(len(heading), 6), *map(len, (*heading.split(), *cells)))


def pivot(results: dict[str, Any], metrics: Sequence[str] = (), names: Names = PLAIN) -> list[PageTable]:
    """The tables of results.

    A row per method and a column per metric; beside it the paper's number, or our own bar, where there is one. A metric
    that concerns a single method becomes a note. Results on several data sets have a table per metric instead, with a
    row per data set and a column per method, or the other way round where methods are many.

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


def _fitted(rows: list[Row]) -> PageTable:
    """The scores of a fit, and what the student keeps of its teacher's gain, if there is one that is no accident."""
    draws = next((f" ({row['draws']:,} draws)" for row in rows if "draws" in row), "")
    names, notes = Names(FITTED | {"sgld": FITTED["sgld"] + draws}), []
    for row in [row for row in rows if row["metric"] == "gain_kept"]:
        text = "the teacher is not clearly better than the plug-in network, so there is no gain to keep a share of"
        if row.get("clear"):
            share = f"{row['mean']:.0%}" + (f" ± {row['se']:.0%}" if row["se"] is not None else "")
            text = f"the student keeps {share} of what the teacher gains over the plug-in network"
        notes.append(text)
    return _by_method("", [row for row in rows if row["metric"] != "gain_kept"], names)._replace(notes=notes)


def _grouped(rows: list[Row], key: Any) -> Iterable[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups.items()


def _by_method(title: str, rows: list[Row], names: Names) -> PageTable:
    by_metric = dict(_grouped(rows, lambda row: row["metric"]))
    shared = [metric for metric, group in by_metric.items() if len(group) > 1] or list(by_metric)
    header: list[str] = ["method"]
    lines = {row["method"]: [names.method(row["method"])] for row in rows if row["metric"] in shared}

    def columns(metric: str) -> tuple[list[str], Callable[[Row], list[str]]]:
        """What stands above a metric, and its cells in a row."""
        label, group = names.metric(metric), by_metric[metric]
        if any("paper" in row for row in group):
            return [f"{label}, paper", f"{label}, ours"], lambda row: [number(row.get("paper")), measured(row)]
        if any("bar" in row for row in group):
            return [label, "bar"], lambda row: [measured(row), _bar(row)]
        return [label], lambda row: [measured(row)]

    for metric in shared:
        headings, write = columns(metric)
        header += headings
        cells = {row["method"]: write(row) for row in by_metric[metric]}
        for method, line in lines.items():
            line += cells.get(method, [""] * len(headings))
    notes = []
    for row in [row for row in rows if row["metric"] not in shared]:
        beside = f" (the paper: {number(row['paper'])})" if "paper" in row else ""
        beside += f" (bar: {_bar(row)})" if "bar" in row else ""
        notes.append(f"{names.method(row['method'])}: {names.metric(row['metric'])} {measured(row)}{beside}")
    return PageTable(title, header, list(lines.values()), notes)


def _by_dataset(metric: str, rows: list[Row], names: Names) -> PageTable:
    direction, label = described(metric).get("direction", ""), names.metric(metric)
    methods, lines = list(dict.fromkeys(row["method"] for row in rows)), []
    for dataset, group in _grouped(rows, lambda row: row["dataset"]):
        best = _best(metric, group) if names.teachers else None
        cells = {row["method"]: (Best if row["mean"] == best else str)(measured(row)) for row in group}
        lines.append([dataset, *(cells.get(method, "") for method in methods)])
    title = ", ".join(filter(None, (f"{label[0].upper()}{label[1:]}", direction)))
    notes = [best_of_all(rows, names)] if names.teachers and _best(metric, rows) is not None else []
    table = PageTable(title, ["data set", *map(names.method, methods)], lines, list(filter(None, notes)))
    if len(methods) <= MOST_COLUMNS:
        return table
    header, *lines = (list(line) for line in zip(table.header, *table.rows, strict=True))
    return table._replace(header=["method", *header[1:]], rows=lines)


def _best(metric: str, rows: list[Row]) -> float | None:
    """The best mean of a metric, where one is better than another; over fewer trials than others have, none is."""
    most = max((row["trials"] for row in rows if not row.get("published")), default=0)
    rows = [row for row in rows if row.get("published") or row["trials"] == most]
    direction = described(metric).get("direction", "")
    pick = max if "higher" in direction else min if "lower" in direction else None
    return pick(row["mean"] for row in rows if row["mean"] is not None) if pick else None


def best_of_all(rows: list[Row], names: Names) -> str:
    """On how many data sets no method has a better mean of the rows' metric than the student; empty without any."""
    ahead, but_teachers, number = 0, 0, 0
    for _, group in _grouped(rows, lambda row: row["dataset"]):
        means = [row["mean"] for row in group if row["method"] == "student"]
        others = [row for row in group if row["method"] not in names.teachers]
        if means and len(others) > 1:
            metric, number = group[0]["metric"], number + 1
            ahead += means[0] == _best(metric, group)
            but_teachers += means[0] == _best(metric, others)
    line = f"The student is the best of all columns on {ahead} of {number} data sets"
    return f"{line}, on {but_teachers} if its own teacher is left out" if number else ""


def _bar(row: Row) -> str:
    return f"{row['bar_is']} {number(row['bar'])}" if "bar" in row else ""


def measured(row: Row) -> str:
    """Mean and standard error as text; what others published, to the digits that they gave.

    >>> measured({"mean": 1.3068, "se": 0.0169}), measured({"mean": -2.9, "se": 0.07, "published": True})
    ('1.307 ± 0.017', '-2.90 ± 0.07')
    """
    mean, error = row.get("mean"), row.get("se")
    if mean is None:
        return ""
    if abs(mean) > MOST_WRITTEN:
        return short(mean)
    if row.get("published"):
        digits = max(2, *(len(str(value).partition(".")[2]) for value in (mean, error or 0)))
        return " ± ".join(f"{value:.{digits}f}" for value in (mean, error) if value is not None)
    if error is None:
        return number(mean)
    digits = max(1 - math.floor(math.log10(error)) if error > 0 else 4, 0)  # To the error's second one.
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def number(value: float | None) -> str:
    """A number to four digits, or nothing."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def repeated(results: dict[str, Any]) -> str:
    """Over how many trials the numbers were taken, and how."""
    rows = [row for row in results["rows"] if not row.get("published")]
    if any("held_out" in row for row in rows):
        return f"± standard error over {rows[0]['held_out']:,} examples held out"
    number = max(row["trials"] for row in rows)
    if any(row.get("statistic") == "median" for row in rows):
        return f"median of {number}"
    least = min(row["trials"] for row in rows)
    several = f"{number}" if least == number or not any("dataset" in row for row in rows) else f"{least} to {number}"
    return f"mean ± standard error over {several} trials" if number > 1 else "one trial"


def terminal(results: dict[str, Any], names: Names = PLAIN) -> None:
    """Print the tables for a person; one that is too wide for the terminal is continued below."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console()
    if not results["rows"]:
        console.print("nothing was held out: there are no scores", highlight=False)
    for table in pivot(results, names=names):
        if results["experiment"] in ("fit", "evaluate"):
            heading = "scores " + (repeated(results) if results["experiment"] == "fit" else f"on {results['preset']}")
        else:
            heading = ": ".join(filter(None, (f"{results['experiment']}, preset {results['preset']}", table.title)))
        console.print(heading, style="bold", highlight=False)
        for part in table.parts(console.width):
            shown = RichTable(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
            for heading, *cells in zip(part.header, *part.rows, strict=True):
                side = "right" if shown.columns else "left"
                shown.add_column(textwrap.fill(heading, _width(heading, cells)), justify=side)
            for label, *line in part.rows:
                cells = [f"[bold]{cell}[/]" if isinstance(cell, Best) else cell for cell in line]
                shown.add_row(textwrap.fill(label, LABEL_WIDTH), *cells)
            console.print(shown)
        for note in table.notes:
            console.print(note, highlight=False)
