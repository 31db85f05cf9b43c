"""Chains: an optax transformation that walks over minibatches, and many chains at once inside compiled loops.

Failure is data until it reaches the host.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from darkbayes.data.arrays import as_data, check_batch_size, minibatch
from darkbayes.data.augmentation import Augment
from darkbayes.errors import Divergence, InvalidInput, require_count
from darkbayes.mesh import divided, on_host
from darkbayes.model import Draw, Posterior
from darkbayes.progress import progress_bar
from darkbayes.teacher.gradients.anchors import svrg
from darkbayes.teacher.gradients.base import GradientEstimate, Gradients, Stateless, minibatch_gradients
from darkbayes.teacher.samplers.auto import AutoStep
from darkbayes.teacher.streaming import Feed
from darkbayes.types import Array, Chain, Data, Info, Key, PyTree

State = TypeVar("State")
FEW_BATCHES = 20
"""Batches in all examples up to which their whole gradient, once in as many steps, is worth its cost."""

TIMED = 5  # Steps, and how often they are taken, to find out which pace is quicker.


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
    augment: Augment | None = None
    """What is done to the inputs of every batch."""
    feed: Feed | None = eqx.field(default=None, static=True)
    """Where the rows of each step come from, if they are not all in `data`."""

    @property
    def inputs(self) -> Array:
        return self.data.x

    def init(self, key: Key, params: Draw | None = None) -> MinibatchState:
        params = self.posterior.init(key, self.data.x) if params is None else params
        gradients = self.gradients.init(self.posterior, self.data, params)
        return MinibatchState(params, self.transformation.init(params), gradients)

    def estimate(self, batch_key: Key, own_key: Key, state: MinibatchState) -> GradientEstimate:
        """The gradient of the negative log posterior at the present draw, estimated on a fresh minibatch."""
        batch = minibatch(batch_key, self.data, self.batch_size, self.examples)
        if self.augment is not None:
            batch = batch._replace(x=self.augment(jax.random.fold_in(batch_key, 0), batch.x))
        return self.gradients.estimate(own_key, self.posterior, self.data, batch, state.params, state.gradients)

    def step(self, key: Key, state: MinibatchState) -> tuple[MinibatchState, Info]:
        batch_key, noise_key, own_key = jax.random.split(key, 3)
        value, grads, extras, gradients = self.estimate(batch_key, own_key, state)
        updates, transformation = self.transformation.update(
            grads, state.transformation, state.params, key=noise_key, value=value, **extras
        )
        params: Any = optax.apply_updates(state.params, updates)
        return MinibatchState(params, transformation, gradients), Info(-value)


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
    augment: Augment | None = None,
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
        gradients: what a step takes for the gradient, and what else it tells the sampler. Unless given, `svrg` for a
            sampler that waits for `tune` where the examples are few batches, as the noise of plain gradients would keep
            its steps tiny, and `minibatch_gradients` otherwise. `control_variates` have less noise, too; `sgfs` needs
            `per_example`, `sgrld` `fisher_metric`.
        start: draws to begin at, along their first axis, one for each chain; None for random weights.
        augment: what is done to the inputs of every batch, such as ``db.data.augmentation.flip()``; see there what that
            makes of the posterior. It goes with gradients of the batch alone, not with `svrg` and its like.

    Returns:
        The chain, for `distil`, `sample` or `tune`.
    """
    data = as_data(x, y)
    batch_size = check_batch_size(batch_size, len(data.x))
    burn_in, thin = require_count("burn_in", burn_in, least=0), require_count("thin", thin)
    posterior.check(data)
    if not isinstance(transformation, AutoStep):
        transformation = optax.with_extra_args_support(transformation)
    if gradients is None:
        batches = 1 if batch_size is None else -(-len(data.x) // batch_size)
        few = isinstance(transformation, AutoStep) and 1 < batches <= FEW_BATCHES and augment is None
        gradients = svrg(batches) if few else minibatch_gradients()
    elif augment is not None and not isinstance(gradients, Stateless):
        remedy = "leave out augment, or use minibatch_gradients"
        raise InvalidInput(f"augment does not go with {gradients!r}, which knows the data as they are: {remedy}")
    return MinibatchChain(posterior, transformation, data, batch_size, burn_in, thin, gradients, start, augment=augment)


class Failure(NamedTuple):
    """The first step at which the log posterior of each chain was not finite: chains need not hear of each other."""

    step: Array  # -1 as long as all is well.
    log_density: Array


class Chains(NamedTuple):
    """The state of many chains of one kind, which all have taken `step` steps."""

    key: Key
    step: Array
    states: Any  # The states of the chains, stacked along a leading axis.
    failure: Failure
    begun: Array  # The step at which they began; 0 unless they took the place of others.

    @property
    def draws(self) -> PyTree:
        return self.states.params


def each(function: Callable[..., Any], *stacked: PyTree, in_turn: bool | None = False, mesh: Mesh | None = None) -> Any:
    """`function` of each element along the first axis, all at once (``jax.vmap``) or `in_turn` (``jax.lax.map``).

    A single element is unpacked instead: on tiny networks a batch axis of length one makes a step half as fast again.
    On a mesh every device does this for those that it has; a loop over all of them would run whole on each device. What
    the function needs besides is then to be a part of it, as of a method of a module or of ``equinox.Partial``.
    """
    if mesh is not None:
        arrays, rest = eqx.partition(function, eqx.is_array)

        def some(arrays: PyTree, *stacked: PyTree) -> Any:
            return each(eqx.combine(arrays, rest), *stacked, in_turn=in_turn)

        return divided(some, mesh)(arrays, *stacked)
    if len(jax.tree.leaves(stacked)[0]) > 1:
        return jax.lax.map(lambda one: function(*one), stacked) if in_turn else jax.vmap(function)(*stacked)
    single = function(*jax.tree.map(lambda leaf: leaf[0], stacked))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], single)


