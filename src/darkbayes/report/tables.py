"""Results as tables: one pivot, written for the terminal, Markdown or HTML."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

LABELS = {
    "kl_from_hmc": "KL(HMC || method)",
    "kl_to_hmc": "KL(method || HMC)",
    "kl_from_teacher": "KL(teacher || student)",
    "rhat_max": "largest split R-hat of the predictions",
    "log_likelihood": "log likelihood",
    "error": "error (%)",
    "brier": "Brier score",
    "ece": "calibration error",
    "gain_kept": "share kept of the teacher's gain in log likelihood over SGD",
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage_90": "share inside the 90% interval",
    "networks": "networks",
    "parameters": "parameters",
    "predict_ms": "ms for 1,000 images",
    "predict_ratio": "times the student's time",
    "ms_per_step": "ms per step",
    "us_per_step": "microseconds per step",
    "speedup": "times as fast",
    "peak_rss_mb": "peak memory (MB)",
    "rss_ratio": "ratio of peak memory",
    "bit_identical": "same bits as the uninterrupted run (1: yes)",
    "kills": "kills",
    "kills_that_cut_a_checkpoint_short": "kills that cut a checkpoint short",
    "done_at_last_kill": "share of the run done at the last kill",
    "kl_toy2d_auto": "KL(NUTS || method), 2-D toy, auto",
    "kl_toy2d_tuned": "2-D toy, tuned",
    "kl_boston_auto": "Boston, auto",
    "kl_boston_tuned": "Boston, tuned",
    "gain_toy2d": "times fewer gradients than SGLD, 2-D toy",
    "gain_boston": "times fewer gradients than SGLD, Boston",
    "inflation_0.1": "variance inflated at stiffness 0.1 (%)",
    "inflation_0.5": "at stiffness 0.5 (%)",
    "inflation_1.0": "at stiffness 1 (%)",
    "kl_student": "KL(NUTS || student)",
    "kl_teacher": "KL(NUTS || teacher)",
    "import_s": "seconds",
    "seconds_over": "seconds more",
    "rows": "rows predicted",
    "mb_per_s": "MB a second",
    "order_kept": "in their order (1: yes)",
    "bad_rows_found": "bad rows reported by their lines",
    "size_ratio": "times the bytes of the parameters in float32",
    "latency_us": "microseconds for one row",
    "latency_ratio": "times the student's time",
    "bytes": "bytes",
    "log_likelihood_lost": "log likelihood lost a row (nats)",
    "errors": "requests not answered well",
    "p50_ms": "median latency (ms)",
    "p99_ms": "99th percentile of the latency (ms)",
    "requests_per_s": "requests a second",
    "wrong_requests": "wrong requests",
    "refused": "refused with the reason (4xx)",
    "server_errors": "failed (5xx)",
}
"""What a metric's name stands for."""

METHODS = {
    "sgd": "SGD (plug-in)",
    "hmc": "HMC",
    "sgld": "SGLD",
    "sgld with student": "SGLD and its student",
    "psgld": "pSGLD",
    "psgld with gamma": "pSGLD with its Gamma term",
    "sghmc": "SGHMC",
    "scale-adapted sghmc": "SGHMC, scale-adapted",
    "sgnht": "SG-NHT",
    "baoa": "BAOA",
    "sgfs": "SGFS, diagonal",
    "sgfs full": "SGFS, full",
    "sgrld": "SGRLD",
    "fisher_sgld": "Fisher SGLD",
    "fisher_sgld with momentum": "Fisher SGLD with momentum",
    "sgld with svrg": "SGLD with SVRG",
    "pbp": "PBP",
    "vi": "variational inference",
    "dropout": "dropout (plug-in)",
    "dropout mc": "MC dropout",
    "gp": "Gaussian process",
    "mlp": "MLPClassifier",
    "bbb gaussian": "Bayes by backprop, Gaussian prior",
    "bbb mixture": "Bayes by backprop, mixture prior",
    "dropout mc, bbb": "MC dropout, Bayes by backprop",
    "ensemble": "deep ensemble",
    "vi, published": "VI, published",
    "pbp, published": "PBP, published",
    "dropout mc, published": "MC dropout, published",
    "ensemble, published": "deep ensemble, published",
}
"""What a method is called; see `method_name`."""

