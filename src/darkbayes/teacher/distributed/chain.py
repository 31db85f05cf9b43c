"""Distributed SGLD (Ahn, Shahbaba and Welling, 2014): data stay where they are, chains travel.

Each process holds a shard of the data, N_s of the N examples, and a group of chains. In a round the chains at shard s
take tau_s steps, a *trajectory*, with minibatches of M of its examples and the gradient

    g_s(theta) = grad log p(theta) + N_s/(M q_s) sum_i grad log p(y_i | x_i, theta),    q_s = tau_s / sum_r tau_r,

then every group is handed to another process (`tours.py`), with the state of its sampler, any optax transformation.

**Why it is right.** Every chain gets one trajectory at each shard in a tour, a share q_s of its steps at shard s, so
its drift averaged over a tour is that of all data (`Posterior.of_shard` has the sum), for shards of any sizes and
trajectories of any lengths. (With a step size that falls, q_s is a share of the sum of step sizes: let it change little
within a tour.)

**Why lengths follow speed.** A round ends when the slowest is done. With tau_s in proportion to the steps a second that
worker s makes, all end together. Lengths change only between two tours, so that no tour mixes two sets of shares.

**How exact.** Within a trajectory the chain leans towards the posterior of that shard. With h the product of step size,
trajectory and curvature, what is sampled is off by O(h^2) besides SGLD's own O(step size): the first power of h cancels
as tours change direction, over draws kept at the end of every round of two tours. On a linear model the exact law
solves a discrete Lyapunov equation over two tours, with which tests/teacher/distributed compares. The step size must
suit the stiffest shard, whose curvature N_s/q_s times that of an example may exceed that of all data.
"""

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from darkbayes.checkpoints import checkpoint_steps, drop_checkpoints, load_checkpoint, plain, save_checkpoint
from darkbayes.data.arrays import as_data, as_inputs, check_batch_size
from darkbayes.errors import InvalidInput, RunError, require_count
from darkbayes.model import Draw, Posterior
from darkbayes.processes import attempt, gather, require_alike
from darkbayes.progress import progress_bar
from darkbayes.teacher.chain import Chains, MinibatchChain, burn, each, pace, raise_on_failure, start_chains
from darkbayes.teacher.distributed.tours import lengths_by_speed, move_after, paths_of_groups, shares_of
from darkbayes.teacher.distributed.workers import hand_on, place, replicate, stop_asked
from darkbayes.teacher.gradients.base import minibatch_gradients
from darkbayes.teacher.keeping import Average, average_add, average_init
from darkbayes.types import Array, Data, Key, PyTree

SAVE_SECONDS = 10.0  # How much work a killed run with a folder loses at most, about.
TIMED_ROUNDS = 5  # How many rounds at least each worker times, before the lengths of trajectories follow speed.


class TourState(NamedTuple):
    """All that a process carries from round to round."""

    key: Key  # The key of the run, to know it again.
    examples: np.ndarray  # How many there are in each shard.
    round: np.ndarray
    lengths: np.ndarray  # Steps of a trajectory at each worker.
    settled: np.ndarray  # Whether the lengths are final.
    chains: Chains  # Those that are here now.
    kept: PyTree  # What their draws have left here.


