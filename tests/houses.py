"""A small table for the tests of the estimators, settings with which they fit it in a moment, scikit-learn's checks."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

SMALL: dict[str, Any] = {
    "hidden": (4,),
    "activation": "relu",
    "student_hidden": (8,),
    "chains": 2,
    "max_steps": 500,
    "time_budget": None,
    "random_state": 0,
}
LONGER = SMALL | {"max_steps": 1500}
ONE_NOISE = {"likelihood": "one-noise"}
"""For numbers, so that none is chosen, which takes longer than these fits."""
LEARNING = (
    "check_class_weight_classifiers",
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_regressors_train",
)
"""Checks of scikit-learn's that ask how good predictions are; for all others next to no sampling will do."""
UNLIKE = {
    "check_sample_weight_equivalence_on_dense_data": "weighted and repeated rows have the same posterior, but not the "
    "same draws, nor the same bits in the mean and scale of a column"
}
"""Checks that no sampler passes, and why."""


def houses(rows: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers with some missing, categories, text and truth values; and a price that depends on all of them."""
    rng = np.random.default_rng(seed)
    size, kind = rng.uniform(-1, 1, rows), rng.choice(["flat", "house"], rows)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(rows) < 0.1, np.nan, size),
            "kind": pd.Categorical(kind),
            "town": rng.choice(["a", "b"], rows),
            "new": rng.random(rows) < 0.5,
        }
    )
    price = 2 * size + (kind == "house") + 0.5 * frame["new"].to_numpy() + 0.2 * rng.normal(size=rows)
    return frame, pd.Series(price, name="price")


def pass_check(estimator: Any, check: partial[None]) -> None:
    """One of scikit-learn's own checks, of an estimator that all of them are given."""
    if check.func.__name__ in UNLIKE:
        pytest.xfail(UNLIKE[check.func.__name__])
    if check.func.__name__ not in LEARNING:
        estimator = clone(estimator).set_params(max_steps=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some checks provoke warnings of scikit-learn's own.
        check(estimator)
