"""Algorithm 1 of the paper as one compiled loop: sample, ask, distil.

After the burn-in, a *round* is `chain.thin` steps of every chain. Within it the student takes its turn after every
`update_every` steps; its targets are the predictions of all draws at hand, the present one of each chain and some
picked from each chain's reservoir, averaged. At the end of a round the present draws are offered to the reservoirs and
their predictions at the monitored inputs enter a running average and, at a few of these inputs, a trace. Nothing grows
with the number of draws.

A state depends on the key and the number of steps alone, not on how the steps were cut into chunks, so that a run that
was killed and resumed ends in the same bits. So do the moments at which what is told of a run is written down.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from darkbayes.compiled import compiled_briefly
from darkbayes.data.arrays import as_inputs
from darkbayes.errors import Divergence, InvalidInput, require_count
from darkbayes.mesh import CHAIN, kept, laid
from darkbayes.model.base import as_floats, layers_of
from darkbayes.processes import agreed
from darkbayes.student.beginning import holding
from darkbayes.student.diagnosis import Diagnosis, diagnose
from darkbayes.student.network import Student
from darkbayes.student.queries import Context, Queries
from darkbayes.teacher.chain import (
    Chains,
    burn,
    each,
    fed,
    in_chunks,
    pace,
    paced,
    raise_on_failure,
    start_chains,
    step_chains,
    unchanged,
)
from darkbayes.teacher.keeping import (
    Average,
    Reservoir,
    Trace,
    average_add,
    average_init,
    reservoir_add,
    reservoir_init,
    reservoir_pick,
    trace_add,
    trace_init,
)
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, ArrayLike, Chain, Key, PyTree

REMEDY = "lower its learning rate (try a tenth) or clip its gradients"
HELD_OUT = 256  # Queries that the student does not learn from.
RECENT = 100  # Rounds that the loss is a mean over, nearly.


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a distillation is run; the defaults with one chain are Algorithm 1 to the letter."""

    num_chains: int = 1
    """Chains of the teacher that run side by side."""
    query_batch: int = 100
    """Queries of each update."""
    update_every: int = 1
    """Steps of each chain before the student takes its turn."""
    updates: int = 1
    """Batches of queries that the student asks in its turn, each for an update of its own."""
    repeats: int = 1
    """Updates that it makes by each of them: more where answers cost more than learning them, as of large networks."""
    reservoir: int = 0
    """Past draws to keep per chain; 0 for none."""
    reservoir_picks: int = 1
    """Kept draws per chain that enter each target; 0 to keep draws and not teach with them."""
    restarts: int = 1
    """Students to train from different starting weights on the same targets; `best` is the one to keep."""


def ask(queries: Queries, rows_key: Key, key: Key, number: int, context: Context) -> Array:
    """So many queries of a generator, from training inputs drawn at random."""
    x = as_floats(context.inputs[jax.random.randint(rows_key, (number,), 0, len(context.inputs))])
    asked = queries(key, x, context)
    if asked.shape != x.shape:
        raise InvalidInput(f"queries have shape {asked.shape}, not that of their inputs, {x.shape}")
    return asked


class DistillationState(NamedTuple):
    """All that a distillation carries from round to round."""

    update_key: Key
    keep_key: Key
    teacher: Chains
    reservoir: Reservoir | None
    average: Average
    trace: Trace  # What each chain predicted over the whole run, at a few of the monitored inputs.
    students: PyTree  # The weights of each restart of the student, along the first axis.
    optimisers: PyTree
    updates: Array  # How many updates the student has made.
    failed_update: Array  # The first update of which some loss was not finite; -1 as long as all is well.
    loss: Array  # The mean loss of each student over the last rounds.


class Snapshot(NamedTuple):
    """Where a distillation stands between two chunks."""

    state: DistillationState
    """All that the run goes on from."""
    step: int
    """Steps that each chain has taken."""
    loss: float | None
    """The mean loss of the best student over the last rounds; None during burn-in."""
    divergence: float | None
    """KL(teacher so far || best student), mean over the monitored inputs."""
    marked: bool = False
    """Whether every run of so many steps has a snapshot here, however fast it is."""


