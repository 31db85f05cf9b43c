"""The comparators reach the answers that theory gives them, and all speak of one posterior.

On a Gaussian posterior N(m, P^-1) the factorised Gaussian that is closest in KL(q || p) has mean m and variances
1/diag(P): the truth that both variational methods are held to.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize

import darkbayes as db
from darkbayes.baselines import (
    SGD,
    SWAG,
    BayesByBackprop,
    Dropout,
    Ensemble,
    Trained,
    VariationalInference,
    raise_if_diverged,
)
from darkbayes.baselines.variational import empirical_prior, geometric_weight


def settled(steps: int, learning_rate: float = 0.02) -> optax.GradientTransformation:
    """Adam whose steps shrink to nothing, so that its noise averages out."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


def tiny(likelihood: Any, prior: Any = None, hidden: tuple[int, ...] = (4,), num_data: int = 20) -> db.Posterior:
    return db.Posterior(
        db.mlp(hidden, likelihood.width, jnp.tanh), likelihood, prior or db.priors.GaussianPrior(1.0), num_data=num_data
    )


@pytest.fixture(scope="module")
def curve() -> db.Data:
    data = db.data.toy1d(jax.random.key(0))
    return db.Data(data.x / 2.0, data.y / 25.0)


# Variational methods


@pytest.mark.parametrize(
    "settings",
    [
        (BayesByBackprop, None, {}),
        (BayesByBackprop, 3, {"kl_weights": "geometric"}),
        (VariationalInference, None, {"empirical": False}),
        (VariationalInference, 3, {"empirical": False}),
    ],
    ids=["bbb", "bbb-minibatch", "vi", "vi-minibatch"],
)
def test_variational_methods_find_the_closest_factorised_gaussian(settings: Any, z_scores: Any) -> None:
    """Means of 64 trials at |z| < 4.4, a failure by chance of 2e-5 a case for another seed; deviations to 3%."""
    kind, batch_size, options = settings
    prior_precision, noise_precision = 2.0, 3.0
    rng = np.random.default_rng(0)
    x = 1.0 + rng.normal(size=(12, 1))
    y = x - 0.5 + rng.normal(size=(12, 1)) / np.sqrt(noise_precision)
    design = np.concatenate([x, np.ones_like(x)], axis=1)
    precision = prior_precision * np.eye(2) + noise_precision * design.T @ design
    exact = noise_precision * np.linalg.solve(precision, design.T @ y)[:, 0]
    deviation = 1 / np.sqrt(np.diag(precision))

    posterior = db.Posterior(
        db.mlp([], 1), db.outcomes.Gaussian(noise_precision), db.priors.GaussianPrior(prior_precision), num_data=12
    )
    optimiser = optax.sgd(optax.cosine_decay_schedule(0.1, 8000))
    method = kind(posterior, optimiser, 8000, batch_size, initial_std=0.1, **options)
    keys = jax.random.split(jax.random.key(0), 64)
    fits = jax.vmap(method.fit, in_axes=(0, None))(keys, db.data.as_data(x, y))
    mean, std = (
        np.concatenate([leaf.reshape(64, -1) for leaf in jax.tree.leaves(part.network)], axis=1)
        for part in (fits.mean, fits.std)
    )
    assert np.abs(z_scores(mean, exact)).max() < 4.4
    np.testing.assert_allclose(mean.mean(axis=0), exact, atol=0.1 * deviation.min())
    np.testing.assert_allclose(std.mean(axis=0), deviation, rtol=0.03)
    # The deviations of the marginals, those of KL(p || q), are another answer.
    assert np.min(np.sqrt(np.diag(np.linalg.inv(precision))) / deviation) > 1.2


