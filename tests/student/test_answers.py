"""Teachers that are no chains of ours: stored draws, and models that answer queries.

A student of the conjugate model's draws must have its exact predictive, a Gaussian whose form its network can take, so
that nothing but the teaching can keep it from there.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.outcomes import Categorical, Normal

NUMBER = 64
HEAD, ROWS = db.outcomes.SoftmaxHead(3), np.zeros((4, 1))
QUERIES = np.stack([np.linspace(-3.0, 3.0, 60), np.ones(60)], axis=1)


def predictive_form(noise_precision: float) -> db.Network:
    """A linear mean, and a constant plus a quadratic form for the variance: what the exact predictive looks like."""

    def init(key: Any, x: Any) -> Any:
        return {"mean": jnp.zeros(2), "root": jnp.asarray([[0.5, 0.0], [0.1, 0.5]])}

    def apply(params: Any, x: Any) -> Any:
        variance = 1 / noise_precision + jnp.sum((x @ params["root"]) ** 2, axis=1)
        return jnp.stack([x @ params["mean"], jnp.log(variance)], axis=1)

    return db.Network(init, apply)


@pytest.fixture(scope="module")
def exact_draws(conjugate: Any) -> db.model.Draw:
    """Draws whose mean and covariance are exactly those of the posterior: points on a circle around its mean."""
    angles = 2 * np.pi * np.arange(NUMBER) / NUMBER
    circle = np.sqrt(2.0) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    weights = conjugate.mean + circle @ np.linalg.cholesky(conjugate.covariance).T
    return db.model.Draw(jnp.asarray(weights[:, :, None], jnp.float32), ())


@pytest.fixture(scope="module")
def student(conjugate: Any) -> db.Student:
    network, falling = predictive_form(conjugate.noise_precision), optax.cosine_decay_schedule(0.05, 1500)
    return db.Student(network, db.outcomes.GaussianHead(), optax.adam(falling))


@pytest.mark.parametrize("form", ["chain", "batch"])
def test_a_student_of_stored_draws_has_the_exact_predictive(
    form: str, conjugate: Any, exact_draws: Any, student: db.Student
) -> None:
    """To 1% of the standard deviation; the draws have the posterior's moments, and the student can follow them."""
    posterior, key = conjugate.posterior, jax.random.key(0)
    if form == "chain":
        # The second input is the constant one of the design: it stays as it is.
        teacher = db.teacher.stored_chain(posterior, exact_draws, conjugate.data.x, thin=50)
        settings = db.Settings(num_chains=NUMBER, query_batch=64)
        queries = db.queries.jitter(1.0, columns=[0])
        done = db.distil(teacher, student, queries, key, steps=1500, settings=settings, quiet=True)
        assert done.diagnostics.verdict.code == "agree"
    else:
        answers = db.student.answers.of_draws(posterior, exact_draws, QUERIES)
        done = db.student.distil_batch(answers, student, key, updates=1500, batch_size=54, quiet=True)
        assert done.divergence < 1e-4
    said = db.predict_student(student, done.params, QUERIES)
    variance = 1 / conjugate.noise_precision + np.sum((QUERIES @ conjugate.covariance) * QUERIES, axis=1)
    np.testing.assert_allclose(said.std[:, 0], np.sqrt(variance), rtol=0.01)
    np.testing.assert_allclose((said.mean[:, 0] - QUERIES @ conjugate.mean) / np.sqrt(variance), 0.0, atol=0.01)


def test_chains_are_at_different_draws_and_at_all_of_them_equally_often(conjugate: Any, exact_draws: Any) -> None:
    chain = db.teacher.stored_chain(conjugate.posterior, exact_draws, conjugate.data.x)
    drawn = np.asarray(db.sample(chain, jax.random.key(3), num_chains=8, num_draws=512).network)[:, :, None, :, 0]
    places = np.abs(drawn - np.asarray(exact_draws.network)[:, :, 0]).sum(axis=-1).argmin(axis=-1)
    assert all(len(set(step)) == 8 for step in places.T)
    counts = np.bincount(places.ravel(), minlength=NUMBER)
    # 64 places in 512 shifts: a count has mean 64 and, by the shifts that are shared, a variance of at most 8 * 64.
    assert counts.min() > 0
    assert np.abs(counts - 64).max() < 5 * np.sqrt(8 * 64)


