"""Bad input ends in an error before long work: it names the argument, its value and the remedy."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.data.arrays import as_inputs

pytestmark = pytest.mark.usefixtures("strict")

X, Y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
NOT_POSITIVE = [0.0, -1.0, float("nan"), float("inf"), "1", True, None]


@pytest.fixture(scope="module")
def posterior(logistic: db.Network) -> db.Posterior:
    return db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(), num_data=4)


def chain_of(posterior: db.Posterior, x: Any = X, y: Any = Y, **options: Any) -> db.types.Chain:
    return db.minibatch_chain(posterior, db.sgld(1e-3), x, y, **{"batch_size": 2} | options)


def student_of(network: db.Network, head: Any) -> db.Student:
    return db.Student(network, head, optax.sgd(0.1))


# Data


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_inputs_that_are_not_finite_are_refused(bad: float) -> None:
    x = X.copy()
    x[2, 1] = x[3, 0] = bad
    with pytest.raises(
        db.InvalidInput, match=r"x holds 2 values that are not finite, first at row 2: remove or impute"
    ):
        db.data.as_data(x, Y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_targets_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(db.InvalidInput, match=r"y holds 1 value that is not finite, first at row 1: remove or impute"):
        db.data.as_data(X, [[0.0], [bad], [0.0], [0.0]])


@pytest.mark.parametrize("which", ["x", "y"])
def test_values_too_large_for_float32_are_refused(which: str) -> None:
    huge = np.full((4, 2), 1e300)
    with pytest.raises(db.InvalidInput, match=f"{which} holds 8 values that are not finite"):
        db.data.as_data(huge if which == "x" else X, huge if which == "y" else X)


@pytest.mark.parametrize("label", [2**32, -(2**40), 2**63 - 1])
@pytest.mark.parametrize("columns", [0, 2])
def test_labels_too_large_for_int32_are_refused(label: int, columns: int) -> None:
    """2^32 would wrap around to class 0."""
    y = np.zeros((4, columns) if columns else 4, np.int64)
    y[3] = label
    with pytest.raises(db.InvalidInput, match=f"y holds .*{label}"):
        db.data.as_data(X, y)


def test_targets_without_columns_are_refused() -> None:
    for dtype in (np.float64, np.int64):
        with pytest.raises(db.InvalidInput, match="y"):
            db.data.as_data(X, np.zeros((4, 0), dtype))


def test_complex_inputs_are_refused() -> None:
    with pytest.raises(db.InvalidInput, match="x has type complex128"):
        db.data.as_data(X + 1j, Y)


@pytest.mark.parametrize("y", [np.zeros(3), np.zeros((5, 1)), np.float64(0.0)], ids=["3", "5", "scalar"])
def test_inputs_and_targets_of_different_lengths_are_refused(y: Any) -> None:
    with pytest.raises(db.InvalidInput, match=r"x has 4 rows but y has shape \(.*\): they must pair up"):
        db.data.as_data(X, y)


@pytest.mark.parametrize("x", [np.zeros((0, 2)), np.zeros((4, 0))])
def test_empty_data_are_refused(x: np.ndarray) -> None:
    with pytest.raises(db.InvalidInput, match=r"x is empty, shape \(\d, \d\): at least one example with one feature"):
        db.data.as_data(x, Y)


@pytest.mark.parametrize("x", [np.zeros(4), np.float64(1.0)])
def test_inputs_without_a_row_per_example_are_refused(x: Any) -> None:
    with pytest.raises(db.InvalidInput, match=r"x has shape \(.*\): it needs one row per example"):
        as_inputs(x)


def test_text_is_refused() -> None:
    with pytest.raises(db.InvalidInput, match=r"x has type <U1: encode it as numbers"):
        db.data.as_data([["a"], ["b"]], [0, 1])
    with pytest.raises(db.InvalidInput, match=r"y has type <U1: encode it as floats \(regression\) or integers"):
        db.data.as_data([[0.0], [1.0]], ["a", "b"])


@pytest.mark.parametrize(("label", "bad"), [(2, 2), (-1, -1)])
def test_labels_outside_the_classes_are_refused(label: int, bad: int, posterior: db.Posterior) -> None:
    with pytest.raises(db.InvalidInput, match=rf"y holds label {bad}, outside 0\.\.1: relabel it or raise num_classes"):
        chain_of(posterior, y=np.array([0, 1, label, 1]))


@pytest.mark.parametrize("y", [Y.astype(float), Y[:, None]], ids=["floats", "column"])
def test_targets_that_are_no_labels_are_refused_by_softmax(y: np.ndarray, posterior: db.Posterior) -> None:
    with pytest.raises(db.InvalidInput, match=r"y must be one integer class per row for Softmax, not shape \(4"):
        chain_of(posterior, y=y)


@pytest.mark.parametrize(
    "likelihood",
    [db.outcomes.Gaussian(1.0), db.outcomes.GaussianSampledNoise(), db.outcomes.GaussianInputNoise()],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("y", [Y, Y.astype(float), np.zeros((4, 2))], ids=["integers", "no column", "two columns"])
def test_targets_of_another_shape_or_kind_are_refused_by_gaussians(likelihood: Any, y: np.ndarray) -> None:
    name = type(likelihood).__name__
    with pytest.raises(
        db.InvalidInput, match=rf"y must hold floats of shape \[examples, 1\] for {name}, not shape \(4"
    ):
        likelihood.check_targets(db.data.as_data(X, y).y)


# Chains and samplers


@pytest.mark.parametrize("value", [np.float32(0.1), np.float64(0.1), np.int64(1), 1], ids=repr)
def test_sgld_takes_any_real_number(value: Any) -> None:
    assert db.sgld(value).init(jnp.zeros(2)).count == 0


@pytest.mark.parametrize("value", [0, -3, 1.5, True, "2"], ids=repr)
def test_a_batch_size_that_is_no_count_is_refused(value: Any, posterior: db.Posterior) -> None:
    with pytest.raises(
        db.InvalidInput, match=f"batch_size .None for all data. must be a whole number of at least 1, not {value!r}"
    ):
        chain_of(posterior, batch_size=value)


def test_a_batch_larger_than_the_data_is_refused(posterior: db.Posterior) -> None:
    with pytest.raises(db.InvalidInput, match="batch_size=5 is larger than the 4 examples: use at most 4, or None"):
        chain_of(posterior, batch_size=5)


@pytest.mark.parametrize(("name", "value", "least"), [("burn_in", -1, 0), ("thin", 0, 1), ("thin", 2.0, 1)])
def test_counts_of_a_chain_are_checked(name: str, value: Any, least: int, posterior: db.Posterior) -> None:
    with pytest.raises(db.InvalidInput, match=f"{name} must be a whole number of at least {least}, not {value}"):
        chain_of(posterior, **{name: value})


def test_a_posterior_for_another_number_of_examples_is_refused(posterior: db.Posterior) -> None:
    with pytest.raises(db.InvalidInput, match="made for num_data=4 examples but gets 3: set num_data=3"):
        chain_of(posterior, x=X[:3], y=Y[:3])
    with pytest.raises(db.InvalidInput, match="made for num_data=4 examples but gets 3: set num_data=3"):
        db.teacher.nuts_chain(posterior, X[:3], Y[:3])


def test_a_network_too_narrow_or_wide_for_its_likelihood_is_refused(logistic: db.Network) -> None:
    posterior = db.Posterior(logistic, db.outcomes.Softmax(3), db.priors.GaussianPrior(), num_data=4)
    message = r"network returns shape \(1, 2\) for one row, but Softmax needs \(1, 3\): give its last layer 3 outputs"
    with pytest.raises(db.InvalidInput, match=message):
        chain_of(posterior)


def test_a_network_that_forgets_its_batch_axis_is_refused() -> None:
    flat = db.Network(lambda key, x: jnp.zeros(()), lambda params, x: params * jnp.sum(x, axis=1))
    posterior = db.Posterior(flat, db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(), num_data=4)
    with pytest.raises(db.InvalidInput, match=r"network returns shape \(1,\) for one row, but Gaussian needs \(1, 1\)"):
        chain_of(posterior, y=np.zeros((4, 1)))


@pytest.mark.parametrize(("name", "value"), [("num_chains", 0), ("num_draws", 0)])
def test_sampling_refuses_to_sample_nothing(name: str, value: int, posterior: db.Posterior) -> None:
    with pytest.raises(db.InvalidInput, match=f"{name} must be a whole number of at least 1, not 0"):
        db.sample(chain_of(posterior), jax.random.key(0), **{"num_chains": 1, "num_draws": 1} | {name: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: db.schedules.stepped(0.0, 0.5, 10), "initial must be a positive number, not 0.0"),
        (lambda: db.schedules.stepped(0.1, -0.5, 10), "factor must be a positive number, not -0.5"),
        (lambda: db.schedules.stepped(0.1, 0.5, 0), "every must be a whole number of at least 1, not 0"),
        (lambda: db.schedules.polynomial(-1.0), "scale must be a positive number, not -1.0"),
        (lambda: db.schedules.polynomial(1.0, offset=0.0), "offset must be a positive number, not 0.0"),
        (lambda: db.schedules.polynomial(1.0, power=1.5), r"power must lie in \(0, 1\], not 1.5"),
    ],
    ids=["initial", "factor", "every", "scale", "offset", "power"],
)
def test_schedules_check_their_numbers(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make()


# Models


@pytest.mark.parametrize("value", NOT_POSITIVE, ids=repr)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("noise_precision", db.outcomes.Gaussian),
        ("precision", db.priors.GaussianPrior),
        ("precision", db.priors.ScaledGaussianPrior),
        ("shape", lambda value: db.outcomes.GaussianSampledNoise(shape=value)),
        ("rate", lambda value: db.outcomes.GaussianSampledNoise(rate=value)),
        ("shape", lambda value: db.priors.SampledPrecisionPrior(shape=value)),
        ("rate", lambda value: db.priors.SampledPrecisionPrior(rate=value)),
        ("wide", lambda value: db.priors.ScaleMixturePrior(wide=value)),
        ("narrow", lambda value: db.priors.ScaleMixturePrior(narrow=value)),
    ],
    ids=[
        "Gaussian",
        "GaussianPrior",
        "ScaledGaussianPrior",
        "shape",
        "rate",
        "prior shape",
        "prior rate",
        "wide",
        "narrow",
    ],
)
def test_precisions_and_scales_must_be_positive(name: str, make: Any, value: Any) -> None:
    with pytest.raises(db.InvalidInput, match=rf"{name} must be a positive number, not {value!r}"):
        make(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: db.outcomes.Softmax(1), "num_classes must be a whole number of at least 2, not 1"),
        (lambda: db.outcomes.Gaussian(1.0, num_outputs=0), "num_outputs must be a whole number of at least 1, not 0"),
        (lambda: db.outcomes.GaussianSampledNoise(0), "num_outputs must be a whole number of at least 1, not 0"),
        (lambda: db.outcomes.GaussianInputNoise(0), "num_outputs must be a whole number of at least 1, not 0"),
        (
            lambda: db.outcomes.GaussianInputNoise(1, 2.0, 1.0),
            "min_log_variance=2.0 must lie below max_log_variance=1.0",
        ),
        (
            lambda: db.outcomes.GaussianInputNoise(1, np.nan, 1.0),
            "min_log_variance=nan must lie below max_log_variance=1.0",
        ),
        (lambda: db.priors.ScaleMixturePrior(weight=1.0), "weight must lie between 0 and 1, not 1.0"),
        (
            lambda: db.Posterior(db.mlp([], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(), 0),
            "num_data must be .* not 0",
        ),
        (lambda: db.mlp([3, 0], 1), "a layer's width must be a whole number of at least 1, not 0"),
        (lambda: db.cnn([3], 4, 2, kernel_size=2), "kernel_size must be odd to keep the image's size, not 2"),
        (
            lambda: db.cnn([3], 4, 2).init(jax.random.key(0), jnp.zeros((2, 3))),
            r"cnn needs inputs \[batch, channels, height, width\], not shape \(2, 3\)",
        ),
        (lambda: db.outcomes.SoftmaxHead(1), "num_classes must be a whole number of at least 2, not 1"),
        (lambda: db.outcomes.GaussianHead(0), "num_outputs must be a whole number of at least 1, not 0"),
        (lambda: db.outcomes.MixtureHead(0), "components must be a whole number of at least 1, not 0"),
        (lambda: db.outcomes.MixtureHead(2, quadrature=0), "quadrature must be a whole number of at least 1, not 0"),
        (lambda: db.queries.jitter(-0.1), "scale must be a positive number, not -0.1"),
        (
            lambda: db.queries.uniform_box(1.0, 1.0),
            "uniform_box needs finite low < high in every feature, not low=1.0, high=1.0",
        ),
        (lambda: db.queries.uniform_box([0.0, -np.inf], 1.0), "uniform_box needs finite low < high"),
        (
            lambda: db.queries.mix(db.queries.jitter(1.0), db.queries.jitter(1.0), 1.5),
            "weight must lie between 0 and 1, not 1.5",
        ),
        (
            lambda: db.Student(db.mlp([], 2), db.outcomes.SoftmaxHead(2), optax.sgd(0.1), prior_precision=-1.0),
            "prior_precision .0 for none. must be a positive number, not -1.0",
        ),
    ],
)
def test_parts_check_their_arguments(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make()


# Distillation


def test_a_network_that_does_not_fit_the_students_family_is_refused(
    posterior: db.Posterior, logistic: db.Network
) -> None:
    student = student_of(logistic, db.outcomes.SoftmaxHead(2, decompose=True))
    message = r"the student's network returns shape \(1, 2\) for one row, but SoftmaxHead needs \(1, 3\): give its last"
    with pytest.raises(db.InvalidInput, match=message):
        db.distillation(chain_of(posterior), student, db.queries.jitter(1.0))


@pytest.mark.parametrize(
    "head",
    [db.outcomes.GaussianHead(), db.outcomes.MixtureHead(2), db.outcomes.SoftmaxHead(3)],
    ids=lambda head: type(head).__name__,
)
def test_a_head_that_does_not_fit_a_classifier_is_refused(head: Any, posterior: db.Posterior) -> None:
    student = student_of(db.mlp([], head.width), head)
    message = (
        rf"{type(head).__name__}\(.*cannot learn from Softmax .*Categorical, 2 wide\): .*; choose a head for Softmax"
    )
    with pytest.raises(db.InvalidInput, match=message):
        db.distillation(chain_of(posterior), student, db.queries.jitter(1.0))


@pytest.mark.parametrize(
    "head",
    [db.outcomes.SoftmaxHead(2), db.outcomes.GaussianHead(2), db.outcomes.MixtureHead(2, num_outputs=2)],
    ids=lambda head: type(head).__name__,
)
def test_a_head_that_does_not_fit_a_regressor_is_refused(head: Any, conjugate: Any) -> None:
    student = student_of(db.mlp([], head.width), head)
    chain = chain_of(conjugate.posterior, *conjugate.data)
    message = rf"{type(head).__name__}\(.*cannot learn from Gaussian .*Normal, 1 wide\): .*; choose a head for Gaussian"
    with pytest.raises(db.InvalidInput, match=message):
        db.distillation(chain, student, db.queries.jitter(1.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_chains": 0}, "num_chains must be a whole number of at least 1, not 0"),
        ({"query_batch": 0}, "query_batch must be a whole number of at least 1, not 0"),
        ({"update_every": 0}, "update_every must be a whole number of at least 1, not 0"),
        ({"updates": 0}, "updates must be a whole number of at least 1, not 0"),
        ({"reservoir": -1}, "reservoir must be a whole number of at least 0, not -1"),
        ({"reservoir_picks": -1}, "reservoir_picks must be a whole number of at least 0, not -1"),
        ({"restarts": 0}, "restarts must be a whole number of at least 1, not 0"),
        ({"update_every": 4}, "update_every=4 must divide the chain's thin=6"),
        ({"update_every": 12}, "update_every=12 must divide the chain's thin=6"),
    ],
    ids=str,
)
def test_settings_are_checked(settings: dict, message: str, posterior: db.Posterior, logistic: db.Network) -> None:
    chain, student = chain_of(posterior, thin=6), student_of(logistic, db.outcomes.SoftmaxHead(2))
    with pytest.raises(db.InvalidInput, match=message):
        db.distillation(chain, student, db.queries.jitter(1.0), db.Settings(**settings))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(db.Settings)])
def test_settings_may_be_numpy_integers(name: str, posterior: db.Posterior, logistic: db.Network) -> None:
    settings = db.Settings(**({"reservoir": 2} | {name: np.int64(2)}))
    chain, student = chain_of(posterior, thin=2), student_of(logistic, db.outcomes.SoftmaxHead(2))
    parts = db.distillation(chain, student, db.queries.jitter(1.0), settings)
    state = eqx.filter_eval_shape(parts.init, jax.random.key(0))
    assert eqx.filter_eval_shape(parts.advance, state, np.int32(1))[0].updates.shape == ()


@pytest.mark.parametrize("name", ["thin", "burn_in"])
def test_counts_of_a_chain_may_be_numpy_integers(name: str, posterior: db.Posterior, logistic: db.Network) -> None:
    chain = chain_of(posterior, **{name: np.int64(2)})
    parts = db.distillation(chain, student_of(logistic, db.outcomes.SoftmaxHead(2)), db.queries.jitter(1.0))
    state = eqx.filter_eval_shape(parts.init, jax.random.key(0))
    assert eqx.filter_eval_shape(parts.advance, state, np.int32(1))[0].updates.shape == ()


@pytest.mark.parametrize(
    ("monitor", "message"),
    [(np.zeros(3), "shape"), (np.full((3, 2), np.nan), "not finite"), (np.zeros((0, 2)), "empty")],
    ids=["flat", "nan", "empty"],
)
def test_monitored_inputs_are_checked(
    monitor: np.ndarray, message: str, posterior: db.Posterior, logistic: db.Network
) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.distillation(
            chain_of(posterior),
            student_of(logistic, db.outcomes.SoftmaxHead(2)),
            db.queries.jitter(1.0),
            monitor=monitor,
        )


@pytest.mark.parametrize("steps", [9, 10])
def test_a_run_that_ends_in_its_burn_in_is_refused(steps: int, posterior: db.Posterior, logistic: db.Network) -> None:
    student = student_of(logistic, db.outcomes.SoftmaxHead(2))
    with pytest.raises(
        db.InvalidInput, match=rf"steps={steps} ends before the first draw is kept: use at least 11 \(burn_in=10"
    ):
        db.distil(
            chain_of(posterior, burn_in=10), student, db.queries.jitter(1.0), jax.random.key(0), steps=steps, quiet=True
        )
