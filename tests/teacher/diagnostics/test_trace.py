"""The trace of predictions: evenly over the whole run, whatever its length, in constant memory."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.teacher.keeping import POINTS, Trace, trace_add, trace_init, trace_read, traced

pytestmark = pytest.mark.usefixtures("strict")


def prediction(number: Any, chains: int = 2, points: int = 3) -> db.outcomes.Normal:
    """Chain c predicts 1000 c + number everywhere."""
    mean = 1000.0 * jnp.arange(chains, dtype=jnp.float32) + jnp.asarray(number, jnp.float32)
    mean = jnp.broadcast_to(mean[:, None, None], (chains, points, 1))
    return db.outcomes.Normal(mean, jnp.ones_like(mean))


@eqx.filter_jit
def offered(trace: Trace, number: jax.Array) -> Trace:
    """The trace after the next `number` draws, each of which predicts its own number."""
    return jax.lax.fori_loop(0, number, lambda _, now: trace_add(now, prediction(now.count)), trace)


def every_other(numbers: list[int], number: int, slots: int, stride: int) -> tuple[list[int], int]:
    """The plain way: when full, drop every other one and double the stride."""
    if number % stride == 0 and len(numbers) == slots:
        numbers, stride = numbers[::2], 2 * stride
    return ([*numbers, number] if number % stride == 0 else numbers), stride


@pytest.mark.parametrize("slots", [2, 8])
def test_a_trace_equals_dropping_every_other_one_when_full(slots: int) -> None:
    trace, expected, stride = trace_init(prediction(0), slots), [], 1
    add = eqx.filter_jit(trace_add)
    for number in range(70):
        trace = add(trace, prediction(number))
        expected, stride = every_other(expected, number, slots, stride)
        values, actual = trace_read(trace)
        assert actual == stride
        assert values[0, :, 0, 0].tolist() == expected
        np.testing.assert_array_equal(
            values, values[:1, :, :1] + 1000.0 * np.arange(2)[:, None, None, None] + 0 * values
        )


@pytest.mark.parametrize("number", [1, 7, 255, 256, 257, 258, 511, 512, 513, 4096, 100_003])
def test_a_trace_spans_the_whole_run_evenly(number: int) -> None:
    values, stride = trace_read(offered(trace_init(prediction(0)), jnp.int32(number)))
    taken = values[0, :, 0, 0]
    np.testing.assert_array_equal(taken, np.arange(0, number, stride))
    assert len(taken) == number if number <= 256 else 128 < len(taken) <= 256


def test_a_trace_does_not_depend_on_how_its_draws_were_cut(trees_equal: Any) -> None:
    start = trace_init(prediction(0))
    whole = offered(start, jnp.int32(1234))
    cut = offered(offered(offered(start, jnp.int32(255)), jnp.int32(2)), jnp.int32(977))
    assert trees_equal(whole, cut)


def test_a_few_inputs_are_traced_and_no_class_twice() -> None:
    probs = jnp.log(jnp.broadcast_to(jnp.array([0.5, 0.3, 0.2]), (4, 100, 3)))
    values = traced(db.outcomes.Categorical(probs))
    assert values.shape == (4, 25, 2)
    np.testing.assert_allclose(values[0, 0], [0.3, 0.2], rtol=1e-6)
    for points in (1, 31, 32, 33, 64, 65, 10_201):
        assert points // 2 < traced(prediction(0, 1, points)).shape[1] * max(1, points // POINTS) <= points + POINTS
        assert traced(prediction(0, 1, points)).shape[1] <= POINTS


# In the loop; that runs side by side have the traces that they would have alone is tested with them.


@pytest.fixture(scope="module")
def parts(logistic: db.Network, classes: db.Data) -> db.student.Distillation:
    posterior = db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    chain = db.minibatch_chain(posterior, db.sgld(0.05), *classes, batch_size=4, burn_in=3, thin=2)
    student = db.Student(logistic, db.outcomes.SoftmaxHead(2), optax.sgd(0.1))
    settings = db.Settings(num_chains=3, query_batch=4)
    return db.distillation(chain, student, db.queries.jitter(0.5), settings, monitor=classes.x)


def test_the_loop_traces_what_the_kept_draws_predict(parts: db.student.Distillation, classes: db.Data) -> None:
    state = parts.burn(parts.init(jax.random.key(0)), np.int32(3))
    expected = []
    for _ in range(5):
        state, _ = parts.advance(state, np.int32(1))
        draws = state.teacher.draws
        expected.append(jax.vmap(lambda draw: parts.chain.posterior.distribution(draw, classes.x).probs[:, 1:])(draws))
    values, stride = trace_read(state.trace)
    assert stride == 1
    np.testing.assert_allclose(values, np.stack(expected, axis=1), rtol=1e-5)
