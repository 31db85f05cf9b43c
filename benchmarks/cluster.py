"""Predictions of `darkbayes.ray` with two workers against one.

    darkbayes bench cluster       a few minutes, on a machine with two idle cores; it needs ray

A folder of Parquet files with the columns of the Boston houses is predicted on a local cluster of one core and on one
of two, by turns; each has predicted a few rows before, so that no worker is being started. The student has random
weights, for the cost of a prediction does not depend on them. What is measured is
``python -m benchmarks.cluster WORKERS FOLDER``.
"""

import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import announced, completed, median_row, python, say, with_bar
from benchmarks.service import ship_boston

FILES, TURNS = 16, 5


def rows(*, seed: int, quiet: bool, each: int = 400_000) -> list[dict[str, Any]]:
    """Seconds of one worker and of two for `FILES` files of `each` rows, and how many times as fast two are."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_parts(folder, ship_boston(folder, seed), each, seed)
        for turn in range(TURNS):
            for workers in (1, 2) if turn % 2 else (2, 1):
                said = completed(python("-m", "benchmarks.cluster", str(workers), str(folder))).stdout
                seconds[workers].append(float(said.splitlines()[-1]))
            say(f"turn {turn + 1}: {seconds[1][-1]:.1f} s against {seconds[2][-1]:.1f} s", quiet=quiet)
    ratios = [slow / fast for slow, fast in zip(seconds[1], seconds[2], strict=True)]
    results = [median_row(f"Ray Data, {number} of 2 workers", "seconds", took) for number, took in seconds.items()]
    return announced(
        [*results, with_bar(median_row("Ray Data, 2 of 2 workers", "speedup", ratios), "at least", 1.6)], quiet=quiet
    )


def write_parts(folder: Path, houses: list[dict[str, float]], each: int, seed: int) -> None:
    """Write rows of houses with every number changed a little: few to begin with, and many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, columns = np.random.default_rng(seed), np.array([list(house.values()) for house in houses])
    for name, files, number in (("few", 2, 100), ("many", FILES, each)):
        (folder / name).mkdir()
        for part in range(files):
            values = columns[rng.integers(len(columns), size=number)] * rng.uniform(0.9, 1.1, (number, 1))
            table = pa.table({column: values[:, k] for k, column in enumerate(houses[0])})
            pq.write_table(table, folder / name / f"{part:02}.parquet")


def measure(workers: int, folder: Path) -> float:
    """Seconds for all rows."""
    import ray.data  # pyright: ignore[reportMissingImports]

    from darkbayes.ray import predict

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:workers])
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as scratch:
        predict(folder, folder / "few", Path(scratch) / "few", blocks=2)
        began = time.perf_counter()
        predict(folder, folder / "many", Path(scratch) / "many", blocks=FILES)
        took = time.perf_counter() - began
    ray.shutdown()
    return took


if __name__ == "__main__":
    print(measure(int(sys.argv[1]), Path(sys.argv[2])))
