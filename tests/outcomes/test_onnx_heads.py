"""Every head of every outcome as an ONNX file: the same prediction as JAX makes, in the target's own unit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.outcomes import OUTCOMES, ClassTarget, CountTarget, NumberTarget, SeveralTarget, Target
from darkbayes.outcomes.heads.number import LOG_VARIANCES
from darkbayes.shipped import Shipped
from darkbayes.tables.schema import Number, TableSchema

LOG = NumberTarget("price", "log", center=3.0, scale=0.7, low=1.0, high=300.0)
PLAIN = NumberTarget("weight", "identity", center=-20.0, scale=4.0, low=-40.0, high=10.0)
OFFSET = NumberTarget("time", "identity", center=1.7e9, scale=10.0, low=1.6e9, high=1.8e9)
TARGETS: list[Target] = [ClassTarget("sort", ("a", "b", "c")), LOG, PLAIN, OFFSET, SeveralTarget((LOG, PLAIN))]


def schema_of(target: Target) -> TableSchema:
    columns = tuple(Number(f"x{k}", 0.0, 1.0, 0.0, False, -3.0, 3.0, False) for k in range(3))
    return TableSchema(columns, target)


def both(target: Target, kind: str, scale: float = 1.0) -> tuple[db.outcomes.Prediction, db.outcomes.Prediction]:
    """What JAX and onnxruntime predict of the same rows with the same random student, its last layer times `scale`."""
    head = target.head(kind)
    student = db.Student(db.mlp([16], head.width), head, optax.adam(1e-3))
    schema, x = schema_of(target), np.random.default_rng(0).normal(size=(200, 3))
    *layers, last = student.init(jax.random.key(3), jnp.zeros((1, 3)))
    params = (*layers, jax.tree.map(lambda leaf: scale * leaf, last))
    frame = {f"x{k}": x[:, k] for k in range(3)}
    own = target.own_unit(db.predict_student(student, params, schema.encode(frame)))
    shipped = Shipped("student.onnx", content=db.to_onnx(student, params, schema))
    return own, shipped.predict(frame)


CASES = [(target, kind) for target in TARGETS for kind in target.heads]


@pytest.mark.parametrize(("target", "kind"), CASES, ids=[f"{target.name}-{kind}" for target, kind in CASES])
def test_the_exported_file_predicts_what_jax_predicts(target: Target, kind: str) -> None:
    own, shipped = both(target, kind)
    for name, values in own.arrays().items():
        # A location near zero has no digits of its own: it is compared on the scale of the spread.
        atol = 1e-5 * float(np.median(np.abs(values)))
        np.testing.assert_allclose(shipped.arrays()[name], values, rtol=1e-5, atol=atol, err_msg=name)


@pytest.mark.parametrize("target", [LOG, PLAIN, SeveralTarget((LOG, PLAIN))], ids=lambda target: target.name)
def test_mean_intervals_and_both_variances_of_a_mixture_agree_to_one_in_a_hundred_thousand(target: Target) -> None:
    own, shipped = both(target, "mixture")
    for level in (0.5, 0.9, 0.99):
        for mine, theirs in zip(own.interval(level), shipped.interval(level), strict=True):
            # An end near zero has no digits of its own.
            assert (np.abs(theirs - mine) <= 1e-5 * np.maximum(np.abs(mine), own.std)).all()
    for name in ("mean", "std", "aleatoric_std", "epistemic_std"):
        np.testing.assert_allclose(getattr(shipped, name), getattr(own, name), rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", NumberTarget.heads)
def test_log_variances_beyond_all_bounds_are_cut_off_alike(kind: str) -> None:
    """Those of a student whose last layer has weights a hundred times as large."""
    own, shipped = both(PLAIN, kind, scale=100.0)
    logs = 2 * np.log(np.asarray(own.spread) / PLAIN.scale)  # pyright: ignore[reportAttributeAccessIssue]
    assert (logs.min(), logs.max()) == pytest.approx(LOG_VARIANCES, rel=1e-6)
    np.testing.assert_allclose(shipped.spread, own.spread, rtol=1e-4)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_large_offset_of_the_target_survives_the_export() -> None:
    own, shipped = both(OFFSET, "gaussian")
    # In single precision the means would be multiples of 128.
    np.testing.assert_allclose(shipped.mean - OFFSET.center, own.mean - OFFSET.center, rtol=1e-4, atol=1e-5)


def test_a_head_that_does_not_speak_of_the_target_is_refused_with_both_names() -> None:
    head = db.outcomes.GaussianHead(2, decompose=True)
    student = db.Student(db.mlp([4], head.width), head, optax.adam(1e-3))
    params = student.init(jax.random.key(0), jnp.zeros((1, 3)))
    with pytest.raises(db.InvalidInput, match=r"(?s)weight needs a student.*GaussianHead.*not GaussianHead"):
        db.to_onnx(student, params, schema_of(PLAIN))


def test_a_head_without_an_onnx_form_is_refused() -> None:
    class Mute(db.outcomes.SoftmaxHead):
        def write(self, graph, outputs):
            return db.outcomes.Head.write(self, graph, outputs)

    student = db.Student(db.mlp([4], 2), Mute(2), optax.adam(1e-3))
    params = student.init(jax.random.key(0), jnp.zeros((1, 3)))
    with pytest.raises(db.InvalidInput, match="Mute has no ONNX form"):
        db.to_onnx(student, params, shape=(3,))


def test_a_student_cannot_learn_from_a_teacher_of_another_outcome() -> None:
    posterior = db.Posterior(db.mlp([4], 1), db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(1.0), num_data=20)
    teacher = db.minibatch_chain(posterior, db.sgld(1e-3), *db.data.toy1d(jax.random.key(0)), batch_size=None)
    for head in (db.outcomes.SoftmaxHead(2), db.outcomes.GaussianHead(2)):
        student = db.Student(db.mlp([4], head.width), head, optax.adam(1e-3))
        with pytest.raises(db.InvalidInput, match=rf"{type(head).__name__}.* cannot learn from Gaussian"):
            db.distillation(teacher, student, db.queries.jitter(0.1))


def test_every_outcome_has_a_likelihood_and_a_head_by_each_of_its_names() -> None:
    assert len({kind.__name__ for kind in OUTCOMES.kinds}) == len(OUTCOMES.kinds)
    for target in TARGETS:
        for name in target.likelihoods:
            draw = target.likelihood(name)
            outputs = jnp.zeros((2, draw.width))
            for kind in target.heads:
                target.head(kind).check_teacher(draw, jax.eval_shape(draw.distribution, draw.init(), outputs))
        assert target.likelihood() == target.likelihood(target.likelihoods[0])
        assert target.head() == target.head(target.heads[0])


def test_a_likelihood_or_head_of_another_outcome_is_refused_with_both_names() -> None:
    targets = [*TARGETS, CountTarget("calls", 2.0, 0.0, 9.0)]
    for target in targets:
        for make, kinds in ((target.likelihood, target.likelihoods), (target.head, target.heads)):
            others = {name for other in targets for name in (*other.likelihoods, *other.heads)} - set(kinds)
            for name in {"nonsense", *others}:
                match = f"{make.__name__} '{name}' is not one for {target.task}: choose among {', '.join(kinds)}"
                with pytest.raises(db.InvalidInput, match=match):
                    make(name)
