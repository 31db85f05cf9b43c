"""Diagnostics against known answers: autocorrelations, temperatures, plateaus, and the verdicts that follow."""

import json
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
import laws
from darkbayes.student import diagnose
from darkbayes.student.plateau import find_plateau
from darkbayes.teacher import (
    Average,
    agreement,
    autocorrelation_time,
    chains_kinetic_temperature,
    effective_sample_size,
    gradient_noise,
    monte_carlo_divergence,
    start_chains,
    step_chains,
    trace_add,
    trace_init,
)


def autoregressive(rho: float, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Stationary AR(1) chains along the second axis, variance 1, autocorrelation rho^t: tau = (1 + rho) / (1 - rho)."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    for t in range(1, shape[1]):
        values[:, t] = rho * values[:, t - 1] + np.sqrt(1 - rho**2) * values[:, t]
    return values


# Effective sample size


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.4])
def test_the_effective_sample_size_of_autoregressive_chains_is_the_known_one(rho: float) -> None:
    """40 independent estimates from 4 chains of 2,000: their mean within 5%, each within a third."""
    values = autoregressive(rho, (4, 2000, 40))
    ratio = effective_sample_size(values) / (8000 * (1 - rho) / (1 + rho))
    assert ratio.mean() == pytest.approx(1.0, abs=0.05)
    assert np.abs(ratio - 1).max() < 1 / 3


def test_it_predicts_how_far_the_mean_is_off() -> None:
    """The variance of 400 means over the variance of a draw is one over the effective number."""
    values = autoregressive(0.8, (3, 300, 400), seed=1)
    assert values.mean(axis=(0, 1)).var() * np.median(effective_sample_size(values)) == pytest.approx(1.0, abs=0.2)


def test_chains_that_are_apart_are_worth_little_however_long() -> None:
    apart = autoregressive(0.0, (4, 1000), seed=2) + 5 * np.arange(4)[:, None]
    assert effective_sample_size(apart) < 10
    assert effective_sample_size(apart[:1]) > 800


def test_values_that_never_move_count_as_they_are() -> None:
    values = np.stack([np.ones((2, 50)), autoregressive(0.5, (2, 50))], axis=-1)
    assert effective_sample_size(values)[0] == 100
    assert np.isfinite(effective_sample_size(values)).all()


def test_the_autocorrelation_time_is_in_steps() -> None:
    assert autocorrelation_time(autoregressive(0.9, (4, 4000)), steps_between=10) == pytest.approx(190, rel=0.2)


@pytest.mark.parametrize("function", [db.split_rhat, effective_sample_size, autocorrelation_time])
def test_too_few_draws_are_refused(function: Any) -> None:
    with pytest.raises(db.InvalidInput, match=r"at least 4 draws, not shape \(2, 3\)"):
        function(np.zeros((2, 3)))


def test_the_error_of_an_average_is_that_of_averages_of_so_many_draws() -> None:
    """Of 2,000 averages of 50 independent draws; to second order, hence 10%."""
    rng = np.random.default_rng(3)
    probs = rng.dirichlet([4.0, 2.0, 3.0], size=(2000, 50))
    truth, means = np.array([4.0, 2.0, 3.0]) / 9, probs.mean(axis=1)
    divergence = float((truth * np.log(truth / means)).sum(axis=1).mean())
    average = Average(jnp.int32(50), {"probs": probs.mean((0, 1))[None]}, {"probs": probs.var((0, 1))[None]})
    assert monte_carlo_divergence(average, 50.0) == pytest.approx(divergence, rel=0.1)

    mean, variance = rng.normal(size=(2000, 50)), rng.gamma(9.0, 0.1, size=(2000, 50))
    p_mean, p_variance = 0.0, 0.9 + 1.0
    q_mean, q_variance = mean.mean(axis=1), variance.mean(axis=1) + mean.var(axis=1)
    ratio = p_variance / q_variance
    divergence = 0.5 * float((ratio - 1 - np.log(ratio) + (p_mean - q_mean) ** 2 / q_variance).mean())
    of_all = {"mean": mean, "variance": variance}
    average = Average(
        jnp.int32(50),
        {name: of.mean()[None, None] for name, of in of_all.items()},
        {name: of.var()[None, None] for name, of in of_all.items()},
    )
    assert monte_carlo_divergence(average, 50.0) == pytest.approx(divergence, rel=0.1)


# Temperatures


@pytest.fixture(scope="module")
def exact(conjugate: Any) -> Any:
    """Draws from the known posterior at a temperature: ``exact(temperature, number)``."""

    def draws(temperature: float, number: int) -> db.Draw:
        spread = np.linalg.cholesky(temperature * conjugate.covariance)
        weights = conjugate.mean + np.random.default_rng(4).normal(size=(number, 2)) @ spread.T
        return db.Draw(jnp.asarray(weights[..., None], jnp.float32), ())

    return draws


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_exact_draws_have_their_temperature(temperature: float, conjugate: Any, exact: Any) -> None:
    """|z| < 4 over 4,000 draws; another seed fails with probability 6e-5."""
    found = db.configurational_temperature(conjugate.posterior, exact(temperature, 4000), conjugate.data)
    assert abs(found.mean() - temperature) < 4 * found.std() / np.sqrt(4000)
    assert found.std() / np.sqrt(4000) < 0.05


