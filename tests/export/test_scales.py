"""Targets of any size: a shipped student predicts what the student predicts, or the fit is refused with a reason."""

import dataclasses
import functools
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import darkbayes as db
from darkbayes.errors import InvalidInput
from darkbayes.fit import prepare_table
from darkbayes.metrics import Scores, score
from darkbayes.outcomes import NumberTarget
from darkbayes.shipped import Shipped
from darkbayes.tables import from_columns, read_table
from darkbayes.tables.writing import TableWriter

ROWS, HELD_OUT = 60, 20
RNG = np.random.default_rng(0)
X, NOISE = RNG.normal(size=(2, ROWS))
METRICS = ("log_likelihood", "rmse", "coverage_90")


@functools.cache
def student(kind: str) -> tuple[db.Student, Any]:
    """A student with random weights, whose predictions of a standardised target are about as large as it."""
    head = NumberTarget("y", "identity", 0.0, 1.0, 0.0, 1.0).head(kind)
    made = db.Student(db.mlp([8], head.width), head, optax.sgd(1.0))
    return made, made.init(jax.random.key(3), np.zeros((1, 1), np.float32))


def scored(prediction: Any, truth: np.ndarray) -> np.ndarray:
    scores = Scores()
    scores.add(prediction, truth)
    result = scores.result()
    return np.asarray([result[name].value for name in METRICS])


def evaluated(shipped: Shipped, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What `darkbayes evaluate` has of a CSV file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_text("\n".join(["x,y", *(f"{a!r},{b!r}" for a, b in zip(x.tolist(), y.tolist(), strict=True))]))
        (batch,) = shipped.batches(path, target=True)
    return scored(shipped.predict(batch.inputs), shipped.schema.target.truth(batch.target))


def check(y: np.ndarray, kind: str) -> bool:
    """Compare scores where the target is not refused; returns whether it was."""
    try:
        prepared = prepare_table(from_columns({"x": X, "y": y}), ["y"], task="regression", held_out=HELD_OUT / ROWS)
    except InvalidInput:
        return True
    made, params = student(kind)
    shipped = Shipped("student.onnx", content=db.to_onnx(made, params, prepared.schema))
    said = db.predict_student(made, params, prepared.held_out.x)
    truth = prepared.truth
    wanted = scored(prepared.schema.target.own_unit(said), truth)
    assert np.isfinite(wanted[:2]).all()
    frame: Any = prepared.held_out_frame
    for scores in (scored(shipped.predict(frame), truth), evaluated(shipped, frame["x"], truth[:, 0])):
        np.testing.assert_allclose(scores, wanted, rtol=1e-5)
    return False


SIZES = st.floats(-32, 32)


@settings(max_examples=40, deadline=None)
@given(offset=SIZES, scale=SIZES, sign=st.sampled_from([-1, 0, 1]), kind=st.sampled_from(["gaussian", "mixture"]))
@example(offset=9.23, scale=1.0, sign=1, kind="gaussian")
@example(offset=30.0, scale=29.0, sign=-1, kind="mixture")
def test_scores_of_what_ships_are_those_of_the_fit_for_any_offset_and_scale(offset, scale, sign, kind):
    y = sign * 10.0**offset + 10.0**scale * (np.sin(2 * X) + 0.3 * NOISE)
    refused = check(y, kind)
    # What a number of 16 digits holds well, and what is of a usual size, is never refused.
    if abs(scale) < 29 and offset < 29 and (sign == 0 or offset - scale < 8):
        assert not refused


@settings(max_examples=20, deadline=None)
@given(middle=SIZES, spread=st.floats(-1.5, 1.2), kind=st.sampled_from(["gaussian", "mixture"]))
@example(middle=29.0, spread=0.0, kind="gaussian")
@example(middle=-29.0, spread=0.0, kind="mixture")
def test_scores_of_what_ships_are_those_of_the_fit_for_logarithms(middle, spread, kind):
    with np.errstate(over="ignore"):
        y = 10.0**middle * np.exp(10.0**spread * (np.sin(2 * X) + 0.3 * NOISE))
    refused = check(y, kind)
    if abs(middle) < 20 and spread < 0.7:
        assert not refused


@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
@pytest.mark.parametrize("log", [False, True])
def test_a_guarantee_has_a_score_of_its_own_and_changes_no_other(kind, log):
    y = np.sin(2 * X) + 0.3 * NOISE
    source = from_columns({"x": X, "y": np.exp(3 * y) if log else y})
    prepared = prepare_table(source, ["y"], task="regression", held_out=HELD_OUT / ROWS)
    made, params = student(kind)
    said = prepared.schema.target.own_unit(db.predict_student(made, params, prepared.held_out.x))
    truth, frame, wanted = prepared.truth, prepared.held_out_frame, scored(said, prepared.truth)
    assert prepared.schema.target.logarithmic == log
    schema = dataclasses.replace(prepared.schema, target=prepared.schema.target.guaranteed(said, truth, 0.9))
    shipped = Shipped("student.onnx", content=db.to_onnx(made, params, schema))
    for scores in (scored(shipped.predict(frame), truth), evaluated(shipped, frame["x"], truth[:, 0])):
        np.testing.assert_allclose(scores, wanted, rtol=1e-5)
    # Of the 20 rows that calibrated it, it holds all but the strangest.
    assert score(shipped.predict(frame), truth, "guaranteed_coverage_90") == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (1e31 * NOISE, "beyond 1e\\+30: give it in a larger unit"),
        (1e-32 * NOISE, "use a smaller unit"),
        (1.0 + 1e-13 * np.round(10 * NOISE), "the 16 digits of a number are too few: subtract 1 from it"),
        (np.exp(-75 + 3 * X), "use a smaller unit"),
    ],
)
def test_what_numbers_cannot_hold_is_refused_at_fit_time(y, match):
    with pytest.raises(InvalidInput, match=match):
        prepare_table(from_columns({"x": X, "y": y}), ["y"], task="regression")


@pytest.mark.parametrize(("offset", "scale"), [(1.7e9, 10.0), (0.0, 1e25), (22.0, 9.0)])
@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_predictions_are_written_with_all_digits_that_mean_something(offset, scale, name, tmp_path):
    target = NumberTarget("y", "identity", offset, scale, 0.0, 1.0)
    mean, std = offset + scale * NOISE, np.full(ROWS, 0.1 * scale)
    parts = {"mean": mean, "std": std, "aleatoric_std": std, "epistemic_std": 0 * std, "location": mean, "spread": std}
    with TableWriter(tmp_path / name, digits=target.digits) as writer:
        writer.write(target.table(target.prediction(parts), 0.9))
    columns = read_table(tmp_path / name).columns
    np.testing.assert_allclose(columns["mean"].values, mean, rtol=0, atol=1e-5 * scale)
    assert (columns["lower_90"].values < columns["upper_90"].values).all()
    assert (target.digits > 7) == (offset + scale > 1e9)
