"""Shift, active learning and bandits, tiny, through the command line; and their parts against known answers."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

import darkbayes as db
from darkbayes import cli
from darkbayes.data import Images
from darkbayes.metrics import auroc, average_precision, risk_coverage
from darkbayes.outcomes import ClassPrediction
from darkbayes.paper import active, agents, bandits, learners, mnist, shift
from darkbayes.student import Settings
from darkbayes.teacher.stacking import at

CASES = ("shift", "active", "bandits")
SIDE = 6


def fake_images(name: str, **_: Any) -> Images:
    """Noise in the place of digits and of clothes."""
    rng = np.random.default_rng(len(name))
    x = rng.integers(0, 256, size=(100, SIDE, SIDE), dtype=np.uint8)
    y = np.arange(100) % 10
    return Images(x[:70], y[:70], x[70:], y[70:])


@pytest.fixture(scope="module", autouse=True)
def tiny_presets():
    """The presets at a size for tests, and images that need no network."""
    chains: Any = {"trials": 2, "steps": 40, "burn_in": 20, "thin": 10, "hidden": (4,), "train": 40, "batch_size": 5}
    few: Any = {"batch_size": 5, "dropout_steps": 3, "ensemble_steps": 3, "ensemble_size": 4}
    shifted = dataclasses.replace(
        shift.PRESETS["quick"],
        **chains,
        settings=Settings(num_chains=2, query_batch=4, update_every=2, reservoir=2, reservoir_picks=0),
        sgd_steps=3,
        comparators=mnist.MnistComparators(**few, bbb_steps=3),
        angles=(90,),
        strengths=(0.1,),
        attacked=30,
        pgd_steps=2,
    )
    small: Any = {
        "channels": (2,),
        "hidden": 4,
        "pool": 70,
        "candidates": 30,
        "most": 30,
        "chains": 2,
        "draws": 2,
        "copies": 2,
        "weight": 3.0,
    }
    steps: Any = {"begin": 4, "settle": 2, "updates": 4, "query_batch": 3, "batch_size": 4, "dropout_steps": 3}
    asking = dataclasses.replace(active.PRESETS["quick"], trials=2, dropout_draws=4, **small, **steps)
    short: Any = {"contexts": 40, "block": 10, "first": 2, "hidden": (4,), "batch_size": 4, "begin": 2, "settle": 2}
    acting = dataclasses.replace(
        bandits.PRESETS["quick"], trials=2, datasets=("wheel",), updates=4, query_batch=3, chains=2, draws=2, **short
    )
    with pytest.MonkeyPatch.context() as patch:
        for module, settings in ((shift, shifted), (active, asking), (bandits, acting)):
            patch.setitem(module.PRESETS, "quick", settings)
        for module in (shift, active):
            patch.setattr(module, "load", fake_images)
        patch.setattr(mnist, "load", fake_images)
        patch.setattr(mnist, "MC_DRAWS", 4)
        # Each method compiles its own attacks; those of all others are of several draws too, or of one network.
        patch.setattr(shift, "METHODS", ("sgld",))
        jax.clear_caches()  # Constants are part of what is compiled.
        yield
    jax.clear_caches()


def reproduce(case: str, out: Path, *more: str) -> dict[str, Any]:
    cli.main(["reproduce", case, "--preset", "quick", "--out", str(out), "--quiet", *more])
    return json.loads((out / "results.json").read_text())


@pytest.fixture(scope="module")
def finished(made_once) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Each experiment, run once through the command line."""
    folders = {case: made_once(f"at-work-{case}", lambda out, case=case: reproduce(case, out)) for case in CASES}
    return {case: (out, json.loads((out / "results.json").read_text())) for case, out in folders.items()}


@pytest.mark.parametrize("case", CASES)
def test_an_experiment_leaves_a_page_and_is_not_computed_again(finished, case, monkeypatch):
    out, results = finished[case]
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 1

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    for name in ("Distilling", "Dropping"):
        monkeypatch.setattr(active, name, fail)
    monkeypatch.setattr(shift.ShiftExperiment, "models", fail)
    monkeypatch.setattr(bandits, "History", fail)
    again = reproduce(case, out, "--resume", "--no-report")
    assert again["rows"] == results["rows"]


