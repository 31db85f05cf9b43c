"""scikit-learn estimators: a table in, one ordinary network out that knows what it does not know.

`DistilledRegressor` and `DistilledClassifier` fit as ``darkbayes fit`` does (`darkbayes.fit`), with nothing to choose.
They take arrays of numbers, NaN where one is missing, and frames of pandas, polars and pyarrow, whose columns may also
be categories, dates, text or truth values. What was found out of the columns is in `notes_`, how the teacher was run in
`choices_`, and whether its chains agree in `diagnosis_`.
"""

import dataclasses
import json
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from darkbayes.checkpoints import named_leaves, restored_arrays
from darkbayes.compiled import keep_compiled
from darkbayes.errors import InvalidInput, RunError, require_share
from darkbayes.export import to_onnx
from darkbayes.files import read_told, write_arrays
from darkbayes.fit import (
    Options,
    Start,
    fit,
    hold_out,
    infer_schema,
    make_posterior,
    make_student,
    predicted_by_student,
    table_queries,
)
from darkbayes.outcomes import OUTCOMES, ClassTarget, NumberTarget
from darkbayes.outcomes.base import AUTO
from darkbayes.outcomes.guarantee import rows_needed
from darkbayes.student import Student
from darkbayes.tables.cells import arrow, text_of
from darkbayes.tables.columns import Table, frame_of, from_columns
from darkbayes.tables.guessing import Wishes
from darkbayes.tables.inference import infer_inputs
from darkbayes.tables.schema import Frame, TableSchema, schema_from_dict, schema_to_dict
from darkbayes.types import Data
from darkbayes.version import __version__

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError('the estimators need scikit-learn 1.6 or newer: pip install "darkbayes[sklearn]"') from None

CALIBRATING = 0.2  # The share of the rows that calibrates a guarantee.
LEAST_ROWS = 2  # Rows that an estimator must be given to learn from.
ESTIMATOR = "darkbayes.estimator"  # Under which name a saved file says what it holds.


class Decomposition(NamedTuple):
    """Uncertainty and its parts, one value per row: variances of a number, entropies in nats of a class."""

    total: np.ndarray
    aleatoric: np.ndarray  # What would remain with any amount of data: noise.
    epistemic: np.ndarray  # What more data could remove.