def test_the_noise_of_minibatches_is_that_of_independent_examples(conjugate: Any, exact: Any) -> None:
    """N^2/M times the trace of the covariance of the examples' gradients, over the square of their sum."""
    x, y = np.asarray(conjugate.data.x, np.float64), np.asarray(conjugate.data.y, np.float64)[:, 0]
    weights = np.array([2.0, 1.0])
    of_examples = conjugate.noise_precision * (x @ weights - y)[:, None] * x
    full = of_examples.sum(axis=0) + conjugate.prior_precision * weights
    expected = 36 / 2 * of_examples.var(axis=0).sum() / (full @ full)
    chain = db.minibatch_chain(conjugate.posterior, db.sgld(0.01), *conjugate.data, batch_size=2)
    copies = db.Draw(jnp.broadcast_to(jnp.asarray(weights, jnp.float32)[None, :, None], (500, 2, 1)), ())
    found = gradient_noise(chain, copies, jax.random.key(0))
    assert found is not None
    assert float(found.noise_to_signal.mean()) == pytest.approx(expected, rel=0.1)
    np.testing.assert_allclose(found.temperature, weights @ full / 2, rtol=1e-4)


class Momentum(NamedTuple):
    momentum: Any
    friction: Any = 0.0


def test_momenta_have_a_temperature_wherever_a_state_holds_them() -> None:
    momentum = {"w": np.sqrt(0.7) * np.random.default_rng(5).normal(size=(4, 5000))}
    assert db.kinetic_temperature(momentum) == pytest.approx(0.7, rel=0.05)
    apart = np.array([0.0, 0.0, 1.0, 1.0])
    states = (np.zeros(3), {"group": (Momentum(None), Momentum(momentum, apart))})
    expected = np.mean(momentum["w"] ** 2 * (1 - apart[:, None] / 2))
    assert chains_kinetic_temperature(states) == pytest.approx(expected)
    assert chains_kinetic_temperature((np.zeros(3), (), Momentum(None))) is None
    with pytest.raises(db.InvalidInput, match="not an empty tree"):
        db.kinetic_temperature({})


@pytest.mark.parametrize("friction", [0.1, 0.5])
def test_what_momenta_tend_to_as_steps_get_small(friction: float) -> None:
    """By the exact laws, in whose velocities v . v = eta/2 m . m."""
    eta, stiffness = 1e-4, np.array([0.5, 2.0])
    of_sghmc = laws.stationary(laws.sghmc(eta, np.diag(stiffness), None, 0.7, friction=friction))[2:, 2:]
    of_baoa = laws.stationary(laws.baoa(eta, np.diag(stiffness), None, 0.7, friction=friction))[2:, 2:]
    of_sgnht, found = laws.sgnht(eta, stiffness, 0.0, 0.7, friction=friction)
    for covariance, kept in ((of_sghmc, friction), (of_baoa, 0.0), (laws.stationary(of_sgnht)[:, 1, 1], found)):
        squares = np.diag(covariance) if covariance.ndim == 2 else covariance
        np.testing.assert_allclose(squares / (eta / 2) * (1 - kept / 2), 0.7, rtol=1e-3)


def test_the_momenta_of_chains_have_the_temperature_of_their_law(conjugate: Any, z_scores: Any) -> None:
    """SGHMC at temperature 0.7: 2,000 chains, in a step size at which the law is near its limit but not at it."""
    chain = db.minibatch_chain(
        conjugate.posterior, db.sghmc(0.01, friction=0.3, temperature=0.7), *conjugate.data, batch_size=None
    )

    @jax.jit
    def run(key: jax.Array) -> Any:
        chains = start_chains(chain, key, 2000)
        return jax.lax.fori_loop(0, 300, lambda _, now: step_chains(chain, now), chains).states

    states = run(jax.random.key(0))
    law = laws.sghmc(0.01, np.linalg.inv(conjugate.covariance), None, 0.7, friction=0.3)
    expected = np.trace(laws.stationary(law)[2:, 2:]) / 2 / 0.005 * (1 - 0.3 / 2)
    of_each = np.mean(np.asarray(states.transformation.momentum.network) ** 2, axis=(1, 2)) * (1 - 0.3 / 2)
    assert abs(z_scores(of_each, expected)) < 4
    assert chains_kinetic_temperature(states) == pytest.approx(of_each.mean(), rel=1e-4)
    assert expected == pytest.approx(0.7, rel=0.05)


