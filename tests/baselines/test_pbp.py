"""Probabilistic backpropagation: each of its moments is that of the distribution it stands for."""

from collections import Counter
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import darkbayes as db
from darkbayes.baselines import PBP, PBPState
from darkbayes.baselines.pbp import (
    Gamma,
    PriorFactors,
    Weights,
    linear_moments,
    network_moments,
    observe,
    refine_priors,
    relu_moments,
    update_gamma,
)

pytestmark = pytest.mark.usefixtures("strict")

SAMPLES = 200_000


def random_weights(rng: np.random.Generator, *widths: int) -> tuple[Weights, ...]:
    shapes = [(outputs, inputs + 1) for inputs, outputs in pairwise(widths)]
    return tuple(
        Weights(jnp.asarray(rng.normal(size=s), jnp.float32), jnp.asarray(rng.uniform(0.2, 2.0, s), jnp.float32))
        for s in shapes
    )


def gamma(shape: float, rate: float) -> Gamma:
    return Gamma(jnp.float32(shape), jnp.float32(rate))


def draw(rng: np.random.Generator, mean: Any, variance: Any, samples: int = SAMPLES) -> np.ndarray:
    return rng.normal(np.asarray(mean), np.sqrt(np.asarray(variance)), (samples, *np.shape(mean)))


def layer(rng: np.random.Generator, weights: Weights, z: np.ndarray) -> np.ndarray:
    """The linear layer for inputs ``[samples, inputs]``, each with weights of its own."""
    inputs = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    return np.einsum("soi,si->so", draw(rng, *weights, samples=len(z)), inputs) / np.sqrt(inputs.shape[1])


def assert_moments(values: np.ndarray, mean: Any, variance: Any, z_scores: Any) -> None:
    """The samples have the mean and the variance, within 4.5 standard errors of either."""
    assert np.abs(z_scores(values, mean)).max() < 4.5
    assert np.abs(z_scores((values - np.asarray(mean)) ** 2, variance)).max() < 4.5


# Moments


def test_the_moments_of_a_linear_layer_are_exact(z_scores: Any) -> None:
    """Of four units with five uncertain inputs; fails by chance with probability 6e-5 for another seed."""
    rng = np.random.default_rng(0)
    (weights,) = random_weights(rng, 5, 4)
    mean, variance = rng.normal(size=5).astype(np.float32), rng.uniform(0.1, 2.0, 5).astype(np.float32)
    values = layer(rng, weights, draw(rng, mean, variance))
    assert_moments(values, *linear_moments(weights, jnp.asarray(mean), jnp.asarray(variance)), z_scores)


def test_the_moments_of_a_rectified_gaussian_are_exact(z_scores: Any) -> None:
    """Of seven units; fails by chance with probability 1e-4 for another seed."""
    mean = jnp.array([-2.0, -1.0, -0.3, 0.0, 0.3, 1.0, 4.0])
    variance = jnp.array([1.0, 0.5, 2.0, 1.0, 3.0, 0.5, 1.0])
    values = np.maximum(draw(np.random.default_rng(1), mean, variance), 0.0)
    assert_moments(values, *relu_moments(mean, variance), z_scores)


def test_rectified_moments_are_those_of_the_published_equations() -> None:
    """The equations with the ratio gamma = phi/Phi, in double precision.

    Ours lose a factor alpha^4/2 of relative precision where alpha is negative, of a variance that vanishes there.
    """
    alpha, deviation = np.linspace(-5.0, 12.0, 171), 1.7
    ratio = np.exp(stats.norm.logpdf(alpha) - stats.norm.logcdf(alpha))
    shifted = deviation * (alpha + ratio)
    mean = stats.norm.cdf(alpha) * shifted
    rest = stats.norm.cdf(alpha) * deviation**2 * (1 - ratio**2 - ratio * alpha)
    variance = mean * shifted * stats.norm.cdf(-alpha) + rest
    ours = relu_moments(jnp.asarray(alpha * deviation, jnp.float32), jnp.full(171, deviation**2, jnp.float32))
    np.testing.assert_allclose(ours[0], mean, rtol=1e-4)
    np.testing.assert_allclose(ours[1], variance, rtol=1e-3)


@pytest.mark.parametrize("alpha", [-1e30, -100.0, -30.0, -13.0, 13.0, 30.0, 100.0, 1e18])
def test_a_unit_that_is_surely_on_or_off_has_finite_moments_and_slopes(alpha: float) -> None:
    moments = relu_moments(jnp.float32(alpha), jnp.float32(1.0))
    expected = (alpha, 1.0) if alpha > 0 else (0.0, 0.0)
    np.testing.assert_allclose(moments, expected, rtol=1e-6, atol=1e-30)
    slopes = jax.jacobian(relu_moments, argnums=(0, 1))(jnp.float32(alpha), jnp.float32(1.0))
    np.testing.assert_allclose(slopes, np.eye(2) if alpha > 0 else np.zeros((2, 2)), rtol=1e-6, atol=1e-30)


