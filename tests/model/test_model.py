"""Networks, adapters, likelihoods, priors and the posterior they make."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import integrate, special, stats

import darkbayes as db

X = jax.random.normal(jax.random.key(7), (5, 3))


# Adapters


def test_an_equinox_module_gives_the_outputs_of_equinox() -> None:
    module = eqx.nn.MLP(3, 2, 8, 2, activation=jax.nn.gelu, key=jax.random.key(0))
    network = db.model.from_equinox(lambda key: eqx.nn.MLP(3, 2, 8, 2, activation=jax.nn.gelu, key=key))
    params = network.init(jax.random.key(0), X)
    np.testing.assert_array_equal(network.apply(params, X), jax.vmap(module)(X))


def test_a_trained_equinox_module_is_every_chains_start() -> None:
    module = eqx.nn.Linear(3, 2, key=jax.random.key(5))
    network = db.model.from_equinox(lambda key: module)
    params = network.init(jax.random.key(0), X)
    np.testing.assert_array_equal(network.apply(params, X), jax.vmap(module)(X))


def test_the_weights_of_an_equinox_module_are_its_floating_point_arrays() -> None:
    class Gather(eqx.Module):
        order: jax.Array
        scale: jax.Array

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.scale * x[self.order]

    network = db.model.from_equinox(lambda key: Gather(jnp.array([2, 0]), jnp.array([1.0, 10.0])))
    params = network.init(jax.random.key(0), X)
    assert len(jax.tree.leaves(params)) == 1
    np.testing.assert_array_equal(network.apply(params, X), X[:, jnp.array([2, 0])] * np.array([1.0, 10.0]))


class LinenNet(nn.Module):
    batch_norm: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.tanh(nn.Dense(8)(x))
        if self.batch_norm:
            x = nn.BatchNorm(use_running_average=False)(x)
        return nn.Dense(2)(x)


def test_a_linen_module_gives_the_outputs_of_linen() -> None:
    variables = LinenNet().init(jax.random.key(0), X)
    network = db.model.from_linen(LinenNet())
    params = network.init(jax.random.key(0), X)
    np.testing.assert_array_equal(network.apply(params, X), LinenNet().apply(variables, X))


class NNXNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, norm: Any = None):
        self.hidden, self.out = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)
        self.norm = norm

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.tanh(self.hidden(x))
        return self.out(x if self.norm is None else self.norm(x))


def test_an_nnx_module_gives_the_outputs_of_nnx() -> None:
    network = db.model.from_nnx(NNXNet)
    params = network.init(jax.random.key(0), X)
    np.testing.assert_array_equal(network.apply(params, X), NNXNet(nnx.Rngs(jax.random.key(0)))(X))


def test_a_pair_of_functions_is_a_network_as_it_is(linear: db.Network) -> None:
    params = linear.init(jax.random.key(0), X)
    np.testing.assert_array_equal(linear.apply(params, X), X @ params)


@pytest.mark.parametrize(
    "network",
    [
        db.model.from_equinox(
            lambda key: eqx.nn.Sequential([eqx.nn.Linear(3, 2, key=key), eqx.nn.BatchNorm(2, "batch", mode="batch")])
        ),
        db.model.from_linen(LinenNet(batch_norm=True)),
        db.model.from_nnx(lambda rngs: NNXNet(rngs, nnx.BatchNorm(8, rngs=rngs))),
    ],
    ids=["equinox", "linen", "nnx"],
)
def test_batch_norm_is_refused_with_a_remedy(network: db.Network) -> None:
    with pytest.raises(db.InvalidInput, match=r"no posterior is defined: replace batch norm by LayerNorm"):
        network.init(jax.random.key(0), X)


def test_an_nnx_module_with_dropout_is_refused() -> None:
    network = db.model.from_nnx(lambda rngs: NNXNet(rngs, nnx.Dropout(0.5, rngs=rngs)))
    with pytest.raises(db.InvalidInput, match=r"the module keeps \['Rng.*leave out dropout"):
        network.init(jax.random.key(0), X)


@pytest.mark.parametrize(
    "make", [lambda: db.model.from_linen(LinenNet()), lambda: db.model.from_nnx(NNXNet)], ids=["linen", "nnx"]
)
def test_an_adapted_module_takes_steps_of_a_chain(make: Any) -> None:
    posterior = db.Posterior(make(), db.outcomes.Softmax(2), db.priors.GaussianPrior(), num_data=5)
    chain = db.minibatch_chain(posterior, db.sgld(1e-3), X, np.array([0, 1, 0, 1, 1]), batch_size=4)

    @eqx.filter_jit
    def start_and_step(chain: db.types.Chain, key: jax.Array) -> Any:
        state = chain.init(key)
        return state.params, chain.step(key, state)[0].params

    before, after = start_and_step(chain, jax.random.key(0))
    assert jax.tree.structure(before) == jax.tree.structure(after)
    moved = jax.tree.map(lambda a, b: np.all(np.isfinite(b)) and not np.array_equal(a, b), before, after)
    assert all(jax.tree.leaves(moved))


# Networks


def test_an_mlp_is_its_matrices_and_activations() -> None:
    network = db.mlp([4, 3], 2, jnp.tanh)
    first, second, third = network.init(jax.random.key(0), X)
    hidden = np.tanh(X @ first.weight.T + first.bias)
    hidden = np.tanh(hidden @ second.weight.T + second.bias)
    np.testing.assert_allclose(
        network.apply((first, second, third), X), hidden @ third.weight.T + third.bias, rtol=1e-5, atol=1e-6
    )


def test_an_mlp_flattens_images() -> None:
    network, images = db.mlp([], 2), jnp.arange(24.0).reshape(2, 3, 2, 2)
    (layer,) = network.init(jax.random.key(0), images)
    np.testing.assert_allclose(
        network.apply((layer,), images), images.reshape(2, 12) @ layer.weight.T + layer.bias, rtol=1e-5
    )


def test_a_cnn_scores_each_image_by_itself() -> None:
    network, images = db.cnn([2], 4, 3), jax.random.normal(jax.random.key(1), (4, 1, 6, 6))
    params = network.init(jax.random.key(0), images)
    together = network.apply(params, images)
    assert together.shape == (4, 3)
    np.testing.assert_allclose(together[1:2], network.apply(params, images[1:2]), rtol=1e-4, atol=1e-6)


# Likelihoods


def test_softmax_scores_labels_as_scipy_does() -> None:
    logits, y = np.array([[1.0, -2.0, 0.5], [30.0, -30.0, 0.0]], np.float32), np.array([2, 1])
    expected = special.log_softmax(logits.astype(np.float64), axis=1)[[0, 1], y]
    np.testing.assert_allclose(db.outcomes.Softmax(3).distribution((), logits).log_prob(y), expected, rtol=1e-6)


MEAN, TARGET = np.array([[0.3, -1.0], [2.0, 0.0]], np.float32), np.array([[0.0, 1.0], [2.5, -3.0]], np.float32)


def test_gaussian_adds_the_log_densities_of_its_outputs() -> None:
    distribution = db.outcomes.Gaussian(4.0, num_outputs=2).distribution((), jnp.asarray(MEAN))
    expected = stats.norm.logpdf(TARGET, MEAN, 0.5).sum(axis=1)
    np.testing.assert_allclose(distribution.log_prob(TARGET), expected, rtol=1e-5)


def test_sampled_noise_has_a_precision_for_every_output() -> None:
    distribution = db.outcomes.GaussianSampledNoise(2).distribution(jnp.log(jnp.array([4.0, 0.25])), jnp.asarray(MEAN))
    expected = stats.norm.logpdf(TARGET, MEAN, [0.5, 2.0]).sum(axis=1)
    np.testing.assert_allclose(distribution.log_prob(TARGET), expected, rtol=1e-5)


def test_sampled_noise_starts_at_the_priors_mean() -> None:
    likelihood = db.outcomes.GaussianSampledNoise(2, shape=3.0, rate=6.0)
    np.testing.assert_allclose(np.exp(likelihood.init()), [0.5, 0.5], rtol=1e-6)


def test_the_prior_of_the_log_precision_is_a_gamma_with_its_jacobian() -> None:
    likelihood = db.outcomes.GaussianSampledNoise(2, shape=3.0, rate=2.0)
    log_precision = np.array([0.7, -1.2])
    expected = stats.gamma.logpdf(np.exp(log_precision), 3.0, scale=0.5) + log_precision
    np.testing.assert_allclose(likelihood.log_prior(jnp.asarray(log_precision)), expected.sum(), rtol=1e-5)


def test_the_prior_of_the_log_precision_integrates_to_one() -> None:
    grid = np.linspace(-12.0, 4.0, 4001)
    likelihood = db.outcomes.GaussianSampledNoise(1, shape=1.5, rate=0.7)
    density = np.exp(jax.vmap(lambda value: likelihood.log_prior(value[None]))(jnp.asarray(grid, jnp.float32)))
    assert integrate.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)


def test_input_noise_scores_means_and_log_variances() -> None:
    outputs = np.concatenate([MEAN, [[0.5, -1.0], [0.0, 1.0]]], axis=1).astype(np.float32)
    likelihood = db.outcomes.GaussianInputNoise(2, min_log_variance=-30.0, max_log_variance=30.0)
    expected = stats.norm.logpdf(TARGET, MEAN, np.exp(0.5 * outputs[:, 2:])).sum(axis=1)
    np.testing.assert_allclose(likelihood.distribution((), jnp.asarray(outputs)).log_prob(TARGET), expected, rtol=1e-5)


def test_input_noise_leaves_log_variances_well_inside_the_bounds_alone() -> None:
    raw = jnp.linspace(-4.0, 0.0, 9)
    outputs = jnp.stack([jnp.zeros(9), raw], axis=1)
    np.testing.assert_allclose(
        jnp.log(db.outcomes.GaussianInputNoise().distribution((), outputs).variance[:, 0]), raw, atol=0.02
    )


EXTREMES = jnp.array([-1e38, -1e4, -100.0, -8.0, 0.0, 4.0, 100.0, 1e4, 1e38])


@pytest.mark.parametrize(("low", "high"), [(-8.0, 4.0), (-1.0, 1.0)])
def test_input_noise_stays_within_its_bounds_for_extreme_outputs(low: float, high: float) -> None:
    likelihood = db.outcomes.GaussianInputNoise(min_log_variance=low, max_log_variance=high)
    outputs = jnp.stack([jnp.zeros(9), EXTREMES], axis=1)
    log_variance = np.log(likelihood.distribution((), outputs).variance)
    assert (log_variance >= low - 1e-4).all()
    assert (log_variance <= high + 1e-4).all()
    assert (np.diff(log_variance[:, 0]) >= 0).all()


def test_input_noise_has_finite_gradients_for_extreme_outputs() -> None:
    likelihood = db.outcomes.GaussianInputNoise()

    def score(raw: jax.Array) -> jax.Array:
        outputs = jnp.stack([jnp.zeros(9), raw], axis=1)
        return jnp.sum(likelihood.distribution((), outputs).log_prob(jnp.ones((9, 1))))

    assert np.isfinite(jax.grad(score)(EXTREMES)).all()


# Priors

WEIGHTS = {"w": jnp.arange(6.0).reshape(2, 3) / 3, "b": (jnp.array([0.5, -1.0]), jnp.array(0.25))}
FLAT = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(WEIGHTS)])


def test_the_gaussian_prior_scores_every_weight_alike() -> None:
    expected = stats.norm.logpdf(FLAT, 0.0, 0.5).sum()
    np.testing.assert_allclose(db.priors.GaussianPrior(4.0).log_prob(WEIGHTS), expected, rtol=1e-6)


@pytest.mark.parametrize(("output_axis", "fan_in"), [(0, 3), (-1, 2)])
def test_the_scaled_prior_divides_the_variance_of_weights_by_their_fan_in(output_axis: int, fan_in: int) -> None:
    weight, rest = np.ravel(WEIGHTS["w"]), np.array([0.5, -1.0, 0.25])
    expected = stats.norm.logpdf(weight, 0.0, np.sqrt(1 / (4.0 * fan_in))).sum() + stats.norm.logpdf(rest, 0, 0.5).sum()
    np.testing.assert_allclose(db.priors.ScaledGaussianPrior(4.0, output_axis).log_prob(WEIGHTS), expected, rtol=1e-6)


def test_the_scaled_prior_counts_all_inputs_of_a_convolution() -> None:
    kernel = jax.random.normal(jax.random.key(0), (4, 2, 3, 3))
    expected = stats.norm.logpdf(np.ravel(kernel), 0.0, np.sqrt(1 / 18)).sum()
    np.testing.assert_allclose(db.priors.ScaledGaussianPrior(1.0).log_prob(kernel), expected, rtol=1e-5)


def test_the_scale_mixture_prior_is_the_mixture_of_two_gaussians() -> None:
    density = 0.25 * stats.norm.pdf(FLAT, 0, 1.5) + 0.75 * stats.norm.pdf(FLAT, 0, 0.1)
    prior = db.priors.ScaleMixturePrior(weight=0.25, wide=1.5, narrow=0.1)
    np.testing.assert_allclose(prior.log_prob(WEIGHTS), np.log(density).sum(), rtol=1e-5)


def test_the_sampled_precision_prior_integrates_the_precision_out() -> None:
    weights = np.array([0.3, -1.0, 0.7])
    precision = np.linspace(1e-6, 60.0, 200_001)
    joint = stats.gamma.pdf(precision, 2.0, scale=1 / 1.5) * np.prod(
        stats.norm.pdf(weights[:, None], 0.0, precision**-0.5), axis=0
    )
    prior = db.priors.SampledPrecisionPrior(shape=2.0, rate=1.5)
    np.testing.assert_allclose(prior.log_prob(jnp.asarray(weights)), np.log(np.trapezoid(joint, precision)), rtol=1e-5)
    twice = {"a": jnp.asarray(weights), "b": jnp.asarray(weights)}
    np.testing.assert_allclose(prior.log_prob(twice), 2 * prior.log_prob(jnp.asarray(weights)), rtol=1e-5)


# Posterior


@pytest.mark.parametrize("batch_size", [1, 3, 6])
def test_the_log_density_is_the_prior_plus_n_over_m_times_the_sum(conjugate: Any, batch_size: int) -> None:
    posterior, data = conjugate.posterior, conjugate.data
    batch = db.Data(data.x[:batch_size], data.y[:batch_size])
    draw = posterior.init(jax.random.key(0), data.x)
    residuals = np.asarray(batch.y - batch.x @ draw.network, np.float64)
    likelihood = stats.norm.logpdf(residuals, 0, conjugate.noise_precision**-0.5).sum()
    prior = stats.norm.logpdf(draw.network, 0, conjugate.prior_precision**-0.5).sum()
    expected = prior + 6 / batch_size * likelihood
    np.testing.assert_allclose(posterior.log_density(draw, batch), expected, rtol=1e-5)


def test_the_log_density_includes_the_likelihoods_own_prior(linear: db.Network, conjugate: Any) -> None:
    likelihood = db.outcomes.GaussianSampledNoise(shape=2.0, rate=3.0)
    posterior = db.Posterior(linear, likelihood, db.priors.GaussianPrior(), num_data=6)
    draw = db.model.Draw(jnp.ones((2, 1)), jnp.array([0.4]))
    expected = db.priors.GaussianPrior().log_prob(draw.network) + likelihood.log_prior(draw.likelihood)
    np.testing.assert_allclose(posterior.log_prior(draw), expected, rtol=1e-6)
    total = expected + posterior.log_likelihood(draw, conjugate.data).sum()
    np.testing.assert_allclose(posterior.log_density(draw, conjugate.data), total, rtol=1e-6)
