"""Chains at once or in turn: the same chains, the same bits for the same choice, and a choice that a run keeps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.data import augmentation
from darkbayes.files import read_json
from darkbayes.model import computed_in, layers
from darkbayes.teacher import chain as chains

BYTES = np.random.default_rng(0).integers(0, 256, (12, 1, 4, 4), np.uint8)
LABELS = np.arange(12) % 2
CONVOLUTION = layers.Conv2d(2, 2, dilation=2)  # Which is no product of matrices on a CPU.
NETWORK = db.sequential([layers.Standardise(127.5, 73.0), CONVOLUTION, layers.Flatten(), layers.Linear(2)])


def teacher(in_turn: bool | None = None, network: db.Network = NETWORK, x: Any = BYTES, **settings: Any) -> Any:
    prior = db.priors.GaussianPrior(1.0)
    posterior = db.Posterior(network, db.outcomes.Softmax(2), prior, num_data=len(x), in_turn=in_turn)
    given: Any = {"batch_size": 4, "thin": 2} | settings
    return db.minibatch_chain(posterior, db.sgld(1e-3), x, LABELS, **given)


@eqx.filter_jit
def gradient(chain: Any) -> Any:
    return chain.estimate(jax.random.key(1), jax.random.key(2), chain.init(jax.random.key(0))).grads


def sampled(chain: Any) -> Any:
    return db.sample(chain, jax.random.key(1), num_chains=3, num_draws=2)


def test_chains_in_turn_are_the_chains_at_once(trees_equal: Any) -> None:
    in_turn = sampled(teacher(True))
    close(in_turn, sampled(teacher(False)), 1e-4)
    assert trees_equal(in_turn, sampled(teacher(True)))


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_step_and_a_prediction_loop_over_chains_that_take_turns(in_turn: bool) -> None:
    chain = teacher(in_turn)
    student = db.Student(db.mlp([2], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    parts = db.distillation(chain, student, db.queries.training_inputs(), db.Settings(num_chains=2), monitor=BYTES[:2])
    states = eqx.filter_eval_shape(parts.init, jax.random.key(0)).teacher
    step = eqx.filter_make_jaxpr(lambda states: chains.step_chains(chain, states))(states)[0]
    said = eqx.filter_make_jaxpr(lambda draws: parts._predictions(draws, parts.monitor))(states.draws)[0]
    assert [" scan[" in str(one) for one in (step, said)] == [in_turn, in_turn]


def close(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


def test_images_of_bytes_stay_bytes_and_are_seen_as_floats() -> None:
    of_bytes, of_floats = teacher(), teacher(x=BYTES.astype(np.float32))
    assert (of_bytes.inputs.dtype, of_floats.inputs.dtype) == (jnp.uint8, jnp.float32)
    close(gradient(of_bytes), gradient(of_floats))


def test_a_network_in_bfloat16_moves_weights_that_stay_in_float32() -> None:
    rounded = teacher(network=computed_in(NETWORK, "bfloat16"))
    exact, near = (jax.tree.leaves(gradient(chain)) for chain in (teacher(), rounded))
    assert {leaf.dtype for leaf in near} == {jnp.dtype("float32")}
    off = [np.abs(a - b).max() / np.abs(a).max() for a, b in zip(exact, near, strict=True)]
    assert 1e-4 < max(off) < 0.03
    assert computed_in(NETWORK, "float32") is NETWORK
    with pytest.raises(db.InvalidInput, match="not 'float16'"):
        computed_in(NETWORK, "float16")


def test_a_teacher_may_learn_from_changed_images_and_not_with_anchors() -> None:
    mirrored = teacher(x=BYTES[..., ::-1], batch_size=None)
    close(gradient(teacher(batch_size=None, augment=lambda key, x: x[..., ::-1])), gradient(mirrored))
    with pytest.raises(db.InvalidInput, match="augment does not go with"):
        teacher(augment=augmentation.flip(), gradients=db.teacher.gradients.svrg(3))


def test_only_a_network_that_convolves_is_measured_and_a_choice_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {False: 2.0, True: 1.0}
    monkeypatch.setattr(chains, "seconds_per_step", lambda chain, number: seconds[chain.posterior.in_turn])

    def pace(chain: Any, number: int = 2) -> Any:
        return chains.paced(chain, number).posterior.in_turn

    assert pace(teacher()) is True
    parts = lambda key: [eqx.nn.Conv2d(1, 2, 4, key=key), eqx.nn.Lambda(jnp.ravel)]  # noqa: E731
    assert pace(teacher(network=db.model.from_equinox(lambda key: eqx.nn.Sequential(parts(key))))) is True
    assert [pace(teacher(False)), pace(teacher(), 1), pace(teacher(network=db.mlp([3], 2)))] == [False, None, None]
    seconds[False] = 0.5
    assert pace(teacher()) is False
    with pytest.raises(db.InvalidInput, match="in_turn must be True, False, or None"):
        teacher("yes")  # pyright: ignore[reportArgumentType]


def test_a_step_takes_time_at_either_pace() -> None:
    assert chains.seconds_per_step(teacher(True), 3) > 0


def test_a_resumed_run_keeps_the_pace_that_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, trees_equal: Any
) -> None:
    monkeypatch.setattr(chains, "seconds_per_step", lambda chain, number: 1.0 - chain.posterior.in_turn)
    student = db.Student(db.mlp([2], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    queries = db.queries.augmented(augmentation.crop(1))
    parts = db.distillation(teacher(), student, queries, db.Settings(num_chains=2, query_batch=4), monitor=BYTES[:2])
    db.Run(tmp_path, {}, quiet=True).distil("student", parts, jax.random.key(0), 2)
    assert read_json(tmp_path / "student" / "chains.json") == {"in_turn": True}
    monkeypatch.setattr(chains, "seconds_per_step", None)
    state = db.Run(tmp_path, {}, resume=True, quiet=True).distil("student", parts, jax.random.key(0), 4)
    whole = {"settings": parts.settings, "monitor": BYTES[:2], "quiet": True}
    assert trees_equal(state, db.distil(teacher(True), student, queries, jax.random.key(0), steps=4, **whole).state)


def test_the_temperature_of_images_takes_their_gradient_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from darkbayes.teacher.diagnostics import temperature

    chain = teacher()
    draws = jax.tree.map(lambda leaf: leaf[None], chain.init(jax.random.key(0)).params)
    draw = jax.tree.map(lambda leaf: leaf[0], draws)
    slope = jax.grad(lambda draw: -chain.posterior.log_density(draw, chain.data))(draw)
    expected = sum(float((a * b).sum()) for a, b in zip(*map(jax.tree.leaves, (draw, slope)), strict=True))
    monkeypatch.setattr(temperature, "IMAGES", 5)
    warmth = temperature.configurational_temperature(chain.posterior, draws, chain.data)
    assert warmth[0] == pytest.approx(expected / sum(leaf.size for leaf in jax.tree.leaves(draw)), rel=1e-4)
