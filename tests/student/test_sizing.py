"""A student that sizes itself: on a posterior that a tiny student cannot follow, and on one that it can."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.student.sizing import _better


def make(hidden: tuple[int, ...]) -> db.Student:
    return db.Student(
        db.mlp(hidden, 2), db.outcomes.SoftmaxHead(2), optax.adam(optax.cosine_decay_schedule(2e-2, 1500))
    )


@pytest.fixture(scope="module")
def problem(classes: db.Data) -> tuple[db.Posterior, db.model.Draw]:
    """The posterior of a 2-10-2 network, and 96 draws of it."""
    posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    chain = db.minibatch_chain(posterior, db.sgld(1e-2), *classes, batch_size=None, burn_in=1000, thin=100)
    return posterior, db.sample(chain, jax.random.key(0), num_chains=16, num_draws=6)


@pytest.fixture(scope="module")
def sized(problem: Any, classes: db.Data) -> Any:
    return db.student.size_student(
        *problem, classes.x, make, db.queries.uniform_box(-10, 10), jax.random.key(1), start=(1,), most=8, updates=1500
    )


def test_the_curve_falls_and_the_choice_is_not_the_smallest(sized: Any) -> None:
    means = [row["mean"] for row in sized.curve]
    assert means[0] > 2 * min(means)
    assert sized.hidden != (1,)
    assert [row["method"] for row in sized.curve][:2] == ["student 2-1-2", "student 2-2-2"]
    assert [row["parameters"] for row in sized.curve][:2] == [7, 12]
    assert all(row["metric"] == "kl_from_teacher" and row["trials"] == 3 for row in sized.curve)
    (chosen,) = [row for row in sized.curve if row.get("chosen")]
    assert tuple(chosen["hidden"]) == sized.hidden
    # Each candidate up to the choice was better than the one before it by more than its error.
    place = sized.curve.index(chosen)
    assert all(means[k + 1] < means[k] for k in range(place))


def test_the_chosen_student_comes_trained(sized: Any, problem: Any, classes: db.Data) -> None:
    """At inputs that neither it nor the search has seen, it is as close to the average of the draws as it was told."""
    x = jax.random.uniform(jax.random.key(9), (2000, 2), minval=-10.0, maxval=10.0)
    truth = db.predict_draws(*problem, x)
    divergence = db.metrics.kl(truth, db.predict_student(sized.student, sized.params, x))
    (chosen,) = [row for row in sized.curve if row.get("chosen")]
    assert divergence == pytest.approx(min(chosen["values"]), rel=0.25)


def test_a_fall_within_its_error_or_too_small_to_matter_is_none() -> None:
    rng = np.random.default_rng(0)
    before = 0.1 + 0.01 * rng.normal(size=(3, 1)) + 0.03 * rng.normal(size=(1, 1000))
    assert not _better(before, before + 0.01 * rng.normal(size=(3, 1)))
    assert _better(before, before - 0.05)
    quiet = np.full((3, 1000), 0.1)
    assert not _better(quiet, quiet - 0.005)
    assert _better(quiet, quiet - 0.02)


def test_bad_sizes_are_refused(problem: Any, classes: db.Data) -> None:
    def size(**wrong: Any) -> None:
        db.student.size_student(*problem, classes.x, make, db.queries.uniform_box(-10, 10), jax.random.key(1), **wrong)

    with pytest.raises(db.InvalidInput, match=r"start=\(\) must name hidden layers of at most most=1024 units"):
        size(start=())
    with pytest.raises(db.InvalidInput, match=r"start=\(8,\) must name hidden layers of at most most=4"):
        size(start=(8,), most=4)
    with pytest.raises(db.InvalidInput, match="restarts must be a whole number of at least 2, not 1"):
        size(restarts=1)
    with pytest.raises(db.InvalidInput, match="updates must be a whole number of at least 1, not 0"):
        size(updates=0)
