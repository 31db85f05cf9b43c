"""Whether a file far larger than the memory can be predicted: its peak memory, speed, order, and bad rows.

    darkbayes bench predict       several minutes, and 7 GB of disk for temporary files

A CSV file with the columns of the Boston houses is made, of their rows with every number changed a little and a few
rows that cannot be read. ``darkbayes predict --on-bad skip`` runs on it in a process of its own and writes Parquet. The
student has random weights, for the cost of a prediction does not depend on them.

The order is kept if the lines that the output names are those of the good rows, one after another, and if rows
remembered when the file was made have there what the student says of them when asked alone.
"""

import re
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import announced, completed, python, say, with_bar
from benchmarks.service import ship_boston
from darkbayes.data import load
from darkbayes.outcomes import NumberPrediction
from darkbayes.runs import row
from darkbayes.shipped import Shipped

CHUNK = 100_000
"""Rows that are made at a time."""
REMEMBERED = 5
"""Rows of each chunk whose predictions are looked up."""
WRONG = ("broken", "inf", None)
"""What bad rows have in place of their first number, in turns; None for a row that ends after it."""
PROGRAM = """\
from benchmarks.peak import peak_megabytes
from darkbayes.cli import main

main()
print(peak_megabytes())
"""


class Made(NamedTuple):
    """What is known of a file that was made."""

    lines: int
    """The number of its last line."""
    bad: list[int]
    """The lines of its bad rows."""
    remembered: dict[int, np.ndarray]
    """Some of its rows, by their lines."""


def rows(*, seed: int, quiet: bool, gigabytes: float = 5.0, bad: int = 5) -> list[dict[str, Any]]:
    """Predict a file of so many gigabytes with so many bad rows."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source, out = folder / "rows.csv", folder / "predictions.parquet"
        ship_boston(folder, seed)
        made = make_csv(source, round(1e9 * gigabytes), bad, seed)
        size = source.stat().st_size
        say(f"{made.lines - 1:,} rows, {size / 1e9:.2f} GB", quiet=quiet)
        began = time.perf_counter()
        peak, complaints = predict_in_child(folder, source, out)
        took = time.perf_counter() - began
        number, kept = check_order(folder, out, made)
    reported = set(map(int, re.findall(r"line (\d+): ", complaints))) & set(made.bad)
    method = f"predict {gigabytes:g} GB of CSV"
    results = [
        row(method, "rows", [float(number)]),
        with_bar(row(method, "peak_rss_mb", [peak]), "at most", 1000.0),
        row(method, "mb_per_s", [size / 1e6 / took]),
        with_bar(row(method, "order_kept", [float(kept)]), "at least", 1.0),
        with_bar(row(method, "bad_rows_found", [float(len(reported))]), "at least", float(bad)),
    ]
    return announced(results, quiet=quiet)


def make_csv(path: Path, size: int, bad: int, seed: int) -> Made:
    """Write a file of at least so many bytes, its bad rows spread over it."""
    import pyarrow as pa
    import pyarrow.csv

    table, rng = load("boston"), np.random.default_rng(seed)
    options = pyarrow.csv.WriteOptions(include_header=False)
    lines, strange, remembered = 1, [], {}
    with path.open("wb") as file:
        file.write(f"{','.join(table.features)}\n".encode())
        while file.tell() < size or len(strange) < bad:
            number = min(CHUNK, max(size // 100, 1))
            chosen = table.x[rng.integers(0, len(table.x), number)]
            values = np.round(chosen * (1 + 0.01 * rng.normal(size=chosen.shape)), 3)
            pyarrow.csv.write_csv(pa.table(list(values.T), names=list(table.features)), file, options)
            for place in rng.integers(0, number, REMEMBERED).tolist():
                remembered[lines + 1 + place] = values[place]
            lines += number
            if len(strange) < bad and file.tell() >= size * len(strange) / bad:
                wrong = WRONG[len(strange) % len(WRONG)]
                file.write(f"{'1' if wrong is None else ','.join([wrong, *['1'] * (values.shape[1] - 1)])}\n".encode())
                lines += 1
                strange.append(lines)
    return Made(lines, strange, remembered)


def predict_in_child(run: Path, source: Path, out: Path) -> tuple[float, str]:
    """Predict as a user does; returns the peak in megabytes, and what was said of the rows."""
    command = python("-c", PROGRAM, "predict", str(run), str(source), "-o", str(out), "--on-bad", "skip")
    done = completed(command)
    return float(done.stdout), done.stderr


def check_order(run: Path, out: Path, made: Made) -> tuple[int, bool]:
    """How many rows were predicted, and whether each is the prediction of the line that it names, in order."""
    import pyarrow.parquet

    shipped = Shipped(run)
    places = np.asarray(sorted(made.remembered))
    asked = np.stack([made.remembered[line] for line in places.tolist()])
    answer = shipped.predict(dict(zip(load("boston").features, asked.T, strict=True)))
    assert isinstance(answer, NumberPrediction)
    number, next_line, means, kept = 0, 2, [], True
    with pyarrow.parquet.ParquetFile(out) as file:
        for batch in file.iter_batches(columns=["line", "mean"]):
            lines, mean = (batch.column(k).to_numpy() for k in range(2))
            due = np.setdiff1d(np.arange(next_line, next_line + len(lines) + len(made.bad)), made.bad)[: len(lines)]
            kept = kept and np.array_equal(lines, due)
            means.append(mean[np.isin(lines, places)])
            number, next_line = number + len(lines), int(lines[-1]) + 1
    looked_up = np.concatenate(means)
    kept = kept and len(looked_up) == len(places) and np.allclose(looked_up, answer.mean[:, 0], rtol=1e-4, atol=1e-4)
    return number, bool(kept and number == made.lines - 1 - len(made.bad))
