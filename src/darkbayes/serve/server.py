"""The service as a process: where it listens, what it says, and how it stops."""

import contextlib
import dataclasses
import errno
import gc
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

from darkbayes.errors import InvalidInput, require_count
from darkbayes.serve.app import make_app
from darkbayes.serve.connections import AT_ONCE, Connection, Register
from darkbayes.serve.gate import HERE, TOKEN
from darkbayes.serve.limits import LIMITS, Limits
from darkbayes.serve.measures import Measures
from darkbayes.serve.pool import Processes
from darkbayes.shipped import MODEL, Shipped

HOST, PORT, MOST_PORT = "127.0.0.1", 8000, 2**16 - 1
MOST_WORKERS = 4  # Unless asked for more.
GRACE = 5  # Seconds that are left to others when requests have had theirs, while the service stops.
SPARE_FILES = 100  # That are no connections: pipes to processes, libraries.
BACKLOG = 2**16 - 1  # Connections that may wait to be opened; as many as the system allows, which is mostly fewer.
COLLECTED = 100_000, 20, 50
"""Thresholds of the garbage collector. A look through all that thousands of connections hold takes tenths of a second,
in which nobody is answered; nearly all of it is freed without one."""


def serve(
    path: Path | str,
    *,
    host: str = HOST,
    port: int = PORT,
    limits: Limits = LIMITS,
    workers: int | None = None,
    name: str | None = None,
    allow_hosts: Sequence[str] = (),
    access_log: bool = False,
    quiet: bool = False,
) -> None:
    """Serve a student until interrupted.

    By default only this machine can reach it. Where the environment variable DARKBAYES_TOKEN is set, its value has to
    come with every request.

    Args:
        path: a run's folder or an ONNX file.
        host: the address to listen on.
        port: where; 0 for any that is free.
        limits: of requests.
        workers: processes for small requests, half as many again for large ones; one for each processor if None.
        name: what the Open Inference Protocol calls the model; that of the folder or file if None.
        allow_hosts: names under which it may be called, and whose pages may ask. Without any, those of this machine if
            nobody else can reach it, or else all.
        access_log: whether to write a line of JSON about each request, and each connection that is closed without one,
            on standard error.
        quiet: whether to say nothing but the address.
    """
    shipped = Shipped(path)
    workers = min(os.cpu_count() or 1, MOST_WORKERS) if workers is None else require_count("workers", workers)
    name, token = model_name(shipped.path) if name is None else name, os.environ.get(TOKEN, "")
    if not name or "/" in name:
        raise InvalidInput(f"name must be a part of an address, not {name!r}: leave out slashes")
    with _listening(host, port) as listener:
        address, number = listener.getsockname()[:2]
        local = address.startswith("127.") or address == "::1"
        hosts = [*allow_hosts, *HERE, host] if local or allow_hosts else []
        limits = _within_files(limits)
        measures = Measures()
        register = Register(limits, measures, access_log)
        pool = Processes(shipped, limits, name, workers)
        how: Any = {"name": name, "pool": pool, "measures": measures, "hosts": hosts, "token": token, "log": access_log}
        app = make_app(shipped, limits, connections=lambda: len(register.open), **how)
        lines = [f"http://{f'[{address}]' if ':' in address else address}:{number}"]
        if not quiet:
            lines.append(f"predicts {shipped.schema.target.name} from {shipped.path}; stop with Ctrl-C")
            if not local and not token:
                lines.append(f"other machines can reach this address, and no token is asked for: set {TOKEN}")
        config = uvicorn.Config(
            app,
            http=type("Guarded", (Connection,), {"register": register}),
            ws="none",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            loop="asyncio",  # uvloop opens all connections that wait in one go, and asyncio as many as its backlog.
            backlog=AT_ONCE,
            h11_max_incomplete_event_size=limits.head,
            timeout_keep_alive=3600,  # The register's business.
            timeout_graceful_shutdown=round(limits.seconds) + GRACE,
        )
        # The customary ways to stop it.
        with contextlib.suppress(KeyboardInterrupt):
            Server(config, pool, lines).run(sockets=[listener])


class Server(uvicorn.Server):
    """uvicorn's, with processes that are there before it listens and until it has answered the last request."""

    def __init__(self, config: uvicorn.Config, pool: Processes, lines: list[str]):
        super().__init__(config)
        self.pool, self.lines = pool, lines

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the processes, listen, and say so."""
        await self.pool.start()
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)
        gc.freeze()
        gc.set_threshold(*COLLECTED)
        print(*self.lines, sep="\n", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has been asked, in bounded time, and end."""
        await super().shutdown(sockets)
        await self.pool.stop()


def model_name(path: Path) -> str:
    """What a model is called: as its run's folder, or as its file.

    >>> model_name(Path("runs/boston-MEDV/student.onnx")), model_name(Path("houses.onnx"))
    ('boston-MEDV', 'houses')
    """
    return path.absolute().parent.name or path.stem if path.name == MODEL else path.stem


def _within_files(limits: Limits) -> Limits:
    """Limits with no more connections than this process may have files, after it has asked for as many as it needs."""
    try:
        import resource
    except ImportError:  # Not on Windows.
        return limits
    wanted, (soft, hard) = limits.connections + SPARE_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return dataclasses.replace(limits, connections=max(1, soft - SPARE_FILES))
    return limits


def _listening(host: str, port: int) -> socket.socket:
    """A socket that is bound, or why there is none."""
    if require_count("port", port, 0) > MOST_PORT:
        raise InvalidInput(f"port must lie in 0..{MOST_PORT}, not {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except (socket.gaierror, UnicodeError) as problem:
        raise InvalidInput(f"host {host!r} is not an address of this machine ({problem}): try {HOST}") from None
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            error = f"port {port} of {host} is in use: name another, or 0 for any that is free"
        elif problem.errno == errno.EACCES:
            error = f"port {port} may not be used by this user: name one above 1023"
        else:
            error = f"nothing can listen on {host}:{port} ({problem.strerror}): try {HOST}"
        raise InvalidInput(error) from None