def test_the_moments_of_a_network_with_one_hidden_layer_are_exact(z_scores: Any) -> None:
    """At a known input hidden units are independent Gaussians.

    Fails by chance with probability 1.4e-5 for another seed.
    """
    rng = np.random.default_rng(2)
    weights = random_weights(rng, 3, 6, 1)
    x = jnp.array([0.5, -1.0, 2.0])
    hidden = np.maximum(layer(rng, weights[0], np.tile(x, (SAMPLES, 1))), 0.0)
    assert_moments(layer(rng, weights[1], hidden), *network_moments(weights, x), z_scores)


def test_each_deeper_layer_takes_the_one_below_for_independent_gaussians(z_scores: Any) -> None:
    """With those Gaussians drawn, the last layer is exact; fails by chance with probability 1.4e-5 for another seed."""
    rng = np.random.default_rng(3)
    weights = random_weights(rng, 2, 5, 4, 1)
    x = jnp.array([1.0, -0.5])
    hidden = np.maximum(draw(rng, *network_moments(weights[:2], x)), 0.0)
    assert_moments(layer(rng, weights[2], hidden), *network_moments(weights, x), z_scores)


# Updates


def test_a_data_point_gives_the_exact_marginals_of_a_linear_model() -> None:
    """The posterior of weights N(m, diag v) after y = w.x + noise, in closed form."""
    rng = np.random.default_rng(4)
    (weights,) = random_weights(rng, 4, 1)
    x, y, noise = rng.normal(size=4), 1.3, gamma(5.0, 2.0)
    design, variance = np.append(x, 1.0) / np.sqrt(5.0), np.asarray(weights.variance[0], np.float64)
    covariance = np.linalg.inv(np.diag(1 / variance) + np.outer(design, design) / 0.5)  # 2/(5 - 1)
    mean = covariance @ (np.asarray(weights.mean[0]) / variance + design * y / 0.5)

    (updated,), _ = observe((weights,), noise, jnp.asarray(x, jnp.float32), jnp.array([y], jnp.float32))
    np.testing.assert_allclose(updated.mean[0], mean, rtol=1e-5)
    np.testing.assert_allclose(updated.variance[0], np.diag(covariance), rtol=1e-5)


def test_an_update_without_a_proper_variance_is_undone() -> None:
    rng = np.random.default_rng(5)
    weights, noise = random_weights(rng, 2, 3, 1), gamma(6.0, 6.0)
    updated, updated_noise = observe(weights, noise, jnp.array([1.0, jnp.nan]), jnp.array([0.0]))
    assert all(jnp.array_equal(a, b) for a, b in zip(jax.tree.leaves(updated), jax.tree.leaves(weights), strict=True))
    assert updated_noise == noise


def literal_update(a: Any, b: Any, error: Any, variance: Any) -> tuple[Any, Any]:
    """The gamma update as it is published."""
    log_z, log_z1, log_z2 = (
        stats.norm.logpdf(error, scale=np.sqrt(variance + b / shape)) for shape in (a - 1, a, a + 1)
    )
    new_a = 1 / (np.exp(log_z2 - 2 * log_z1 + log_z) * (a + 1) / a - 1)
    return new_a, 1 / (np.exp(log_z2 - log_z1) * (a + 1) / b - np.exp(log_z1 - log_z) * a / b)


