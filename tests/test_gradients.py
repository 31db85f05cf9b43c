"""Estimators of the gradient: none is biased, the noise is what theory says, and so is what it does to SGLD."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.runs import load_checkpoint, save_checkpoint
from darkbayes.teacher import burn, start_chains
from darkbayes.teacher.gradients.base import whole_gradient
from darkbayes.teacher.gradients.when_due import rarely

pytestmark = pytest.mark.usefixtures("strict_dtypes")


# A linear network and a likelihood that has a parameter and a prior of its own: not quadratic, and soon compiled


@pytest.fixture(scope="module")
def data() -> db.Data:
    rng = np.random.default_rng(0)
    return db.data.as_data(rng.normal(size=(7, 2)), rng.normal(size=(7, 1)))


@pytest.fixture(scope="module")
def posterior(linear: db.Network) -> db.Posterior:
    return db.Posterior(linear, db.GaussianSampledNoise(), db.priors.GaussianPrior(2.0), num_data=7)


@pytest.fixture(scope="module")
def draws(posterior: db.Posterior, data: db.Data) -> list[db.model.Draw]:
    return [posterior.init(key, data.x) for key in jax.random.split(jax.random.key(1))]


@pytest.fixture(scope="module")
def exact(posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]) -> Any:
    return jax.value_and_grad(lambda draw: -posterior.log_density(draw, data))(draws[0])


def single_batches(data: db.Data) -> db.Data:
    """All batches of one example."""
    return jax.tree.map(lambda leaf: leaf[:, None], data)


def close(first: Any, second: Any, tolerance: float = 1e-5) -> None:
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(np.abs(b).max()))


def estimates(
    gradients: db.gradients.Gradients, posterior: db.Posterior, data: db.Data, start: Any, here: Any
) -> db.gradients.Estimate:
    """What each batch of one example tells at `here`, in a chain that began at `start`."""

    @jax.jit
    def run(key: jax.Array, start: Any, here: Any) -> Any:
        whole, rest = gradients.init(posterior, data, start), jax.random.split(key, 2)
        state = gradients.estimate(rest[0], posterior, data, data, start, whole).state
        batches = single_batches(data)

        def one(batch: db.Data) -> Any:
            found = gradients.estimate(rest[1], posterior, data, batch, here, state)
            return found._replace(extras=eqx.filter(found.extras, eqx.is_array))

        return jax.vmap(one)(batches)

    return run(jax.random.key(2), start, here)


@pytest.fixture(scope="module")
def all_estimates(
    posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]
) -> dict[str, db.gradients.Estimate]:
    here, there = draws
    kinds = {
        "minibatch": db.gradients.minibatch_gradients(),
        "control variates": db.gradients.control_variates(there, chunk_size=3),
        "svrg": db.gradients.svrg(5, chunk_size=4),
        "per example": db.gradients.per_example(),
        "curvature of svrg": db.gradients.with_curvature(db.gradients.svrg(5)),
        "metric": db.gradients.fisher_metric(),
    }
    return {name: estimates(kind, posterior, data, there, here) for name, kind in kinds.items()}


def test_the_mean_over_all_batches_is_the_exact_gradient(
    all_estimates: dict[str, db.gradients.Estimate], exact: Any
) -> None:
    value, grads = exact
    for found in all_estimates.values():
        mean_value, mean_grads = jax.tree.map(lambda leaf: leaf.mean(axis=0), (found.value, found.grads))
        close(mean_grads, grads)
        close(mean_value, value)


def test_what_comes_with_the_gradient_has_the_shape_of_the_weights(
    all_estimates: dict[str, db.gradients.Estimate], draws: list[db.model.Draw]
) -> None:
    assert not all_estimates["minibatch"].extras
    for name, extras, inner in (
        ("per example", ["per_example"], (1,)),
        ("curvature of svrg", ["curvature"], ()),
        ("metric", ["metric", "metric_gradient"], ()),
    ):
        found = all_estimates[name].extras
        assert {key for key, value in found.items() if jax.tree.leaves(value)} == set(extras)
        for extra in extras:
            wanted = jax.tree.map(lambda leaf, inner=inner: (7, *inner, *leaf.shape), draws[0])
            assert jax.tree.map(jnp.shape, found[extra]) == wanted


def test_gradients_of_examples_are_those_of_batches_of_one_without_the_prior(
    posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]
) -> None:
    facts = []

    @jax.jit
    def run(draw: db.model.Draw) -> Any:
        batch = db.Data(data.x[:3], data.y[:3])
        for part in (batch, data):
            found = db.gradients.per_example().estimate(jax.random.key(0), posterior, data, part, draw, ()).extras
            facts.append((found["num_data"], found["all_data"]))
        return found["per_example"], jax.jacobian(lambda draw: -posterior.log_likelihood(draw, data))(draw)

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
        db.gradients.control_variates(half),
        db.gradients.svrg(2),
        db.gradients.per_example(),
        db.gradients.fisher_metric(),
        db.gradients.with_curvature(),
    ):

        def run(gradients: db.gradients.Gradients = gradients) -> Any:
            with jax.numpy_dtype_promotion("standard"):  # The likelihood adds single-precision data to the outputs.
                state = gradients.init(posterior, data, half)
                return gradients.estimate(jax.random.key(0), posterior, data, data, half, state)

        found = jax.eval_shape(lambda run=run: (run().grads, run().extras.get("metric")))
        assert {leaf.dtype.name for leaf in jax.tree.leaves(found[0])} == {"bfloat16"}
        assert {leaf.dtype.name for leaf in jax.tree.leaves(found[1])} <= {"float32"}


# Estimates by random signs


@pytest.fixture(scope="module")
def probed(posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]) -> Any:
    """The extras of 4,000 keys."""

    @jax.jit
    def run(keys: jax.Array, draw: db.model.Draw) -> Any:
        def one(key: jax.Array) -> Any:
            curvature = db.gradients.with_curvature().estimate(key, posterior, data, data, draw, ()).extras
            return (
                curvature | db.gradients.fisher_metric(probes=2).estimate(key, posterior, data, data, draw, ()).extras
            )

        return jax.vmap(one)(keys)

    return run(jax.random.split(jax.random.key(3), 4000), draws[0])


def flat_rows(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(tree)], axis=1)


def test_the_curvature_has_the_diagonal_of_the_hessian_for_mean(
    probed: Any, posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw], z_scores: Any
) -> None:
    """Three entries at |z| < 4: fails by chance with probability 2e-4 for another seed."""
    flat, restore = jax.flatten_util.ravel_pytree(draws[0])
    hessian = jax.jit(jax.hessian(lambda flat: -posterior.log_density(restore(flat), data)))(flat)
    assert np.abs(z_scores(flat_rows(probed["curvature"]), np.diag(hessian))).max() < 4


def test_the_gradient_of_the_metric_has_the_diagonal_of_its_jacobian_for_mean(
    probed: Any, posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw], z_scores: Any
) -> None:
    """Three entries at |z| < 4: fails by chance with probability 2e-4 for another seed."""
    flat, restore = jax.flatten_util.ravel_pytree(draws[0])

    def metric(flat: jax.Array) -> jax.Array:
        of_examples = jax.jacobian(lambda flat: posterior.log_likelihood(restore(flat), data))(flat)
        return jnp.sum(of_examples**2, axis=0)

    value, jacobian = jax.jit(lambda flat: (metric(flat), jax.jacobian(metric)(flat)))(flat)
    np.testing.assert_allclose(flat_rows(probed["metric"])[0], value, rtol=1e-4)
    assert np.abs(z_scores(flat_rows(probed["metric_gradient"]), np.diag(jacobian))).max() < 4


# Anchors


def test_there_is_no_noise_at_the_anchor(posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]) -> None:
    for gradients in (db.gradients.control_variates(draws[0]), db.gradients.svrg(5)):
        found = estimates(gradients, posterior, data, draws[0], draws[0])
        for leaf in jax.tree.leaves((found.value, found.grads)):
            assert float(jnp.max(jnp.std(leaf, axis=0))) < 1e-5


def test_the_noise_on_a_linear_model_is_that_of_the_formula(conjugate: Any, batch_noise: Any) -> None:
    """N^2/M times the variance over examples of lambda_n x x^T (theta - anchor), residuals or not."""
    network, offset = conjugate.mean[:, None], np.array([[0.3], [-0.7]])
    anchor, here = (db.model.Draw(jnp.asarray(w, jnp.float32), ()) for w in (network, network + offset))
    found = estimates(db.gradients.control_variates(anchor), conjugate.posterior, conjugate.data, anchor, here)
    noise = np.cov(np.asarray(found.grads.network)[..., 0].T, ddof=0)
    np.testing.assert_allclose(noise, batch_noise(1, offset @ offset.T, residuals=False), rtol=1e-4)


def test_an_anchor_of_another_posterior_is_refused(conjugate: Any, draws: list[db.model.Draw]) -> None:
    chain = db.minibatch_chain(
        conjugate.posterior,
        db.sgld(0.1),
        *conjugate.data,
        batch_size=2,
        gradients=db.gradients.control_variates(draws[0]),
    )
    with pytest.raises(db.InvalidInput, match="anchor holds weights of other shapes"):
        chain.init(jax.random.key(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: db.gradients.svrg(0), "refresh_every must be a whole number of at least 1, not 0"),
        (lambda: db.gradients.svrg(3, chunk_size=0), "chunk_size must be a whole number"),
        (lambda: db.gradients.fisher_metric(0), "probes must be a whole number"),
        (lambda: db.gradients.with_curvature(probes=1.5), "probes must be a whole number"),
    ],
)
def test_counts_that_are_none_are_refused(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make()


# Work that is rarely due


def primitives(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


def test_work_that_is_rarely_due_is_chosen_by_each_chain_and_skipped_if_no_one_needs_it() -> None:
    def step(due: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return rarely(due, lambda x, y: jnp.sin(x) * y, x, x, y)

    x, y = jnp.arange(6.0).reshape(2, 3), jnp.array([1.0, 2.0, 3.0])
    both = jax.vmap(jax.vmap(step, in_axes=(0, 0, 0)), in_axes=(None, 0, None))
    for due in (jnp.array([True, False, True]), jnp.zeros(3, bool), jnp.ones(3, bool)):
        np.testing.assert_allclose(both(due, x, y), jnp.where(due[None], jnp.sin(x) * y[None], x), rtol=1e-6)
    jaxpr = jax.make_jaxpr(both)(jnp.ones(3, bool), x, y)
    assert "cond" in list(primitives(jaxpr.jaxpr))
    assert "sin" not in [equation.primitive.name for equation in jaxpr.jaxpr.eqns]


def svrg_chain(posterior: db.Posterior, data: db.Data) -> Any:
    return db.minibatch_chain(
        posterior, db.sgld(1e-2), *data, batch_size=2, gradients=db.gradients.svrg(3, chunk_size=4)
    )


def test_chains_side_by_side_take_new_anchors_together_and_pay_only_then(
    posterior: db.Posterior, data: db.Data, compilations: Counter[str], trees_equal: Any
) -> None:
    chain = svrg_chain(posterior, data)
    chains = start_chains(chain, jax.random.key(0), 2)
    jaxpr = jax.make_jaxpr(jax.vmap(chain.step))(jax.random.split(jax.random.key(0), 2), chains.states)
    assert "cond" in list(primitives(jaxpr.jaxpr))

    anchors, before = [], []
    for count in range(5):
        before.append(jax.tree.map(np.asarray, chains.draws))
        chains = burn(chain, chains, np.int32(1 if count < 4 else 2))
        anchors.append(jax.tree.map(np.asarray, chains.states.gradients.anchor))
    for count, last in enumerate((0, 0, 0, 3)):
        assert trees_equal(anchors[count], before[last])
    assert compilations["burn"] == 1


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


@pytest.fixture(scope="module")
def sgld_law(conjugate: Any, batch_noise: Any) -> Any:
    """The covariance of SGLD on `conjugate` with plain, anchored and SVRG gradients, averaged over a cycle of SVRG.

    Within a cycle that begins at theta_0, with covariance S_0 about the mean and A = I - eta/2 H, theta_t has the
    covariance S_t with S_{t+1} = A S_t A^T + eta I + eta^2/4 C(D_t), where C(D) is the noise at the mean square
    distance D_t = S_t - A^t S_0 - S_0 A^t + S_0 from the anchor; and S_m = S_0.
    """
    hessian = np.linalg.inv(conjugate.covariance)

    def law(kind: str, step_size: float, size: int, offset: np.ndarray, cycle: int = 1) -> np.ndarray:
        decay, start, mean = np.eye(2) - step_size / 2 * hessian, np.zeros((2, 2)), np.zeros((2, 2))
        for _ in range(500):
            now, power, mean = start, np.eye(2), np.zeros((2, 2))
            for _ in range(cycle):
                if kind == "plain":
                    noise = batch_noise(size, now)
                elif kind == "anchor":
                    noise = batch_noise(size, now + np.outer(offset, offset), residuals=False)
                else:
                    apart = now - power @ start - (power @ start).T + start
                    noise = batch_noise(size, apart, residuals=False)
                now, power = decay @ now @ decay.T + step_size * np.eye(2) + step_size**2 / 4 * noise, decay @ power
                mean = mean + now / cycle
            start = now
        return mean

    return law


@pytest.mark.parametrize("kind", ["anchor", "svrg"])
def test_anchors_lower_the_excess_variance_of_sgld_as_the_law_says(
    kind: str, conjugate: Any, sgld_law: Any, regression_moments: Any, z_scores: Any
) -> None:
    """Batches of one of six examples. Five entries at |z| < 4: fails by chance with probability 3e-4 a case."""
    step_size, offset = 0.03, np.array([0.4, -0.3])
    anchor = db.model.Draw(jnp.asarray((conjugate.mean + offset)[:, None], jnp.float32), ())
    gradients = db.gradients.control_variates(anchor) if kind == "anchor" else db.gradients.svrg(4)
    chain = db.minibatch_chain(
        conjugate.posterior, db.sgld(step_size), *conjugate.data, batch_size=1, gradients=gradients
    )

    @jax.jit
    def run(keys: jax.Array) -> Any:
        return regression_moments(chain, jax.vmap(chain.init)(keys), burn_in=80, steps=400)

    mean, square = run(jax.random.split(jax.random.key(4), 3000))
    law, plain = sgld_law(kind, step_size, 1, offset, cycle=4), sgld_law("plain", step_size, 1, offset)
    entries = np.triu_indices(2)
    assert np.abs(z_scores(mean, conjugate.mean)).max() < 4
    assert np.abs(z_scores(square, law)[entries]).max() < 4
    # Far from the plain law, and with less excess over that of exact gradients.
    assert np.abs(z_scores(square, plain)[entries]).max() > 10
    hessian = np.linalg.inv(conjugate.covariance)
    exact = np.linalg.inv(hessian @ (np.eye(2) - step_size / 4 * hessian))
    assert np.trace(law - exact) < 0.8 * np.trace(plain - exact)


# Whatever the sampler, it distils


@pytest.mark.parametrize("kind", ["sgfs", "sgrld", "svrg"])
def test_every_sampler_distils_and_resumes_in_the_same_bits(
    kind: str, classes: db.Data, logistic: db.Network, tmp_path: Any, trees_equal: Any
) -> None:
    posterior = db.Posterior(logistic, db.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    sampler, gradients = {
        "sgfs": (db.samplers.sgfs(0.5, prior_precision=1.0, full=True), db.gradients.per_example()),
        "sgrld": (db.samplers.sgrld(0.05, prior_precision=1.0), db.gradients.fisher_metric()),
        "svrg": (db.sgld(1e-2), db.gradients.svrg(3)),
    }[kind]
    chain = db.minibatch_chain(posterior, sampler, *classes, batch_size=5, burn_in=10, thin=2, gradients=gradients)
    student = db.Student(logistic, db.SoftmaxStudent(2), optax.sgd(1e-2))
    parts = db.distillation(chain, student, db.queries.uniform_box(-5, 5), db.Settings(num_chains=2, query_batch=8))

    state = parts.burn(parts.init(jax.random.key(0)), np.int32(10))
    state, _ = parts.advance(state, np.int32(2))
    save_checkpoint(tmp_path, state, 14)
    found = load_checkpoint(tmp_path, state)
    assert found is not None
    ends = [parts.advance(at, np.int32(2)) for at in (found[0], state)]
    assert trees_equal(*ends)
    assert np.isfinite(ends[0][1]).all()