FITTED = {"student": "student (one network)", "sgld": "teacher", "sgd": "plug-in network"}
"""Likewise in the results of a fit."""

_COSTS = "What it takes to store and to predict"
GROUPS = dict.fromkeys(("networks", "parameters", "predict_ms", "predict_ratio"), _COSTS) | {
    "ms_per_step": "What a step of training takes",
    "kl_from_teacher": "Students of growing width",
    **dict.fromkeys(("gain_toy2d", "gain_boston"), "Gradients to come as close as SGLD ever does"),
    **dict.fromkeys(("inflation_0.1", "inflation_0.5", "inflation_1.0"), "What discretisation does to a Gaussian"),
}
"""The metrics that have a table of their own, with its title; all others share the first table."""

BETTER = {
    "log_likelihood": "the higher the better",
    "rmse": "the lower the better",
    "error": "the lower the better",
    "brier": "the lower the better",
    "ece": "the lower the better",
    "coverage_90": "the closer to 0.9 the better",
}
"""Which way a metric of the tables by data set is to be read."""
RIVALS = ("student", "pbp, published")
"""Two methods that stand side by side in the tables by data set, the better one marked."""

INPUT_NOISE = " input noise"
LABEL_WIDTH = 24
"""How wide the first column may be in a terminal."""


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

    @property
    def header(self) -> list[str]:
        """The headings from left to right."""
        return [self.corner, *(name for column in self.columns for name in column.header)]

    @property
    def rows(self) -> list[list[str]]:
        """The cells from left to right, row by row."""
        return [
            [label, *(cell for of in self.columns for cell in of.cells.get(key, [""] * len(of.header)))]
            for key, label in self.labels.items()
        ]


def method_name(method: str) -> str:
    """A method's name for people.

    >>> method_name("student input noise 13-50-2")
    'student 13-50-2, noise from the input'
    """
    if INPUT_NOISE in method:
        return f"{method_name(method.replace(INPUT_NOISE, ''))}, noise from the input"
    return METHODS.get(method, method)


def pivot(results: dict[str, Any], metrics: Sequence[str] = ()) -> list[Table]:
    """The tables of results, of some `metrics` or all.

    A row per method and a column per metric; beside it the paper's number, or our own bar, where there is one. A metric
    that concerns a single method becomes a note. Results on several data sets have a table per metric instead, with a
    row per data set and a column per method.

    >>> row = {"method": "sgld", "metric": "kl_from_hmc", "mean": 0.0004, "se": 0.0001, "paper": 0.007}
    >>> pivot({"rows": [row]})[0].rows
    [['SGLD', '0.007', '0.00040 ± 0.00010']]
    """
    rows = [row for row in results["rows"] if not metrics or row["metric"] in metrics]
    if results.get("experiment") == "fit":
        return [_fitted(rows)] if rows else []
    if any("dataset" in row for row in rows):
        return [_by_dataset(metric, found) for metric, found in _grouped(rows, lambda row: row["metric"])]
    return [_by_method(title, found) for title, found in _grouped(rows, lambda row: GROUPS.get(row["metric"], ""))]


def _fitted(rows: list[dict[str, Any]]) -> Table:
    """The scores of a fit, with its own names for the methods."""
    table = _by_method("", [row for row in rows if row["metric"] != "gain_kept"])
    draws = next((f" ({row['draws']:,} draws)" for row in rows if "draws" in row), "")
    labels = {method: FITTED[method] + draws * (method == "sgld") for method in table.labels}
    return table._replace(labels=labels, notes=[_kept(row) for row in rows if row["metric"] == "gain_kept"])


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


