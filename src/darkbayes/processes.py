"""What the processes of a run do together, by JAX's own runtime: find each other, agree, gather, notice a loss.

JAX waits for a process that is slow, and ends all where one is lost. A connection that breaks is noticed at once and
raised as `WorkerLost`. Where heartbeats stay away for `HEARTBEAT` seconds (a machine that is gone, a process that
hangs), or the first process is gone, which coordinates all, JAX ends the process by itself; `plainly` says why. After
`WorkerLost` a process should leave by ``os._exit``: an orderly exit waits for the lost one.
"""

import contextlib
import io
import json
import os
import re
import signal
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from darkbayes.errors import InvalidInput, RunError, WorkerLost, first_line
from darkbayes.types import PyTree

HEARTBEAT = 30
"""Seconds without a sign of life after which a process counts as lost; all others have ended in twice that time."""
PATIENCE = 300
"""Seconds that processes wait for each other when they begin, and when they end."""
MOST_PORT = 65_535
PLACE = {
    "processes": ("JAX_NUM_PROCESSES", "NUM_PROCESSES", "OMPI_COMM_WORLD_SIZE"),
    "process": ("JAX_PROCESS_ID", "PROCESS_ID", "OMPI_COMM_WORLD_RANK"),
}
"""Variables that tell a process its place where JAX itself does not look: Kubeflow's, and those of Open MPI 5."""
SIGNS_OF_LOSS = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "coordination service")
LOST = "process {} has lost touch with another of the {} processes ({}): see what that one wrote last, and {}"
WAITING, TOGETHER = "darkbayes waits at ", "darkbayes has found all processes"
"""What a process tells the one that reads its output, before it looks for the others and after it has found them."""
_READ: list[bool] = []
"""Whether somebody reads it: not empty."""
AGAIN = "start all of them again; with a folder and resume they go on from the last checkpoint"


