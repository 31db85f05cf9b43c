"""Algorithm 1 of the paper as a plain PyTorch loop, for comparison; no other file needs PyTorch to be imported.

Written as one writes it with `torch.nn` and autograd, one kernel after the other. Where there was a choice it fell on
what runs faster: full batches are not indexed, the Gaussian prior's gradient is added in closed form, and nothing is
averaged, monitored or checked, which our loop does all the while.
"""

import itertools
import math

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from benchmarks.shapes import Shape
from darkbayes.outcomes.heads.number import Gaussian

DEFAULT_THREADS: int = torch.get_num_threads()
DEVICES = {"cpu": "cpu", "gpu": "cuda"}
"""PyTorch's name of the device, by the name of JAX's backend."""


def can_use(backend: str) -> bool:
    """Whether PyTorch has a device of the kind that JAX's backend runs on."""
    return backend == "cpu" or (backend == "gpu" and torch.cuda.is_available())


def network(widths: list[int]) -> nn.Sequential:
    """A fully connected ReLU network."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Loop:
    """One SGLD chain and its student."""

    def __init__(self, shape: Shape, x: np.ndarray, y: np.ndarray, *, seed: int, backend: str, threads: int):
        """Networks at their starting points, and the data on the device."""
        torch.manual_seed(seed)
        self.shape, self.device, self.threads = shape, torch.device(DEVICES[backend]), threads
        self.x, self.y = torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)
        self.teacher = network([shape.features, *shape.hidden, shape.likelihood.width]).to(self.device)
        self.student = network([shape.features, *shape.hidden, shape.head.width]).to(self.device)
        self.weights = list(self.teacher.parameters())
        self.optimiser = torch.optim.SGD(
            self.student.parameters(), lr=shape.learning_rate, weight_decay=shape.student_prior
        )

    def run(self, steps: int) -> None:
        """Run steps of the teacher, each followed by an update of the student, and wait until they are done."""
        torch.set_num_threads(self.threads)
        for _ in range(steps):
            self.teacher_step()
            self.student_step()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def teacher_step(self) -> None:
        """SGLD: half the step size times the gradient of the log posterior, and noise."""
        x, y, shape = self.x, self.y, self.shape
        if shape.batch_size is not None:
            rows = torch.randint(len(x), (shape.batch_size,), device=self.device)
            x, y = x[rows], y[rows]
        outputs = self.teacher(x)
        if isinstance(shape.likelihood, Gaussian):
            energy = 0.5 * shape.likelihood.noise_precision * shape.examples * functional.mse_loss(outputs, y)
        else:
            energy = shape.examples * functional.cross_entropy(outputs, y)
        grads = torch.autograd.grad(energy, self.weights)
        decay, spread = 1.0 - 0.5 * shape.step_size * shape.prior_precision, math.sqrt(shape.step_size)
        with torch.no_grad():
            for weight, grad in zip(self.weights, grads, strict=True):
                weight.mul_(decay).add_(grad, alpha=-0.5 * shape.step_size)
                weight.add_(torch.randn_like(weight), alpha=spread)

    def student_step(self) -> None:
        """One step of SGD towards what the present draw predicts at fresh queries."""
        queries = self.queries()
        with torch.no_grad():
            taught = self.teacher(queries)
        outputs = self.student(queries)
        likelihood = self.shape.likelihood
        if isinstance(likelihood, Gaussian):
            mean, log_variance = outputs.chunk(2, dim=-1)
            square = (taught - mean).square() + 1.0 / likelihood.noise_precision
            loss = 0.5 * (log_variance + torch.exp(-log_variance) * square).mean()
        else:
            loss = functional.cross_entropy(outputs, taught.softmax(dim=-1))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def queries(self) -> torch.Tensor:
        """Uniform on the box, or training inputs with noise."""
        shape = self.shape
        if shape.jitter is None:
            return torch.empty(shape.query_batch, shape.features, device=self.device).uniform_(-10.0, 10.0)
        x = self.x[torch.randint(len(self.x), (shape.query_batch,), device=self.device)]
        return x + shape.jitter * torch.randn_like(x)

    def finite(self) -> bool:
        """Whether both networks are still among the finite numbers; a time is worth nothing otherwise."""
        weights = [*self.teacher.parameters(), *self.student.parameters()]
        return all(bool(torch.isfinite(weight).all()) for weight in weights)