def test_bayes_by_backprop_without_information_approximates_the_mixture_prior(linear: db.Network) -> None:
    """Inputs of zero say nothing; the closest Gaussian to the mixture is found by quadrature."""
    weight, wide, narrow = 0.25, 1.0, 0.3
    nodes, shares = np.polynomial.hermite_e.hermegauss(60)

    def divergence(log_std: float) -> float:
        squares = (np.exp(log_std) * nodes) ** 2
        parts = [p * np.exp(-squares / 2 / s**2) / s for p, s in ((weight, wide), (1 - weight, narrow))]
        return -log_std - np.sum(shares * np.log(parts[0] + parts[1])) / np.sqrt(2 * np.pi)

    expected = np.exp(optimize.minimize_scalar(divergence, bounds=(-3.0, 1.0), method="bounded").x)
    assert 1.1 * narrow < expected < 0.9 * wide

    prior = db.priors.ScaleMixturePrior(weight=weight, wide=wide, narrow=narrow)
    posterior = db.Posterior(linear, db.outcomes.Gaussian(1.0), prior, num_data=1)
    method = BayesByBackprop(posterior, settled(5000), 5000, None, samples=4, initial_std=0.1)
    fitted = method.fit(jax.random.key(0), db.Data(jnp.zeros((1, 200)), jnp.zeros((1, 1))))
    np.testing.assert_allclose(np.mean(fitted.std.network), expected, rtol=0.02)
    assert np.abs(fitted.mean.network).max() < 0.1 * expected


@pytest.mark.parametrize("batches", [1, 2, 7, 1000])
def test_the_geometric_weights_of_an_epoch_sum_to_one_and_halve(batches: int) -> None:
    weights = np.asarray(geometric_weight(np.arange(batches), batches))
    assert weights.sum() == pytest.approx(1.0, abs=1e-6)
    seen = weights[:20]
    np.testing.assert_allclose(seen[1:], seen[:-1] / 2, rtol=1e-6)


def test_the_empirical_prior_is_the_closest_gaussian_to_all_weights() -> None:
    rng = np.random.default_rng(0)
    weights = db.outcomes.Normal(jnp.asarray(rng.normal(0.3, 1.0, 50)), jnp.asarray(rng.gamma(2.0, size=50)))

    def divergence(prior: np.ndarray) -> float:
        mean, variance, m, v = np.asarray(weights.mean), np.asarray(weights.variance), prior[0], np.exp(prior[1])
        return float(np.sum(0.5 * np.log(v / variance) + ((mean - m) ** 2 + variance) / (2 * v) - 0.5))

    best = optimize.minimize(divergence, np.zeros(2))
    prior = empirical_prior(weights)
    np.testing.assert_allclose([prior.mean, jnp.log(prior.variance)], best.x, atol=1e-4)


def test_the_divergence_from_the_empirical_prior_is_a_sum_of_log_ratios(curve: db.Data) -> None:
    method = VariationalInference(tiny(db.outcomes.GaussianSampledNoise()), optax.sgd(0.1), 1, None)
    fitted = method.start(jax.random.key(0), curve.x)
    means = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(fitted.mean.network)])
    scale = np.sqrt(means.var() + 0.01**2)
    np.testing.assert_allclose(method.divergence(fitted), len(means) * np.log(scale / 0.01), rtol=1e-4)


def test_a_mean_field_has_the_moments_it_says_and_covers_the_noise_precision(curve: db.Data) -> None:
    """20,000 draws; fails by chance with probability 1e-4 for another seed."""
    method = BayesByBackprop(tiny(db.outcomes.GaussianSampledNoise()), optax.sgd(0.1), 1, None, initial_std=0.5)
    fitted = method.start(jax.random.key(0), curve.x)
    draws = method.draws(jax.random.key(1), fitted, 20_000)
    assert draws.likelihood.shape == (20_000, 1)
    for values, mean in zip(jax.tree.leaves(draws), jax.tree.leaves(fitted.mean), strict=True):
        np.testing.assert_allclose(values.mean(axis=0), mean, atol=5 * 0.5 / np.sqrt(20_000))
        np.testing.assert_allclose(values.std(axis=0), 0.5, rtol=5 / np.sqrt(40_000))


# Plug-in networks, ensembles and dropout


