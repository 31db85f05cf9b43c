"""What the service bears: many clients at once, requests that are wrong in every way, and attackers beside the clients.

    darkbayes bench service                  a quarter of an hour: attackers for ten minutes
    darkbayes bench service --seconds 60     attackers for a minute

The service runs in a process of its own, on a free port of the loopback interface, over a student of the size and with
the columns of the Boston houses; its weights are random, for the cost of a prediction does not depend on them. Each
client keeps one connection. First each sends the next row when the last is answered, so that the service is never idle,
and the clients take their share of the same machine. Then each waits a little between two rows: on a service that is
quiet, and on one that is attacked from the same machine (`benchmarks.attackers`). Before and after come requests that
are wrong (`benchmarks.malformed`).
"""

import asyncio
import http.client
import json
import random
import resource
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

from benchmarks.common import announced, environment, named_table, python, say, with_bar
from benchmarks.malformed import malformed
from darkbayes.data import load
from darkbayes.errors import RunError
from darkbayes.export import to_onnx
from darkbayes.files import write_bytes
from darkbayes.fit import prepare_table
from darkbayes.model import mlp
from darkbayes.runs import row
from darkbayes.serve.measures import resident_bytes
from darkbayes.shipped import MODEL
from darkbayes.student import Student

HIDDEN = (50, 50)
"""Of the student."""
PROGRAM = "import sys; from darkbayes.serve import serve; serve(sys.argv[1], port=0, quiet=True)"
PATIENCE = 60.0
"""Seconds in which the service must answer a wrong request."""
BREATH = 0.2
"""Seconds that a client waits between two rows while latencies are compared."""
SPARE_FILES = 200
"""Of this process, that are no connections of attackers."""


