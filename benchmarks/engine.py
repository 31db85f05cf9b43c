"""Microseconds per step of Algorithm 1: a step of the teacher and an update of its student.

    darkbayes bench engine        under two minutes on two cores, under three on a GPU

Measured in turns in one process, so that whatever else the machine does meets all alike: one chain, many chains
(the time for one step of one of them), and the same algorithm as a plain PyTorch loop where PyTorch is installed, with
as many threads as it takes by itself and with one. Figures are medians over the repetitions. The speedup is that of one
chain against the faster of the two PyTorch loops, the median of the ratios within a repetition: where other programs
use the cores too, PyTorch with two threads was seen to be up to hundreds of times slower than with one, which is no
merit of ours.

On a GPU PyTorch has a second loop, whose whole step is one CUDA graph; the speedup against it has a row of its own. So
have four chains of a ResNet-20 (`benchmarks.images`) against four in PyTorch, whose step is a CUDA graph, too, or
compiled where it cannot be captured. Both libraries multiply float32 matrices by TF32 there, and convolve in bfloat16.
"""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from benchmarks.common import Rows, announced, median_row, say, with_bar
from benchmarks.images import IMAGES, Images, our_steps
from benchmarks.shapes import SHAPES, Shape
from darkbayes.errors import Divergence
from darkbayes.model import Posterior, mlp
from darkbayes.model.priors import GaussianPrior
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
    *,
    seed: int,
    quiet: bool,
    shapes: tuple[Shape, ...] = SHAPES,
    images: Images | None = None,
    repetitions: int = 7,
    seconds: float = 0.5,
) -> Rows:
    """Time every shape; a measurement lasts about `seconds`, or a call of the compiled loop if that is longer.

    Images are those given, or `IMAGES` on a GPU: two cores would take minutes for a few steps.
    """
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        say("the machine is busy with other work: expect times that are too long", quiet=quiet)
    with_pytorch = _pytorch_is_there()
    settings: dict[str, Any] = {"seed": seed, "quiet": quiet, "repetitions": repetitions, "seconds": seconds}
    results = [result for shape in shapes for result in shape_rows(shape, with_pytorch, **settings)]
    images = IMAGES if images is None and _on_gpu() else images
    if images is None:
        say("no GPU, so neither CUDA graphs nor chains on images", quiet=quiet)
        return results
    return results + image_rows(images, with_pytorch, **settings)


def _on_gpu() -> bool:
    return jax.default_backend() == "gpu"


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


def shape_rows(shape: Shape, with_pytorch: bool, *, seed: int, quiet: bool, repetitions: int, seconds: float) -> Rows:
    """Time one shape."""
    x, y = shape.data(seed)
    chain = teacher(shape, x, y)
    contenders = [ours(shape, chain, 1, seed), ours(shape, chain, shape.chains, seed)]
    peers = theirs(shape, x, y, seed) if with_pytorch else []
    graphs = captured(shape, x, y, seed) if with_pytorch and _on_gpu() else []
    times = interleaved([*contenders, *peers, *graphs], repetitions, seconds)
    results = [median_row(method, "us_per_step", values) for method, values in times.items()]
    if shape.gpu_bars is not None and _on_gpu():
        pairs = zip(results[:2], shape.gpu_bars, strict=True)
        results[:2] = [with_bar(result, "at most", bar) for result, bar in pairs]
    if peers:
        result = speedup(f"engine {shape.name} against pytorch", times, contenders[0], peers)
        results.append(with_bar(result, "at least", shape.speedup_bar))
    if graphs:
        results.append(speedup(f"engine {shape.name} against a CUDA graph of pytorch", times, contenders[0], graphs))
    return announced(results, quiet=quiet)


def image_rows(images: Images, with_pytorch: bool, *, seed: int, quiet: bool, repetitions: int, seconds: float) -> Rows:
    """Time chains on images."""
    x, y = images.data(seed)
    run, check, weights = our_steps(images, x, y, seed)
    label = f"{images.name}, {images.chains} chains, per chain"
    ours = Contender(f"engine {label}", run, images.steps, images.chains, check)
    peers = theirs_on_images(images, x, y, weights, label, seed) if with_pytorch else []
    times = interleaved([ours, *peers], repetitions, seconds)
    results = [median_row(method, "us_per_step", values) for method, values in times.items()]
    if peers:
        result = speedup(f"engine {images.name} against pytorch", times, ours, peers)
        results.append(with_bar(result, "at least", images.speedup_bar))
    return announced(results, quiet=quiet)


def speedup(method: str, times: dict[str, list[float]], ours: Contender, peers: list[Contender]) -> dict[str, Any]:
    """How many times as fast as the fastest of the peers, the median over the repetitions."""
    best = min((times[peer.method] for peer in peers), key=np.median)
    ratios = [their / our for our, their in zip(times[ours.method], best, strict=True)]
    return median_row(method, "speedup", ratios)


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
        return Contender(method, loop.run, unit=5, chains=1, check=finite(shape.name, loop))

    contenders = [contender(f"pytorch {shape.name}", pytorch.DEFAULT_THREADS)]
    if pytorch.DEFAULT_THREADS > 1 and jax.default_backend() == "cpu":
        contenders.append(contender(f"pytorch {shape.name}, 1 thread", 1))
    return contenders


def captured(shape: Shape, x: np.ndarray, y: np.ndarray, seed: int) -> list[Contender]:
    """The same with the whole step as one CUDA graph; nobody where that fails."""
    from benchmarks import pytorch

    loop = pytorch.Loop(shape, x, y, seed=seed, backend=jax.default_backend(), threads=pytorch.DEFAULT_THREADS)
    if not succeeded(f"pytorch {shape.name} as one CUDA graph", loop.capture):
        return []
    return [Contender(f"pytorch {shape.name}, one CUDA graph", loop.run, 50, 1, finite(shape.name, loop))]


def theirs_on_images(
    images: Images, x: np.ndarray, y: np.ndarray, weights: Any, label: str, seed: int
) -> list[Contender]:
    """The chains on images in PyTorch, from the same weights: a CUDA graph on a GPU, or else compiled."""
    from benchmarks import pytorch

    each = [jax.tree.map(lambda leaf, place=place: leaf[place], weights) for place in range(images.chains)]
    chains = pytorch.Chains(images, x, y, each, seed=seed, backend=jax.default_backend())
    if _on_gpu() and not succeeded(f"pytorch {images.name} as one CUDA graph", chains.capture):
        chains.compile()
    if not succeeded(f"pytorch {images.name}", lambda: chains.run(1)):
        return []
    return [Contender(f"pytorch {label}", chains.run, images.steps, images.chains, finite(images.name, chains))]


def succeeded(what: str, attempt: Callable[[], None]) -> bool:
    """Whether an attempt of PyTorch's ended well; if not, why is said, and the rest is measured all the same."""
    try:
        attempt()
    except Exception as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        say(f"{what} failed, and is left out: {why}", quiet=False)
        return False
    return True


def finite(name: str, loop: Any) -> Callable[[], None]:
    """What raises if the numbers of a loop in PyTorch did not stay finite."""

    def check() -> None:
        if not loop.finite():
            raise Divergence(f"the {name} benchmark's PyTorch loop diverged: its times mean nothing")

    return check


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