def test_sgd_finds_the_posterior_mode(conjugate: Any) -> None:
    method = SGD(conjugate.posterior, optax.sgd(0.1), 500, None)
    fitted = method.fit(jax.random.key(0), conjugate.data)
    np.testing.assert_allclose(fitted.network[:, 0], conjugate.mean, atol=1e-5)
    assert method.draws(jax.random.key(0), fitted, 7).network.shape == (1, 2, 1)


def test_an_ensemble_is_the_mixture_of_the_fits_of_its_members(curve: db.Data) -> None:
    """The second of two ensembles that are fitted side by side, each on data of its own."""
    member = SGD(tiny(db.outcomes.GaussianInputNoise()), optax.sgd(1e-2), 50, 10)
    ensemble, keys = Ensemble(member, size=3), jax.random.split(jax.random.key(0), 2)
    several = db.Data(jnp.stack([-curve.x, curve.x]), jnp.stack([curve.y + 1, curve.y]))
    fitted = jax.tree.map(lambda leaf: leaf[1], jax.vmap(ensemble.fit)(keys, several))
    draws = ensemble.draws(jax.random.key(1), fitted)
    fits = [member.fit(key, curve) for key in jax.random.split(keys[1], 3)]
    jax.tree.map(lambda all_, *each: np.testing.assert_allclose(all_, each, rtol=1e-4, atol=1e-6), draws, *fits)
    assert np.std(draws.network[0].weight, axis=0).min() > 1e-3

    predictive = db.predict_draws(ensemble.posterior, draws, curve.x)
    densities = [np.exp(db.predict_plugin(member.posterior, fit, curve.x).log_prob(curve.y)) for fit in fits]
    np.testing.assert_allclose(np.exp(predictive.log_prob(curve.y)), np.mean(densities, axis=0), rtol=1e-3)


def test_dropout_of_nothing_is_sgd(curve: db.Data) -> None:
    posterior, optimiser, key = tiny(db.outcomes.GaussianSampledNoise()), optax.sgd(0.1), jax.random.key(0)
    plain = SGD(posterior, optimiser, 100, 10).fit(key, curve)
    dropout = Dropout(posterior, optimiser, 100, 10, rate=0.0).fit(key, curve)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), plain, dropout)


def test_the_dropout_loss_averages_over_masks_of_units() -> None:
    """On a linear layer behind dropped inputs the expected loss is known: Srivastava et al., section 9.1."""
    rate, x, y = 0.25, jnp.array([[1.0, -2.0, 0.5]]), jnp.array([[0.7]])
    posterior = db.Posterior(db.mlp([], 1), db.outcomes.Gaussian(2.0), db.priors.GaussianPrior(1.0), num_data=1)
    method = Dropout(posterior, optax.sgd(0.1), 1, None, rate=0.0, input_rate=rate)
    draw = posterior.init(jax.random.key(0), x)
    keys = jax.random.split(jax.random.key(1), 20_000)
    losses = jax.jit(jax.vmap(lambda key: method.loss(key, jnp.int32(0), draw, db.Data(x, y))))(keys)
    extra = np.sum((x * draw.network[0].weight) ** 2) * rate / (1 - rate)  # The variance of the masked sum.
    expected = -posterior.log_density(draw, db.Data(x, y)) + extra  # Half the noise precision is 1.
    assert abs(np.mean(losses) - expected) < 4.5 * np.std(losses) / np.sqrt(len(losses))


def test_examples_have_masks_of_their_own() -> None:
    """The loss on copies of one example varies less than on one, by the number of copies."""
    x, y = jnp.array([[1.0, -2.0, 0.5]]), jnp.array([[0.7]])
    posterior = db.Posterior(db.mlp([], 1), db.outcomes.Gaussian(2.0), db.priors.GaussianPrior(1.0), num_data=1)
    method = Dropout(posterior, optax.sgd(0.1), 1, None, rate=0.0, input_rate=0.5)
    draw, keys = posterior.init(jax.random.key(0), x), jax.random.split(jax.random.key(1), 4000)

    def spread(copies: int) -> float:
        batch = db.Data(jnp.tile(x, (copies, 1)), jnp.tile(y, (copies, 1)))
        return float(np.var(jax.jit(jax.vmap(lambda key: method.loss(key, jnp.int32(0), draw, batch)))(keys)))

    assert spread(16) == pytest.approx(spread(1) / 16, rel=0.2)