class _Distilled(BaseEstimator):
    """What both estimators share: from columns to a student, and files."""

    schema_: TableSchema
    notes_: list[str]
    options_: Options
    choices_: dict[str, Any]
    diagnosis_: dict[str, Any]
    params_: Any
    draws_: Any
    classes_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] | None = None,
        activation: str | None = None,
        student_hidden: tuple[int, ...] = (128, 128, 128),
        chains: int = 8,
        effort: float = 1.0,
        time_budget: float | None = 900.0,
        max_steps: int | None = None,
        likelihood: str | None = None,
        head: str | None = None,
        prior: float | None = None,
        guarantee: float | None = None,
        kinds: Mapping[str, str] | None = None,
        random_state: Any = None,
        warm_start: bool = False,
    ):
        self.hidden = hidden
        self.activation = activation
        self.student_hidden = student_hidden
        self.chains = chains
        self.effort = effort
        self.time_budget = time_budget
        self.max_steps = max_steps
        self.likelihood = likelihood
        self.head = head
        self.prior = prior
        self.guarantee = guarantee
        self.kinds = kinds
        self.random_state = random_state
        self.warm_start = warm_start

    def __sklearn_tags__(self) -> Any:
        # They speak of arrays, which hold numbers; frames may hold more.
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _options(self) -> Options:
        return Options(**_with_tuples({field.name: getattr(self, field.name) for field in dataclasses.fields(Options)}))

    def _goes_on(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "schema_")

    def _read(self, X: Any, *, reset: bool) -> Table:
        """The columns of `X`, checked as scikit-learn does; when fitting, with `reset`, their names are kept."""
        least = LEAST_ROWS if reset else 1
        if hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "__arrow_c_stream__")):
            validate_data(self, X, reset=reset, skip_check_array=True)
            columns = [X.iloc[:, k] for k in range(X.shape[1])] if hasattr(X, "iloc") else arrow().table(X).columns
            if X.shape[0] < least or not columns:
                raise InvalidInput(f"X has shape {X.shape}: give at least {least} rows and 1 column")
        else:
            how: Any = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "ensure_min_samples": least}
            columns = list(np.asarray(validate_data(self, X, reset=reset, **how)).T)
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(len(columns))])
        wishes = Wishes(self.kinds or {}) if reset else None
        table = from_columns(dict(zip(names, columns, strict=True)), source="X", wishes=wishes)
        for name, column in table.columns.items():
            if column.kind == "number" and np.isinf(column.values).any():
                row = int(np.flatnonzero(np.isinf(column.values))[0])
                raise InvalidInput(f"X holds an infinite number, in row {row} of column {name!r}: correct or remove it")
        return table

    def _split(self, rows: int, strata: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The rows to learn from, and those that calibrate the guarantee, if there is to be one."""
        everything = np.arange(rows)
        if self.guarantee is None:
            return everything, everything[:0]
        level = require_share("guarantee", self.guarantee)
        if self._goes_on():
            remedy = "set warm_start=False, or guarantee=None"
            raise InvalidInput(f"guarantee={level} needs rows that nothing was learnt from, not a warm start: {remedy}")
        number, needed = max(round(CALIBRATING * rows), rows_needed(level)), 2 * rows_needed(level)
        if number > rows / 2:
            raise InvalidInput(f"guarantee={level} needs {needed} rows, half of them to calibrate it, not {rows}")
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return hold_out(rows, number / rows, seed, strata)

    def _learn(
        self, table: Table, values: np.ndarray, schema: TableSchema, rows: tuple[np.ndarray, np.ndarray]
    ) -> Self:
        """Fit to columns and the values of the target, as its `encode` takes them, split as `_split` has it."""
        options, start = self._options(), None
        keep_compiled()
        if self._goes_on():
            for name in ("hidden", "activation", "student_hidden", "likelihood", "head", "prior"):
                before, wanted = getattr(self.options_, name), getattr(options, name)
                if wanted is not None and wanted != before:
                    raise InvalidInput(
                        f"warm_start goes on with the same networks, but {name} was {before} and is now {wanted}: set "
                        "it back, or set warm_start=False"
                    )
                options = dataclasses.replace(options, **{name: before})
            start = Start(self.draws_, self.params_)
        train, held = rows
        x, target = schema.encode(frame_of(table, schema)), schema.target
        data: Any = Data(x[train], target.encode(values[train]))  # pyright: ignore[reportArgumentType]
        key = jax.random.key(int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)))
        fitted = fit(data, target, key, options, queries=table_queries(schema), start=start)
        self.schema_ = schema
        self.params_, self.draws_ = jax.tree.map(np.asarray, (fitted.params, fitted.draws))
        self.options_, self.choices_ = fitted.options, fitted.choices
        self.notes_ = [*self.notes_, *fitted.notes]
        self.diagnosis_ = fitted.diagnosis.as_dict()
        if self.guarantee is not None:
            said = self._said(x[held])
            target = target.guaranteed(said, target.truth(values[held]), self.guarantee)
            self.schema_ = dataclasses.replace(schema, target=target)
            self.notes_.append(f"{target.promise}; {target.change(said)}")
        return self

    @property
    def _target(self) -> Any:
        return self.schema_.target

    def _student(self) -> Student:
        return make_student(self._target, self.options_, 1)

    def predict_dist(self, X: Any) -> Any:
        """What is believed of the target of each row of `X`.

        It is a prediction (`darkbayes.outcomes`): of numbers it has ``cdf``, ``quantile``, ``interval`` and
        ``log_prob``, of classes ``probs`` and ``log_prob``.
        """
        frame = self._frame(X)
        keep_compiled()
        return self._said(self.schema_.encode(frame))

    def _said(self, x: np.ndarray) -> Any:
        """What the student says of encoded rows."""
        return self._target.own_unit(predicted_by_student(self._student(), self.params_, x))

    def outside(self, X: Any) -> np.ndarray:
        """What of each row is unlike all that was seen at `fit`, in words; None where nothing is, ``[rows]``."""
        frame = self._frame(X)
        return self.schema_.outside(frame)["outside"]

    def _frame(self, X: Any) -> Frame:
        check_is_fitted(self)
        return frame_of(self._read(X, reset=False), self.schema_)

    def decompose(self, X: Any) -> Decomposition:
        """The uncertainty of each row's target, and its parts, which add up; of several numbers, means over them."""
        noise, doubt = self.predict_dist(X).parts
        return Decomposition(noise + doubt, noise, doubt)

    def to_onnx(self) -> bytes:
        """The fitted student as an ONNX file, which reads the columns as they are (`darkbayes.export`)."""
        check_is_fitted(self)
        return to_onnx(self._student(), self.params_, self.schema_)

    def save(self, path: Path | str) -> None:
        """Write the fitted estimator as one safetensors file, which `load` reads; nothing is pickled."""
        check_is_fitted(self)
        settings = self.get_params()
        if not isinstance(settings["random_state"], Integral):
            settings["random_state"] = None  # A generator is no part of what was learnt.
        about = {
            "class": type(self).__name__,
            "version": __version__,
            "settings": settings,
            "names": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
            "features": self.n_features_in_,
            "schema": schema_to_dict(self.schema_),
            "notes": self.notes_,
            "options": dataclasses.asdict(self.options_),
            "choices": self.choices_,
            "diagnosis": self.diagnosis_,
            "draws": len(jax.tree.leaves(self.draws_)[0]),
        }
        if hasattr(self, "classes_"):
            values = self.classes_.tolist()
            if not all(isinstance(value, str | bool | int | float) for value in values):
                raise InvalidInput(f"the classes {values} cannot be saved without pickle: use strings or numbers")
            about |= {"classes": values, "classes_type": self.classes_.dtype.str}
        weights = named_leaves({"student": self.params_, "draws": self.draws_})
        write_arrays(Path(path), weights, {ESTIMATOR: json.dumps(about, default=lambda value: value.item())})

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """A fitted estimator from a file that `save` wrote."""
        if not (path := Path(path)).is_file():
            raise RunError(f"{path} is not there: name a file that {cls.__name__}.save wrote")
        about = json.loads(read_told(path).get(ESTIMATOR, "{}"))
        if about.get("class") != cls.__name__:
            holds = f"a {about['class']}: load it by {about['class']}.load" if "class" in about else "no estimator"
            raise RunError(f"{path} holds {holds}, not what {cls.__name__}.save wrote")
        made = cls(**_with_tuples(about["settings"]))
        made.n_features_in_, made.schema_ = about["features"], schema_from_dict(about["schema"])
        # Version 0.1 had no choice of networks, and the last of today's heads.
        old = about["settings"] | {"activation": "relu", "head": made.schema_.target.heads[-1]}
        known = {field.name for field in dataclasses.fields(Options)}
        stored = {name: each for name, each in about.get("options", old).items() if name in known}
        made.options_ = Options(**_with_tuples(stored))
        if about["names"] is not None:
            made.feature_names_in_ = np.asarray(about["names"], object)
        made.notes_, made.choices_, made.diagnosis_ = about["notes"], about["choices"], about["diagnosis"]
        if "classes" in about:
            made.classes_ = np.asarray(about["classes"], about["classes_type"])
        weights = restored_arrays(path, made._like(about["draws"]))
        if weights is None:
            raise RunError(f"{path} holds weights that do not fit what it says of itself: save the estimator again")
        made.params_, made.draws_ = (jax.tree.map(np.asarray, weights[name]) for name in ("student", "draws"))
        return made

    def _like(self, number: int) -> dict[str, Any]:
        """Weights of the right shapes: the student's, and so many draws."""
        x = np.zeros((1, *self.schema_.shape), np.float32)
        posterior = make_posterior(Data(x, x), self._target, self.options_.model(self._target))  # pyright: ignore[reportArgumentType]
        key = jax.random.key(0)
        params, draw = jax.eval_shape(lambda: (self._student().init(key, x), posterior.init(key, x)))  # pyright: ignore[reportArgumentType]
        draws = jax.tree.map(lambda leaf: np.zeros((number, *leaf.shape), leaf.dtype), draw)
        return {"student": jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params), "draws": draws}


