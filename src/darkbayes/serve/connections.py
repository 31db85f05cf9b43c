"""Connections that cannot be held for ever: how many there may be, and how long each may keep the service waiting.

uvicorn's protocol over h11, with a register of the connections whose other side owes something: a request's head, the
rest of its body, the reading of an answer, or (idle) the next request. Who owes for too long is dropped. When there are
too many, the one that has owed the longest makes room for the next, those without a request before all others; so
thousands of connections that send a byte now and then lock nobody out. Heads are looked at before they are parsed.
"""

import asyncio
import http
import re
import socket
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from darkbayes.serve.gate import UNANSWERED, log_line
from darkbayes.serve.limits import Limits, Refused, busy
from darkbayes.serve.measures import Measures

KINDS: tuple[str, ...] = ("head", "body", "answer", "idle")
"""What a connection may owe, those first that have to make room first."""
IDLE = 75.0  # Seconds that a connection may be without a request: longer than proxies keep theirs.
SWEEP = 0.5  # Seconds between looks at who owes for too long.
AT_ONCE = 64
"""Connections that are opened or dropped before others have their turn: a thousand take tenths of a second."""
END = re.compile(rb"\r?\n\r?\n")
CHUNKED = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)


class Register:
    """The connections of a service, by what the other side owes, the oldest debt first.

    Where there is to be a `log`, it has a line about each that is closed without having sent a request.
    """

    def __init__(self, limits: Limits, measures: Measures, log: bool = False):
        self.limits, self.measures, self.log = limits, measures, log
        self.open: set[Connection] = set()
        self.owing: dict[str, dict[Connection, None]] = {kind: {} for kind in KINDS}  # In order.
        times = (limits.head_seconds, 2 * limits.seconds, limits.seconds, IDLE)
        self.times = dict(zip(KINDS, times, strict=True))
        self.sweeping: asyncio.Task[None] | None = None

    def admit(self, connection: "Connection") -> bool:
        """Whether there is room for one more; if need be, another makes it."""
        if self.sweeping is None:
            self.sweeping = asyncio.get_running_loop().create_task(self.sweep())
        if len(self.open) >= self.limits.connections:
            for kind in KINDS:
                if self.owing[kind]:
                    self.drop(next(iter(self.owing[kind])), f"{kind} while full")
                    break
            else:
                return False
        self.open.add(connection)
        return True

    def note(self, connection: "Connection", owes: str | None) -> None:
        """Note what the other side owes from now on; what it owes already it owes since then."""
        if connection.owes != owes:
            if connection.owes is not None:
                self.owing[connection.owes].pop(connection, None)
            connection.owes, connection.since = owes, time.monotonic()
            if owes is not None and connection in self.open:
                self.owing[owes][connection] = None

    def refused(self, connection: "Connection", reason: str, status: int = UNANSWERED, size: int = 0) -> None:
        """Count, and log, that a connection is closed for a reason, with an answer of so many bytes or without one."""
        self.measures.refused[reason] += 1
        if self.log:
            answered = {"status": status, "bytes": size, "seconds": time.monotonic() - connection.since}
            log_line(connection.client, None, None, **answered, reason=reason)

    def drop(self, connection: "Connection", reason: str) -> None:
        """Close a connection at once, whatever has not been sent yet."""
        self.refused(connection, reason)
        self.forget(connection)
        connection.transport.abort()

    def forget(self, connection: "Connection") -> None:
        """It has been closed."""
        self.note(connection, None)
        self.open.discard(connection)

    async def sweep(self) -> None:
        """Drop who owes for too long, for ever."""
        while True:
            await asyncio.sleep(SWEEP)
            now = time.monotonic()
            for kind, owing in self.owing.items():
                for number, connection in enumerate(list(owing), start=1):
                    since = connection.since
                    if now - since < self.times[kind]:
                        break
                    if number % AT_ONCE == 0:
                        await asyncio.sleep(0)
                    if connection not in owing or connection.since != since:
                        continue  # It has paid meanwhile.
                    if kind == "idle":
                        connection.timeout_keep_alive_handler()
                        self.forget(connection)
                    else:
                        self.drop(connection, f"{kind} too late")


class Connection(H11Protocol):
    """One connection; `register` is set by a subclass that a service makes for itself."""

    register: Register

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.owes: str | None = None
        self.since = time.monotonic()  # When it began to owe that.

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if (connected := transport.get_extra_info("socket")) is not None:
            # asyncio does so where a socket says that it is TCP's, which those of a given listener do not. The
            # body of an answer would wait until the other side has acknowledged its head.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.register.admit(self):
            self.register.note(self, "head")
        else:
            self._refuse(busy("there are too many connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.register.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and not self._admits(self.conn.trailing_data[0] + data):
            return
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        # A client may have sent its next request already.
        ahead = self.conn.trailing_data[0] if self.conn.their_state is h11.DONE else b""
        if ahead and not self._admits(ahead):
            return
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note()

    def _note(self) -> None:
        """What the other side owes now."""
        if self.transport.is_closing() or self.flow.write_paused:
            owes = "answer"  # Reading it.
        elif self.conn.their_state is h11.SEND_BODY:
            owes = "body"
        elif self.cycle is not None and not self.cycle.response_complete:
            owes = None  # The service's turn.
        else:
            owes = "head" if self.cycle is None or self.conn.trailing_data[0] else "idle"
        self.register.note(self, owes)

    def _admits(self, received: bytes) -> bool:
        """Whether the head, as far as it has arrived, may go to the parser; it has been refused otherwise."""
        limits = self.register.limits
        end = END.search(received, 0, limits.head)
        head = received[: end.end() if end else limits.head + 1]
        if len(head) > limits.head:
            error = f"the head of the request has more than {limits.head:,} bytes"
            self._refuse(Refused(431, error, "send fewer or shorter headers, or a shorter address"))
        elif head.count(b"\n") > limits.headers + 2:
            error = f"the request has more than {limits.headers} headers"
            self._refuse(Refused(431, error, "send fewer"))
        elif end and CHUNKED.search(head):
            # Chunks of a byte each would cost the one process that talks to all.
            error = "the request does not say how long its body is (Transfer-Encoding)"
            self._refuse(Refused(411, error, "send Content-Length instead"))
        else:
            return True
        return False

    def _refuse(self, problem: Refused) -> None:
        """Answer by hand, before there is a request, and close."""
        status = http.HTTPStatus(problem.status)
        self.register.refused(self, f"{status.value} {status.phrase}", status.value, len(problem.body))
        fields = problem.headers | {
            "content-type": "application/json",
            "content-length": str(len(problem.body)),
            "connection": "close",
            "x-content-type-options": "nosniff",
        }
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items())]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + problem.body)
        self.transport.close()
        self.register.note(self, "answer")

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            self.transport.close()
        else:
            self._refuse(Refused(400, "this is not a request of HTTP/1.1", "see /docs"))
