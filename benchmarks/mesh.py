"""Steps a second of all chains of a distillation, two processes on two cores against one process on one core; and by
how much the student of several processes differs from that of one.

    darkbayes bench mesh          a few minutes, on a machine with two idle cores

Both run the same distillation: eight chains on all rows of Boston housing and a student that makes as many updates as
a chain makes steps, one after each or all of a turn after `TURN` of them, whose answers are exchanged at once. The
process that is alone is pinned to one core, the two to one core each; they take turns, and the ratio is that of
neighbours. What is measured is ``python -m benchmarks.mesh CORE OUT SEED SECONDS``. With ``mesh`` or ``alone`` in place
of ``SECONDS`` it is what a student says of its rows, in units of the targets' spread, after a distillation on the mesh
of all processes or on none: a short one, as chains are chaotic and rounding would tell in the end.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import environment, median_row, python, say, with_bar
from benchmarks.faults import WHOLE, end, free_port
from darkbayes.errors import InvalidInput, RunError
from darkbayes.files import read_json, write_json
from darkbayes.runs import row

CHAINS, HIDDEN = 8, (50, 50)
TURN = 50
LOOPS = ("chains alone", "chains and student", f"chains and student, a turn in {TURN} steps")
SHARING, STEPS = (1, 2, 4), 2 * TURN
"""How many processes have the same student, and the steps of each chain until then."""
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def rows(*, seed: int, quiet: bool, turns: int = 7, seconds: float = 5.0) -> list[dict[str, Any]]:
    """Steps of all chains a second of one process and of two, the ratio, and how alike students are."""
    if len(os.sched_getaffinity(0)) < 2:
        raise InvalidInput("this machine lends one core: the benchmark needs two")
    speeds: dict[int, list[list[float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(turns):
            for number in (1, 2) if turn % 2 else (2, 1):
                speeds[number].append(measured(number, Path(scratch), seed, seconds))
            say(f"turn {turn + 1}: {speeds[1][-1]} against {speeds[2][-1]} steps a second", quiet=quiet)
        alone = np.array(measured(1, Path(scratch), seed, "alone"))
        students = {number: np.array(measured(number, Path(scratch), seed, "mesh")) for number in SHARING}
    result = []
    for k, loop in enumerate(LOOPS):
        one, two = ([rates[k] for rates in speeds[number]] for number in (1, 2))
        result += [median_row(f"{loop}, 1 process", "steps_per_s", one)]
        result += [median_row(f"{loop}, 2 processes", "steps_per_s", two)]
        ratios = [fast / slow for slow, fast in zip(one, two, strict=True)]
        result += [with_bar(median_row(f"{loop}, 2 processes", "speedup", ratios), "at least", 1.7)]
    for number, said in students.items():
        name = f"student, {number} process{'es' if number > 1 else ''}"
        result += [with_bar(row(name, "max_difference", [float(np.abs(said - alone).max())]), "at most", 1e-4)]
    return result


def measured(number: int, folder: Path, seed: int, what: float | str) -> list[float]:
    """What so many processes measure, each on a core of its own as far as there are any."""
    cores, place = sorted(os.sched_getaffinity(0)), {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ONE_THREAD}
    if number > 1:
        place |= {"JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}", "JAX_NUM_PROCESSES": str(number)}
    processes, log = [], folder / "log"
    try:
        for process in range(number):
            variables = environment(**place, **({"JAX_PROCESS_ID": str(process)} if number > 1 else {}))
            core, out = str(cores[process % len(cores)]), str(folder / "out")
            command = python("-m", "benchmarks.mesh", core, out, str(seed), str(what))
            with log.open("w") as lines:
                processes.append(subprocess.Popen(command, stdout=lines, stderr=lines, env=variables))
        codes = [process.wait(WHOLE) for process in processes]
    finally:
        end(processes)
    if any(codes):
        raise RunError(f"{number} processes ended with {codes}: {log.read_text()[-1000:]}")
    return read_json(folder / "out")


def teacher_and_student(burn_in: int) -> tuple[Any, Any]:
    """What is distilled into what."""
    import optax

    import darkbayes as db

    table: Any = db.data.load("boston")
    x, y = ((part - part.mean(axis=0)) / part.std(axis=0) for part in (table.x, table.y[:, None]))
    network, head = db.mlp(HIDDEN, 1), db.outcomes.GaussianHead()
    posterior = db.Posterior(network, db.outcomes.Gaussian(4.0), db.priors.GaussianPrior(1.0), num_data=len(x))
    chain = db.mclmc_chain(posterior, x, y, burn_in=burn_in, thin=TURN)
    return chain, db.Student(db.mlp(HIDDEN, head.width), head, optax.adam(1e-3))


def answers(seed: int, *, on_a_mesh: bool) -> list[float]:
    """What a student says of the rows of its teacher."""
    import jax

    import darkbayes as db

    chain, student = teacher_and_student(STEPS // 2)
    how: Any = {"settings": db.Settings(CHAINS), "mesh": db.device_mesh() if on_a_mesh else None, "quiet": True}
    done = db.distil(chain, student, db.queries.jitter(0.1), jax.random.key(seed), steps=STEPS, **how)
    said: Any = db.predict_student(student, done.params, chain.inputs)
    return np.concatenate([np.ravel(said.mean), np.ravel(said.std)]).tolist()


def measure(seed: int, seconds: float) -> list[float]:
    """What one of the processes measures: steps a second of all chains, of each loop."""
    import jax

    import darkbayes as db
    from darkbayes.mesh import laid
    from darkbayes.processes import agreed

    (chain, student), mesh = teacher_and_student(1_000_000), db.device_mesh()
    often, seldom = (
        db.distillation(chain, student, db.queries.jitter(0.1), settings).on(mesh)
        for settings in (db.Settings(CHAINS), db.Settings(CHAINS, update_every=TURN, updates=TURN))
    )
    loops = (
        (often, 1, lambda state, n: often.burn(state, n)),
        (often, TURN, lambda state, n: often.advance(state, n)[0]),
        (seldom, TURN, lambda state, n: seldom.advance(state, n)[0]),
    )
    rates = []
    for parts, steps, loop in loops:
        state = parts.init(laid(jax.random.key(seed), mesh))
        state, number = jax.block_until_ready(loop(state, np.int32(1))), 1
        while True:
            began = time.perf_counter()
            state = jax.block_until_ready(loop(state, np.int32(number)))
            took = time.perf_counter() - began
            if agreed(took > seconds / 2):
                break
            number = agreed(min(8 * number, int(number * seconds / took) + 1))
        rates.append(CHAINS * steps * number / took)
    return rates


if __name__ == "__main__":
    core, out, seed, what = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    from darkbayes import processes

    if "JAX_PROCESS_ID" in os.environ:
        processes.join()
    students = what in ("mesh", "alone")
    speeds = answers(int(seed), on_a_mesh=what == "mesh") if students else measure(int(seed), float(what))
    if processes.first():
        write_json(Path(out), speeds)