@pytest.mark.parametrize(("a", "b"), [(1.5, 1.0), (6.0, 6.0), (100.0, 10.0)])
@pytest.mark.parametrize("error", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("variance", [0.0, 0.1, 50.0])
def test_the_gamma_update_is_the_published_one(a: float, b: float, error: float, variance: float) -> None:
    ours = update_gamma(gamma(a, b), jnp.float32(error), jnp.float32(variance))
    np.testing.assert_allclose(ours, literal_update(a, b, error, variance), rtol=3e-5)


@pytest.mark.parametrize(("error", "variance"), [(0.0, 0.2), (0.5, 0.05), (0.5, 0.5), (1.5, 0.2), (2.0, 1.0)])
def test_the_gamma_update_matches_the_moments_of_the_product(error: float, variance: float) -> None:
    """Against integrals of tau and tau^2 under Ga(tau | a, b) N(error | 0, variance + 1/tau).

    The update takes the evidence, a scale mixture of Gaussians, for the Gaussian of its variance, which is off by a
    share 1/a: compared are the changes of shape and mean.
    """
    a, b = 300.0, 150.0
    tau = np.linspace(1.2, 3.0, 20_001)
    density = stats.gamma.pdf(tau, a, scale=1 / b) * stats.norm.pdf(error, scale=np.sqrt(variance + 1 / tau))
    evidence, first, second = (integrate.simpson(density * tau**power, x=tau) for power in (0, 1, 2))
    mean, square = first / evidence, second / evidence
    shape = mean**2 / (square - mean**2)

    updated = update_gamma(gamma(a, b), jnp.float32(error), jnp.float32(variance))
    np.testing.assert_allclose(updated.shape - a, shape - a, rtol=0.03, atol=0.01)
    np.testing.assert_allclose(updated.shape / updated.rate - a / b, mean - a / b, rtol=0.03, atol=5e-5)


def test_single_precision_follows_ten_thousand_gamma_updates() -> None:
    """From the published form in double precision; in single precision that form ends 8% off."""
    errors = np.random.default_rng(6).normal(0.0, 0.4, 10_000).astype(np.float32)
    ours, _ = jax.lax.scan(lambda g, e: (update_gamma(g, e, jnp.float32(0.05)), None), gamma(6, 6), jnp.asarray(errors))
    a = b = 6.0
    for error in errors.astype(np.float64):
        totals = 0.05 + b / np.array([a - 1, a, a + 1])
        log_z, log_z1, log_z2 = -0.5 * (np.log(totals) + error**2 / totals)
        ratio, curvature = np.exp(log_z1 - log_z), np.exp(log_z2 - 2 * log_z1 + log_z)
        a, b = 1 / (curvature * (a + 1) / a - 1), b / (ratio * (curvature * (a + 1) - a))
    assert a > 1000
    np.testing.assert_allclose(ours, (a, b), rtol=1e-3)


# The prior


def one_site() -> tuple[Weights, PriorFactors, Gamma]:
    weight = Weights(jnp.array([0.8]), jnp.array([0.3]))
    return weight, PriorFactors(jnp.array([0.9]), jnp.array([0.5]), jnp.array([0.2])), gamma(7.0, 5.0)


def test_refining_gives_the_moments_of_cavity_times_prior() -> None:
    weight, factor, prior = one_site()
    cavity_variance = 1 / (1 / 0.3 - 0.9)
    cavity_mean = 0.8 / 0.3 * cavity_variance
    prior_variance = (5.0 - 0.2) / (7.0 - 0.5 - 1)
    w = np.linspace(-8.0, 8.0, 20_001)
    density = stats.norm.pdf(w, cavity_mean, np.sqrt(cavity_variance)) * stats.norm.pdf(w, 0.0, np.sqrt(prior_variance))
    evidence, first, second = (integrate.simpson(density * w**power, x=w) for power in (0, 1, 2))
    mean, variance = first / evidence, second / evidence - (first / evidence) ** 2

    refined, refined_factor, refined_prior = refine_priors(weight, factor, prior)
    np.testing.assert_allclose(refined.mean[0], mean, rtol=1e-5)
    np.testing.assert_allclose(refined.variance[0], variance, rtol=1e-5)
    # The factor is what the cavity lacks, of the weight and of the precision.
    np.testing.assert_allclose(refined_factor.precision[0], 1 / variance - 1 / cavity_variance, rtol=1e-5)
    expected = literal_update(6.5, 4.8, cavity_mean, cavity_variance)
    np.testing.assert_allclose(refined_prior, expected, rtol=1e-5)
    np.testing.assert_allclose(refined_factor.shape[0], expected[0] - 6.5, rtol=1e-4)
    np.testing.assert_allclose(refined_factor.rate[0], expected[1] - 4.8, rtol=1e-4)


def test_refining_the_only_factor_again_changes_nothing() -> None:
    once = refine_priors(*one_site())
    twice = refine_priors(*once)
    for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(twice), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("variance", [1 / 0.9, 1.2, float(np.nextafter(np.float32(1 / 0.9), np.float32(0)))])
def test_a_weight_without_a_proper_cavity_is_left_alone(variance: float, trees_equal: Any) -> None:
    """Its variance is that of the factor, larger, or less by a rounding; the next weight is refined all the same."""
    weight, factor, prior = one_site()
    both = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), (weight, factor))
    weights = both[0]._replace(variance=jnp.array([variance, 0.3]))
    refined, refined_factor, refined_prior = refine_priors(weights, both[1], prior)
    alone = refine_priors(weight, factor, prior)
    first = jax.tree.map(lambda leaf: leaf[:1], (refined, refined_factor))
    assert trees_equal(first, (Weights(weights.mean[:1], weights.variance[:1]), factor))
    second = jax.tree.map(lambda leaf: leaf[1:], (refined, refined_factor))
    assert trees_equal((*second, refined_prior), alone)


