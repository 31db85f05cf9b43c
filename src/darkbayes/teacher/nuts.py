"""The No-U-Turn sampler (Hoffman and Gelman, 2014) on the full posterior, through NumPyro.

It is the ground truth that approximate teachers are measured against, and a teacher to distil from. The
burn-in is NUTS's warm-up: it adapts the step size and the mass matrix, which are then frozen.
"""

import importlib.util
from typing import Any, NamedTuple

import equinox as eqx
import jax

from darkbayes.data import as_data
from darkbayes.errors import InvalidInput, require_count
from darkbayes.model import Draw, Posterior
from darkbayes.types import Array, Data, Info, Key


class NUTSState(NamedTuple):
    """The present draw, and the state of NumPyro's kernel."""

    params: Draw
    kernel: Any


class NUTSChain(eqx.Module):
    """A chain of full-data NUTS transitions; `nuts_chain` makes one."""

    posterior: Posterior
    data: Data
    burn_in: int
    thin: int
    max_tree_depth: int
    target_accept: float
    dense_mass: bool

    @property
    def inputs(self) -> Array:
        return self.data.x

    def _kernel(self) -> tuple[Any, Any]:
        """What starts a chain at a draw with a key, and what takes a step."""
        from numpyro.infer.hmc import hmc

        init, step = hmc(potential_fn=lambda params: -self.posterior.log_density(params, self.data), algo="NUTS")
        settings = {"max_tree_depth": self.max_tree_depth, "target_accept_prob": self.target_accept}
        settings |= {"num_warmup": self.burn_in, "dense_mass": self.dense_mass}
        return lambda params, key: init(params, rng_key=key, **settings), step

    def init(self, key: Key) -> NUTSState:
        params_key, kernel_key = jax.random.split(key)
        params = self.posterior.init(params_key, self.data.x)
        return NUTSState(params, self._kernel()[0](params, kernel_key))

    def step(self, key: Key, state: NUTSState) -> tuple[NUTSState, Info]:
        init_kernel, sample_kernel = self._kernel()
        # NumPyro's kernel learns its settings from the call of init_kernel; its result is not needed again.
        jax.eval_shape(init_kernel, state.params, key)
        kernel = sample_kernel(state.kernel._replace(rng_key=key))
        return NUTSState(kernel.z, kernel), Info(-kernel.potential_energy)


def nuts_chain(
    posterior: Posterior,
    x: Any,
    y: Any,
    *,
    burn_in: int = 1000,
    thin: int = 1,
    max_tree_depth: int = 10,
    target_accept: float = 0.8,
    dense_mass: bool = False,
) -> NUTSChain:
    """A NUTS chain on all examples.

    Args:
        posterior: what to explore.
        x, y: the training examples, all of which every step uses.
        burn_in, thin: the length of the warm-up, in steps, and the steps between two kept draws.
        max_tree_depth: the logarithm to base 2 of the most leapfrog steps in a step.
        target_accept: the acceptance probability that the step size is adapted to.
        dense_mass: whether the mass matrix has entries off its diagonal.

    Returns:
        The chain, for `distil` or `sample`.
    """
    if importlib.util.find_spec("numpyro") is None:
        raise InvalidInput("nuts_chain needs NumPyro: pip install 'darkbayes[hmc]'")
    data = as_data(x, y)
    burn_in, thin = require_count("burn_in", burn_in), require_count("thin", thin)
    max_tree_depth = require_count("max_tree_depth", max_tree_depth)
    if not 0.0 < target_accept < 1.0:
        raise InvalidInput(f"target_accept must lie between 0 and 1, not {target_accept!r}")
    posterior.check(data)
    return NUTSChain(posterior, data, burn_in, thin, max_tree_depth, target_accept, dense_mass)
