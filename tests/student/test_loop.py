"""Algorithm 1 as a compiled loop: counted with a teacher that counts, and compared with the algorithm by hand."""

import itertools
from collections import Counter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import special, stats

import darkbayes as db
from darkbayes.types import Info

pytestmark = pytest.mark.usefixtures("strict")


# A teacher that counts: its draw is the number of steps it has taken, and it predicts N(draw, 1) everywhere.


class CountingPosterior(eqx.Module):
    likelihood: Any = db.outcomes.Gaussian(1.0)

    def distribution(self, draw: jax.Array, x: jax.Array) -> db.outcomes.Normal:
        return db.outcomes.Normal(jnp.full((len(x), 1), draw), jnp.ones((len(x), 1)))


class CountingState(NamedTuple):
    params: jax.Array


class CountingChain(eqx.Module):
    burn_in: int = 0
    thin: int = 1
    begins_at: float = 0.0
    breaks_at: int = -1
    """The step whose draw is infinite; the log posterior tells so at the start of the step after it."""
    posterior: CountingPosterior = CountingPosterior()
    inputs: jax.Array = eqx.field(default_factory=lambda: jnp.zeros((3, 1)))

    def init(self, key: jax.Array) -> CountingState:
        return CountingState(jnp.float32(self.begins_at))

    def step(self, key: jax.Array, state: CountingState) -> tuple[CountingState, Info]:
        now = jnp.where(state.params == self.begins_at, 0.0, state.params) + 1
        return CountingState(jnp.where(now == self.breaks_at, jnp.inf, now)), Info(-state.params)


def mute_student(learning_rate: Any = 0.0) -> db.Student:
    """A student that always says N(0, 1), so that its loss tells the mean square of the draws that it hears of."""
    network = db.Network(lambda key, x: jnp.zeros(2), lambda params, x: jnp.broadcast_to(params[None], (len(x), 2)))
    return db.Student(network, db.outcomes.GaussianHead(), optax.sgd(learning_rate))


def mean_square(loss: jax.Array) -> np.ndarray:
    return 2 * np.asarray(loss, np.float64) - np.log(2 * np.pi) - 1


def counting(chain: CountingChain, **settings: int) -> tuple[db.student.Distillation, Any]:
    parts = db.distillation(chain, mute_student(), db.queries.training_inputs(), db.Settings(query_batch=2, **settings))
    return parts, parts.burn(parts.init(jax.random.key(0)), np.int32(chain.burn_in))


def test_the_defaults_are_those_of_algorithm_1() -> None:
    assert db.Settings() == db.Settings(
        num_chains=1, query_batch=100, update_every=1, updates=1, repeats=1, reservoir=0, reservoir_picks=1, restarts=1
    )


def test_the_student_hears_of_every_draw_after_burn_in_by_default() -> None:
    parts, state = counting(CountingChain(burn_in=5))
    state, loss = parts.advance(state, np.int32(3))
    np.testing.assert_allclose(mean_square(loss), np.mean(np.square([6, 7, 8])), rtol=1e-6)
    assert int(state.teacher.step) == 8
    assert int(state.updates) == 3


@pytest.mark.parametrize(
    ("thin", "update_every", "updates", "heard"),
    [(4, 2, 1, [7, 9, 11, 13]), (4, 4, 1, [9, 13]), (4, 1, 1, list(range(6, 14))), (4, 2, 2, [7, 9, 11, 13])],
)
def test_the_student_takes_its_turn_as_often_as_it_is_told(
    thin: int, update_every: int, updates: int, heard: list[int]
) -> None:
    parts, state = counting(CountingChain(burn_in=5, thin=thin), update_every=update_every, updates=updates)
    state, loss = parts.advance(state, np.int32(2))
    np.testing.assert_allclose(mean_square(loss), np.mean(np.square(heard)), rtol=1e-6)
    assert int(state.updates) == 2 * thin // update_every * updates
    assert int(state.teacher.step) == 5 + 2 * thin


def test_answers_may_be_learned_from_several_times() -> None:
    """By so many updates, and no further steps of the chain; each batch as often as any other."""
    parts, state = counting(CountingChain(burn_in=5, thin=4), update_every=4, updates=3, repeats=5)
    state, loss = parts.advance(state, np.int32(2))
    np.testing.assert_allclose(mean_square(loss), np.mean(np.square([9, 13])), rtol=1e-6)
    assert int(state.updates) == 2 * 3 * 5
    assert int(state.teacher.step) == 13


