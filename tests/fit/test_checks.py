"""What a fit finds out beside the student: leaks, drift, what columns are worth, and a neighbour to compare with."""

from typing import Any

import numpy as np
import pytest

from darkbayes.fit import prepare_table
from darkbayes.fit.checks import drift, leaks
from darkbayes.fit.insights import importance
from darkbayes.fit.neighbour import compared, neighbour
from darkbayes.outcomes.number import NumberPrediction
from darkbayes.tables import from_columns

ROWS = 300


def table(**more: Any) -> Any:
    """A number and a class that depend on two of three columns, in no order."""
    rng = np.random.default_rng(0)
    size, town, price = rng.normal(size=ROWS), rng.choice(["a", "b", "c"], ROWS), rng.normal(size=ROWS)
    price += 2 * size + (town == "b")
    columns = {"size": size, "town": town, "noise": rng.normal(size=ROWS), "price": price}
    return from_columns(
        columns | {"dear": np.where(price > 0, "yes", "no"), "visits": rng.poisson(np.exp(size))} | more
    )


def prepared(target: str, **more: Any) -> Any:
    others = [name for name in ("price", "dear", "visits") if name != target]
    return prepare_table(table(**more), [target], ignore=others)


def test_a_column_that_gives_the_target_away_is_found_and_no_other() -> None:
    price = table().columns["price"].values
    assert leaks(prepared("price")) == leaks(prepared("dear")) == []
    (leak,) = leaks(prepared("price", tax=0.19 * price))
    assert leak["column"] == "tax"
    assert leak["alone"] > 0.98
    assert 0.5 < leak["next"] < 0.9  # Of size, which explains 4 of 5.2 parts.
    (leak,) = leaks(prepared("dear", paid=np.where(price > 0, "cash", "never")))
    assert leak["column"] == "paid"
    # Where others give it away as well, it is easy to predict.
    assert leaks(prepared("price", tax=0.19 * price, fee=price + 0.5 * np.sin(17 * np.arange(ROWS)))) == []


def test_rows_that_change_along_the_file_are_found_and_chance_is_not() -> None:
    assert drift(prepared("price")) == []
    place = np.arange(ROWS) / ROWS
    changing = prepared("price", year=place + 0.1 * np.sin(np.arange(ROWS)), shop=np.where(place < 0.5, "old", "new"))
    assert {one["column"] for one in drift(changing)} == {"shop", "year"}
    assert drift(changing)[0]["by"] == 1.0
    higher = prepared("price", price=table().columns["price"].values + 6 * place)
    assert [one["column"] for one in drift(higher)] == ["price"]


def test_a_column_is_worth_what_is_lost_without_it() -> None:
    """Of a prediction that is right, y ~ N(2 x, 1), shuffling x loses the mean of (2 x - 2 x')^2 / 2: 4 nats."""
    rng = np.random.default_rng(1)
    frame: Any = {"x": rng.normal(size=1000), "z": rng.normal(size=1000)}
    truth = (2 * frame["x"] + rng.normal(size=1000))[:, None]

    def predict(rows: Any) -> NumberPrediction:
        mean = 2 * rows["x"][None, :, None]
        return NumberPrediction.standard(np.zeros_like(mean), mean, np.ones_like(mean))

    first, second = importance(["z", "x"], frame, truth, predict)
    assert (first["column"], second) == ("x", {"column": "z", "mean": 0.0, "se": 0.0})
    assert first["mean"] == pytest.approx(4.0, abs=4 * first["se"])
    assert 0 < first["se"] < 0.5


@pytest.mark.parametrize("target", ["price", "dear", "visits"])
def test_the_neighbour_is_what_scikit_learn_fits_to_the_same_rows(target: str) -> None:
    ensemble = pytest.importorskip("sklearn.ensemble", reason="needs scikit-learn")
    given = prepared(target)
    said, truth = neighbour(given, seed=0), given.truth
    frames = [given.train_frame, given.held_out_frame]
    codes = {"a": 0.0, "b": 1.0, "c": 2.0}
    x, new = (
        np.stack([frame["size"], [codes[town] for town in frame["town"]], frame["noise"]], axis=1) for frame in frames
    )
    kinds: Any = {"categorical_features": [False, True, False], "random_state": 0}
    y = np.ravel(given.train.y)
    assert said is not None
    if target == "dear":
        model = ensemble.HistGradientBoostingClassifier(**kinds).fit(x, y)
        np.testing.assert_allclose(said.aim, model.predict_proba(new))
    else:
        loss = "poisson" if target == "visits" else "squared_error"
        mean = ensemble.HistGradientBoostingRegressor(loss=loss, **kinds).fit(x, y.astype(np.float64)).predict(new)
        unit = given.schema.target
        expected = mean if target == "visits" else unit.center + unit.scale * mean
        np.testing.assert_allclose(said.aim[:, 0], expected, rtol=1e-6)
        # By folds, the spread is that of new rows: on training rows it would be far smaller.
        wrong = np.mean((np.ravel(truth) - expected) ** 2)
        assert 0.4 < np.mean(said.std**2) / wrong < 2.5
    facts = compared(said, said, truth)
    assert facts["ahead"] == [0.0, 0.0]
    scores = {row["metric"]: row["mean"] for row in facts["rows"]}
    assert scores["log_likelihood"] == pytest.approx(np.mean(said.log_prob(truth)), rel=1e-4)
