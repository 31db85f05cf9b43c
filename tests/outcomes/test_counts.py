"""Counts: distributions against scipy, the student against its draws, the exported file against JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import darkbayes as db
from darkbayes.metrics import kl, scores
from darkbayes.outcomes import OUTCOMES, CountPrediction, CountTarget
from darkbayes.shipped import Shipped
from darkbayes.tables.columns import Column
from outcomes.test_onnx_heads import schema_of

BASE = 3.0
RATES, DISPERSION = np.asarray([[1.0, 5.0, 30.0], [2.0, 7.0, 25.0]]), np.asarray([0.0, 0.5, 0.1])


def probability(k: int) -> np.ndarray:
    """Of a count under the mixture of two components, by scipy."""
    parts = [stats.poisson.pmf(k, RATES[:, 0])]
    parts += [
        stats.nbinom.pmf(k, 1 / d, 1 / (1 + d * rate)) for rate, d in zip(RATES.T[1:], DISPERSION[1:], strict=True)
    ]
    return np.mean(parts, axis=1)


@pytest.fixture(scope="module")
def mixture() -> CountPrediction:
    logs = np.full((2, 3, 1), np.log(0.5))
    return CountPrediction.of_mixture(logs, RATES[..., None], np.broadcast_to(DISPERSION[:, None], (2, 3, 1)))


@pytest.mark.parametrize("count", [0, 1, 4, 40])
def test_probabilities_are_those_of_scipy(mixture: CountPrediction, count: int) -> None:
    np.testing.assert_allclose(np.exp(mixture.log_prob([count] * 3)), probability(count), rtol=1e-10)
    below = sum(probability(k) for k in range(count + 1))
    np.testing.assert_allclose(mixture.cdf([count] * 3)[:, 0], below, rtol=1e-10)


def test_shares_of_quantiles_are_checked_and_all_counts_have_no_end(mixture: CountPrediction) -> None:
    assert np.isposinf(mixture.quantile(1.0)).all()
    for share, message in ((2, "between 0 and 1"), (np.nan, "between 0 and 1"), ([0.1, 0.2], r"not of shape \(2,\)")):
        with pytest.raises(db.InvalidInput, match=message):
            mixture.quantile(share)
    with pytest.raises(db.InvalidInput, match="too near to 1"):
        mixture.interval(1 - 1e-16)


def test_moments_are_those_of_the_mixture(mixture: CountPrediction) -> None:
    counts = np.arange(2000)
    probs = np.stack([probability(k) for k in counts])
    mean = counts @ probs
    np.testing.assert_allclose(mixture.mean[:, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(mixture.variance[:, 0], counts**2 @ probs - mean**2, rtol=1e-9)
    np.testing.assert_allclose(mixture.summary().variance, mixture.variance, rtol=1e-9)


def test_a_quantile_is_the_least_count_that_reaches_the_share(mixture: CountPrediction) -> None:
    for share in (0.05, 0.5, 0.95):
        value = mixture.quantile(share)
        assert (mixture.cdf(value) >= share).all()
        assert (mixture.cdf(value - 1) < share).all()


def test_what_is_no_count_has_no_probability(mixture: CountPrediction) -> None:
    assert np.isneginf(mixture.log_prob([-1, 1.5, np.nan])).all()


def test_scores_are_right_or_refused(mixture: CountPrediction) -> None:
    actual = scores(mixture, np.asarray([1, 5, 30]))
    assert set(actual) == {"log_likelihood", "rmse", "coverage_90"}
    assert actual["log_likelihood"].value == pytest.approx(
        np.mean([np.log(probability(k)[row]) for row, k in enumerate((1, 5, 30))])
    )
    with pytest.raises(db.InvalidInput, match="CountPrediction has no kl"):
        kl(mixture, mixture)


def test_positions_of_counts_from_the_distribution_itself_are_uniform() -> None:
    rng = np.random.default_rng(0)
    rate = np.exp(rng.normal(size=(4000, 1)))
    prediction = CountPrediction.of_mixture(np.zeros((1, 4000, 1)), rate[None], np.full((1, 4000, 1), 0.5))
    y = rng.negative_binomial(2.0, 1 / (1 + 0.5 * rate[:, 0]))
    # Failure rate: one in a thousand seeds.
    assert stats.kstest(prediction.position(y), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("kind", CountTarget.likelihoods)
def test_a_draw_has_the_log_probabilities_of_scipy(kind: str) -> None:
    likelihood = CountTarget("n", BASE, 0.0, 9.0).likelihood(kind)
    outputs, y = jnp.linspace(-2.0, 2.0, 5)[:, None], np.asarray([0.0, 1.0, 2.0, 3.0, 9.0])
    draw = likelihood.distribution(likelihood.init(), outputs)
    rate = np.asarray(draw.rate, np.float64)[:, 0]
    np.testing.assert_allclose(rate, BASE * np.exp(outputs[:, 0]), rtol=5e-3)
    if draw.dispersion is None:
        expected = stats.poisson.logpmf(y, rate)
    else:
        d = float(draw.dispersion[0, 0])
        expected = stats.nbinom.logpmf(y, 1 / d, 1 / (1 + d * rate))
    np.testing.assert_allclose(draw.log_prob(jnp.asarray(y)[:, None]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dispersion", [None, 0.3])
@pytest.mark.parametrize("mean", [5.0, 1e4, 1e6])
def test_log_probabilities_of_large_counts_and_their_slopes_are_not_lost_in_rounding(
    mean: float, dispersion: float | None
) -> None:
    rng = np.random.default_rng(0)
    rate = np.float32(mean * np.exp(0.3 * rng.normal(size=200))).astype(np.float64)
    drawn = rng.poisson(rate) if dispersion is None else rng.negative_binomial(1 / dispersion, 1 / (1 + rate * 0.3))
    y = np.float32(drawn).astype(np.float64)
    spread = None if dispersion is None else jnp.full((200, 1), dispersion)

    def log_prob(log_change: jax.Array) -> jax.Array:
        return db.outcomes.CountDraw(jnp.asarray(rate)[:, None] * jnp.exp(log_change), spread).log_prob(y[:, None])

    if dispersion is None:
        expected, slope = stats.poisson.logpmf(y, rate), y - rate
    else:
        d = float(np.float32(dispersion))
        expected = stats.nbinom.logpmf(y, 1 / d, 1 / (1 + d * rate))
        slope = (y - rate) / (1 + d * rate)
    here = jnp.zeros((200, 1))
    np.testing.assert_allclose(log_prob(here), expected, rtol=2e-6, atol=2e-4)
    slopes = jax.grad(lambda change: log_prob(change).sum())(here)[:, 0]
    np.testing.assert_allclose(slopes, slope, rtol=1e-4, atol=1e-6 * max(mean, 100.0))


@pytest.mark.parametrize(("mean", "draws"), [(3.0, 16), (40.0, 100)])
def test_quantiles_of_many_draws_end_however_extreme_they_are(mean: float, draws: int) -> None:
    rates = jnp.full((draws, 1, 1), mean)  # Weights in float32 do not add up to one.
    mixture = db.outcomes.CountDraw.together(lambda rate: db.outcomes.CountDraw(rate, rate / 9), rates).prediction()
    low, high = mixture.interval(1 - 1e-9)
    assert 0 <= low[0, 0] < mean < high[0, 0] < 1e4
    assert np.isfinite(mixture.strangeness([7])).all()


def test_from_one_draw_at_a_time_a_student_learns_how_far_they_are_apart() -> None:
    head, optimiser = db.outcomes.CountHead(BASE, decompose=True), optax.adam(optax.cosine_decay_schedule(3e-2, 6000))
    rates = jnp.asarray([2.0, 4.0, 6.0, 8.0])

    def step(carry, key):
        outputs, state = carry
        draw = db.outcomes.CountDraw(jax.random.choice(key, rates)[None, None, None])
        updates, state = optimiser.update(jax.grad(lambda outputs: head.loss(outputs, draw)[0])(outputs), state)
        return (optax.apply_updates(outputs, updates), state), None

    start = jnp.zeros((1, head.width))
    (outputs, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), jax.random.split(jax.random.key(0), 6000))
    student = head.predict(outputs).prediction()
    np.testing.assert_allclose(student.epistemic, rates.var(), rtol=0.1)
    np.testing.assert_allclose(student.aleatoric, rates.mean(), rtol=0.1)


@pytest.mark.parametrize("dispersion", [None, 0.3])
def test_a_student_follows_the_mixture_of_its_draws(dispersion: float | None) -> None:
    rates = 4 * jnp.exp(0.25 * jax.random.normal(jax.random.key(0), (400, 1, 1)))
    draws = db.outcomes.CountDraw(rates, None if dispersion is None else jnp.full_like(rates, dispersion))
    head = db.outcomes.CountHead(BASE, decompose=True)
    optimiser = optax.adam(3e-2)

    def step(carry, _):
        outputs, state = carry
        updates, state = optimiser.update(jax.grad(lambda outputs: head.loss(outputs, draws)[0])(outputs), state)
        return (optax.apply_updates(outputs, updates), state), None

    start = jnp.zeros((1, head.width))
    (outputs, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), length=1500)
    student = head.predict(outputs).prediction()
    teacher = db.outcomes.CountDraw.together(lambda draw: draw, draws).prediction()
    counts = range(150)
    logs = [np.concatenate([prediction.log_prob([count]) for count in counts]) for prediction in (teacher, student)]
    assert np.sum(np.exp(logs[0]) * (logs[0] - logs[1])) < 1e-3
    for name in ("mean", "std", "aleatoric_std", "epistemic_std"):
        np.testing.assert_allclose(getattr(student, name), getattr(teacher, name), rtol=5e-3, err_msg=name)


def test_the_loss_is_the_expected_log_density_of_rates() -> None:
    head = db.outcomes.CountHead(BASE)
    outputs = jnp.asarray([[0.3, 1.1]])
    draw = db.outcomes.CountDraw(jnp.full((1, 1, 1), 2.5), jnp.full((1, 1, 1), 0.4))
    student = head.predict(outputs).distribution
    rates = np.random.default_rng(0).gamma(1 / 0.4, 2.5 * 0.4, 200_000)
    shape = 1 / float(student.dispersion[0, 0, 0])
    logs = stats.gamma.logpdf(rates, shape, scale=float(student.rate[0, 0, 0]) / shape)
    error = logs.std() / np.sqrt(len(logs))
    # Failure rate: six in a hundred thousand seeds.
    assert abs(float(head.loss(outputs, draw)[0]) + logs.mean()) < 4 * error + 1e-4


def test_the_average_of_a_run_has_the_moments_of_its_draws() -> None:
    mean = {"mean": jnp.asarray([[4.0]]), "variance": jnp.asarray([[6.0]])}
    variance = {"mean": jnp.asarray([[1.5]]), "variance": jnp.asarray([[0.0]])}
    prediction = db.outcomes.CountDraw.averaged(mean, variance).prediction()
    assert prediction.mean == pytest.approx(4.0)
    assert (prediction.variance, prediction.aleatoric, prediction.epistemic) == pytest.approx((7.5, 6.0, 1.5))
    assert prediction.rate + prediction.dispersion * prediction.rate**2 == pytest.approx(7.5)


def test_the_exported_file_predicts_what_jax_predicts() -> None:
    target = CountTarget("n", BASE, 0.0, 12.0)
    head = target.head()
    student = db.Student(db.mlp([16], head.width), head, optax.adam(1e-3))
    params = student.init(jax.random.key(1), jnp.zeros((1, 3)))
    schema, x = schema_of(target), np.random.default_rng(0).normal(size=(100, 3)) * 3
    frame = {f"x{k}": x[:, k] for k in range(3)}
    own = db.predict_student(student, params, schema.encode(frame))
    shipped = Shipped("student.onnx", content=db.to_onnx(student, params, schema)).predict(frame)
    for name, values in own.arrays().items():
        np.testing.assert_allclose(shipped.arrays()[name], values, rtol=1e-5, err_msg=name)
    np.testing.assert_array_equal(np.stack(shipped.interval(0.9)), np.stack(own.interval(0.9)))


def numbers(values: np.ndarray) -> dict[str, Column]:
    return {"n": Column("number", np.asarray(values, np.float64))}


def test_counts_are_found_by_themselves_and_said() -> None:
    rng, notes = np.random.default_rng(0), []
    assert OUTCOMES.kind(numbers(rng.poisson(3.0, 300)), "auto", notes) is CountTarget
    assert "treated as counts (otherwise: task" in notes[0]
    for others in (
        rng.integers(0, 10, 300),
        rng.integers(3, 9, 300),
        1000 * rng.poisson(3.0, 300),
        rng.normal(size=300),
    ):
        assert OUTCOMES.kind(numbers(others), "auto", []) is not CountTarget


@pytest.mark.parametrize(("value", "shown"), [(-1.0, "-1"), (2.5, "2.5")])
def test_what_is_no_count_is_refused_with_its_value(value: float, shown: str) -> None:
    columns, rows = numbers(np.asarray([0.0, 1.0, value, 3.0])), np.arange(4)
    with pytest.raises(db.InvalidInput, match=rf"counts are whole numbers from 0, but 'n' holds {shown}: correct it"):
        CountTarget.choose(columns, rows, np.zeros((4, 1)), "shop.csv")


def test_a_fitted_student_has_the_log_likelihood_of_its_draws() -> None:
    """Of counts that are dispersed; where they are not, draws say less: see above, and docs/outcomes.md for a fit."""
    from darkbayes.fit import make_posterior
    from darkbayes.types import Data

    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (1300, 2))
    rate = np.exp(0.8 + 0.7 * np.sin(2 * X[:, 0]) + 0.4 * X[:, 1])
    y = rng.poisson(rate * rng.gamma(2.0, 0.5, len(X)))
    networks: Any = {"hidden": (8,), "activation": "relu", "student_hidden": (32, 32)}
    model = db.DistilledRegressor(
        likelihood=CountTarget.likelihoods[0], **networks, max_steps=2500, chains=4, time_budget=None, random_state=0
    )
    model.fit(X[:300], y[:300])
    student = model.predict_dist(X[300:])
    target, x = model.schema_.target, model.schema_.encode({f"x{k}": X[300:, k] for k in range(2)})
    posterior = make_posterior(Data(x, x), target, model.options_.model(target))
    teacher = db.predict_draws(posterior, model.draws_, x)
    behind = teacher.log_prob(y[300:]).mean() - student.log_prob(y[300:]).mean()
    assert abs(behind) < 0.01
