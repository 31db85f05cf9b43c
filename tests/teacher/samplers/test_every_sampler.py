"""What all samplers have in common, put to each of them."""

import functools
from collections import Counter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.errors import InvalidInput
from darkbayes.teacher.chain import Chains, start_chains, step_chains
from teacher.samplers.cases import NUM_DATA, SAMPLERS, Sampler

pytestmark = pytest.mark.usefixtures("strict")


WEIGHTS = {
    "layer": {"w": np.ones((2, 3), np.float32), "b": np.full(3, 2.0, np.float32)},
    "scalar": np.float32(1.0),
    "half": np.ones(4, jnp.bfloat16),
    "none": np.zeros((0, 3), np.float32),
    "list": [np.ones((1, 2, 2), np.float32)],
}

WEIGHTS = jax.tree.map(jnp.asarray, WEIGHTS)


@pytest.fixture(params=SAMPLERS, scope="module")
def sampler(request: pytest.FixtureRequest) -> Sampler:
    return SAMPLERS[request.param]


@functools.partial(jax.jit, static_argnums=0)
def step_once(sampler: Sampler, key: jax.Array, weights: Any, state: Any, step_size: Any, temperature: Any) -> Any:
    """A step on gradients equal to the weights. What a sampler does not know, as ``value``, is no business of its."""
    transformation = sampler.make(step_size, temperature)
    updates, state = transformation.update(weights, state, weights, key=key, value=1.0, **sampler.extras(weights))
    return updates, optax.apply_updates(weights, updates), state


def walk(sampler: Sampler, seed: int, temperature: float = 1.0) -> Any:
    """The weights after four steps of keys that follow from the seed."""
    weights, state = WEIGHTS, sampler.make(0.01).init(WEIGHTS)
    for key in jax.random.split(jax.random.key(seed), 4):
        _, weights, state = step_once(sampler, key, weights, state, 0.01, temperature)
    return weights


def types(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def everywhere(condition: Any, *trees: Any) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda *leaves: bool(np.all(condition(*leaves))), *trees)))


def test_trees_of_any_shape_keep_their_types_and_compile_once(sampler: Sampler, compilations: Counter[str]) -> None:
    weights, state = WEIGHTS, sampler.make(0.01).init(WEIGHTS)
    before = types((WEIGHTS, state))
    for t in range(4):
        updates, weights, state = step_once(sampler, jax.random.key(t), weights, state, 0.01, 1.0)
        assert types(updates) == types(WEIGHTS)
    assert types((weights, state)) == before
    assert int(state.count) == 4
    assert compilations["step_once"] <= 1
    assert everywhere(lambda new, old: np.isfinite(np.float32(new)) & (new != old), weights, WEIGHTS)


def test_the_key_alone_decides_the_noise(sampler: Sampler, trees_equal: Any) -> None:
    once, again, other = walk(sampler, 0), walk(sampler, 0), walk(sampler, 1)
    assert trees_equal(once, again)
    assert everywhere(lambda a, b: a.size == 0 or np.mean(a != b) > 0.5, once, other)  # In half, a few may meet.


def test_at_temperature_zero_there_is_no_noise(sampler: Sampler, trees_equal: Any) -> None:
    if not sampler.cools:
        with pytest.raises(InvalidInput, match=r"temperature must be a positive number, not 0\.0"):
            sampler.make(0.01, 0.0)
        return
    once, other = walk(sampler, 0, temperature=0.0), walk(sampler, 1, temperature=0.0)
    assert trees_equal(once, other)
    assert everywhere(lambda new, old: new < old, once, WEIGHTS), "downhill"


@functools.partial(jax.jit, static_argnums=(0, 1))
def few_steps(sampler: Sampler, numbers: tuple[Any, Any], key: jax.Array, weights: Any) -> Any:
    transformation = sampler.make(*numbers)

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        weights, state = carry
        updates, state = transformation.update(weights, state, weights, key=key, **sampler.extras(weights))
        return (optax.apply_updates(weights, updates), state), None

    return jax.lax.scan(step, (weights, transformation.init(weights)), jax.random.split(key, 2))[0][0]


def test_chains_side_by_side_are_chains_a_schedule_may_be_constant_and_no_key_serves_twice(sampler: Sampler) -> None:
    keys, weights = jax.random.split(jax.random.key(0), 3), jnp.arange(1.0, 10.0).reshape(3, 3)
    schedules = optax.constant_schedule(0.01), lambda count: 1.0
    together = jax.vmap(lambda key, row: few_steps(sampler, schedules, key, row))(keys, weights)
    with jax.debug_key_reuse(True):
        alone = [few_steps(sampler, (0.01, 1.0), key, row) for key, row in zip(keys, weights, strict=True)]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-5)


