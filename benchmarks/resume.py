"""Whether a distillation that is killed again and again ends in the same bits as one that is left alone.

    darkbayes bench resume        about two minutes

Each life is a process, ``python -m benchmarks.resume FOLDER STEPS SEED``, that begins the run in the folder or
goes on with it. Some are killed while they start (import, compile, load the checkpoint), some at work, some as they
write a checkpoint. The kills are spread over the whole run, so that the last can only be reached from the checkpoints
that the lives before it left.
"""

import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax

from benchmarks import toy
from benchmarks.common import environment, python, say, with_bar
from darkbayes import runs
from darkbayes.data import toy2d
from darkbayes.errors import RunError
from darkbayes.model import mlp
from darkbayes.outcomes.heads.classes import SoftmaxHead
from darkbayes.student import Settings, Student, distillation
from darkbayes.student.queries import uniform_box
from darkbayes.teacher import minibatch_chain
from darkbayes.teacher.samplers import sgld

NAME = "student"
PHASES = ("starting", "working", "saving")
LAST_KILL = 0.8
"""How much of the run may be done before the last kill; the rest keeps it from finishing unharmed."""


class Kill(NamedTuple):
    """When to kill a life."""

    phase: Literal["starting", "working", "saving"]
    delay: float
    """Seconds to wait, from the start or from the checkpoint that makes it due."""
    step: int
    """At work or saving, it is due at the first checkpoint of this life at or beyond this step."""


def rows(*, seed: int, quiet: bool, steps: int = 500_000, kills: int = 10) -> list[dict[str, Any]]:
    """Whether the students of both runs are the same bytes, how many kills struck, and how far they were spread."""
    with tempfile.TemporaryDirectory() as scratch:
        whole, broken = Path(scratch) / "whole", Path(scratch) / "broken"
        startup = uninterrupted(whole, steps, seed)
        struck, while_saving = 0, 0
        for kill in schedule(np.random.default_rng(seed), kills, steps, startup):
            before = half_written(broken)
            if not live_until(kill, broken, steps, seed):
                break
            struck += 1
            while_saving += bool(half_written(broken) - before)
            say(f"killed {kill.phase}, newest checkpoint at step {newest_step(broken):,} of {steps:,}", quiet=quiet)
        reached = newest_step(broken) / steps
        with life(broken, steps, seed) as process:
            process.wait()
        same = _student(whole) == _student(broken)
    method = f"resume after {struck} kills"
    say(f"{method}: the same bits: {'yes' if same else 'no'}", quiet=quiet)
    return [
        with_bar(runs.row(method, "bit_identical", [float(same)]), "at least", 1.0),
        with_bar(runs.row(method, "kills", [float(struck)]), "at least", float(kills)),
        runs.row(method, "kills_that_cut_a_checkpoint_short", [float(while_saving)]),
        runs.row(method, "done_at_last_kill", [reached]),
    ]


def schedule(rng: np.random.Generator, kills: int, steps: int, startup: float) -> list[Kill]:
    """Kills of every phase in random order, at random steps in rising order."""
    phases = rng.permutation([PHASES[number % len(PHASES)] for number in range(kills)])
    due = np.sort(rng.uniform(0.0, LAST_KILL * steps, kills))
    # At work a moment is random within a chunk; of a checkpoint, within the milliseconds that it takes to write.
    longest = {"starting": startup, "working": 0.5, "saving": 0.002}
    pairs = zip(phases.tolist(), due.tolist(), strict=True)
    return [Kill(phase, rng.uniform(0.0, longest[phase]), int(step)) for phase, step in pairs]


@contextmanager
def life(folder: Path, steps: int, seed: int) -> Iterator[subprocess.Popen[str]]:
    """A process that goes on with the run in `folder`; it must have ended well, or by our hand, when it is left."""
    command = python("-m", "benchmarks.resume", str(folder), str(steps), str(seed))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        _, complaints = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL):
        raise RunError(f"a run of the benchmark failed by itself: {complaints[-1000:]}")


def uninterrupted(folder: Path, steps: int, seed: int) -> float:
    """Run to the end; returns how many seconds passed before the first checkpoint."""
    began = time.perf_counter()
    with life(folder, steps, seed) as process:
        wait_until(process, lambda: newest_step(folder) > 0)
        return time.perf_counter() - began


def live_until(kill: Kill, folder: Path, steps: int, seed: int) -> bool:
    """Let the run in `folder` go on until it is killed; returns False if it finished before that."""
    before, left_over = newest_step(folder), half_written(folder)
    with life(folder, steps, seed) as process:
        if kill.phase != "starting":
            wait_until(process, lambda: newest_step(folder) >= max(kill.step, before + 1))
        if kill.phase == "saving":
            wait_until(process, lambda: bool(half_written(folder) - left_over), every=0.0002)
        wait_until(process, lambda: False, timeout=kill.delay)
        process.kill()
    return process.returncode == -signal.SIGKILL


def wait_until(
    process: subprocess.Popen[str],
    condition: Callable[[], bool],
    *,
    every: float = 0.005,
    timeout: float = math.inf,
) -> None:
    """Wait for a condition, as long as the process lives."""
    end = time.perf_counter() + timeout
    while process.poll() is None and time.perf_counter() < end and not condition():
        time.sleep(min(every, max(0.0, end - time.perf_counter())))


def newest_step(folder: Path) -> int:
    """The step of the newest whole checkpoint; 0 if there is none."""
    return max((int(path.name.removeprefix("step-")) for path in _checkpoints(folder).glob("step-*")), default=0)


def half_written(folder: Path) -> set[Path]:
    """Checkpoints that are being written, or were when a life ended."""
    return set(_checkpoints(folder).glob(".step-*"))


def _checkpoints(folder: Path) -> Path:
    return folder / NAME / "checkpoint"


def _student(folder: Path) -> bytes:
    return (folder / NAME / "student.safetensors").read_bytes()


def distil_toy(folder: Path, steps: int, seed: int) -> None:
    """Begin or resume a small distillation with a reservoir, which saves after every chunk."""
    runs.CHECKPOINT_SECONDS, runs.CHECKPOINT_SHARE = 0.0, 1.0
    data_key, distil_key = jax.random.split(jax.random.key(seed))
    data = toy2d(data_key)
    teacher = minibatch_chain(toy.POSTERIOR, sgld(1e-2), *data, batch_size=None, burn_in=1_000, thin=100)
    student = Student(mlp([10, 10], 2), SoftmaxHead(2), optax.adam(1e-3))
    # The reservoir is large, so that writing a checkpoint takes long enough to be interrupted.
    settings = Settings(query_batch=20, reservoir=5_000)
    parts = distillation(teacher, student, uniform_box(-10.0, 10.0), settings)
    run = runs.Run(folder, {"steps": steps, "seed": seed}, resume=True, quiet=True)
    run.distil(NAME, parts, distil_key, steps)


if __name__ == "__main__":
    distil_toy(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