@eqx.filter_jit
def start_chains(chain: Chain, key: Key, num_chains: int, before: int = 0) -> Chains:
    """Chains at independent starting points, which are not those of so many chains `before` them, by the same key."""
    num_chains = require_count("num_chains", num_chains)
    init_key, step_key = jax.random.split(key)
    init_key = jax.random.fold_in(init_key, before) if before else init_key
    keys, start = jax.random.split(init_key, num_chains), getattr(chain, "start", None)
    if start is None:
        states = jax.vmap(chain.init)(keys)
    else:
        # No two chains begin at the same draw, unless there are more of them.
        order = jax.random.permutation(jax.random.fold_in(key, 2), len(jax.tree.leaves(start)[0]))
        begin = jax.tree.map(lambda leaf: leaf[order[(before + jnp.arange(num_chains)) % len(order)]], start)
        states = jax.vmap(lambda key, draw: chain.init(key, draw))(keys, begin)  # pyright: ignore[reportCallIssue]
    fine = Failure(jnp.full(num_chains, -1, jnp.int32), jnp.zeros(num_chains))
    return Chains(step_key, jnp.zeros((), jnp.int32), states, fine, jnp.zeros((), jnp.int32))


def step_chains(chain: Chain, chains: Chains, mesh: Mesh | None = None) -> Chains:
    """One step of every chain; the randomness depends on the key and the step count alone."""
    num_chains = len(jax.tree.leaves(chains.states)[0])
    keys = jax.random.split(jax.random.fold_in(chains.key, chains.step), num_chains)
    states, info = each(chain.step, keys, chains.states, in_turn=pace(chain.posterior), mesh=mesh)
    first = ~jnp.isfinite(info.log_density) & (chains.failure.step < 0)
    now = Failure(chains.step, info.log_density)
    failure = jax.tree.map(lambda old, new: jnp.where(first, new, old), chains.failure, now)
    return chains._replace(step=chains.step + 1, states=states, failure=failure)


