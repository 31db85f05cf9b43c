"""One predictive form for draws, averages, students and plug-in networks."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from scipy.special import logsumexp

import darkbayes as db
from darkbayes.model.posterior import Draw
from darkbayes.teacher.keeping import average_add, average_init

pytestmark = pytest.mark.usefixtures("strict_dtypes")

X = jax.random.normal(jax.random.key(0), (4, 2))


@pytest.fixture(scope="module")
def classifier(linear_network: Any) -> db.Posterior:
    return db.Posterior(linear_network(3), db.outcomes.Softmax(3), db.priors.GaussianPrior(), num_data=4)


@pytest.fixture(scope="module")
def regressor(linear_network: Any) -> db.Posterior:
    return db.Posterior(linear_network(4), db.outcomes.GaussianInputNoise(2), db.priors.GaussianPrior(), num_data=4)


@eqx.filter_jit
def each(posterior: db.Posterior, draws: Any) -> Any:
    return jax.vmap(lambda draw: posterior.distribution(draw, X))(draws)


def test_draws_of_a_classifier_predict_their_mean_probabilities(classifier: db.Posterior, draw_stack: Any) -> None:
    draws = draw_stack(classifier, X, 6)
    predictive, distributions = db.predict_draws(classifier, draws, X), each(classifier, draws)
    np.testing.assert_allclose(predictive.probs, distributions.probs.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(predictive.aleatoric, distributions.entropy.mean(axis=0), rtol=1e-5)
    y = jnp.array([0, 1, 2, 1])
    np.testing.assert_allclose(predictive.log_prob(y), np.log(np.asarray(predictive.probs)[np.arange(4), y]), rtol=1e-6)


def test_a_hundred_thousand_draws_of_a_classifier_add_up_to_one() -> None:
    """In single precision, rounding and all; the last class of the last input has a probability of about 1e-26."""
    logits = 3 * np.random.default_rng(0).normal(size=(100_000, 4, 3)).astype(np.float32)
    logits[:, 3, 2] -= 60.0
    log_probs = logits - logsumexp(logits.astype(np.float64), axis=-1, keepdims=True)
    predict = lambda draw: db.outcomes.Categorical(jax.nn.log_softmax(draw))  # noqa: E731
    together = jax.jit(lambda draws: db.outcomes.Categorical.together(predict, draws))(logits)
    said = np.asarray(together.distribution.log_probs, np.float64)
    np.testing.assert_allclose(np.exp(said).sum(axis=-1), 1.0, atol=1e-6)
    np.testing.assert_allclose(said, logsumexp(log_probs, axis=0) - np.log(100_000), atol=1e-5)
    entropy = -(np.exp(log_probs) * log_probs).sum(axis=-1).mean(axis=0)
    np.testing.assert_allclose(together.aleatoric, entropy, rtol=1e-6)
    start = average_init(predict(logits[:1]))
    average = jax.lax.scan(lambda average, draw: (average_add(average, predict(draw[None])), None), start, logits)[0]
    np.testing.assert_allclose(db.predict_average(average).probs.sum(axis=-1), 1.0, atol=1e-6)


def test_draws_of_a_regressor_predict_their_mixture(regressor: db.Posterior, draw_stack: Any) -> None:
    draws = draw_stack(regressor, X, 6)
    predictive, distributions = db.predict_draws(regressor, draws, X), each(regressor, draws)
    mean, variance = np.asarray(distributions.mean, np.float64), np.asarray(distributions.variance, np.float64)
    np.testing.assert_allclose(predictive.mean, mean.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(predictive.aleatoric, variance.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(predictive.epistemic, mean.var(axis=0), rtol=1e-3, atol=1e-5)
    y = np.array([[0.0, 1.0]] * 4, np.float32)
    density = stats.norm.pdf(y, mean, np.sqrt(variance)).prod(axis=-1).mean(axis=0)
    np.testing.assert_allclose(predictive.log_prob(y), np.log(density), rtol=1e-5)
    below = stats.norm.cdf(y, mean, np.sqrt(variance)).mean(axis=0)
    np.testing.assert_allclose(predictive.cdf(y), below, rtol=1e-4, atol=1e-6)


def test_total_is_aleatoric_plus_epistemic(classifier: db.Posterior, regressor: db.Posterior, draw_stack: Any) -> None:
    for posterior in (classifier, regressor):
        predictive = db.predict_draws(posterior, draw_stack(posterior, X, 5), X)
        np.testing.assert_allclose(predictive.total, predictive.aleatoric + predictive.epistemic, rtol=1e-5)
        assert (predictive.epistemic > 0).all()


def test_class_predictives_know_their_moments_and_entropy() -> None:
    probs = jnp.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    predictive = db.outcomes.ClassPrediction.from_probs(probs)
    np.testing.assert_allclose(predictive.mean, probs)
    np.testing.assert_allclose(predictive.variance, probs * (1 - probs))
    np.testing.assert_allclose(predictive.entropy, stats.entropy(probs, axis=1), rtol=1e-6)


def test_a_plug_in_network_has_no_epistemic_uncertainty(classifier: db.Posterior, regressor: db.Posterior) -> None:
    for posterior in (classifier, regressor):
        draw = posterior.init(jax.random.key(1), X)
        predictive, distribution = db.predict_plugin(posterior, draw, X), posterior.distribution(draw, X)
        np.testing.assert_allclose(predictive.epistemic, 0.0, atol=1e-6)
        expected = distribution.probs if isinstance(distribution, db.outcomes.Categorical) else distribution.mean
        np.testing.assert_allclose(predictive.mean, expected, rtol=1e-5)


def test_a_running_average_predicts_as_the_draws_do(
    classifier: db.Posterior, regressor: db.Posterior, draw_stack: Any
) -> None:
    for posterior in (classifier, regressor):
        draws = draw_stack(posterior, X, 6)
        distributions = each(posterior, draws)
        predictive = db.predict_average(average_add(average_init(distributions), distributions))
        expected = db.predict_draws(posterior, draws, X)
        for name in ("mean", "variance", "total", "aleatoric", "epistemic"):
            np.testing.assert_allclose(getattr(predictive, name), getattr(expected, name), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "head",
    [
        db.outcomes.SoftmaxHead(3),
        db.outcomes.SoftmaxHead(3, decompose=True),
        db.outcomes.GaussianHead(2),
        db.outcomes.GaussianHead(2, decompose=True),
        db.outcomes.MixtureHead(3, num_outputs=2),
    ],
    ids=repr,
)
def test_a_student_predicts_what_its_head_reads_from_its_outputs(head: Any, linear_network: Any) -> None:
    student = db.Student(linear_network(head.width), head, optax.sgd(0.1))
    params = student.init(jax.random.key(0), X)
    predictive = db.predict_student(student, params, X)
    distribution, aleatoric, _ = head.predict(student.network.apply(params, X))
    if isinstance(distribution, db.outcomes.Categorical):
        np.testing.assert_allclose(predictive.probs, distribution.probs, rtol=1e-5)
        np.testing.assert_allclose(predictive.total, stats.entropy(distribution.probs, axis=-1), rtol=1e-5)
    else:
        y = jnp.ones((4, 2))
        np.testing.assert_allclose(predictive.log_prob(y), distribution.log_prob(y), rtol=1e-5)
    if aleatoric is None:
        with pytest.raises(db.InvalidInput, match="distil a student with decompose=True"):
            _ = predictive.epistemic
    else:
        np.testing.assert_allclose(predictive.aleatoric, aleatoric, rtol=1e-5)
        np.testing.assert_allclose(predictive.total, predictive.aleatoric + predictive.epistemic, rtol=1e-5)


def test_a_student_predicts_numpy_inputs_too(linear_network: Any) -> None:
    student = db.Student(linear_network(3), db.outcomes.SoftmaxHead(3), optax.sgd(0.1))
    params = student.init(jax.random.key(0), X)
    np.testing.assert_array_equal(
        db.predict_student(student, params, np.asarray(X)).probs, db.predict_student(student, params, X).probs
    )


def test_unlikely_classes_keep_a_finite_log_probability() -> None:
    network = db.Network(lambda key, x: jnp.zeros(()), lambda params, x: jnp.array([[0.0, -200.0]]) + params)
    student = db.Student(network, db.outcomes.SoftmaxHead(2), optax.sgd(0.1))
    predictive = db.predict_student(student, jnp.zeros(()), [[0.0]])
    np.testing.assert_allclose(predictive.log_prob(jnp.array([1])), -200.0)
    posterior = db.Posterior(network, db.outcomes.Softmax(2), db.priors.GaussianPrior(), num_data=1)
    draws = Draw(jnp.zeros((2, 3)), ())
    np.testing.assert_allclose(db.predict_draws(posterior, draws, [[0.0]]).log_prob(jnp.array([1])), -200.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("y", "complaint"), [([-1], r"label -1, outside 0\.\.1"), ([2], "label 2"), ([0.0], "type float64")]
)
def test_labels_that_are_no_classes_are_not_scored(y: list, complaint: str) -> None:
    with pytest.raises(db.InvalidInput, match=complaint):
        db.outcomes.ClassPrediction.from_probs(np.array([[0.5, 0.5]])).log_prob(np.array(y))


def test_draws_are_scored_on_all_outputs_together() -> None:
    """1/S sum_s prod_j N(y_j), not prod_j 1/S sum_s N(y_j): the outputs of a draw go together."""
    network = db.Network(lambda key, x: jnp.zeros(2), lambda params, x: jnp.broadcast_to(params, (len(x), 2)))
    posterior = db.Posterior(network, db.outcomes.Gaussian(1.0, num_outputs=2), db.priors.GaussianPrior(), num_data=1)
    draws = Draw(jnp.array([[-3.0, -3.0], [3.0, 3.0]]), ())
    predictive = db.predict_draws(posterior, draws, [[0.0]])
    together, apart = (predictive.log_prob(jnp.array([y])) for y in ([3.0, 3.0], [3.0, -3.0]))
    np.testing.assert_allclose(together, np.log(0.5) - np.log(2 * np.pi), rtol=1e-4)
    np.testing.assert_allclose(apart, -18 - np.log(2 * np.pi), rtol=1e-4)
