"""Residual networks: as published, and each image by itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
from darkbayes.model import layers
from darkbayes.model.base import shape_after, with_weights

IMAGES = jax.random.normal(jax.random.key(5), (4, 6, 5, 3))


@pytest.mark.parametrize(("depth", "weights"), [(8, 78_714), (20, 274_042), (56, 860_026)])
def test_resnets_have_the_weights_of_the_published_ones(depth: int, weights: int) -> None:
    # ResNet-20 with filter response norm has 274,042 in Izmailov et al. (2021), appendix A.
    params = jax.eval_shape(db.resnet(10, depth).init, jax.random.key(0), jnp.zeros((1, 3, 32, 32)))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == weights


def test_a_resnet_halves_the_image_twice_and_scores_each_image_by_itself() -> None:
    network, x = db.resnet(2, 8, 4), jax.random.normal(jax.random.key(0), (3, 1, 9, 12))
    params, apply = jax.jit(network.init)(jax.random.key(1), x), jax.jit(network.apply)
    shape, shapes = x.shape[1:], []
    for layer, weights in with_weights(network.layers or (), params):
        shapes.append(shape := shape_after(layer, weights, shape))
    assert list(dict.fromkeys(shapes)) == [(4, 9, 12), (8, 5, 6), (16, 3, 3), (16, 1, 1), (16,), (2,)]
    np.testing.assert_allclose(apply(params, x)[0], apply(params, x.at[1:].multiply(3.0))[0], atol=1e-5)


def test_filter_response_norm_divides_channels_by_their_root_mean_square() -> None:
    weights = layers.FilterResponse(jnp.arange(6.0), jnp.full(6, 0.5), jnp.full(6, -0.25))
    x = np.asarray(IMAGES, np.float64)
    size = np.sqrt((x**2).mean(axis=(2, 3), keepdims=True) + 1e-6)
    expected = np.maximum(np.arange(6.0)[:, None, None] * x / size + 0.5, -0.25)
    np.testing.assert_allclose(layers.FilterResponseNorm().apply(weights, IMAGES), expected, rtol=1e-5, atol=1e-6)


def test_group_norm_standardises_groups_of_channels() -> None:
    layer = layers.GroupNorm(2, epsilon=1e-9)
    grouped = np.asarray(layer.apply(layer.build((6, 5, 3), jax.random.key(0)), IMAGES)).reshape(4, 2, -1)
    np.testing.assert_allclose(grouped.mean(axis=-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(grouped.std(axis=-1), 1.0, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: db.resnet(10, 10), "depth of resnet must be 8, 14, 20"),
        (lambda: db.resnet(10, width=0), "width of resnet"),
        (lambda: layers.GroupNorm(4).build((6, 5, 3), jax.random.key(0)), "groups=4 of GroupNorm must divide the 6"),
        (lambda: layers.FilterResponseNorm().build((6,), jax.random.key(0)), "FilterResponseNorm needs inputs"),
        (
            lambda: db.sequential([layers.Residual((layers.Conv2d(2, 3),))]).init(jax.random.key(0), IMAGES),
            r"cannot add \(2, 3, 1\) and \(6, 5, 3\)",
        ),
    ],
)
def test_what_cannot_be_a_residual_network_is_refused(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make()
