"""Processes that answer requests, and who gets one: small requests never wait for large ones, and nobody for long.

There are two lanes. Small requests have processes of their own; large ones have fewer, at a lower priority, so that
they cannot slow down the others even on a busy machine. A process whose time is up is killed and replaced. One that is
at a small request for long is replaced meanwhile, so that what hangs holds up nobody. Where too many wait, a request is
refused at once.
"""

import asyncio
import json
import logging
import time
from asyncio.subprocess import PIPE, Process
from typing import Any, Protocol

from darkbayes.errors import RunError
from darkbayes.serve import process
from darkbayes.serve.limits import Limits, Refused, busy
from darkbayes.serve.work import Answer, Task, Worker, as_message
from darkbayes.shipped import Shipped

log = logging.getLogger(__name__)

SMALL = 8 * 2**10  # Bytes of a small body: what fits in takes milliseconds.
PATIENCE = 1.0  # Seconds at a small request after which a process gets a stand-in.
STAND_INS = 3  # For each process.
NICE = 10  # Of processes for large requests.
START, ATTEMPTS = 120.0, 3  # Seconds that a process has to start in, and how often the first is tried.
LONGEST_PAUSE = 30.0  # Between attempts to start one.


class Pool(Protocol):
    """Whoever answers."""

    async def run(self, task: Task) -> Answer:
        """The answer; raises `Refused` where there is none."""
        ...

    def state(self) -> dict[str, dict[str, float]]:
        """How many processes there are, are busy, were killed, and requests wait, by lane."""
        ...

    @property
    def ready(self) -> bool: ...


class Threads:
    """Answers in threads of this very process, which cannot be killed: for tests, and inside other applications."""

    def __init__(self, worker: Worker):
        self.worker = worker

    ready = True

    async def run(self, task: Task) -> Answer:
        try:
            async with asyncio.timeout(self.worker.limits.seconds):
                return await asyncio.to_thread(self.worker.answer, task)
        except TimeoutError:
            raise _too_long(self.worker.limits) from None

    def state(self) -> dict[str, dict[str, float]]:
        return {}


