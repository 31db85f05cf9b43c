"""Microseconds per step of Algorithm 1: a step of the teacher and an update of its student.

    darkbayes bench engine        under two minutes on two cores

Measured in turns in one process, so that whatever else the machine does meets all alike: one chain, many chains
(the time for one step of one of them), and the same algorithm as a plain PyTorch loop where PyTorch is installed, with
as many threads as it takes by itself and with one. Figures are medians over the repetitions. The speedup is that of one
chain against the faster of the two PyTorch loops, the median of the ratios within a repetition: where other programs
use the cores too, PyTorch with two threads was seen to be up to hundreds of times slower than with one, which is no
merit of ours.
"""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from benchmarks.common import announced, median_row, say, with_bar
from benchmarks.shapes import SHAPES, Shape
from darkbayes.errors import Divergence
from darkbayes.model import GaussianPrior, Posterior, mlp
from darkbayes.student import Distillation, Settings, Student, distillation
from darkbayes.student.queries import jitter, uniform_box
from darkbayes.teacher import minibatch_chain
from darkbayes.teacher.chain import MinibatchChain, raise_on_failure
from darkbayes.teacher.samplers import sgld

PAUSE = 0.3
"""Seconds before each turn: the threads of a library go on spinning for a while after its last call."""


class Contender(NamedTuple):
    """Something that runs steps of Algorithm 1."""

    method: str
    run: Callable[[int], None]
    """Runs that many steps and returns when they are done."""
    unit: int
    """How many steps to run at once: many where a call has a cost of its own."""
    chains: int
    check: Callable[[], None]
    """Raises if the numbers did not stay finite."""


def rows(
    *, seed: int, quiet: bool, shapes: tuple[Shape, ...] = SHAPES, repetitions: int = 7, seconds: float = 0.5
) -> list[dict[str, Any]]:
    """Time every shape; a measurement lasts about `seconds`, or a call of the compiled loop if that is longer."""
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        say("the machine is busy with other work: expect times that are too long", quiet=quiet)
    with_pytorch = _pytorch_is_there()
    settings: dict[str, Any] = {"seed": seed, "quiet": quiet, "repetitions": repetitions, "seconds": seconds}
    return [result for shape in shapes for result in shape_rows(shape, with_pytorch, **settings)]


def _pytorch_is_there() -> bool:
    try:
        from benchmarks import pytorch
    except ImportError:
        # Whoever asked for the comparison must learn why it is missing, quiet or not.
        say("no PyTorch, so no comparison with it: pip install torch to get one", quiet=False)
        return False
    if not pytorch.can_use(jax.default_backend()):
        say(f"this PyTorch cannot use the {jax.default_backend()}, so no comparison with it", quiet=False)
        return False
    return True


def shape_rows(
    shape: Shape, with_pytorch: bool, *, seed: int, quiet: bool, repetitions: int, seconds: float
) -> list[dict[str, Any]]:
    """Time one shape."""
    x, y = shape.data(seed)
    chain = teacher(shape, x, y)
    contenders = [ours(shape, chain, 1, seed), ours(shape, chain, shape.chains, seed)]
    peers = theirs(shape, x, y, seed) if with_pytorch else []
    times = interleaved([*contenders, *peers], repetitions, seconds)
    results = [median_row(method, "us_per_step", values) for method, values in times.items()]
    if peers:
        best = min((times[peer.method] for peer in peers), key=np.median)
        ratios = [their / our for our, their in zip(times[contenders[0].method], best, strict=True)]
        result = median_row(f"engine {shape.name} against pytorch", "speedup", ratios)
        results.append(with_bar(result, "at least", shape.speedup_bar))
    return announced(results, quiet=quiet)


def teacher(shape: Shape, x: np.ndarray, y: np.ndarray) -> MinibatchChain:
    """SGLD on the shape's posterior."""
    network = mlp(shape.hidden, shape.likelihood.width)
    posterior = Posterior(network, shape.likelihood, GaussianPrior(shape.prior_precision), shape.examples)
    return minibatch_chain(posterior, sgld(shape.step_size), x, y, batch_size=shape.batch_size, thin=shape.thin)


def student(shape: Shape, chain: MinibatchChain, chains: int) -> Distillation:
    """The teacher with its student, trained by SGD."""
    network = mlp(shape.hidden, shape.head.width)
    learner = Student(network, shape.head, optax.sgd(shape.learning_rate), shape.student_prior)
    queries = uniform_box(-10.0, 10.0) if shape.jitter is None else jitter(shape.jitter)
    settings = Settings(num_chains=chains, query_batch=shape.query_batch)
    return distillation(chain, learner, queries, settings)


def ours(shape: Shape, chain: MinibatchChain, chains: int, seed: int) -> Contender:
    """The compiled loop."""
    parts = student(shape, chain, chains)
    state = parts.init(jax.random.key(seed))

    def run(steps: int) -> None:
        nonlocal state
        # A NumPy count is an argument of the compiled program; a Python one would compile it anew.
        state, _ = jax.block_until_ready(parts.advance(state, np.int32(steps // shape.thin)))  # pyright: ignore

    def check() -> None:
        raise_on_failure(chain, state.teacher)
        if int(state.failed_update) >= 0:
            raise Divergence(f"the {shape.name} benchmark's student diverged: its times mean nothing")

    label = "1 chain" if chains == 1 else f"{chains} chains, per chain"
    return Contender(f"engine {shape.name}, {label}", run, shape.thin * shape.rounds, chains, check)


def theirs(shape: Shape, x: np.ndarray, y: np.ndarray, seed: int) -> list[Contender]:
    """The same in PyTorch, on a device of the same kind: with the threads it takes by itself, and with one."""
    from benchmarks import pytorch

    def contender(method: str, threads: int) -> Contender:
        loop = pytorch.Loop(shape, x, y, seed=seed, backend=jax.default_backend(), threads=threads)

        def check() -> None:
            if not loop.finite():
                raise Divergence(f"the {shape.name} benchmark's PyTorch loop diverged: its times mean nothing")

        return Contender(method, loop.run, unit=5, chains=1, check=check)

    contenders = [contender(f"pytorch {shape.name}", pytorch.DEFAULT_THREADS)]
    if pytorch.DEFAULT_THREADS > 1 and jax.default_backend() == "cpu":
        contenders.append(contender(f"pytorch {shape.name}, 1 thread", 1))
    return contenders


def interleaved(contenders: list[Contender], repetitions: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds per step and chain of each contender, which take turns of about `seconds`."""
    for contender in contenders:
        contender.run(contender.unit)  # Compiles, or warms up.
    times: dict[str, list[float]] = {contender.method: [] for contender in contenders}
    for _ in range(repetitions):
        for contender in contenders:
            time.sleep(PAUSE)
            times[contender.method].append(1e6 * seconds_per_step(contender, seconds) / contender.chains)
    for contender in contenders:
        contender.check()
    return times


def seconds_per_step(contender: Contender, seconds: float) -> float:
    """Run units of steps until the time is up, so that a contender that is held up does not hold up all the rest."""
    began, steps, elapsed = time.perf_counter(), 0, 0.0
    while elapsed < seconds:
        contender.run(contender.unit)
        steps += contender.unit
        elapsed = time.perf_counter() - began
    return elapsed / steps