@pytest.mark.parametrize("repeats", [1, 3])
def test_every_batch_of_a_turn_is_learned_from_as_often_as_any_other(repeats: int) -> None:
    """By a student that stays where it is and adds up its gradients, which are -4 times the mean of the queries."""
    network = db.Network(lambda key, x: jnp.zeros(()), lambda slope, x: jnp.concatenate([slope * x, 0.0 * x], axis=1))
    added = optax.GradientTransformation(jnp.zeros_like, lambda grads, state, _: (jnp.zeros_like(grads), state + grads))
    student = db.Student(network, db.outcomes.GaussianHead(), added)
    settings = db.Settings(query_batch=2, update_every=4, updates=4, repeats=repeats)
    parts = db.distillation(CountingChain(thin=4), student, db.queries.jitter(1.0), settings)
    state = parts.init(jax.random.key(0))
    asked = [float(jnp.mean(parts._answers(state, jnp.int32(number))[0])) for number in range(4)]
    state, _ = parts.advance(state, np.int32(1))
    np.testing.assert_allclose(state.optimisers[0], -4 * repeats * np.sum(asked), rtol=1e-5)


def test_the_number_of_updates_may_be_an_array() -> None:
    parts, state = counting(CountingChain(thin=2))
    parts = eqx.tree_at(lambda parts: parts.updates, parts, jnp.int32(3), is_leaf=lambda leaf: leaf is None)
    with jax.numpy_dtype_promotion("standard"):
        state, loss = parts.advance(state, np.int32(2))
    np.testing.assert_allclose(mean_square(loss), np.mean(np.square([1, 2, 3, 4])), rtol=1e-6)
    assert int(state.updates) == 12


@pytest.mark.parametrize("num_chains", [1, 3])
def test_draws_before_burn_in_never_reach_the_average(num_chains: int) -> None:
    parts, state = counting(CountingChain(burn_in=5, thin=4, begins_at=1e6), num_chains=num_chains)
    assert int(state.average.count) == 0
    state, _ = parts.advance(state, np.int32(3))
    assert int(state.average.count) == 3 * num_chains
    np.testing.assert_allclose(state.average.mean["mean"], np.mean([9, 13, 17]), rtol=1e-6)
    np.testing.assert_allclose(state.average.variance["mean"], np.var([9, 13, 17]), rtol=1e-6)


def test_the_reservoir_is_offered_one_draw_a_round_and_chain() -> None:
    """And keeps any two of them with the same probability; fails by chance with 1e-4 for another seed."""
    parts, state = counting(CountingChain(burn_in=5, thin=4), num_chains=3000, reservoir=2, reservoir_picks=3)
    state, _ = parts.advance(state, np.int32(6))
    np.testing.assert_array_equal(state.reservoir.count, 6)
    kept = Counter(map(tuple, np.sort(np.asarray(state.reservoir.slots)).tolist()))
    assert kept.keys() == set(itertools.combinations((9, 13, 17, 21, 25, 29), 2))
    assert stats.chisquare(list(kept.values())).pvalue > 1e-4


def test_targets_average_the_present_draw_and_the_picked_ones() -> None:
    parts, state = counting(CountingChain(), reservoir=1, reservoir_picks=3)
    state, _ = parts.advance(state, np.int32(1))
    state, loss = parts.advance(state, np.int32(1))
    np.testing.assert_allclose(mean_square(loss), (2**2 + 3 * 1**2) / 4, rtol=1e-6)


def test_draws_before_burn_in_never_reach_the_student_through_the_reservoir() -> None:
    parts, state = counting(CountingChain(burn_in=5, thin=2, begins_at=1000.0), reservoir=4)
    _, loss = parts.advance(state, np.int32(1))
    np.testing.assert_allclose(mean_square(loss), np.mean(np.square([6, 7])), rtol=1e-6)


def test_restarts_hear_the_same_from_different_starts() -> None:
    network = db.mlp([3], 2)
    student = db.Student(network, db.outcomes.GaussianHead(), optax.sgd(1e-3))
    parts = db.distillation(CountingChain(), student, db.queries.jitter(1.0), db.Settings(query_batch=4, restarts=3))
    state, losses = parts.advance(parts.init(jax.random.key(0)), np.int32(2))
    assert losses.shape == (3,)
    assert len(np.unique(losses)) == 3
    assert int(state.updates) == 2
    best = parts.best(state)
    winner = int(np.argmin(parts.divergences(state)))
    np.testing.assert_array_equal(best[0].weight, state.students[0].weight[winner])


