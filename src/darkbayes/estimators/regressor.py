"""The estimator of numbers."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite, check_consistent_length

from darkbayes.errors import InvalidInput, require_level
from darkbayes.estimators.base import (
    DistilledEstimator,
    as_before_if_refused,
    counted,
    one_per_row,
    target_names,
    weighted_mean,
)
from darkbayes.fit import infer_schema
from darkbayes.outcomes import OUTCOMES, ClassTarget, NumberTarget
from darkbayes.outcomes.base import AUTO
from darkbayes.tables.columns import from_columns
from darkbayes.tables.schema import FARTHEST

LIKELIHOODS = OUTCOMES.likelihoods(ClassTarget)
"""Those of what it predicts."""


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class DistilledRegressor(RegressorMixin, DistilledEstimator):
    """Predicts a number with its uncertainty, about apart into noise and what is not known for lack of data.

    A Bayesian neural network is sampled, and distilled while it is into one ordinary network, which predicts. All
    choices are made automatically.

    Args:
        hidden: the widths of the hidden layers of the network that is sampled; None for the simplest
            that predict rows set aside about best.
        activation: what comes after each of them, such as "silu", the default, or "relu".
        student_hidden: the widths of the network that predicts.
        chains: how many chains sample side by side; more of them show better whether they agree.
        effort: how much work to do, as a multiple of the usual amount, which follows from the size of the table.
        time_budget: the seconds that a fit may take; None for as long as it wants. A fit that it cuts short depends on
            the machine's speed.
        max_steps: the steps that each chain may take, on every machine alike; None for as many as are needed.
        likelihood: the distribution of the target that the sampled network predicts: one-noise or input-noise; for
            counts poisson or negative-binomial. None for the more general, unless the other predicts rows set aside
            clearly better.
        head: that of the student: mixture (the default) or gaussian.
        prior: the precision of the prior on biases; on weights it is so many times as large as a unit has inputs. None
            for one that predicts rows set aside about best, or the usual one where `hidden` is given.
        guarantee: the share of new rows whose truth intervals of that level are to hold, whatever the model; a fifth of
            the rows calibrate it, and nothing is learnt from them. None for the student's own intervals.
        kinds: what columns are, where it is not to be guessed: "number", "category", "date" or "text", by their names.
        decimal: what stands before decimals in texts, a point or a comma; None to find out.
        day_first: whether 3/4/2021 is in April; None to find out.
        missing: what texts say that a value is missing, beside empty ones: in columns of text all others are values.
            None for the usual ones, such as "NA", "None", "?" and "-".
        target_transform: what is modelled of the target: "none" for itself, "log" for its logarithm; "auto" for the one
            that does better in a quick trial.
        random_state: a number for results that can be repeated.
        warm_start: whether another `fit` goes on from what was learnt, on rows with the same columns: chains begin at
            draws that were kept, and find their settings and burn in anew; the student begins with its weights. What
            chains drew before counts no more.
        verbose: whether to say what is done and how far it is, by the log ``darkbayes``; where nobody listens to it, on
            standard error.
        callbacks: functions that are called about twice a second with where the fit stands
            (`darkbayes.student.Snapshot`: `step`, `loss`, `divergence`, and the `state`, whose arrays are only valid
            during the call). What one raises ends the fit.

    Attributes:
        schema_: what the columns are, and how the target is modelled.
        notes_: what was decided about the columns, in words.
        options_: what was chosen of the networks.
        choices_: how the teacher was run.
        diagnosis_: whether its chains agree and the student follows, as `darkbayes.student.Diagnosis.as_dict` tells it.
        params_, draws_: the weights of the student, and draws of the teacher's.
        n_features_in_, feature_names_in_: as in scikit-learn.
    """

    target_transform: Literal["auto", "none", "log"] = AUTO

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @as_before_if_refused
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows `X` and their numbers `y`, ``[rows]``, or several of each, ``[rows, targets]``.

        Args:
            X: the rows.
            y: the numbers.
            sample_weight: what each row counts for: its log likelihood is multiplied by it, so that a row of weight 2
                counts as two rows. None for 1.

        Returns:
            Itself.
        """
        if self.likelihood not in (None, *LIKELIHOODS):
            known = f"one of {', '.join(LIKELIHOODS)}, not {self.likelihood!r}"
            raise InvalidInput(f"likelihood must be {known}: classes are predicted by DistilledClassifier")
        X, y, weights = counted(X, y, sample_weight)
        table = self._read(X, reset=not self._goes_on())
        values = _numbers(self, X, y)
        if self._goes_on():
            if values.shape[1:] != (len(self._target.names),) * (values.ndim - 1):
                raise InvalidInput(f"y has shape {values.shape}, but {self._target.name} was learnt: give the same")
            self._require_similar(values)
            return self._learn(table, values, weights, self.schema_, self._split(table.rows))
        names = target_names(y, values, table)
        columns = from_columns(dict(zip(names, np.atleast_2d(values.T), strict=True))).columns
        together = dataclasses.replace(table, columns=table.columns | columns)
        split = self._split(table.rows)
        task = NumberTarget.task if self.likelihood is None else AUTO
        kind = OUTCOMES.kind(columns, task, [], self.likelihood)
        rows: Any = {"usable": np.arange(table.rows), "rows": split[0]}
        how: Any = {"chosen": True, "transform": self.target_transform}
        schema, _, self.notes_ = infer_schema(together, names, kind, **rows, **how)
        return self._learn(table, values, weights, schema, split)

    def _require_similar(self, values: np.ndarray) -> None:
        """Refuse to go on with targets that are nothing like those that were learnt, in whose unit networks speak."""
        for known, own in zip(self._target.ranges, values.reshape(len(values), -1).T, strict=True):
            room = FARTHEST * (known["high"] - known["low"])
            far = own[(own < known["low"] - room) | (own > known["high"] + room)]
            if len(far):
                seen = f"{known['low']:g} to {known['high']:g}"
                raise InvalidInput(f"y holds {far[0]:g}, and {seen} was learnt before: set warm_start=False")

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of each row's target, or the median of one that is modelled by its logarithm.

        Args:
            X: the rows, with the columns of the fit.
            return_std: whether standard deviations are wanted as well.

        Returns:
            Points, or points and standard deviations; ``[rows]``, or ``[rows, targets]`` of several targets.
        """
        prediction = self.predict_dist(X)
        return tuple(map(_flat, (prediction.aim, prediction.std))) if return_std else _flat(prediction.aim)

    def predict_interval(self, X: Any, level: float | Sequence[float] | None = None) -> np.ndarray:
        """Central intervals of each row's target.

        Args:
            X: the rows, with the columns of the fit.
            level: the probability that they hold, or several; by default that of the guarantee, or 0.9.

        Returns:
            Their ends, ``[rows, 2]``, or ``[rows, targets, 2]`` of several targets; several levels have a last axis.
        """
        levels = () if level is None else tuple(np.ravel(level).tolist())
        if level is not None and not levels:
            raise InvalidInput("level=[] names none: give a share such as 0.9, or several")
        for one in levels:
            require_level("level", one)
        prediction = self.predict_dist(X)
        intervals = [prediction.interval(one) for one in levels or (self._target.level,)]
        ends = [np.stack([_flat(low), _flat(high)], axis=-1) for low, high in intervals]
        return ends[0] if level is None or np.ndim(level) == 0 else np.stack(ends, axis=-1)

    def log_score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean log density of the rows' numbers in their own unit; larger is better.

        Args:
            X: the rows, with the columns of the fit.
            y: their numbers.
            sample_weight: what each row counts for; None for 1.

        Returns:
            The score, in nats.
        """
        scores = self.predict_dist(X).log_prob(self._target.truth(_numbers(self, X, y)))
        return weighted_mean(scores, sample_weight)


def _flat(values: np.ndarray) -> np.ndarray:
    """Without the axis of the targets where there is one alone."""
    return values[:, 0] if values.shape[1] == 1 else values


def _numbers(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """The targets as numbers, one for each row, or several."""
    targets = None if y is None else np.asarray(y)
    if targets is not None and targets.ndim == 2 and targets.shape[1] > 1:
        check_consistent_length(X, targets)
    else:
        targets = one_per_row(estimator, X, y)
    if targets.dtype.kind in "mM":
        raise InvalidInput(f"y holds dates or durations ({targets.dtype}): turn them into numbers")
    if np.iscomplexobj(targets):
        raise InvalidInput(f"Complex data not supported: y has type {targets.dtype}")
    assert_all_finite(targets, input_name="y")
    try:
        targets = targets.astype(np.float64)
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"y must hold numbers ({problem}): DistilledClassifier predicts classes") from None
    assert_all_finite(targets, input_name="y")
    return targets