class Distillation(eqx.Module):
    """A teacher, a student and where they meet; `distillation` makes and checks one."""

    chain: Chain
    """The teacher."""
    student: Student
    """What learns from it."""
    queries: Queries
    """Where the student asks."""
    settings: Settings
    """How many chains there are, and when the student takes its turn."""
    monitor: Array
    """Inputs at which the two are compared while it runs."""
    updates: Array | None = None
    """Those in the student's turn where their number may change without compiling anew; else the settings say it."""
    mesh: Mesh | None = eqx.field(default=None, static=True)
    """The devices that share the run; None for one."""

    def on(self, mesh: Mesh) -> "Distillation":
        """The same for the devices of a mesh, which divide the chains, and the rows, among them."""
        share = mesh.shape[CHAIN]
        if self.settings.num_chains % share:
            raise InvalidInput(
                f"num_chains={self.settings.num_chains} must be a multiple of the mesh's {share} devices"
            )
        return dataclasses.replace(laid(self, mesh, len(self.chain.inputs)), mesh=mesh)

    def _held(self, state: DistillationState) -> DistillationState:
        """The state where it belongs on the mesh: what is each chain's own along its axis, all else everywhere."""
        if self.mesh is None:
            return state

        def held(part: Any, *own: str) -> Any:
            chains = kept({name: getattr(part, name) for name in own}, self.mesh, CHAIN)
            return kept(part._replace(**dict.fromkeys(own)), self.mesh)._replace(**chains)

        parts = {"teacher": held(state.teacher, "states", "failure"), "trace": held(state.trace, "values")}
        return held(state._replace(**dict.fromkeys(parts)), "reservoir")._replace(**parts)

    @compiled_briefly
    def init(self, key: Key) -> DistillationState:
        """Chains and student at their starting points."""
        teacher_key, student_key, update_key, keep_key = jax.random.split(key, 4)
        teacher = start_chains(self.chain, teacher_key, self.settings.num_chains)
        reservoir = None
        if self.settings.reservoir:
            reservoir = jax.vmap(lambda draw: reservoir_init(self.settings.reservoir, draw))(teacher.draws)
        student_keys = jax.random.split(student_key, self.settings.restarts)
        students = jax.vmap(self.student.init, in_axes=(0, None))(student_keys, self.monitor)
        optimisers, none = jax.vmap(self.student.optimiser.init)(students), jnp.zeros((), jnp.int32)
        predictions = self._predictions(teacher.draws, self.monitor)
        sums = average_init(predictions), trace_init(predictions)
        taught = students, optimisers, none, none - 1, jnp.zeros(self.settings.restarts)
        return self._held(DistillationState(update_key, keep_key, teacher, reservoir, *sums, *taught))

    @compiled_briefly
    def renewed(self, key: Key, state: DistillationState) -> DistillationState:
        """The state with new chains in place of its own, which began by the same key; all that was kept stays.

        So as many chains again are sampled by the same program.
        """
        teacher_key, *_ = jax.random.split(key, 4)
        chains = start_chains(self.chain, teacher_key, self.settings.num_chains, self.settings.num_chains)
        now = state.teacher
        # Not the step's own memory, which is given away once.
        return self._held(state._replace(teacher=now._replace(states=chains.states, begun=now.step + 0)))

    @eqx.filter_jit(donate="all-except-first")
    def burn(self, state: DistillationState, steps: Array) -> DistillationState:
        """Advance the chains alone."""
        return self._held(state._replace(teacher=burn(self.chain, state.teacher, steps, self.mesh)))

    @eqx.filter_jit(donate="all-except-first")
    def advance(self, state: DistillationState, rounds: Array) -> tuple[DistillationState, Array]:
        """Run whole rounds; returns the state and the mean loss of each student over them."""

        def one(number: Array, carry: tuple[DistillationState, Array]) -> tuple[DistillationState, Array]:
            state, mean = carry
            state, loss = self._turns(state)
            passed = jnp.clip((state.teacher.step - self.chain.burn_in) // self.chain.thin, 1, RECENT).astype(
                loss.dtype
            )
            state = self._keep(state._replace(loss=state.loss + (loss - state.loss) / passed))
            return self._held(state), mean + (loss - mean) / (number + 1)

        # What goes in and what comes out is held as well: the draws that students take over lie along chains.
        begun = self._held(self._begun(state)), jnp.zeros(self.settings.restarts)
        state, mean = jax.lax.fori_loop(0, rounds, one, begun)
        return self._held(state), mean

    def _begun(self, state: DistillationState) -> DistillationState:
        """Before the first update, students take over what the draws have found in the burn-in."""
        if not self.student.holds_draws:
            return state
        network, draws, (queries, *_) = self.student.network, state.teacher.draws, self._asked(state, state.updates)
        held = jax.vmap(lambda params: holding(network, params, draws.network, queries))(state.students)
        now = jax.tree.map(lambda own, taken: jnp.where(state.updates == 0, taken, own), state.students, held)
        return state._replace(students=now)

    def _turns(self, state: DistillationState) -> tuple[DistillationState, Array]:
        """The turns between two kept draws, and the mean loss of each student over them."""
        return self._repeated(self._turn, state, self.chain.thin // self.settings.update_every)

    def _turn(self, state: DistillationState) -> tuple[DistillationState, Array]:
        """`update_every` steps of the chains, then the student's updates."""
        step, every = functools.partial(step_chains, self.chain, mesh=self.mesh), self.settings.update_every
        if every == 1:
            teacher = step(state.teacher)
        else:
            teacher, _ = jax.lax.scan(lambda chains, _: (step(chains), None), state.teacher, length=every)
        state = state._replace(teacher=teacher)
        if self.updates is not None:
            return self._repeated(self._update, state, self.updates)
        if self.settings.updates * self.settings.repeats == 1:
            return self._update(state)
        return self._lesson(state)

    def _lesson(self, state: DistillationState) -> tuple[DistillationState, Array]:
        """The answers to all queries of a turn, and then the updates by them, in random order."""
        number, chains, repeats = self.settings.updates, self.settings.num_chains, self.settings.repeats
        # Other keys than those of the reservoirs.
        keys = jax.random.split(jax.random.fold_in(state.keep_key, state.teacher.step), chains + repeats)[chains:]
        # All answers before the first update: on a mesh they are exchanged once.
        *asked, said = jax.lax.map(lambda place: self._answers(state, state.updates + place), jnp.arange(number))
        answers = (*asked, kept(said, self.mesh))
        order = jnp.concatenate([jax.random.permutation(key, number) for key in keys])
        state, losses = jax.lax.scan(lambda state, place: self._learned(state, *at(place, answers)), state, order)
        return state, jnp.mean(losses, axis=0)

    def _repeated(
        self, one: Callable[[Any], tuple[Any, Array]], state: DistillationState, times: int | Array
    ) -> tuple[DistillationState, Array]:
        """`one` so many times, and the mean loss of each student over them."""
        if isinstance(times, int):
            state, losses = jax.lax.scan(lambda state, _: one(state), state, length=times)
            return state, jnp.mean(losses, axis=0)

        def again(_: Array, carry: tuple[DistillationState, Array]) -> tuple[DistillationState, Array]:
            state, losses = one(carry[0])
            return state, carry[1] + losses / times

        return jax.lax.fori_loop(0, times, again, (state, jnp.zeros(self.settings.restarts)))

    def _update(self, state: DistillationState) -> tuple[DistillationState, Array]:
        """One update of each student, by new queries."""
        queries, key, said = self._answers(state, state.updates)
        # All predictions on all devices: one exchange, where sums over them would be several, one after the other.
        return self._learned(state, queries, key, kept(said, self.mesh))

    def _answers(self, state: DistillationState, number: Array) -> tuple[Array, Key, Any]:
        """The queries of that number, a key that goes with them, and what the draws at hand say of them."""
        queries, key, draws = self._asked(state, number)
        return queries, key, self._predictions(draws, queries)

    def _asked(self, state: DistillationState, number: Array) -> tuple[Array, Key, PyTree]:
        """The queries of that number, a key that goes with them, and the draws at hand."""
        rows_key, query_key, pick_key = jax.random.split(jax.random.fold_in(state.update_key, number), 3)
        draws = self._draws_at_hand(state, pick_key)
        context = Context(self.chain.posterior, draws, self.chain.inputs)
        queries = ask(self.queries, rows_key, query_key, self.settings.query_batch, context)
        return queries, query_key, draws

    def _learned(
        self, state: DistillationState, queries: Array, key: Key, said: Any
    ) -> tuple[DistillationState, Array]:
        """One update of each student by queries and what was said of them."""
        targets = self.student.head.seen(jax.random.fold_in(key, 0), said)
        update = functools.partial(self.student.update, x=queries, targets=targets)
        students, optimisers, losses = each(update, state.students, state.optimisers)
        wrong = (state.failed_update < 0) & ~jnp.all(jnp.isfinite(losses))
        failed = jnp.where(wrong, state.updates, state.failed_update)
        updated = {"students": students, "optimisers": optimisers, "updates": state.updates + 1}
        return state._replace(**updated, failed_update=failed), losses

    def _draws_at_hand(self, state: DistillationState, key: Key) -> PyTree:
        """The present draw of each chain, and some from its reservoir, along one axis.

        Of chains that took the place of others all are from the reservoirs: the others count no less than they do.
        """
        if state.reservoir is None or self.settings.reservoir_picks == 0:
            return state.teacher.draws
        keys, number = jax.random.split(key, self.settings.num_chains), 1 + self.settings.reservoir_picks
        present, renewed = state.teacher.draws, state.teacher.begun > 0
        picked = jax.vmap(lambda key, kept, now: reservoir_pick(key, kept, number, now))(keys, state.reservoir, present)

        # Chain by chain, so that none of them need leave the device that has it.
        def join(now: Array, past: Array) -> Array:
            first = jnp.where(renewed, past[:, 0], now)
            return jnp.concatenate([first[:, None], past[:, 1:]], axis=1).reshape(len(now) * number, *now.shape[1:])

        return jax.tree.map(join, present, picked)

    def _keep(self, state: DistillationState) -> DistillationState:
        """Offer the present draws to the reservoirs, and what they predict to the running average and the trace."""
        reservoir = state.reservoir
        if reservoir is not None:
            keys = jax.random.split(jax.random.fold_in(state.keep_key, state.teacher.step), self.settings.num_chains)
            reservoir = jax.vmap(reservoir_add)(keys, reservoir, state.teacher.draws)
        predictions = self._predictions(state.teacher.draws, self.monitor)
        average, trace = average_add(state.average, predictions), trace_add(state.trace, predictions)
        return state._replace(reservoir=reservoir, average=average, trace=trace)

    def _predictions(self, draws: PyTree, x: Array) -> Any:
        posterior = self.chain.posterior
        said = eqx.Partial(lambda posterior, x, draw: posterior.distribution(draw, x), posterior, x)
        return each(said, draws, in_turn=pace(posterior), mesh=self.mesh)

    def paced(self, decide: Callable[[Callable[[], bool]], bool] = lambda measure: measure()) -> "Distillation":
        """The same with its chains' pace settled, as `teacher.chain.paced` does."""
        return dataclasses.replace(self, chain=paced(self.chain, self.settings.num_chains, decide))

    @compiled_briefly
    def divergences(self, state: DistillationState) -> Array:
        """KL(teacher so far || student) of each student, mean over the monitored inputs."""
        student, x = self.student, self.monitor
        divergences = jax.vmap(lambda params: jnp.mean(student.divergence(params, state.average, x)))(state.students)
        return kept(divergences, self.mesh)

    def best(self, state: DistillationState) -> PyTree:
        """The weights of the student that is closest to the teacher at the monitored inputs."""
        winner = winners(self.divergences(state), state)
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[winner]), state.students)

    def diagnose(self, state: DistillationState, curve: Sequence[tuple[int, float]] = ()) -> Diagnosis:
        """Judge a finished run by its state and by its divergence over time, ``(step, KL)`` of the snapshots."""
        return diagnose([(self.chain, state)], [float(np.nanmin(self.divergences(state)))], curve)

    def check_steps(self, steps: int) -> int:
        """Refuse a length that ends before the first draw is kept."""
        burn_in, thin = int(self.chain.burn_in), int(self.chain.thin)
        if require_count("steps", steps) < burn_in + thin:
            least = f"at least {burn_in + thin} (burn_in={burn_in} and thin={thin})"
            raise InvalidInput(f"steps={steps} ends before the first draw is kept: use {least}")
        return int(steps)

    def run(self, state: DistillationState, steps: int, deadline: float | None = None) -> Iterator[Snapshot]:
        """Run until every chain has taken `steps` steps, burn-in included; yields about twice a second and at marks.

        It ends before if `deadline`, a moment of ``time.time()``, has passed and half of the lessons are over. What is
        left over when the steps after burn-in are no multiple of `chain.thin` is not run. The memory of `state`, and of
        each snapshot's state once the next is asked for, is given to what follows: copy what is to be kept.
        """
        return run_rounds(self, self.chain, state, self.check_steps(steps), deadline)