@pytest.mark.parametrize("head", [db.outcomes.SoftmaxHead(2), db.outcomes.GaussianHead()], ids=["classes", "numbers"])
def test_models_are_a_mixture(head: Any) -> None:
    x = np.linspace(0.0, 1.0, 5)[:, None]
    if isinstance(head, db.outcomes.SoftmaxHead):

        class Fitted:
            def predict_proba(self, x: np.ndarray) -> np.ndarray:
                return np.concatenate([x, 1 - x], axis=1)

        said = db.student.answers.of_models(
            [Fitted(), lambda x: np.tile([0.5, 0.5], (len(x), 1))], x, head
        ).prediction()
        np.testing.assert_allclose(said.probs[:, 0], (x[:, 0] + 0.5) / 2, atol=1e-6)
    else:
        models = [lambda x: (x[:, 0], 1.0 + x[:, 0]), lambda x: -x]
        said = db.student.answers.of_models(models, x, head, noise=0.5).prediction()
        np.testing.assert_allclose(said.mean, 0.0, atol=1e-6)
        # The mean variance, and that of x and -x.
        np.testing.assert_allclose(said.std[:, 0] ** 2, (1.5 + x[:, 0]) / 2 + x[:, 0] ** 2, rtol=1e-5)
        np.testing.assert_allclose(said.aleatoric[:, 0], (1.5 + x[:, 0]) / 2, rtol=1e-5)


def test_rates_are_counts_and_those_that_are_not_positive_are_refused() -> None:
    head = db.outcomes.CountHead()
    said = db.student.answers.of_models(
        [lambda x: np.full(4, 1.0), lambda x: np.full((4, 1), 3.0)], ROWS, head
    ).prediction()
    np.testing.assert_allclose(said.mean, 2.0, rtol=1e-5)
    with pytest.raises(db.InvalidInput, match="must return positive rates"):
        db.student.answers.of_models([lambda x: np.zeros(4)], ROWS, head)


def test_every_row_is_answered_by_models_that_have_not_seen_it() -> None:
    """A model says which rows it was fitted on; queries come from rows of their fold alone."""
    rng = np.random.default_rng(0)
    x, y = np.arange(40.0)[:, None], rng.integers(0, 2, 40)
    shares = []

    def fit(rows: np.ndarray, targets: np.ndarray) -> list[Any]:
        shares.append(targets.mean())
        known = set(rows[:, 0].round().tolist())
        return [
            lambda asked: np.asarray([[value.round() in known, value.round() not in known] for value in asked[:, 0]])
        ]

    said = db.student.answers.out_of_fold(
        fit, x, y, db.outcomes.SoftmaxHead(2), jax.random.key(0), queries=db.queries.jitter(0.01), times=2, folds=4
    )
    np.testing.assert_array_equal(said.x[:40], x)
    assert said.x.shape == (120, 1)
    np.testing.assert_allclose(said.prediction().probs[:, 1], 1.0)
    assert np.ptp(shares) < 0.04  # Folds have the same share of each class.


def test_the_noise_around_means_is_that_of_targets_which_models_never_saw() -> None:
    """Models that interpolate see no noise in their own rows; out of fold, with one model, it is the mean square."""
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(400, 1))
    y = 0.3 * rng.normal(size=400)

    def fit(rows: np.ndarray, targets: np.ndarray) -> list[Any]:
        # The nearest of its own rows: two independent errors, one of the row and one of the answer.
        return [lambda asked: targets[np.abs(asked[:, :1] - rows[:, 0]).argmin(axis=1)]]

    said = db.student.answers.out_of_fold(fit, x, y, db.outcomes.GaussianHead(), jax.random.key(0), folds=5)
    means = np.asarray(said.said.mean)[0, :, 0]
    np.testing.assert_allclose(said.noise, np.mean((y - means) ** 2), rtol=1e-3)
    np.testing.assert_allclose(said.noise, 2 * 0.09, rtol=0.25)


def test_a_softened_loss_is_least_at_the_average_and_matches_logits_when_it_is_hot() -> None:
    """Hinton, Vinyals and Dean: the gradient at a high temperature tends to (z - v) / classes, logits being centred."""
    probs = jax.nn.softmax(jax.random.normal(jax.random.key(0), (5, 3, 4)))
    targets, logits = Categorical(jnp.log(probs)), jax.random.normal(jax.random.key(1), (3, 4))
    average = jnp.log(jnp.mean(probs, axis=0))

    def slope(temperature: float, at: Any) -> np.ndarray:
        head = db.outcomes.SoftmaxHead(4, temperature=temperature)
        return np.asarray(jax.grad(lambda outputs: jnp.sum(head.loss(outputs, targets)))(at))

    for temperature in (1.0, 3.0):
        np.testing.assert_allclose(slope(temperature, average), 0.0, atol=1e-6)
    centred = [part - part.mean(axis=1, keepdims=True) for part in (logits, average)]
    np.testing.assert_allclose(slope(300.0, logits), (centred[0] - centred[1]) / 4, atol=0.02)
    with pytest.raises(db.InvalidInput, match="temperature must be a positive number, not 0"):
        db.outcomes.SoftmaxHead(2, temperature=0)


