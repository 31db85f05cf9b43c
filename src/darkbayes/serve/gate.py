"""Who may ask: names under which the service may be called, pages that may call it, and a token; and what is counted
and logged of each request, whoever asked.
"""

import base64
import binascii
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from darkbayes.errors import InvalidInput
from darkbayes.serve.limits import Refused
from darkbayes.serve.measures import Measures

TOKEN = "DARKBAYES_TOKEN"
"""The environment variable that holds the token."""
OPEN = ("/livez", "/healthz", "/v2/health/live", "/v2/health/ready")
"""What is answered without a token and under any name, for those who watch over the service."""
HERE = ("localhost", "127.0.0.1", "::1")
"""Names of this machine. A page elsewhere may have its own name resolved to this machine, but cannot call it so."""
UNANSWERED = 499
"""What the log has for a status where there was no answer."""
App = Callable[[Any, Any, Any], Awaitable[None]]


class Gate:
    """An ASGI application around another.

    Args:
        app: what answers.
        hosts: names under which the service may be called, without ports; any if empty.
        token: what has to come as a bearer token, or as a password; nothing if empty.
        measures: what counts requests.
        log: whether to write a line of JSON about each request on standard error.
    """

    def __init__(
        self,
        app: App,
        *,
        hosts: Iterable[str] = (),
        token: str = "",
        measures: Measures | None = None,
        log: bool = False,
    ):
        if 0 < len(token) < 8 or not token.isascii() or token != token.strip():
            raise InvalidInput(f"the token in {TOKEN} must have 8 ASCII characters or more, and no spaces around them")
        self.app, self.log, self.measures = app, log, measures or Measures()
        self.hosts = frozenset(host.strip("[]").lower() for host in hosts)
        self.digest = _digest(token.encode()) if token else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or pass on what is none."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, answered = time.perf_counter(), {"status": UNANSWERED, "bytes": 0}

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                answered["status"] = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
            else:
                answered["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            problem = self._problem(scope)
            await (self.app(scope, receive, sending) if problem is None else _answer(problem, sending))
        finally:
            seconds = time.perf_counter() - began
            # The pattern of the address, as strangers may make up any number of addresses.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
            self.measures.answered(route, method, answered["status"], seconds)
            if self.log:
                log_line(scope.get("client"), scope["method"], scope["path"][:200], **answered, seconds=seconds)

    def _problem(self, scope: Any) -> Refused | None:
        """Why a request is not answered."""
        if scope["path"] in OPEN:
            return None
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self.hosts and _name(host) not in self.hosts:
            remedy = f"call it {' or '.join(sorted(self.hosts))}, or start it with --allow-host"
            return Refused(421, f"the host name {host[:100]!r} is not one of this service", remedy, "host")
        origin = headers.get(b"origin")
        if origin is not None:
            place = origin.partition("://")[2]
            if place.lower() != host.lower() and (not self.hosts or _name(place) not in self.hosts - {*HERE}):
                remedy = "ask from a page of the service itself, or start it with --allow-host"
                return Refused(403, f"pages of {origin[:100]!r} may not ask here", remedy, "origin")
        if self.digest and not hmac.compare_digest(_digest(_secret(headers.get(b"authorization", ""))), self.digest):
            remedy = "send it as 'Authorization: Bearer TOKEN', or as a password under any name"
            ways = 'Basic realm="darkbayes", charset="UTF-8", Bearer'
            return Refused(401, "a token is needed", remedy, "authorization", www_authenticate=ways)
        return None


async def _answer(problem: Refused, send: Any) -> None:
    headers = problem.headers | {"content-type": "application/json", "content-length": str(len(problem.body))}
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": fields})
    await send({"type": "http.response.body", "body": problem.body})


def _name(host: str) -> str:
    """A host without its port; nothing if it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _secret(authorization: str) -> bytes:
    """The token of a header."""
    way, _, value = authorization.partition(" ")
    if way.lower() == "bearer":
        return value.strip().encode("latin-1")
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2] if way.lower() == "basic" else b""
    except (binascii.Error, ValueError):
        return b""


def _digest(secret: bytes) -> bytes:
    # Digests have one length, so that comparing takes as long whatever is sent.
    return hashlib.sha256(secret).digest()


def log_line(client: Any, method: str | None, path: str | None, *, seconds: float, **answered: Any) -> None:
    """Write a line of JSON on standard error about what was answered."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "client": (client or ("",))[0],
        "method": method,
        "path": path,
        **answered,
        "seconds": round(seconds, 6),
    }
    print(json.dumps(line), file=sys.stderr, flush=True)
