"""Whether a file far larger than the memory can be predicted: its peak memory, speed, order, and bad rows.

    darkbayes bench predict       several minutes, and 7 GB of disk for temporary files

A CSV file with the columns of the Boston houses is made, of their rows with every number changed a little and a few
rows that cannot be read. ``darkbayes predict --on-bad skip`` runs on it in a process of its own and writes Parquet. The
student has random weights, for the cost of a prediction does not depend on them.

How much quicker it is than the code of 0.1, and what share it has of the speed of pyarrow, which only reads the same
file and writes the same predictions, is measured on smaller files of two tables, the houses and one with the columns of
a census (6 of numbers, 8 of categories): from CSV and from Parquet, to Parquet. Each runs in a process of its own that
has predicted a few rows before, so that nothing is being loaded; the three take turns, and medians are compared. Where
others use the machine, processor time tells more than the clock; by the clock all cores count.

The order is kept if the lines that the output names are those of the good rows, one after another, and if rows
remembered when the file was made have there what the student says of them when asked alone.
"""

import io
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import announced, completed, median_row, python, say, with_bar
from benchmarks.service import ship, ship_boston
from darkbayes.data import load
from darkbayes.errors import RunError
from darkbayes.outcomes import NumberPrediction
from darkbayes.runs import row
from darkbayes.shipped import Shipped
from darkbayes.tables import from_columns
from darkbayes.tables.columns import Table

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


TWICE = """\
import sys
import time

from darkbayes.cli import main

folder, few, source, out = sys.argv[1:]
for path in (few, source):
    began, spent = time.perf_counter(), time.process_time()
    sys.argv = ["darkbayes", "predict", folder, path, "-o", out, "--quiet"]
    main()
print(time.perf_counter() - began, time.process_time() - spent)
"""
ALONE = """\
import sys
import time

import pyarrow.csv
import pyarrow.parquet

source, predictions, out = sys.argv[1:]
predicted = pyarrow.parquet.read_table(predictions)
began, spent = time.perf_counter(), time.process_time()
read = pyarrow.csv.read_csv if source.endswith(".csv") else pyarrow.parquet.read_table
read(source)
pyarrow.parquet.write_table(predicted, out)
print(time.perf_counter() - began, time.process_time() - spent)
"""
FIRST_RELEASE = "9842fe41522eb88e035182bcd795263cf97582c7"
"""The commit of 0.1 with which its speed was measured."""
LEVELS = (9, 16, 7, 15, 6, 5, 2, 42)
"""How many categories the columns of the Adult data have."""
Made = Callable[[np.random.Generator, int], dict[str, Any]]


class Large(NamedTuple):
    """What is known of a file that was made."""

    lines: int
    """The number of its last line."""
    bad: list[int]
    """The lines of its bad rows."""
    remembered: dict[int, np.ndarray]
    """Some of its rows, by their lines."""


def rows(
    *,
    seed: int,
    quiet: bool,
    gigabytes: float = 5.0,
    bad: int = 5,
    megabytes: float = 100.0,
    repetitions: int = 5,
) -> list[dict[str, Any]]:
    """Predict a file of so many gigabytes with so many bad rows; and files of so many megabytes, for comparison."""
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
        with_bar(row(method, "peak_rss_mb", [peak]), "at most", 600.0),
        row(method, "mb_per_s", [size / 1e6 / took]),
        with_bar(row(method, "order_kept", [float(kept)]), "at least", 1.0),
        with_bar(row(method, "bad_rows_found", [float(len(reported))]), "at least", float(bad)),
    ]
    return announced([*results, *compared(seed, megabytes, repetitions, quiet)], quiet=quiet)


def compared(seed: int, megabytes: float, repetitions: int, quiet: bool) -> list[dict[str, Any]]:
    """The speed on files of so many megabytes of CSV, and how it compares."""
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        earlier = first_release(Path(scratch))
        for name, made in (("houses", houses), ("census", census)):
            folder = Path(scratch, name)
            folder.mkdir()
            ship(folder, *known_rows(made, seed), seed)
            make_tables(folder, made, round(1e6 * megabytes), seed)
            for kind, bar in (("csv", 8.0), ("parquet", 20.0)):
                took = {"": [], "0.1": [], "pyarrow": []}
                for _ in range(repetitions):
                    for who, seconds in took.items():
                        seconds.append(seconds_of(who, folder, kind, earlier))
                say(f"{name}, {kind}: {took}", quiet=quiet)
                own, first, alone = (np.asarray(took[who]).reshape(-1, 2).T for who in took)
                method = f"predict {name}, {kind.upper() if kind == 'csv' else 'Parquet'}"
                size = (folder / f"rows.{kind}").stat().st_size / 1e6
                share = with_bar(median_row(method, "share_of_pyarrow", (alone / own)[0].tolist()), "at least", 0.3)
                times = with_bar(median_row(method, "times_first_release", (first / own)[0].tolist()), "at least", bar)
                cpu = median_row(method, "times_less_cpu", (first / own)[1].tolist())
                results += [median_row(method, "mb_per_s", (size / own[0]).tolist()), times, cpu, share]
    return results


