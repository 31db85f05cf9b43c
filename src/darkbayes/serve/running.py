"""The service as a process."""

import contextlib
import errno
import socket
from pathlib import Path

from darkbayes.errors import InvalidInput, require_count
from darkbayes.serve.app import make_app
from darkbayes.serve.limits import LIMITS, Limits
from darkbayes.shipped import Shipped

HOST, PORT = "127.0.0.1", 8000
MOST_PORT = 2**16 - 1
GRACE = 5
"""Seconds that requests have to finish in when the service is stopped."""


def serve(
    path: Path | str, *, host: str = HOST, port: int = PORT, limits: Limits = LIMITS, quiet: bool = False
) -> None:
    """Serve a student until interrupted.

    Args:
        path: a run's folder, or an ONNX file.
        host: the address to listen on; by default only this machine can reach it. Nobody is asked for a password.
        port: where to listen; 0 takes one that is free.
        limits: what one request may ask for.
        quiet: whether to say nothing but the address.
    """
    import uvicorn

    shipped = Shipped(path)
    with _listening(host, port) as listener:
        app = make_app(shipped, limits)
        address, number = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"http://{shown}:{number}", flush=True)
        if not quiet:
            print(f"predicts {shipped.schema.target.name} from {shipped.path}; stop with Ctrl-C", flush=True)
            if not address.startswith("127.") and address != "::1":
                print("other machines can reach this address, and no password is asked for", flush=True)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE
        )
        # The customary way to stop it.
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that is bound, or why there is none."""
    if require_count("port", port, 0) > MOST_PORT:
        raise InvalidInput(f"port must lie in 0..{MOST_PORT}, not {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except (socket.gaierror, UnicodeError) as problem:
        raise InvalidInput(f"host {host!r} is no address of this machine ({problem}): try {HOST}") from None
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            error = f"port {port} of {host} is in use: name another, or 0 for any that is free"
        elif problem.errno == errno.EACCES:
            error = f"port {port} may not be used by this user: name one above 1023"
        else:
            error = f"nothing can listen on {host}:{port} ({problem.strerror}): try {HOST}"
        raise InvalidInput(error) from None