def join(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Become one of several processes that run together, before JAX is used for anything else.

    What is not given is read from the environment: Slurm, Open MPI, Kubernetes and Cloud TPUs by JAX's own detection;
    elsewhere, as Kubeflow sets them, ``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID``.

    Args:
        coordinator: host and port of the first process, ``HOST:PORT``.
        processes: how many there are.
        process: which of them this is, from 0.
    """
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    numbers = {"processes": processes, "process": process}
    if coordinator is not None:
        numbers = {name: _number(name, given) for name, given in numbers.items()}
        if (parts := re.fullmatch(r".+:(\d+)", coordinator)) is None or not 0 < int(parts[1]) <= MOST_PORT:
            raise InvalidInput(f"coordinator {coordinator} is not an address: write HOST:PORT, as in 10.0.0.1:1234")
    number, count = numbers["process"], numbers["processes"]
    if count is not None and count < 1:
        raise InvalidInput(f"processes must be 1 or more, not {count}")
    if number is not None and count is not None and not 0 <= number < count:
        raise InvalidInput(f"process {number} of {count} processes: count from 0 to {count - 1}")
    if coordinator is not None and number:
        _reach(coordinator)
    # Else a process that is told to end (SIGTERM) would note it and go on.
    jax.config.update("jax_enable_preemption_service", False)
    waits: Any = {"initialization_timeout": PATIENCE, "shutdown_timeout_seconds": PATIENCE}
    if coordinator is not None and count is not None:
        _tell_reader(f"{WAITING}{coordinator} for {count} processes")
    try:
        jax.distributed.initialize(coordinator, count, number, heartbeat_timeout_seconds=HEARTBEAT, **waits)
    except (ValueError, TypeError, OSError, RuntimeError) as problem:
        remedy = "start it by srun, mpirun or as a JobSet, or give coordinator (HOST:PORT), processes and process"
        raise InvalidInput(f"this process does not find the others ({first_line(problem)}): {remedy}") from problem
    _tell_reader(TOGETHER)


def _number(name: str, given: int | None) -> int | None:
    """A number that is given, or that a variable of the environment says."""
    said = [os.environ[variable] for variable in PLACE[name] if variable in os.environ]
    if given is not None or not said:
        return given
    try:
        return int(said[0])
    except ValueError:
        raise InvalidInput(f"{said[0]!r} in the environment is not a number: give {name}") from None


def _reach(coordinator: str) -> None:
    """Wait until the first process is there; JAX would end this one without saying which address it tried."""
    host, port = coordinator.rsplit(":", 1)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
            return
        except OSError as problem:
            if time.monotonic() > until:
                reached = f"nobody answers at coordinator {coordinator} within {PATIENCE} s ({problem})"
                raise RunError(f"{reached}: start process 0 there, and let its port be reached") from problem
            time.sleep(0.2)


def first() -> bool:
    """Whether this is the process that writes and prints for all."""
    return jax.process_index() == 0


@contextlib.contextmanager
def noticing_loss() -> Iterator[None]:
    """Turn what a collective raises where a process is gone into an error that says so."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as problem:  # Gloo's failures come as either.
        cause = first_line(problem)
        if isinstance(problem, InvalidInput) or not any(sign in cause for sign in SIGNS_OF_LOSS):
            raise
        raise WorkerLost(LOST.format(jax.process_index(), jax.process_count(), cause, AGAIN)) from problem


def gather(tree: PyTree) -> PyTree:
    """What each process holds under the same names and shapes, stacked along a leading axis, on every process."""
    with noticing_loss():
        return multihost_utils.process_allgather(tree)


def agreed(value: int) -> int:
    """The first process's value."""
    if jax.process_count() == 1:
        return value
    with noticing_loss():
        return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def broadcast(value: Any) -> Any:
    """The first process's value, of what JSON can hold; what others give does not count."""
    text = json.dumps(value).encode()
    length = agreed(len(text))
    with noticing_loss():
        letters = multihost_utils.broadcast_one_to_all(np.frombuffer(text.ljust(length)[:length], np.uint8))
    return json.loads(letters.tobytes())


def attempt(function: Callable[[], Any], wish: bool = False) -> tuple[Any, bool]:
    """Go on only if `function` raises nothing on any process: one raises its own, others say whose message to read.

    Returns what it returns here, and the `wish` of the first process, which so decides for all.
    """
    result, problem = None, None
    try:
        result = function()
    except Exception as raised:
        problem = raised
    problems, wishes = gather(np.array([problem is not None, wish])).T
    if problem is not None:
        raise problem
    if problems.any():
        raise RunError(f"process {np.argmax(problems)} of {jax.process_count()} gave up: see its message")
    return result, bool(wishes[0])


def require_alike(**settings: Any) -> None:
    """Refuse to go on where processes were called with different settings."""
    names = gather(np.uint32(zlib.crc32(repr(sorted(settings)).encode())))
    prints = np.array([zlib.crc32(repr(value).encode()) for value in settings.values()], np.uint32)
    if (names != names[0]).any():
        raise InvalidInput(f"processes have other settings than {', '.join(settings)}: call with the same on all")
    for name, values, mine in zip(settings, gather(prints).T, settings.values(), strict=True):
        if (values != values[0]).any():
            differs = f"{name} differs between processes, it is {mine!r} on process {jax.process_index()}"
            raise InvalidInput(f"{differs}: call with the same on all of them")


def plainly() -> None:
    """From now on the runtime below Python is silent, but for one line where it ends this process for want of others.

    Gloo tells of its connections on standard output, where results belong, and where a process is lost the runtime
    writes a page about itself. So what it writes goes to a small process beside this one, which outlives it. What
    Python prints is not changed.
    """
    if not hasattr(os, "fork"):
        return
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        stream.flush()
        # Where somebody has put something else in its place, it is left there.
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            own = os.fdopen(os.dup(stream.fileno()), "w", buffering=1, encoding=stream.encoding, errors=stream.errors)
            setattr(sys, name, own)
    reading, writing = os.pipe()
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            os.close(writing)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _pass_on(reading)
        os._exit(0)
    os.close(reading)
    for descriptor in (1, 2):
        os.dup2(writing, descriptor)
    os.close(writing)
    _READ.append(True)


def _tell_reader(line: str) -> None:
    """Say a line to the process that `plainly` has put beside this one, if it has."""
    if _READ:
        os.write(2, f"{line}\n".encode())


def _pass_on(reading: int) -> None:
    """Write the lines that come to standard error, but for those about connections and the loss of a process."""
    about = re.compile(r"\[Gloo\]|coordination_service|preemption_sync|\b(client|service)\.h:|distributed service")
    lost, waits = False, ""
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith((WAITING, TOGETHER)):
                waits = line.removeprefix(WAITING).strip() if line.startswith(WAITING) else ""
                continue
            if "distributed service detected fatal errors" in line:
                why = "a process is lost, and JAX's runtime has ended this one: the other does not answer"
                why = f"{why}. See what that one wrote last, and {AGAIN}"
                if waits:
                    why = f"not all came within {PATIENCE} s, where this process waited at {waits}: start them all"
                print(f"darkbayes: {why}", file=sys.stderr, flush=True)
            lost = lost or (about.search(line) is not None and "[Gloo]" not in line)
            if not lost and "[Gloo]" not in line:
                print(line, end="", file=sys.stderr, flush=True)