# Verdicts


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        (autoregressive(0.3, (4, 200, 8)), "agree", r"the chains agree \(R-hat 1\.0\d, 4\d\d effective predictions\)"),
        (autoregressive(0.9, (4, 99)) + np.arange(4)[:, None], "apart", r"not met \(R-hat 1\.\d\d\): run longer"),
        (autoregressive(0.0, (4, 10, 8)), "few", r"on only \d\d effective predictions: run longer or use more chains"),
        (autoregressive(0.0, (1, 200, 8)), "one_chain", r"agreement cannot be judged, use num_chains >= 2$"),
        (np.linspace(0, 1, 100)[None], "one_chain", r"its own halves differ \(R-hat \d\.\d\d\)"),
        (np.zeros((4, 3, 8)), "short", "3 draws of each chain: too few"),
        (np.repeat([[0.0], [1.0]], 10, axis=1), "apart", "R-hat inf"),
    ],
    ids=["agree", "apart", "few", "one chain", "one that drifts", "short", "stuck"],
)  # fmt: skip
def test_the_verdict_says_what_is_and_what_to_do(values: np.ndarray, code: str, words: str) -> None:
    verdict = agreement(values).verdict
    assert verdict.code == code
    assert re.search(words, verdict.text), verdict.text
    assert "\n" not in verdict.text


def test_agreement_tells_the_worst_and_the_median_input() -> None:
    values = autoregressive(0.5, (4, 200, 9))
    values[0, :, 4] += 3.0
    found = agreement(values, steps_between=7)
    assert found.rhat == db.split_rhat(values).max() == db.split_rhat(values)[4]
    assert found.effective_worst == effective_sample_size(values)[4] < found.effective
    assert found.autocorrelation_steps == np.median(autocorrelation_time(values, 7))


# The student's plateau


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
    found = find_plateau(curve(0.0, 0.0123), 0.01)
    assert found is not None
    assert not found.stopped


def test_a_curve_of_few_points_tells_nothing() -> None:
    assert find_plateau([], 1e-4) is None
    assert find_plateau(curve(0.0, 0.1, points=12), 1e-4) is None


# A whole distillation


@pytest.fixture(scope="module")
def distilled(logistic: db.Network, classes: db.Data) -> db.Distilled:
    posterior = db.Posterior(logistic, db.Softmax(2), db.GaussianPrior(1.0), num_data=20)
    chain = db.minibatch_chain(posterior, db.sgld(0.02), *classes, batch_size=None, burn_in=300, thin=20)
    student = db.Student(logistic, db.SoftmaxStudent(2), optax.sgd(0.1))
    settings = db.Settings(num_chains=6, query_batch=4, update_every=20, reservoir=20)
    return db.distil(
        chain, student, db.jitter(0.5), jax.random.key(1), steps=300 + 20 * 300, settings=settings, quiet=True
    )


def test_chains_on_an_easy_posterior_agree_at_its_temperature(distilled: db.Distilled) -> None:
    found = distilled.diagnostics
    assert found.verdict.code == "agree", str(found)
    (run,) = found.runs
    assert run.agreement.chains == 6
    assert run.agreement.draws == 150  # 300 kept, every other one traced.
    assert run.temperature is not None
    assert run.temperature_se is not None
    assert run.temperature == pytest.approx(1.0, abs=4 * run.temperature_se)
    assert run.temperature_se < 0.25
    assert run.noise_to_signal == 0.0
    assert run.kinetic_temperature is None
    assert run.divergence > 0
    assert 0 < run.teacher_error < 1e-3
    assert "temperature" not in {warning.code for warning in found.warnings}


def test_a_diagnosis_is_plain_json(distilled: db.Distilled) -> None:
    stored = json.loads(json.dumps(distilled.diagnostics.as_dict(), allow_nan=False))
    assert stored["verdict"]["code"] == "agree"
    assert stored["counts"] == {"agree": 1}
    assert stored["runs"][0]["rhat"] < 1.1


def test_of_many_runs_the_worst_is_told_and_the_others_are_counted(distilled: db.Distilled) -> None:
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
    assert same.verdict.text.startswith("the chains agree in all 2 runs (R-hat at most 1.0")
    assert same.plateau is None


class NoData(NamedTuple):
    """As much of a chain as a diagnosis asks for, of one that holds no data."""

    thin: int = 20


def moved_apart(state: Any) -> Any:
    """The same state with a trace in which every chain predicts something else."""
    rng = np.random.default_rng(6)
    trace = None
    for _ in range(40):
        mean = jnp.asarray(rng.normal(size=(6, 4, 1)) + 3 * np.arange(6)[:, None, None], jnp.float32)
        distribution = db.Normal(mean, jnp.ones_like(mean))
        trace = trace_add(trace_init(distribution) if trace is None else trace, distribution)
    return state._replace(trace=trace)