def distillation(
    chain: Chain, student: Student, queries: Queries, settings: Settings | None = None, monitor: Any = None
) -> Distillation:
    """Check the parts against each other and put them together.

    Args:
        chain, student, queries: the teacher, the student, and where it asks.
        settings: how to run it.
        monitor: inputs at which the teacher's predictions are averaged and compared with the student's while it runs;
            256 queries that the student does not learn from by default.

    Returns:
        The parts, ready to be run.
    """
    given, least = vars(settings or Settings()), {"reservoir": 0, "reservoir_picks": 0}
    settings = Settings(**{name: require_count(name, value, least.get(name, 1)) for name, value in given.items()})
    if int(chain.thin) % settings.update_every:
        why = "so that the student's turns fit between two kept draws"
        raise InvalidInput(f"update_every={settings.update_every} must divide the chain's thin={chain.thin}, {why}")
    student.check(chain.inputs)
    draw = eqx.filter_eval_shape(chain.init, jax.random.key(0)).params
    says = eqx.filter_eval_shape(chain.posterior.distribution, draw, chain.inputs)
    student.head.check_teacher(chain.posterior.likelihood, says)
    if student.holds_draws:
        for network in (student.network, chain.posterior.network):
            layers_of(network)  # Which refuses those that do not tell them.
    if monitor is not None:
        inputs = as_inputs(monitor, keep_bytes=True)
        given, wanted = inputs.shape[1:], chain.inputs.shape[1:]
        if given != wanted:
            raise InvalidInput(f"monitor has inputs of shape {given}, but the teacher's are of shape {wanted}")
    else:
        # Under a key of their own, which no run's key leads to.
        init_key, rows_key, query_key = jax.random.split(jax.random.key(HELD_OUT), 3)
        draws = jax.tree.map(lambda leaf: leaf[None], chain.init(init_key).params)
        inputs = ask(queries, rows_key, query_key, HELD_OUT, Context(chain.posterior, draws, chain.inputs))
    parts = Distillation(chain, student, queries, settings, inputs)
    # What cannot be traced is found now, not after the burn-in.
    eqx.filter_eval_shape(parts._update, eqx.filter_eval_shape(parts.init, jax.random.key(0)))
    return parts


