"""The service of a student, from a thread of this process: that one of its own does the same is in test_service.py."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn

from darkbayes.serve import make_app
from darkbayes.serve.server import model_name
from darkbayes.shipped import Shipped


@contextlib.contextmanager
def served(shipped: Shipped) -> Iterator[str]:
    """Where it answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(make_app(shipped, name=model_name(shipped.path)), ws="none", log_level="error")
    )
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
