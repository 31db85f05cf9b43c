"""What `fit` is worth with its defaults, beside a plug-in network of the student's size and scikit-learn's models.

Five tables of the UCI benchmark on their first five standard splits, with a Gaussian process (an isotropic RBF kernel
and white noise) on the same standardised inputs; and scikit-learn's digits on as many random splits, with its
`MLPClassifier`. All scores are on the parts that nobody learned from, in the target's unit. The method of every row is
followed by its data set.
"""

import dataclasses
import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np

from benchmarks.common import named_table, say
from darkbayes.data import random_splits, standard_splits
from darkbayes.fit import Options, Prepared, fit, make_posterior, plug_in, prepare_table, score, table_queries
from darkbayes.predict import predict_plugin
from darkbayes.runs import row
from darkbayes.tables import ClassTarget, RealPredictions, RealTarget, from_columns
from darkbayes.tables.columns import Table
from darkbayes.tables.schema import TableSchema

TABLES = ("boston", "concrete", "energy", "wine", "yacht")
SPLITS = 5
TEST_SHARE = 0.2
"""Of digits."""


def rows(
    *, seed: int, quiet: bool, tables: Sequence[str] = (*TABLES, "digits"), splits: int = SPLITS, **options: Any
) -> list[dict[str, Any]]:
    """Scores of every method on every table, over the splits; `options` are those of the fit."""
    results = []
    for name in tables:
        scores: dict[tuple[str, str], list[float]] = defaultdict(list)
        for number, prepared in enumerate(_prepared(name, splits, seed)):
            for method, by_metric in _scores(prepared, Options(**options), seed + number).items():
                for metric, value in by_metric.items():
                    scores[method, metric].append(value)
            say(f"{name}, split {number}", quiet=quiet)
        results += [row(method, metric, values) | {"dataset": name} for (method, metric), values in scores.items()]
    return results


def _prepared(name: str, splits: int, seed: int) -> list[Prepared]:
    task: Literal["regression", "classification"] = "classification" if name == "digits" else "regression"
    if name == "digits":
        table, target = _digits()
        places = random_splits(table.rows, round(TEST_SHARE * table.rows), splits, seed)
    else:
        table, target = named_table(name)
        places = standard_splits(table.rows, splits)
    return [prepare_table(table, target, task=task, split=split) for split in places]


def _digits() -> tuple[Table, str]:
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    columns = {f"pixel {k}": pixels for k, pixels in enumerate(digits.data.T)}
    return from_columns(columns | {"digit": digits.target}), "digit"


def _scores(prepared: Prepared, options: Options, seed: int) -> dict[str, dict[str, float]]:
    held, target = prepared.held_out, prepared.schema.target
    assert held is not None
    assert isinstance(prepared.schema, TableSchema)
    y, classes = np.asarray(held.y), len(target.classes) if isinstance(target, ClassTarget) else None
    fit_key, plug_key = jax.random.split(jax.random.key(seed))
    fitted = fit(prepared.train, classes, fit_key, options, queries=table_queries(prepared.schema))
    posterior = make_posterior(prepared.train, classes, dataclasses.replace(options, hidden=options.student_hidden))
    draw, _ = plug_in(posterior, prepared.train, plug_key)
    predictives = {
        "student": fitted.predict(held.x),
        "sgld": fitted.predict_teacher(held.x),
        "sgd": predict_plugin(posterior, draw, held.x),
    }
    scores = {method: score(target, predictive, y) for method, predictive in predictives.items()}
    if isinstance(target, RealTarget):
        return scores | {"gp": _gaussian_process(prepared, target)}
    return scores | {"mlp": _mlp(prepared, seed)}


def _gaussian_process(prepared: Prepared, target: RealTarget) -> dict[str, float]:
    """The Gaussian process gets the target as it is, standardised: a transform is the fit's own idea."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    held = prepared.held_out
    assert held is not None
    y, actual = (target.decode(np.asarray(encoded)) for encoded in (prepared.train.y, held.y))
    plain = dataclasses.replace(target, transform="identity", center=float(y.mean()), scale=float(y.std()))
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(np.asarray(prepared.train.x, np.float64), plain.encode(y)[:, 0].astype(np.float64))
    mean, std = map(np.asarray, process.predict(np.asarray(held.x, np.float64), return_std=True))
    predicted = RealPredictions.of(plain, mean, std**2, std**2)
    lower, upper = predicted.interval(plain, 0.9)
    return {
        "log_likelihood": float(np.mean(predicted.log_density(plain, actual))),
        "rmse": float(np.sqrt(np.mean((predicted.mean - actual) ** 2))),
        "coverage_90": float(np.mean((lower <= actual) & (actual <= upper))),
    }


def _mlp(prepared: Prepared, seed: int) -> dict[str, float]:
    """scikit-learn's own network with its defaults, on the same standardised inputs."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    held = prepared.held_out
    assert held is not None
    network = MLPClassifier(random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(np.asarray(prepared.train.x), np.asarray(prepared.train.y))
    log_probs, y = network.predict_log_proba(np.asarray(held.x)), np.asarray(held.y)
    return {
        "log_likelihood": float(np.mean(log_probs[np.arange(len(y)), y])),
        "error": 100.0 * float(np.mean(log_probs.argmax(axis=1) != y)),
    }
