"""The service as a process among strangers: who holds a connection, sends too much or nothing, and how it stops."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn

import shipped_models
from darkbayes.serve.connections import Connection, Register
from darkbayes.serve.limits import Limits
from darkbayes.serve.measures import Measures

PROGRAM = """
import sys
from darkbayes.serve import Limits, serve
limits = Limits(head_seconds=float(sys.argv[2]), connections=6, seconds=60.0)
serve(sys.argv[1], port=0, quiet=True, workers=1, limits=limits, access_log=True)
"""
SOON = 0.5  # Seconds that a head may take, where that is too long for a test.
PATIENCE = 300.0  # Seconds, on a busy machine.
HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
BODY = json.dumps({"rows": [{"east": 0.5, "north": 1}]}).encode()
PREDICT = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY)


@contextlib.contextmanager
def serving(folder, head_seconds=PATIENCE, **environment):
    command = [sys.executable, "-P", "-c", PROGRAM, str(folder), str(head_seconds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=os.environ | environment, **pipes) as process:
        try:
            assert process.stdout is not None
            process.address = urlsplit(process.stdout.readline().strip())
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serving(shipped_models.write(tmp_path_factory.mktemp("served"), "field")) as process:
        yield process


def connected(process):
    return socket.create_connection((process.address.hostname, process.address.port), PATIENCE)


def rest_of(connection):
    """All that comes until the other side closes; that it resets the connection is one way to."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def answer_to(process, sent):
    with connected(process) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        return rest_of(connection)


def asked(process, path):
    connection = http.client.HTTPConnection(process.address.hostname, process.address.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def children(process):
    return [int(one) for one in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (HEAD + b"Connection: close\r\n\r\n", 200),
        (PREDICT + BODY, 200),
        (HEAD + b"".join(b"X-%d: a\r\n" % k for k in range(65)) + b"\r\n", 431),
        (HEAD + b"X: " + b"a" * 16_384 + b"\r\n\r\n", 431),
        (HEAD + b"X: " + b"a" * 1_000_000, 431),
        (b"GET /" + b"a" * 20_000, 431),
        (HEAD + b"\n" * 100, 200),
        (PREDICT.replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX: ") + b"1\r\na\r\n" * 10_000, 411),
        (PREDICT.replace(b"Content-Length: ", b"Content-Length: x"), 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (HEAD.replace(b"localhost", b"rebound.example.org").replace(b"livez", b"schema") + b"\r\n", 421),
    ],
)
def test_heads_are_answered_or_refused_for_what_they_are(service, sent, status):
    if b"onnection: close" not in sent and status in (200, 421):
        sent = sent.replace(b"Host:", b"Connection: close\r\nHost:")
    answer = answer_to(service, sent)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"x-content-type-options: nosniff" in answer
    if status >= 400:
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


def test_a_head_behind_another_request_is_looked_at_as_well(service):
    bomb = HEAD + b"".join(b"X-%d: a\r\n" % k for k in range(65)) + b"\r\n"
    answer = answer_to(service, HEAD + b"\r\n" + bomb)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 431 " in answer


def log_of(process):
    """What a service has logged, once it has stopped."""
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE)
    return [json.loads(line) for line in process.stderr.read().splitlines()]


def test_who_never_sends_the_end_of_a_head_is_dropped(tmp_path):
    with serving(shipped_models.write(tmp_path, "field"), SOON) as process:
        for sent in (b"", b"GET", HEAD):
            assert answer_to(process, sent) == b""
        # Even a whole head may come too late, to a process that has no time to read it.
        while (answer := answer_to(process, HEAD + b"\r\n" + HEAD)) == b"":
            pass
        assert answer.count(b"200 OK") == 1
        dropped, answered = [], []
        for line in log_of(process):
            (dropped if "reason" in line else answered).append(line)
    assert [(line["method"], line["path"], line["status"]) for line in answered] == [("GET", "/livez", 200)]
    assert len(dropped) >= 4
    for line in dropped:
        assert (line["client"], line["reason"], line["status"]) == ("127.0.0.1", "head too late", 499)
        assert line["seconds"] >= SOON


def test_who_holds_all_connections_makes_room_for_others(service):
    with contextlib.ExitStack() as stack:
        holding = [stack.enter_context(connected(service)) for _ in range(30)]
        for connection in holding:
            with contextlib.suppress(ConnectionError):
                connection.sendall(HEAD)
        for _ in range(3):
            assert asked(service, "/livez")[0] == 200
        assert b'reason="head while full"' in asked(service, "/metrics")[1]


def test_it_says_when_no_process_can_work_and_starts_others(service):
    before = children(service)
    assert len(before) == 2
    # On a busy machine the next may be there before anybody has asked.
    while asked(service, "/healthz")[0] == 200:
        for one in children(service):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
    assert asked(service, "/v2/health/live")[0] == asked(service, "/livez")[0] == 200
    assert answer_to(service, PREDICT + BODY).split()[1] in (b"200", b"503")
    while asked(service, "/v2/health/ready")[0] != 200:
        time.sleep(0.05)
    assert not set(before) & set(children(service))
    assert answer_to(service, PREDICT + BODY).startswith(b"HTTP/1.1 200 ")


def test_it_answers_what_it_has_begun_and_stops(tmp_path):
    early = {
        431: b"GET /" + b"a" * 20_000,
        411: PREDICT.replace(b"Content-Length", b"Transfer-Encoding"),
        400: b"?\r\n\r\n",
    }
    with serving(shipped_models.write(tmp_path, "field"), DARKBAYES_TOKEN="correct horse") as process:
        working = children(process)
        head = PREDICT.replace(b"Host:", b"Authorization: Bearer correct horse\r\nHost:")
        with connected(process) as begun, connected(process) as idle:
            begun.sendall(head + BODY[:10])
            assert b" 401 " in answer_to(process, PREDICT + BODY), "by now the other request has begun as well"
            sizes = {status: len(answer_to(process, sent).partition(b"\r\n\r\n")[2]) for status, sent in early.items()}
            process.send_signal(signal.SIGTERM)
            assert rest_of(idle) == b"", "who has asked nothing is not waited for"
            begun.sendall(BODY[10:])
            answer = rest_of(begun)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"mean"' in answer
        lines = log_of(process)
        assert not any(Path(f"/proc/{one}").exists() for one in working)
        assert [line["status"] for line in lines] == [401, *early, 200]
        refused = {line["status"]: line["bytes"] for line in lines if "reason" in line}
        assert refused == sizes
        assert all(sizes.values())


def test_the_body_of_an_answer_does_not_wait_until_its_head_is_acknowledged():
    """Nobody else asks for it: a listener that is handed to asyncio does not say that it is TCP's."""
    protocol = type("Guarded", (Connection,), {"register": Register(Limits(), Measures())})
    asked = []

    async def look():
        config = uvicorn.Config(lambda scope: None, lifespan="off")
        loop, state = asyncio.get_running_loop(), uvicorn.server.ServerState()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            make = lambda: protocol(config, state, {})  # noqa: E731
            server = await loop.create_server(make, sock=listener)
            _, writer = await asyncio.open_connection(*listener.getsockname())
            while not state.connections:
                await asyncio.sleep(0)
            (one,) = state.connections
            asked.append(one.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()
            one.transport.abort()
            server.close()
            one.register.sweeping.cancel()

    asyncio.run(look())
    assert asked[0]
