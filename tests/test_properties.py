"""Properties that hold for any shape, dtype, batch size and structure of the weights (hypothesis)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import darkbayes as db
from darkbayes.data.arrays import minibatch
from darkbayes.runs import named_leaves
from darkbayes.teacher.keeping import average_add, average_init, reservoir_add, reservoir_init, reservoir_pick
from darkbayes.teacher.noise import normal_like

pytestmark = pytest.mark.usefixtures("strict_dtypes")

few = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

# Few distinct shapes and sizes: every new one compiles anew.
shapes = st.sampled_from([(), (1,), (3,), (2, 3), (0,), (2, 0), (1, 2, 2)])
arrays = st.builds(
    lambda shape, dtype: jnp.ones(shape, dtype), shapes, st.sampled_from([jnp.float32, jnp.float16, jnp.bfloat16])
)
trees = st.recursive(
    arrays | st.sampled_from([(), {}, None]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from(["w", "b", "a.b", "0"]), inner, max_size=3),
        st.builds(db.model.Draw, inner, inner),
    ),
    max_leaves=6,
)


def shapes_and_dtypes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype.name), tree)


@few
@given(tree=trees)
def test_noise_has_the_shape_and_dtypes_of_its_tree(tree: Any) -> None:
    noise = jax.jit(normal_like)(jax.random.key(0), tree)
    assert jax.tree.structure(noise) == jax.tree.structure(tree)
    assert shapes_and_dtypes(noise) == shapes_and_dtypes(tree)
    values = [float(value) for leaf in jax.tree.leaves(noise) for value in np.ravel(leaf)]
    assert len(set(values)) >= 0.9 * len(values)  # Half precision may round two of them to the same number.


@few
@given(tree=trees, step_size=st.sampled_from([1e-3, 0.5]))
def test_an_sgld_update_keeps_structure_shapes_and_dtypes(tree: Any, step_size: float) -> None:
    transformation = db.sgld(step_size)

    @jax.jit
    def update(tree: Any, key: jax.Array) -> Any:
        updates, state = transformation.update(tree, transformation.init(tree), tree, key=key)
        return optax.apply_updates(tree, updates), state

    updated, state = update(tree, jax.random.key(0))
    assert shapes_and_dtypes(updated) == shapes_and_dtypes(tree)
    assert int(state.count) == 1
    assert all(np.isfinite(np.asarray(leaf, np.float32)).all() for leaf in jax.tree.leaves(updated))


@few
@given(tree=trees.filter(jax.tree.leaves), size=st.sampled_from([1, 3]), offered=st.integers(0, 5))
def test_a_reservoir_keeps_structure_shapes_and_dtypes(tree: Any, size: int, offered: int) -> None:
    @jax.jit
    def fill_and_pick(tree: Any, keys: jax.Array) -> Any:
        reservoir = reservoir_init(size, tree)
        for number in range(offered):
            reservoir = reservoir_add(keys[number], reservoir, jax.tree.map(jnp.zeros_like, tree))
        return reservoir.count, reservoir_pick(keys[-1], reservoir, 2, tree)

    count, picked = fill_and_pick(tree, jax.random.split(jax.random.key(0), 6))
    assert int(count) == offered
    assert shapes_and_dtypes(picked) == jax.tree.map(lambda leaf: ((2, *leaf.shape), leaf.dtype.name), tree)
    assert all((np.asarray(leaf) == (0 if offered else 1)).all() for leaf in jax.tree.leaves(picked))


@few
@given(tree=trees.filter(jax.tree.leaves))
def test_a_prior_is_the_sum_over_all_weights_of_any_tree(tree: Any) -> None:
    count = sum(leaf.size for leaf in jax.tree.leaves(tree))
    with jax.numpy_dtype_promotion("standard"):  # A tree of mixed dtypes is promoted to the widest.
        score = np.float64(jax.jit(db.priors.GaussianPrior(1.0).log_prob)(tree))
    np.testing.assert_allclose(score, count * -0.5 * (np.log(2 * np.pi) + 1), rtol=2e-2)


def test_a_network_without_weights_has_a_prior() -> None:
    assert float(db.priors.GaussianPrior(1.0).log_prob(())) == 0.0


@few
@given(tree=trees)
def test_every_leaf_has_a_name(tree: Any) -> None:
    named = named_leaves(tree)
    assert len(named) == len(jax.tree.leaves(tree))
    assert all(isinstance(leaf, np.ndarray) for leaf in named.values())


@pytest.mark.parametrize(
    "tree",
    [
        {"a": {"b": jnp.zeros(1)}, "a.b": jnp.ones(1)},
        {"a": {".b": jnp.zeros(1)}, "a.": {"b": jnp.ones(1)}},
        {"a": {"": {"b": jnp.zeros(1)}}, "a.b": jnp.ones(1)},
    ],
    ids=["dots", "dots at the edge", "an empty key"],
)
def test_leaves_whose_paths_read_alike_are_both_kept(tree: Any) -> None:
    assert len(named_leaves(tree)) == 2


@few
@given(
    rows=st.sampled_from([1, 2, 7]),
    trailing=st.sampled_from([(1,), (3,), (1, 2, 2)]),
    size=st.sampled_from([None, 1, 4]),
    dtype=st.sampled_from([np.float64, np.float16, np.int64, bool]),
)
def test_minibatches_have_the_shape_of_the_data(rows: int, trailing: tuple, size: int | None, dtype: type) -> None:
    data = db.data.as_data(np.zeros((rows, *trailing), dtype), np.zeros((rows, 2)))
    batch = minibatch(jax.random.key(0), data, size)
    expected = rows if size is None else size
    assert batch.x.shape == (expected, *trailing)
    assert batch.y.shape == (expected, 2)
    assert batch.x.dtype == jnp.float32


@few
@given(
    draws=st.sampled_from([1, 2, 5]),
    batch=st.sampled_from([1, 3]),
    outputs=st.sampled_from([1, 2]),
    family=st.sampled_from(["softmax", "gaussian", "mixture"]),
    decompose=st.booleans(),
)
def test_losses_and_predictions_are_one_per_query(
    draws: int, batch: int, outputs: int, family: str, decompose: bool
) -> None:
    if family == "softmax":
        student = db.outcomes.SoftmaxHead(outputs + 1, decompose)
        targets: Any = db.outcomes.Categorical(jnp.full((draws, batch, outputs + 1), -np.log(outputs + 1), jnp.float32))
    else:
        student = (
            db.outcomes.GaussianHead(outputs, decompose)
            if family == "gaussian"
            else db.outcomes.MixtureHead(2, outputs)
        )
        targets = db.outcomes.Normal(jnp.zeros((draws, batch, outputs)), jnp.ones((draws, batch, outputs)))

    def all_of_it(raw: jax.Array, targets: Any) -> tuple[Any, Any, Any]:
        average = average_add(average_init(targets), targets)
        return student.loss(raw, targets), student.divergence(average, raw), student.predict(raw)[1]

    loss, divergence, aleatoric = jax.eval_shape(all_of_it, jnp.ones((batch, student.width)), targets)
    assert loss.shape == divergence.shape == (batch,)
    assert loss.dtype == jnp.float32
    assert (aleatoric is None) == (not getattr(student, "decompose", False))


@few
@given(
    values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8),
    cut=st.integers(0, 8),
)
def test_an_average_does_not_depend_on_how_draws_come_in(values: list[float], cut: int) -> None:
    mean = jnp.array(values, jnp.float32)[:, None, None]
    predictions = db.outcomes.Normal(mean, jnp.ones_like(mean))
    average = average_init(predictions)
    for part in (slice(0, cut), slice(cut, None)):
        piece = jax.tree.map(lambda leaf, part=part: leaf[part], predictions)
        if len(piece.mean):
            average = average_add(average, piece)
    exact = np.asarray(mean, np.float64)
    np.testing.assert_allclose(average.mean["mean"], exact.mean(axis=0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(average.variance["mean"], exact.var(axis=0), rtol=1e-3, atol=1e-2)


def odd_network(structure: str) -> db.Network:
    """A network whose weights are of odd structure: nested, with empty parts and scalars."""

    def init(key: jax.Array, x: jax.Array) -> Any:
        weight, scale = jnp.zeros((x.shape[-1], 2)), jnp.float32(1.0)
        if structure == "nested":
            return {"a": {"b": {"w": weight}, "nothing": ()}, "scale": (scale, None)}
        return [weight, (scale, jnp.zeros((0, 3)))]

    def apply(params: Any, x: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(params)
        weight = next(leaf for leaf in leaves if leaf.ndim == 2 and leaf.size)
        scale = next(leaf for leaf in leaves if leaf.ndim == 0)
        return scale * (x @ weight)

    return db.Network(init, apply)


@pytest.mark.parametrize("structure", ["nested", "with an array of size zero"])
def test_weights_of_odd_structure_run_through_the_whole_loop(structure: str, classes: db.Data) -> None:
    network = odd_network(structure)
    posterior = db.Posterior(network, db.outcomes.Softmax(2), db.priors.GaussianPrior(), num_data=20)
    chain = db.minibatch_chain(posterior, db.sgld(1e-2), *classes, batch_size=4)
    done = db.distil(
        chain,
        db.Student(network, db.outcomes.SoftmaxHead(2), optax.sgd(0.1)),
        db.queries.jitter(0.1),
        jax.random.key(0),
        steps=3,
        settings=db.Settings(num_chains=2, query_batch=4, reservoir=2),
        quiet=True,
    )
    params = network.init(jax.random.key(0), classes.x)
    assert shapes_and_dtypes(done.params) == shapes_and_dtypes(params)
    assert int(done.average.count) == 6
