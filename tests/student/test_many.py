"""Distillations side by side: each is the one that it would have been alone, in one compiled loop for all."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.runs import Run

pytestmark = pytest.mark.usefixtures("strict")

SETTINGS = db.Settings(num_chains=2, query_batch=4, update_every=2, reservoir=3, reservoir_picks=2, restarts=3)


@pytest.fixture(scope="module")
def distillation_on(logistic: db.Network) -> Any:
    """Distillations that share all but their data: ``distillation_on(data, thin=4)``."""
    posterior = db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.5), num_data=20)
    sampler, queries = db.sgld(0.02), db.queries.jitter(0.5)
    student = db.Student(logistic, db.outcomes.SoftmaxHead(2), optax.sgd(0.3))

    def make(
        data: db.Data, *, thin: int = 4, batch_size: int | None = 3, queries: Any = queries, monitored: int = 7
    ) -> db.student.Distillation:
        chain = db.minibatch_chain(posterior, sampler, *data, batch_size=batch_size, burn_in=5, thin=thin)
        return db.distillation(chain, student, queries, SETTINGS, monitor=data.x[:monitored])

    return make


@pytest.fixture(scope="module")
def singles(distillation_on: Any) -> list[db.student.Distillation]:
    return [distillation_on(db.data.toy2d(key)) for key in jax.random.split(jax.random.key(3), 3)]


@pytest.fixture(scope="module")
def runs(singles: list[db.student.Distillation]) -> Any:
    return db.student.side_by_side(singles)


def one_of(tree: Any, place: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[place], tree)


def as_numbers(tree: Any) -> list[np.ndarray]:
    is_key = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(tree)]
    return [
        np.asarray(jax.random.key_data(leaf) if key else leaf)
        for leaf, key in zip(jax.tree.leaves(tree), is_key, strict=True)
    ]


def test_all_lengths_of_chunks_share_one_compiled_loop(runs: Any, compilations: Counter[str]) -> None:
    """None is compiled anew if another test came before."""
    snapshots = [(snapshot.step, snapshot.loss) for snapshot in runs.run(runs.init(jax.random.key(0)), 5 + 4 * 2000)]
    assert len(snapshots) > 4
    assert max(compilations[name] for name in ("init", "burn", "advance", "divergences")) <= 1
    assert all((loss is None) == (step <= 5) for step, loss in snapshots)
    assert snapshots[-1][0] == 5 + 4 * 2000


def test_each_run_is_the_one_that_it_would_have_been_alone(singles: list[db.student.Distillation], runs: Any) -> None:
    """With the same key; up to the rounding of sums that a batch axis puts in another order."""
    key = jax.random.key(0)
    state, losses = runs.advance(runs.burn(runs.init(key), np.int32(5)), np.int32(6))
    divergences, best = runs.divergences(state), runs.best(state)
    assert losses.shape == divergences.shape == (3, SETTINGS.restarts)
    for place, (single, own_key) in enumerate(zip(singles, jax.random.split(key, 3), strict=True)):
        alone, loss = single.advance(single.burn(single.init(own_key), np.int32(5)), np.int32(6))
        for actual, expected in zip(as_numbers(one_of(state, place)), as_numbers(alone), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(losses[place], loss, rtol=1e-4)
        np.testing.assert_allclose(divergences[place], single.divergences(alone), rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(best[place], single.best(alone), rtol=1e-4, atol=1e-5)


def test_the_best_student_is_chosen_run_by_run(runs: Any) -> None:
    """Students of different quality by hand: copies of the best of each run, all but one of them spoilt."""
    state, _ = runs.advance(runs.burn(runs.init(jax.random.key(1)), np.int32(5)), np.int32(20))
    good, places = runs.best(state), np.array([2, 0, 1])
    spoilt = jnp.where(
        (np.arange(3)[None, :] == places[:, None])[:, :, None, None], good[:, None], -20.0 * state.students
    )
    state = state._replace(students=spoilt.at[0, 0].set(jnp.nan))
    assert np.asarray(runs.divergences(state))[1:].argmin(axis=1).tolist() == places[1:].tolist()
    np.testing.assert_array_equal(runs.best(state), good)
    with pytest.raises(db.Divergence, match="student diverged: after 40 updates it predicts nothing finite"):
        runs.best(state._replace(students=spoilt.at[1].set(jnp.nan)))


def test_a_snapshot_tells_the_mean_over_the_runs_of_their_best_students(runs: Any) -> None:
    *_, snapshot = runs.run(runs.init(jax.random.key(0)), 9)
    expected = np.asarray(runs.divergences(snapshot.state)).min(axis=1).mean()
    assert snapshot.divergence == pytest.approx(float(expected), rel=1e-5)


def test_arrays_that_all_runs_share_are_stored_once(singles: list[db.student.Distillation], runs: Any) -> None:
    twins = db.student.side_by_side([singles[0]] * 4)
    assert jax.tree.leaves(twins.apart) == []
    assert twins.shared.chain.data.x is singles[0].chain.data.x
    assert twins.number == 4
    assert runs.apart.chain.data.x.shape == (3, 20, 2)
    assert runs.apart.chain.data.y.shape == (3, 20)
    assert runs.apart.monitor.shape == (3, 7, 2)
    assert runs.shared.chain.data.x is None
    assert len(jax.tree.leaves(runs.apart)) == 3


def test_runs_on_the_same_data_differ_by_their_keys(singles: list[db.student.Distillation], trees_equal: Any) -> None:
    state = db.student.side_by_side([singles[0]] * 2).init(jax.random.key(0))
    assert not trees_equal(one_of(state.students, 0), one_of(state.students, 1))
    assert not trees_equal(one_of(state.teacher.draws, 0), one_of(state.teacher.draws, 1))


def test_a_resumed_run_folder_ends_in_the_same_bits(runs: Any, tmp_path: Any) -> None:
    key, steps = jax.random.key(0), 45
    Run(tmp_path / "whole", {}, quiet=True).distil("d", runs, key, steps)
    for until in (9, 29, steps):
        state = Run(tmp_path / "broken", {}, resume=True, quiet=True).distil("d", runs, key, until)
    names = ("student.safetensors", "checkpoint/step-000000000045/state.safetensors")
    for name in names:
        whole, again = (tmp_path / folder / "d" / name for folder in ("whole", "broken"))
        assert whole.read_bytes() == again.read_bytes()
    assert state.updates.tolist() == [20, 20, 20]
    with pytest.raises(db.RunError, match="another seed"):
        Run(tmp_path / "whole", {}, resume=True, quiet=True).distil("d", runs, jax.random.key(1), steps)


# Refusals


def test_the_run_that_diverges_is_named(distillation_on: Any, singles: list[db.student.Distillation]) -> None:
    data = singles[1].chain.data
    huge = distillation_on(db.Data(1e20 * data.x, data.y))
    runs = db.student.side_by_side([singles[0], singles[2], huge])
    with pytest.raises(
        db.Divergence, match=r"teacher diverged in run 2 of 3: at step \d+ the log posterior of chain \d .*standardise"
    ):
        list(runs.run(runs.init(jax.random.key(0)), 100))


def test_a_length_that_ends_before_the_first_draw_is_refused(runs: Any) -> None:
    with pytest.raises(db.InvalidInput, match="steps=8 ends before the first draw is kept: use at least 9"):
        runs.run(None, 8)


def test_nothing_cannot_be_run() -> None:
    with pytest.raises(db.InvalidInput, match="side_by_side needs at least one run, not an empty list"):
        db.student.side_by_side([])


def test_runs_of_different_kinds_are_refused(distillation_on: Any, singles: list[db.student.Distillation]) -> None:
    """The odd one out in the middle, where it is found as well."""
    data = singles[0].chain.data

    def among(other: db.student.Distillation) -> None:
        db.student.side_by_side([singles[0], other, singles[2]])

    with pytest.raises(db.InvalidInput, match="runs that differ in arrays alone, not 4 and 2"):
        among(distillation_on(data, thin=2))
    with pytest.raises(
        db.InvalidInput, match=r"arrays alone, not <function jitter.*: build networks, samplers .* once"
    ):
        among(distillation_on(data, queries=db.queries.jitter(0.5)))
    with pytest.raises(
        db.InvalidInput, match=r"arrays of one shape, not \[\(6, 2\), \(7, 2\)\]: give each run as many"
    ):
        among(distillation_on(data, monitored=6))
    with pytest.raises(db.InvalidInput, match="runs of one kind: build networks, samplers and optimisers once"):
        among(distillation_on(data, batch_size=None))
