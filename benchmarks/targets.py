"""How many draws a student's targets should be averaged over, at equal numbers of gradients and of updates.

    darkbayes bench targets --out results/targets.json --figure docs/targets.png

On the 2-D toy a student 2-10-10-2 makes the same number of updates, and all chains together take the same number of
steps: one chain and its present draw (Algorithm 1 to the letter); four chains; sixteen; sixteen, each with three more
draws from its reservoir.
"""

import dataclasses
from typing import Any

import jax
import optax

from benchmarks import toy
from benchmarks.common import say
from darkbayes import metrics
from darkbayes.data import toy2d
from darkbayes.model import mlp
from darkbayes.outcomes.heads.classes import SoftmaxHead
from darkbayes.predict import predict_average, predict_draws, predict_student
from darkbayes.runs import row
from darkbayes.student import Settings, Student, distillation, side_by_side
from darkbayes.student.queries import uniform_box
from darkbayes.teacher import minibatch_chain, nuts_chain, sample
from darkbayes.teacher.samplers import sgld
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key

UPDATES = 48_000
MOST_CHAINS = 16
THIN = 64
BURN_IN = 2_048

KINDS = {
    1: Settings(num_chains=1, update_every=16),
    4: Settings(num_chains=4, update_every=4),
    16: Settings(num_chains=16),
    64: Settings(num_chains=16, reservoir=64, reservoir_picks=3),
}
"""By the number of draws that a target averages."""


def rows(*, seed: int, quiet: bool, updates: int = UPDATES, trials: int = 5) -> list[dict[str, Any]]:
    """The student's and the teacher's KL from NUTS for each number of draws."""
    grid = toy.grid(41)
    data = [toy2d(key) for key in jax.random.split(jax.random.key(seed), trials)]
    truth = []
    for examples in data:
        say("truth by NUTS", quiet=quiet)
        chain = nuts_chain(toy.POSTERIOR, *examples, burn_in=min(500, updates))
        draws = sample(chain, jax.random.key(seed), num_chains=4, num_draws=min(4_000, updates))
        truth.append(predict_draws(toy.POSTERIOR, draws, grid))
    results = []
    for number, settings in KINDS.items():
        say(f"{number} draws", quiet=quiet)
        taught, student = _distilled(data, grid, settings, updates, jax.random.key(seed + 1))
        for metric, predictives in (("kl_student", student), ("kl_teacher", taught)):
            divergences = [metrics.kl(*pair) for pair in zip(truth, predictives, strict=True)]
            results.append(row(f"{number} draws", metric, divergences) | {"draws": number})
    return results


def _distilled(
    data: list[Data], grid: Array, settings: Settings, updates: int, key: Key
) -> tuple[list[Any], list[Any]]:
    """What the teachers and the students of all trials predict on the grid."""
    slower = MOST_CHAINS // settings.num_chains
    sampler = sgld(1e-2)
    network = mlp([10, 10], 2)
    student = Student(network, SoftmaxHead(2), optax.adam(optax.cosine_decay_schedule(3e-3, updates)))
    queries = uniform_box(-10.0, 10.0)
    settings = dataclasses.replace(settings, query_batch=100)
    runs = []
    for examples in data:
        teacher = minibatch_chain(
            toy.POSTERIOR, sampler, *examples, batch_size=None, burn_in=BURN_IN * slower, thin=THIN * slower
        )
        runs.append(distillation(teacher, student, queries, settings, monitor=grid))
    parts = side_by_side(runs)
    state = parts.init(key)
    for snapshot in parts.run(state, (BURN_IN + updates) * slower):
        state = snapshot.state
    weights = parts.best(state)

    places = range(len(data))
    return (
        [predict_average(at(k, state.average)) for k in places],
        [predict_student(student, at(k, weights), grid) for k in places],
    )
