"""What the energy error of a fit's chains costs: along directions that are known, and on rows set aside.

    darkbayes bench energy        a quarter of an hour on one core

`ENERGY_ERROR` of a fit bounds how far its microcanonical chains may be from the posterior. First such chains, as long
as those of a fit, sample two Gaussian posteriors that are known exactly; their temperature is one along every
eigenvector of the Hessian where they are right. Then the teacher of a fit, of one network, predicts rows of three
tables that were set aside from training rows; with every error its chains take as many steps.
"""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

import darkbayes as db
from benchmarks.common import announced, say
from darkbayes.fit import Model, Options, automatic, make_posterior, sharing
from darkbayes.fit.choosing import cells
from darkbayes.outcomes import NumberTarget
from darkbayes.paper.regression import standardised
from darkbayes.paper.tables import split
from darkbayes.runs import row
from darkbayes.types import Data

ERRORS = (5e-3, 5e-4)
TABLES = ("boston", "concrete", "airfoil")
MODEL = Model((16, 16, 16), "silu", "input-noise", 0.1)
ASIDE = 0.2
"""The share of the training rows that are predicted."""
PRECISION, FEATURES, PLACES = 4.0, 50, 200
"""Of the known noise; random ReLU features; and random inputs at which the doubt is compared."""


def rows(
    *, seed: int, quiet: bool, tables: tuple[str, ...] = TABLES, errors: tuple[float, ...] = ERRORS
) -> list[dict[str, Any]]:
    """Temperatures and doubt of known posteriors, and scores on rows set aside, by the energy error."""
    results, usual = [], sharing.ENERGY_ERROR
    try:
        for error in errors:
            sharing.ENERGY_ERROR = error
            method = f"energy error {error:g}"
            for name, inputs in (("linear", boston_rows()), ("features", features(boston_rows(), seed))):
                warmth, doubt = known(inputs, seed)
                results += [
                    row(method, f"{metric}_{end}", [float(of(values))]) | {"dataset": name}
                    for metric, values in (("temperature", warmth), ("epistemic_ratio", doubt))
                    for end, of in (("low", np.min), ("mean", np.mean), ("high", np.max))
                ]
            for name in tables:
                scores = aside(name, seed)
                say(f"{method}, {name}: {scores}", quiet=quiet)
                results += [
                    row(method, metric, [value]) | {"dataset": f"{name}, set aside"} for metric, value in scores.items()
                ]
    finally:
        sharing.ENERGY_ERROR = usual
    return announced(results, quiet=quiet)


def boston_rows() -> np.ndarray:
    """The houses of Boston, standardised."""
    x = np.asarray(db.data.load("boston").x, np.float64)  # pyright: ignore[reportAttributeAccessIssue]
    return (x - x.mean(axis=0)) / x.std(axis=0)


def features(x: np.ndarray, seed: int) -> np.ndarray:
    """Random ReLU features of rows, standardised."""
    rng = np.random.default_rng(seed)
    values = np.maximum(x @ rng.normal(size=(x.shape[1], FEATURES)) / x.shape[1] ** 0.5 + rng.normal(size=FEATURES), 0)
    return (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-9)


def known(x: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of regression on `x`: variances of draws over the exact ones, along eigenvectors and at random inputs."""
    rng = np.random.default_rng(seed)
    y = x @ rng.normal(size=x.shape[1]) + rng.normal(size=len(x)) / np.sqrt(PRECISION)
    hessian = PRECISION * x.T @ x + np.eye(x.shape[1])
    mean = np.linalg.solve(hessian, PRECISION * x.T @ y)
    network = db.Network(lambda key, x: jax.random.normal(key, (x.shape[1], 1)), lambda weights, x: x @ weights)
    posterior = db.Posterior(network, db.outcomes.Gaussian(PRECISION), db.priors.GaussianPrior(1.0), num_data=len(x))
    options = Options()
    lengths = automatic._lengths(x.size, options)
    starts = db.model.Draw(np.tile(mean.astype(np.float32)[None, :, None], (options.chains, 1, 1)), None)
    data = db.data.as_data(x, y[:, None])
    draws = sampled(posterior, data, jax.device_put(starts), lengths, options, seed)
    away = np.asarray(draws.network, np.float64).reshape(-1, len(mean)) - mean
    values, vectors = np.linalg.eigh(hessian)
    places = rng.normal(size=(PLACES, len(mean)))
    exact = np.einsum("ij,jk,ik->i", places, np.linalg.inv(hessian), places)
    return ((away @ vectors) ** 2).mean(axis=0) * values, ((away @ places.T) ** 2).mean(axis=0) / exact


def aside(name: str, seed: int) -> dict[str, float]:
    """What the teacher of a fit makes of rows that are set aside from the protocol's training rows."""
    train = split(name, seed)[0]
    order = np.random.default_rng(seed).permutation(len(train.x))
    cut, options = int(ASIDE * len(order)), Options(time_budget=None)
    x, y = np.asarray(train.x), np.asarray(train.y)[:, 0]
    table: Any = SimpleNamespace(x=x, y=y)
    data, other, *_ = standardised(table, order[cut:], order[:cut])
    target = NumberTarget("y", "identity", 0.0, 1.0, float(np.min(data.y)), float(np.max(data.y)))
    posterior = make_posterior(data, target, MODEL)
    starts = automatic._starts(posterior, data, None, jax.random.key(seed), options)
    lengths = automatic._lengths(cells(data, target, MODEL), options)
    draws = sampled(posterior, data, starts, lengths, options, seed)
    flat = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), draws)
    said = automatic.predicted_by_draws(posterior, flat, other.x)
    away = np.asarray(said.mean) - np.asarray(other.y)
    return {
        "log_likelihood": float(np.mean(said.log_prob(np.asarray(other.y)))),
        "rmse": float(np.sqrt(np.mean(away**2))),
    }


def sampled(posterior: Any, data: Data, starts: Any, lengths: dict[str, Any], options: Options, seed: int) -> Any:
    """Draws of chains on all rows, as many as a fit keeps."""
    chain = sharing.whole_chain(posterior, data, starts, **{name: lengths[name] for name in ("burn_in", "thin")})
    number = (lengths["steps"] - lengths["burn_in"]) // lengths["thin"]
    return db.sample(chain, jax.random.key(seed + 1), num_chains=options.chains, num_draws=number)
