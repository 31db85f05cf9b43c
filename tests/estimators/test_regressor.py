"""`DistilledRegressor`: scikit-learn's own checks, and what it offers beyond them."""

import html
import logging
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import darkbayes as db
from darkbayes.progress import LOGGER
from darkbayes.shipped import Shipped
from darkbayes.tables import frame_of, from_columns
from houses import LONGER, ONE_NOISE, SMALL, houses, pass_check

LONGER, SMALL = LONGER | ONE_NOISE, SMALL | ONE_NOISE
pytestmark = pytest.mark.usefixtures("optimised")


@pytest.fixture(scope="module")
def regressor() -> db.DistilledRegressor:
    return db.DistilledRegressor(**LONGER | {"max_steps": 4_000, "student_hidden": (16,)}).fit(*houses(300))


@parametrize_with_checks([db.DistilledRegressor(**SMALL)])
def test_scikit_learn_finds_nothing_wrong(estimator: Any, check: Any) -> None:
    pass_check(estimator, check)


# What it offers


def test_a_frame_of_numbers_categories_text_and_truth_values_is_understood(regressor: db.DistilledRegressor) -> None:
    frame, price = houses(300, seed=1)
    assert regressor.feature_names_in_.tolist() == ["size", "kind", "town", "new"]
    assert regressor.schema_.shape == (1 + 1 + 2 + 2 + 2,)
    assert regressor.schema_.target.name == "price"
    assert regressor.score(frame, price) > 0.8
    assert any("'price' is a number" in note for note in regressor.notes_)
    assert any("the sampled network has a hidden layer of 4 (relu), one-noise" in note for note in regressor.notes_)
    assert (regressor.options_.likelihood, regressor.options_.head) == ("one-noise", "mixture")
    assert (regressor.choices_["steps"], regressor.choices_["burn_in"]) == (4000, 1333)
    assert regressor.diagnosis_["verdict"]["text"]
    one_by_one = np.concatenate([regressor.predict(frame[k : k + 1]) for k in range(3)])
    np.testing.assert_array_equal(one_by_one, regressor.predict(frame)[:3])
    unseen = frame.assign(town="nowhere", kind=None)
    assert np.isfinite(regressor.predict(unseen)).all()


def test_the_parts_of_a_variance_add_up_and_intervals_cover(regressor: db.DistilledRegressor) -> None:
    frame, price = houses(600, seed=2)
    mean, std = regressor.predict(frame, return_std=True)
    parts = regressor.decompose(frame)
    np.testing.assert_allclose(parts.total, std**2)
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total, rtol=1e-6)
    assert (parts.aleatoric > 0).all()
    assert (parts.epistemic > 0).all()
    ends = regressor.predict_interval(frame, level=0.9)
    assert ends.shape == (600, 2)
    # One noise level has to do for rows with a size and for the tenth without: at best it covers 94% of all.
    assert 0.89 <= np.mean((ends[:, 0] <= price) & (price <= ends[:, 1])) <= 0.98
    prediction = regressor.predict_dist(frame)
    weights, expected = (
        np.exp(prediction.log_weights.T[:, 0]),
        stats.norm(prediction.location.T[:, 0], prediction.spread.T[:, 0]),
    )
    np.testing.assert_allclose((weights * expected.mean()).sum(axis=0), mean)
    for end, share in zip(ends.T, (0.05, 0.95), strict=True):
        np.testing.assert_allclose((weights * expected.cdf(end)).sum(axis=0), share, rtol=1e-6)
    density = (weights * expected.pdf(price.to_numpy())).sum(axis=0)
    assert regressor.log_score(frame, price) == pytest.approx(np.log(density).mean())
    several = regressor.predict_interval(frame, level=(0.5, 0.9))
    assert several.shape == (600, 2, 2)
    np.testing.assert_array_equal(several[..., 1], ends)
    np.testing.assert_array_equal(several[..., 0], regressor.predict_interval(frame, level=0.5))
    for level in (90, (0.5, 90)):
        with pytest.raises(db.InvalidInput, match=r"level must lie between 0 and 1, not 90"):
            regressor.predict_interval(frame, level=level)
    with pytest.raises(db.InvalidInput, match=r"level=\[\] names none"):
        regressor.predict_interval(frame, level=[])