def raise_on_failure(chain: Chain, chains: Chains) -> None:
    """Turn a failure that the compiled loop has noted into an error that says what to change.

    `chains` may be those of several runs side by side, along a leading axis.
    """
    side_by_side = chains.step.ndim > 0
    steps, densities = (on_host(part) if side_by_side else on_host(part)[None] for part in chains.failure)
    lost = _lost_chains(chains.draws, side_by_side)
    if (steps >= 0).any():
        run, culprit = np.unravel_index(np.argmin(np.where(steps < 0, np.inf, steps)), steps.shape)
        first, value = steps[run, culprit], densities[run, culprit]
        what = f"at step {first} the log posterior of chain {culprit} became {value}"
    elif (lost >= 0).any():
        run = int(np.argmax(lost >= 0))
        what = f"at step {np.ravel(chains.step)[run]} the weights of chain {lost[run]} are not finite"
    else:
        return
    where = f" in run {run} of {len(steps)}" if side_by_side else ""
    largest = float(jnp.max(jnp.abs(chain.inputs)))
    advice = "use a smaller step size or learning rate (try a tenth)"
    if largest > 10.0:
        advice += f", or standardise the inputs (the largest is {largest:.3g} in size)"
    raise Divergence(f"the teacher diverged{where}: {what}; {advice}")


def _lost_chains(draws: PyTree, side_by_side: bool) -> np.ndarray:
    """The first chain of each run whose weights are not all finite, -1 if there is none; with no program of its own."""
    finite = [np.isfinite(on_host(leaf)) for leaf in jax.tree.leaves(draws)]
    leaves = finite if side_by_side else [leaf[None] for leaf in finite]
    finite = np.all([leaf.reshape(*leaf.shape[:2], -1).all(axis=-1) for leaf in leaves], axis=0)
    return np.where(finite.all(axis=-1), -1, np.argmin(finite, axis=-1))


@eqx.filter_jit(donate="all-except-first")
def burn(chain: Chain, chains: Chains, steps: Array, mesh: Mesh | None = None) -> Chains:
    """Advance every chain by `steps` steps and keep nothing but where they end."""
    return jax.lax.fori_loop(0, steps, lambda _, now: step_chains(chain, now, mesh), chains)


def pace(posterior: Any) -> bool | None:
    """Whether draws of a posterior are computed in turn; somebody's own may not say, and has them at once."""
    return getattr(posterior, "in_turn", False)


def paced(
    chain: Chain, num_chains: int, decide: Callable[[Callable[[], bool]], bool] = lambda measure: measure()
) -> Any:
    """The chain with `Posterior.in_turn` settled: as it was given, or as is quicker where the network convolves.

    `decide` may know the answer from an earlier time: which bits come out depends on it, and on nothing else that is
    measured. What it is not asked for is all at once.
    """
    if num_chains == 1 or pace(chain.posterior) is not None or not _convolves(chain):
        return chain

    def with_pace(in_turn: bool) -> Any:
        return eqx.tree_at(lambda chain: chain.posterior, chain, dataclasses.replace(chain.posterior, in_turn=in_turn))

    def measure() -> bool:
        at_once, in_turn = (seconds_per_step(with_pace(pace), num_chains) for pace in (False, True))
        return in_turn < at_once

    return with_pace(decide(measure))


def _convolves(chain: Chain) -> bool:
    """Whether a draw's prediction involves convolutions, whoever wrote the network."""
    draw = eqx.filter_eval_shape(chain.init, jax.random.key(0)).params
    one = jax.ShapeDtypeStruct((1, *chain.inputs.shape[1:]), chain.inputs.dtype)
    return "conv_general_dilated" in str(eqx.filter_make_jaxpr(chain.posterior.distribution)(draw, one)[0])


def seconds_per_step(chain: Chain, num_chains: int) -> float:
    """How long a step of all chains takes, once it is compiled."""
    chains, took = start_chains(chain, jax.random.key(0), num_chains), []
    for _ in range(1 + TIMED):
        began = time.perf_counter()
        chains = jax.block_until_ready(burn(chain, chains, np.int32(TIMED)))  # pyright: ignore[reportArgumentType]
        took.append((time.perf_counter() - began) / TIMED)
    return min(took[1:])


def fed(chain: Any, step: Any) -> Any:
    """The chain with the rows of a step, where they are streamed."""
    feed = getattr(chain, "feed", None)
    return chain if feed is None else dataclasses.replace(chain, data=feed.rows(int(step)), examples=None)


