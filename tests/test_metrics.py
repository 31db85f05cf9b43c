"""Scores against independent formulas: hand-made cases, scipy and numerical integration."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

import darkbayes as db
from darkbayes import estimates, metrics
from darkbayes.outcomes import ClassPrediction, NumberPrediction
from darkbayes.outcomes.counts import CountPrediction
from darkbayes.outcomes.guarantee import Guarantee
from darkbayes.outcomes.heads.classes import kl_categorical
from darkbayes.outcomes.heads.number import kl_normal

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def classes(*rows: list[float]) -> ClassPrediction:
    return ClassPrediction.from_probs(np.array(rows))


def numbers(weights: Any, means: Any, deviations: Any, **options: Any) -> NumberPrediction:
    """Mixtures ``[components, rows, outputs]``."""
    return NumberPrediction.standard(np.log(weights), means, np.square(deviations), **options)


def mixture(weights: list[float], means: list[float], deviations: list[float]) -> NumberPrediction:
    """A mixture of Gaussians of one output at one input."""
    return numbers(*(np.array(values)[:, None, None] for values in (weights, means, deviations)))


def gaussian(mean: float, deviation: float) -> NumberPrediction:
    return mixture([1.0], [mean], [deviation])


def standard_normal(rows: int) -> NumberPrediction:
    return numbers(np.ones((1, rows, 1)), np.zeros((1, rows, 1)), np.ones((1, rows, 1)))


def density(weights: list[float], means: list[float], deviations: list[float], y: float) -> float:
    return float(np.sum(np.array(weights) * stats.norm.pdf(y, means, deviations)))


CASES = [
    ([1.0], [0.0], [1.0]),
    ([1.0], [3.0], [0.2]),
    ([0.3, 0.7], [-1.0, 2.0], [0.5, 1.5]),
    ([0.2, 0.5, 0.3], [0.0, 0.1, 5.0], [1.0, 0.3, 2.0]),
]

WEIGHTS = np.array([[[0.4, 0.2], [0.7, 0.5], [0.1, 0.9]], [[0.6, 0.8], [0.3, 0.5], [0.9, 0.1]]])
MEANS = np.array([[[0.0, 1.0], [2.0, -1.0], [0.5, 3.0]], [[1.0, -2.0], [2.5, 0.0], [-1.0, 2.0]]])
DEVIATIONS = np.array([[[1.0, 2.0], [0.5, 1.0], [0.3, 1.5]], [[0.7, 0.4], [2.0, 1.1], [0.9, 0.6]]])
TRUTH = np.array([[0.5, 0.0], [2.0, 3.0], [-0.4, 2.2]])
PROBS = np.random.default_rng(0).dirichlet(np.ones(4), 300)
LABELS = np.random.default_rng(1).integers(0, 4, 300)


def several() -> NumberPrediction:
    """Mixtures of two Gaussians for two outputs of three rows."""
    return numbers(WEIGHTS, MEANS, DEVIATIONS)


def each_output(score: Any) -> list[list[float]]:
    """A score of every output of every row of `several` by itself."""
    return [
        [
            score(mixture(WEIGHTS[:, i, j], MEANS[:, i, j], DEVIATIONS[:, i, j]), TRUTH[i : i + 1, j : j + 1])
            for j in range(2)
        ]
        for i in range(3)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case[0])} components at {case[1][0]}")
def test_crps_is_the_integral_of_the_squared_gap_of_distribution_functions(case: tuple) -> None:
    def gap(z: float, y: float) -> float:
        return float((np.sum(np.array(case[0]) * stats.norm.cdf(z, case[1], case[2])) - (z >= y)) ** 2)

    for y in (-2.0, 0.0, 4.0):
        parts = [integrate.quad(gap, *ends, args=(y,), limit=200)[0] for ends in ((-25, y), (y, 25))]
        assert metrics.crps(mixture(*case), np.array([[y]])) == pytest.approx(sum(parts), rel=1e-4, abs=1e-5)


def test_crps_adds_outputs_and_averages_examples() -> None:
    assert metrics.crps(several(), TRUTH) == pytest.approx(np.sum(each_output(metrics.crps)) / 3, rel=1e-9)


def test_kl_of_gaussians_is_the_integral() -> None:
    p, q = stats.norm(0.5, 0.8), stats.norm(-1.0, 1.7)
    expected = integrate.quad(lambda y: p.pdf(y) * (p.logpdf(y) - q.logpdf(y)), -12, 12)[0]
    assert metrics.kl(gaussian(0.5, 0.8), gaussian(-1.0, 1.7)) == pytest.approx(expected, rel=1e-5)


def test_kl_of_gaussians_adds_outputs() -> None:
    p = db.outcomes.Normal(jnp.array([0.5, 0.0]), jnp.array([0.64, 1.0]))
    q = db.outcomes.Normal(jnp.array([-1.0, 0.0]), jnp.array([2.89, 1.0]))
    expected = metrics.kl(gaussian(0.5, 0.8), gaussian(-1.0, 1.7))
    assert float(kl_normal(p, q)) == pytest.approx(expected, rel=1e-5)
    both = [
        numbers(*np.array([[[[1.0, 1.0]]], [[means]], [[stds]]]))
        for means, stds in (([0.5, 0.0], [0.8, 1.0]), ([-1.0, 0.0], [1.7, 1.0]))
    ]
    assert metrics.kl(*both) == pytest.approx(expected, rel=1e-9)


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


def test_kl_mixture_is_a_trapezoidal_rule_over_its_reach() -> None:
    y = 0.5 + 0.8 * np.array([-1.5, 0.0, 1.5])
    log_p, log_q = stats.norm.logpdf(y, 0.5, 0.8), stats.norm.logpdf(y, -1.0, 1.7)
    expected = integrate.trapezoid(np.exp(log_p) * (log_p - log_q), y)
    actual = metrics.kl_mixture(gaussian(0.5, 0.8), gaussian(-1.0, 1.7), nodes=3, reach=1.5)
    assert actual == pytest.approx(expected, rel=1e-9)


def test_kl_mixture_adds_outputs_and_averages_examples() -> None:
    parts = each_output(lambda one, y: metrics.kl_mixture(one, gaussian(0.5, 2.0)))
    other = numbers(np.ones((1, 3, 2)), np.full((1, 3, 2), 0.5), np.full((1, 3, 2), 2.0))
    assert metrics.kl_mixture(several(), other) == pytest.approx(np.sum(parts) / 3, rel=1e-9)


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


def test_kl_between_classes_and_numbers_is_refused_with_a_message() -> None:
    with pytest.raises(db.InvalidInput, match="not ClassPrediction with NumberPrediction"):
        metrics.kl(classes([0.5, 0.5]), gaussian(0.0, 1.0))


def test_error_is_a_percentage_of_wrong_labels() -> None:
    assert metrics.error(classes([0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]), np.array([0, 1, 1, 1])) == 25.0


def test_brier_is_the_squared_distance_from_the_label() -> None:
    expected = ((0.1**2 + 0.1**2) + (0.6**2 + 0.6**2)) / 2
    assert metrics.brier(classes([0.9, 0.1], [0.4, 0.6]), np.array([0, 0])) == pytest.approx(expected)
    one_hot = np.eye(4)[LABELS]
    expected = ((PROBS - one_hot) ** 2).sum(axis=1).mean()
    assert metrics.brier(ClassPrediction.from_probs(PROBS), LABELS) == pytest.approx(expected)


def test_ece_weighs_the_gaps_of_bins_by_their_examples() -> None:
    rows = [[0.95, 0.05]] * 2 + [[0.35, 0.65]] * 4
    labels = np.array([0, 1, 1, 1, 1, 0])
    # Two at confidence .95, half right; four at .65, three right.
    expected = (2 * abs(0.95 - 0.5) + 4 * abs(0.65 - 0.75)) / 6
    assert metrics.ece(classes(*rows), labels) == pytest.approx(expected, rel=1e-5)


def test_ece_of_certainty_is_the_share_of_errors() -> None:
    assert metrics.ece(classes([1.0, 0.0], [1.0, 0.0]), np.array([0, 1])) == pytest.approx(0.5)


def test_ece_of_many_is_the_mean_gap_over_fifteen_bins() -> None:
    """Right and wrong bin by bin, so that the gaps of other bins would cancel; certainty belongs to the last bin."""
    confidence = np.append(0.5 + (np.arange(300) + 0.5) / 602, [1.0] * 30)
    places = np.append(np.digitize(confidence[:300], np.arange(1, 15) / 15), [14] * 30)
    right = ((places % 2 == 1) | (places == 14)) & (confidence < 1.0)
    gaps = [(places == place).mean() * abs((right - confidence)[places == place].mean()) for place in range(7, 15)]
    prediction = classes(*np.stack([confidence, 1 - confidence], axis=1).tolist())
    assert metrics.ece(prediction, np.where(right, 0, 1)) == pytest.approx(sum(gaps), rel=1e-9)


def test_rmse_is_that_of_the_predictive_mean() -> None:
    predictive = mixture([0.25, 0.75], [0.0, 4.0], [1.0, 2.0])
    assert metrics.rmse(predictive, np.array([[1.0]])) == pytest.approx(2.0)
    expected = np.sqrt(np.mean((np.sum(WEIGHTS * MEANS, axis=0) - TRUTH) ** 2))
    assert metrics.rmse(several(), TRUTH) == pytest.approx(expected)


def test_log_likelihood_is_the_mean_log_density() -> None:
    assert metrics.log_likelihood(classes([0.9, 0.1], [0.4, 0.6]), np.array([0, 0])) == pytest.approx(
        np.log([0.9, 0.4]).mean()
    )
    assert metrics.log_likelihood(mixture(*CASES[2]), np.array([[0.3]])) == pytest.approx(
        np.log(density(*CASES[2], 0.3)), rel=1e-5
    )


def test_outputs_are_scored_apart_unless_those_of_a_component_go_together() -> None:
    densities = stats.norm.pdf(TRUTH, MEANS, DEVIATIONS)
    apart = np.log(np.sum(WEIGHTS * densities, axis=0)).sum(axis=1).mean()
    assert metrics.log_likelihood(several(), TRUTH) == pytest.approx(apart)
    shared = np.repeat(WEIGHTS[..., :1], 2, axis=-1)
    together = np.log(np.sum(shared[..., 0] * densities.prod(axis=-1), axis=0)).mean()
    joint = numbers(shared, MEANS, DEVIATIONS, joint=True)
    assert metrics.log_likelihood(joint, TRUTH) == pytest.approx(together)


def test_coverage_counts_targets_inside_the_central_interval() -> None:
    y = np.array([-2.0, -1.6, 0.0, 1.6, 1.7])[:, None]
    assert metrics.coverage(standard_normal(5), y) == pytest.approx(0.6)  # The 90% interval ends at 1.645.
    assert metrics.coverage(standard_normal(5), y, level=0.5) == pytest.approx(0.2)


def test_coverage_of_mixtures_and_several_outputs_asks_their_distribution_functions() -> None:
    below = np.sum(WEIGHTS * stats.norm.cdf(TRUTH, MEANS, DEVIATIONS), axis=0)
    for level in (0.5, 0.8, 0.9):
        expected = np.mean(np.abs(below - 0.5) <= level / 2)
        assert metrics.coverage(several(), TRUTH, level) == pytest.approx(expected)


def test_the_calibration_gap_of_classes_is_what_the_best_temperature_adds() -> None:
    probs = np.array([[0.99, 0.01]] * 4)
    labels = np.array([0, 0, 0, 1])
    best = np.log([0.75, 0.75, 0.75, 0.25]).mean()  # Some temperature makes .99 into .75, the share that is right.
    expected = best - np.log([0.99, 0.99, 0.99, 0.01]).mean()
    assert metrics.calibration_gap(classes(*probs.tolist()), labels) == pytest.approx(expected, abs=1e-3)


def test_the_calibration_gap_of_a_gaussian_is_what_the_best_scale_adds() -> None:
    y = np.array([[-3.0], [1.0], [2.0], [4.0]])
    best = optimize.minimize_scalar(lambda s: -stats.norm.logpdf(y, 0, s).mean(), bounds=(0.1, 10), method="bounded")
    expected = -best.fun - stats.norm.logpdf(y).mean()
    assert metrics.calibration_gap(standard_normal(4), y) == pytest.approx(expected, abs=1e-3)


def test_the_calibration_gap_of_several_mixtures_is_what_the_best_scale_adds() -> None:
    center = np.sum(WEIGHTS * MEANS, axis=0)

    def loss(scale: float) -> float:
        densities = stats.norm.pdf(TRUTH, center + scale * (MEANS - center), scale * DEVIATIONS)
        return -np.log(np.sum(WEIGHTS * densities, axis=0)).sum(axis=1).mean()

    best = optimize.minimize_scalar(loss, bounds=(0.05, 20), method="bounded")
    assert metrics.calibration_gap(several(), TRUTH) == pytest.approx(loss(1.0) - best.fun, abs=1e-3)


@pytest.mark.parametrize(("y", "scale"), [(0.0, 1 / 20), (1000.0, 20.0)])
def test_the_best_scale_is_sought_between_a_twentieth_and_twenty(y: float, scale: float) -> None:
    expected = stats.norm.logpdf(y, 0, scale) - stats.norm.logpdf(y)
    assert metrics.calibration_gap(standard_normal(1), np.array([[y]])) == pytest.approx(expected, rel=1e-9)


def test_a_calibrated_predictive_has_no_gap() -> None:
    balanced = classes(*[[0.75, 0.25]] * 4)
    assert metrics.calibration_gap(balanced, np.array([0, 0, 0, 1])) == pytest.approx(0.0, abs=1e-4)


def test_gain_kept_is_a_share_between_plug_in_and_teacher() -> None:
    assert metrics.gain_kept(student=-0.2, teacher=-0.1, plugin=-0.5) == pytest.approx(0.75)
    assert metrics.gain_kept(student=-0.5, teacher=-0.1, plugin=-0.5) == 0.0
    assert np.isnan(metrics.gain_kept(student=1.0, teacher=2.0, plugin=2.0))


def test_a_kept_gain_is_that_of_the_mean_log_likelihoods_with_the_error_of_a_ratio() -> None:
    rng = np.random.default_rng(0)
    plugin = rng.normal(size=2000)
    teacher, student = plugin + 1 + rng.normal(size=2000), plugin + 0.5 + rng.normal(size=2000)
    kept = metrics.kept_gain(student, teacher, plugin)
    expected = metrics.gain_kept(student.mean(), teacher.mean(), plugin.mean())
    assert kept.share.value == pytest.approx(expected)
    rows = rng.integers(0, 2000, (4000, 2000))
    again = (student - plugin)[rows].mean(axis=1) / (teacher - plugin)[rows].mean(axis=1)
    assert kept.share.error == pytest.approx(again.std(), rel=0.06)
    assert kept.clear
    assert not metrics.kept_gain(student, plugin, plugin).clear


@pytest.mark.parametrize(
    "metric", [metrics.rmse, metrics.crps, metrics.coverage, metrics.log_likelihood], ids=lambda m: m.__name__
)
def test_targets_of_another_shape_are_refused(metric: Any) -> None:
    """[N, 2] against [N, 1] would be broadcast without a word."""
    with pytest.raises(db.InvalidInput, match=r"y has shape \(5, 2\), but the predictions are of shape \(5, 1\)"):
        metric(standard_normal(5), np.zeros((5, 2)))
    assert metric(standard_normal(5), np.arange(5.0)) == metric(standard_normal(5), np.arange(5.0)[:, None])


@pytest.mark.parametrize("metric", [metrics.error, metrics.brier, metrics.ece], ids=lambda m: m.__name__)
def test_a_score_of_classes_is_refused_for_numbers(metric: Any) -> None:
    complaint = f"{metric.__name__} is not a score of a NumberPrediction: it has log_likelihood, rmse, coverage_90"
    with pytest.raises(db.InvalidInput, match=complaint):
        metric(standard_normal(2), np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("metric", "complaint"),
    [
        (metrics.rmse, "rmse is not a score of a ClassPrediction: it has log_likelihood, error, brier, ece"),
        (metrics.crps, "a ClassPrediction has no crps: use a score that is defined for it"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_a_score_of_numbers_is_refused_for_classes(metric: Any, complaint: str) -> None:
    with pytest.raises(db.InvalidInput, match=complaint):
        metric(classes([0.5, 0.5]), np.array([0]))


def test_crps_is_refused_for_a_number_that_is_modelled_by_its_logarithm() -> None:
    target = db.outcomes.NumberTarget("price", "log", center=3.0, scale=0.5, low=1.0, high=90.0)
    with pytest.raises(db.InvalidInput, match="modelled by its logarithm"):
        metrics.crps(target.own_unit(gaussian(0.0, 1.0)), np.array([[20.0]]))


def test_the_scores_of_a_number_that_is_modelled_by_its_logarithm_are_those_of_a_log_normal() -> None:
    target = db.outcomes.NumberTarget("price", "log", center=3.0, scale=0.5, low=1.0, high=90.0)
    prediction, law = target.own_unit(gaussian(0.4, 0.8)), stats.lognorm(0.4, scale=np.exp(3.2))
    y = np.array([[20.0]])
    assert metrics.log_likelihood(prediction, y) == pytest.approx(law.logpdf(20.0))
    assert metrics.rmse(prediction, y) == pytest.approx(abs(law.median() - 20.0))
    assert metrics.coverage(prediction, y) == 1.0
    assert metrics.coverage(prediction, law.ppf([[0.96]])) == 0.0
    assert prediction.mean.item() == pytest.approx(law.mean())


def test_the_point_of_a_number_that_is_modelled_by_its_logarithm_is_the_median_and_lies_in_every_interval() -> None:
    """Where the tail is so long that the mean lies beyond all that is likely."""
    target = db.outcomes.NumberTarget("price", "log", center=3.0, scale=2.0, low=1.0, high=90.0)
    prediction = target.own_unit(gaussian(0.4, 3.0))
    low, high = prediction.interval(0.9)
    assert prediction.mean > high
    assert low < prediction.aim < high
    assert prediction.aim == pytest.approx(prediction.quantile(0.5))
    columns = target.table(prediction, 0.9)
    assert list(columns)[:3] == ["median", "mean", "std"]
    assert columns["median"] == prediction.aim
    assert target.answer(prediction, 0.9)["median"] == prediction.aim
    plain = dataclasses.replace(target, transform="identity")
    assert next(iter(plain.table(plain.own_unit(gaussian(0.4, 3.0)), 0.9))) == "mean"


def test_an_interval_reaches_the_mean_that_rare_values_have_moved_out_of_it() -> None:
    skewed = mixture([0.96, 0.04], [0.0, 100.0], [1.0, 1.0])
    rare = CountPrediction.of_mixture(np.zeros((1, 1, 1)), np.full((1, 1, 1), 0.05), np.zeros((1, 1, 1)))
    assert skewed.quantile(0.95).item() < skewed.aim.item() == pytest.approx(4.0)
    assert rare.quantile(0.95).item() == 0 < rare.aim.item()
    for prediction, high in ((skewed, 4.0), (rare, 1.0)):
        for guarantee in (None, Guarantee(0.9, 50, (0.1,))):
            promised = dataclasses.replace(prediction, guarantee=guarantee)
            assert np.ravel(promised.interval(0.9))[1] == pytest.approx(high)
            assert promised.interval(0.9)[0].item() <= 0.0
    assert skewed.interval(0.99)[1].item() == skewed.quantile(0.995).item()


@pytest.mark.parametrize(
    ("prediction", "y"), [(ClassPrediction.from_probs(PROBS), LABELS), (several(), TRUTH)], ids=["classes", "numbers"]
)
def test_scores_in_batches_are_those_of_all_rows_with_the_error_of_their_mean(prediction: Any, y: np.ndarray) -> None:
    collected, cut = metrics.Scores(), len(y) // 3
    for rows in (slice(0, cut), slice(cut, None)):
        part = (
            ClassPrediction(prediction.log_probs[rows])
            if isinstance(prediction, ClassPrediction)
            else numbers(WEIGHTS[:, rows], MEANS[:, rows], DEVIATIONS[:, rows])
        )
        collected.add(part, y[rows])
    together = metrics.scores(prediction, y)
    for name, score in collected.result().items():
        assert score.value == pytest.approx(together[name].value)
        assert score.error == pytest.approx(together[name].error)
    log_probs = prediction.log_prob(y)
    assert together["log_likelihood"].value == pytest.approx(log_probs.mean())
    assert together["log_likelihood"].error == pytest.approx(stats.sem(log_probs))
    assert [row["metric"] for row in collected.rows("student")] == list(together)
    assert all(row["examples"] == len(y) for row in collected.rows("student"))


def test_the_error_of_a_root_is_that_of_the_mean_to_first_order_and_a_row_of_results_has_it() -> None:
    y = np.array([[1.0], [-2.0], [0.5], [3.0]])
    collected = metrics.Scores()
    collected.add(standard_normal(4), y)
    row = next(row for row in collected.rows("student") if row["metric"] == "rmse")
    root = np.sqrt(np.mean(y**2))
    error = stats.sem(y[:, 0] ** 2) / (2 * root)
    assert row == {
        "method": "student",
        "metric": "rmse",
        "mean": pytest.approx(root),
        "se": pytest.approx(error),
        "examples": 4,
        "trials": 1,
    }


@pytest.mark.parametrize(
    ("gain", "share", "clear"),
    [((1.0, 0.1), 0.5, True), ((1.0, 0.9), 0.5, False), ((-1.0, 0.1), 0.5, False), ((1.0, 0.1), math.nan, False)],
)
def test_a_share_says_something_if_there_is_a_gain_that_is_no_accident(gain: Any, share: float, clear: bool) -> None:
    own = estimates.Estimate(0.5, 0.1)
    assert metrics.KeptGain(estimates.Estimate(*gain), own, estimates.Estimate(share)).clear == clear


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(db.InvalidInput, match="no row has a value of a target"):
        metrics.Scores().result()


def test_the_binomial_range_is_the_one_of_the_tables() -> None:
    # Quantiles 0.025 and 0.975 of the binomial distribution.
    assert estimates.by_chance(20, 0.5) == (6, 14)
    assert estimates.by_chance(10, 0.1) == (0, 3)


def test_a_wilson_interval_is_that_of_scipy() -> None:
    share, count = np.array([0.0, 0.3, 1.0]), np.array([7, 20, 50])
    ends = estimates.wilson(share, count, z=float(stats.norm.ppf(0.975)))
    expected = [
        stats.binomtest(round(s * c), int(c)).proportion_ci(method="wilson") for s, c in zip(share, count, strict=True)
    ]
    np.testing.assert_allclose(np.transpose(ends), expected, atol=1e-12)


def test_a_ratio_to_nothing_is_unknown() -> None:
    assert math.isnan(db.metrics.ratio(np.ones(3), np.zeros(3)).value)