def run_rounds(
    parts: Any, chain: Chain, state: DistillationState, steps: int, deadline: float | None
) -> Iterator[Snapshot]:
    """`Distillation.run`, of one run or of several side by side, whose losses and divergences are averaged."""
    done, burnt = steps_of(state.teacher.step), steps_of(state.teacher.begun) + int(chain.burn_in)
    agree = int if getattr(parts, "mesh", None) is None else agreed

    def seeing(state: DistillationState) -> Any:
        """The parts with the rows of the present step."""
        streamed = getattr(chain, "feed", None) is not None
        return dataclasses.replace(parts, chain=fed(chain, steps_of(state.teacher.step))) if streamed else parts

    common: Any = {"agree": agree, "most": lambda further: unchanged(chain, done + further)}
    for state, _ in in_chunks(lambda now, n: seeing(now).burn(now, n), state, min(burnt, steps) - done, **common):
        raise_on_failure(chain, state.teacher)
        yield Snapshot(state, steps_of(state.teacher.step), None, None)
    # None of a run that has gone on with new chains already.
    passed, rounds = (max(one - burnt, 0) // int(chain.thin) for one in (steps_of(state.teacher.step), steps))
    every, carry = max(1, math.isqrt(rounds) // 2), (state, np.zeros(()))
    thin = int(chain.thin)
    common |= {"done": passed, "every": every, "most": lambda done: unchanged(chain, burnt + done * thin, thin)}
    for carry, done in in_chunks(lambda now, n: seeing(now[0]).advance(now[0], n), carry, rounds, **common):
        state = carry[0]
        raise_on_failure(chain, state.teacher)
        failed = np.atleast_1d(state.failed_update)
        if (failed >= 0).any():
            first = failed[failed >= 0][0]
            raise Divergence(f"the student diverged: the loss of its update {first} was not finite; {REMEDY}")
        divergences = np.asarray(parts.divergences(state))
        winner = np.expand_dims(winners(divergences, state), -1)
        of_best = [float(np.take_along_axis(np.asarray(one), winner, -1).mean()) for one in (state.loss, divergences)]
        step = steps_of(state.teacher.step)
        late = deadline is not None and bool(agree(time.time() > deadline)) and 2 * step > steps + burnt
        yield Snapshot(state, step, *of_best, marked=done % every == 0 or done == rounds or late)
        if late:
            return


def steps_of(count: Array) -> int:
    """A counter of the compiled loop as a number; runs side by side count alike."""
    return int(np.ravel(count)[0])


def winners(divergences: ArrayLike, state: DistillationState) -> np.ndarray:
    """The student closest to its teacher, of each run where there are several; one that is not finite never wins."""
    known = np.where(np.isnan(divergences), np.inf, divergences)
    if not np.isfinite(known).any(axis=-1).all():
        after = f"after {steps_of(state.updates)} updates"
        raise Divergence(f"the student diverged: {after} it predicts nothing finite; {REMEDY}")
    return known.argmin(axis=-1)
