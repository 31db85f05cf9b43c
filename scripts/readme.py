"""Fill README.md and docs/*.md from results/*.json and from the command line, between `<!-- ... -->` and its end.

python scripts/readme.py            write them
python scripts/readme.py --check    exit with 1 if one of them is not what they say

    <!-- results: NAME -->              all tables of results/NAME.json
    <!-- results: NAME METRIC ... -->   some metrics of it only
    <!-- results: short -->             a few numbers of several files beside the paper's
    <!-- help: COMMAND -->              what `darkbayes COMMAND --help` prints; nothing for `darkbayes --help`

Where there are no such results yet, the block says so.
"""

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darkbayes import cli, paper
from darkbayes.cli.research import benchmark_module
from darkbayes.report import Names, best_of_all, measured, number, pivot
from darkbayes.report.tables import PLAIN, Best, repeated

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"<!-- (results|help):([^\n]*?) -->\n.*?<!-- end -->", re.DOTALL)
COLUMNS = 96
"""The width of a terminal whose lines fit a page."""
MISSING = "(not run yet)"

SHORT = (
    ("toy2d-best", "toy 2-D classification", "kl_from_hmc", "student 2-10-10-2", "sgld"),
    ("mnist-best", "MNIST", "error", "student", "sgld"),
    ("mnist-best", "MNIST", "log_likelihood", "student", "sgld"),
    ("boston-best-paper-splits", "Boston housing", "log_likelihood", "student 13-50-2", "fisher_sgld"),
)
"""File, experiment, metric, student and teacher of the lines of the short table."""


def read(name: str) -> dict[str, Any] | None:
    """A file of results, if there is one."""
    path = ROOT / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def full(name: str, metrics: list[str]) -> str:
    """The tables of one file of results."""
    results = read(name)
    if results is None:
        return MISSING
    unknown = set(metrics) - {row["metric"] for row in results["rows"]}
    if unknown:
        sys.exit(f"results/{name}.json has no {', '.join(unknown)}")
    return markdown(results, metrics, names_of(results))


def markdown(results: dict[str, Any], metrics: Sequence[str] = (), names: Names = PLAIN) -> str:
    """The tables of `pivot` in Markdown, with their notes and where they come from."""
    parts = []
    for table in pivot(results, metrics, names):
        parts += [f"*{table.title}*"] if table.title else []
        parts.append(markdown_table(table.header, table.rows))
        parts += [". ".join(table.notes) + "."] if table.notes else []
    origin = results["provenance"]
    commit = origin["commit"] or "none"
    commit = commit[:10] + commit[40:]  # Whole it has 40 letters, and perhaps a remark.
    made = f"`{origin['command']}`, {repeated(results)}, seed {origin['seed']}, {origin['device']}, at commit {commit}"
    note = f" ({origin['note']})" if "note" in origin else ""
    return "\n\n".join([*parts, f"Made by {made}{note}."])


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Text cells as a table in Markdown."""

    def text(cell: str) -> str:
        plain = cell.replace("|", "\\|")
        return f"**{plain}**" if isinstance(cell, Best) else plain

    return "\n".join("| " + " | ".join(map(text, line)) + " |" for line in (header, ["---"] * len(header), *rows))


def names_of(results: dict[str, Any]) -> Names:
    """What the methods and metrics of results are called."""
    if results["experiment"].startswith("bench-"):
        return benchmark_module("benchmarks.names").names_of(results["experiment"])
    return paper.presentation(results["experiment"]).names


def short() -> str:
    """The student beside the paper's, an experiment a line."""
    lines = []
    for name, experiment, metric, student, teacher in SHORT:
        cells = ["", "", MISSING]
        label = paper.presentation(name.split("-")[0]).names.metric(metric).replace("method", "student")
        results = read(name)
        if results is not None:
            rows = {row["method"]: row for row in results["rows"] if row["metric"] == metric}
            cells = [number(rows[method].get("paper")) for method in (student, teacher)] + [measured(rows[student])]
        lines.append([experiment, label, *cells])
    return markdown_table(
        ["experiment", "measure", "the paper's student", "the paper's teacher", "our student"],
        [*lines, ["UCI regression", "data sets on which its log likelihood is above all published", "", "", uci()]],
    )


def uci() -> str:
    """On how many data sets the student is ahead of all published methods, and of its own teacher too."""
    results = read("uci-automatic")
    if results is None:
        return MISSING
    scores = [row for row in results["rows"] if row["metric"] == "log_likelihood"]
    ahead, number, but_teacher = re.findall(r"\d+", best_of_all(scores, paper.NAMES))
    trials = sorted({row["trials"] for row in scores if row["method"] == "student"})
    splits = f"{trials[0]} to {trials[-1]} splits" if len(trials) > 1 else f"{trials[0]} split{'s' * (trials[0] > 1)}"
    return f"{but_teacher} of {number}, and of its own teacher too on {ahead}; {splits} each"


def help_of(command: list[str]) -> str:
    """What the command line says of itself, as in a plain terminal of a known width."""
    printed = io.StringIO()
    os.environ |= {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main([*command, "--help"])
    lines = [line.rstrip() for line in printed.getvalue().strip().splitlines()]
    return "\n".join(["```text", *lines, "```"])


def fill(text: str) -> str:
    """The text with every block written anew."""

    def block(match: re.Match[str]) -> str:
        kind, words = match[1], match[2].split()
        if kind == "help":
            content = help_of(words)
        else:
            content = short() if words == ["short"] else full(words[0], words[1:])
        return f"<!-- {kind}:{match[2]} -->\n{content}\n<!-- end -->"

    return BLOCK.sub(block, text)


def main() -> None:
    """Write or check the documents."""
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        filled = fill(text)
        if filled != text:
            stale.append(path.name)
            if "--check" not in sys.argv[1:]:
                path.write_text(filled, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"not what the results and the command line say: {', '.join(stale)}")


if __name__ == "__main__":
    main()
