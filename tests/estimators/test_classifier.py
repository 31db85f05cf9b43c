"""`DistilledClassifier`: scikit-learn's own checks, and what it offers beyond them."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.utils.estimator_checks import estimator_checks_generator

import darkbayes as db
from darkbayes.files import write_arrays
from houses import LONGER, SMALL, houses, pass_check


@pytest.fixture(scope="module")
def classifier() -> db.DistilledClassifier:
    frame, price = houses(128)
    return db.DistilledClassifier(**LONGER).fit(frame, np.where(price > price.median(), "dear", "cheap"))


def checks_of_its_own() -> list[Any]:
    """Those of scikit-learn's checks that tell labels from numbers; regressors, of the same base, pass all others."""
    of_regressors = {check.func.__name__ for _, check in estimator_checks_generator(db.DistilledRegressor())}
    every = estimator_checks_generator(db.DistilledClassifier(**SMALL))
    return [check for _, check in every if check.func.__name__ not in of_regressors]


@pytest.mark.parametrize("check", checks_of_its_own(), ids=lambda check: check.func.__name__)
def test_scikit_learn_finds_nothing_wrong(check: Any) -> None:
    pass_check(db.DistilledClassifier(**SMALL), check)


# What it offers


def test_probabilities_are_of_the_labels_that_were_given(classifier: db.DistilledClassifier) -> None:
    frame, price = houses(300, seed=1)
    labels = np.where(price > houses(128)[1].median(), "dear", "cheap")
    assert classifier.classes_.tolist() == ["cheap", "dear"]
    assert classifier.score(frame, labels) > 0.85
    probs = classifier.predict_proba(frame)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-12)
    assert classifier.log_score(frame, labels) == pytest.approx(
        np.log(probs[np.arange(300), (labels == "dear") * 1]).mean()
    )
    prediction, parts = classifier.predict_dist(frame), classifier.decompose(frame)
    np.testing.assert_allclose(prediction.probs, probs, rtol=1e-5)
    np.testing.assert_allclose(parts.total, -(probs * np.log(probs)).sum(axis=1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total)
    with pytest.raises(db.InvalidInput, match=r"y holds 'free', which is none of the classes \['cheap', 'dear'\]"):
        classifier.log_score(frame[:1], ["free"])


def test_a_fit_that_fails_or_is_interrupted_leaves_what_was_learnt(classifier: db.DistilledClassifier) -> None:
    frame, _ = houses(20, seed=4)
    model, probs = copy.deepcopy(classifier), classifier.predict_proba(frame)
    numbers = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) % 3})

    def interrupt(snapshot: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(db.InvalidInput, match=r"guarantee=0\.99 needs 198 rows"):
        model.set_params(guarantee=0.99).fit(numbers, ["old", "new"] * 10)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(guarantee=None, callbacks=[interrupt]).fit(frame, ["old", "new"] * 10)
    assert model.classes_.tolist() == ["cheap", "dear"]
    np.testing.assert_array_equal(model.predict_proba(frame), probs)


def test_sets_of_classes_hold_the_truth_as_often_as_was_asked() -> None:
    frame, price = houses(400)
    noise = np.random.default_rng(99).random(2_400)
    labels = np.where((price > 0.7) ^ (noise[:400] < 0.3), "dear", "cheap")
    fitted = db.DistilledClassifier(**SMALL, guarantee=0.8).fit(frame, labels)
    new, price = houses(2_000, seed=5)
    labels = np.where((price > 0.7) ^ (noise[400:] < 0.3), "dear", "cheap")
    sets = fitted.predict_set(new)
    assert sets.any(axis=1).all()
    held = np.mean(sets[np.arange(2_000), np.searchsorted(fitted.classes_, labels)])
    assert held >= stats.beta(65, 16).ppf(1e-4)  # Of 80 rows that calibrate, the 65th is the bound.


@pytest.mark.parametrize("labels", [[False, True], [-1, 7], [0.0, 2.0], ["?", "NA"]])
def test_labels_may_be_of_any_kind(labels: list[Any], tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.asarray(labels)[(X[:, 0] > 0).astype(int)]
    model = db.DistilledClassifier(**SMALL).fit(X, y)
    assert model.classes_.tolist() == labels
    assert model.classes_.dtype == y.dtype
    assert model.score(X, y) > 0.8
    model.save(tmp_path / "model.safetensors")
    again = db.DistilledClassifier.load(tmp_path / "model.safetensors")
    assert again.classes_.dtype == y.dtype
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_files_that_hold_something_else_are_refused(classifier: db.DistilledClassifier, tmp_path: Path) -> None:
    with pytest.raises(db.RunError, match=r"nowhere is not there: name a file that DistilledRegressor\.save wrote"):
        db.DistilledRegressor.load(tmp_path / "nowhere")
    classifier.save(tmp_path / "classifier")
    with pytest.raises(db.RunError, match=r"holds a DistilledClassifier: load it by DistilledClassifier\.load"):
        db.DistilledRegressor.load(tmp_path / "classifier")
    write_arrays(tmp_path / "arrays", {"a": np.zeros(3)})
    (tmp_path / "text").write_text("hello")
    for name in ("arrays", "text"):
        with pytest.raises(
            db.RunError, match=rf"{name} should hold what DistilledRegressor\.save wrote, and holds none, or a dam"
        ):
            db.DistilledRegressor.load(tmp_path / name)


# Bad input


def test_a_missing_label_and_a_lone_class_are_named() -> None:
    X = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(db.InvalidInput, match=r"y has no label in row 2: leave out rows without one"):
        db.DistilledClassifier(**SMALL).fit(X, ["a", "b", None, "a", "b", "a"])
    with pytest.raises(db.InvalidInput, match=r"y has no label in row 1: leave out rows without one"):
        db.DistilledClassifier(**SMALL).fit(X, pd.Series(["a", pd.NA, "b", "a", "b", "a"], dtype="string"))
    with pytest.raises(db.InvalidInput, match=r"y holds one class only, 'a': give examples of at least two"):
        db.DistilledClassifier(**SMALL).fit(X, ["a"] * 6)
