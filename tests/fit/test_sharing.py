"""Fits share compiled code: what is filled up for it changes nothing (that they do: test_regressor.py)."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.fit import Model, automatic, make_posterior, sharing
from darkbayes.model import layers
from darkbayes.outcomes import NumberTarget
from darkbayes.student.queries import Context
from darkbayes.student.sizing import learn_from_draws
from darkbayes.tables.schema import REACH
from darkbayes.teacher.diagnostics.temperature import gradient_noise
from darkbayes.types import Data, WeightedData

pytestmark = pytest.mark.usefixtures("optimised")


def slope(examples: int, weighted: bool = False) -> tuple[Any, float, float]:
    """Examples of one input whose first quarter is unlike the others; mean and variance of its weight.

    Where they are weighted, an example of weight 0 to 3 is as good as so many of them.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(examples, 1)).astype(np.float32)
    y = np.where(np.arange(examples)[:, None] < examples / 4, 2.0, -1.0) * x + rng.normal(size=x.shape)
    weights, data = np.ones(examples, int), Data(x, y.astype(np.float32))  # pyright: ignore
    if weighted:
        weights = rng.integers(0, 4, examples)
        data = WeightedData(*data, weights.astype(np.float32))  # pyright: ignore
    x, y = (np.repeat(part, weights, axis=0) for part in (x, y))
    precision = 1.0 + float((x**2).sum())
    return data, float((x * y).sum()) / precision, 1 / precision


@pytest.mark.parametrize("step_size", [0.002, None], ids=["batches", "all"])
def test_rows_and_columns_that_fill_up_leave_the_law_as_it_is(
    linear: db.Network, monkeypatch: pytest.MonkeyPatch, step_size: float | None
) -> None:
    """400 examples with weights, some of which fill up 512 rows; seven columns of zeros; in batches, or all.

    100 chains keep 40 draws each, 100 steps apart: the standard error of the mean is about a fiftieth of the standard
    deviation, and that of the variance 3 %, on top of the 5 % that the noise of minibatches inflates it by at such step
    sizes. Were the rows that fill up drawn as well, the mean would be off by more than a standard deviation.
    """
    data, mean, variance = slope(400, weighted=True)
    posterior = db.Posterior(linear, db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(1.0), num_data=400)
    filled = data._replace(x=sharing.fill_columns(data.x, 8))
    exact = np.random.default_rng(1).normal([mean, *[0.0] * 7], np.sqrt([variance, *[1.0] * 7]), (100, 8))
    start = db.model.Draw(jnp.asarray(exact[..., None], jnp.float32), posterior.init(jax.random.key(0), filled.x)[1])
    if step_size is None:
        # Of so few weights, one far stiffer than the others, more is asked than of a network's.
        monkeypatch.setattr(sharing, "ENERGY_ERROR", 5e-5)
        chain = sharing.whole_chain(posterior, filled, start, burn_in=1000, thin=100)
    else:
        chain = sharing.make_chain(posterior, filled, batch_size=100)
        sampler = dataclasses.replace(chain.transformation, step_size=jnp.float32(step_size))
        chain = dataclasses.replace(chain, transformation=sampler, burn_in=1000, thin=100, start=start)
    draws = np.asarray(db.sample(chain, jax.random.key(0), num_chains=100, num_draws=40).network)[..., 0]
    gap = (draws - [mean, *[0.0] * 7]) / np.sqrt([variance, *[1.0] * 7])
    np.testing.assert_allclose(gap.mean(axis=(0, 1)), 0.0, atol=0.1)
    # The weights of zeros have the prior's law.
    squares = (gap**2).mean(axis=(0, 1))
    assert squares[0] == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(squares[1:], 1.0, atol=0.15)


def test_the_temperature_is_that_of_the_examples(linear: db.Network, draw_stack: Any) -> None:
    data, *_ = slope(20)
    posterior = db.Posterior(linear, db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(1.0), num_data=20)
    draws = draw_stack(posterior, data.x, 3)
    actual = gradient_noise(sharing.make_chain(posterior, data, 100), draws, jax.random.key(0))
    assert actual is not None
    exact = db.teacher.diagnostics.configurational_temperature(posterior, draws, data)
    np.testing.assert_allclose(actual.temperature, exact, rtol=1e-4)