def test_a_tree_without_weights_is_no_trouble(sampler: Sampler) -> None:
    assert few_steps(sampler, (0.01, 1.0), jax.random.key(0), {}) == {}


def test_groups_get_noise_of_their_own_and_a_mask_leaves_the_rest_alone(sampler: Sampler) -> None:
    weights = {"a": jnp.ones(400), "b": jnp.ones(400), "fixed": jnp.ones(2)}
    groups = optax.chain(
        optax.clip_by_global_norm(1e6),
        optax.multi_transform(
            {"a": sampler.make(0.01), "b": sampler.make(0.01), "fixed": optax.set_to_zero()},
            {name: name for name in weights},
            mask_compatible_extra_args=True,
        ),
    )

    @jax.jit
    def updates_of(key: jax.Array) -> Any:
        return groups.update(weights, groups.init(weights), weights, key=key, **sampler.extras(weights))[0]

    updates = updates_of(jax.random.key(0))
    np.testing.assert_array_equal(updates["fixed"], 0.0)
    assert abs(np.corrcoef(updates["a"], updates["b"])[0, 1]) < 4 / np.sqrt(400)
    assert np.std(updates["a"]) > 0


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "1", True, None], ids=repr)
def test_a_step_size_that_is_no_positive_number_is_refused(sampler: Sampler, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"step_size must be a positive number.*, not {value!r}"):
        sampler.make(value)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "1", True, None], ids=repr)
def test_a_temperature_below_zero_is_refused(sampler: Sampler, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"temperature must be (zero or )?a positive number, not {value!r}"):
        sampler.make(0.1, value)


def test_schedules_that_begin_below_zero_are_refused(sampler: Sampler) -> None:
    with pytest.raises(InvalidInput, match=r"step_size at the first step must be a positive number, not -1\.0"):
        sampler.make(lambda count: -1.0)
    with pytest.raises(InvalidInput, match=r"temperature at the first step must be (zero or )?a positive"):
        sampler.make(0.1, lambda count: -1.0)


# A posterior that is not Gaussian, through the whole walk


@pytest.fixture(scope="module")
def regression(linear: db.Network) -> tuple[db.Posterior, db.Data]:
    """A hundred examples of a logistic regression on two inputs and an intercept, with the first class's logit at 0."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(NUM_DATA, 2)), np.ones((NUM_DATA, 1))], axis=1)
    y = rng.random(NUM_DATA) < 1 / (1 + np.exp(-x @ [1.0, -2.0, 0.5]))

    def apply(weights: jax.Array, x: jax.Array) -> jax.Array:
        logits = linear.apply(weights, x)
        return jnp.concatenate([jnp.zeros_like(logits), logits], axis=1)

    network = db.Network(linear.init, apply)
    posterior = db.Posterior(network, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=NUM_DATA)
    return posterior, db.data.as_data(x, y.astype(np.int32))


@pytest.fixture(scope="module")
def truth(regression: tuple[db.Posterior, db.Data]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each weight, by quadrature: three weights are few enough."""
    x, y = (np.asarray(part, np.float64) for part in regression[1])
    lines = [np.linspace(centre - 2.5, centre + 2.5, 41) for centre in (1.0, -2.0, 0.5)]
    weights = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 3)
    logits = weights @ x.T
    log_density = (y * logits - np.logaddexp(0.0, logits)).sum(axis=1) - 0.5 * (weights**2).sum(axis=1)
    shares = np.exp(log_density - log_density.max())
    shares /= shares.sum()
    mean = shares @ weights
    assert shares.reshape(41, 41, 41)[[0, -1]].sum() < 1e-4, "the posterior lies inside"
    return mean, np.sqrt(shares @ (weights - mean) ** 2)


def chain_of(name: str, regression: tuple[db.Posterior, db.Data]) -> db.types.Chain:
    posterior, data = regression
    sampler = SAMPLERS[name]
    transformation = sampler.make(sampler.step_size)
    return db.minibatch_chain(posterior, transformation, *data, batch_size=25, burn_in=400, thin=15, **sampler.chain)