def test_run_burns_in_and_then_runs_whole_rounds() -> None:
    parts = db.distillation(CountingChain(burn_in=5, thin=4), mute_student(), db.queries.training_inputs())
    snapshots = [
        (snapshot.step, snapshot.loss, snapshot.divergence) for snapshot in parts.run(parts.init(jax.random.key(0)), 20)
    ]
    steps = [step for step, *_ in snapshots]
    assert steps == sorted(steps)
    assert steps[-1] == 17  # 5 + 3 * 4; another round would end at 21.
    assert all((loss is None) == (step <= 5) for step, loss, _ in snapshots)


def test_a_run_goes_on_where_a_state_stands(trees_equal: Any) -> None:
    parts = db.distillation(CountingChain(burn_in=5, thin=4), mute_student(1e-3), db.queries.training_inputs())
    *_, whole = parts.run(parts.init(jax.random.key(0)), 29)
    *_, first = parts.run(parts.init(jax.random.key(0)), 13)
    *_, second = parts.run(first.state, 29)
    assert trees_equal(whole.state, second.state)
    *_, early = parts.run(parts.burn(parts.init(jax.random.key(0)), np.int32(3)), 29)
    assert trees_equal(whole.state, early.state)


# A real teacher: logistic regression.


@pytest.fixture(scope="module")
def posterior(logistic: db.Network) -> db.Posterior:
    return db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.5), num_data=20)


@pytest.fixture(scope="module")
def teacher(posterior: db.Posterior, classes: db.Data) -> db.types.Chain:
    return db.minibatch_chain(posterior, db.sgld(0.02), *classes, batch_size=3)


@pytest.fixture(scope="module")
def student(logistic: db.Network) -> db.Student:
    return db.Student(logistic, db.outcomes.SoftmaxHead(2), optax.sgd(0.3), prior_precision=0.01)


FULL = db.Settings(num_chains=2, query_batch=4, update_every=2, updates=2, reservoir=3, reservoir_picks=2, restarts=2)


@pytest.fixture(scope="module")
def full(posterior: db.Posterior, classes: db.Data, student: db.Student) -> db.student.Distillation:
    """All features at once."""
    chain = db.minibatch_chain(posterior, db.sgld(0.02), *classes, batch_size=3, thin=4)
    return db.distillation(
        chain, student, db.queries.mix(db.queries.jitter(0.5), db.queries.uniform_box(-5.0, 5.0), 0.5), FULL
    )


def test_algorithm_1_to_the_letter(teacher: Any, student: db.Student, classes: db.Data) -> None:
    """Five iterations by hand in numpy, with hand-derived gradients, given the same random numbers."""
    settings = db.Settings(query_batch=4)
    parts = db.distillation(teacher, student, db.queries.jitter(0.5), settings)
    state = parts.init(jax.random.key(5))
    theta = np.asarray(state.teacher.draws.network[0], np.float64)
    w = np.asarray(state.students[0], np.float64)
    step_key, update_key = jax.random.clone(state.teacher.key), jax.random.clone(state.update_key)
    state, _ = parts.advance(state, np.int32(5))

    x, y = np.asarray(classes.x, np.float64), np.asarray(classes.y)
    eta, rho, prior, gamma, examples, batch_size = 0.02, 0.3, 1.5, 0.01, 20, 3
    for t in range(5):
        # Train the teacher (SGLD step).
        (chain_key,) = jax.random.split(jax.random.fold_in(step_key, t), 1)
        batch_key, noise_key = jax.random.split(chain_key)
        rows = np.asarray(jax.random.randint(batch_key, (batch_size,), 0, examples))
        z = np.sqrt(eta) * np.asarray(jax.random.normal(noise_key, (4,))).reshape(2, 2)
        residuals = np.eye(2)[y[rows]] - special.softmax(x[rows] @ theta, axis=1)
        theta = theta + eta / 2 * (-prior * theta + examples / batch_size * x[rows].T @ residuals) + z
        # Train the student (SGD step).
        rows_key, query_key, _ = jax.random.split(jax.random.fold_in(update_key, t), 3)
        rows = np.asarray(jax.random.randint(rows_key, (4,), 0, examples))
        queries = x[rows] + 0.5 * np.asarray(jax.random.normal(query_key, (4, 2)))
        gap = special.softmax(queries @ w, axis=1) - special.softmax(queries @ theta, axis=1)
        w = w - rho * (queries.T @ gap / 4 + gamma * w)

    np.testing.assert_allclose(state.teacher.draws.network[0], theta, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.students[0], w, rtol=1e-4, atol=1e-6)


