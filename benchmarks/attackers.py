"""Those who would keep a service from its work, all at once, in a process of their own.

    python -m benchmarks.attackers ADDRESS SECONDS CONNECTIONS SEED

Most connections send the head of a request a line at a time, and never end it; some send a body so, and some ask for
much and read nothing; who is dropped comes back after a second. Beside them are heads that are far too large, bodies as
large as they may be, and requests that are wrong (`benchmarks.malformed`). Ends with a line of JSON on standard output:
how often each status was answered, to whom. The process has a low priority: its work would be done by other machines.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from benchmarks.malformed import malformed

PAUSE = 1.0  # Seconds until somebody who was dropped comes back.
DRIP = (2.0, 8.0)  # Seconds between two lines of somebody slow.
WRONG = 300  # Requests that are made beforehand: making them would take the time of sending them.
LARGE = 4 * 2**20  # Bytes of a large body.
Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Attack:
    """One attack, on one service."""

    def __init__(self, address: str, seed: int):
        place = urlsplit(address)
        self.host, self.port, self.netloc = place.hostname or "", place.port or 80, place.netloc
        self.rng, self.answers = random.Random(seed), Counter[str]()
        self.openapi: dict[str, Any] = {}

    async def run(self, seconds: float, connections: int) -> Counter[str]:
        """Attack for some seconds.

        Args:
            seconds: how long.
            connections: how many are slow.

        Returns:
            How often each was answered with each status, as "WHO STATUS".
        """
        self.openapi = json.loads(await self.answer("first", self.head("GET", "/openapi.json")) or b"{}")
        wrong = [self.wrong() for _ in range(WRONG)]
        bombs, large = self.bombs(), self.large()
        tasks = [
            *(self.again(self.slow, bool(k % 4 == 0)) for k in range(connections)),
            *(self.again(self.deaf) for _ in range(max(1, connections // 100))),
            *(self.stream("head bomb", bombs, 0.1) for _ in range(4)),
            *(self.stream("large body", large, 0.2) for _ in range(4)),
            *(self.stream("wrong", wrong, 0.05) for _ in range(4)),
        ]
        running = [asyncio.ensure_future(task) for task in tasks]
        await asyncio.sleep(seconds)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return self.answers

    def head(self, method: str, path: str, size: int | None = None, **headers: str) -> bytes:
        fields = {"Host": self.netloc} | headers | ({} if size is None else {"Content-Length": str(size)})
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")

    def post(self, body: bytes, path: str = "/predict", **headers: str) -> bytes:
        return self.head("POST", path, len(body), **headers) + body

    def wrong(self) -> bytes:
        """A request that is wrong in what it says; or a row of random bytes."""
        if self.rng.random() < 0.2:
            return self.rng.randbytes(self.rng.randint(1, 2000)) + b"\r\n\r\n"
        wrong = malformed(self.openapi, self.rng)
        return self.post(wrong.body, wrong.path, **wrong.headers)

    def bombs(self) -> list[bytes]:
        many = {f"X-{k}": "bomb" for k in range(20_000)}
        return [
            self.head("GET", "/livez", None, **many),
            self.head("GET", "/livez", None, Cookie="a" * 2**20),
            self.head("GET", "/" + "a" * 2**20),
            self.head("POST", "/predict", None, **{"Transfer-Encoding": "chunked"}) + b"1\r\na\r\n" * 50_000,
        ]

    def large(self) -> list[bytes]:
        row = json.dumps(next(iter(self.example().values()))[0])
        rows = '{"rows":[' + ",".join([row] * min(9000, LARGE // len(row))) + "]}"
        csv, names = {"Content-Type": "text/csv"}, b"name,"
        return [
            self.post(rows.encode(), **{"Content-Type": "application/json"}),
            self.post(names * (LARGE // len(names)), **csv),
            self.post(b"[" * LARGE, **{"Content-Type": "application/json"}),
            self.post(b'{"rows":[' + b"{}," * (LARGE // 3) + b"{}]}", **{"Content-Type": "application/json"}),
        ]

    def example(self) -> dict[str, Any]:
        content = self.openapi["paths"]["/predict"]["post"]["requestBody"]["content"]
        return content["application/json"]["example"]

    async def again(self, attack: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Attack, and come back when dropped."""
        await asyncio.sleep(self.rng.uniform(0, DRIP[0]))
        while True:
            with contextlib.suppress(OSError, EOFError):
                await attack(*arguments)
            await asyncio.sleep(PAUSE)

    async def slow(self, body: bool) -> None:
        """Send the head or the body of a request, and never come to its end."""
        reader, writer = await self.connect()
        try:
            begin = self.head("POST", "/predict", 10_000) if body else f"POST / HTTP/1.1\r\nHost: {self.netloc}\r\n"
            writer.write(begin if isinstance(begin, bytes) else begin.encode())
            while not reader.at_eof():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.rng.uniform(*DRIP)):
                        await reader.read(2**16)
                writer.write(b" " if body else b"X-a: b\r\n")
                await writer.drain()
        finally:
            writer.transport.abort()

    async def deaf(self) -> None:
        """Ask for much, and read nothing."""
        _, writer = await self.connect()
        try:
            body = json.dumps({name: items * 2000 for name, items in self.example().items()}).encode()
            request = self.post(body, **{"Content-Type": "application/json"})
            for _ in range(3):
                writer.write(request)
                await writer.drain()
            await asyncio.sleep(600)
        finally:
            writer.transport.abort()

    async def stream(self, who: str, requests: list[bytes], pause: float) -> None:
        """Send one after the other."""
        while True:
            with contextlib.suppress(OSError, EOFError, ValueError):
                await self.answer(who, self.rng.choice(requests))
            await asyncio.sleep(pause)

    async def answer(self, who: str, request: bytes) -> bytes | None:
        """Send a request, on a connection of its own, and count what is answered."""
        reader, writer = await self.connect()
        try:
            writer.write(request)
            async with asyncio.timeout(60):
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                self.answers[f"{who} {int(head.split(b' ', 2)[1])}"] += 1
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                return await reader.readexactly(int(length))
        except TimeoutError:
            self.answers[f"{who} none"] += 1
            return None
        finally:
            writer.transport.abort()

    async def connect(self) -> Connected:
        return await asyncio.open_connection(self.host, self.port, limit=2**17)


def main() -> None:
    """Attack as the command line says."""
    address, seconds, connections, seed = sys.argv[1:]
    os.nice(10)
    print(json.dumps(asyncio.run(Attack(address, int(seed)).run(float(seconds), int(connections)))))


if __name__ == "__main__":
    main()