def test_passes_of_dropout_drop_whole_units_and_keep_their_mean(curve: db.Data) -> None:
    """The rate of zeros and the mean weight, at five standard errors of 4,000 passes."""
    rate, number = 0.3, 4000
    method = Dropout(tiny(db.outcomes.GaussianSampledNoise(), hidden=(5, 6)), optax.sgd(0.1), 1, None, rate=rate)
    fitted = method.start(jax.random.key(0), curve.x)
    draws = method.draws(jax.random.key(1), fitted, number)
    np.testing.assert_array_equal(draws.network[0].weight, np.tile(fitted.network[0].weight, (number, 1, 1)))
    for layer, whole in zip(draws.network[1:], fitted.network[1:], strict=True):
        ratio = np.asarray(layer.weight / whole.weight)
        columns = ratio[:, 0]
        np.testing.assert_allclose(ratio, np.broadcast_to(columns[:, None], ratio.shape), rtol=1e-5)
        np.testing.assert_allclose(columns, np.where(columns > 0, 1 / (1 - rate), 0.0), rtol=1e-5)
        np.testing.assert_allclose(columns.mean(axis=0), 1.0, atol=5 * np.sqrt(rate / (1 - rate) / number))
        np.testing.assert_array_equal(layer.bias, np.tile(whole.bias, (number, 1)))


def test_dropout_of_images_drops_whole_channels_wherever_a_convolution_is() -> None:
    """By a network of which only a residual block has weights beyond the first layer's."""
    block = db.model.layers.Residual((db.model.layers.Conv2d(4, 1, bias=False),))
    network = db.sequential(
        [db.model.layers.Conv2d(4, 1), block, db.model.layers.GlobalAvgPool2d(), db.model.layers.Flatten()]
    )
    posterior = db.Posterior(network, db.outcomes.Softmax(4), db.priors.GaussianPrior(1.0), num_data=6)
    method = Dropout(posterior, optax.sgd(0.1), 3, None, rate=0.5)
    images = np.random.default_rng(0).normal(size=(6, 2, 3, 3)).astype(np.float32)
    fitted = method.fit(jax.random.key(0), db.data.as_data(images, np.arange(6) % 4))
    draws = method.draws(jax.random.key(1), fitted, 400)
    first, ((inner,), _) = draws.network
    np.testing.assert_array_equal(first.weight, np.tile(fitted.network[0].weight, (400, 1, 1, 1, 1)))
    ratio = np.asarray(inner.weight / fitted.network[1][0][0].weight)[..., 0, 0]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=1e-5)
    assert abs((ratio[:, 0] == 0).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(1600)


def test_the_mean_pass_of_a_linear_network_is_the_standard_prediction() -> None:
    """Exactly so in expectation; here at five standard errors of 4,000 passes."""
    posterior = db.Posterior(
        db.mlp([6], 1, lambda x: x), db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(1.0), num_data=4
    )
    method = Dropout(posterior, optax.sgd(0.1), 1, None, rate=0.4, input_rate=0.2)
    x = jax.random.normal(jax.random.key(0), (4, 3))
    fitted = method.start(jax.random.key(1), x)
    draws = method.draws(jax.random.key(2), fitted, 4000)
    passes = np.moveaxis(db.predict_draws(posterior, draws, x).location, -1, 0)
    standard = db.predict_plugin(posterior, fitted, x).mean
    assert np.all(np.abs(passes.mean(axis=0) - standard) < 5 * passes.std(axis=0) / np.sqrt(4000))


def test_swag_has_the_moments_of_the_walk(conjugate: Any) -> None:
    """Against the walk in numpy, whose gradient is known; 100,000 draws, at five standard errors or so of each."""
    rate, every, points, rank, number = 0.3, 2, 6, 3, 100_000
    x, y = (np.asarray(part, np.float64) for part in conjugate.data)
    walk: Any = {"walk": optax.sgd(rate), "points": points, "every": every, "rank": rank}
    method, key = SWAG(conjugate.posterior, optax.sgd(0.0), 1, None, **walk), jax.random.key(0)
    begin = SGD(conjugate.posterior, optax.sgd(0.0), 1, None).train(jax.random.split(key)[0], conjugate.data)
    here, visited = np.asarray(begin.network, np.float64)[:, 0], []
    for step in range(points * every):
        error = conjugate.noise_precision * x.T @ (x @ here - y[:, 0])
        here = here - rate * (error + conjugate.prior_precision * here) / len(x)
        visited += [here] if step % every == every - 1 else []
    apart = np.stack([visited[k] - np.mean(visited[: k + 1], axis=0) for k in range(points - rank, points)])
    covariance = np.diag(np.var(visited, axis=0)) / 2 + apart.T @ apart / (2 * (rank - 1))
    draws = np.asarray(method.draws(jax.random.key(1), method.fit(key, conjugate.data), number).network)[:, :, 0]
    errors = 5 * np.sqrt(np.diag(covariance) / number)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - np.mean(visited, axis=0)), errors)
    largest = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    np.testing.assert_allclose(np.cov(draws.T) / largest, covariance / largest, atol=5 * np.sqrt(2 / number))


