"""What a distillation by many processes costs: a model of three measured times, held against 1, 2 and 4 processes.

    darkbayes bench scale        five minutes, on a machine with two idle cores

The loops are those of `bench mesh`. One process gives the time of a step of one chain and that of a turn of the
student; with them, what the student's turn and its exchange cost on more processes follows: chains are divided, the
student is not. Processes beyond the cores share them. The same model then says what a thousand million rows on 64
hosts would take; what it assumes of the hosts is in `HOSTS`.
"""

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import announced, median_row, say
from benchmarks.mesh import CHAINS, HIDDEN, measured
from darkbayes.runs import row
from darkbayes.teacher.streaming import REUSE

PROCESSES = (1, 2, 4)
ROWS_MEASURED, COLUMNS_MEASURED, GRADIENTS = 506, 13, 2  # Of Boston, in each step of a microcanonical chain.
QUERIES, OUTPUTS, SINGLE = 100, 2, 4  # Of an update, numbers that a draw says of each, and bytes of a number.


class Hosts(NamedTuple):
    """A cluster, and a fit on it."""

    hosts: int = 64
    cores: int = 16
    """Of each host, every one as fast as the one measured."""
    bytes_per_s: float = 1.25e9
    """Between two hosts: ten gigabits a second."""
    latency_s: float = 1e-4
    """Of one exchange among all."""
    disk_bytes_per_s: float = 2e8
    rows: float = 1e9
    columns: int = 100
    batch: int = 1_000
    updates: int = 30_000
    """Turns of the student, a step of every chain before each."""


HOSTS = Hosts()


def rows(*, seed: int, quiet: bool, turns: int = 3, seconds: float = 5.0) -> list[dict[str, Any]]:
    """Microseconds of a turn, measured and by the model, and hours that the large fit would take by each scheme."""
    rates: dict[int, list[list[float]]] = {number: [] for number in PROCESSES}
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(turns):
            for number in PROCESSES:
                rates[number].append(measured(number, Path(scratch), seed, seconds))
            say(f"turn {turn + 1} of {turns}", quiet=quiet)
    # Seconds of a turn of all chains: alone, and with the student's.
    alone, together = ({number: CHAINS / np.asarray(rates[number])[:, k] for number in PROCESSES} for k in (0, 1))
    step = float(np.median(alone[1])) / CHAINS
    lesson = float(np.median(together[1])) - CHAINS * step
    result, cores = [], len(os.sched_getaffinity(0))
    for number in PROCESSES:
        name = f"{number} process{'es' * (number > 1)}"
        result.append(median_row(name, "us_per_turn", (1e6 * together[number]).tolist()))
        model = 1e6 * turn_seconds(number, cores, step, lesson)
        result.append(row(name, "us_per_turn_by_model", [model]))
        if number > 1:
            result.append(row(name, "us_exchange", [float(np.median(1e6 * together[number])) - model]))
    return announced(result + large(step, lesson), quiet=quiet)


def turn_seconds(processes: int, cores: int, step: float, lesson: float) -> float:
    """Of a step of all chains and the student's turn, the exchange left out: chains are divided, the student is not."""
    crowded = max(1.0, processes / cores)
    return crowded * (CHAINS / processes * step + lesson)


def weights_of(columns: int) -> int:
    """The weights of the teacher's network on so many columns."""
    return sum((before + 1) * after for before, after in itertools.pairwise([columns, *HIDDEN, 1]))


def large(step: float, lesson: float, on: Hosts = HOSTS) -> list[dict[str, Any]]:
    """Hours of the large fit by each scheme, a chain a core or a host, and megabytes that a host sends in a turn."""
    size = weights_of(on.columns)
    gradient = step / (ROWS_MEASURED * GRADIENTS) * size / weights_of(COLUMNS_MEASURED)  # Of one row, on one core.
    # All rows in each step: eight groups of hosts have a chain each, and divide the rows among their cores.
    groups = 8
    share = on.rows / (on.hosts / groups * on.cores)
    summed = 2 * GRADIENTS * SINGLE * size
    whole = share * GRADIENTS * gradient + summed / on.bytes_per_s + GRADIENTS * on.latency_s
    # Minibatches: a chain on each core of each host, all of which see the pools that the host reads from its own disk.
    chains = on.hosts * on.cores
    answers = SINGLE * QUERIES * OUTPUTS
    computed = on.batch * gradient + lesson + answers * chains / on.bytes_per_s + on.latency_s
    read = on.batch / REUSE * SINGLE * (on.columns + 1) / on.disk_bytes_per_s
    schemes = {
        "all rows, 8 chains": (on.updates * (whole + lesson), summed + answers * groups),
        "minibatches, a chain a core": (on.updates * max(computed, read), answers * chains),
    }
    result = []
    for name, (total, sent) in schemes.items():
        method = f"10^9 rows, 64 hosts: {name}"
        result += [row(method, "hours", [total / 3600]), row(method, "mb_per_turn", [sent / 1e6])]
    return result