# Shift


def shift_rows(results: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    rows: dict[tuple[str, str], set[str]] = {}
    for one in results["rows"]:
        rows.setdefault((one["metric"], one["dataset"]), set()).add(one["method"])
        assert one["trials"] == 2
        assert np.isfinite(one["values"]).all()
    return rows


def test_every_method_meets_every_shift(finished):
    rows = shift_rows(finished["shift"][1])
    everyone = set(shift.METHODS)
    for dataset in ("fashion", "noise"):
        assert rows["auroc_total", dataset] == everyone
        assert rows["auroc_epistemic", dataset] == everyone - {"sgd"}
    for dataset in ("mnist", "rotated 90", "fgsm 0.1", "pgd 0.1"):
        for metric in ("error", "log_likelihood", "aurc"):
            assert rows[metric, dataset] == everyone


def test_areas_under_curves_are_those_of_scikit_learn_and_of_counting():
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(0, 20, 300) / 10, rng.integers(5, 25, 200) / 10  # With ties.
    truth = np.repeat([0, 1], [300, 200])
    both = np.concatenate([inside, outside])
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(truth, both))
    assert average_precision(inside, outside) == pytest.approx(average_precision_score(truth, both))
    loss, doubt = rng.random(50), rng.random(50)
    order = np.argsort(doubt)
    expected = [loss[order[:k]].mean() for k in range(1, 51)]
    np.testing.assert_allclose(risk_coverage(doubt, loss), expected)
    np.testing.assert_allclose(risk_coverage(np.zeros(50), loss), loss.mean(), err_msg="nothing tells ties apart")
    with pytest.raises(db.InvalidInput, match="0 outside"):
        auroc([1.0], [])


class Logistic:
    """Two classes by the sum of the pixels: the gradient is known."""

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        score = jnp.sum(x, axis=(1, 2)) - 2.0
        return jax.nn.log_softmax(jnp.stack([-score, score], axis=1)), jnp.zeros(len(x))


def test_an_attack_goes_where_the_truth_is_less_likely_and_no_further():
    x, y = jnp.full((2, 2, 2), 0.5), jnp.asarray([1, 0])
    model, key = Logistic(), jax.random.key(0)
    reach = 0.1 * shift.WHITE
    moved = shift.fgsm(model, x, y, key, 0.1)
    np.testing.assert_allclose(moved[0], 0.5 - reach, rtol=1e-5)
    np.testing.assert_allclose(moved[1], 0.5 + reach, rtol=1e-5)
    np.testing.assert_allclose(shift.pgd(model, x, y, key, 0.1, 20), moved, rtol=1e-5)
    far = shift.fgsm(model, x, y, key, 0.5)
    assert float(far.min()) == 0.0, "pixels stay in their range"


def test_draws_speak_with_one_voice(finished):
    """The averaged predictive and its expected entropy, by hand; a single network has no epistemic part."""
    posterior = db.Posterior(db.mlp([3], 4), db.outcomes.Softmax(4), db.priors.GaussianPrior(1.0), num_data=5)
    x = jax.random.normal(jax.random.key(0), (6, 2))
    draws = jax.vmap(lambda key: posterior.init(key, x))(jax.random.split(jax.random.key(1), 3))
    prediction = shift.predict(shift.Draws(posterior, draws), x)
    each = np.stack([posterior.distribution(at(k, draws), x).probs for k in range(3)])
    np.testing.assert_allclose(prediction.probs, each.mean(axis=0), rtol=1e-5)
    doubt = stats.entropy(each.mean(axis=0), axis=1) - stats.entropy(each, axis=2).mean(axis=0)
    np.testing.assert_allclose(prediction.epistemic, doubt, atol=1e-6)
    assert shift._single(shift.Draws(posterior, jax.tree.map(lambda leaf: leaf[:1], draws)))


def test_a_digit_turned_by_ninety_degrees_is_turned_pixel_by_pixel():
    x = np.random.default_rng(0).random((3, 7, 7))
    np.testing.assert_allclose(shift.rotated(x, 90), np.rot90(x, 1, axes=(1, 2)), atol=1e-6)