@eqx.filter_jit
def draws_of(chain: db.types.Chain, key: jax.Array) -> jax.Array:
    """The weights of 200 chains at each of 20 draws, as `sample` would have them, but compiled in one piece."""

    def one(chains: Chains, step: jax.Array) -> tuple[Chains, jax.Array]:
        chains = step_chains(chain, chains)
        return chains, chains.draws.network

    steps = jnp.arange(chain.burn_in + 20 * chain.thin)
    weights = jax.lax.scan(one, start_chains(chain, key, 200), steps)[1]
    return weights[chain.burn_in + chain.thin - 1 :: chain.thin]


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_finds_a_logistic_regression_as_quadrature_has_it(name: str, regression: Any, truth: Any) -> None:
    """Batches of 25, 200 chains, 20 draws of each: means within a tenth of a deviation, deviations within a tenth."""
    weights = np.asarray(draws_of(chain_of(name, regression), jax.random.key(1)), np.float64).reshape(-1, 3)
    mean, deviation = truth
    assert np.abs((weights.mean(axis=0) - mean) / deviation).max() < 0.1
    assert np.abs(weights.std(axis=0) / deviation - 1).max() < 0.1


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_fits_the_loop_that_distils(name: str, regression: Any) -> None:
    """Traced and not run: a loop takes what keeps its types from round to round."""
    chain = chain_of(name, regression)
    student = db.Student(chain.posterior.network, db.outcomes.SoftmaxHead(2), optax.sgd(0.5))
    parts = db.distillation(chain, student, db.queries.training_inputs(), db.Settings(num_chains=3, reservoir=2))
    state = eqx.filter_eval_shape(parts.init, jax.random.key(0))
    after, losses = eqx.filter_eval_shape(parts.advance, state, jnp.int32(2))
    assert types(after) == types(state)
    assert losses.shape == (1,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: db.samplers.psgld(0.1, num_data=0), "num_data must be a whole number of at least 1, not 0"),
        (lambda: db.samplers.psgld(0.1, num_data=9, decay=1.0), r"decay must lie between 0 and 1, not 1\.0"),
        (lambda: db.samplers.psgld(0.1, num_data=9, damping=0.0), r"damping must be a positive number, not 0\.0"),
        (
            lambda: db.samplers.psgld(0.1, num_data=9, adapt_steps=0),
            r"adapt_steps .* must be a whole number of at least 1, not 0",
        ),
        (lambda: db.samplers.sghmc(0.1, friction=0.0), r"friction must lie in \(0, 1\], not 0\.0"),
        (lambda: db.samplers.sghmc(0.1, friction=1.5), r"friction must lie in \(0, 1\], not 1\.5"),
        (lambda: db.samplers.sghmc(0.1, friction="1"), r"friction must lie in \(0, 1\], not '1'"),
        (
            lambda: db.samplers.sghmc(0.1, noise_estimate=-1.0),
            r"noise_estimate must be zero or a positive number, not -1\.0",
        ),
        (
            lambda: db.samplers.sghmc(0.1, 0.1, 0.1),
            r"noise_estimate=0\.1 must lie below friction=0\.1: use more friction, or",
        ),
        (lambda: db.samplers.scale_adapted_sghmc(0.1, 2.0, adapt_steps=5), r"friction must lie in \(0, 1\], not 2\.0"),
        (lambda: db.samplers.scale_adapted_sghmc(0.1, adapt_steps=1.5), "adapt_steps .* must be a whole number"),
        (lambda: db.samplers.sgnht(0.1, friction=-0.1), r"friction must lie in \(0, 1\], not -0\.1"),
        (lambda: db.samplers.baoa(0.1, friction=float("nan")), r"friction must lie in \(0, 1\], not nan"),
        (lambda: db.schedules.cyclical(0.0, 10), r"peak must be a positive number, not 0\.0"),
        (lambda: db.schedules.cyclical(0.1, 0), "cycle must be a whole number of at least 1, not 0"),
        (lambda: db.schedules.cyclical(0.1, 10, explore=1.0), r"explore must lie between 0 and 1, not 1\.0"),
        (lambda: db.schedules.cyclical(0.1, 10, temperature=-1.0), r"temperature must be a positive number, not -1\.0"),
    ],
)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


def test_thin_as_long_as_a_cycle_keeps_the_draw_at_the_end_of_each(regression: Any) -> None:
    """Of a sampler that writes the step size down in place of the weights."""

    def init(params: Any) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    def update(grads: Any, state: jax.Array, params: Any = None, **extra: Any) -> Any:
        step = db.schedules.cyclical(0.3, cycle=5).step_size(state)
        return jax.tree.map(lambda w: jnp.full_like(w, step) - w, params), state + 1

    posterior, data = regression
    recorder = optax.GradientTransformationExtraArgs(init, update)
    chain = db.minibatch_chain(posterior, recorder, *data, batch_size=5, burn_in=10, thin=5)
    draws = db.sample(chain, jax.random.key(0), num_chains=1, num_draws=3)
    np.testing.assert_allclose(draws.network, 0.15 * (np.cos(np.pi * 4 / 5) + 1), rtol=1e-5)
