"""Processes that run together, on this machine, for the tests of all that several share."""

import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS = 900
"""How long a test waits for its processes before it ends them."""


def free_port() -> int:
    """A port at which nobody is to be found."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def exit_codes(commands: Sequence[Sequence[Any]], logs: Sequence[Path], environment: Mapping[str, str]) -> list[int]:
    """How commands end that are begun side by side, each writing into a log of its own; none is left behind."""
    processes = []
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("w") as lines:
                processes.append(subprocess.Popen(command, stdout=lines, stderr=lines, env=environment))
        return [process.wait(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
