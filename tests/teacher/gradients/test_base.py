"""Estimators of the gradient: none is biased, and whatever the estimator, it distils."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.runs import load_checkpoint, save_checkpoint
from darkbayes.teacher.gradients.base import whole_gradient
from teacher.gradients.helpers import close, estimates

pytestmark = pytest.mark.usefixtures("strict_dtypes")


@pytest.fixture(scope="module")
def all_estimates(
    posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]
) -> dict[str, db.teacher.gradients.GradientEstimate]:
    here, there = draws
    kinds = {
        "minibatch": db.teacher.gradients.minibatch_gradients(),
        "control variates": db.teacher.gradients.control_variates(there, chunk_size=3),
        "svrg": db.teacher.gradients.svrg(5, chunk_size=4),
        "per example": db.teacher.gradients.per_example(),
        "curvature of svrg": db.teacher.gradients.with_curvature(db.teacher.gradients.svrg(5)),
        "metric": db.teacher.gradients.fisher_metric(),
    }
    return {name: estimates(kind, posterior, data, there, here) for name, kind in kinds.items()}


def test_the_mean_over_all_batches_is_the_exact_gradient(
    all_estimates: dict[str, db.teacher.gradients.GradientEstimate], exact: Any
) -> None:
    value, grads = exact
    for actual in all_estimates.values():
        mean_value, mean_grads = jax.tree.map(lambda leaf: leaf.mean(axis=0), (actual.value, actual.grads))
        close(mean_grads, grads)
        close(mean_value, value)


def test_what_comes_with_the_gradient_has_the_shape_of_the_weights(
    all_estimates: dict[str, db.teacher.gradients.GradientEstimate], draws: list[db.model.Draw]
) -> None:
    assert not all_estimates["minibatch"].extras
    for name, extras, inner in (
        ("per example", ["per_example"], (1,)),
        ("curvature of svrg", ["curvature"], ()),
        ("metric", ["metric", "metric_gradient"], ()),
    ):
        actual = all_estimates[name].extras
        assert {key for key, value in actual.items() if jax.tree.leaves(value)} == set(extras)
        for extra in extras:
            wanted = jax.tree.map(lambda leaf, inner=inner: (7, *inner, *leaf.shape), draws[0])
            assert jax.tree.map(jnp.shape, actual[extra]) == wanted


def test_gradients_of_examples_are_those_of_batches_of_one_without_the_prior(
    posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]
) -> None:
    facts = []

    @jax.jit
    def run(draw: db.model.Draw) -> Any:
        batch = db.Data(data.x[:3], data.y[:3])
        for part in (batch, data):
            actual = (
                db.teacher.gradients.per_example().estimate(jax.random.key(0), posterior, data, part, draw, ()).extras
            )
            facts.append((actual["num_data"], actual["all_data"]))
        return actual["per_example"], jax.jacobian(lambda draw: -posterior.log_likelihood(draw, data))(draw)

    close(*run(draws[0]))
    assert facts == [(7, False), (7, True)]


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 100])
def test_the_gradient_of_all_examples_is_the_same_in_chunks(
    chunk_size: int, posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw], exact: Any
) -> None:
    close(whole_gradient(posterior, data, draws[0], chunk_size), exact)


def test_estimates_keep_the_precision_of_the_weights(posterior: db.Posterior, data: db.Data) -> None:
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), posterior.init(jax.random.key(0), data.x))
    for gradients in (
        db.teacher.gradients.control_variates(half),
        db.teacher.gradients.svrg(2),
        db.teacher.gradients.per_example(),
        db.teacher.gradients.fisher_metric(),
        db.teacher.gradients.with_curvature(),
    ):

        def run(gradients: db.teacher.gradients.Gradients = gradients) -> Any:
            with jax.numpy_dtype_promotion("standard"):  # The likelihood adds single-precision data to the outputs.
                state = gradients.init(posterior, data, half)
                return gradients.estimate(jax.random.key(0), posterior, data, data, half, state)

        actual = jax.eval_shape(lambda run=run: (run().grads, run().extras.get("metric")))
        assert {leaf.dtype.name for leaf in jax.tree.leaves(actual[0])} == {"bfloat16"}
        assert {leaf.dtype.name for leaf in jax.tree.leaves(actual[1])} <= {"float32"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: db.teacher.gradients.svrg(0), "refresh_every must be a whole number of at least 1, not 0"),
        (lambda: db.teacher.gradients.svrg(3, chunk_size=0), "chunk_size must be a whole number"),
        (lambda: db.teacher.gradients.fisher_metric(0), "probes must be a whole number"),
        (lambda: db.teacher.gradients.with_curvature(probes=1.5), "probes must be a whole number"),
    ],
)
def test_counts_that_are_none_are_refused(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make()


# Chains


def test_the_plain_chain_has_the_bits_of_the_plain_rule(
    posterior: db.Posterior, data: db.Data, trees_equal: Any
) -> None:
    sampler = db.sgld(1e-2)
    chain = db.minibatch_chain(posterior, sampler, *data, batch_size=3)
    state = chain.init(jax.random.key(0))
    assert state.gradients == ()

    @jax.jit
    def by_hand(key: jax.Array, params: Any, sampler_state: Any) -> Any:
        batch_key, noise_key = jax.random.split(key)
        rows = jax.random.randint(batch_key, (3,), 0, 7)
        batch = db.Data(data.x[rows], data.y[rows])
        value, grads = jax.value_and_grad(lambda draw: -posterior.log_density(draw, batch))(params)
        updates, _ = sampler.update(grads, sampler_state, params, key=noise_key)
        return optax.apply_updates(params, updates), value

    new, info = eqx.filter_jit(chain.step)(jax.random.key(5), state)
    params, value = by_hand(jax.random.key(5), state.params, state.transformation)
    assert trees_equal((new.params, info.log_density), (params, -value))


# Whatever the sampler, it distils


@pytest.mark.parametrize("kind", ["sgfs", "sgrld", "svrg"])
def test_every_sampler_distils_and_resumes_in_the_same_bits(
    kind: str, classes: db.Data, logistic: db.Network, tmp_path: Any, trees_equal: Any
) -> None:
    posterior = db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    sampler, gradients = {
        "sgfs": (db.samplers.sgfs(0.5, prior_precision=1.0, full=True), db.teacher.gradients.per_example()),
        "sgrld": (db.samplers.sgrld(0.05, prior_precision=1.0), db.teacher.gradients.fisher_metric()),
        "svrg": (db.sgld(1e-2), db.teacher.gradients.svrg(3)),
    }[kind]
    chain = db.minibatch_chain(posterior, sampler, *classes, batch_size=5, burn_in=10, thin=2, gradients=gradients)
    student = db.Student(logistic, db.outcomes.SoftmaxHead(2), optax.sgd(1e-2))
    parts = db.distillation(chain, student, db.queries.uniform_box(-5, 5), db.Settings(num_chains=2, query_batch=8))

    state = parts.burn(parts.init(jax.random.key(0)), np.int32(10))
    state, _ = parts.advance(state, np.int32(2))
    save_checkpoint(tmp_path, state, 14)
    actual = load_checkpoint(tmp_path, state)
    assert actual is not None
    ends = [parts.advance(at, np.int32(2)) for at in (actual[0], state)]
    assert trees_equal(*ends)
    assert np.isfinite(ends[0][1]).all()