# Bad input


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: np.full((4, 2), 0.5), r"cannot learn from models\[0\] .*Categorical, 2 wide.*3 wide"),
        (lambda x: np.zeros(4), r"models\[0\]: it must return probabilities \[rows, classes\], not shape \(4,\)"),
        (lambda x: np.full((4, 3), 2.0), r"row 0 has \[2. 2. 2.\], which are not probabilities: apply a softmax"),
        (lambda x: np.full((3, 3), 1 / 3), r"models\[0\] returns shape \(3, 3\) for 4 rows"),
        (lambda x: np.full((4, 3), np.nan), r"models\[0\] returns what is not finite, first at row 0"),
        ("forest", r"models\[0\] is 'forest': give a function of rows"),
    ],
)
def test_a_model_that_answers_otherwise_is_refused(model: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.student.answers.of_models([model], ROWS, HEAD)


@pytest.mark.parametrize(
    ("answer", "noise", "message"),
    [
        (np.zeros(4), None, "means alone: let it return"),
        ((np.zeros(4), np.zeros(4)), None, "the least variance is 0"),
        ((np.zeros(4), np.ones((4, 2))), None, "must be"),
        (np.zeros((4, 2)), 1.0, "Normal, 2 wide"),
    ],
)
def test_numbers_that_are_no_mean_and_variance_are_refused(answer: Any, noise: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.student.answers.of_models([lambda x: answer], ROWS, db.outcomes.GaussianHead(), noise=noise)


def test_other_lists_folds_and_answers_are_refused(student: db.Student) -> None:
    x, y, key = np.zeros((6, 2)), np.zeros(6), jax.random.key(0)
    with pytest.raises(db.InvalidInput, match="models must be a list of at least one model"):
        db.student.answers.of_models([], x, HEAD)
    with pytest.raises(db.InvalidInput, match="folds=7 must lie between 2 and the 6 rows"):
        db.student.answers.out_of_fold(lambda x, y: [], x, y, HEAD, key, folds=7)
    counts = iter([1, 2])
    fit = lambda x, y: [lambda x: np.full((len(x), 3), 1 / 3)] * next(counts)  # noqa: E731
    with pytest.raises(db.InvalidInput, match="more models for some folds"):
        db.student.answers.out_of_fold(fit, x, y, HEAD, key, folds=2)
    seeking = db.queries.disagreement(db.queries.training_inputs())
    with pytest.raises(db.InvalidInput, match="needs draws of a posterior to follow"):
        db.student.answers.out_of_fold(lambda x, y: [len], x, y, HEAD, key, queries=seeking, folds=2)
    said = db.student.answers.of_models([lambda x: np.full((6, 3), 1 / 3)], x, HEAD)
    with pytest.raises(db.InvalidInput, match="cannot learn from the answers"):
        db.student.distil_batch(said, student, key, updates=1)
    for wrong in (
        Normal(jnp.zeros((2, 5, 1)), jnp.ones((2, 5, 1))),
        Normal(jnp.full((2, 6, 1), jnp.nan), jnp.ones((2, 6, 1))),
    ):
        with pytest.raises(db.InvalidInput, match="for 6 queries: they must be finite"):
            db.student.distil_batch(db.student.Answers(x, wrong), student, key, updates=1)


def test_draws_of_another_posterior_or_that_are_not_finite_are_refused(conjugate: Any, exact_draws: Any) -> None:
    posterior, x = conjugate.posterior, conjugate.data.x
    with pytest.raises(db.InvalidInput, match="of another network than the posterior's"):
        db.teacher.stored_chain(posterior, {"weights": jnp.zeros((3, 2, 1))}, x)  # pyright: ignore[reportArgumentType]
    with pytest.raises(db.InvalidInput, match=r"shape \(2, 1\) for \(2, 1\): put the draws"):
        db.teacher.stored_chain(posterior, db.model.Draw(jnp.zeros((2, 1)), ()), x)
    lost = exact_draws._replace(network=exact_draws.network.at[5].set(jnp.nan))
    with pytest.raises(db.InvalidInput, match="not finite, first in draw 5"):
        db.teacher.stored_chain(posterior, lost, x)
    other = db.Student(db.mlp([], 3), HEAD, optax.sgd(0.1))
    with pytest.raises(db.InvalidInput, match="cannot learn from Gaussian"):
        db.distillation(db.teacher.stored_chain(posterior, exact_draws, x), other, db.queries.training_inputs())
