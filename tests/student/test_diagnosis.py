"""What is said of a finished distillation: the student's plateau, and the verdicts on runs."""

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.student.diagnosis import diagnose, find_plateau
from darkbayes.teacher.keeping import trace_add, trace_init


def curve(fall: float, level: float, points: int = 60, seed: int = 0) -> list[tuple[int, float]]:
    """A divergence that has fallen to `level` by the middle, then by the share `fall`, with 2% of noise."""
    time = np.linspace(0, 1, points)
    values = level * (np.exp(-20 * time) * 10 + 1 - fall * np.maximum(time - 0.5, 0) * 2)
    noisy = values * (1 + 0.02 * np.random.default_rng(seed).normal(size=points))
    return list(zip((1000 * time).astype(int).tolist(), noisy.tolist(), strict=True))


def test_a_plateau_is_found_where_the_student_stopped_and_not_where_it_learns_on() -> None:
    stopped, learning = (find_plateau(curve(fall, 0.0123), 1e-4) for fall in (0.0, 0.5))
    assert stopped is not None
    assert learning is not None
    assert stopped.stopped
    assert stopped.level == pytest.approx(0.0123, rel=0.05)
    assert not learning.stopped
    assert learning.fall > 5 * learning.error


def test_a_student_as_close_as_the_teacher_itself_has_not_stopped_early() -> None:
    actual = find_plateau(curve(0.0, 0.0123), 0.01)
    assert actual is not None
    assert not actual.stopped


def test_a_curve_of_few_points_tells_nothing() -> None:
    assert find_plateau([], 1e-4) is None
    assert find_plateau(curve(0.0, 0.1, points=12), 1e-4) is None


@pytest.fixture(scope="module")
def distilled(logistic: db.Network, classes: db.Data) -> db.student.Distilled:
    posterior = db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    chain = db.minibatch_chain(posterior, db.sgld(0.02), *classes, batch_size=None, burn_in=300, thin=20)
    student = db.Student(logistic, db.outcomes.SoftmaxHead(2), optax.sgd(0.1))
    settings = db.Settings(num_chains=6, query_batch=4, update_every=20, reservoir=20)
    return db.distil(
        chain, student, db.queries.jitter(0.5), jax.random.key(1), steps=300 + 20 * 300, settings=settings, quiet=True
    )


def test_chains_on_an_easy_posterior_agree_at_its_temperature(distilled: db.student.Distilled) -> None:
    actual = distilled.diagnostics
    assert actual.verdict.code == "agree", str(actual)
    (run,) = actual.runs
    assert run.agreement.chains == 6
    assert run.agreement.draws == 150  # 300 kept, every other one traced.
    assert run.temperature is not None
    assert run.temperature_se is not None
    assert run.temperature == pytest.approx(1.0, abs=4 * run.temperature_se)
    assert run.temperature_se < 0.25
    # Along single directions by 60 draws: to about a fifth.
    along = [run.temperature_stiffest, run.temperature_softest, run.temperature_predictions]
    known = [warmth for warmth in along if warmth is not None]
    assert known
    assert known == pytest.approx([1.0] * len(known), abs=0.7)
    assert run.noise_to_signal == 0.0
    assert run.kinetic_temperature is None
    assert run.divergence > 0
    assert 0 < run.teacher_error < 1e-3
    assert "temperature" not in {warning.code for warning in actual.warnings}


def test_a_diagnosis_is_plain_json(distilled: db.student.Distilled) -> None:
    stored = json.loads(json.dumps(distilled.diagnostics.as_dict(), allow_nan=False))
    assert stored["verdict"]["code"] == "agree"
    assert stored["counts"] == {"agree": 1}
    assert stored["runs"][0]["rhat"] < 1.1


def test_of_many_runs_the_worst_is_told_and_the_others_are_counted(distilled: db.student.Distilled) -> None:
    chain = NoData()
    good, bad = distilled.state, moved_apart(distilled.state)
    worst = diagnose([(chain, good), (chain, bad), (chain, good)], [0.1, 0.1, 0.1], curve(0.0, 0.1))
    assert worst.verdict.code == "apart"
    assert worst.verdict.text.startswith("run 1: the chains have not met")
    assert worst.verdict.text.endswith("(2 of 3 runs agree)")
    assert [warning.code for warning in worst.warnings] == ["student_stopped"]
    assert "the student has stopped following at KL 0.101: try hidden layers twice as wide" in str(worst)
    assert worst.runs[0].temperature is None
    same = diagnose([(chain, good)] * 2, [0.1, 0.1], [])
    assert same.verdict.text.startswith("in all 2 runs the average over the chains is known to ")
    assert same.plateau is None


class NoData(NamedTuple):
    """As much of a chain as a diagnosis asks for, of one that holds no data."""

    thin: int = 20


def moved_apart(state: Any) -> Any:
    """The same state with a trace in which every chain predicts something else."""
    rng = np.random.default_rng(6)
    trace = None
    for _ in range(40):
        mean = jnp.asarray(rng.normal(size=(6, 32, 1)) + 3 * np.arange(6)[:, None, None], jnp.float32)
        distribution = db.outcomes.Normal(mean, jnp.ones_like(mean))
        trace = trace_add(trace_init(distribution) if trace is None else trace, distribution)
    return state._replace(trace=trace)
