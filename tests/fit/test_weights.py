"""Weights of rows and of classes, on their way to the teacher."""

from typing import Any

import numpy as np
import pytest

import darkbayes as db
from darkbayes.estimators.base import weighted_mean
from darkbayes.fit import prepare_table
from darkbayes.tables import from_columns
from darkbayes.types import WeightedData


def test_weights_reach_the_teacher_as_repeated_rows_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law of a weighted teacher is that of repeated rows (test_sharing.py); here, what it is given."""
    given: list[Any] = []

    def stop(data: Any, *_: Any, **__: Any) -> None:
        given.append(data)
        raise StopIteration

    monkeypatch.setattr("darkbayes.estimators.base.fit", stop)
    X, labels = np.random.default_rng(0).normal(size=(12, 2)), np.asarray(["a"] * 9 + ["b"] * 3)
    weights = np.arange(12.0)
    for model, y in ((db.DistilledRegressor(), X[:, 0]), (db.DistilledClassifier(class_weight="balanced"), labels)):
        with pytest.raises(StopIteration):
            model.fit(X, y, sample_weight=weights)
    numbers, classes = given
    assert isinstance(numbers, WeightedData)
    np.testing.assert_array_equal(numbers.weights, weights[1:])
    assert len(numbers.x) == len(numbers.y) == 11
    # 8 rows of a and 3 of b are left: a row of a counts for 11 / (2 * 8), one of b for 11 / (2 * 3).
    np.testing.assert_allclose(classes.weights, weights[1:] * np.where(labels[1:] == "a", 11 / 16, 11 / 6), rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 11, r"sample_weight has shape \(11,\): give one weight for each of 12 rows"),
        ([1.0] * 11 + [-2.0], r"sample_weight is -2 in row 11: a weight is a number from 0 to"),
        ([np.nan] + [1.0] * 11, r"sample_weight is missing in row 0"),
        ([1.0] * 11 + [1e10], r"sample_weight is 1e\+10 in row 11: a weight is a number from 0 to 1e\+09"),
        ([0.0] * 12, r"sample_weight is zero, or almost, in every row"),
        ([1e-50] * 12, r"sample_weight is zero, or almost, in every row"),
        (["heavy"] * 12, r"sample_weight must hold numbers"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights: list[Any], message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.DistilledRegressor().fit(np.zeros((12, 2)), np.arange(12.0), sample_weight=weights)
    with pytest.raises(db.InvalidInput, match=message):
        weighted_mean(np.arange(12.0), weights)


def test_a_column_of_a_table_may_hold_weights_and_classes_may_count_alike() -> None:
    columns = {"size": np.arange(24.0) % 7, "kind": ["a"] * 16 + ["b"] * 8, "weight": [0.0, 2.0] + [1.0] * 22}
    table = from_columns(columns)
    prepared = prepare_table(table, ["kind"], weights="weight", balanced=True, held_out=0.25, seed=1)
    assert list(prepared.train_frame or {}) == ["size"]
    assert prepared.facts["trained"] + prepared.facts["held_out"] == 23
    assert "rows of weight zero are left out: 1" in prepared.notes
    train: Any = prepared.train
    codes = np.asarray(train.y)
    expected = len(codes) / (2 * np.bincount(codes)[codes])
    heavy = np.asarray(train.weights) / expected
    assert sorted(set(heavy.round(6).tolist())) in ([1.0], [1.0, 2.0])  # The heavy row may be held out.
    for name, message in (("kind", "is the target"), ("wight", "did you mean 'weight'")):
        with pytest.raises(db.InvalidInput, match=message):
            prepare_table(table, ["kind"], weights=name)
    wrong = from_columns(columns | {"kind": [None, *columns["kind"][1:]], "weight": [1.0] * 9 + [-1.0] * 15})
    with pytest.raises(db.InvalidInput, match=r"the data: 'weight' is -1 in index 9"):
        prepare_table(wrong, ["kind"], weights="weight")
    with pytest.raises(db.InvalidInput, match=r"class weights need classes, but 'size' has none"):
        prepare_table(table, ["size"], task="regression", balanced=True)