def first_release(folder: Path) -> Path:
    """The code of 0.1, which a checkout with its history has."""
    root = Path(__file__).parent.parent
    done = subprocess.run(["git", "-C", str(root), "archive", FIRST_RELEASE, "src"], capture_output=True)
    if done.returncode:
        raise RunError(f"the commit {FIRST_RELEASE} is not there: fetch the whole history (git fetch --unshallow)")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder / "0.1", filter="data")
    return folder / "0.1" / "src"


def seconds_of(who: str, folder: Path, kind: str, earlier: Path) -> list[float]:
    """How long one of the three takes, in a process of its own, and its processor time."""
    source, few, out = (str(folder / name) for name in (f"rows.{kind}", f"few.{kind}", "out.parquet"))
    program = [ALONE, source, out, f"{out}.again"] if who == "pyarrow" else [TWICE, str(folder), few, source, out]
    where = {"PYTHONPATH": str(earlier)} if who == "0.1" else {}
    return list(map(float, completed(python("-c", *program), **where).stdout.split()))


def houses(rng: np.random.Generator, number: int) -> dict[str, Any]:
    """Rows with the columns of the Boston houses."""
    table = load("boston")
    chosen = table.x[rng.integers(0, len(table.x), number)]
    values = np.round(chosen * (1 + 0.01 * rng.normal(size=chosen.shape)), 3)
    return dict(zip(table.features, values.T, strict=True))


def census(rng: np.random.Generator, number: int) -> dict[str, Any]:
    """Rows with columns like those of the Adult data: as many of either kind, with as many categories."""
    numbers = {f"number {k}": np.round(rng.gamma(2.0, 10.0**k, number), 2) for k in range(6)}
    levels = {f"category {k}": [f"level {k} {level}" for level in range(count)] for k, count in enumerate(LEVELS)}
    return numbers | {name: rng.choice(texts, number) for name, texts in levels.items()}


def known_rows(made: Made, seed: int) -> tuple[Table, list[str]]:
    """A small table with a target, from which a schema is made."""
    rng = np.random.default_rng(seed)
    columns = made(rng, 2000)
    first = next(iter(columns.values()))
    return from_columns(columns | {"target": first + rng.normal(size=len(first))}), ["target"]


def make_tables(folder: Path, made: Made, size: int, seed: int) -> None:
    """The same rows as CSV of at least so many bytes and as Parquet, and a few of them."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(seed)
    some = pa.table(made(rng, CHUNK // 10))
    pyarrow.csv.write_csv(some, folder / "few.csv")
    pyarrow.parquet.write_table(some, folder / "few.parquet")
    share = size / (folder / "few.csv").stat().st_size
    rows = pa.table(made(rng, max(round(share * len(some)), 1)))
    pyarrow.csv.write_csv(rows, folder / "rows.csv")
    pyarrow.parquet.write_table(rows, folder / "rows.parquet")


def make_csv(path: Path, size: int, bad: int, seed: int) -> Large:
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
            columns = houses(rng, number)
            values = np.stack([*columns.values()], axis=1)
            pyarrow.csv.write_csv(pa.table(columns), file, options)
            for place in rng.integers(0, number, REMEMBERED).tolist():
                remembered[lines + 1 + place] = values[place]
            lines += number
            if len(strange) < bad and file.tell() >= size * len(strange) / bad:
                wrong = WRONG[len(strange) % len(WRONG)]
                file.write(f"{'1' if wrong is None else ','.join([wrong, *['1'] * (values.shape[1] - 1)])}\n".encode())
                lines += 1
                strange.append(lines)
    return Large(lines, strange, remembered)


def predict_in_child(run: Path, source: Path, out: Path) -> tuple[float, str]:
    """Predict as a user does; returns the peak in megabytes, and what was said of the rows."""
    command = python("-c", PROGRAM, "predict", str(run), str(source), "-o", str(out), "--on-bad", "skip")
    done = completed(command)
    return float(done.stdout), done.stderr


def check_order(run: Path, out: Path, made: Large) -> tuple[int, bool]:
    """How many rows were predicted, and whether each is the prediction of the line that it names, in order."""
    import pyarrow.parquet

    shipped = Shipped(run)
    places = np.asarray(sorted(made.remembered))
    asked = np.stack([made.remembered[line] for line in places.tolist()])
    answer = shipped.predict(dict(zip(load("boston").features, asked.T, strict=True)))
    assert isinstance(answer, NumberPrediction)
    number, next_line, means, kept = 0, 2, [], True
    with pyarrow.parquet.ParquetFile(out, pre_buffer=False) as file:
        for batch in file.iter_batches(columns=["line", "mean"]):
            lines, mean = (batch.column(k).to_numpy() for k in range(2))
            due = np.setdiff1d(np.arange(next_line, next_line + len(lines) + len(made.bad)), made.bad)[: len(lines)]
            kept = kept and np.array_equal(lines, due)
            means.append(mean[np.isin(lines, places)])
            number, next_line = number + len(lines), int(lines[-1]) + 1
    looked_up = np.concatenate(means)
    kept = kept and len(looked_up) == len(places) and np.allclose(looked_up, answer.mean[:, 0], rtol=1e-4, atol=1e-4)
    return number, bool(kept and number == made.lines - 1 - len(made.bad))
