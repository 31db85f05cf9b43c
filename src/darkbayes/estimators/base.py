"""What both estimators share: from columns to a student, and files."""

import contextlib
import dataclasses
import functools
import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar, cast

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state, column_or_1d, estimator_html_repr
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from darkbayes.checkpoints import named_leaves, restored_arrays
from darkbayes.compiled import keep_compiled
from darkbayes.errors import InvalidInput, RunError, require_level
from darkbayes.export import Backbone, to_onnx
from darkbayes.files import read_words, write_arrays
from darkbayes.fit import (
    Options,
    Start,
    check_weights,
    fit,
    hold_out,
    make_posterior,
    make_student,
    predicted_by_student,
    table_queries,
)
from darkbayes.outcomes.guarantee import rows_needed
from darkbayes.progress import LOGGER, spoken
from darkbayes.student import Snapshot, Student
from darkbayes.tables.cells import arrow
from darkbayes.tables.columns import Table, frame_of, from_columns, refuse_lazy
from darkbayes.tables.guessing import Wishes
from darkbayes.tables.schema import Frame, ImageSchema, TableSchema, schema_from_dict, schema_to_dict
from darkbayes.types import Data, WeightedData
from darkbayes.version import __version__

CALIBRATING = 0.2  # The share of the rows that calibrates a guarantee.
LEAST_ROWS = 2  # Rows that an estimator must be given to learn from.
ESTIMATOR = "darkbayes.estimator"  # Under which name a saved file says what it holds.

Method = TypeVar("Method", bound=Callable[..., Any])


