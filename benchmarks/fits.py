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
from typing import Any

import jax
import numpy as np

from benchmarks.common import named_table, say
from darkbayes import metrics
from darkbayes.data import random_splits, standard_splits
from darkbayes.fit import Model, Options, Prepared, fit, make_posterior, plug_in, prepare_table, table_queries
from darkbayes.outcomes import ClassPrediction, NumberPrediction, NumberTarget, Prediction
from darkbayes.predict import predict_plugin
from darkbayes.runs import row
from darkbayes.tables import from_columns
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
    if name == "digits":
        (table, targets), task = _digits(), "classification"
        places = random_splits(table.rows, round(TEST_SHARE * table.rows), splits, seed)
    else:
        (table, targets), task = named_table(name), "regression"
        places = standard_splits(table.rows, splits)
    return [prepare_table(table, targets, task=task, split=split) for split in places]


def _digits() -> tuple[Table, list[str]]:
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    columns = {f"pixel {k}": pixels for k, pixels in enumerate(digits.data.T)}
    return from_columns(columns | {"digit": digits.target}), ["digit"]


def _scores(prepared: Prepared, options: Options, seed: int) -> dict[str, dict[str, float]]:
    held, target = prepared.held_out, prepared.schema.target
    assert held is not None
    assert isinstance(prepared.schema, TableSchema)
    fit_key, plug_key = jax.random.split(jax.random.key(seed))
    fitted = fit(prepared.train, target, fit_key, options, queries=table_queries(prepared.schema))
    model = Model(options.student_hidden, "relu", target.likelihoods[0], target.prior_precision)
    posterior = make_posterior(prepared.train, target, model)
    draw, _ = plug_in(posterior, prepared.train, plug_key)
    predictions: dict[str, Prediction] = {
        "student": target.own_unit(fitted.predict(held.x)),
        "sgld": target.own_unit(fitted.predict_teacher(held.x)),
        "sgd": target.own_unit(predict_plugin(posterior, draw, held.x)),
    }
    if isinstance(target, NumberTarget):
        predictions["gp"] = _gaussian_process(prepared, target)
    else:
        predictions["mlp"] = _mlp(prepared, seed)
    return {
        method: {metric: estimate.value for metric, estimate in metrics.scores(prediction, prepared.truth).items()}
        for method, prediction in predictions.items()
    }


def _gaussian_process(prepared: Prepared, target: NumberTarget) -> NumberPrediction:
    """The Gaussian process gets the target as it is, standardised: a transform is the fit's own idea."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    held = prepared.held_out
    assert held is not None
    y = np.asarray(prepared.train.y, np.float64)[:, 0] * target.scale + target.center
    y = np.exp(y) if target.logarithmic else y
    plain = dataclasses.replace(target, transform="identity", center=float(y.mean()), scale=float(y.std()))
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(np.asarray(prepared.train.x, np.float64), plain.encode(y)[:, 0].astype(np.float64))
    mean, std = (
        np.reshape(part, (1, -1, 1)) for part in process.predict(np.asarray(held.x, np.float64), return_std=True)
    )
    return plain.own_unit(NumberPrediction.standard(np.zeros_like(mean), mean, std**2))


def _mlp(prepared: Prepared, seed: int) -> ClassPrediction:
    """scikit-learn's own network with its defaults, on the same standardised inputs."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    held = prepared.held_out
    assert held is not None
    network = MLPClassifier(random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(np.asarray(prepared.train.x), np.asarray(prepared.train.y))
    return ClassPrediction.from_probs(network.predict_proba(np.asarray(held.x)))
