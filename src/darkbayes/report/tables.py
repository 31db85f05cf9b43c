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
    "kills_that_cut_a_checkpoint_short": "kills that cut a checkpoint short",
    "done_at_last_kill": "share of the run done at the last kill",
    "import_s": "seconds",
    "seconds_over": "seconds more",
}
"""What a metric's name stands for."""

METHODS: dict[str, str] = {"sgd": "SGD (plug-in)", "hmc": "HMC", "sgld": "SGLD"}


class Table(NamedTuple):
    """Text cells, and a note for what concerns a single method."""

    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def pivot(results: dict[str, Any]) -> Table:
    """A row per method and a column per metric; beside it the paper's number, or our own bar, where there is one.

    A metric that concerns a single method becomes a note.

    >>> row = {"method": "sgld", "metric": "kl_from_hmc", "mean": 0.0004, "se": 0.0001, "paper": 0.007}
    >>> pivot({"rows": [row]}).rows
    [['SGLD', '0.007', '0.00040 ± 0.00010']]
    """
    rows = results["rows"]
    by_metric: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_metric.setdefault(row["metric"], []).append(row)
    shared = [metric for metric, found in by_metric.items() if len(found) > 1] or list(by_metric)
    columns = [_column(metric, by_metric[metric]) for metric in shared]
    methods: list[str] = list(dict.fromkeys(row["method"] for row in rows if row["metric"] in shared))
    empty = [[""] * len(header) for header, _ in columns]
    return Table(
        header=["method"] + [name for header, _ in columns for name in header],
        rows=[
            [METHODS.get(method, method)]
            + [cell for (_, cells), blank in zip(columns, empty, strict=True) for cell in cells.get(method, blank)]
            for method in methods
        ],
        notes=[_note(row) for row in rows if row["metric"] not in shared],
    )


def _column(metric: str, rows: list[dict[str, Any]]) -> tuple[list[str], dict[str, list[str]]]:
    """The header of a metric, one or two names wide, and its cells by method."""
    label = LABELS.get(metric, metric)
    if any("paper" in row for row in rows):
        cells = {row["method"]: [_number(row.get("paper")), measured(row)] for row in rows}
        return [f"{label}, paper", f"{label}, ours"], cells
    if any("bar" in row for row in rows):
        return [label, "bar"], {row["method"]: [measured(row), _bar(row)] for row in rows}
    return [label], {row["method"]: [measured(row)] for row in rows}


def _bar(row: dict[str, Any]) -> str:
    return f"{row['bar_is']} {_number(row['bar'])}" if "bar" in row else ""


def _note(row: dict[str, Any]) -> str:
    name, label = METHODS.get(row["method"], row["method"]), LABELS.get(row["metric"], row["metric"])
    return f"{name}: {label} {measured(row)}" + (f" (bar: {_bar(row)})" if "bar" in row else "")


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
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def markdown(results: dict[str, Any]) -> str:
    """The table in Markdown, with its notes and where it comes from."""
    table = pivot(results)
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    origin = results["provenance"]
    made = f"`{origin['command']}`, {repeated(results)}, seed {origin['seed']}, {origin['device']}"
    return text + "\n\n" + ". ".join([*table.notes, f"Made by {made}, at commit {(origin['commit'] or 'none')[:10]}."])


def repeated(results: dict[str, Any]) -> str:
    """Over how many trials the numbers were taken, and how."""
    rows = results["rows"]
    number = max(row["trials"] for row in rows)
    if any(row.get("statistic") == "median" for row in rows):
        return f"median of {number}"
    return f"mean ± standard error over {number} trials" if number > 1 else "one trial"


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
