"""Metrics against hand-made cases and numerical integration."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

import darkbayes as db
from darkbayes import metrics
from darkbayes.model import kl_categorical, kl_normal

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def classes(*rows: list[float]) -> db.predict.ClassPredictive:
    return db.predict.ClassPredictive.from_probs(jnp.array(rows))


def mixture(weights: list[float], means: list[float], deviations: list[float]) -> db.predict.RegressionPredictive:
    """A mixture of Gaussians of one output at one input."""

    def column(values: np.ndarray) -> jnp.ndarray:
        return jnp.asarray(values, jnp.float32)[:, None, None]

    return db.predict.RegressionPredictive(
        db.outcomes.NormalMixture(column(np.log(weights)), column(np.array(means)), column(np.square(deviations)))
    )


def gaussian(mean: float, deviation: float) -> db.predict.RegressionPredictive:
    return mixture([1.0], [mean], [deviation])


def density(weights: list[float], means: list[float], deviations: list[float], y: float) -> float:
    return float(np.sum(np.array(weights) * stats.norm.pdf(y, means, deviations)))


CASES = [
    ([1.0], [0.0], [1.0]),
    ([1.0], [3.0], [0.2]),
    ([0.3, 0.7], [-1.0, 2.0], [0.5, 1.5]),
    ([0.2, 0.5, 0.3], [0.0, 0.1, 5.0], [1.0, 0.3, 2.0]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case[0])} components at {case[1][0]}")
def test_crps_is_the_integral_of_the_squared_gap_of_distribution_functions(case: tuple) -> None:
    def gap(z: float, y: float) -> float:
        return float((np.sum(np.array(case[0]) * stats.norm.cdf(z, case[1], case[2])) - (z >= y)) ** 2)

    for y in (-2.0, 0.0, 4.0):
        parts = [integrate.quad(gap, *ends, args=(y,), limit=200)[0] for ends in ((-25, y), (y, 25))]
        assert metrics.crps(mixture(*case), jnp.array([[y]])) == pytest.approx(sum(parts), rel=1e-4, abs=1e-5)


def test_crps_adds_outputs_and_averages_examples() -> None:
    def stacked(values: list[list[float]]) -> jnp.ndarray:
        return jnp.array(values)[None]

    mean, variance = [[0.0, 1.0], [2.0, -1.0]], [[1.0, 4.0], [0.25, 1.0]]
    predictive = db.predict.RegressionPredictive(
        db.outcomes.NormalMixture(jnp.zeros((1, 2, 2)), stacked(mean), stacked(variance))
    )
    y = jnp.array([[0.5, 0.0], [2.0, 3.0]])
    single = [
        metrics.crps(gaussian(mean[i][j], variance[i][j] ** 0.5), y[i : i + 1, j : j + 1])
        for i in range(2)
        for j in range(2)
    ]
    assert metrics.crps(predictive, y) == pytest.approx(sum(single) / 2, rel=1e-5)


def test_kl_of_gaussians_is_the_integral() -> None:
    p, q = stats.norm(0.5, 0.8), stats.norm(-1.0, 1.7)
    expected = integrate.quad(lambda y: p.pdf(y) * (p.logpdf(y) - q.logpdf(y)), -12, 12)[0]
    assert metrics.kl(gaussian(0.5, 0.8), gaussian(-1.0, 1.7)) == pytest.approx(expected, rel=1e-5)


def test_kl_of_gaussians_adds_outputs() -> None:
    p = db.outcomes.Normal(jnp.array([0.5, 0.0]), jnp.array([0.64, 1.0]))
    q = db.outcomes.Normal(jnp.array([-1.0, 0.0]), jnp.array([2.89, 1.0]))
    assert float(kl_normal(p, q)) == pytest.approx(metrics.kl(gaussian(0.5, 0.8), gaussian(-1.0, 1.7)), rel=1e-5)


def test_kl_of_mixtures_compares_their_moments() -> None:
    p, q = mixture(*CASES[2]), mixture(*CASES[3])
    mean = [0.3 * -1 + 0.7 * 2, 0.05 + 0.3 * 5]
    square = [0.3 * (1 + 0.25) + 0.7 * (4 + 2.25), 0.2 * 1 + 0.5 * (0.01 + 0.09) + 0.3 * (25 + 4)]
    deviation = [np.sqrt(s - m**2) for s, m in zip(square, mean, strict=True)]
    expected = metrics.kl(gaussian(mean[0], deviation[0]), gaussian(mean[1], deviation[1]))
    assert metrics.kl(p, q) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("p", "q"), [(2, 3), (3, 2), (2, 0), (0, 2)])
def test_kl_mixture_is_the_integral(p: int, q: int) -> None:
    def integrand(y: float) -> float:
        return density(*CASES[p], y) * np.log(density(*CASES[p], y) / density(*CASES[q], y))

    expected = integrate.quad(integrand, -15, 20, limit=400, points=[-1, 0, 2, 5])[0]
    assert metrics.kl_mixture(mixture(*CASES[p]), mixture(*CASES[q])) == pytest.approx(expected, rel=1e-3)


def test_kl_mixture_of_gaussians_is_their_kl() -> None:
    p, q = gaussian(0.5, 0.8), gaussian(-1.0, 1.7)
    assert metrics.kl_mixture(p, q) == pytest.approx(metrics.kl(p, q), rel=1e-4)
    assert metrics.kl_mixture(p, p) == pytest.approx(0.0, abs=1e-6)


def test_kl_of_classes_is_the_sum() -> None:
    p, q = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[0.6, 0.4], [0.1, 0.9]])
    expected = stats.entropy(p, q, axis=1).mean()
    assert metrics.kl(classes(*p.tolist()), classes(*q.tolist())) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(kl_categorical(jnp.asarray(p), jnp.asarray(q)), stats.entropy(p, q, axis=1), rtol=1e-5)


def test_kl_of_classes_survives_probabilities_of_zero() -> None:
    expected = special.rel_entr([1.0, 1e-6], [0.5, 0.5]).sum()
    assert metrics.kl(classes([1.0, 0.0]), classes([0.5, 0.5])) == pytest.approx(expected, rel=1e-5)
    expected = special.rel_entr([0.5, 0.5], [1.0, 1e-6]).sum()
    assert metrics.kl(classes([0.5, 0.5]), classes([1.0, 0.0])) == pytest.approx(expected, rel=1e-5)


def test_kl_between_classes_and_reals_is_refused_with_a_message() -> None:
    with pytest.raises(db.InvalidInput, match="not ClassPredictive with RegressionPredictive"):
        metrics.kl(classes([0.5, 0.5]), gaussian(0.0, 1.0))


def test_error_is_a_percentage_of_wrong_labels() -> None:
    assert metrics.error(classes([0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]), jnp.array([0, 1, 1, 1])) == 25.0


def test_brier_is_the_squared_distance_from_the_label() -> None:
    expected = ((0.1**2 + 0.1**2) + (0.6**2 + 0.6**2)) / 2
    assert metrics.brier(classes([0.9, 0.1], [0.4, 0.6]), jnp.array([0, 0])) == pytest.approx(expected)


def test_ece_weighs_the_gaps_of_bins_by_their_examples() -> None:
    rows = [[0.95, 0.05]] * 2 + [[0.35, 0.65]] * 4
    labels = jnp.array([0, 1, 1, 1, 1, 0])
    # Two at confidence .95, half right; four at .65, three right.
    expected = (2 * abs(0.95 - 0.5) + 4 * abs(0.65 - 0.75)) / 6
    assert metrics.ece(classes(*rows), labels) == pytest.approx(expected, rel=1e-5)


def test_ece_of_certainty_is_the_share_of_errors() -> None:
    assert metrics.ece(classes([1.0, 0.0], [1.0, 0.0]), jnp.array([0, 1])) == pytest.approx(0.5)


def test_ece_with_one_bin_is_the_gap_of_the_means() -> None:
    gap = abs((0.9 + 0.6) / 2 - 0.5)
    assert metrics.ece(classes([0.9, 0.1], [0.4, 0.6]), jnp.array([0, 0]), bins=1) == pytest.approx(gap, rel=1e-5)


def test_rmse_is_that_of_the_predictive_mean() -> None:
    predictive = mixture([0.25, 0.75], [0.0, 4.0], [1.0, 2.0])
    assert metrics.rmse(predictive, jnp.array([[1.0]])) == pytest.approx(2.0)


def test_log_likelihood_is_the_mean_log_density() -> None:
    assert metrics.log_likelihood(classes([0.9, 0.1], [0.4, 0.6]), jnp.array([0, 0])) == pytest.approx(
        np.log([0.9, 0.4]).mean()
    )
    assert metrics.log_likelihood(mixture(*CASES[2]), jnp.array([[0.3]])) == pytest.approx(
        np.log(density(*CASES[2], 0.3)), rel=1e-5
    )


def test_coverage_counts_targets_inside_the_central_interval() -> None:
    z = np.array([-2.0, -1.6, 0.0, 1.6, 1.7])
    predictive = db.predict.RegressionPredictive(
        db.outcomes.NormalMixture(jnp.zeros((1, 5, 1)), jnp.zeros((1, 5, 1)), jnp.ones((1, 5, 1)))
    )
    y = jnp.asarray(z, jnp.float32)[:, None]
    assert metrics.coverage(predictive, y) == pytest.approx(0.6)  # The 90% interval ends at 1.645.
    assert metrics.coverage(predictive, y, level=0.5) == pytest.approx(0.2)


def test_the_calibration_gap_of_classes_is_what_the_best_temperature_adds() -> None:
    probs = np.array([[0.99, 0.01]] * 4)
    labels = np.array([0, 0, 0, 1])
    best = np.log([0.75, 0.75, 0.75, 0.25]).mean()  # Some temperature makes .99 into .75, the share that is right.
    expected = best - np.log([0.99, 0.99, 0.99, 0.01]).mean()
    assert metrics.calibration_gap(classes(*probs.tolist()), jnp.asarray(labels)) == pytest.approx(expected, abs=1e-3)


def test_the_calibration_gap_of_a_gaussian_is_what_the_best_scale_adds() -> None:
    y = np.array([[-3.0], [1.0], [2.0], [4.0]])
    predictive = db.predict.RegressionPredictive(
        db.outcomes.NormalMixture(jnp.zeros((1, 4, 1)), jnp.zeros((1, 4, 1)), jnp.ones((1, 4, 1)))
    )
    best = optimize.minimize_scalar(lambda s: -stats.norm.logpdf(y, 0, s).mean(), bounds=(0.1, 10), method="bounded")
    expected = -best.fun - stats.norm.logpdf(y).mean()
    assert metrics.calibration_gap(predictive, jnp.asarray(y, jnp.float32)) == pytest.approx(expected, abs=1e-3)


def test_a_calibrated_predictive_has_no_gap() -> None:
    balanced = classes(*[[0.75, 0.25]] * 4)
    assert metrics.calibration_gap(balanced, jnp.array([0, 0, 0, 1])) == pytest.approx(0.0, abs=1e-4)


def test_gain_kept_is_a_share_between_plug_in_and_teacher() -> None:
    assert metrics.gain_kept(student=-0.2, teacher=-0.1, plugin=-0.5) == pytest.approx(0.75)
    assert metrics.gain_kept(student=-0.5, teacher=-0.1, plugin=-0.5) == 0.0
    assert np.isnan(metrics.gain_kept(student=1.0, teacher=2.0, plugin=2.0))


@pytest.mark.parametrize(
    "metric", [metrics.rmse, metrics.crps, metrics.coverage, metrics.log_likelihood], ids=lambda m: m.__name__
)
def test_targets_of_another_shape_are_refused(metric: Any) -> None:
    """[N] against [N, 1] would be broadcast to [N, N] without a word."""
    many = db.predict.RegressionPredictive(
        db.outcomes.NormalMixture(jnp.zeros((1, 5, 1)), jnp.zeros((1, 5, 1)), jnp.ones((1, 5, 1)))
    )
    with pytest.raises(db.InvalidInput, match=r"y has shape \(5,\), but the predictions are of shape \(5, 1\)"):
        metric(many, jnp.arange(5.0))
