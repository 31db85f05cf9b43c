"""What students learn: closed-form losses, the paper's gradients, and the heads that split uncertainty."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import special, stats

import darkbayes as db
from darkbayes.outcomes.heads.base import Share
from darkbayes.teacher.keeping import average_add, average_init

pytestmark = pytest.mark.usefixtures("strict_dtypes")

DRAWS, BATCH, SAMPLES = 3, 2, 20_000


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def classes_targets(num_classes: int = 3) -> db.outcomes.Categorical:
    return db.outcomes.Categorical(jnp.asarray(special.log_softmax(2 * normal(1, DRAWS, BATCH, num_classes), axis=-1)))


def real_targets(num_outputs: int) -> db.outcomes.Normal:
    shape = (DRAWS, BATCH, num_outputs)
    return db.outcomes.Normal(jnp.asarray(normal(2, *shape)), jnp.asarray(np.exp(normal(3, *shape))))


def outputs_for(head: Any) -> jax.Array:
    return jnp.asarray(normal(4, BATCH, head.width))


@eqx.filter_jit
def sampled_losses(head: Any, outputs: jax.Array, targets: Any) -> jax.Array:
    """-log S at targets sampled from each draw and averaged over draws, ``[samples, batch]``."""
    key = jax.random.key(4)
    if isinstance(targets, db.outcomes.Categorical):
        y = jax.random.categorical(key, targets.log_probs, shape=(SAMPLES, DRAWS, BATCH))
    else:
        noise = jax.random.normal(key, (SAMPLES, *targets.mean.shape))
        y = targets.mean + jnp.sqrt(targets.variance) * noise
    distribution = head.predict(outputs)[0]
    return -jax.vmap(jax.vmap(distribution.log_prob))(y).mean(axis=1)


@eqx.filter_jit
def gradient_of_loss(head: Any, outputs: jax.Array, targets: Any) -> jax.Array:
    return jax.grad(lambda outputs: head.loss(outputs, targets).sum())(outputs)


@pytest.mark.parametrize(
    ("head", "targets"),
    [
        (db.outcomes.SoftmaxHead(3), classes_targets()),
        (db.outcomes.GaussianHead(), real_targets(1)),
        (db.outcomes.GaussianHead(2), real_targets(2)),
        (db.outcomes.MixtureHead(3, quadrature=64), real_targets(1)),
        (db.outcomes.MixtureHead(2, num_outputs=2, quadrature=64), real_targets(2)),
    ],
    ids=["softmax", "gaussian", "gaussian-2", "mixture", "mixture-2"],
)
def test_the_loss_is_minus_the_expected_log_density_over_all_draws(head: Any, targets: Any) -> None:
    """Against 20,000 samples a draw; fails by chance with probability 2e-5 a case for another seed.

    The quadrature of the mixture has an error of its own where components are narrower than the noise: 0.01 is allowed.
    """
    outputs = outputs_for(head)
    samples = np.asarray(sampled_losses(head, outputs, targets), np.float64)
    estimate, error = samples.mean(axis=0), samples.std(axis=0) / np.sqrt(SAMPLES)
    slack = 1e-2 if isinstance(head, db.outcomes.MixtureHead) else 1e-5
    assert (np.abs(head.loss(outputs, targets) - estimate) < 4.4 * error + slack).all()


def test_twelve_nodes_suffice_for_components_no_narrower_than_the_noise() -> None:
    """As those of a student that has learnt anything are: the noise of a single draw is in what it has to say."""
    targets = db.outcomes.Normal(real_targets(1).mean, jnp.full((DRAWS, BATCH, 1), 0.3))
    outputs = jnp.asarray(normal(5, BATCH, 9)).at[:, 6:].set(np.log(0.3))
    default, exact = (db.outcomes.MixtureHead(3, quadrature=nodes).loss(outputs, targets) for nodes in (12, 100))
    np.testing.assert_allclose(default, exact, atol=5e-3)


@pytest.mark.parametrize("width", [0.3, 1.0])
@pytest.mark.parametrize("samples", [1, 4])
def test_the_loss_from_few_samples_is_on_average_that_of_a_fine_quadrature(width: float, samples: int) -> None:
    """However narrow a component is, as a share of the spread of a draw; 4.4 standard errors over 20,000 keys.

    Fails by chance with probability 2e-5 a case for another seed. The quadrature has an error of its own, below 0.005.
    """
    targets = real_targets(2)
    outputs = outputs_for(db.outcomes.MixtureHead(3, 2, decompose=True))
    outputs = outputs.at[:, 12:14].set(jnp.log(width**2 * targets.variance.mean(axis=0)))
    exact = db.outcomes.MixtureHead(3, 2, quadrature=60, decompose=True).loss(outputs, targets)
    head = db.outcomes.MixtureHead(3, 2, decompose=True, samples=samples)

    @jax.jit
    def losses(keys: jax.Array) -> jax.Array:
        return jax.vmap(lambda key: head.loss(outputs, head.seen(key, targets)))(keys)

    sampled = np.asarray(losses(jax.random.split(jax.random.key(6), SAMPLES)), np.float64)
    error = sampled.std(axis=0) / np.sqrt(len(sampled))
    assert (error < 0.01 * np.abs(exact) + 0.01).all()
    assert (np.abs(sampled.mean(axis=0) - exact) < 4.4 * error + 5e-3).all()


def test_samples_miss_nothing_where_components_are_far_narrower_than_a_draw() -> None:
    """Two components of 0.3 of its spread: by the trapezoidal rule, 8 nodes are 0.29 nats off, the default is right."""
    head, width = db.outcomes.MixtureHead(2), 0.3
    outputs = jnp.array([[0.0, 0.0, -0.7, 0.7, 2 * np.log(width), 2 * np.log(width)]])
    targets = db.outcomes.Normal(jnp.zeros((1, 1, 1)), jnp.ones((1, 1, 1)))
    y = np.linspace(-9, 9, 20_001)
    density = 0.5 * (stats.norm(-0.7, width).pdf(y) + stats.norm(0.7, width).pdf(y))
    exact = -np.trapezoid(stats.norm.pdf(y) * np.log(density), y)
    nodes = db.outcomes.MixtureHead(2, quadrature=8).loss(outputs, targets)
    assert float(nodes[0]) - exact == pytest.approx(-0.29, abs=0.01)
    keys = jax.random.split(jax.random.key(7), SAMPLES)
    sampled = np.asarray(jax.vmap(lambda key: head.loss(outputs, head.seen(key, targets)))(keys), np.float64)
    assert abs(sampled.mean() - exact) < 4.4 * sampled.std() / np.sqrt(SAMPLES) + 1e-4


def test_the_gradient_of_the_softmax_loss_is_that_of_section_2_1() -> None:
    """dL/dbeta_k = -p(y = k), averaged over draws, back-propagated through beta = log softmax."""
    head, targets = db.outcomes.SoftmaxHead(3), classes_targets()
    outputs = outputs_for(head)
    gradient = gradient_of_loss(head, outputs, targets)
    _, back_propagate = jax.vjp(jax.nn.log_softmax, outputs)
    (paper,) = back_propagate(-targets.probs.mean(axis=0))
    np.testing.assert_allclose(gradient, paper, atol=1e-6)
    np.testing.assert_allclose(gradient, jax.nn.softmax(outputs) - targets.probs.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_the_gradients_of_the_gaussian_loss_are_those_of_section_2_2(num_outputs: int) -> None:
    """dL/dmu = e^-alpha {mu - f} and dL/dalpha = 1/2 [1 - e^-alpha {(f - mu)^2 + 1/lambda_n}], averaged over draws."""
    head, targets = db.outcomes.GaussianHead(num_outputs), real_targets(num_outputs)
    outputs = outputs_for(head)
    gradient = gradient_of_loss(head, outputs, targets)
    mu, alpha = np.split(np.asarray(outputs, np.float64), 2, axis=1)
    f, noise = np.asarray(targets.mean), np.asarray(targets.variance)
    by_mean = (np.exp(-alpha) * (mu - f)).mean(axis=0)
    by_alpha = (0.5 * (1 - np.exp(-alpha) * ((f - mu) ** 2 + noise))).mean(axis=0)
    np.testing.assert_allclose(gradient, np.concatenate([by_mean, by_alpha], axis=1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_a_mixture_of_one_component_has_the_gaussian_loss(num_outputs: int) -> None:
    targets = real_targets(num_outputs)
    outputs = outputs_for(db.outcomes.GaussianHead(num_outputs))
    with_logit = jnp.concatenate([jnp.full((BATCH, num_outputs), 7.0), outputs], axis=1)
    np.testing.assert_allclose(
        db.outcomes.MixtureHead(1, num_outputs).loss(with_logit, targets),
        db.outcomes.GaussianHead(num_outputs).loss(outputs, targets),
        rtol=1e-5,
    )


def test_the_outputs_of_a_mixture_are_read_component_by_component() -> None:
    head = db.outcomes.MixtureHead(2, num_outputs=3)
    outputs = jnp.arange(18.0)[None] / 2
    mixture, aleatoric, _ = head.predict(outputs)
    assert aleatoric is None
    logits, mean, log_variance = np.arange(18.0).reshape(3, 2, 1, 3) / 2
    np.testing.assert_allclose(mixture.log_weights, special.log_softmax(logits, axis=0), rtol=1e-6)
    np.testing.assert_allclose(mixture.mean, mean)
    np.testing.assert_allclose(mixture.variance, np.exp(log_variance), rtol=1e-6)


# The heads that tell aleatoric from epistemic


@eqx.filter_jit
def best_outputs(head: Any, targets: Any) -> jax.Array:
    """The outputs that the theory says are best: the predictive's own, and the share that is aleatoric."""
    if isinstance(head, db.outcomes.SoftmaxHead):
        probs, part = targets.probs.mean(axis=0), targets.entropy.mean(axis=0)[:, None]
        heads, total = [jnp.log(probs)], jnp.sum(-probs * jnp.log(probs), axis=-1, keepdims=True)
    else:
        part = targets.variance.mean(axis=0)
        total = part + targets.mean.var(axis=0)
        heads = [targets.mean.mean(axis=0), jnp.log(total)]
    return jnp.concatenate([*heads, jnp.log(part / (total - part))], axis=1)