def _by_method(title: str, rows: list[dict[str, Any]]) -> Table:
    by_metric = dict(_grouped(rows, lambda row: row["metric"]))
    shared = [metric for metric, found in by_metric.items() if len(found) > 1] or list(by_metric)
    return Table(
        title=title,
        corner="method",
        labels={row["method"]: method_name(row["method"]) for row in rows if row["metric"] in shared},
        columns=[_column(metric, by_metric[metric]) for metric in shared],
        notes=[_note(row) for row in rows if row["metric"] not in shared],
    )


def _column(metric: str, rows: list[dict[str, Any]]) -> Column:
    label = LABELS.get(metric, metric)
    if any("paper" in row for row in rows):
        cells = {row["method"]: [number(row.get("paper")), measured(row)] for row in rows}
        return Column([f"{label}, paper", f"{label}, ours"], cells)
    if any("bar" in row for row in rows):
        return Column([label, "bar"], {row["method"]: [measured(row), _bar(row)] for row in rows})
    return Column([label], {row["method"]: [measured(row)] for row in rows})


def _by_dataset(metric: str, rows: list[dict[str, Any]]) -> Table:
    means = {(row["dataset"], row["method"]): row["mean"] for row in rows}
    direction = BETTER[metric]
    by_method = dict(_grouped(rows, lambda row: row["method"]))

    def cell(row: dict[str, Any]) -> str:
        rivals = [means[row["dataset"], method] for method in RIVALS if (row["dataset"], method) in means]
        ahead = (max if "higher" in direction else min)(rivals, default=None)
        marked = row["method"] in RIVALS and len(rivals) == len(RIVALS) and row["mean"] == ahead
        return Best(measured(row)) if marked else measured(row)

    label = LABELS.get(metric, metric)
    return Table(
        title=f"{label[0].upper()}{label[1:]}, {direction}",
        corner="data set",
        labels={row["dataset"]: row["dataset"] for row in rows},
        columns=[
            Column([method_name(method)], {row["dataset"]: [cell(row)] for row in by_method[method]})
            for method in sorted(by_method, key=lambda method: method not in RIVALS)
        ],
        notes=[],
    )


def _bar(row: dict[str, Any]) -> str:
    return f"{row['bar_is']} {number(row['bar'])}" if "bar" in row else ""


def _note(row: dict[str, Any]) -> str:
    beside = [f" (the paper: {number(row['paper'])})"] if "paper" in row else []
    beside += [f" (bar: {_bar(row)})"] if "bar" in row else []
    return f"{method_name(row['method'])}: {LABELS.get(row['metric'], row['metric'])} {measured(row)}{''.join(beside)}"


def measured(row: dict[str, Any]) -> str:
    """Mean and standard error as text; what others published, to the digits that they gave.

    >>> measured({"mean": 1.3068, "se": 0.0169}), measured({"mean": -2.9, "se": 0.07, "published": True})
    ('1.307 ± 0.017', '-2.90 ± 0.07')
    """
    if "mean" not in row:
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


def markdown(results: dict[str, Any], metrics: Sequence[str] = ()) -> str:
    """The tables in Markdown, with their notes and where they come from."""
    parts = []
    for table in pivot(results, metrics):
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


def terminal(results: dict[str, Any]) -> None:
    """Print the tables for a person; one that is too wide for the terminal is continued below."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console()
    if not results["rows"]:
        console.print("nothing was held out: there are no scores", highlight=False)
    for table in pivot(results):
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
        needed = sum(2 + _width(name, of) for name, of in zip(column.header, zip(*cells, strict=True), strict=True))
        if columns and used + needed > width:
            yield _part(table, columns)
            columns, used = [], start
        columns.append(column)
        used += needed
    yield _part(table, columns)


def _part(table: Table, columns: list[Column]) -> Table:
    labels = {key: label for key, label in table.labels.items() if any(key in column.cells for column in columns)}
    return table._replace(columns=columns, labels=labels)
