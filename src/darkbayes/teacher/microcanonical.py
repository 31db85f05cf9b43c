"""Microcanonical Langevin Monte Carlo on all examples (Robnik, De Luca, Silverstein and Seljak, 2023).

A chain walks with a momentum u of length one, which the gradient g of the log posterior turns but never lengthens:

    B(c)   u <- normalise[e (1 - z) (1 + z + p (1 - z)) + 2 z u],   e = g / |g|,  p = u . e,
           z = exp(-delta),  delta = c eps |g| / (d - 1),
    A(c)   theta <- theta + c eps u,

in d dimensions. A step is B(b) A(1/2) B(1 - 2b) A(1/2) B(b) with b = 0.19318, the splitting with the smallest error
(McLachlan, 1995), and takes two gradients. Before and after it the direction is refreshed a little, u <- normalise[u +
nu xi] with nu^2 = (exp(eps / L) - 1) / d and xi ~ N(0, I), so that it is forgotten over the length L. Exact paths would
have the law of the posterior. As steps are finite the energy

    E = -log p(theta | data) + (d - 1) sum [delta - log 2 + log(1 + p + (1 - p) z^2)]     over the turns B

changes, and the mean of the squared changes per dimension tells how wrong the law is. So that is what is chosen, and
eps is steered to it during the burn-in; then it is frozen. The error grows with the sixth power of eps. L becomes the
distance that the chain has spread over in the second half of its burn-in. In a chain that is `adjusted` no error is
left: its step is a whole path of length L in a new direction, taken with probability min(1, exp(-change of E)).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from darkbayes.data import as_data
from darkbayes.errors import require_count, require_positive, require_share
from darkbayes.model import Draw, Posterior
from darkbayes.types import Array, Data, Info, Key

OUTER = 0.1931833275037836
"""b, the share of the first and of the last turn in a step."""
MEMORY = 150
"""Steps over which the error that a chain reports is averaged."""
RATES, MOST = (0.03, 0.003), 20.0
"""How fast the logarithm of the step size is steered when the burn-in begins and when it ends; an error counts for at
most this many times the one that is wanted."""
FIRST_STEP = 1e-3
"""The first step size in units of the prior's radius, the square root of the number of weights."""
FIRST_ERROR, SETTLED = 10.0, 0.5
"""How many times the wanted error may be made where a chain begins, and the share of the burn-in in which it falls to
once."""
MEASURED = (2, 5)
"""How often the length is measured, by whether a chain is adjusted."""
MOST_IN_PATH = 1_000
"""Steps in a path at most; the n-th path of a chain has no more than n, as the first step sizes are far too small."""


class Pace(NamedTuple):
    """The step size and the length of a chain, and what they are learned from."""

    step_size: Array
    length: Array
    mean: Array
    """Of the weights over a part of the burn-in, and the squares around it."""
    squares: Array


class MicrocanonicalState(NamedTuple):
    """The present draw with its log posterior and gradient, the direction, and the settings."""

    params: Draw
    log_density: Array
    gradient: Array
    direction: Array
    count: Array
    settings: Pace
    energy_error: Array
    """The running mean of the squared change of energy per dimension, over about `MEMORY` steps."""
    gradients: Array
    """How many were taken, each over all examples."""

    def noting(self, error: Array) -> "MicrocanonicalState":
        """With an error taken into the running mean."""
        share = 1.0 / jnp.minimum(self.count + 1, MEMORY)
        return self._replace(energy_error=self.energy_error + share * (error - self.energy_error))