DECOMPOSING = [
    (db.outcomes.SoftmaxHead(3, decompose=True), classes_targets()),
    (db.outcomes.GaussianHead(1, decompose=True), real_targets(1)),
    (db.outcomes.GaussianHead(2, decompose=True), real_targets(2)),
]
DECOMPOSING_NAMES = ["softmax", "gaussian", "gaussian-2"]


@pytest.mark.parametrize(("head", "targets"), DECOMPOSING, ids=DECOMPOSING_NAMES)
def test_the_best_student_tells_the_expected_entropy_or_variance_of_a_draw(head: Any, targets: Any) -> None:
    best = best_outputs(head, targets)
    gradient = gradient_of_loss(head, best, targets)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    worse = best + 0.3 * jax.random.normal(jax.random.key(5), (50, *best.shape))
    assert (jax.jit(jax.vmap(head.loss, (0, None)))(worse, targets) > head.loss(best, targets)).all()
    expected = targets.statistics()["entropy" if isinstance(targets, db.outcomes.Categorical) else "variance"].mean(
        axis=0
    )
    np.testing.assert_allclose(head.predict(best)[1], expected, rtol=1e-5)


@pytest.mark.parametrize(("head", "targets"), DECOMPOSING, ids=DECOMPOSING_NAMES)
def test_descent_finds_the_best_student(head: Any, targets: Any) -> None:
    start = outputs_for(head)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.3))

    def step(carry: Any, _: None) -> tuple[Any, None]:
        outputs, state = carry
        gradient = jax.grad(lambda outputs: head.loss(outputs, targets).sum())(outputs)
        updates, state = optimiser.update(gradient, state, outputs)
        return (optax.apply_updates(outputs, updates), state), None

    (actual, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), length=5000)
    expected = head.predict(best_outputs(head, targets))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-2, atol=1e-3), head.predict(actual), expected)


