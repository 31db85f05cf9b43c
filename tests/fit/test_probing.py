"""Student and teacher are compared where nobody trained, by predictions that are made up."""

import numpy as np
import pytest

from darkbayes.fit.probing import check_outside, excursions, probes
from darkbayes.outcomes.number import NumberPrediction
from darkbayes.tables.schema import REACH, Category, Number, TableSchema

SCHEMA = TableSchema(
    (
        Number("size", 5.0, 2.0, 5.0, flagged=False, low=0.0, high=10.0, whole=False),
        Category("colour", ("blue", "red"), flagged=False),
        Number("age", 0.0, 1.0, 0.0, flagged=False, low=-1.0, high=1.0, whole=False),
    ),
    target=None,
    reach=REACH,
)
FRAME = {
    "size": np.linspace(0.0, 10.0, 30),
    "colour": np.asarray(["blue", "red"] * 15, object),
    "age": np.linspace(-1.0, 1.0, 30),
}


def said(scale: float):
    """A prediction whose spread is the larger, the farther out a row is; a fifth of its variance is noise."""

    def predict(x: np.ndarray) -> NumberPrediction:
        variance = (scale * (1.0 + np.abs(x[:, :2]).sum(axis=1, keepdims=True))) ** 2
        return NumberPrediction.standard(np.zeros((1, len(x), 1)), 0 * variance[None], variance[None], 0.2 * variance)

    return predict


def test_probes_move_each_number_and_all_of_them_either_way() -> None:
    asked = probes(SCHEMA, FRAME, 2)
    assert len(asked["size"]) == 2 * 3 * 10
    moved = {(round(float(size)), round(float(age))) for size, age in zip(asked["size"], asked["age"], strict=True)}
    assert {(1000, -1), (-1000, -1), (0, 199), (0, -201), (1000, 199), (-1000, -201)} <= moved
    assert set(asked["colour"]) == {"blue", "red"}


@pytest.mark.parametrize(("own", "within"), [(0.4, 0.0), (1.1, 1.0), (3.0, 0.0)])
def test_the_ratio_is_that_of_the_student_to_its_teacher(own: float, within: float) -> None:
    checked = check_outside(SCHEMA, FRAME, 25, said(own), said(1.0), seed=0)
    assert checked is not None
    assert checked["probes"] == 25
    assert (checked["within"], checked["epistemic_within"]) == (within, within)
    assert (checked["low"], checked["high"]) == pytest.approx((own, own))


def test_excursions_go_two_ranges_beyond_what_was_seen() -> None:
    (age,) = excursions(SCHEMA, FRAME, ["colour", "age"], said(2.0), said(1.0), seed=0)
    assert (age["column"], age["seen"]) == ("age", [-1.0, 1.0])
    assert (age["values"][0], age["values"][-1]) == (-5.0, 5.0)
    np.testing.assert_allclose(age["student"], 2 * np.asarray(age["teacher"]))
    assert age["teacher"][0] > age["teacher"][10]
