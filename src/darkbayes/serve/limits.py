"""How much one request may ask for, and what one that asks for too much or for nonsense is told."""

import dataclasses

from darkbayes.errors import require_count, require_positive


@dataclasses.dataclass(frozen=True)
class Limits:
    """The most that one request may ask for."""

    body: int = 8 * 2**20
    """Bytes of the body."""
    rows: int = 10_000
    """Rows or images."""
    seconds: float = 20.0
    """For the body to arrive, and again for the answer to be computed."""

    def __post_init__(self) -> None:
        require_count("body", self.body)
        require_count("rows", self.rows)
        require_positive("seconds", self.seconds)


LIMITS = Limits()


class Refused(Exception):
    """A request that is not answered.

    Args:
        status: the HTTP status.
        error: what was wrong.
        remedy: what to do instead.
        where: the part of the body that was wrong.
    """

    def __init__(self, status: int, error: str, remedy: str, where: str | None = None):
        super().__init__(error)
        self.status = status
        self.content = {"error": error, "remedy": remedy} | ({} if where is None else {"where": where})