@pytest.mark.parametrize(("head", "targets"), DECOMPOSING, ids=DECOMPOSING_NAMES)
def test_the_extra_head_does_not_bend_the_prediction(head: Any, targets: Any) -> None:
    plain = type(head)(getattr(head, "num_classes", None) or head.num_outputs)
    outputs = outputs_for(head)
    gradient = gradient_of_loss(head, outputs, targets)
    without = gradient_of_loss(plain, outputs[:, : plain.width], targets)
    np.testing.assert_allclose(gradient[:, : plain.width], without, rtol=1e-6)
    assert np.abs(gradient[:, plain.width :]).min() > 0


@pytest.mark.parametrize(("head", "targets"), DECOMPOSING, ids=DECOMPOSING_NAMES)
def test_the_aleatoric_part_never_exceeds_the_total(head: Any, targets: Any) -> None:
    outputs = 30 * jax.random.normal(jax.random.key(6), (500, head.width))
    distribution, part, _ = head.predict(outputs)
    total = distribution.entropy if isinstance(distribution, db.outcomes.Categorical) else distribution.variance
    assert (part <= total * (1 + 1e-6)).all()
    assert (part >= 0).all()


@pytest.mark.parametrize(("head", "targets"), DECOMPOSING, ids=DECOMPOSING_NAMES)
def test_extreme_outputs_leave_losses_and_gradients_of_the_extra_head_finite(head: Any, targets: Any) -> None:
    plain = type(head)(getattr(head, "num_classes", None) or head.num_outputs).width
    for extreme in (-80.0, 80.0):
        outputs = outputs_for(head).at[:, plain:].set(extreme)
        assert np.isfinite(head.loss(outputs, targets)).all()
        assert np.isfinite(gradient_of_loss(head, outputs, targets)).all()