def _with_tuples(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings from JSON, which has lists in place of tuples."""
    return {name: tuple(each) if isinstance(each, list) else each for name, each in settings.items()}


class DistilledRegressor(RegressorMixin, _Distilled):
    """Predicts a number with its uncertainty, about apart into noise and what is not known for lack of data.

    A Bayesian neural network is sampled, and distilled while it is into one ordinary network, which predicts. All
    choices are made automatically; the target is modelled by its logarithm where that does better.

    Args:
        hidden: the widths of the hidden layers of the network that is sampled; None for those that predict best on
            rows set aside.
        activation: what comes after each of them, such as "silu", the default, or "relu".
        student_hidden: the widths of the network that predicts.
        chains: how many chains sample side by side; more of them show better whether they agree.
        effort: how much work to do, as a multiple of the usual amount, which follows from the size of the table.
        time_budget: the seconds that a fit may take; None for as long as it wants. A fit that it cuts short depends on
            the machine's speed.
        max_steps: the steps that each chain may take, on every machine alike; None for as many as are needed.
        likelihood: how the sampled network speaks of the target: one-noise or input-noise; poisson or
            negative-binomial for counts. None for the one that predicts best on rows set aside.
        head: how the student does: mixture (the default) or gaussian.
        prior: the precision of the prior on biases; on weights it is so many times as large as a unit has inputs. None
            for the one that predicts best on rows set aside, or the usual one where `hidden` is given.
        guarantee: the share of new rows whose truth intervals of that level are to hold, whatever the model; a fifth of
            the rows calibrate it, and nothing is learnt from them. None for the student's own intervals.
        kinds: what columns are, where it is not to be guessed: "number", "category", "date" or "text", by their names.
        random_state: a number for results that can be repeated.
        warm_start: whether another `fit` goes on from what was learnt, on rows with the same columns.

    Attributes:
        schema_: what the columns are, and how the target is modelled.
        notes_: what was decided about the columns, in words.
        options_: what was chosen of the networks.
        choices_: how the teacher was run.
        diagnosis_: whether its chains agree and the student follows, as `darkbayes.student.Diagnosis.as_dict` tells it.
        params_, draws_: the weights of the student, and draws of the teacher's.
        n_features_in_, feature_names_in_: as in scikit-learn.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows `X` and their numbers `y`, ``[rows]``, or several of each, ``[rows, targets]``."""
        table = self._read(X, reset=not self._goes_on())
        values = _numbers(self, X, y)
        if self._goes_on():
            if values.shape[1:] != (len(self._target.names),) * (values.ndim - 1):
                raise InvalidInput(f"y has shape {values.shape}, but {self._target.name} was learnt: give the same")
            return self._learn(table, values, self.schema_, self._split(table.rows))
        names = _target_names(y, values, table)
        columns = from_columns(dict(zip(names, np.atleast_2d(values.T), strict=True))).columns
        together = dataclasses.replace(table, columns=table.columns | columns)
        split = self._split(table.rows)
        task = NumberTarget.task if self.likelihood is None else AUTO
        kind = OUTCOMES.kind(columns, task, [], self.likelihood)
        schema, _, self.notes_ = infer_schema(
            together, names, kind, usable=np.arange(table.rows), rows=split[0], chosen=True
        )
        return self._learn(table, values, schema, split)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Points, or points and standard deviations; ``[rows]``, or ``[rows, targets]`` of several targets.

        A point is the mean, or the median of a target that is modelled by its logarithm.
        """
        prediction = self.predict_dist(X)
        return tuple(map(_flat, (prediction.aim, prediction.std))) if return_std else _flat(prediction.aim)

    def predict_interval(self, X: Any, level: float | None = None) -> np.ndarray:
        """The ends of central intervals of probability `level`, ``[rows, 2]``, or ``[rows, targets, 2]`` of several.

        By default the level is that of the guarantee, or 0.9.
        """
        if level is not None:
            require_share("level", level)
        prediction = self.predict_dist(X)
        return np.stack(list(map(_flat, prediction.interval(self._target.level if level is None else level))), axis=-1)

    def log_score(self, X: Any, y: Any) -> float:
        """The mean log density of the rows' numbers, in their own unit; larger is better."""
        return float(np.mean(self.predict_dist(X).log_prob(self._target.truth(_numbers(self, X, y)))))


class DistilledClassifier(ClassifierMixin, _Distilled):
    """Predicts classes with probabilities that mean what they say.

    A Bayesian neural network is sampled, and distilled while it is into one ordinary network, which predicts. All
    choices are made automatically.

    Args:
        hidden, activation, student_hidden, chains, effort, time_budget, max_steps: as of `DistilledRegressor`.
        kinds, random_state, warm_start: as of `DistilledRegressor`.
        likelihood, head: softmax is all there is.
        prior: as of `DistilledRegressor`.
        guarantee: the share of new rows whose true class `predict_set` is to name, as of `DistilledRegressor`.

    Attributes:
        classes_: the labels, in the order of the probabilities; all others as of `DistilledRegressor`.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows `X` and their labels `y`."""
        table = self._read(X, reset=not self._goes_on())
        labels = _labels(self, X, y)
        if self._goes_on():
            codes, schema, split = self._codes(labels), self.schema_, self._split(table.rows)
        else:
            self.classes_, codes = np.unique(labels, return_inverse=True)
            if len(self.classes_) == 1:
                (only,) = self.classes_.tolist()
                raise InvalidInput(f"y holds one class only, {only!r}: give examples of at least two classes")
            rows, (name,), split = (
                np.arange(table.rows),
                _target_names(y, labels, table),
                self._split(len(codes), codes),
            )
            schema, self.notes_ = infer_inputs(table, [name], usable=rows, rows=split[0], chosen=True)
            kinds: Any = {"b": "boolean", "i": "integer", "u": "integer"}
            names = (str(text_of(label) if isinstance(label, Real) else label) for label in self.classes_.tolist())
            target = ClassTarget(name, tuple(names), kinds.get(self.classes_.dtype.kind, "text"))
            schema = dataclasses.replace(schema, target=target)
        return self._learn(table, np.asarray(schema.target.classes, object)[codes], schema, split)

    def _codes(self, labels: np.ndarray) -> np.ndarray:
        """The number of each label in `classes_`."""
        unknown, known = labels[~np.isin(labels, self.classes_)].tolist(), self.classes_.tolist()
        if unknown:
            raise InvalidInput(f"y holds {unknown[0]!r}, which is none of the classes {known}")
        return np.searchsorted(self.classes_, labels)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        best = np.argmax(self.predict_log_proba(X), axis=1)  # Before the classes: an estimator may not be fitted.
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, ``[rows, classes]``."""
        return np.exp(self.predict_log_proba(X))

    def predict_set(self, X: Any) -> np.ndarray:
        """Which classes may be true of each row, ``[rows, classes]``: with `guarantee`, at least that share of them.

        Without it, the most probable ones that have a probability of 0.9 together.
        """
        return self.predict_dist(X).sets(self._target.level)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of the probabilities, which are finite where these are too small to tell from zero."""
        logs = self.predict_dist(X).log_probs
        # The student adds up in single precision.
        return logs - np.log(np.sum(np.exp(logs), axis=1, keepdims=True))

    def log_score(self, X: Any, y: Any) -> float:
        """The mean log probability of the rows' labels; larger is better."""
        logs = self.predict_log_proba(X)
        codes = self._codes(_labels(self, X, y))
        return float(np.mean(logs[np.arange(len(codes)), codes]))


def _flat(values: np.ndarray) -> np.ndarray:
    """Without the axis of the targets where there is one alone."""
    return values[:, 0] if values.shape[1] == 1 else values


def _target_names(y: Any, values: np.ndarray, table: Table) -> list[str]:
    """A name for each target that no column has."""
    if values.ndim > 1:
        names = [str(name) for name in getattr(y, "columns", [f"y{k}" for k in range(values.shape[1])])]
    else:
        names = [str(getattr(y, "name", None) or "y")]
    taken = set(table.columns)
    for place, name in enumerate(names):
        while name in taken:
            name += "_"
        names[place] = name
        taken.add(name)
    return names


def _one_per_row(estimator: Any, X: Any, y: Any) -> np.ndarray:
    if y is None:
        raise InvalidInput(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    targets = column_or_1d(y, warn=True)
    check_consistent_length(X, targets)
    return targets


def _numbers(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """The targets as numbers, one for each row, or several."""
    targets = None if y is None else np.asarray(y)
    if targets is not None and targets.ndim == 2 and targets.shape[1] > 1:
        check_consistent_length(X, targets)
    else:
        targets = _one_per_row(estimator, X, y)
    if np.iscomplexobj(targets):
        raise InvalidInput(f"Complex data not supported: y has type {targets.dtype}")
    assert_all_finite(targets, input_name="y")
    targets = targets.astype(np.float64)
    assert_all_finite(targets, input_name="y")
    return targets


def _labels(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """The labels, one for each row."""
    targets = _one_per_row(estimator, X, y)
    if targets.dtype.kind in "fc":
        assert_all_finite(targets, input_name="y")
    else:
        lost = [row for row, label in enumerate(targets.tolist()) if label is None or label != label]  # NaN.
        if lost:
            raise InvalidInput(f"y has no label in row {lost[0]}: leave out rows without one")
    check_classification_targets(targets)
    return targets