# All of them


def make(kind: str, posterior: db.Posterior) -> Any:
    common = posterior, optax.sgd(1e-2), 10, 5
    return {
        "sgd": lambda: SGD(*common),
        "dropout": lambda: Dropout(*common, rate=0.2, input_rate=0.1),
        "bbb": lambda: BayesByBackprop(*common, samples=2, kl_weights="geometric"),
        "vi": lambda: VariationalInference(*common, samples=2),
        "swag": lambda: SWAG(*common, walk=optax.sgd(1e-2), points=3, every=2, rank=2),
    }[kind]()


@pytest.mark.parametrize(
    ("kind", "likelihood"),
    [
        ("sgd", db.outcomes.GaussianInputNoise()),
        ("dropout", db.outcomes.Softmax(2)),
        ("bbb", db.outcomes.GaussianInputNoise()),
        ("bbb", db.outcomes.Softmax(2)),
        ("vi", db.outcomes.GaussianSampledNoise()),
    ],
)
def test_every_method_ends_in_draws_that_predict(kind: str, likelihood: Any, curve: db.Data, classes: db.Data) -> None:
    method, data = make(kind, tiny(likelihood)), classes if isinstance(likelihood, db.outcomes.Softmax) else curve

    @eqx.filter_jit
    def draws(key: jax.Array) -> db.model.Draw:
        return method.draws(key, method.fit(key, data), 3)

    # Random numbers of a kind that is quick to compile.
    predictive = db.predict_draws(method.posterior, draws(jax.random.key(0, impl="unsafe_rbg")), data.x)
    assert np.isfinite(predictive.log_prob(data.y)).all()


@pytest.mark.parametrize("kind", ["dropout", "bbb"])
def test_fits_side_by_side_are_the_fits_one_by_one(kind: str, curve: db.Data) -> None:
    method, keys = make(kind, tiny(db.outcomes.GaussianSampledNoise())), jax.random.split(jax.random.key(0), 2)
    several = db.Data(jnp.stack([curve.x, curve.x[::-1] / 2]), jnp.stack([curve.y, curve.y[::-1] + 1]))
    together = jax.vmap(method.fit)(keys, several)
    alone = [method.fit(key, db.Data(several.x[i], several.y[i])) for i, key in enumerate(keys)]
    jax.tree.map(lambda all_, *each: np.testing.assert_allclose(all_, each, rtol=1e-4, atol=1e-6), together, *alone)


