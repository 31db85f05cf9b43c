"""What the benchmarks share: rows with a bar, lines for the person who waits, tables, and child processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from darkbayes.data import load
from darkbayes.errors import RunError
from darkbayes.runs import row
from darkbayes.tables import from_columns
from darkbayes.tables.columns import Table

Side = Literal["at least", "at most"]
Rows = list[dict[str, Any]]


def median_row(method: str, metric: str, values: list[float]) -> dict[str, Any]:
    """One row of results whose figure is the median: on a shared machine a few timings are always far too long."""
    return row(method, metric, values) | {"mean": float(np.median(values)), "se": None, "statistic": "median"}


def with_bar(result: dict[str, Any], side: Side, bar: float) -> dict[str, Any]:
    """The row with its target, and on which side of it the figure should lie."""
    return result | {"bar": bar, "bar_is": side}


def say(text: str, *, quiet: bool) -> None:
    """A line on standard error. A live progress bar would take time from what is being measured."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def announced(rows: Rows, *, quiet: bool) -> Rows:
    """The rows, after a line for each of them."""
    for result in rows:
        say(f"{result['method']}: {result['metric']} {result['mean']:,.4g}", quiet=quiet)
    return rows


def named_table(name: str) -> tuple[Table, list[str]]:
    """A data set with a name as a table, and what to predict of it."""
    named: Any = load(name)
    columns = dict(zip(named.features, named.x.T, strict=True)) | {named.target: named.y}
    return from_columns(columns), [named.target]


def python(*arguments: str) -> list[str]:
    """The command line of a fresh interpreter like this one, which does not look for modules in the current folder."""
    return [sys.executable, "-P", *arguments]


def environment(**variables: str) -> dict[str, str]:
    """The variables of a child process, which is to find the benchmarks, and some more."""
    places = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(places)} | variables


def completed(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that has ended well, and what it printed; if it fails, its last words on standard error."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**variables))
    if done.returncode:
        raise RunError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr[-1000:]}")
    return done
