"""Whether a fit of two processes, one of which is killed, ends on the other in time and goes on to the same bytes.

    darkbayes bench faults        100 faults, about two hours on two cores; several at a time where there are more

A small ``fit --distributed`` runs once undisturbed. Then, again and again in a new folder, a random one of its two
processes is killed at a random moment after they have met; the other must end by itself, with an error, within
`IN_TIME` seconds; and both are started again with ``--resume``. Every file but checkpoints and timings must then be
that of the undisturbed fit.
"""

import itertools
import os
import signal
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import environment, median_row, python, say, with_bar
from benchmarks.kills import TRIES, compared, write_boston
from darkbayes.errors import RunError
from darkbayes.processes import HEARTBEAT
from darkbayes.runs import row

FIT = "fit ../boston.csv --target MEDV --out run --effort {effort} --time-budget none --hidden 8 --student-hidden 16"
OPTIONS = "--likelihood one-noise --head gaussian --held-out 0 --chains 2 --quiet --distributed"
PROCESSES = 2
BEGUN = Path("run") / "config.json"
"""What is there once all processes have found each other; until then they wait for whoever may be late."""
IN_TIME = 2.0 * HEARTBEAT
"""Seconds after which nobody may be left of a run that has lost a process."""
WHOLE = 3_600
"""Seconds after which a run that nobody disturbs is given up."""


def rows(
    *, seed: int, quiet: bool, faults: int = 100, effort: float = 0.01, together: int | None = None
) -> list[dict[str, Any]]:
    """How many faults there were, and the shares of those after which all ended in time, and with the same bytes.

    So many runs go on `together`; None for as many as have a core for each process.
    """
    rng = np.random.default_rng(seed)
    together = together or max(1, (os.cpu_count() or 1) // PROCESSES)
    command = [*FIT.format(effort=effort).split(), *OPTIONS.split()]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(together) as pool:
        folder = Path(scratch)
        write_boston(folder / "boston.csv", 1)
        whole = folder / "whole"
        live(command, folder / "first")  # Which compiles.
        live(command, whole)
        lasts = time.time() - (whole / BEGUN).stat().st_mtime

        def fault(number: int, victim: int, after: float) -> tuple[float, bool] | None:
            broken = folder / f"broken-{number}"
            took = struck(command, broken, victim, after)
            if took is None:
                return None  # It was done before.
            live([*command, "--resume"], broken)
            same = compared(whole, broken) == (True, 0)
            say(f"run {number}: the other ended after {took:.1f} s, the same bytes: {same}", quiet=quiet)
            return took, same

        tries = TRIES * faults
        victims, moments = rng.integers(PROCESSES, size=tries).tolist(), rng.uniform(0.0, lasts, tries).tolist()
        # In rounds, so that none begins that is not needed; a fault that did not strike is made up for by the next.
        ended: list[tuple[float, bool]] = []
        numbers = iter(range(tries))
        while len(ended) < faults and (turn := list(itertools.islice(numbers, min(together, faults - len(ended))))):
            outcomes = pool.map(lambda number: fault(number, victims[number], moments[number]), turn)
            ended += [outcome for outcome in outcomes if outcome is not None]
    seconds, same = [took for took, _ in ended], [equal for _, equal in ended]
    name = f"fit by {PROCESSES} processes"
    return [
        with_bar(row(name, "faults", [float(len(same))]), "at least", float(faults)),
        with_bar(row(name, "ended_in_time", [float(one <= IN_TIME) for one in seconds]), "at least", 1.0),
        with_bar(row(name, "bit_identical", [float(one) for one in same]), "at least", 1.0),
        median_row(name, "seconds_to_end", seconds),
        row(name, "most_seconds_to_end", [max(seconds)]),
    ]


def free_port() -> int:
    """A port at which nobody is to be found."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def start(command: list[str], folder: Path) -> list[subprocess.Popen[bytes]]:
    """The processes of a command, in a folder that they share."""
    folder.mkdir(exist_ok=True)
    place = {"JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}", "JAX_NUM_PROCESSES": str(PROCESSES)}
    processes = []
    for number in range(PROCESSES):
        with (folder.parent / f"{folder.name}-{number}.log").open("a") as log:
            # What runs for seconds compiles in haste.
            haste = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
            variables = environment(**place, **haste, JAX_PROCESS_ID=str(number))
            how: Any = {"cwd": folder, "stdout": log, "stderr": log, "env": variables}
            processes.append(subprocess.Popen(python("-m", "benchmarks.kills", *command), **how))
    return processes


def live(command: list[str], folder: Path) -> None:
    """Run a command in all processes to its end."""
    processes = start(command, folder)
    try:
        codes = [process.wait(WHOLE) for process in processes]
    finally:
        end(processes)
    if any(codes):
        said = "".join(path.read_text()[-1000:] for path in folder.parent.glob(f"{folder.name}-*.log"))
        raise RunError(f"{' '.join(command)} failed by itself with {codes}: {said}")


def struck(command: list[str], folder: Path, victim: int, after: float) -> float | None:
    """Run a command, kill one of its processes; seconds until the others have ended, None if it was done before."""
    processes = start(command, folder)
    try:
        while not (folder / BEGUN).exists() and processes[victim].poll() is None:
            time.sleep(0.05)
        time.sleep(after)
        processes[victim].kill()
        began = time.perf_counter()
        if processes[victim].wait() != -signal.SIGKILL:
            return None
        others = [process for process in processes if process is not processes[victim]]
        try:
            codes = [process.wait(2 * IN_TIME) for process in others]
        except subprocess.TimeoutExpired:
            return 2 * IN_TIME
        took = time.perf_counter() - began
        # One that had nothing left to do but to leave has done its work.
        return took if all(codes) or (folder / "run" / "report.html").exists() else 2 * IN_TIME
    finally:
        end(processes)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Leave none of these processes behind."""
    for process in processes:
        process.kill()
        process.wait()
