"""Networks made of layers: the same weights and bits as ever, windows as defined, misuse refused by name."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
from darkbayes.model import layers as described

IMAGES = jax.random.normal(jax.random.key(5), (2, 2, 6, 5))


def test_an_mlp_has_the_weights_of_its_layers_drawn_one_key_each() -> None:
    x = jnp.ones((4, 3))
    keys = jax.random.split(jax.random.key(0), 2)
    first, second = db.mlp([5], 2).init(jax.random.key(0), x)
    expected = eqx.nn.Linear(3, 5, key=keys[0]), eqx.nn.Linear(5, 2, key=keys[1])
    assert eqx.tree_equal((first, second), expected)


def test_a_cnn_keeps_the_keys_of_its_convolutions_apart_from_those_of_its_head(trees_equal: Any) -> None:
    conv_keys, head_key = jax.random.split(jax.random.key(0))
    params = db.cnn([3], 4, 2).init(jax.random.key(0), IMAGES)
    convolution = eqx.nn.Conv2d(2, 3, 3, padding="SAME", key=jax.random.split(conv_keys, 1)[0])
    head = db.mlp([4], 2).init(head_key, jnp.zeros((1, 3, 3, 2)))
    assert eqx.tree_equal(params, (convolution, *head))


def test_networks_say_what_layers_they_are_made_of() -> None:
    relu = described.Activation(jax.nn.relu)
    flat, first, activation, last = db.mlp([5], 2).layers or ()
    assert (flat, first, activation, last) == (described.Flatten(), described.Linear(5), relu, described.Linear(2))
    assert db.Network(lambda key, x: (), lambda params, x: x).layers is None


def windows(x: np.ndarray, size: int, stride: int, padding: int, fill: float, reduce: Any) -> np.ndarray:
    """Pooling written as the definition has it."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=fill)
    rows, columns = ((length - size) // stride + 1 for length in x.shape[2:])
    out = np.empty((*x.shape[:2], rows, columns), np.float32)
    for i in range(rows):
        for j in range(columns):
            window = x[:, :, i * stride : i * stride + size, j * stride : j * stride + size]
            out[:, :, i, j] = reduce(window, axis=(2, 3))
    return out


def test_pooling_reduces_every_window() -> None:
    x = np.asarray(IMAGES)
    largest = described.MaxPool2d(3, 2, 1).apply(None, IMAGES)
    np.testing.assert_array_equal(largest, windows(x, 3, 2, 1, -np.inf, np.max))
    mean = described.AvgPool2d(3, 2, 1).apply(None, IMAGES)
    np.testing.assert_allclose(mean, windows(x, 3, 2, 1, 0.0, np.mean), rtol=1e-5, atol=1e-6)
    whole = described.GlobalAvgPool2d().apply(None, IMAGES)
    np.testing.assert_allclose(whole[:, :, 0, 0], x.mean(axis=(2, 3)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [1, 3])
def test_layer_norm_standardises_the_last_axes_of_each_example(axes: int) -> None:
    network = db.sequential([described.LayerNorm(axes=axes, epsilon=1e-9)])
    out = np.asarray(network.apply(network.init(jax.random.key(0), IMAGES), IMAGES))
    over = tuple(range(4 - axes, 4))
    np.testing.assert_allclose(out.mean(axis=over), 0.0, atol=1e-5)
    np.testing.assert_allclose(out.std(axis=over), 1.0, rtol=1e-4)


def test_same_padding_keeps_the_size_of_an_image_whatever_the_kernel() -> None:
    network = db.sequential([described.Conv2d(4, (4, 3), padding="same", dilation=(1, 2), groups=2)])
    assert network.apply(network.init(jax.random.key(0), IMAGES), IMAGES).shape == (2, 4, 6, 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: db.sequential([jnp.tanh]), "takes layers"),
        (lambda: described.Linear(0), "width"),
        (lambda: described.Conv2d(3, (3, 3, 3)), "kernel_size of Conv2d"),
        (lambda: described.Conv2d(3, 3, stride=2, padding="same"), "stride of 1"),
        (lambda: described.MaxPool2d(2, padding=2), "at most half"),
        (lambda: described.Activation(jnp.sin).name, "sin has no counterpart"),
        (lambda: db.sequential([described.Linear(2)]).init(jax.random.key(0), IMAGES), r"put Flatten\(\)"),
        (lambda: db.sequential([described.Conv2d(3, groups=3)]).init(jax.random.key(0), IMAGES), "groups=3"),
        (lambda: db.sequential([described.MaxPool2d(2)]).init(jax.random.key(0), jnp.ones((1, 4))), "channels, height"),
        (lambda: db.sequential([described.LayerNorm(axes=4)]).init(jax.random.key(0), IMAGES), "lower axes"),
        (lambda: db.mlp([5], 2).apply((), jnp.ones((1, 3))), "params holds 0"),
    ],
)
def test_what_cannot_be_a_network_is_refused(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make()


class LastLayer(NamedTuple):
    """A regression whose last layer alone is inferred, and the closed form of its posterior."""

    posterior: db.Posterior
    data: db.Data
    params: Any
    mean: np.ndarray
    precision: np.ndarray


@pytest.fixture(scope="module")
def head() -> LastLayer:
    """Four features of a fixed hidden layer, and a one: weights are Gaussian given the data."""
    prior_precision, noise_precision = 2.0, 5.0
    rng = np.random.default_rng(0)
    data = db.data.as_data(rng.normal(size=(12, 2)), rng.normal(size=(12, 1)))
    network = db.mlp([4], 1, jnp.tanh)
    params = network.init(jax.random.key(3), data.x)
    some = db.model.subnetwork(network, params, db.model.last_layer(params))
    posterior = db.Posterior(
        some, db.outcomes.Gaussian(noise_precision), db.priors.GaussianPrior(prior_precision), num_data=12
    )
    hidden = np.tanh(np.asarray(data.x, np.float64) @ np.asarray(params[0].weight).T + np.asarray(params[0].bias))
    features = np.concatenate([hidden, np.ones((12, 1))], axis=1)
    precision = prior_precision * np.eye(5) + noise_precision * features.T @ features
    mean = np.linalg.solve(precision, noise_precision * features.T @ np.asarray(data.y)[:, 0])
    return LastLayer(posterior, data, params, mean, precision)


def test_a_chain_over_the_last_layer_samples_its_conjugate_posterior(head: LastLayer, z_scores: Any) -> None:
    """SGLD with all data has the exact covariance (P - eta P P / 4)^-1; one of 20 scores beyond 4 once in 800 runs."""
    eta = 2.0 / np.linalg.eigvalsh(head.precision)[-1]
    chain = db.minibatch_chain(head.posterior, db.sgld(eta), *head.data, batch_size=None, burn_in=600)
    draws = db.sample(chain, jax.random.key(0), num_chains=2000, num_draws=1).network
    actual = np.concatenate([draws[1].weight.reshape(-1, 4), draws[1].bias.reshape(-1, 1)], axis=1)
    assert np.abs(z_scores(actual, head.mean)).max() < 4
    gap = actual - head.mean
    covariance = np.linalg.inv(head.precision - eta / 4 * head.precision @ head.precision)
    rows, columns = np.triu_indices(5)
    assert np.abs(z_scores(gap[:, rows] * gap[:, columns], covariance[rows, columns])).max() < 4


def test_fixed_weights_are_no_part_of_a_draw_and_are_there_in_predictions(head: LastLayer) -> None:
    draw = head.posterior.init(jax.random.key(0), head.data.x)
    assert [leaf.shape for leaf in jax.tree.leaves(draw.network)] == [(1, 4), (1,)]
    moved = draw._replace(network=jax.tree.map(lambda leaf: leaf + 1.0, draw.network))
    whole = db.mlp([4], 1, jnp.tanh).apply((head.params[0], moved.network[1]), head.data.x)
    np.testing.assert_array_equal(head.posterior.distribution(moved, head.data.x).mean, whole)


def test_jitter_spreads_the_starts_of_chains_by_a_share_of_the_weights(trees_equal: Any) -> None:
    network, x = db.mlp([400], 1), jnp.ones((1, 50))
    params = network.init(jax.random.key(0), x)
    begun = db.model.started_at(network, params, jitter=0.1).init(jax.random.key(1), x)
    again = db.model.started_at(network, params, jitter=0.1).init(jax.random.key(2), x)
    shift, size = begun[0].weight - params[0].weight, np.sqrt(np.mean(np.square(params[0].weight)))
    np.testing.assert_allclose(np.std(shift), 0.1 * size, rtol=0.05)
    assert not trees_equal(begun, again)
    assert trees_equal(db.model.started_at(network, params).init(jax.random.key(1), x), params)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda params: db.model.started_at(db.mlp([4], 1), params, jitter=-1.0), "jitter"),
        (
            lambda params: db.model.started_at(db.mlp([4], 1), params).init(jax.random.key(0), jnp.ones((1, 3))),
            "of shape",
        ),
        (
            lambda params: db.model.started_at(db.mlp([5], 1), params).init(jax.random.key(0), jnp.ones((1, 2))),
            "of shape",
        ),
        (lambda params: db.model.subnetwork(db.mlp([4], 1), params, (True, True, False)), "mask must be"),
        (lambda params: db.model.subnetwork(db.mlp([4], 1), params, False), "chooses no weights"),
        (lambda params: db.model.last_layer({"w": params}), "by hand"),
    ],
)
def test_weights_and_masks_that_do_not_fit_are_refused(head: LastLayer, make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make(head.params)