def rows(
    *,
    seed: int,
    quiet: bool,
    seconds: float = 600.0,
    clients: int = 50,
    bodies: int | None = None,
    connections: int = 5000,
) -> list[dict[str, Any]]:
    """Requests, errors, latency and throughput of many clients, alone and among attackers; and what wrong requests get.

    Args:
        seed: where random numbers start.
        quiet: whether to say nothing meanwhile.
        seconds: how long attackers stay, after a rehearsal; clients are alone for a tenth of it, twice.
        clients: how many.
        bodies: how many wrong requests have to be refused; 20,000, or fewer if time is short, if None.
        connections: of attackers, or as many as the system lets a process have.

    Returns:
        Rows of results.
    """
    bodies = bodies or min(20_000, int(100 * seconds))
    connections = min(connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES)
    alone = seconds / 10
    with tempfile.TemporaryDirectory() as scratch:
        examples = ship_boston(Path(scratch), seed)
        with service(Path(scratch)) as (address, process):
            took, failures = asyncio.run(load_of(address, examples, clients, alone))
            before, failed_before = asyncio.run(load_of(address, examples, clients, alone, BREATH))
            statuses = answers_to_wrong(address, bodies // 10, seed)
            # What large requests take stays with the processes: let there have been some.
            with attackers(address, alone, max(1, connections // 10), seed) as rehearsal:
                asyncio.run(asyncio.sleep(alone))
            recovered(address, examples)
            memory = memory_of(process)
            say(f"attackers come with {connections:,} connections", quiet=quiet)
            with attackers(address, seconds, connections, seed) as attack:
                during, failed_during = asyncio.run(load_of(address, examples, clients, seconds, BREATH))
            recovery = recovered(address, examples)
            statuses += answers_to_wrong(address, bodies - bodies // 10, seed + 1)
            after = memory_of(process)
    answers = Counter(json.loads(rehearsal[0])) + Counter(json.loads(attack[0]))
    say(f"attackers were answered: {dict(sorted(answers.items()))}", quiet=quiet)
    failed = server_errors(statuses) + sum(
        count for name, count in answers.items() if name.split()[-1] in ("500", "501", "502", "504", "none")
    )
    p99, p99_attacked = (float(np.percentile(1e3 * np.asarray(times), 99)) for times in (before, during))
    method, attacked = f"service with {clients} clients", f"attacked over {connections:,} connections"
    results = [
        row(method, "requests", [float(len(took))]),
        with_bar(row(method, "errors", [float(failures + failed_before)]), "at most", 0.0),
        *(row(method, f"p{share}_ms", [float(np.percentile(1e3 * np.asarray(took), share))]) for share in (50, 99)),
        row(method, "requests_per_s", [len(took) / alone]),
        row(method, "wrong_requests", [float(statuses.total())]),
        with_bar(row(method, "refused", [refusals(statuses)]), "at least", float(bodies)),
        with_bar(row(method, "server_errors", [float(failed)]), "at most", 0.0),
        row(attacked, "p99_quiet_ms", [p99]),
        row(attacked, "p99_ms", [p99_attacked]),
        with_bar(row(attacked, "p99_ratio", [p99_attacked / p99]), "at most", 2.0),
        row(attacked, "requests", [float(len(during))]),
        with_bar(row(attacked, "errors", [float(failed_during)]), "at most", 0.0),
        row(attacked, "attacks", [float(sum(answers.values()))]),
        row(attacked, "memory_mb", [after / 1e6]),
        with_bar(row(attacked, "memory_ratio", [after / memory]), "at most", 1.2),
        with_bar(row(attacked, "recovery_s", [recovery]), "at most", 10.0),
    ]
    return announced(results, quiet=quiet)


@contextmanager
def attackers(address: str, seconds: float, connections: int, seed: int) -> Iterator[list[str]]:
    """A process that attacks; what it has to say is in the list when it has ended."""
    said: list[str] = []
    command = python("-m", "benchmarks.attackers", address, str(seconds), str(connections), str(seed))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            yield said
            said.append(process.communicate()[0])
        finally:
            process.kill()


def memory_of(process: int) -> float:
    """Bytes of a process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return float(sum(resident_bytes(int(one)) or 0 for one in (process, *children)))


def recovered(address: str, examples: list[dict[str, float]]) -> float:
    """Seconds until the service says that it is well, and predicts."""
    began, place = time.perf_counter(), urlsplit(address)
    while time.perf_counter() - began < PATIENCE:
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/healthz")
            healthy = connection.getresponse().status == 200
            connection.close()
            if healthy:
                took, failures = asyncio.run(load_of(address, examples, 1, 0.1))
                if took and not failures:
                    return time.perf_counter() - began
        except OSError:
            pass
        time.sleep(0.1)
    raise RunError(f"the service is not well {PATIENCE:g} seconds after the attack")


def ship_boston(folder: Path, seed: int, hidden: tuple[int, ...] = HIDDEN) -> list[dict[str, float]]:
    """Export a student of the Boston houses that knows nothing; returns rows to ask it about."""
    ship(folder, *named_table("boston"), seed, hidden)
    houses = load("boston")
    return [dict(zip(houses.features, house.tolist(), strict=True)) for house in houses.x]


def ship(folder: Path, table: Any, targets: list[str], seed: int, hidden: tuple[int, ...] = HIDDEN) -> None:
    """Export a student of a table that knows nothing."""
    schema = prepare_table(table, targets, held_out=0.0).schema
    head = schema.target.head(schema.target.heads[-1])
    student = Student(mlp(hidden, head.width), head, optax.adam(1e-3))
    params = student.init(jax.random.key(seed), jnp.zeros((1, *schema.shape)))
    write_bytes(folder / MODEL, to_onnx(student, params, schema))


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, int]]:
    """A process that serves the folder's student; gives its address and its number."""
    command = python("-c", PROGRAM, str(folder))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise RunError(f"the service did not start: it ended with status {process.wait()}")
            yield address, process.pid
            if process.poll() is not None:
                raise RunError(f"the service died: it ended with status {process.returncode}")
        finally:
            process.terminate()


async def load_of(
    address: str, examples: list[dict[str, float]], clients: int, seconds: float, breath: float = 0.0
) -> tuple[list[float], int]:
    """The seconds that each answered request took, and how many were not answered as they should be."""
    place, took, failures = urlsplit(address), [], 0
    requests = [_request(place.netloc, example) for example in examples]
    ends = time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal failures
        writer = None
        await asyncio.sleep(breath * number / clients)
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
                await asyncio.sleep(0.01)
            number += clients
            if breath:
                await asyncio.sleep(breath)
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
    """How many requests the service failed at; that it is busy is no failure."""
    return float(sum(count for status, count in statuses.items() if status >= 500 and status != 503))


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
