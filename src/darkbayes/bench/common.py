"""What the benchmarks share: rows with a bar, lines for the person who waits, and child processes."""

import os
import subprocess
import sys
from typing import Any, Literal

import numpy as np

from darkbayes.errors import RunError
from darkbayes.runs import row

Side = Literal["at least", "at most"]


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


def python(*arguments: str) -> list[str]:
    """The command line of a fresh interpreter like this one, which does not look for modules in the current folder."""
    return [sys.executable, "-P", *arguments]


def output_of(command: list[str], **environment: str) -> str:
    """What a command prints, with some environment variables set; if it fails, its last words on standard error."""
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        raise RunError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout
