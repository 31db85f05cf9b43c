"""How much may be asked for, and how it is said that something is refused."""

import dataclasses
import json
import math
from typing import Any

from darkbayes.errors import require_count, require_positive


@dataclasses.dataclass(frozen=True)
class Limits:
    """The most that one request may ask for, and that all of them together may."""

    body: int = 8 * 2**20
    """Bytes of the body."""
    rows: int = 10_000
    """Rows or images."""
    seconds: float = 20.0
    """For the body to arrive, again to wait for a free process, and again for the work."""
    columns: int = 100_000
    """Names of columns: twice what a network may read."""
    head: int = 16 * 2**10
    """Bytes of the request line and the headers."""
    headers: int = 64
    """Headers of a request."""
    head_seconds: float = 10.0
    """For the head to arrive."""
    connections: int = 8192
    """Connections that are open at once."""
    waiting: int = 128
    """Requests that wait for a free process; a large one counts for eight."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check = require_positive if field.type in (float, "float") else require_count
            check(field.name, getattr(self, field.name))

    @property
    def bodies(self) -> int:
        """Bytes of all large bodies that are held at once."""
        return 16 * self.body


LIMITS = Limits()


class Refused(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP.
        error: what was wrong.
        remedy: what to do instead.
        where: it was wrong.
        **headers: more of the answer's, with underscores for hyphens.
    """

    def __init__(self, status: int, error: str, remedy: str, where: str | None = None, **headers: str):
        super().__init__(error)
        self.status = status
        self.content = {"error": error, "remedy": remedy} | ({} if where is None else {"where": where})
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @property
    def body(self) -> bytes:
        return as_bytes(self.content)


def busy(error: str, seconds: float = 1.0, **headers: str) -> Refused:
    """That the service cannot take a request now; it may be sent again after some seconds."""
    after = str(max(1, math.ceil(seconds)))
    return Refused(503, error, f"send it again in {after} s", retry_after=after, **headers)


def as_bytes(content: dict[str, Any]) -> bytes:
    """JSON, with what is not ASCII escaped: half of a surrogate pair in a quoted name has no UTF-8."""
    return json.dumps(content).encode()
