"""What the service bears: many clients at once, and requests that are wrong in every way.

    darkbayes bench service       a minute and a half

The service runs in a process of its own, on a free port of the loopback interface, over a student of the size and with
the columns of the Boston houses; its weights are random, for the cost of a prediction does not depend on them. Each
client keeps one connection and sends the next row when the last is answered, so that the service is never idle, and
the clients take their share of the same machine. The wrong requests (`benchmarks.malformed`) follow.
"""

import asyncio
import http.client
import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.common import announced, environment, named_table, python, with_bar
from benchmarks.malformed import malformed
from darkbayes.data import load
from darkbayes.errors import RunError
from darkbayes.export import to_onnx
from darkbayes.files import write_bytes
from darkbayes.fit import prepare_table
from darkbayes.model import mlp
from darkbayes.runs import row
from darkbayes.shipped import MODEL
from darkbayes.student import Student

HIDDEN = (50, 50)
"""Of the student."""
PROGRAM = "import sys; from darkbayes.serve import serve; serve(sys.argv[1], port=0, quiet=True)"
PATIENCE = 60.0
"""Seconds in which the service must answer a wrong request."""


def rows(
    *, seed: int, quiet: bool, seconds: float = 60.0, clients: int = 50, bodies: int = 1000
) -> list[dict[str, Any]]:
    """Requests, errors, latency and throughput of many clients, and how wrong requests were answered."""
    with tempfile.TemporaryDirectory() as scratch:
        examples = ship_boston(Path(scratch), seed)
        with service(Path(scratch)) as address:
            took, failures = asyncio.run(load_of(address, examples, clients, seconds))
            statuses = answers_to_wrong(address, bodies, seed)
    method = f"service with {clients} clients"
    milliseconds = 1e3 * np.asarray(took)
    results = [
        row(method, "requests", [float(len(took))]),
        with_bar(row(method, "errors", [float(failures)]), "at most", 0.0),
        *(row(method, f"p{share}_ms", [float(np.percentile(milliseconds, share))]) for share in (50, 99)),
        row(method, "requests_per_s", [len(took) / seconds]),
        row(method, "wrong_requests", [float(statuses.total())]),
        with_bar(row(method, "refused", [refusals(statuses)]), "at least", float(bodies)),
        with_bar(row(method, "server_errors", [server_errors(statuses)]), "at most", 0.0),
    ]
    return announced(results, quiet=quiet)


def ship_boston(folder: Path, seed: int, hidden: tuple[int, ...] = HIDDEN) -> list[dict[str, float]]:
    """Export a student of the Boston houses that knows nothing; returns rows to ask it about."""
    schema = prepare_table(*named_table("boston"), held_out=0.0).schema
    head = schema.target.head()
    student = Student(mlp(hidden, head.width), head, optax.adam(1e-3))
    params = student.init(jax.random.key(seed), jnp.zeros((1, *schema.shape)))
    write_bytes(folder / MODEL, to_onnx(student, params, schema))
    houses = load("boston")
    return [dict(zip(houses.features, house.tolist(), strict=True)) for house in houses.x]


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """A process that serves the folder's student; gives its address."""
    command = python("-c", PROGRAM, str(folder))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise RunError(f"the service did not start: it ended with status {process.wait()}")
            yield address
            if process.poll() is not None:
                raise RunError(f"the service died: it ended with status {process.returncode}")
        finally:
            process.terminate()


async def load_of(
    address: str, examples: list[dict[str, float]], clients: int, seconds: float
) -> tuple[list[float], int]:
    """The seconds that each answered request took, and how many were not answered as they should be."""
    place, took, failures = urlsplit(address), [], 0
    requests = [_request(place.netloc, example) for example in examples]
    ends = time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal failures
        writer = None
        while time.perf_counter() < ends:
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection(place.hostname, place.port)
                began = time.perf_counter()
                writer.write(requests[number % len(requests)])
                status, content = await _response(reader)  # pyright: ignore[reportPossiblyUnboundVariable]
                took.append(time.perf_counter() - began)
                if status != 200 or b'"mean"' not in content:
                    failures += 1
            except (OSError, EOFError, ValueError):
                failures, writer = failures + 1, None
            number += clients
        if writer is not None:
            writer.close()
            await writer.wait_closed()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return took, failures


def _request(host: str, example: dict[str, float]) -> bytes:
    body = json.dumps({"rows": [example]}).encode()
    head = (
        f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read by hand: a client library would take more of the machine than the service."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    return int(head.split(b" ", 2)[1]), await reader.readexactly(int(length))


def refusals(statuses: Counter[int]) -> float:
    """How many requests were refused for what they are."""
    return float(sum(count for status, count in statuses.items() if 400 <= status < 500))


def server_errors(statuses: Counter[int]) -> float:
    """How many requests the service failed at."""
    return float(sum(count for status, count in statuses.items() if status >= 500))


def answers_to_wrong(address: str, bodies: int, seed: int) -> Counter[int]:
    """How often the service answered wrong requests with each status; it must answer all, and be well afterwards.

    Some that are made happen to be fine, so requests are sent until `bodies` of them have been refused.
    """
    place, rng, statuses = urlsplit(address), random.Random(seed), Counter()
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)

    def ask(
        method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        content = answer.read()
        if answer.getheader("connection") == "close":
            connection.close()
        return answer.status, content

    _, described = ask("GET", "/openapi.json")
    openapi = json.loads(described)
    while refusals(statuses) < bodies and statuses.total() < 2 * bodies:
        wrong = malformed(openapi, rng)
        status, _ = ask("POST", wrong.path, wrong.body, wrong.headers)
        statuses[status] += 1
    status, _ = ask("GET", "/healthz")
    connection.close()
    if status != 200:
        raise RunError(f"after {statuses.total()} wrong requests the service answers /healthz with {status}")
    return statuses