def test_a_target_that_is_better_modelled_by_its_logarithm_is_and_comes_back_in_its_unit() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(150, 2))
    y = np.exp(2 * X[:, 0] + 0.5 * rng.normal(size=150))
    model = db.DistilledRegressor(**LONGER).fit(X, y)
    prediction = model.predict_dist(X)
    assert prediction.logs == (True,)
    expected = stats.lognorm(prediction.spread.T[:, 0], scale=np.exp(prediction.location.T[:, 0]))
    weights = np.exp(prediction.log_weights.T[:, 0])
    point, std = model.predict(X, return_std=True)
    np.testing.assert_allclose((weights * expected.cdf(point)).sum(axis=0), 0.5)
    mean = prediction.mean[:, 0]
    np.testing.assert_allclose((weights * expected.mean()).sum(axis=0), mean)
    np.testing.assert_allclose((weights * (expected.var() + (expected.mean() - mean) ** 2)).sum(axis=0), std**2)
    assert (model.predict_interval(X) > 0).all()
    assert model.log_score(X, y) == pytest.approx(np.log((weights * expected.pdf(y)).sum(axis=0)).mean())
    parts = model.decompose(X)
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total, rtol=1e-6)


def test_grid_searches_pipelines_and_folds_compile_once(further_compilations: Counter[str]) -> None:
    """And so do other rows: 3 inputs are filled up to 8, as many as 4 and their flags are, and all rows to 256."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    pipeline = make_pipeline(StandardScaler(), db.DistilledRegressor(**SMALL | {"max_steps": 20}))
    pipeline.fit(X, X[:, 0]).predict(X)
    further_compilations.clear()
    search = GridSearchCV(pipeline, {"distilledregressor__max_steps": [20, 400]}, cv=2).fit(X, X[:, 0])
    assert search.best_score_ > 0.5
    assert len(cross_val_score(search.best_estimator_, X, X[:, 1], cv=2)) == 2
    X = rng.normal(size=(120, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    model = db.DistilledRegressor(**SMALL).fit(X, np.nan_to_num(X[:, 0]))
    assert model.params_[0].weight.shape == (8, 8)
    assert model.draws_.network[0].weight.shape[1:] == (4, 8)
    assert further_compilations == {}


def test_a_guarantee_is_calibrated_on_rows_of_its_own_and_goes_wherever_the_student_goes(tmp_path: Path) -> None:
    frame, price = houses(250, seed=3)
    fitted = db.DistilledRegressor(**SMALL, guarantee=0.8).fit(frame, price)
    guarantee = fitted.schema_.target.guarantee
    assert (guarantee.level, guarantee.rows) == (0.8, 50)
    assert "80% intervals hold the truth in at least 80% of new cases" in fitted.notes_[-1]
    new, truth = houses(2_000, seed=4)
    ends = fitted.predict_interval(new)
    held = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    # Over draws of the rows that calibrate it is Beta(41, 10): below with probability 1e-4, and above.
    low, high = stats.beta(41, 10).ppf([1e-4, 1 - 1e-4])
    assert low <= held <= high
    fitted.save(tmp_path / "saved")
    np.testing.assert_array_equal(db.DistilledRegressor.load(tmp_path / "saved").predict_interval(new), ends)
    shipped = Shipped("student.onnx", content=fitted.to_onnx())
    shown = shipped.predict(frame_of(from_columns(new), shipped.schema)).interval(0.8)
    np.testing.assert_allclose(np.concatenate(shown, axis=1), ends, rtol=1e-4, atol=1e-4)
    with pytest.raises(db.InvalidInput, match=r"guarantee=0.8 needs rows that nothing was learnt from, not a warm"):
        fitted.set_params(warm_start=True).fit(frame, price)
    # What it promised was of another student.
    fitted.set_params(guarantee=None, max_steps=1).fit(frame, price)
    assert fitted.schema_.target.guarantee is None
    assert not [note for note in fitted.notes_ if "hold the truth" in note]
    assert len(set(fitted.notes_)) == len(fitted.notes_)


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (0.99, "guarantee=0.99 needs 198 rows, half of them to calibrate it, not 100"),
        (1.0, "guarantee must lie between"),
    ],
)
def test_a_guarantee_that_rows_cannot_give_is_refused_before_anything_is_fitted(level: float, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.DistilledRegressor(**SMALL, guarantee=level).fit(*houses(100))


def test_a_warm_start_goes_on_from_what_was_learnt(regressor: db.DistilledRegressor) -> None:
    """So few steps that a student which began anew would know nothing."""
    frame, price = houses(100, seed=3)
    model = pickle.loads(pickle.dumps(regressor)).set_params(warm_start=True, max_steps=1)
    model.fit(frame, price)
    assert model.schema_ is not None
    assert model.schema_ == regressor.schema_
    changes = [
        np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (model.params_, regressor.params_)), strict=True)
    ]
    assert 0 < max(changes) < 0.2
    assert model.score(frame, price) > 0.8
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(frame.rename(columns={"town": "city"}), price)
    with pytest.raises(db.InvalidInput, match=r"y holds 1e\+06.*, and .* was learnt before: set warm_start=False"):
        model.fit(frame, price + 1e6)
    with pytest.raises(db.InvalidInput, match=r"hidden was \(4,\) and is now \(5,\): set it back, or set warm_start"):
        model.set_params(hidden=(5,)).fit(frame, price)


def test_a_saved_estimator_predicts_as_before(
    regressor: db.DistilledRegressor, tmp_path: Path, trees_equal: Any
) -> None:
    frame, _ = houses(20, seed=4)
    path = tmp_path / "model.safetensors"
    model = regressor
    model.save(path)
    again = type(model).load(path)
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert trees_equal((again.params_, again.draws_), (model.params_, model.draws_))
    assert again.get_params() == model.get_params()
    for name in ("schema_", "notes_", "options_", "choices_", "diagnosis_", "n_features_in_"):
        assert getattr(again, name) == getattr(model, name), name
    assert again.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_exported_student_agrees(regressor: db.DistilledRegressor) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    frame, _ = houses(50, seed=5)
    session = onnxruntime.InferenceSession(regressor.to_onnx(), providers=["CPUExecutionProvider"])
    columns = {name: frame[name].to_numpy() for name in ("size",)} | {
        name: frame[name].astype(str).str.lower().to_numpy(object) for name in ("kind", "town", "new")
    }
    mean, std = session.run(["mean", "std"], regressor.schema_.matrices(columns))
    expected = regressor.predict(frame, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, expected[1], rtol=1e-4)


def test_heavy_rows_decide_what_is_predicted() -> None:
    """Two lines through the same inputs: the posterior mean of repeated rows lies a tenth of the way between them."""
    X = np.linspace(-1, 1, 60)[:, None]
    twice, y = np.repeat(X, 2, axis=0), np.tile([0.0, 1.0], 60) + np.repeat(X[:, 0], 2)
    model = db.DistilledRegressor(**LONGER).fit(twice, y, sample_weight=np.tile([9.0, 1.0], 60))
    assert np.mean(model.predict(X) - X[:, 0]) == pytest.approx(0.1, abs=0.05)
    assert model.log_score(twice, y, sample_weight=np.tile([9.0, 1.0], 60)) > model.log_score(twice, y)


def test_a_fit_is_silent_unless_it_is_to_speak_and_callbacks_see_how_it_goes(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, price = houses(100)
    steps: list[Any] = []
    model = db.DistilledRegressor(**SMALL | {"max_steps": 20}, callbacks=[lambda snapshot: steps.append(snapshot.step)])
    model.fit(frame, price)
    assert steps == sorted(steps)
    assert steps[-1] == 20
    assert not caplog.records
    assert capsys.readouterr() == ("", "")
    model.set_params(verbose=True, callbacks=None).fit(frame, price)
    texts = [record.getMessage() for record in caplog.records if record.name == "darkbayes"]
    assert texts[: len(model.notes_)] == model.notes_
    assert any(text.startswith("20 of 20 steps, loss ") for text in texts)
    assert texts[-1] == model.diagnosis_["verdict"]["text"]
    assert capsys.readouterr() == ("", "")  # Whoever listens to the log is who hears.
    monkeypatch.setattr(LOGGER, "propagate", False)  # Nobody listens.
    model.fit(frame, price)
    assert "darkbayes: 20 of 20 steps" in capsys.readouterr().err
    assert (LOGGER.level, LOGGER.handlers) == (logging.NOTSET, [])
    page = model._repr_html_()
    assert "What was learnt of price" in page
    assert html.escape(model.notes_[-1]) in page
    assert "DistilledRegressor" in page
    assert repr(model.predict_dist(frame)) == "NumberPrediction of 100 rows"
    with pytest.raises(db.InvalidInput, match=r"callbacks must be a list of functions of a snapshot, not \['loud'\]"):
        model.set_params(callbacks=["loud"]).fit(frame, price)


# Bad input


@pytest.mark.parametrize(
    ("settings", "X", "y", "message"),
    [
        ({"hidden": 50}, None, None, r"hidden must be a sequence of widths such as \(50,\), not 50"),
        ({"chains": 0}, None, None, r"chains must be a whole number of at least 1, not 0"),
        ({"time_budget": -1}, None, None, r"time_budget \(in seconds, None for no limit\) must be a positive number"),
        ({"target_transform": "root"}, None, None, r"regression must be auto or none or log, not 'root'"),
        ({"missing": "NA"}, None, None, r"missing must be a list of texts, not 'NA'"),
        ({"day_first": "no"}, None, None, r"day_first must be True, False or None, not 'no'"),
        ({"kinds": ["a"]}, None, None, r"kinds must be a dict of column names and kinds, not \['a'\]"),
        ({}, pl.LazyFrame({"a": [1.0, 2.0] * 6}), [1.0, 2.0] * 6, r"X is not computed yet: give it after .collect\(\)"),
        ({"callbacks": len}, None, None, r"callbacks must be a list of functions of a snapshot"),
        ({}, np.asarray([[1, "a"]] * 12, object), None, r"X is an array with text in it .*: give a DataFrame"),
        ({}, None, ["pos", "neg"] * 6, r"y must hold numbers \(.*\): DistilledClassifier predicts classes"),
        ({}, None, pd.Series([pd.NaT, *pd.date_range("2020", periods=11)]), r"y holds dates or durations"),
        (
            {"likelihood": "softmax"},
            None,
            [0, 1, 2] * 4,
            r"not 'softmax': classes are predicted by Distilled",
        ),
        ({"decimal": ";"}, None, None, r"decimal must be a point or a comma, not ';'"),
        ({"max_steps": 0.5}, None, None, r"max_steps \(None for no limit\) must be a whole number"),
        ({}, None, [1.0] * 12, r"'y' is 1 in every row: there is nothing to learn"),
        (
            {},
            np.ones((12, 2)),
            None,
            r"no column to predict 'y' from: 'x0', 'x1' left out: every row has the same value",
        ),
        ({}, pd.DataFrame({"a": [1.0, np.inf] * 6}), None, r"infinite number, in row 1 of column 'a'"),
        ({}, pd.DataFrame({"a": [1.0]}), [1.0], r"X has shape \(1, 1\): give at least 2 rows"),
        ({}, None, [1.0, np.nan] * 6, r"Input y contains NaN"),
    ],
)
def test_what_cannot_be_used_is_named(settings: dict[str, Any], X: Any, y: Any, message: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2)) if X is None else X
    with pytest.raises(ValueError, match=message):
        db.DistilledRegressor(**SMALL | settings).fit(X, rng.normal(size=len(X)) if y is None else y)


def test_what_is_guessed_of_a_frame_can_be_said_and_is_kept(tmp_path: Path) -> None:
    rows = range(40)
    country = [("NA", "DE", "FR")[k % 3] for k in rows]
    texts = {"country": country, "sold": [f"{k % 12 + 1}/{k % 7 + 1}/2021" for k in rows]}
    frame = pd.DataFrame(texts | {"area": [f"1,{k % 9}00" for k in rows]})
    price = 1.0 + np.asarray([text == "NA" for text in country])
    said: Any = {"decimal": ",", "day_first": True, "missing": [], "target_transform": "log"}
    model = db.DistilledRegressor(**SMALL, **said).fit(frame, price)
    columns = {column.name: column for column in model.schema_.columns}
    assert columns["country"].categories == ("DE", "FR", "NA")
    assert columns["area"].high == 1.8
    assert model.schema_.sources[0].day_first
    assert model.schema_.target.transform == "log"
    assert not [note for note in model.notes_ if "guess" in note or "quick trial" in note]
    assert (model.predict(frame)[::3] > model.predict(frame)[1::3].max()).all()
    model.save(tmp_path / "model.safetensors")
    again = db.DistilledRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    shipped = Shipped(tmp_path / "student.onnx", content=model.to_onnx())
    prediction: Any = shipped.predict(frame_of(from_columns(frame), shipped.schema))
    np.testing.assert_allclose(prediction.aim[:, 0], model.predict(frame), rtol=1e-4)


def test_rows_that_count_are_a_column_like_any_other() -> None:
    """A file's first column may number its lines; a column that somebody chose is there to be read."""
    X = np.arange(30.0)[:, None]
    assert db.DistilledRegressor(**SMALL).fit(X, 3 * X[:, 0]).score(X, 3 * X[:, 0]) > 0.9


def test_scikit_learn_is_loaded_only_for_the_estimators() -> None:
    code = """
import sys
import darkbayes
darkbayes.Posterior
assert "sklearn" not in sys.modules
assert "DistilledRegressor" in dir(darkbayes)
sys.modules["sklearn.base"] = None
try:
    darkbayes.DistilledRegressor
except ImportError as problem:
    assert 'pip install "darkbayes[sklearn]"' in str(problem), problem
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