class Decomposition(NamedTuple):
    """Uncertainty and its parts, one value per row: variances of a number, entropies in nats of a class."""

    total: np.ndarray
    """All of it."""
    aleatoric: np.ndarray
    """What would remain with any amount of data: noise."""
    epistemic: np.ndarray
    """What more data could remove: doubt."""


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class DistilledEstimator(BaseEstimator):
    """An estimator, whatever it predicts.

    Args:
        hidden, activation, student_hidden, chains, effort, time_budget, max_steps: as of `DistilledRegressor`.
        likelihood, head, prior, guarantee, kinds, decimal, day_first, missing: likewise.
        random_state, warm_start, verbose, callbacks: likewise.
        schema_, notes_, options_, choices_, diagnosis_, params_, draws_, classes_: what `fit` leaves, likewise.
        n_features_in_, feature_names_in_: as scikit-learn has them.
    """

    hidden: tuple[int, ...] | None = None
    activation: str | None = None
    student_hidden: tuple[int, ...] = (128, 128, 128, 128)
    chains: int = 8
    effort: float = 1.0
    time_budget: float | None = 900.0
    max_steps: int | None = None
    likelihood: str | None = None
    head: str | None = None
    prior: float | None = None
    guarantee: float | None = None
    kinds: Mapping[str, str] | None = None
    decimal: Literal[".", ","] | None = None
    day_first: bool | None = None
    missing: Sequence[str] | None = None
    random_state: Any = None
    warm_start: bool = False
    verbose: bool = False
    callbacks: Sequence[Callable[[Snapshot], None]] | None = None

    schema_: TableSchema = dataclasses.field(init=False)
    notes_: list[str] = dataclasses.field(init=False)
    options_: Options = dataclasses.field(init=False)
    choices_: dict[str, Any] = dataclasses.field(init=False)
    diagnosis_: dict[str, Any] = dataclasses.field(init=False)
    params_: Any = dataclasses.field(init=False)
    draws_: Any = dataclasses.field(init=False)
    classes_: np.ndarray = dataclasses.field(init=False)
    n_features_in_: int = dataclasses.field(init=False)
    feature_names_in_: np.ndarray = dataclasses.field(init=False)

    def __sklearn_tags__(self) -> Any:
        # They speak of arrays, which hold numbers; frames may hold more.
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _options(self) -> Options:
        names = {field.name for field in dataclasses.fields(Options)} - {"network", "student_activation"}
        return Options(**_with_tuples({name: getattr(self, name) for name in names}))

    def _goes_on(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "schema_")

    def _read(self, X: Any, *, reset: bool) -> Table:
        """The columns of `X`, checked as scikit-learn does; when fitting, with `reset`, their names are kept."""
        refuse_lazy(X, "X")
        least = LEAST_ROWS if reset else 1
        if hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "__arrow_c_stream__")):
            validate_data(self, X, reset=reset, skip_check_array=True)
            columns = [X.iloc[:, k] for k in range(X.shape[1])] if hasattr(X, "iloc") else arrow().table(X).columns
            if X.shape[0] < least or not columns:
                raise InvalidInput(f"X has shape {X.shape}: give at least {least} rows and 1 column")
        else:
            how: Any = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "ensure_min_samples": least}
            try:
                columns = list(np.asarray(validate_data(self, X, reset=reset, **how)).T)
            except ValueError as problem:
                if "could not convert" not in str(problem):
                    raise
                raise InvalidInput(f"X is an array with text in it ({problem}): give a DataFrame") from None
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(len(columns))])
        wishes = Wishes(self.kinds or {}, self.decimal, self.day_first, self.missing) if reset else None
        table = from_columns(dict(zip(names, columns, strict=True)), source="X", wishes=wishes)
        texts = set() if reset else {column.name for column in self.schema_.categories}
        for name, column in table.columns.items():
            if column.kind == "number" and name not in texts and np.isinf(column.values).any():
                row = int(np.flatnonzero(np.isinf(column.values))[0])
                raise InvalidInput(f"X holds an infinite number, in row {row} of column {name!r}: correct or remove it")
        return table

    def _split(self, rows: int, strata: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The rows to learn from, and those that calibrate the guarantee, if there is to be one."""
        everything = np.arange(rows)
        if self.guarantee is None:
            return everything, everything[:0]
        level = require_level("guarantee", self.guarantee)
        if self._goes_on():
            remedy = "set warm_start=False, or guarantee=None"
            raise InvalidInput(f"guarantee={level} needs rows that nothing was learnt from, not a warm start: {remedy}")
        number, needed = max(round(CALIBRATING * rows), rows_needed(level)), 2 * rows_needed(level)
        if number > rows / 2:
            raise InvalidInput(f"guarantee={level} needs {needed} rows, half of them to calibrate it, not {rows}")
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return hold_out(rows, number / rows, seed, strata)

    def _watch(self, snapshot: Snapshot) -> None:
        for callback in self.callbacks or ():
            callback(snapshot)

    def _learn(
        self,
        table: Table,
        values: np.ndarray,
        weights: np.ndarray | None,
        schema: TableSchema,
        rows: tuple[np.ndarray, np.ndarray],
    ) -> Self:
        """Fit to columns and the values of the target, as its `encode` takes them, split as `_split` has it."""
        options, start = self._options(), None
        callbacks = self.callbacks or ()
        if not isinstance(callbacks, Iterable) or not all(map(callable, callbacks)):
            raise InvalidInput(f"callbacks must be a list of functions of a snapshot, not {callbacks!r}")
        keep_compiled()
        if self._goes_on():
            same = ("hidden", "activation", "student_hidden", "student_activation", "likelihood", "head", "prior")
            for name in same:
                before, wanted = getattr(self.options_, name), getattr(options, name)
                if wanted is not None and wanted != before:
                    other = f"but {name} was {before} and is now {wanted}: set it back, or set warm_start=False"
                    raise InvalidInput(f"warm_start goes on with the same networks, {other}")
                options = dataclasses.replace(options, **{name: before})
            start = Start(self.draws_, self.params_)
        train, held = rows
        if (old := schema.target).guarantee is not None:
            # One of an earlier fit, whose student it was about.
            self.notes_ = [note for note in self.notes_ if not note.startswith(old.promise)]
            schema = dataclasses.replace(schema, target=dataclasses.replace(old, guarantee=None))
        x, target = schema.encode(frame_of(table, schema)), schema.target
        data: Any = Data(x[train], target.encode(values[train]))  # pyright: ignore[reportArgumentType]
        if weights is not None:
            data = WeightedData(data.x, data.y, jax.device_put(weights[train].astype(np.float32)))
        key = jax.random.key(int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)))
        with spoken(bool(self.verbose)):
            for note in self.notes_:
                LOGGER.info("%s", note)
            fitted = fit(data, target, key, options, queries=table_queries(schema), start=start, watch=self._watch)
            LOGGER.info("%s", fitted.diagnosis.verdict.text)
        self.schema_ = schema
        self.params_, self.draws_ = jax.tree.map(np.asarray, (fitted.params, fitted.draws))
        self.options_, self.choices_ = fitted.options, fitted.choices
        self.notes_ = list(dict.fromkeys([*self.notes_, *fitted.notes]))
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

        Args:
            X: the rows, with the columns of the fit.

        Returns:
            A prediction (`darkbayes.outcomes`): of numbers it has ``cdf``, ``quantile``, ``interval`` and ``log_prob``,
            of classes ``probs`` and ``log_prob``.
        """
        frame = self._frame(X)
        keep_compiled()
        return self._said(self.schema_.encode(frame))

    def _said(self, x: np.ndarray) -> Any:
        """What the student says of encoded rows."""
        return self._target.own_unit(predicted_by_student(self._student(), self.params_, x))

    def outside(self, X: Any) -> np.ndarray:
        """What in each row is unlike anything that was seen at `fit`.

        Args:
            X: the rows, with the columns of the fit.

        Returns:
            Words, ``[rows]``; None where nothing is.
        """
        frame = self._frame(X)
        return self.schema_.outside(frame)["outside"]

    def _frame(self, X: Any) -> Frame:
        check_is_fitted(self)
        return frame_of(self._read(X, reset=False), self.schema_)

    def decompose(self, X: Any) -> Decomposition:
        """The uncertainty of each row's target, and its parts, which add up.

        Args:
            X: the rows, with the columns of the fit.

        Returns:
            All of it, noise and doubt, each ``[rows]``, or ``[rows, targets]`` of several numbers.
        """
        course = self.predict_dist(X).course()
        noise, doubt = course["aleatoric"], course["epistemic"]
        return Decomposition(noise + doubt, noise, doubt)

    def to_onnx(self, backbone: Backbone | None = None) -> bytes:
        """The fitted student as an ONNX file, which reads the columns as they are (`darkbayes.export`).

        Args:
            backbone: if the columns are its features, what made them; the file then reads images.

        Returns:
            The bytes.
        """
        check_is_fitted(self)
        if not isinstance(backbone, Backbone | None):
            raise InvalidInput(f"backbone must be one, not {backbone!r}: what is returned are the bytes to write")
        if backbone is None:
            return to_onnx(self._student(), self.params_, self.schema_)
        if backbone.width != self.n_features_in_ or self.schema_.shape != (len(self.schema_.numbers),):
            other = f"makes {backbone.width} features, and the fit was to {self.n_features_in_} columns"
            raise InvalidInput(f"{backbone.name} {other}: give the backbone whose features it was fitted to")
        names = list(getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)]))
        kept = tuple(names.index(column.name) for column in self.schema_.columns)
        images = ImageSchema(*backbone.shape, 0.0, 1.0, self._target, crop=True)
        whole = dataclasses.replace(backbone, kept=kept)
        return to_onnx(self._student(), self.params_, images, backbone=whole, features=self.schema_)

    def save(self, path: Path | str) -> None:
        """Write the fitted estimator as one safetensors file, which `load` reads; nothing is pickled.

        Args:
            path: the file.
        """
        check_is_fitted(self)
        about = {
            "class": type(self).__name__,
            "version": __version__,
            **self._stored(),
            "names": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
            "features": self.n_features_in_,
            "schema": schema_to_dict(self.schema_),
            "notes": self.notes_,
            "options": dataclasses.asdict(self.options_),
            "choices": self.choices_,
            "diagnosis": self.diagnosis_,
            "draws": len(jax.tree.leaves(self.draws_)[0]),
        }
        weights = named_leaves({"student": self.params_, "draws": self.draws_})
        write_arrays(Path(path), weights, {ESTIMATOR: json.dumps(about, default=lambda value: value.item())})

    def _stored(self) -> dict[str, Any]:
        """The settings, and what else is an estimator's own, as JSON has them."""
        settings = self.get_params()
        if not isinstance(settings["random_state"], Integral):
            settings["random_state"] = None  # A generator is no part of what was learnt.
        settings["callbacks"] = None  # Nor are functions.
        return {"settings": settings}

    @classmethod
    def _restored(cls, about: dict[str, Any]) -> Self:
        """An estimator of what `_stored` returned."""
        return cls(**_with_tuples(about["settings"]))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """A fitted estimator from a file that `save` wrote.

        Args:
            path: the file.

        Returns:
            The estimator.
        """
        about = {}
        if not (path := Path(path)).is_file():
            what = "a folder" if path.is_dir() else "not there"
            raise RunError(f"{path} is {what}: name a file that {cls.__name__}.save wrote")
        with contextlib.suppress(RunError):
            about = json.loads(read_words(path).get(ESTIMATOR, "{}"))
        if about.get("class") != cls.__name__:
            holds = (
                f"a {about['class']}: load it by {about['class']}.load"
                if "class" in about
                else "none, or a damaged one"
            )
            raise RunError(f"{path} should hold what {cls.__name__}.save wrote, and holds {holds}")
        made = cls._restored(about)
        made.n_features_in_, made.schema_ = about["features"], schema_from_dict(about["schema"])
        # Version 0.1 had no choice of networks, and the last of today's heads; students had one activation for longer.
        old = about["settings"] | {"activation": "relu", "head": made.schema_.target.heads[-1]}
        known = {field.name for field in dataclasses.fields(Options)}
        stored: dict[str, Any] = {"student_activation": "relu"}
        stored |= {name: each for name, each in about.get("options", old).items() if name in known}
        made.options_ = Options(**_with_tuples(stored))
        if about["names"] is not None:
            made.feature_names_in_ = np.asarray(about["names"], object)
        made.notes_, made.choices_, made.diagnosis_ = about["notes"], about["choices"], about["diagnosis"]
        weights = restored_arrays([path], made._like(about["draws"]))
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

    def _html_repr(self) -> str:
        """What a notebook shows: scikit-learn's diagram, and of a fitted estimator what was learnt."""
        diagram = estimator_html_repr(self)
        if not hasattr(self, "schema_"):
            return diagram
        # Estimators saved by 0.1 do not explain their choices.
        lines = [*self.notes_, *filter(None, [self.choices_.get("explanation")]), self.diagnosis_["verdict"]["text"]]
        learnt = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        summary = f"<summary>What was learnt of {html.escape(self._target.name)}</summary>"
        return f"{diagram}<details>{summary}<ul>{learnt}</ul></details>"