class Processes:
    """Answers in processes.

    Args:
        shipped: the student, of which each process gets the file's bytes as they are now.
        limits: of requests.
        name: of the model.
        workers: processes for small requests; there are half as many for large ones.
        command: of a process.
    """

    def __init__(self, shipped: Shipped, limits: Limits, name: str, workers: int, command: list[str] | None = None):
        content = shipped.path.read_bytes()
        command = command or process.command()
        small, large = (process.started(shipped.path, content, limits, name, nice) for nice in (0, NICE))
        waiting = limits.waiting
        self.small = Lane(command, small, limits, size=workers, waiting=waiting, patience=PATIENCE)
        self.large = Lane(command, large, limits, size=(workers + 1) // 2, waiting=(waiting + 7) // 8)

    async def start(self) -> None:
        """Start all, and wait for the first of each lane; raises `RunError` if none will."""
        lanes = (self.small, self.large)
        for lane in lanes:
            lane.fill()
        while not self.ready:
            if max(lane.failures for lane in lanes) >= ATTEMPTS:
                await self.stop()
                raise RunError("the service's processes ended before they were ready: see what they printed above")
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End all at once: what is under way has had its time."""
        await asyncio.gather(self.small.stop(), self.large.stop())

    async def run(self, task: Task) -> Answer:
        return await (self.small if len(task.body) <= SMALL else self.large).run(task)

    def state(self) -> dict[str, dict[str, float]]:
        return {"small": self.small.state(), "large": self.large.state()}

    @property
    def ready(self) -> bool:
        """Whether in both lanes a process is alive that has loaded the student."""
        return all(lane.alive and not lane.stopping for lane in (self.small, self.large))


class Lane:
    """Some processes that are alike, and who waits for them."""

    def __init__(
        self,
        command: list[str],
        first: bytes,
        limits: Limits,
        *,
        size: int,
        waiting: int,
        patience: float | None = None,
    ):
        self.command, self.first, self.limits = command, first, limits
        self.size, self.most_waiting, self.patience = size, waiting, patience
        self.lives: set[asyncio.Task[None]] = set()  # One for each process that there is or that starts.
        self.alive: set[Process] = set()  # Those that are ready for work, or at it.
        self.late: set[Process] = set()  # Those that have a stand-in.
        self.free: asyncio.Queue[Process] = asyncio.Queue()
        self.waiting = self.busy = self.killed = self.failures = 0
        self.usual = 0.01  # Seconds that a request takes, of late.
        self.stopping = False

    def state(self) -> dict[str, float]:
        return {"alive": len(self.alive), "busy": self.busy, "waiting": self.waiting, "killed": self.killed}

    def fill(self) -> None:
        """Start as many processes as are missing."""
        while len(self.lives) - len(self.late) < self.size and len(self.lives) < (1 + STAND_INS) * self.size:
            life = asyncio.create_task(self._live())
            self.lives.add(life)
            life.add_done_callback(self._ended)

    def _ended(self, life: asyncio.Task[None]) -> None:
        self.lives.discard(life)
        if not life.cancelled() and (problem := life.exception()) is not None:
            log.error("a process cannot be started: %r", problem)
        if not self.stopping:
            self.fill()

    async def _live(self) -> None:
        """Start a process, and be there until it has ended."""
        await asyncio.sleep(min(2.0**self.failures - 1, LONGEST_PAUSE))
        pipes: Any = {"stdin": PIPE, "stdout": PIPE, "limit": 2**20, "env": process.environment()}
        starting = asyncio.create_task(asyncio.create_subprocess_exec(*self.command, **pipes))
        try:
            one = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Stopped just now: the process that starts would be nobody's.
            await _end(await starting)
            raise
        try:
            try:
                async with asyncio.timeout(START):
                    await _exchange(one, self.first)
            except (TimeoutError, OSError, EOFError) as problem:
                self.failures += 1
                log.error("a process did not start (%r); it is tried again", problem)
                return
            self.failures = 0
            if len(self.alive - self.late) >= self.size:
                return  # It was to stand in for one that has come back since.
            self.alive.add(one)
            self.free.put_nowait(one)
            await one.wait()
        finally:
            self.alive.discard(one)
            self.late.discard(one)
            await _end(one)

    async def stop(self) -> None:
        """End all processes."""
        self.stopping = True
        for life in self.lives:
            life.cancel()
        await asyncio.gather(*self.lives, return_exceptions=True)

    async def run(self, task: Task) -> Answer:
        """The answer of a process that is free, or becomes so in time."""
        one = await self._next()
        self.busy += 1
        began = time.monotonic()
        timer = asyncio.get_running_loop().call_later(self.patience or self.limits.seconds, self._is_late, one)
        try:
            async with asyncio.timeout(self.limits.seconds):
                about, body = await _exchange(one, process.message(*as_message(task)))
        except BaseException as problem:
            # Whoever gave up as well: what the process would still answer belongs to nobody.
            self.killed += 1
            _kill(one)
            if isinstance(problem, TimeoutError):
                raise _too_long(self.limits) from None
            if isinstance(problem, OSError | EOFError):
                raise busy("the process that worked on this request has ended") from None
            raise
        finally:
            timer.cancel()
            self.busy -= 1
        self.usual += 0.1 * (time.monotonic() - began - self.usual)
        self._release(one)
        return Answer(body, **about)

    async def _next(self) -> Process:
        if self.waiting >= self.most_waiting:
            raise busy(f"{self.waiting} requests are waiting already", self.waiting * self.usual / self.size)
        self.waiting += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                while (one := await self.free.get()) not in self.alive or one.returncode is not None:
                    pass
                return one
        except TimeoutError:
            raise busy(f"no process became free in {self.limits.seconds:g} seconds") from None
        finally:
            self.waiting -= 1

    def _is_late(self, one: Process) -> None:
        if self.patience is not None and one in self.alive:
            self.late.add(one)
            self.fill()

    def _release(self, one: Process) -> None:
        self.late.discard(one)
        if len(self.alive - self.late) > self.size and one.stdin is not None:
            self.alive.discard(one)
            one.stdin.close()  # Its stand-in is at work already, and stays.
        else:
            self.free.put_nowait(one)


def _kill(one: Process) -> None:
    if one.returncode is None:
        one.kill()


async def _end(one: Process) -> None:
    """Kill a process, and close what leads to it: asyncio leaves that to the garbage, which complains."""
    _kill(one)
    try:
        await one.wait()
    finally:  # Whoever waits may be cancelled, as the service stops.
        one._transport.close()  # pyright: ignore[reportAttributeAccessIssue]


async def _exchange(one: Process, sent: bytes) -> tuple[dict[str, Any], bytes]:
    """Write a message and read what is answered."""
    assert one.stdin is not None
    assert one.stdout is not None
    one.stdin.write(sent)
    await one.stdin.drain()
    about, body = process.LENGTHS.unpack(await one.stdout.readexactly(process.LENGTHS.size))
    return json.loads(await one.stdout.readexactly(about)), await one.stdout.readexactly(body)


def _too_long(limits: Limits) -> Refused:
    error = f"the answer took longer than {limits.seconds:g} seconds"
    return Refused(503, error, "send fewer rows, or try again when the service is less busy", retry_after="1")