# Active learning


def test_all_methods_count_labels_from_the_same_beginning(finished):
    out, results = finished["active"]
    assert {one["method"] for one in results["rows"]} == set(active.METHODS)
    for one in results["rows"]:
        assert one["metric"] == "labels_to_95"
        assert one["values"] == [30.0, 30.0]
        assert one["never"] == 2
    assert "classes" in db.files.read_arrays(out / "student-bald.safetensors")


def made_prediction(number: int = 40) -> ClassPrediction:
    rng = np.random.default_rng(1)
    draws = rng.dirichlet(np.full(3, 0.3), (5, number))
    return ClassPrediction.from_probs(draws.mean(axis=0), stats.entropy(draws, axis=2).mean(axis=0))


def test_bald_takes_the_images_on_which_hand_made_draws_disagree_most():
    """Draws that contradict each other, draws that agree to be unsure, and draws that agree to be sure."""
    sure, unsure, other = [0.98, 0.01, 0.01], [1 / 3] * 3, [0.01, 0.98, 0.01]
    draws = np.asarray([[sure, unsure, sure], [other, unsure, sure]])
    expected = stats.entropy(draws, axis=2).mean(axis=0)
    prediction = ClassPrediction.from_probs(draws.mean(axis=0), expected)
    rng: Any = np.random.default_rng(0)
    last = np.eye(3)
    assert active.by_bald(rng, prediction, last, 1).tolist() == [0]
    assert active.by_entropy(rng, prediction, last, 1).tolist() == [1]
    information = stats.entropy(draws.mean(axis=0), axis=1) - expected
    np.testing.assert_allclose(prediction.epistemic, information, atol=1e-12)