# Divergence from the teacher, and the student as a whole


@pytest.mark.parametrize(
    ("head", "targets"),
    [(db.outcomes.SoftmaxHead(3), classes_targets()), (db.outcomes.GaussianHead(2), real_targets(2))],
    ids=["softmax", "gaussian"],
)
def test_the_divergence_is_the_loss_less_the_least_loss(head: Any, targets: Any) -> None:
    """L differs from KL(teacher || student) by a constant; for regression, by that of the teacher's moments."""
    average = average_add(average_init(targets), targets)
    outputs = outputs_for(head)
    best = best_outputs(type(head)(getattr(head, "num_classes", None) or head.num_outputs, True), targets)
    gap = head.loss(outputs, targets) - head.loss(best[:, : head.width], targets)
    np.testing.assert_allclose(head.divergence(average, outputs), gap, rtol=1e-4, atol=1e-5)


def test_the_divergence_of_a_mixture_student_compares_moments() -> None:
    targets, head = real_targets(1), db.outcomes.MixtureHead(2)
    average, outputs = average_add(average_init(targets), targets), outputs_for(head)
    moments = head.predict(outputs)[0].moments()
    gaussian = jnp.concatenate([moments.mean, jnp.log(moments.variance)], axis=1)
    np.testing.assert_allclose(
        head.divergence(average, outputs), db.outcomes.GaussianHead().divergence(average, gaussian), rtol=1e-4
    )


def test_the_students_prior_is_weight_decay_of_strength_gamma() -> None:
    """w <- w - rho (mean gradient + gamma w), the student's line of Algorithm 1."""
    x, targets = jnp.ones((BATCH, 2)), classes_targets(2)
    network = db.Network(lambda key, x: jnp.ones((2, 2)), lambda weights, x: x @ weights)
    student = db.Student(network, db.outcomes.SoftmaxHead(2), optax.sgd(0.1), prior_precision=0.5)
    params = jnp.array([[1.0, -1.0], [0.5, 2.0]])
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean(student.head.loss(network.apply(w, x), targets)))(params)
    updated, _, reported = student.update(params, student.optimiser.init(params), x, targets)
    np.testing.assert_allclose(updated, params - 0.1 * (gradient + 0.5 * params), rtol=1e-6)
    np.testing.assert_allclose(reported, loss, rtol=1e-6)


@pytest.mark.parametrize(("output", "log_variance"), [(-1e9, -14.0), (3.0, 3.0), (1e9, 14.0)])
def test_a_student_claims_no_variance_beyond_its_bounds(output: float, log_variance: float) -> None:
    predicted = db.outcomes.GaussianHead().predict(jnp.array([[0.0, output]], jnp.float32))
    np.testing.assert_allclose(np.log(predicted.distribution.variance), log_variance, rtol=1e-5)


@pytest.mark.parametrize("output", [-1e3, -60.0, -3.0, 2.0])
def test_the_loss_of_a_share_is_finite_however_small_it_is_and_says_which_way_to_go(output: float) -> None:
    def loss(output: jax.Array) -> jax.Array:
        return Share(jnp.zeros((1, 1)), output).loss(jnp.full((1, 1), 0.5))[0]

    value, slope = jax.value_and_grad(loss)(jnp.full((1, 1), output))
    assert np.isfinite(value)
    assert float(slope[0, 0]) * (1 if output > 0 else -1) > 0  # The best is 0.
    if output > -20:
        share = 1 / (1 + np.exp(-output))
        np.testing.assert_allclose(value, 0.5 * (np.log(share) + 0.5 / share), rtol=1e-5)
