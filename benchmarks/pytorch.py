"""Algorithm 1 of the paper as a plain PyTorch loop, for comparison; no other file needs PyTorch to be imported.

Written as one writes it with `torch.nn` and autograd, one kernel after the other. Where there was a choice it fell on
what runs faster: full batches are not indexed, the Gaussian prior's gradient is added in closed form, and nothing is
averaged, monitored or checked, which our loop does all the while. On a GPU, a step can be `captured` as one CUDA graph.

Products of float32 matrices are as precise as ours: TF32 on a GPU that has it, which JAX uses unless told otherwise.
"""

import abc
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from benchmarks.images import Images
from benchmarks.shapes import Shape
from darkbayes.export.pytorch import to_torch
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


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """A step as one CUDA graph, which costs a single launch; it has taken a few steps when it is ready."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):  # What is chosen and allocated at first is not to become part of the graph.
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


class _Runner(abc.ABC):
    """What takes steps on a device."""

    def __init__(self, seed: int, backend: str, threads: int):
        torch.manual_seed(seed)
        self.device, self.threads, self.step = torch.device(DEVICES[backend]), threads, self.one_step
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.benchmark = True  # Each convolution by what is fastest for it, as XLA chooses.

    @abc.abstractmethod
    def one_step(self) -> None: ...

    def capture(self) -> None:
        """Have further steps taken by a CUDA graph."""
        self.step = captured(self.one_step)

    def run(self, steps: int) -> None:
        """Take steps, and wait until they are done."""
        torch.set_num_threads(self.threads)
        for _ in range(steps):
            self.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize()


class Loop(_Runner):
    """One SGLD chain and its student."""

    def __init__(self, shape: Shape, x: np.ndarray, y: np.ndarray, *, seed: int, backend: str, threads: int):
        """Networks at their starting points, and the data on the device."""
        super().__init__(seed, backend, threads)
        self.shape = shape
        self.x, self.y = torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)
        self.teacher = network([shape.features, *shape.hidden, shape.likelihood.width]).to(self.device)
        self.student = network([shape.features, *shape.hidden, shape.head.width]).to(self.device)
        self.weights = list(self.teacher.parameters())
        self.optimiser = torch.optim.SGD(
            self.student.parameters(), lr=shape.learning_rate, weight_decay=shape.student_prior
        )

    def one_step(self) -> None:
        """A step of the teacher, and an update of the student."""
        self.teacher_step()
        self.student_step()

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


class Chains(_Runner):
    """Chains of SGHMC on images, one after the other; each keeps its weights as one vector, which spares kernels."""

    def __init__(self, images: Images, x: np.ndarray, y: np.ndarray, weights: list[Any], *, seed: int, backend: str):
        """Chains at given weights, at rest, and the data on the device."""
        super().__init__(seed, backend, DEFAULT_THREADS)
        self.images = images
        self.x, self.y = torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)
        modules = [to_torch(images.network, own) for own in weights]
        self.module = modules[0].to(self.device)
        self.shapes = {name: own.shape for name, own in self.module.named_parameters()}
        self.weights = [self._joined(dict(module.named_parameters())).requires_grad_() for module in modules]
        self.momenta = [torch.zeros_like(own) for own in self.weights]
        self.outputs = self._outputs

    def _joined(self, parts: dict[str, Any]) -> torch.Tensor:
        """All weights in a row, those of convolutions with their channels last."""
        ordered = [part.permute(0, 2, 3, 1) if part.ndim == 4 else part for part in parts.values()]
        return torch.cat([part.detach().reshape(-1) for part in ordered]).to(self.device)

    def _parts(self, joined: torch.Tensor) -> dict[str, torch.Tensor]:
        """The weights by name, as views of the row."""
        pieces = joined.split([shape.numel() for shape in self.shapes.values()])
        parts = {}
        for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True):
            last = (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape
            parts[name] = piece.view(last).permute(0, 3, 1, 2) if len(shape) == 4 else piece.view(last)
        return parts

    def _outputs(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        precision = getattr(torch, self.images.precision)
        x = x.to(precision, memory_format=torch.channels_last)
        return torch.func.functional_call(self.module, self._parts(weights.to(precision)), (x,)).float()

    def compile(self) -> None:
        """Have the network compiled, where its steps cannot be captured."""
        self.outputs = torch.compile(self._outputs)

    def one_step(self) -> None:
        """A step of every chain, as `darkbayes.sghmc` has it."""
        images = self.images
        stride, spread = math.sqrt(0.5 * images.step_size), math.sqrt(2.0 * images.friction)
        for weights, momentum in zip(self.weights, self.momenta, strict=True):
            rows = torch.randint(len(self.x), (images.batch_size,), device=self.device)
            energy = images.examples * functional.cross_entropy(self.outputs(weights, self.x[rows]), self.y[rows])
            (grad,) = torch.autograd.grad(energy, weights)
            with torch.no_grad():
                momentum.mul_(1.0 - images.friction).add_(grad, alpha=-stride)
                momentum.add_(weights, alpha=-stride * images.prior_precision)
                momentum.add_(torch.randn_like(momentum), alpha=spread)
                weights.add_(momentum, alpha=stride)

    def finite(self) -> bool:
        """Whether all chains are still among the finite numbers."""
        return all(bool(torch.isfinite(own).all()) for own in self.weights)