def test_queries_leave_columns_that_fill_up_alone() -> None:
    ends = np.asarray([[-1.0, -1.0], [1.0, 1.0]])
    queries: Any = sharing.table_queries(4, ends, groups=[(2, 3)], scales=(0.1, 0.5), between=0.2, share=0.5).over(8)
    x = jnp.zeros((200, 8)).at[:100, 2].set(1.0).at[100:, 3].set(1.0)
    asked = np.asarray(eqx.filter_jit(queries)(jax.random.key(0), x, None))
    assert (asked[:, 4:] == 0).all()
    noise = asked[:, :2]
    near = np.abs(noise).max(axis=1) < 0.3
    assert 0.3 < near.mean() < 0.9
    assert 0.1 < noise.std() < 0.5
    assert (asked[:, 2:4].sum(axis=1) == 1).all()
    moved = (asked[:, 2:4] != np.asarray(x[:, 2:4])).any(axis=1).mean()
    assert 0.15 < moved < 0.35


def test_queries_outside_reach_every_side_and_corner_and_no_farther_than_a_schema_lets_them() -> None:
    ends = np.asarray([[-1.0, -2.0, 0.0], [1.0, 2.0, 4.0]])
    queries: Any = sharing.table_queries(5, ends, [(3, 4)], (0.1, 0.5), between=0.2, share=0.5, outside=1.0).over(8)
    x = jnp.zeros((2000, 8)).at[:1000, 3].set(1.0).at[1000:, 4].set(1.0)
    asked = np.asarray(eqx.filter_jit(queries)(jax.random.key(0), x, None))
    assert (asked[:, 5:] == 0).all()
    numbers, (low, high) = asked[:, :3], ends
    assert (numbers >= low - REACH).all()
    assert (numbers <= high + REACH).all()
    far = (numbers < low - 0.9 * REACH).astype(int) - (numbers > high + 0.9 * REACH)
    for which in ([1, 0, 0], [0, -1, 0], [1, 1, 1], [-1, -1, -1]):  # One number and all of them.
        assert (far == which).all(axis=1).any()
    unknown = asked[:, 3:5].sum(axis=1) == 0
    assert 0.05 < unknown.mean() < 0.15
    near = np.asarray(eqx.filter_jit(queries.near())(jax.random.key(0), x, None))
    assert np.abs(near[:, :3]).max() < 3


def test_a_student_that_asks_outside_knows_the_doubt_there() -> None:
    """Draws are of the prior: what they say of a place is the less certain the farther out it is."""
    x = np.random.default_rng(0).uniform(-1, 1, (200, 8)).astype(np.float32) * (np.arange(8) < 3)
    posterior = db.Posterior(db.mlp([8], 1), db.outcomes.Gaussian(4.0), db.priors.GaussianPrior(1.0), num_data=200)
    draws = jax.vmap(lambda key: posterior.init(key, x[:1]))(jax.random.split(jax.random.key(1), 64))
    head = db.outcomes.GaussianHead(decompose=True)
    student = db.Student(db.mlp([32, 32], head.width), head, sharing.FallingAdam(1e-2, jnp.float32(1000.0), 1.0))  # pyright: ignore[reportArgumentType]
    queries: Any = sharing.table_queries(
        8, np.asarray([[-1.0] * 3, [1.0] * 3]), [], (0.02, 0.3), 0.25, 0.1, outside=0.5
    )
    probes = np.concatenate([x[:50] + shift * np.eye(8)[:3].sum(axis=0) for shift in (-REACH, -3, 3, REACH)])
    true = db.predict_draws(posterior, draws, probes).std

    def share_within(queries: Any) -> float:
        teacher = Context(posterior, draws, jnp.asarray(x))
        params = learn_from_draws(student, queries, teacher, jax.random.key(2), 1000, 64, 16)
        ratio = db.predict_student(student, params, probes).std / true
        return float(((ratio > 0.5) & (ratio < 2)).mean())

    assert share_within(queries) > 0.95
    assert share_within(queries.near()) < 0.8


