"""The estimator of classes."""

import dataclasses
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from darkbayes.errors import InvalidInput
from darkbayes.estimators.base import (
    DistilledEstimator,
    as_before_if_refused,
    counted,
    one_per_row,
    target_names,
    weighted_mean,
)
from darkbayes.fit import check_weights
from darkbayes.outcomes import ClassTarget
from darkbayes.tables.cells import is_missing, text_of
from darkbayes.tables.inference import infer_inputs


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class DistilledClassifier(ClassifierMixin, DistilledEstimator):
    """Predicts classes with probabilities that mean what they say.

    A Bayesian neural network is sampled, and distilled while it is into one ordinary network, which predicts. All
    choices are made automatically.

    Args:
        hidden, activation, student_hidden, chains, effort, time_budget, max_steps: as of `DistilledRegressor`.
        kinds, decimal, day_first, missing: as of `DistilledRegressor`.
        random_state, warm_start, verbose, callbacks: likewise.
        likelihood, head: softmax is all there is.
        prior: as of `DistilledRegressor`.
        guarantee: the share of new rows whose true class `predict_set` is to name, as of `DistilledRegressor`.
        class_weight: what each row of a class counts for, by its label, times its own weight; "balanced" for weights by
            which all classes count alike, and rows 1 on average. Probabilities are then those of a world with such
            shares of the classes.

    Attributes:
        classes_: the labels, in the order of the probabilities; all others as of `DistilledRegressor`.
    """

    class_weight: Any = None

    @as_before_if_refused
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows `X` and their labels `y`.

        Args:
            X: the rows.
            y: the labels.
            sample_weight: what each row counts for, as of `DistilledRegressor.fit`.

        Returns:
            Itself.
        """
        X, y, weights = counted(X, y, sample_weight)
        table = self._read(X, reset=not self._goes_on())
        labels = _labels(self, X, y)
        if self.class_weight is not None:
            by_class = check_weights("class_weight", compute_sample_weight(self.class_weight, labels), len(labels))
            weights = by_class if weights is None else by_class * weights
        if self._goes_on():
            codes, schema, split = self._codes(labels), self.schema_, self._split(table.rows)
        else:
            self.classes_, codes = np.unique(labels, return_inverse=True)
            if len(self.classes_) == 1:
                (only,) = self.classes_.tolist()
                raise InvalidInput(f"y holds one class only, {only!r}: give examples of at least two classes")
            (name,), split = target_names(y, labels, table), self._split(len(codes), codes)
            rows = np.arange(table.rows)
            schema, self.notes_ = infer_inputs(table, [name], usable=rows, rows=split[0], chosen=True)
            kinds: Any = {"b": "boolean", "i": "integer", "u": "integer"}
            names = (str(text_of(label) if isinstance(label, Real) else label) for label in self.classes_.tolist())
            target = ClassTarget(name, tuple(names), kinds.get(self.classes_.dtype.kind, "text"))
            schema = dataclasses.replace(schema, target=target)
        return self._learn(table, np.asarray(schema.target.classes, object)[codes], weights, schema, split)

    def _stored(self) -> dict[str, Any]:
        labels, stored = self.classes_.tolist(), super()._stored()
        if not all(isinstance(label, str | bool | int | float) for label in labels):
            raise InvalidInput(f"the classes {labels} cannot be saved without pickle: use strings or numbers")
        if isinstance(self.class_weight, dict):
            stored["settings"]["class_weight"] = list(self.class_weight.items())  # Whose names need not be texts.
        return stored | {"classes": labels, "classes_type": self.classes_.dtype.str}

    @classmethod
    def _restored(cls, about: dict[str, Any]) -> Self:
        made = super()._restored(about)
        if isinstance(made.class_weight, tuple):
            made.class_weight = dict(made.class_weight)
        made.classes_ = np.asarray(about["classes"], about["classes_type"])
        return made

    def _codes(self, labels: np.ndarray) -> np.ndarray:
        """The number of each label in `classes_`."""
        unknown, known = labels[~np.isin(labels, self.classes_)].tolist(), self.classes_.tolist()
        if unknown:
            raise InvalidInput(f"y holds {unknown[0]!r}, which is none of the classes {known}")
        return np.searchsorted(self.classes_, labels)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row.

        Args:
            X: the rows, with the columns of the fit.

        Returns:
            Members of `classes_`, ``[rows]``.
        """
        best = np.argmax(self.predict_log_proba(X), axis=1)  # Before the classes: an estimator may not be fitted.
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class.

        Args:
            X: the rows, with the columns of the fit.

        Returns:
            Probabilities in the order of `classes_`, ``[rows, classes]``.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_set(self, X: Any) -> np.ndarray:
        """Which classes may be true of each row.

        With `guarantee` the sets hold the true class of at least that share of new rows. Without it, they are the most
        probable classes that have a probability of 0.9 together.

        Args:
            X: the rows, with the columns of the fit.

        Returns:
            Truth values in the order of `classes_`, ``[rows, classes]``.
        """
        return self.predict_dist(X).sets(self._target.level)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of the probabilities, which are finite where these are too small to tell from zero.

        Args:
            X: the rows, with the columns of the fit.

        Returns:
            Logarithms in the order of `classes_`, ``[rows, classes]``.
        """
        logs = self.predict_dist(X).log_probs
        # The student adds up in single precision.
        return logs - np.log(np.sum(np.exp(logs), axis=1, keepdims=True))

    def log_score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean log probability of the rows' labels; larger is better.

        Args:
            X: the rows, with the columns of the fit.
            y: their labels.
            sample_weight: what each row counts for; None for 1.

        Returns:
            The score, in nats.
        """
        logs = self.predict_log_proba(X)
        codes = self._codes(_labels(self, X, y))
        return weighted_mean(logs[np.arange(len(codes)), codes], sample_weight)


def _labels(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """The labels, one for each row."""
    targets = one_per_row(estimator, X, y)
    if targets.dtype.kind in "fc":
        assert_all_finite(targets, input_name="y")
    else:
        lost = [row for row, label in enumerate(targets.tolist()) if is_missing(label, frozenset())]
        if lost:
            raise InvalidInput(f"y has no label in row {lost[0]}: leave out rows without one")
    check_classification_targets(targets)
    return targets
