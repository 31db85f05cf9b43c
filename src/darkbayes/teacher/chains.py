"""Optax transformations as Markov chains over minibatches."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import optax

from darkbayes.data import as_data, check_batch_size, minibatch
from darkbayes.errors import require_count
from darkbayes.model import Draw, Posterior
from darkbayes.teacher.auto import AutoStep
from darkbayes.teacher.gradients import Estimate, Gradients, minibatch_gradients
from darkbayes.types import Array, Data, Info, Key, PyTree


class MinibatchState(NamedTuple):
    """The present draw, the state of the transformation, and that of the gradients (none for the plain ones)."""

    params: Draw
    transformation: PyTree
    gradients: PyTree


class MinibatchChain(eqx.Module):
    """A chain whose steps follow an optax transformation of minibatch gradients; `minibatch_chain` makes one."""

    posterior: Posterior
    transformation: optax.GradientTransformationExtraArgs | AutoStep
    data: Data
    batch_size: int | None
    burn_in: int | Array
    thin: int | Array
    gradients: Gradients
    start: Draw | None = None
    """Draws to begin at, along their first axis; None to begin where the posterior says."""
    examples: Array | None = None
    """How many of the rows of `data` are the examples, if not all: the first ones, which those after them repeat."""

    @property
    def inputs(self) -> Array:
        return self.data.x

    def init(self, key: Key) -> MinibatchState:
        params = self.posterior.init(key, self.data.x) if self.start is None else _one_of(key, self.start)
        gradients = self.gradients.init(self.posterior, self.data, params)
        return MinibatchState(params, self.transformation.init(params), gradients)

    def estimate(self, batch_key: Key, own_key: Key, state: MinibatchState) -> Estimate:
        """The gradient of the negative log posterior at the present draw, estimated on a fresh minibatch."""
        batch = minibatch(batch_key, self.data, self.batch_size, self.examples)
        return self.gradients.estimate(own_key, self.posterior, self.data, batch, state.params, state.gradients)

    def step(self, key: Key, state: MinibatchState) -> tuple[MinibatchState, Info]:
        batch_key, noise_key, own_key = jax.random.split(key, 3)
        value, grads, extras, gradients = self.estimate(batch_key, own_key, state)
        updates, transformation = self.transformation.update(
            grads, state.transformation, state.params, key=noise_key, value=value, **extras
        )
        params: Any = optax.apply_updates(state.params, updates)
        return MinibatchState(params, transformation, gradients), Info(-value)


def _one_of(key: Key, draws: Draw) -> Draw:
    """One of several draws, at random."""
    number = len(jax.tree.leaves(draws)[0])
    return jax.tree.map(lambda leaf: leaf[jax.random.randint(key, (), 0, number)], draws)


def minibatch_chain(
    posterior: Posterior,
    transformation: optax.GradientTransformation | AutoStep,
    x: Any,
    y: Any,
    *,
    batch_size: int | None,
    burn_in: int = 0,
    thin: int = 1,
    gradients: Gradients | None = None,
    start: Draw | None = None,
) -> MinibatchChain:
    """A chain from a sampler such as `sgld`, or from any optax optimiser (a plug-in teacher).

    Args:
        posterior: what to explore.
        transformation: a sampler or optimiser; one with ``step_size="auto"`` waits for `tune`. It gets the gradients of
            the negative log posterior at full-data scale, so an optimiser's learning rate is about 1/N of that for a
            mean loss.
        x, y: the training examples.
        batch_size: examples per step, drawn with replacement; None for all of them. More than there are is refused.
        burn_in: steps before the first draw counts.
        thin: steps between two kept draws.
        gradients: what a step takes for the gradient, and what else it tells the sampler; `minibatch_gradients` unless
            given. `control_variates` and `svrg` have less noise; `sgfs` needs `per_example`, `sgrld` `fisher_metric`.
        start: draws to begin at, along their first axis, of which each chain picks one; None for random weights.
    """
    data = as_data(x, y)
    batch_size = check_batch_size(batch_size, len(data.x))
    burn_in = require_count("burn_in", burn_in, least=0)
    thin = require_count("thin", thin)
    posterior.check(data)
    if not isinstance(transformation, AutoStep):
        transformation = optax.with_extra_args_support(transformation)
    gradients = minibatch_gradients() if gradients is None else gradients
    return MinibatchChain(posterior, transformation, data, batch_size, burn_in, thin, gradients, start)