def test_a_batch_has_no_two_images_that_look_alike_to_the_student():
    prediction, rng = made_prediction(), np.random.default_rng(0)
    last = np.repeat(np.random.default_rng(2).normal(size=(20, 3)), 2, axis=0)
    plain = active.by_bald(rng, prediction, last, 10)
    batch = active.by_bald_batch(rng, prediction, last, 10)
    assert batch[0] == plain[0]
    assert len(set((batch // 2).tolist())) == 10
    assert len(set(active.at_random(rng, prediction, last, 10).tolist())) == 10


def test_labels_begin_balanced_and_are_never_bought_twice():
    preset = active.PRESETS["quick"]
    pool, _ = active.images(preset, quiet=True)
    labels = active.Labels(preset, pool, [np.random.default_rng([0, trial]) for trial in range(2)])
    assert [np.bincount(np.asarray(pool.y)[rows]).tolist() for rows in labels.chosen] == [[2] * 10] * 2
    rows = labels.candidates()
    assert rows.shape == (2, 30)
    assert not any(set(have) & set(new) for have, new in zip(labels.chosen, rows.tolist(), strict=True))
    labels.add([new[:10] for new in rows])
    data, evenly = labels.data(), labels.data(evenly=True)
    assert data.x.shape == evenly.x.shape == (2, 60, SIDE, SIDE)
    assert (labels.number, labels.rows) == (30, 60)
    order = np.concatenate([np.tile(labels.chosen[1][:20], 2), np.tile(labels.chosen[1][20:], 2)])
    np.testing.assert_array_equal(data.y[1], np.asarray(pool.y)[order])
    np.testing.assert_array_equal(data.x[1, :20], pool.x[labels.chosen[1][:20]])
    assert np.abs(np.asarray(data.x[1, 20:40] - data.x[1, :20])).max() > 0.01, "copies are distorted"


def test_nothing_is_compiled_as_labels_grow(further_compilations):
    preset = active.PRESETS["quick"]
    pool, _ = active.images(preset, quiet=True)
    labels = active.Labels(preset, pool, [np.random.default_rng([0, trial]) for trial in range(2)])
    ways = [
        active.Distilling(preset, pool, labels, jax.random.key(0), False),
        active.Dropping(preset, jax.random.key(0)),
    ]
    for way in ways:
        way.learn(labels)
        way.opinion(pool.x)
    labels.add([rows[:10] for rows in labels.candidates()])
    labels.data()
    further_compilations.clear()
    for way in ways:
        way.learn(labels)
        said = way.opinion(pool.x)
    assert not {name for name in further_compilations if name in ("burn", "advance", "train", "passes", "_each_seed")}
    assert said.log_probs.shape == (2, 70, 10)


def test_patches_make_a_strided_convolution():
    maps, kernel = (
        jax.random.normal(jax.random.key(0), (2, 7, 7, 3)),
        jax.random.normal(jax.random.key(1), (5, 5, 3, 4)),
    )
    expected = jax.lax.conv_general_dilated(
        maps, kernel, (2, 2), [(2, 2), (2, 2)], dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(learners.patches(maps) @ kernel.reshape(-1, 4), expected, rtol=1e-4, atol=1e-4)


def test_chains_sample_the_posterior_of_the_labels_that_there_are():
    """The gradient's scale follows the number of labels, not that of the rows that hold them."""
    preset = active.PRESETS["quick"]
    pool, _ = active.images(preset, quiet=True)
    labels = active.Labels(preset, pool, [np.random.default_rng([0, trial]) for trial in range(2)])
    way = active.Distilling(preset, pool, labels, jax.random.key(0), False)
    chain = way.growing.parts.member(1).chain
    assert (int(chain.examples), float(chain.posterior.num_data)) == (40, 60.0)
    np.testing.assert_array_equal(chain.data.y[:20], np.asarray(pool.y)[labels.chosen[1]])
    labels.add([rows[:10] for rows in labels.candidates()])
    way.learn(labels)
    chain = way.growing.parts.member(0).chain
    assert (int(chain.examples), float(chain.posterior.num_data)) == (60, 90.0)
    np.testing.assert_array_equal(chain.data.y[40:50], np.asarray(pool.y)[labels.chosen[0][20:]])


# Bandits


def test_every_agent_plays_and_regret_is_a_share_of_that_of_chance(finished):
    out, results = finished["bandits"]
    assert [(one["method"], one["metric"], one["dataset"]) for one in results["rows"]] == [
        (method, "regret", "wheel") for method in bandits.METHODS
    ]
    for one in results["rows"]:
        curve = db.files.read_arrays(out / f"wheel-{one['method'].replace(' ', '-')}.safetensors")["curve"]
        assert curve.shape == (2, 40)
        assert (np.diff(curve, axis=1) >= 0).all()
        np.testing.assert_allclose(curve[:, -1], one["values"])


def generators(number: int) -> list[np.random.Generator]:
    return [np.random.default_rng([3, seed]) for seed in range(number)]


@pytest.mark.parametrize("name", bandits.DATASETS)
def test_an_oracle_has_no_regret_and_chance_has_a_hundred_on_average(name):
    problem = bandits.PROBLEMS[name](3_000, generators(4))
    oracle, chance = agents.History(problem), agents.History(problem)
    oracle.act(problem.expected.argmax(axis=2))
    chance.act(np.random.default_rng(0).integers(0, problem.arms, problem.expected.shape[:2]))
    assert (oracle.regret == 0).all()
    shares = 100 * chance.regret[:, -1] / problem.uniform
    np.testing.assert_allclose(shares.mean(), 100, atol=8)
    np.testing.assert_allclose(problem.rewards.mean(axis=1), problem.expected.mean(axis=1), atol=1.2)


def test_the_problems_are_those_of_the_literature():
    eaten = bandits.mushroom(4_000, generators(1))
    assert set(np.unique(eaten.rewards[..., 1])) == {-35.0, 5.0}
    assert set(np.unique(eaten.expected)) == {-15.0, 0.0, 5.0}
    assert eaten.contexts.shape[2] == 117
    turned = bandits.wheel(20_000, generators(1))
    radius = np.linalg.norm(turned.contexts, axis=2)
    rich = turned.expected.max(axis=2) == 50.0
    np.testing.assert_array_equal(rich, radius > 0.95)
    np.testing.assert_allclose(rich.mean(), 1 - 0.95**2, atol=0.007)
    assert (turned.expected[~rich] == [1.2, 1.0, 1.0, 1.0, 1.0]).all()
    best = turned.expected[0].argmax(axis=1)[rich[0]]
    signs = turned.contexts[0][rich[0]] > 0
    for arm, wanted in ((1, (True, True)), (2, (True, False)), (3, (False, True)), (4, (False, False))):
        assert (signs[best == arm] == wanted).all()


def test_bayesian_linear_regression_has_its_posterior(conjugate):
    """Given the noise the slopes have the conjugate mean; over it, Student's t with the known scale."""
    x, y = np.asarray(conjugate.data.x, np.float64), np.asarray(conjugate.data.y, np.float64)[:, 0]
    model = agents.BayesianLinear(x, y, precision=2.0, shape=3.0, rate=1.5)
    gram = 2.0 * np.eye(2) + x.T @ x
    mean = np.linalg.solve(gram, x.T @ y)
    rate = 1.5 + (y @ y - mean @ gram @ mean) / 2
    shape = 3.0 + 3.0
    drawn = model.sample(40_000, np.random.default_rng(0))
    for k in range(2):
        law = stats.t(2 * shape, mean[k], np.sqrt(rate / shape * np.linalg.inv(gram)[k, k]))
        assert stats.kstest(drawn[:, k], law.cdf).pvalue > 1e-3
    np.testing.assert_allclose(np.cov(drawn.T), rate / (shape - 1) * np.linalg.inv(gram), rtol=0.05, atol=0.003)


def test_an_agent_remembers_what_it_did_and_what_came_of_it():
    problem = bandits.wheel(20, generators(2))
    history = agents.History(problem)
    arms = np.random.default_rng(0).integers(0, 5, (2, 8))
    history.act(arms)
    data = history.data()
    np.testing.assert_allclose(data.x[1, 3], [*history.inputs[1, 3], *2**0.5 * np.eye(5)[arms[1, 3]]], rtol=1e-5)
    np.testing.assert_allclose(history.inputs.std(axis=1), 1.0)
    np.testing.assert_allclose(data.y[1, 3, 0], problem.rewards[1, 3, arms[1, 3]] / problem.scale, rtol=1e-6)
    np.testing.assert_array_equal(data.x[0, 8], data.x[0, 0])
    rows = agents.every_arm(history.inputs[:, :4], problem.codes)
    np.testing.assert_allclose(rows[0, 2, :, 2:], 2**0.5 * np.eye(5), rtol=1e-6)


def test_thompson_sampling_from_a_student_has_its_mean_and_its_epistemic_variance():
    head = db.outcomes.GaussianHead(1, decompose=True)
    student = db.Student(db.mlp([3], head.width), head, optax.adam(1e-3))
    x = jax.random.normal(jax.random.key(0), (1, 2, 3, 4))
    weights = jax.tree.map(lambda leaf: leaf[None], student.init(jax.random.key(1), x[0, 0]))
    keys = jax.random.split(jax.random.key(2), 4_000)
    drawn = np.asarray(jax.vmap(lambda key: agents._of_student(student, weights, x, key))(keys))[:, 0]
    predicted = student.predict(at(0, weights), x.reshape(6, 4))
    mean, doubt = predicted.distribution.mean.reshape(2, 3), predicted.epistemic.reshape(2, 3)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=4 * float(np.sqrt(doubt.max() / 4_000)))
    np.testing.assert_allclose(drawn.var(axis=0), doubt, rtol=0.12)


def test_queries_have_contexts_that_were_seen_and_any_arm():
    x = jnp.concatenate([jnp.arange(12.0).reshape(6, 2), jax.nn.one_hot(jnp.zeros(6, int), 3)], axis=1)
    asked = agents.RandomArms(jnp.eye(3), 0.0)(jax.random.key(0), x, None)
    np.testing.assert_array_equal(asked[:, :2], x[:, :2])
    assert set(np.asarray(asked[:, 2:]).argmax(axis=1).tolist()) - {0}
    np.testing.assert_array_equal(asked[:, 2:].sum(axis=1), 1.0)
