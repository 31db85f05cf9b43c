"""Examples at the border, minibatches, and the toy problems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
from darkbayes.data.arrays import TOY1D_NOISE_VARIANCE, as_inputs, minibatch

pytestmark = pytest.mark.usefixtures("strict")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.uint8, bool])
def test_inputs_of_any_number_type_become_float32(dtype: type) -> None:
    x = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    assert as_inputs(x).dtype == jnp.float32
    np.testing.assert_array_equal(as_inputs(x), x.astype(np.float32))


@pytest.mark.parametrize(("dtype", "expected"), [(np.int64, "int32"), (np.uint8, "int32"), (np.float64, "float32")])
def test_targets_keep_their_kind(dtype: type, expected: str) -> None:
    assert db.data.as_data(np.zeros((2, 1)), np.array([0, 1], dtype)).y.dtype.name == expected


def test_images_keep_their_axes() -> None:
    assert db.data.as_data(np.zeros((2, 1, 4, 4)), [0, 1]).x.shape == (2, 1, 4, 4)


def test_a_minibatch_pairs_inputs_with_their_own_targets() -> None:
    data = db.data.as_data(np.arange(7.0)[:, None], np.arange(7))
    batch = minibatch(jax.random.key(0), data, 50)
    np.testing.assert_array_equal(batch.x[:, 0].astype(jnp.int32), batch.y)


def test_a_minibatch_of_none_is_all_data() -> None:
    data = db.data.as_data(np.arange(3.0)[:, None], np.arange(3))
    assert minibatch(jax.random.key(0), data, None) is data


def test_minibatches_are_uniform_and_independent_draws() -> None:
    """Chi-square over all 9 ordered pairs of 3 examples; fails by chance with probability 1e-4 for another seed."""
    from scipy import stats

    data = db.data.as_data(np.arange(3.0)[:, None], np.arange(3))
    keys = jax.random.split(jax.random.key(1), 20_000)
    pairs = jax.vmap(lambda key: minibatch(key, data, 2).y)(keys)
    counts = np.bincount(np.asarray(3 * pairs[:, 0] + pairs[:, 1]), minlength=9)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_toy2d_has_two_classes_around_their_centres() -> None:
    """Means of 20,000 points within 5 standard errors; fails by chance with probability 1e-5 for another seed."""
    data = db.data.toy2d(jax.random.key(0), per_class=20_000)
    assert data.y.dtype == jnp.int32
    for label, centre in ((0, -2.0), (1, 2.0)):
        points = np.asarray(data.x)[np.asarray(data.y) == label]
        assert len(points) == 20_000
        np.testing.assert_allclose(points.mean(axis=0), centre, atol=5 * np.sqrt(2 / 20_000))
        np.testing.assert_allclose(np.cov(points.T), 2 * np.eye(2), atol=5 * 2 * np.sqrt(2 / 20_000))


def test_toy1d_is_a_cubic_with_noise_of_variance_nine() -> None:
    """Moments of 20,000 points within 5 standard errors; fails by chance with probability 1e-6 for another seed."""
    data = db.data.toy1d(jax.random.key(0), examples=20_000)
    x, y = np.asarray(data.x, np.float64), np.asarray(data.y, np.float64)
    assert x.min() >= -4
    assert x.max() <= 4
    residuals = y - x**3
    assert abs(residuals.mean()) < 5 * 3 / np.sqrt(20_000)
    assert abs(residuals.var() - TOY1D_NOISE_VARIANCE) < 5 * 9 * np.sqrt(2 / 20_000)


def test_toy_problems_depend_on_the_key_alone() -> None:
    np.testing.assert_array_equal(db.data.toy2d(jax.random.key(3)).x, db.data.toy2d(jax.random.key(3)).x)
    assert not np.array_equal(db.data.toy1d(jax.random.key(3)).x, db.data.toy1d(jax.random.key(4)).x)