class DistributedChain(eqx.Module):
    """Chains that travel between the processes, each of which holds a shard of the data; `distributed_chain` makes one.

    `sample` and `average` are called by all processes alike, and all get the same result.
    """

    posterior: Posterior
    transformation: optax.GradientTransformationExtraArgs
    data: Data  # The shard of this process.
    batch_size: int | None
    burn_in: int
    examples: tuple[int, ...]
    lengths: tuple[int, ...]
    follow_speed: bool

    def at_shard(self, lengths: Sequence[int] | np.ndarray) -> MinibatchChain:
        """The chain as it runs on the shard of this process, if trajectories have these lengths."""
        here = jax.process_index()
        posterior = self.posterior.of_shard(self.examples[here], shares_of(lengths)[here])
        return MinibatchChain(posterior, self.transformation, self.data, self.batch_size, 0, 1, minibatch_gradients())

    def sample(
        self,
        key: Key,
        *,
        num_draws: int,
        num_chains: int = 1,
        folder: Path | str | None = None,
        save_seconds: float = SAVE_SECONDS,
        label: str | None = None,
    ) -> Draw:
        """Keep the draw of every chain at the end of each round.

        Args:
            key: where the randomness comes from, the same on all processes.
            num_draws: how many draws of each chain to keep; best a multiple of twice the processes (two tours).
            num_chains: chains of each process; a multiple of its devices.
            folder: where to save checkpoints, and to go on from the last if there is one. Each process writes its
                own part, so that the folder may be on a common disk or on one of its own.
            save_seconds: how much time to let pass between two checkpoints.
            label: what to call the progress bar of the first process; None for no bar.

        Returns:
            The draws on every process, with leading axes ``[processes * num_chains, num_draws]``, a row per chain.
        """

        def nothing(draws: Draw) -> Draw:
            return jax.tree.map(lambda leaf: jnp.zeros((len(leaf), num_draws, *leaf.shape[1:]), leaf.dtype), draws)

        kept = self._run(nothing, _put, key, num_draws, num_chains, folder, save_seconds, label)

        def of_groups(leaf: np.ndarray) -> Array:
            by_round = np.moveaxis(leaf, 2, 1)  # [workers, rounds, chains, ...]
            paths = np.moveaxis(paths_of_groups(by_round, self.burn_in), 1, 2)
            return jnp.asarray(paths.reshape(-1, *paths.shape[2:]))

        return jax.tree.map(of_groups, gather(kept))

    def average(self, key: Key, x: Any, *, num_draws: int, **settings: Any) -> Average:
        """What all draws predict together at `x`, in memory that does not grow with their number.

        The arguments are those of `sample`, and `x` the same on all processes; `darkbayes.predict_average` makes
        predictions of the result.
        """
        x = replicate(as_inputs(x))

        def add(draws: Draw, average: Average, number: Array) -> Average:
            return _add(self.posterior, average, draws, x)

        parts = gather(self._run(lambda draws: _empty(self.posterior, draws, x), add, key, num_draws, **settings))
        # All parts have taken in equally many draws.
        mean = jax.tree.map(lambda means: jnp.mean(means, axis=0), parts.mean)
        variance = jax.tree.map(lambda v, m: jnp.mean(v, axis=0) + jnp.var(m, axis=0), parts.variance, parts.mean)
        return Average(jnp.sum(parts.count, dtype=jnp.int32), mean, variance, parts.kind)

    def _run(
        self,
        nothing: Callable[[Draw], PyTree],
        add: Callable[[Draw, PyTree, Array], PyTree],
        key: Key,
        num_draws: int,
        num_chains: int = 1,
        folder: Path | str | None = None,
        save_seconds: float = SAVE_SECONDS,
        label: str | None = None,
    ) -> PyTree:
        num_draws, num_chains = require_count("num_draws", num_draws), require_count("num_chains", num_chains)
        settings = {"num_draws": num_draws, "num_chains": num_chains, "save_seconds": save_seconds}
        require_alike(key=plain(key).tolist(), burn_in=self.burn_in, folder_given=folder is not None, **settings)
        here, workers = jax.process_index(), jax.process_count()
        rounds = self.burn_in + num_draws
        state = self._start(key, num_chains, nothing)
        part = None if folder is None else Path(folder) / f"worker-{here}"
        if part is not None:
            state = self._last_saved(part, state)
        first, shard = int(state.round), self.at_shard(state.lengths)
        saved, times = time.monotonic(), []
        quiet = label is None or here != 0
        with progress_bar(label or "", rounds, quiet=quiet, start=first, unit="rounds") as show:
            for number in range(first, rounds):
                state, seconds = self._round(shard, state, add)
                times.append(seconds)
                show(number + 1)
                end, stop = number + 1 == rounds, stop_asked(number)
                if not (end or stop or (number + 1) % workers == 0):
                    continue
                fine = functools.partial(raise_on_failure, shard, state.chains)
                _, due = attempt(fine, wish=time.monotonic() - saved >= save_seconds)
                if not (end or stop or state.settled) and len(times) > TIMED_ROUNDS:
                    state = _settled(state, times[1:])  # The first one compiled.
                    shard = self.at_shard(state.lengths)
                if part is not None and (due or end or stop):
                    attempt(functools.partial(save_checkpoint, part, state, int(state.round)))
                    saved = time.monotonic()
                if stop and not end:
                    where = "nothing is saved, as there is no folder" if part is None else "start again to go on"
                    raise RunError(f"ended on request (SIGTERM) after round {number + 1} of {rounds}: {where}")
        return state.kept

    def _start(self, key: Key, num_chains: int, nothing: Callable[[Draw], PyTree]) -> TourState:
        devices, here = jax.local_device_count(), jax.process_index()
        if num_chains % devices:
            among = f"the {devices} devices of a process"
            raise InvalidInput(f"num_chains={num_chains} cannot be divided among {among}: use a multiple")
        chains = place(start_chains(self.at_shard(self.lengths), jax.random.fold_in(key, here), num_chains))
        examples, lengths = np.array(self.examples, np.int32), np.array(self.lengths, np.int32)
        number, settled = np.zeros((), np.int32), np.array(not self.follow_speed)
        return TourState(key, examples, number, lengths, settled, chains, nothing(chains.draws))

    def _round(
        self, shard: MinibatchChain, state: TourState, add: Callable[[Draw, PyTree, Array], PyTree]
    ) -> tuple[TourState, float]:
        """A trajectory of the chains that are here, and their departure; also returns how long the trajectory took."""
        number, kept = int(state.round), state.kept
        began = time.perf_counter()
        chains = jax.block_until_ready(burn(shard, state.chains, state.lengths[jax.process_index()]))
        seconds = time.perf_counter() - began
        if number >= self.burn_in:
            kept = add(chains.draws, kept, np.int32(number - self.burn_in))  # pyright: ignore[reportArgumentType]
        chains = hand_on(chains, move_after(number, jax.process_count()))
        return state._replace(round=np.int32(number + 1), chains=chains, kept=kept), seconds

    def _last_saved(self, part: Path, state: TourState) -> TourState:
        """The last round that all processes have saved, or `state` if there is none."""
        mine = attempt(lambda: checkpoint_steps(part))[0][-2:]
        all_parts = gather(np.array([-1] * (2 - len(mine)) + mine, np.int32))
        common = set.intersection(*({int(step) for step in steps if step >= 0} for steps in all_parts))
        if not common and (all_parts[:, 0] >= 0).any():
            rounds = [[int(step) for step in steps if step >= 0] for steps in all_parts]
            none, remedy = "none of which all have", "bring back the missing ones, or choose another folder"
            raise RunError(f"{part.parent} has checkpoints of rounds {rounds} by process, {none}: {remedy}")
        newest = max(common, default=0)

        def load() -> TourState:
            # A round that not all have got to save will be run again.
            drop_checkpoints(part, after=newest)
            stored = load_checkpoint(part, state)
            return state if stored is None else self._checked(part, stored[0], state)

        return attempt(load)[0]

    def _checked(self, part: Path, stored: TourState, fresh: TourState) -> TourState:
        same = {
            "seed": np.array_equal(plain(stored.key), plain(fresh.key)),
            "shards": np.array_equal(stored.examples, fresh.examples),
            "trajectories": self.follow_speed or np.array_equal(stored.lengths, fresh.lengths),
        }
        for name, is_same in same.items():
            if not is_same:
                raise RunError(f"{part} was made with other {name}: choose another folder")
        small = {name: np.asarray(getattr(stored, name)) for name in ("examples", "round", "lengths", "settled")}
        return stored._replace(chains=place(stored.chains), **small)


