"""Processes that answer: what hangs or dies is killed and replaced, and who would wait too long is refused at once."""

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from darkbayes.errors import RunError
from darkbayes.serve import Limits, pool
from darkbayes.serve.limits import Refused
from darkbayes.serve.pool import SMALL, Processes
from darkbayes.serve.work import Task, Worker

# Speaks as a process of the service does, starts at once, and does what it is told: echo, hang or die.
PROGRAM = """
import os, struct, sys, time
def read():
    sizes = sys.stdin.buffer.read(16)
    if len(sizes) < 16:
        sys.exit()
    about, body = map(sys.stdin.buffer.read, struct.unpack("!QQ", sizes))
    return body
def write(about, body=b""):
    sys.stdout.buffer.write(struct.pack("!QQ", len(about), len(body)) + about + body)
    sys.stdout.buffer.flush()
read()
write(b"{}")
while True:
    body = read()
    if body.startswith(b"hang"):
        time.sleep(10**6)
    if body.startswith(b"die"):
        os._exit(1)
    if body.startswith(b"nap"):
        time.sleep(0.3)
    write(b'{"status": 200}', str(os.getpid()).encode())
"""


def running(body, tmp_path, program=PROGRAM, **limits):
    """Runs a coroutine with processes that have been started."""
    (tmp_path / "student.onnx").write_bytes(b"")
    shipped: Any = SimpleNamespace(path=tmp_path / "student.onnx")

    async def main():
        processes = Processes(shipped, Limits(**limits), "m", 1, [sys.executable, "-S", "-c", program])
        try:
            await processes.start()
            return await asyncio.wait_for(body(processes), 300)
        finally:
            await processes.stop()
            assert not processes.ready
            assert not processes.small.alive | processes.large.alive

    return asyncio.run(main())


async def refused(awaitable, words):
    with pytest.raises(Refused, match=words) as problem:
        await awaitable
    assert (problem.value.status, problem.value.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("lane", ["small", "large"])
def test_what_hangs_is_killed_and_replaced(tmp_path, lane):
    async def body(processes):
        padding = b" " * (SMALL if lane == "large" else 0)
        first = (await processes.run(Task(b"echo" + padding))).body
        # Nobody else has to be quick: what replaces it may take long to start.
        working, patient = getattr(processes, lane), processes.small.limits
        working.limits = Limits(seconds=0.5)
        await refused(processes.run(Task(b"hang" + padding)), "longer than 0.5 seconds")
        working.limits = patient
        assert (await processes.run(Task(b"echo" + padding))).body != first
        assert processes.state()[lane]["killed"] == 1
        assert processes.ready

    running(body, tmp_path, seconds=600)


def test_what_hangs_holds_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "PATIENCE", 0.1)

    async def body(processes):
        hanging = asyncio.create_task(processes.run(Task(b"hang")))
        large = asyncio.create_task(processes.run(Task(b"hang" + b" " * SMALL)))
        # There is one process for small requests, and it hangs: a stand-in answers.
        assert (await processes.run(Task(b"echo"))).status == 200
        assert not hanging.done()
        hanging.cancel()
        large.cancel()
        await asyncio.gather(hanging, large, return_exceptions=True)

    running(body, tmp_path, seconds=600)


def test_who_was_late_makes_room_for_its_stand_in(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "PATIENCE", 0.01)

    async def body(processes):
        for _ in range(3):
            await processes.run(Task(b"nap"))
        while len(processes.small.lives) > 1:
            await asyncio.sleep(0.01)
        assert (await processes.run(Task(b"echo"))).status == 200
        assert processes.state()["small"]["killed"] == 0

    running(body, tmp_path)


def test_who_comes_back_before_its_stand_in_is_there_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "PATIENCE", 0.01)
    slow = tmp_path / "slow"
    waits = f"import pathlib\nwhile pathlib.Path({str(slow)!r}).exists():\n    time.sleep(0.01)\nwrite(b'{{}}')"

    async def body(processes):
        slow.touch()
        first = (await processes.run(Task(b"nap"))).body
        assert len(processes.small.lives) == 2
        assert processes.ready
        assert (await processes.run(Task(b"echo"))).body == first
        slow.unlink()
        while len(processes.small.lives) > 1:
            await asyncio.sleep(0.01)
        assert (await processes.run(Task(b"echo"))).body == first

    running(body, tmp_path, PROGRAM.replace('write(b"{}")', waits))


def test_what_dies_is_refused_and_replaced(tmp_path):
    async def body(processes):
        for _ in range(2):
            await refused(processes.run(Task(b"die")), "has ended")
        assert (await processes.run(Task(b"echo"))).status == 200

    running(body, tmp_path)


def test_who_would_wait_too_long_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "PATIENCE", 600.0)

    async def body(processes):
        waiting = [asyncio.create_task(processes.run(Task(b"hang"))) for _ in range(9)]
        while processes.state()["small"]["waiting"] < 8:
            await asyncio.sleep(0.01)
        await refused(processes.run(Task(b"echo")), "8 requests are waiting already")
        # Large requests have a lane of their own, in which fewer may wait.
        large = [asyncio.create_task(processes.run(Task(b"hang" + b" " * SMALL))) for _ in range(2)]
        while processes.state()["large"]["waiting"] < 1:
            await asyncio.sleep(0.01)
        await refused(processes.run(Task(b"echo" + b" " * SMALL)), "1 requests are waiting already")
        for task in waiting + large:
            task.cancel()
        await asyncio.gather(*waiting, *large, return_exceptions=True)
        assert [lane["waiting"] for lane in processes.state().values()] == [0, 0]

    running(body, tmp_path, waiting=8, seconds=600)


def test_processes_that_never_start_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "LONGEST_PAUSE", 0.0)
    with pytest.raises(RunError, match="before they were ready"):
        running(None, tmp_path, "import sys; sys.exit(3)")


def test_a_process_has_read_and_written_a_row_before_it_is_ready(shipped, monkeypatch):
    worker, answers = Worker(shipped["named"], Limits(), "m"), []
    monkeypatch.setattr(worker, "answer", lambda task: answers.append(Worker.answer(worker, task)))
    worker.warm_up()
    assert [(answer.status, answer.rows, answer.media_type.split(";")[0]) for answer in answers] == [
        (200, 1, "application/json"),
        (200, 1, "text/csv"),
    ]