def test_the_learning_rate_falls_as_the_cosine_of_optax() -> None:
    mine = sharing.FallingAdam(0.1, jnp.float32(3.0))
    theirs = optax.adam(optax.cosine_decay_schedule(0.1, 3))
    weights = jnp.array([1.0, -2.0])
    my_state, their_state = mine.init(weights), theirs.init(weights)
    for _ in range(5):
        actual, my_state = mine.update(weights, my_state)
        expected, their_state = theirs.update(weights, their_state)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-9)


def test_weights_come_back_from_being_filled_up() -> None:
    network = db.mlp([3], 1)
    narrow, wide = np.zeros((1, 2), np.float32), np.zeros((1, 8), np.float32)
    weights = network.init(jax.random.key(0), jnp.asarray(narrow))
    stacked = jax.tree.map(lambda leaf: np.stack([leaf] * 5), weights)
    filled = sharing.reshaped(network, stacked, wide)
    assert filled[0].weight.shape == (5, 3, 8)
    assert (filled[0].weight[..., 2:] == 0).all()
    back = sharing.reshaped(network, filled, narrow)
    assert jax.tree.structure(back) == jax.tree.structure(weights)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (back, stacked)), strict=True))


def test_networks_of_equal_layers_are_the_same_functions() -> None:
    assert db.mlp([3, 2], 1) == db.mlp((3, 2), np.int64(1))
    assert db.cnn([3], 2, 1) == db.cnn([3], 2, 1)
    assert db.mlp([3], 1).apply is not db.mlp([3], 1, jnp.tanh).apply
    with pytest.raises(db.InvalidInput, match=r"not 3\.0"):
        db.mlp([3.0], 1)  # pyright: ignore[reportArgumentType]

    class Times(layers.Layer):
        """Somebody's layer, which does not say that it compares by its factor."""

        def __init__(self, factor: float) -> None:
            object.__setattr__(self, "factor", factor)

        def apply(self, weights: Any, x: Any) -> Any:
            return self.factor * x  # pyright: ignore[reportAttributeAccessIssue]

    two, three = (db.sequential([Times(factor)]).apply((), jnp.ones((1, 1))) for factor in (2.0, 3.0))
    assert (float(two[0, 0]), float(three[0, 0])) == (2.0, 3.0)


@pytest.mark.parametrize("number", [1, 7, 300, 2_000])
def test_keys_and_permutations_are_those_of_jax(number: int) -> None:
    key = jax.random.key(3)
    np.testing.assert_array_equal(sharing.permutation(key, number), jax.random.permutation(key, number))
    theirs = jax.random.key_data(jax.random.split(key, 5))
    np.testing.assert_array_equal([jax.random.key_data(mine) for mine in sharing.split(key, 5)], theirs)


def test_rows_that_fill_up_blocks_are_taken_off_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "BLOCK", 4)
    network, x = db.mlp([3], 2), np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    posterior = db.Posterior(network, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=10)
    draws = jax.vmap(lambda key: posterior.init(key, jnp.asarray(x)))(jax.random.split(jax.random.key(0), 3))
    mine, plain = automatic.predicted_by_draws(posterior, draws, x), db.predict_draws(posterior, draws, x)
    np.testing.assert_allclose(mine.probs, plain.probs, rtol=1e-5)
    np.testing.assert_allclose(mine.parts[0], plain.parts[0], rtol=1e-5)


def test_a_narrow_prior_does_not_hold_the_ends_of_optimisations_where_all_weights_are_zero() -> None:
    """There a network says the same of all rows, and no gradient leads away."""
    x = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    y = np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    data = Data(x, ((y - y.mean()) / y.std()).astype(np.float32))  # pyright: ignore
    target = NumberTarget("y", "identity", 0.0, 1.0, float(y.min()), float(y.max()))
    posterior = make_posterior(data, target, Model((16,) * 4, "silu", "input-noise", 1.0))
    ends = sharing.optimised(posterior, data, jax.random.key(0), 4, 1_000)
    means = jax.vmap(lambda draw: posterior.distribution(draw, jnp.asarray(x)).mean)(ends)
    errors = np.square(means - data.y).mean(axis=(1, 2))
    assert (errors < 0.1).sum() >= 3, errors  # Of a variance of 1.