def distributed_chain(
    posterior: Posterior,
    transformation: optax.GradientTransformation,
    x: Any,
    y: Any,
    *,
    batch_size: int | None,
    trajectory: int | Sequence[int],
    burn_in: int = 0,
) -> DistributedChain:
    """Chains over data that are spread over processes; called by all of them, each with its own shard.

    The processes are those of ``jax.distributed.initialize``, which each calls first. A process alone is a run of one
    shard.

    Args:
        posterior: what to explore; its `num_data` counts the examples of all shards.
        transformation: a sampler such as `sgld`, or an optimiser.
        x, y: the shard of this process; sizes may differ.
        batch_size: examples per step, drawn from the shard with replacement; None for all of it. It may differ too.
        trajectory: steps between two moves, few enough that step size times trajectory times the largest curvature of
            the log posterior is well below 1 (see the head of this file). A number is their mean over the processes:
            they are shared out by the speed that is measured during the first rounds. The bits of a result then depend
            on the clock until the first checkpoint, which holds the lengths. A sequence of one number per process
            is kept as it is.
        burn_in: rounds before the first draw counts. (A round is one trajectory of every chain.)

    Returns:
        The chains, to be run by `sample` or `average` on all processes.

    >>> import darkbayes as db
    >>> # In a script that is started once per process, with its number:
    >>> # jax.distributed.initialize("10.0.0.1:1234", num_processes=4, process_id=number, heartbeat_timeout_seconds=20)
    >>> shard = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> chain = distributed_chain(posterior, db.sgld(1e-2), *shard, batch_size=5, trajectory=[10], burn_in=4)
    >>> draws = chain.sample(jax.random.key(1), num_draws=6, num_chains=2)
    >>> draws.network[0].weight.shape
    (2, 6, 10, 2)
    >>> average = chain.average(jax.random.key(1), [[0.0, 0.0], [1.0, 1.0]], num_draws=6, num_chains=2)
    >>> db.predict_average(average).probs.shape
    (2, 2)
    """

    def check() -> tuple[Data, int | None]:
        data = as_data(x, y)
        posterior.of_shard(len(data.x), share=1.0).check(data)
        return data, check_batch_size(batch_size, len(data.x))

    workers = jax.process_count()
    follow_speed = not isinstance(trajectory, Sequence)
    asked = trajectory if isinstance(trajectory, Sequence) else [trajectory] * workers
    lengths = tuple(require_count("trajectory", length) for length in asked)
    if len(lengths) != workers:
        given = f"{len(lengths)} lengths but there are {workers} processes"
        raise InvalidInput(f"trajectory has {given}: give one for each")
    (data, size), _ = attempt(check)
    require_alike(
        burn_in=require_count("burn_in", burn_in, least=0),
        trajectory=(lengths, follow_speed),
        num_data=posterior.num_data,
        inputs=data.x.shape[1:],
        targets=(data.y.shape[1:], str(data.y.dtype)),
    )
    examples = tuple(int(number) for number in gather(np.int32(len(data.x))))
    if sum(examples) != posterior.num_data:
        made, hold = f"num_data={posterior.num_data} examples", f"{sum(examples)} ({', '.join(map(str, examples))})"
        remedy = f"set num_data={sum(examples)}"
        raise InvalidInput(f"the posterior was made for {made} but the shards hold {hold}: {remedy}")
    transformation, data = optax.with_extra_args_support(transformation), replicate(data)
    return DistributedChain(posterior, transformation, data, size, int(burn_in), examples, lengths, follow_speed)


def _settled(state: TourState, times: list[float]) -> TourState:
    """With lengths that follow the speeds of the workers, as each has measured its own; so far all are alike."""
    speeds = gather(np.float32(1.0 / np.median(times)))
    return state._replace(lengths=lengths_by_speed(int(state.lengths[0]), speeds), settled=np.array(True))


@eqx.filter_jit(donate="all-except-first")
def _put(draws: Draw, kept: Draw, number: Array) -> Draw:
    return jax.tree.map(lambda all_, now: all_.at[:, number].set(now), kept, draws)


@eqx.filter_jit
def _empty(posterior: Posterior, draws: Draw, x: Array) -> Average:
    return average_init(each(lambda draw: posterior.distribution(draw, x), draws, in_turn=pace(posterior)))


@eqx.filter_jit
def _add(posterior: Posterior, average: Average, draws: Draw, x: Array) -> Average:
    return average_add(average, each(lambda draw: posterior.distribution(draw, x), draws, in_turn=pace(posterior)))
