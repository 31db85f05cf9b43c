"""Where students ask."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import darkbayes as db

pytestmark = pytest.mark.usefixtures("strict")

X = jnp.arange(8.0).reshape(4, 2)
IMAGES = jnp.zeros((6, 1, 4, 4))
ALL = {
    "training": db.training_inputs(),
    "jitter": db.jitter(0.1),
    "box": db.uniform_box(-1.0, 1.0),
    "mix": db.mix(db.jitter(0.1), db.uniform_box(-1.0, 1.0), 0.5),
    "nested": db.mix(db.training_inputs(), db.mix(db.jitter(1.0), db.uniform_box(0.0, 1.0), 0.3), 0.2),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("x", [X, IMAGES, X[:1]], ids=["table", "images", "one row"])
def test_queries_are_shaped_like_the_inputs(name: str, x: jax.Array) -> None:
    queries = ALL[name](jax.random.key(0), x, None)
    assert queries.shape == x.shape
    assert queries.dtype == x.dtype


def test_training_inputs_are_asked_as_they_are() -> None:
    np.testing.assert_array_equal(db.training_inputs()(jax.random.key(0), X, None), X)


def test_jitter_adds_gaussian_noise_of_its_scale() -> None:
    """Kolmogorov-Smirnov on 8,000 values; fails by chance with probability 1e-4 for another seed."""
    x = jnp.full((4000, 2), 5.0)
    noise = np.ravel(db.jitter(0.3)(jax.random.key(0), x, None) - x)
    assert stats.kstest(noise, stats.norm(0, 0.3).cdf).pvalue > 1e-4


def test_a_box_has_its_own_sides_for_every_feature() -> None:
    """Kolmogorov-Smirnov on 4,000 values a side; fails by chance with probability 2e-4 for another seed."""
    queries = np.asarray(db.uniform_box([-2.0, 10.0], [0.0, 50.0])(jax.random.key(0), jnp.zeros((4000, 2)), None))
    assert stats.kstest(queries[:, 0], stats.uniform(-2, 2).cdf).pvalue > 1e-4
    assert stats.kstest(queries[:, 1], stats.uniform(10, 40).cdf).pvalue > 1e-4


def test_a_mix_takes_whole_rows_with_its_weight() -> None:
    """A binomial count of 5,000 rows; fails by chance with probability 1e-4 for another seed."""
    x = jnp.zeros((5000, 2))
    queries = np.asarray(db.mix(db.training_inputs(), db.uniform_box(1.0, 2.0), 0.3)(jax.random.key(0), x, None))
    from_first = (queries == 0).all(axis=1)
    assert ((queries >= 1).all(axis=1) ^ from_first).all()
    assert stats.binomtest(int(from_first.sum()), 5000, 0.3).pvalue > 1e-4


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 1.5), (1.0, -1.5)])
def test_a_mix_of_weight_zero_or_one_is_one_of_its_parts(weight: float, expected: float) -> None:
    mixed = db.mix(lambda key, x, context: x - 1.5, lambda key, x, context: x + 1.5, weight)
    np.testing.assert_array_equal(mixed(jax.random.key(0), X, None), X + expected)


def test_the_parts_of_a_mix_use_different_keys() -> None:
    keys = []

    def remember(key: jax.Array, x: jax.Array, context: db.Context) -> jax.Array:
        keys.append(tuple(jax.random.key_data(key).tolist()))
        return x

    db.mix(remember, remember, 0.5)(jax.random.key(0), X, None)
    assert len(set(keys)) == 2


def test_a_query_may_look_at_the_draws(classes: db.Data, logistic: db.Network) -> None:
    posterior = db.Posterior(logistic, db.Softmax(2), db.GaussianPrior(), num_data=20)
    seen = {}

    def queries(key: jax.Array, x: jax.Array, context: db.Context) -> jax.Array:
        seen["draws"] = jax.tree.leaves(context.draws)[0].shape
        spread = context.posterior.distribution(jax.tree.map(lambda leaf: leaf[0], context.draws), x).entropy
        return x * spread[:, None]

    parts = db.distillation(
        db.minibatch_chain(posterior, db.sgld(1e-2), *classes, batch_size=5),
        db.Student(logistic, db.SoftmaxStudent(2), optax.sgd(0.1)),
        queries,
        db.Settings(num_chains=3, query_batch=4, reservoir=5, reservoir_picks=2),
    )
    state = eqx.filter_eval_shape(parts.init, jax.random.key(0))
    eqx.filter_eval_shape(parts.advance, state, np.int32(1))
    assert seen["draws"] == (3 + 3 * 2, 2, 2)
