"""The problems that the engine is timed on: the shapes of the paper's, filled with random numbers.

How long a step takes does not depend on the numbers, as long as they stay finite.
"""

import dataclasses

import numpy as np

from darkbayes.outcomes.heads.classes import Softmax, SoftmaxHead
from darkbayes.outcomes.heads.number import Gaussian, GaussianHead


@dataclasses.dataclass(frozen=True)
class Shape:
    """A problem with a one-network teacher and a student of the same hidden layers."""

    name: str
    examples: int
    features: int
    hidden: tuple[int, ...]
    likelihood: Gaussian | Softmax
    head: GaussianHead | SoftmaxHead
    """The student's."""
    batch_size: int | None
    """Examples per step of the teacher; None for all of them."""
    query_batch: int
    jitter: float | None
    """The noise on training inputs that makes them queries; None for queries uniform on a box of side 20."""
    step_size: float
    speedup_bar: float
    """By what factor one chain should beat PyTorch."""
    gpu_bars: tuple[float, float] | None = None
    """Microseconds that a step should take at most on a GPU: of one chain, and of one of many."""
    learning_rate: float = 1e-2
    chains: int = 20
    """How many chains to run in the second measurement."""
    thin: int = 100
    """Steps between two kept draws."""
    rounds: int = 20
    """How many times `thin` steps a call of the compiled loop runs."""
    prior_precision: float = 1.0
    student_prior: float = 1e-3

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Uniform inputs in [0, 1) and random targets."""
        rng = np.random.default_rng(seed)
        x = rng.random((self.examples, self.features), np.float32)
        if isinstance(self.likelihood, Softmax):
            return x, rng.integers(0, self.likelihood.num_classes, self.examples)
        return x, rng.standard_normal((self.examples, 1), np.float32)


TOY = Shape(
    name="toy",
    examples=20,
    features=2,
    hidden=(10,),
    likelihood=Softmax(2),
    head=SoftmaxHead(2),
    batch_size=None,
    query_batch=20,
    jitter=None,
    step_size=1e-2,
    speedup_bar=8.0,
)

BOSTON = Shape(
    name="boston",
    examples=455,
    features=13,
    hidden=(50,),
    likelihood=Gaussian(noise_precision=1.25),
    head=GaussianHead(),
    batch_size=1,
    query_batch=1,
    jitter=0.05,
    step_size=1e-5,
    speedup_bar=20.0,
)

MNIST = Shape(
    name="mnist",
    examples=50_000,
    features=784,
    hidden=(400, 400),
    likelihood=Softmax(10),
    head=SoftmaxHead(10),
    batch_size=100,
    query_batch=100,
    jitter=0.001,
    step_size=4e-6,
    speedup_bar=1.25,
    gpu_bars=(80.0, 18.0),
    learning_rate=5e-3,
    chains=10,
    rounds=1,
)

SHAPES = (TOY, BOSTON, MNIST)
