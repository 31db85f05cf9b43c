"""A fit to a table that does not fit memory: its peak memory, and its speed beside rows that are in memory.

    darkbayes bench streaming        10 GB on disk and as much again beside; about a quarter of an hour

A process of its own fits a folder of Parquet files, with little time to sample, and tells its peak. Another takes the
loop of that fit, on the rows that the first left on disk: streamed, and on one pool of them, by turns.

    python -m benchmarks.streaming fit|steps TABLE FOLDER SEED
"""

import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import announced, completed, median_row, python, say, with_bar
from benchmarks.peak import peak_megabytes
from darkbayes.runs import row

COLUMNS, FILE_ROWS = 24, 4_000_000
"""Numbers of a row, and rows of a file; a row group has a fortieth of them."""
MEMORY, TIME = "2GB", "60s"
"""What the rows of the table may take, and the time budget of the fit."""
STEPS, TURNS = 4_000, 5
"""Steps of each kind in a turn, and how often they take turns."""


def rows(*, seed: int, quiet: bool, gigabytes: float = 10.0, steps: int = STEPS) -> list[dict[str, Any]]:
    """The peak resident set of a fit, and the speed of its loop as a share of what it has on rows in memory."""
    with tempfile.TemporaryDirectory() as scratch:
        table, folder = Path(scratch) / "table", Path(scratch) / "run"
        number = write_table(table, gigabytes, seed)
        say(f"{number:,} rows in {table}", quiet=quiet)
        began = time.perf_counter()
        peak = float(_child("fit", table, folder, seed).splitlines()[-1])
        took = time.perf_counter() - began
        streamed, held = json.loads(_child("steps", table, folder, seed, steps).splitlines()[-1])
    method = f"fit {gigabytes:g} GB of Parquet"
    ratio = median_row(method, "times_in_memory", [b / a for a, b in zip(streamed, held, strict=True)])
    results = [
        row(method, "rows_fitted", [number]),
        with_bar(row(method, "peak_rss_mb", [peak]), "at most", 2000.0),
        row(method, "seconds", [took]),
        median_row("streamed rows", "us_per_step", streamed),
        median_row("rows in memory", "us_per_step", held),
        with_bar(ratio, "at least", 0.8),
    ]
    return announced(results, quiet=quiet)


def _child(*arguments: Any) -> str:
    return completed(python("-m", "benchmarks.streaming", *map(str, arguments))).stdout


def write_table(folder: Path, gigabytes: float, seed: int) -> int:
    """Write numbers, a category and what depends on them, sorted within each file; returned is the number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng, number = np.random.default_rng(seed), math.ceil(gigabytes * 1e9 / (8 * (COLUMNS + 1)))
    slopes, group = rng.normal(size=COLUMNS) / COLUMNS**0.5, FILE_ROWS // 40
    for part, start in enumerate(range(0, number, FILE_ROWS)):
        writer = None
        for begin in range(start, min(start + FILE_ROWS, number), group):
            x = rng.normal(size=(min(group, number - begin), COLUMNS))
            colour = rng.integers(3, size=len(x))
            y = 3 * np.tanh(x @ slopes) + colour + 0.3 * rng.normal(size=len(x))
            order = np.argsort(y)
            cells = {f"x{k}": x[order, k] for k in range(COLUMNS)}
            names = pa.DictionaryArray.from_arrays(pa.array(colour[order].astype(np.int8)), ["red", "green", "blue"])
            block = pa.table(cells | {"colour": names, "y": y[order]})
            writer = writer or pq.ParquetWriter(folder / f"part-{part:03d}.parquet", block.schema, compression="none")
            writer.write_table(block)
        assert writer is not None
        writer.close()
    return number


def fit(table: Path, folder: Path, seed: int) -> None:
    """Fit the table by the command."""
    from darkbayes import cli

    given = ["--target", "y", "--hidden", "50", "--memory", MEMORY, "--time-budget", TIME, "--out", str(folder)]
    cli.main(["fit", str(table), *given, "--seed", str(seed), "--quiet", "--json"])


def steps(table: Path, folder: Path, seed: int, number: int) -> None:
    """Print the microseconds a step, by turns, of streamed rows and of rows in memory."""
    import dataclasses

    import jax

    from darkbayes.cli.common import size
    from darkbayes.files import read_json
    from darkbayes.fit import Options, automatic, make_posterior, prepare_streamed, sharing, table_queries
    from darkbayes.student import Distillation, Settings
    from darkbayes.tables.guessing import Wishes
    from darkbayes.teacher.samplers import sgld

    made: dict[str, Any] = read_json(folder / "rows" / "store.json")["made_of"]
    how: Any = {"held_out": made["held_out"], "seed": seed, "task": made["task"], "likelihood": None, "ignore": ()}
    sha256 = next(value for name, value in made.items() if name.startswith("the sha256"))
    how |= {"memory": size(MEMORY), "sha256": sha256, "wishes": Wishes(), "layout": {}}
    prepared = prepare_streamed([table], ["y"], folder, **how)
    schema: Any = prepared.schema
    options = Options(hidden=(50,), head=schema.target.heads[0])
    queries: Any = table_queries(schema)
    data, queries = automatic._filled_up(prepared.train, queries)
    posterior = make_posterior(data, schema.target, options.model(schema.target))
    chain = sharing.make_chain(dataclasses.replace(posterior, num_data=prepared.rows.number), data, automatic.BATCH)
    feed = prepared.rows.feed(data.x.shape[1], automatic.BATCH)
    chain = dataclasses.replace(chain, transformation=sgld(1e-9), thin=100, data=feed.rows(0), examples=None, feed=feed)
    student = automatic.make_student(schema.target, options, 10**6)
    settings = Settings(8, automatic.QUERY_BATCH, automatic.UPDATE_EVERY, reservoir=50, reservoir_picks=2)
    parts = Distillation(chain, student, queries, settings, sharing.monitored(chain, queries))
    both = [parts, dataclasses.replace(parts, chain=dataclasses.replace(chain, feed=None))]
    states, took, done = [one.init(jax.random.key(seed)) for one in both], ([], []), 0
    for turn in range(TURNS + 1):
        length = number if turn else 200  # The first one compiles.
        done += length
        for place, one in enumerate(both):
            began = time.perf_counter()
            for snapshot in one.run(states[place], done):
                states[place] = snapshot.state
            took[place].append(1e6 * (time.perf_counter() - began) / length)
    print(json.dumps([each[1:] for each in took]))


if __name__ == "__main__":
    work, table, folder, *numbers = sys.argv[1:]
    {"fit": fit, "steps": steps}[work](Path(table), Path(folder), *map(int, numbers))
    if work == "fit":
        print(peak_megabytes())