class MicrocanonicalChain(eqx.Module):
    """A chain of microcanonical steps; `mclmc_chain` and `adjusted_mclmc_chain` make one."""

    posterior: Posterior
    data: Data
    burn_in: int | Array
    thin: int | Array
    target: float | Array
    """The squared change of energy per dimension that is wanted or, if `adjusted`, the share of accepted paths."""
    adjusted: bool = eqx.field(static=True)
    start: Draw | None = None
    """Draws to begin at, along their first axis; None to begin where the posterior says."""
    examples: Array | None = None
    """How many of the rows of `data` are the examples, if not all: the first ones."""

    @property
    def inputs(self) -> Array:
        return self.data.x

    def init(self, key: Key, params: Draw | None = None) -> MicrocanonicalState:
        params_key, direction_key = jax.random.split(key)
        params = self.posterior.init(params_key, self.data.x) if params is None else params
        weights, _ = ravel_pytree(params)
        log_density, gradient = self._slope(weights, params)
        zero, size = jnp.zeros((), weights.dtype), jnp.sqrt(jnp.asarray(weights.size, weights.dtype))
        none = jnp.zeros_like(weights)
        settings = Pace(FIRST_STEP * size, size, none, none)
        direction = _normalised(jax.random.normal(direction_key, weights.shape, weights.dtype))
        count = jnp.zeros((), jnp.int32)
        return MicrocanonicalState(params, log_density, gradient, direction, count, settings, zero, count + 1)

    def _slope(self, weights: Array, like: Draw) -> tuple[Array, Array]:
        """The log posterior and its gradient."""
        restore = ravel_pytree(like)[1]
        # As an argument: what takes turns may not be batched behind its back, as data of several runs are.
        known, rest = eqx.partition((self.posterior, self.data, self.examples), eqx.is_array)

        def log_joint(weights: Array, known: Any) -> Array:
            posterior, data, examples = eqx.combine(known, rest)
            return posterior.log_joint(restore(weights), data, examples)

        slope = jax.value_and_grad(log_joint)
        # One chain after another is faster than all at once on a CPU, and slower elsewhere. JAX cannot take turns
        # within a path, which is a loop of its own.
        if not self.adjusted and jax.default_backend() == "cpu":
            slope = jax.custom_batching.sequential_vmap(slope)
        # Some devices multiply in half precision unless asked not to, and the energy would change by chance alone.
        with jax.default_matmul_precision("highest"):
            return slope(weights, known)

    def step(self, key: Key, state: MicrocanonicalState) -> tuple[MicrocanonicalState, Info]:
        state = (self._path if self.adjusted else self._walk)(key, state)
        return state._replace(count=state.count + 1), Info(state.log_density)

    def _integrate(self, state: MicrocanonicalState) -> tuple[MicrocanonicalState, Array]:
        """B A B A B, and the change of energy."""
        eps, (weights, restore) = state.settings.step_size, ravel_pytree(state.params)
        direction, kinetic = _turn(state.direction, state.gradient, OUTER * eps)

        def drift_and_turn(carry: tuple[Array, ...], share: Array) -> tuple[tuple[Array, ...], None]:
            weights, direction, _, _, kinetic = carry
            weights = weights + 0.5 * eps * direction
            log_density, gradient = self._slope(weights, state.params)
            direction, more = _turn(direction, gradient, share * eps)
            return (weights, direction, log_density, gradient, kinetic + more), None

        # A loop of two, since the gradient of a network takes long to compile.
        carry = weights, direction, state.log_density, state.gradient, kinetic
        shares = jnp.asarray([1 - 2 * OUTER, OUTER], weights.dtype)
        (weights, direction, log_density, gradient, kinetic), _ = jax.lax.scan(drift_and_turn, carry, shares)
        change = kinetic + state.log_density - log_density
        place = {"params": restore(weights), "log_density": log_density, "gradient": gradient}
        return state._replace(**place, direction=direction, gradients=state.gradients + 2), change

    def _walk(self, key: Key, state: MicrocanonicalState) -> MicrocanonicalState:
        """One step that is always taken, unless it leads out of the numbers."""
        before_key, after_key = jax.random.split(key)
        moved, change = self._integrate(self._refreshed(before_key, state))
        moved = self._refreshed(after_key, moved)
        finite = jnp.isfinite(change) & jnp.all(jnp.isfinite(moved.gradient))
        # Where there was no going on the chain turns back.
        stay = state._replace(direction=-state.direction, gradients=moved.gradients)
        state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, stay)
        error = jnp.where(finite, change**2 / state.direction.size, state.energy_error)
        state = state.noting(error)
        progress = state.count / self.burn_in
        wanted = self.target * FIRST_ERROR ** jnp.maximum(1.0 - progress / SETTLED, 0.0)
        rate = RATES[0] + (RATES[1] - RATES[0]) * progress
        factor = jnp.where(finite, jnp.exp(rate * (1.0 - jnp.minimum(error / wanted, MOST))), 0.5)
        return state._replace(settings=self._learned(state, factor))

    def _refreshed(self, key: Key, state: MicrocanonicalState) -> MicrocanonicalState:
        noise = jax.random.normal(key, state.direction.shape, state.direction.dtype)
        spread = jnp.sqrt(jnp.expm1(state.settings.step_size / state.settings.length) / noise.size)
        return state._replace(direction=_normalised(state.direction + spread * noise))

    def _learned(self, state: MicrocanonicalState, factor: Array) -> Pace:
        """The settings with a longer step and the distance that the chain has spread over, unless burn-in is over.

        That distance is measured in the second quarter of the burn-in, and again in its second half; for paths, whose
        cost it decides, in earlier parts as well, each half as long.
        """
        old, count, burn_in = state.settings, state.count, jnp.asarray(self.burn_in, jnp.int32)
        halvings = jnp.clip(32 - jax.lax.clz(burn_in // (count + 1)), 1, MEASURED[self.adjusted])
        begin = burn_in >> halvings
        number = jnp.maximum(count - begin + 1, 1)
        weights, _ = ravel_pytree(state.params)
        mean = old.mean + (weights - old.mean) / number
        squares = jnp.where(number == 1, 0.0, old.squares) + (weights - old.mean) * (weights - mean)
        spread = jnp.sqrt(jnp.sum(squares) / number)
        due = (count + 1 == burn_in >> (halvings - 1)) & (spread > 0)
        new = Pace(factor * old.step_size, jnp.where(due, spread, old.length), mean, squares)
        return jax.tree.map(lambda new, old: jnp.where(count < self.burn_in, new, old), new, old)

    def _path(self, key: Key, state: MicrocanonicalState) -> MicrocanonicalState:
        """A path in a new direction, of random length, that is taken or not."""
        direction_key, length_key, accept_key = jax.random.split(key, 3)
        noise = jax.random.normal(direction_key, state.direction.shape, state.direction.dtype)
        begin = state._replace(direction=_normalised(noise))
        step_size, length = state.settings.step_size, state.settings.length
        # Of random length, twice L at most: paths of one length could close.
        steps = jnp.ceil(2.0 * jax.random.uniform(length_key) * length / step_size).astype(jnp.int32)

        def go_on(_: Array, carry: tuple[MicrocanonicalState, Array]) -> tuple[MicrocanonicalState, Array]:
            moved, change = self._integrate(carry[0])
            return moved, carry[1] + change

        steps = jnp.clip(steps, 1, jnp.minimum(state.count + 1, MOST_IN_PATH))
        moved, change = jax.lax.fori_loop(0, steps, go_on, (begin, jnp.zeros_like(length)))
        probability = jnp.where(jnp.isfinite(change), jnp.exp(jnp.minimum(-change, 0.0)), 0.0)
        accept = jax.random.uniform(accept_key) < probability
        state = state._replace(gradients=moved.gradients)
        state = jax.tree.map(lambda new, old: jnp.where(accept, new, old), moved, state)
        rate, excess = 1.0 / jnp.sqrt(state.count + 1.0), probability - self.target
        # More than all paths cannot be accepted. So that the first step size, which is tiny, grows as fast as it falls:
        upwards = jnp.where((excess > 0) & (state.count < SETTLED * self.burn_in), 1.0 / (1.0 - self.target), 1.0)
        factor = jnp.exp(rate * upwards * excess)
        state = state.noting(jnp.where(jnp.isfinite(change), change**2 / noise.size, state.energy_error))
        return state._replace(settings=self._learned(state, factor))


def _normalised(vector: Array) -> Array:
    return vector / jnp.linalg.norm(vector)


def _turn(direction: Array, gradient: Array, step: Array) -> tuple[Array, Array]:
    """B: the direction turned by the gradient over `step`, and what the kinetic energy gained."""
    size = jnp.linalg.norm(gradient)
    towards = gradient / jnp.maximum(size, 1e-30)
    along, freedom = jnp.dot(direction, towards), direction.size - 1
    delta = step * size / freedom
    z = jnp.exp(-delta)
    turned = towards * (1 - z) * (1 + z + along * (1 - z)) + 2 * z * direction
    return _normalised(turned), freedom * (delta - jnp.log(2.0) + jnp.log(1 + along + (1 - along) * z**2))


def mclmc_chain(
    posterior: Posterior,
    x: Any,
    y: Any,
    *,
    burn_in: int = 5_000,
    thin: int = 10,
    energy_error: float = 5e-4,
    start: Draw | None = None,
) -> MicrocanonicalChain:
    """A microcanonical chain on all examples, which finds its step size and length during the burn-in.

    Args:
        posterior: what to explore.
        x, y: the training examples, all of which every step uses, twice.
        burn_in: steps before the first draw counts.
        thin: steps between two kept draws.
        energy_error: the mean squared change of energy per dimension and step: what decides how far the draws may be
            from the posterior. Half the error costs an eighth more steps.
        start: draws to begin at, along their first axis, such as trained networks; None for random weights.

    Returns:
        The chain, for `distil` or `sample`.
    """
    require_positive("energy_error", energy_error)
    return _chain(posterior, x, y, burn_in, thin, energy_error, False, start)


def adjusted_mclmc_chain(
    posterior: Posterior,
    x: Any,
    y: Any,
    *,
    burn_in: int = 1_000,
    thin: int = 1,
    accept: float = 0.9,
    start: Draw | None = None,
) -> MicrocanonicalChain:
    """A chain of microcanonical paths that are accepted or rejected, so that its draws are exact.

    Args:
        posterior: what to explore.
        x, y: the training examples, all of which every step uses.
        burn_in: paths before the first draw counts.
        thin: paths between two kept draws.
        accept: the share of paths to accept, which sets the step size.
        start: draws to begin at, along their first axis, such as trained networks; None for random weights.

    Returns:
        The chain, for `distil` or `sample`.
    """
    require_share("accept", accept)
    return _chain(posterior, x, y, burn_in, thin, accept, True, start)


def _chain(
    posterior: Posterior, x: Any, y: Any, burn_in: int, thin: int, target: float, adjusted: bool, start: Draw | None
) -> MicrocanonicalChain:
    data = as_data(x, y)
    burn_in, thin = require_count("burn_in", burn_in), require_count("thin", thin)
    posterior.check(data)
    return MicrocanonicalChain(posterior, data, burn_in, thin, target, adjusted, start)