def test_the_loop_compiles_once_whatever_the_length_of_its_chunks(
    full: db.student.Distillation, compilations: Counter[str]
) -> None:
    state = full.init(jax.random.key(0))
    for rounds in (1, 3, 2, 7):
        state, _ = full.advance(state, np.int32(rounds))
    for steps in (1, 5):
        state = full.burn(state, np.int32(steps))
    assert compilations["advance"] == 1
    assert compilations["burn"] == 1


def test_a_whole_run_compiles_each_of_its_parts_once(
    teacher: Any, student: db.Student, compilations: Counter[str], posterior: db.Posterior, classes: db.Data
) -> None:
    chain = db.minibatch_chain(posterior, db.sgld(0.02), *classes, batch_size=3, burn_in=20)
    parts = db.distillation(chain, student, db.queries.jitter(0.5))
    snapshots = sum(1 for _ in parts.run(parts.init(jax.random.key(0)), 5000))
    assert snapshots > 4
    assert {name: compilations[name] for name in ("init", "burn", "advance", "divergences")} == {
        "init": 1,
        "burn": 1,
        "advance": 1,
        "divergences": 1,
    }


def test_a_state_does_not_depend_on_how_its_steps_were_cut(full: db.student.Distillation, trees_equal: Any) -> None:
    start = full.burn(full.init(jax.random.key(1)), np.int32(3))
    whole, _ = full.advance(start, np.int32(7))
    start = full.burn(full.burn(full.init(jax.random.key(1)), np.int32(1)), np.int32(2))
    cut, _ = full.advance(start, np.int32(3))
    cut, _ = full.advance(cut, np.int32(4))
    assert trees_equal(whole, cut)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(
    full: db.student.Distillation, trees_equal: Any
) -> None:
    first, second, other = (full.advance(full.init(jax.random.key(seed)), np.int32(4))[0] for seed in (2, 2, 3))
    assert trees_equal(first, second)
    assert not trees_equal(first.students, other.students)
    assert not trees_equal(first.teacher.draws, other.teacher.draws)


def test_the_teacher_is_the_same_whatever_the_student(
    full: db.student.Distillation, posterior: db.Posterior, classes: db.Data, trees_equal: Any
) -> None:
    other = db.Student(db.mlp([4], 3), db.outcomes.SoftmaxHead(2, decompose=True), optax.sgd(0.01))
    parts = db.distillation(
        full.chain, other, db.queries.uniform_box(-1.0, 1.0), db.Settings(num_chains=2, query_batch=7), full.monitor
    )
    first, second = (each.advance(each.init(jax.random.key(2)), np.int32(4))[0] for each in (full, parts))
    assert trees_equal(first.teacher, second.teacher)
    assert trees_equal(first.average, second.average)


def test_distillation_teaches(teacher: Any, logistic: db.Network, classes: db.Data) -> None:
    learner = db.Student(logistic, db.outcomes.SoftmaxHead(2), optax.sgd(0.1))
    done = db.distil(
        teacher, learner, db.queries.training_inputs(), jax.random.key(0), steps=3000, monitor=classes.x, quiet=True
    )
    truth = db.predict_average(done.average)
    untrained = db.predict_student(learner, learner.init(jax.random.key(9), classes.x), classes.x)
    divergence = db.metrics.kl(truth, db.predict_student(learner, done.params, classes.x))
    assert divergence < 0.1 * db.metrics.kl(truth, untrained)


def test_the_monitored_inputs_are_the_users_or_queries_of_their_own(teacher: Any, student: db.Student) -> None:
    own = db.distillation(teacher, student, db.queries.jitter(1.0), monitor=np.zeros((7, 2)))
    assert own.init(jax.random.key(0)).average.mean["probs"].shape == (7, 2)
    default = db.distillation(teacher, student, db.queries.uniform_box(5.0, 6.0)).monitor
    assert default.shape == (256, 2)
    assert jnp.all((default >= 5.0) & (default <= 6.0))


def test_a_progress_bar_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    db.distil(CountingChain(), mute_student(), db.queries.training_inputs(), jax.random.key(0), steps=3)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "distilling" in printed.err
    assert "100%" in printed.err


# Failure


def test_a_diverging_teacher_is_explained_within_a_chunk(conjugate: Any) -> None:
    chain = db.minibatch_chain(conjugate.posterior, db.sgld(1e3), *conjugate.data, batch_size=None, burn_in=10)
    with pytest.raises(db.Divergence, match=r"teacher diverged: at step \d+ the log posterior .* smaller step size"):
        db.distil(chain, mute_student(), db.queries.jitter(1.0), jax.random.key(0), steps=100_000_000, quiet=True)


