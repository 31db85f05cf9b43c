"""A student that begins with hidden layers of draws: what its units then say, and when it takes them over."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.student.beginning import holding
from darkbayes.student.loop import Distillation
from darkbayes.teacher.stacking import at

pytestmark = pytest.mark.usefixtures("strict")
SMALL = db.mlp([4], 2, jax.nn.silu)
WIDE = db.mlp([13, 17, 6], 2, jax.nn.silu)
X = jnp.asarray(np.random.default_rng(0).normal(size=(20, 3)), jnp.float32)


def drawn(hidden: list[int], number: int) -> Any:
    """Weights of so many small networks, along the first axis."""
    network = db.mlp(hidden, 2, jax.nn.silu)
    return jax.vmap(lambda key: network.init(key, X))(jax.random.split(jax.random.key(0), number))


def units(params: Any, layers: int) -> list[np.ndarray]:
    """What the units of each hidden layer say of `X`."""
    said, outputs = X, []
    for layer in params[:layers]:
        said = jax.nn.silu(said @ layer.weight.T + layer.bias[None])
        outputs.append(np.asarray(said))
    return outputs


def test_each_of_the_networks_says_within_the_wide_one_what_it_says_alone() -> None:
    draws = drawn([4, 5], 3)
    params = holding(WIDE, WIDE.init(jax.random.key(1), X), draws, X)
    within = units(params, 2)
    for number in range(3):
        alone = units(at(number, draws), 2)
        np.testing.assert_allclose(within[0][:, 4 * number : 4 * number + 4], alone[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(within[1][:, 5 * number : 5 * number + 5], alone[1], rtol=1e-5, atol=1e-6)


def test_what_is_left_over_stays_as_it_was() -> None:
    before = WIDE.init(jax.random.key(1), X)
    after = holding(WIDE, before, drawn([4, 5], 9), X)  # Room for three.
    np.testing.assert_array_equal(after[0].weight[12:], before[0].weight[12:])
    np.testing.assert_array_equal(after[1].bias[15:], before[1].bias[15:])
    assert after[3] is before[3]


@pytest.mark.parametrize("hidden", [[14], [4, 4, 4, 4], []])
def test_networks_that_are_wider_or_deeper_than_the_student_are_left_out(hidden: list[int]) -> None:
    before = WIDE.init(jax.random.key(1), X)
    assert holding(WIDE, before, drawn(hidden, 2), X) is before


def test_what_comes_behind_large_numbers_begins_as_if_they_were_about_one() -> None:
    draws, before = drawn([4, 5], 3), WIDE.init(jax.random.key(1), X)
    large = (*draws[:1], eqx.tree_at(lambda layer: layer.weight, draws[1], 1e6 * draws[1].weight), *draws[2:])
    after = holding(WIDE, before, large, X)
    said = units(after, 2)[1]
    size = float(np.sqrt(np.mean(said**2)))
    assert size > 1e4
    np.testing.assert_allclose(after[2].weight * size, before[2].weight, rtol=1e-5)
    assert float(jnp.abs(WIDE.apply(after, X)).max()) < 10


def test_a_network_that_does_not_tell_its_layers_is_refused_before_anything_runs() -> None:
    with pytest.raises(db.InvalidInput, match="does not say what layers it is made of"):
        distillation(0.0, db.Network(SMALL.init, SMALL.apply))


def distillation(rate: float, network: db.Network = SMALL) -> Distillation:
    posterior = db.Posterior(network, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=len(X))
    y = jnp.arange(len(X)) % 2
    chain = db.minibatch_chain(posterior, db.sgld(1e-2), X, y, batch_size=5, burn_in=6, thin=2)
    student = db.Student(db.mlp([8, 8], 2, jax.nn.silu), db.outcomes.SoftmaxHead(2), optax.sgd(rate), holds_draws=True)
    return db.student.distillation(chain, student, db.queries.jitter(0.1), db.Settings(num_chains=2))


def test_it_takes_over_the_draws_at_the_end_of_the_burn_in() -> None:
    parts = distillation(0.0)
    state = parts.init(jax.random.key(0))
    first = jax.tree.map(lambda leaf: np.asarray(leaf[0]), state.students)
    state = parts.burn(state, jnp.int32(6))
    draws = jax.tree.map(np.asarray, state.teacher.draws.network)
    state, _ = parts.advance(state, jnp.int32(3))
    wanted = holding(parts.student.network, *jax.tree.map(jnp.asarray, (first, draws)), X)
    jax.tree.map(lambda leaf, own: np.testing.assert_array_equal(leaf[0], own), state.students[0], wanted[0])


def test_it_takes_them_over_once_however_the_steps_are_cut() -> None:
    parts, ends = distillation(0.5), []
    for rounds in ([4], [1, 3], [2, 1, 1]):
        state = parts.burn(parts.init(jax.random.key(0)), jnp.int32(6))
        for number in rounds:
            state, _ = parts.advance(state, jnp.int32(number))
        ends.append(jax.tree.map(np.asarray, state.students))
    for end in ends[1:]:
        jax.tree.map(np.testing.assert_array_equal, end, ends[0])
