"""Chains of a residual network, ours against the same in PyTorch: the part of `benchmarks.engine` that is about images.

A step is one of SGHMC, for every chain: a batch of its own, gradients, noise. Ours computes all chains at once, with
convolutions as products of matrices. In PyTorch they come one after the other, channels last. Both keep weights,
momentum and noise in float32 and compute the network in bfloat16, from weights that are rounded anew at every step.
"""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from darkbayes.model import Posterior, by_products, computed_in, resnet
from darkbayes.model.priors import GaussianPrior
from darkbayes.outcomes.heads.classes import Softmax
from darkbayes.teacher import minibatch_chain
from darkbayes.teacher.chain import MinibatchChain, burn, raise_on_failure, start_chains
from darkbayes.teacher.samplers import sghmc
from darkbayes.types import Network, PyTree


@dataclasses.dataclass(frozen=True)
class Images:
    """The problem: random images and classes for a residual network with filter response normalisation."""

    depth: int = 20
    width: int = 16
    side: int = 32
    classes: int = 10
    examples: int = 10_000
    batch_size: int = 128
    chains: int = 4
    step_size: float = 1e-6
    friction: float = 0.1
    prior_precision: float = 5.0
    precision: str = "bfloat16"
    """In which the network is computed."""
    steps: int = 20
    """That a call runs."""
    speedup_bar: float = 1.3
    """By what factor a step of all chains should beat PyTorch's."""

    @property
    def name(self) -> str:
        return f"resnet-{self.depth}"

    @property
    def network(self) -> Network:
        return resnet(self.classes, self.depth, self.width)

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Standard normal pixels and random classes."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((self.examples, 3, self.side, self.side), np.float32)
        return x, rng.integers(0, self.classes, self.examples)


IMAGES = Images()


def our_chain(images: Images, x: np.ndarray, y: np.ndarray) -> MinibatchChain:
    """SGHMC on the posterior of the network."""
    network = computed_in(by_products(images.network), images.precision)
    prior = GaussianPrior(images.prior_precision)
    posterior = Posterior(network, Softmax(images.classes), prior, images.examples, in_turn=False)
    sampler = sghmc(images.step_size, images.friction)
    return minibatch_chain(posterior, sampler, x, y, batch_size=images.batch_size)


def our_steps(
    images: Images, x: np.ndarray, y: np.ndarray, seed: int
) -> tuple[Callable[[int], None], Callable[[], None], PyTree]:
    """What runs so many steps, what raises if a chain diverged, and the weights at which the chains begin."""
    chain = our_chain(images, x, y)
    chains = start_chains(chain, jax.random.key(seed), images.chains)
    weights = jax.tree.map(np.asarray, chains.draws.network)

    def run(steps: int) -> None:
        nonlocal chains
        # A NumPy count is an argument of the compiled program; a Python one would compile it anew.
        chains = jax.block_until_ready(burn(chain, chains, np.int32(steps)))  # pyright: ignore[reportArgumentType]

    return run, lambda: raise_on_failure(chain, chains), weights