def test_a_second_fit_compiles_nothing(curve: db.Data, compilations: Any) -> None:
    method = BayesByBackprop(tiny(db.outcomes.GaussianSampledNoise()), optax.sgd(1e-2), 5, 5)
    for seed in range(3):
        method.fit(jax.random.key(seed), curve)
    assert compilations["_fit"] == 1


def test_a_fit_that_diverges_says_so(curve: db.Data) -> None:
    method = SGD(tiny(db.outcomes.Gaussian(1.0), hidden=()), optax.sgd(1e6), 50, None)
    with pytest.raises(db.Divergence, match="smaller learning rate"):
        method.fit(jax.random.key(0), curve)
    together = jax.vmap(method.fit, in_axes=(0, None))(jax.random.split(jax.random.key(0), 2), curve)
    with pytest.raises(db.Divergence, match="smaller learning rate"):
        raise_if_diverged(together)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: SGD(p, optax.sgd(0.1), 0, None), "steps must be a whole number of at least 1, not 0"),
        (lambda p: SGD(p, optax.sgd(0.1), 5, 21), "batch_size=21 is larger than the 20 examples"),
        (lambda p: SGD(p, 0.1, 5, None), r"optimiser must be one of optax's, .* not 0\.1"),
        (lambda p: Ensemble(SGD(p, optax.sgd(0.1), 5, None), 0), "size must be a whole number"),
        (lambda p: Ensemble(p), "member must be a method to fit"),
        (lambda p: Dropout(p, optax.sgd(0.1), 5, None, rate=1.0), r"rate must be a probability below 1 .* not 1\.0"),
        (lambda p: Dropout(p, optax.sgd(0.1), 5, None, rate=0.1, input_rate=-1), "input_rate must be a probability"),
        (lambda p: BayesByBackprop(p, optax.sgd(0.1), 5, None, samples=0), "samples must be a whole number"),
        (lambda p: BayesByBackprop(p, optax.sgd(0.1), 5, None, initial_std=0.0), "initial_std must be a positive"),
        (lambda p: BayesByBackprop(p, optax.sgd(0.1), 5, None, kl_weights="x"), "kl_weights must be 'uniform' or"),
        (lambda p: VariationalInference(p, optax.sgd(0.1), 5, None, empirical=False), "not ScaleMixturePrior"),
        (lambda p: SWAG(p, optax.sgd(0.1), 5, None, points=4), "rank=20 is more than the points=4 of the walk"),
    ],
)
def test_bad_arguments_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make(tiny(db.outcomes.GaussianSampledNoise(), db.priors.ScaleMixturePrior()))


def test_dropout_refuses_networks_without_plain_layers(curve: db.Data, linear: db.Network) -> None:
    modules = db.model.from_equinox(lambda key: eqx.nn.MLP(1, 1, 4, 1, key=key))
    for network, named in ((linear, "ArrayImpl|ShapeDtypeStruct"), (modules, "MLP")):
        posterior = db.Posterior(network, db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(1.0), num_data=20)
        with pytest.raises(db.InvalidInput, match=f"tuple of eqx.nn.Linear or eqx.nn.Conv2d, not ({named})"):
            Dropout(posterior, optax.sgd(0.1), 5, None, rate=0.5).fit(jax.random.key(0), curve)


def test_data_of_another_size_are_refused_even_when_stacked(curve: db.Data) -> None:
    method: Trained = SGD(tiny(db.outcomes.GaussianSampledNoise(), num_data=19), optax.sgd(0.1), 5, None)
    with pytest.raises(db.InvalidInput, match="num_data=19"):
        method.fit(jax.random.key(0), curve)
    with pytest.raises(db.InvalidInput, match="num_data=19"):
        jax.vmap(method.fit)(
            jax.random.split(jax.random.key(0), 2), jax.tree.map(lambda leaf: leaf[None].repeat(2, 0), curve)
        )
