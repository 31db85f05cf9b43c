"""Results as tables: one pivot, written for the terminal, Markdown or HTML."""

import math
from typing import Any, NamedTuple

LABELS = {
    "kl_from_hmc": "KL(HMC || method)",
    "kl_to_hmc": "KL(method || HMC)",
    "rhat_max": "largest split R-hat of the predictions",
    "log_likelihood": "log likelihood",
    "error": "error (%)",
    "rmse": "RMSE",
    "us_per_step": "microseconds per step",
    "speedup": "times as fast",
    "peak_rss_mb": "peak memory (MB)",
    "rss_ratio": "ratio of peak memory",
    "bit_identical": "same bits as the uninterrupted run (1: yes)",
    "kills": "kills",
    "import_s": "seconds",
    "seconds_over": "seconds more",
}
"""What a metric's name stands for."""

METHODS = {"sgd": "SGD (plug-in)", "hmc": "HMC", "sgld": "SGLD"}


class Table(NamedTuple):
    """Text cells, and a note for what concerns a single method."""

    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def pivot(results: dict[str, Any]) -> Table:
    """A row per method and a column per metric, with the paper's number before ours where it gives one.

    >>> row = {"method": "sgld", "metric": "kl_from_hmc", "mean": 0.0004, "se": 0.0001, "paper": 0.007}
    >>> pivot({"rows": [row]}).rows
    [['SGLD', '0.007', '0.00040 ± 0.00010']]
    """
    rows = results["rows"]
    cells = {(row["method"], row["metric"]): row for row in rows}
    by_metric: dict[str, list[str]] = {}
    for row in rows:
        by_metric.setdefault(row["metric"], []).append(row["method"])
    columns = [metric for metric, methods in by_metric.items() if len(methods) > 1 or len(by_metric) == 1]
    if not columns:
        columns = list(by_metric)
    quoted = {row["metric"] for row in rows if "paper" in row}
    header = ["method"]
    for metric in columns:
        label = LABELS.get(metric, metric)
        header += [f"{label}, paper", f"{label}, ours"] if metric in quoted else [label]
    methods = list(dict.fromkeys(row["method"] for row in rows if row["metric"] in columns))
    body = []
    for method in methods:
        line = [METHODS.get(method, method)]
        for metric in columns:
            row = cells.get((method, metric), {})
            line += [_number(row.get("paper")), measured(row)] if metric in quoted else [measured(row)]
        body.append(line)
    notes = [
        f"{METHODS.get(row['method'], row['method'])}: {LABELS.get(row['metric'], row['metric'])} {measured(row)}"
        for row in rows
        if row["metric"] not in columns
    ]
    return Table(header, body, notes)


def measured(row: dict[str, Any]) -> str:
    """Mean and standard error as text."""
    if "mean" not in row:
        return ""
    if row.get("se") is None:
        return _number(row["mean"])
    return f"{_rounded(row['mean'], row['se'])} ± {_rounded(row['se'], row['se'])}"


def _rounded(value: float, error: float) -> str:
    """`value` to the second significant digit of its error."""
    digits = 1 - math.floor(math.log10(error)) if error > 0 else 4
    return f"{value:.{max(digits, 0)}f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def markdown(results: dict[str, Any]) -> str:
    """The table in Markdown, with its notes and where it comes from."""
    table = pivot(results)
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    origin = results["provenance"]
    trials = max(row["trials"] for row in results["rows"])
    made = (
        f"`{origin['command']}`, {trials} trial{'s' if trials > 1 else ''}, seed {origin['seed']}, {origin['device']}"
    )
    return text + "\n\n" + ". ".join([*table.notes, f"Made by {made}, at commit {(origin['commit'] or 'none')[:10]}."])


def terminal(results: dict[str, Any]) -> None:
    """Print the table for a person."""
    from rich.console import Console
    from rich.table import Table as RichTable

    table = pivot(results)
    shown = RichTable(title=f"{results['experiment']}, preset {results['preset']}")
    for number, name in enumerate(table.header):
        shown.add_column(name, justify="right" if number else "left")
    for line in table.rows:
        shown.add_row(*line)
    console = Console()
    console.print(shown)
    for note in table.notes:
        console.print(note, highlight=False)
