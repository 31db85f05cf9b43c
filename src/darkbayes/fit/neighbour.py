"""The honest neighbour of a student: gradient boosting as scikit-learn has it, on the same rows, at its defaults.

It is what many would reach for first. It predicts means and probabilities; of numbers, the spread around them is that
of predictions by folds that had not seen the row, so that the rows held out are as new to it as to the student.
"""

import importlib.util
import math
from typing import Any

import numpy as np

from darkbayes.estimates import estimate
from darkbayes.fit.checks import as_numbers
from darkbayes.fit.prepare import Prepared
from darkbayes.metrics import Scores
from darkbayes.outcomes import Prediction
from darkbayes.tables.schema import Category, TableSchema

METHOD = "trees"
FOLDS = 3
DIGITS = 5  # To which scores are kept: sums over threads differ in the last ones.


class Trees:
    """Gradient boosting of rows that train and rows to predict, as `Target.by_trees` asks for it."""

    def __init__(self, prepared: Prepared, seed: int):
        schema: Any = prepared.schema
        self.train, self.new = (
            np.stack([as_numbers(column, frame) for column in schema.columns], axis=1)  # pyright: ignore[reportArgumentType]
            for frame in (prepared.train_frame, prepared.held_out_frame)
        )
        weights = getattr(prepared.train, "weights", None)
        self.fitting = {} if weights is None else {"sample_weight": np.asarray(weights)}
        self.settings: Any = {
            "categorical_features": [isinstance(column, Category) for column in schema.columns],
            "random_state": seed,
        }

    def probabilities(self, codes: np.ndarray, classes: int) -> np.ndarray:
        """Of each class in the new rows."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(**self.settings).fit(self.train, codes, **self.fitting)
        probs = np.zeros((len(self.new), classes))
        probs[:, model.classes_.astype(int)] = model.predict_proba(self.new)
        return probs

    def means(self, values: np.ndarray, loss: str = "squared_error") -> tuple[np.ndarray, np.ndarray]:
        """Of the new rows, and of those that train by folds without them."""
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.model_selection import KFold, cross_val_predict

        model: Any = HistGradientBoostingRegressor(loss=loss, **self.settings)  # pyright: ignore[reportArgumentType]
        folds = KFold(FOLDS, shuffle=True, random_state=self.settings["random_state"])
        before = cross_val_predict(model, self.train, values, cv=folds, params=self.fitting)
        return model.fit(self.train, values, **self.fitting).predict(self.new), np.asarray(before)


def neighbour(prepared: Prepared, seed: int) -> Prediction | None:
    """What gradient boosting says of the rows held out, in the target's own unit.

    None of images, and where scikit-learn is missing.
    """
    known = isinstance(prepared.schema, TableSchema) and prepared.held_out is not None
    if not known or importlib.util.find_spec("sklearn") is None:
        return None
    from threadpoolctl import threadpool_limits

    target: Any = prepared.schema.target
    # By one thread: more would wait for each other beside the chains, and sum in another order.
    with threadpool_limits(1, user_api="openmp"):
        return target.by_trees(Trees(prepared, seed), np.asarray(prepared.train.y))


def compared(trees: Prediction, student: Prediction, truth: np.ndarray) -> dict[str, Any]:
    """The neighbour's scores, and the student's log likelihood less its own, in a form for JSON."""

    def rounded(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")

    scores = Scores()
    scores.add(trees, truth)
    ahead = estimate(student.log_prob(truth) - trees.log_prob(truth))
    rows = [row | {"mean": rounded(row["mean"]), "se": rounded(row.get("se"))} for row in scores.rows(METHOD)]
    rows = [row for row in rows if row["mean"] is not None]
    return {"rows": rows, "ahead": [rounded(ahead.value), rounded(ahead.error)]}