def test_a_factor_that_is_all_of_the_prior_is_left_alone(trees_equal: Any) -> None:
    weight, factor, prior = one_site()
    factor = factor._replace(shape=jnp.array([6.5]))
    assert trees_equal(refine_priors(weight, factor, prior), (weight, factor, prior))


# The whole


def line(key: jax.Array, examples: int = 60) -> db.Data:
    x_key, noise_key = jax.random.split(key)
    x = jax.random.normal(x_key, (examples, 2))
    y = 0.9 * x[:, :1] - 0.4 * x[:, 1:] + 0.2 * jax.random.normal(noise_key, (examples, 1))
    return db.Data(x, y)


def test_a_linear_model_finds_the_least_squares_weights_and_the_noise() -> None:
    data = line(jax.random.key(0), 300)
    state = PBP((), passes=10).fit(jax.random.key(1), data)
    design = np.append(np.asarray(data.x), np.ones((300, 1)), axis=1)
    weights, *_ = np.linalg.lstsq(design, np.asarray(data.y[:, 0]), rcond=None)
    np.testing.assert_allclose(state.weights[0].mean[0] / np.sqrt(3), weights, atol=0.02)
    np.testing.assert_allclose(state.noise.variance, 0.04, rtol=0.2)


@pytest.mark.parametrize("hidden", [(10,), (8, 8)])
def test_a_network_predicts_a_line_to_within_its_noise(hidden: tuple[int, ...]) -> None:
    """The noise has standard deviation 0.2, the targets about 1."""
    pbp = PBP(hidden, passes=20)
    state = pbp.fit(jax.random.key(1), line(jax.random.key(0)))
    test = line(jax.random.key(2), 500)
    predictive = db.predict_student(pbp, state, test.x)
    assert jnp.sqrt(jnp.mean((predictive.mean - test.y) ** 2)) < 0.3
    assert jnp.mean(predictive.log_prob(test.y)) > -0.3


def test_fits_of_many_data_sets_at_once_are_those_of_each(compilations: Counter[str]) -> None:
    pbp = PBP((4,), passes=3)
    keys, data_keys = jax.random.split(jax.random.key(0), (2, 3))
    data = jax.vmap(line)(data_keys)
    together = jax.jit(jax.vmap(pbp.fit))(keys, data)
    assert compilations["fit"] == 1
    for i, key in enumerate(keys):
        alone = pbp.fit(key, jax.tree.map(lambda leaf, i=i: leaf[i], data))
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=2e-3, atol=2e-4)


def test_the_predictive_has_noise_and_grows_away_from_the_data() -> None:
    data = line(jax.random.key(0))
    pbp = PBP((10,), passes=20)
    state = pbp.fit(jax.random.key(1), data)
    x = jnp.array([[0.0, 0.0], [3.0, 3.0], [10.0, 10.0]])
    predictive = db.predict_student(pbp, state, x)
    assert isinstance(predictive, db.outcomes.NumberPrediction)
    assert predictive.mean.shape == predictive.variance.shape == predictive.aleatoric.shape == (3, 1)
    np.testing.assert_allclose(predictive.aleatoric, float(state.noise.rate / (state.noise.shape - 1)), rtol=1e-12)
    np.testing.assert_allclose(predictive.epistemic[:, 0], network_variance(state, x), rtol=1e-3)
    assert (np.diff(predictive.epistemic[:, 0]) > 0).all()


def network_variance(state: PBPState, x: jax.Array) -> np.ndarray:
    return np.array([network_moments(state.weights, one)[1][0] for one in x])


def test_an_outlier_leaves_everything_finite() -> None:
    data = line(jax.random.key(0))
    state = PBP((10,), passes=20).fit(jax.random.key(1), data._replace(y=data.y.at[7].set(1e6)))
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state))
    assert all(jnp.all(layer.variance > 0) for layer in state.weights)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PBP(50), r"hidden must hold the width of each hidden layer, not 50: write \(50,\)"),
        (lambda: PBP((0,)), "a hidden layer's width must be a whole number of at least 1, not 0"),
        (lambda: PBP((5,), passes=0), "passes must be a whole number of at least 1, not 0"),
    ],
)
def test_arguments_that_make_no_network_are_refused(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (jnp.ones((5, 2, 2)), jnp.ones((5, 1)), r"x of shape \[examples, features\], not \(5, 2, 2\)"),
        (jnp.ones((5, 2)), jnp.ones(5), r"y of shape \(5, 1\), not \(5,\)"),
        (jnp.ones((5, 2)), jnp.ones((5, 2)), r"y of shape \(5, 1\), not \(5, 2\)"),
        (jnp.ones((5, 2)), jnp.ones((5, 1), jnp.int32), "y has type int32: convert it to floats"),
    ],
)
def test_data_that_do_not_fit_are_refused(x: jax.Array, y: jax.Array, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        PBP((5,)).fit(jax.random.key(0), db.Data(x, y))