def as_before_if_refused(fit: Method) -> Method:
    """A method that leaves its object as it was where it fails or is interrupted."""

    @functools.wraps(fit)
    def whole(self: Any, *arguments: Any, **named: Any) -> Any:
        own = vars(self)
        before = dict(own)
        try:
            return fit(self, *arguments, **named)
        except BaseException:
            own.clear()
            own.update(before)
            raise

    return cast(Method, whole)


def _with_tuples(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings from JSON, which has lists in place of tuples."""
    return {name: tuple(each) if isinstance(each, list) else each for name, each in settings.items()}


def counted(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, np.ndarray | None]:
    """Rows, their targets and their weights, without rows of weight zero: those are not there."""
    if sample_weight is None:
        return X, y, None
    weights = check_weights("sample_weight", sample_weight, _num_samples(X))
    rows = np.flatnonzero(weights)
    if len(rows) < len(weights):
        X, y = (None if part is None else _safe_indexing(part, rows) for part in (X, y))
    return X, y, weights[rows]


def weighted_mean(scores: np.ndarray, sample_weight: Any) -> float:
    """The mean score of rows that count for so much; None for 1 each."""
    weights = None if sample_weight is None else check_weights("sample_weight", sample_weight, len(scores))
    return float(np.average(scores, weights=weights))


def target_names(y: Any, values: np.ndarray, table: Table) -> list[str]:
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


def one_per_row(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """The targets, one for each row."""
    if y is None:
        raise InvalidInput(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    targets = column_or_1d(y, warn=True)
    check_consistent_length(X, targets)
    return targets