@pytest.mark.parametrize("burn_in", [0, 20], ids=["while distilling", "in burn-in"])
def test_the_step_of_a_divergence_is_named(burn_in: int) -> None:
    chain = CountingChain(burn_in=burn_in, breaks_at=15)
    with pytest.raises(db.Divergence, match="teacher diverged: at step 15 the log posterior of chain 0 became -inf"):
        db.distil(chain, mute_student(), db.queries.training_inputs(), jax.random.key(0), steps=100_000_000, quiet=True)


def test_the_blame_for_a_diverging_teacher_is_not_put_on_the_student() -> None:
    """The student hears of the first draw that is not finite before the log posterior tells of it."""
    with pytest.raises(db.Divergence, match="teacher diverged"):
        db.distil(
            CountingChain(breaks_at=2),
            mute_student(),
            db.queries.training_inputs(),
            jax.random.key(0),
            steps=2,
            quiet=True,
        )


def test_a_diverging_student_is_explained() -> None:
    with pytest.raises(db.Divergence, match=r"student diverged: .*lower its learning rate"):
        db.distil(
            CountingChain(),
            mute_student(1e38),
            db.queries.training_inputs(),
            jax.random.key(0),
            steps=100_000_000,
            quiet=True,
        )


def test_the_first_failed_update_is_the_one_that_is_named() -> None:
    def rate(count: jax.Array) -> jax.Array:
        return jnp.where(count == 4, jnp.inf, 1e-3).astype(jnp.float32)

    parts = db.distillation(CountingChain(), mute_student(rate), db.queries.training_inputs())
    state, _ = parts.advance(parts.init(jax.random.key(0)), np.int32(20))
    assert int(state.failed_update) == 5


def test_a_run_too_short_for_one_round_is_refused() -> None:
    with pytest.raises(db.InvalidInput, match="steps=8 ends before the first draw is kept: use at least 9"):
        db.distil(
            CountingChain(burn_in=5, thin=4),
            mute_student(),
            db.queries.training_inputs(),
            jax.random.key(0),
            steps=8,
            quiet=True,
        )


def test_a_student_that_is_not_finite_is_never_the_best() -> None:
    parts, state = counting(CountingChain(), restarts=2)
    state, _ = parts.advance(state, np.int32(1))
    broken = state._replace(students=jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), state.students))
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(parts.best(broken)))
    lost = state._replace(students=jax.tree.map(lambda leaf: leaf * jnp.nan, state.students))
    with pytest.raises(db.Divergence, match="predicts nothing finite"):
        parts.best(lost)


@pytest.mark.parametrize("steps", [float("nan"), float("inf"), 2.5, 0])
def test_a_length_that_is_no_count_is_refused(steps: float) -> None:
    with pytest.raises(db.InvalidInput, match="steps must be a whole number"):
        db.distil(
            CountingChain(), mute_student(), db.queries.training_inputs(), jax.random.key(0), steps=steps, quiet=True
        )


def test_queries_of_another_shape_are_refused_before_the_burn_in(classes: db.Data) -> None:
    posterior = db.Posterior(db.mlp([3], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(), num_data=20)
    chain = db.minibatch_chain(posterior, db.sgld(1e-2), *classes, batch_size=None)
    student = db.Student(db.mlp([3], 2), db.outcomes.SoftmaxHead(2), optax.sgd(0.1))
    with pytest.raises(db.InvalidInput, match=r"uniform_box has sides \(3,\), but an input has shape \(2,\)"):
        db.distillation(chain, student, db.queries.uniform_box([0, 0, 0], [1, 1, 1]))
    with pytest.raises(db.InvalidInput, match=r"queries have shape"):
        db.distillation(chain, student, lambda key, x, context: x[:1], monitor=classes.x)


def test_students_learn_by_optimisers_that_need_the_loss(classes: db.Data) -> None:
    posterior = db.Posterior(db.mlp([3], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(), num_data=20)
    chain = db.minibatch_chain(posterior, db.sgld(1e-2), *classes, batch_size=None)
    student = db.Student(db.mlp([3], 2), db.outcomes.SoftmaxHead(2), optax.polyak_sgd(0.1))
    parts = db.distillation(chain, student, db.queries.jitter(0.1), db.Settings(query_batch=4))
    assert int(parts.advance(parts.init(jax.random.key(0)), np.int32(3))[0].updates) == 3
