"""A process that answers one request after the other, told of them on its standard input; it can be killed.

A message is two lengths, JSON and bytes. The first holds the student and the limits, and is answered with an empty one
when the student is ready; each after that is a `Task`, answered with an `Answer`. The process ends with its input.
"""

import dataclasses
import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

LENGTHS = struct.Struct("!QQ")
PROGRAM = "from darkbayes.serve.process import main; main()"


def message(about: bytes, body: bytes | memoryview = b"") -> bytes:
    """What is written."""
    return b"".join([LENGTHS.pack(len(about), len(body)), about, body])


def command() -> list[str]:
    """The command line of such a process."""
    return [sys.executable, "-P", "-c", PROGRAM]


def environment() -> dict[str, str]:
    """Its variables: it finds this very package, and does not spread over processors that others need."""
    places = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return os.environ | {"PYTHONPATH": os.pathsep.join(places)} | threads


def main() -> None:
    """Answer until the input ends."""
    # Whoever stops the service stops this when the last answer is given: by closing its input.
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # What a library prints must not get between the answers.
    tasks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    start = _read(tasks)
    if start is None:
        return
    about, content = start
    # Not on Windows.
    nice, alarm = getattr(os, "nice", lambda _: None), getattr(signal, "alarm", lambda _: None)
    nice(about["nice"])

    from darkbayes.serve.limits import Limits
    from darkbayes.serve.work import Task, Worker, as_message
    from darkbayes.shipped import Shipped

    limits = Limits(**about["limits"])
    worker = Worker(Shipped(about["path"], content=content), limits, about["name"])
    worker.warm_up()
    _write(answers, b"{}")
    while received := _read(tasks):
        about, body = received
        # Should nobody be left who would kill it.
        alarm(2 * int(limits.seconds + 1))
        answer = worker.answer(Task(body, **about))
        alarm(0)
        _write(answers, *as_message(answer))


def started(path: Path, content: bytes, limits: Any, name: str, nice: int) -> bytes:
    """The first message."""
    about = {"path": str(path), "limits": dataclasses.asdict(limits), "name": name, "nice": nice}
    return message(json.dumps(about).encode(), content)


def _read(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    lengths = stream.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    about, body = map(stream.read, LENGTHS.unpack(lengths))
    return json.loads(about), body


def _write(stream: BinaryIO, about: bytes, body: bytes = b"") -> None:
    stream.write(message(about, body))
    stream.flush()