def unchanged(chain: Any, step: int, unit: int = 1) -> int | float:
    """How many units of so many steps begin with the rows of this step."""
    feed = getattr(chain, "feed", None)
    return math.inf if feed is None else -(-feed.left(step) // unit)


def in_chunks(
    advance: Callable[[State, Array], State],
    state: State,
    total: int,
    seconds: float = 0.5,
    *,
    done: int = 0,
    every: int | None = None,
    agree: Callable[[int], int] = int,
    most: Callable[[int], int | float] = lambda done: math.inf,
) -> Iterator[tuple[State, int]]:
    """Call ``advance(state, n)`` until `total` units are done, with n chosen so that a call lasts about `seconds`.

    Yields the state and the number of units done so far, on top of those `done` before; some call ends at each multiple
    of `every`, and after so many done a call is of `most` units at most. The first call is of one unit: it compiles. On
    what the clock says, processes that run together `agree`.
    """
    chunk, timed, every = 1, False, every or total
    while done < total:
        began = time.perf_counter()
        number = int(min(chunk, total - done, every - done % every, most(done)))
        state = jax.block_until_ready(advance(state, np.int32(number)))  # pyright: ignore[reportArgumentType]
        rate = number / max(time.perf_counter() - began, 1e-6)
        done += number
        yield state, done
        if timed:
            chunk = agree(max(1, min(int(rate * seconds), 4 * chunk)))
        timed = True


def sample(chain: Chain, key: Key, *, num_chains: int, num_draws: int, label: str | None = None) -> PyTree:
    """Run the chains through their burn-in, then keep every `chain.thin`-th draw.

    Args:
        chain: what to sample with.
        key: where the randomness comes from.
        num_chains: how many chains to run side by side.
        num_draws: how many draws of each to keep.
        label: what to call the progress bar; None for no bar.

    Returns:
        The draws, with leading axes ``[num_chains, num_draws]``.

    >>> import darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> chain = db.minibatch_chain(posterior, db.sgld(1e-3), data.x, data.y, batch_size=None, burn_in=10, thin=5)
    >>> draws = sample(chain, jax.random.key(1), num_chains=2, num_draws=3)
    >>> draws.network[0].weight.shape
    (2, 3, 10, 2)
    """
    num_draws, num_chains = require_count("num_draws", num_draws), require_count("num_chains", num_chains)
    chain = paced(chain, num_chains)
    chains = start_chains(chain, key, num_chains)
    kept = jax.device_put(nothing_kept(chains, num_draws))
    steps = int(chain.burn_in) + int(chain.thin) * num_draws
    state = chains, kept
    with progress_bar(label or "", steps, quiet=label is None) as show:
        most = functools.partial(unchanged, chain)
        for state, done in in_chunks(lambda now, n: collect(fed(chain, now[0].step), now, n), state, steps, most=most):
            raise_on_failure(chain, state[0])
            show(done)
    return state[1]


def nothing_kept(chains: Chains, num_draws: int) -> PyTree:
    """Zeros in place of so many draws of each chain."""
    return jax.tree.map(lambda leaf: np.zeros((len(leaf), num_draws, *leaf.shape[1:]), leaf.dtype), chains.draws)


@eqx.filter_jit(donate="all-except-first")
def collect(chain: Chain, state: tuple[Chains, PyTree], steps: Array) -> tuple[Chains, PyTree]:
    """Advance every chain by `steps` steps, and put every `chain.thin`-th draw after burn-in among those kept."""

    def one(_: Array, state: tuple[Chains, PyTree]) -> tuple[Chains, PyTree]:
        chains, kept = step_chains(chain, state[0]), state[1]
        # One loop for burn-in and sampling, as compiling NUTS twice takes longer than most runs of it: each step's draw
        # is put where the next kept one belongs, and the last to come there stays; during burn-in, nowhere.
        place = (chains.step - chain.burn_in - 1) // chain.thin
        outside = len(jax.tree.leaves(kept)[0][0])
        place = jnp.where(chains.step > chain.burn_in, place, outside)
        return chains, jax.tree.map(lambda all_, now: all_.at[:, place].set(now, mode="drop"), kept, chains.draws)

    return jax.lax.fori_loop(0, steps, one, state)
