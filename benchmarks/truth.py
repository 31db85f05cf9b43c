"""How near the automatic chains are to posteriors that are known exactly, and what coming nearer is worth.

    darkbayes bench truth         a quarter of an hour on one core

The default sampler on minibatches of 100, tuned by itself, and the microcanonical chains of a fit, as long as its are,
sample two Gaussian posteriors: regression on the houses of Boston, and on random ReLU features of theirs. The
temperature is one along every eigenvector of the Hessian where a sampler is right. What bounds how far the chains of a
fit may be from the posterior is their `ENERGY_ERROR`: with several of them, the teacher of a fit, of one network,
predicts rows of three tables that were set aside from training rows, in as many steps each.
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
from darkbayes.paper.common import scored
from darkbayes.paper.regression import standardised
from darkbayes.paper.tables import split
from darkbayes.runs import row
from darkbayes.types import Data

ERRORS = (5e-3, 5e-4)
TABLES = ("boston", "concrete", "airfoil")
MODEL = Model((16, 16, 16), "silu", "input-noise", 0.1)
BATCH, MANY, STEPS = 100, 16, 60_000
"""Examples of a minibatch, chains on minibatches, and steps of each."""
ASIDE = 0.2
"""The share of the training rows that are predicted."""
PRECISION, FEATURES, PLACES = 4.0, 50, 200
"""Of the known noise; random ReLU features; and random inputs at which the doubt is compared."""


def rows(
    *,
    seed: int,
    quiet: bool,
    tables: tuple[str, ...] = TABLES,
    errors: tuple[float, ...] = ERRORS,
    steps: int = STEPS,
) -> list[dict[str, Any]]:
    """Temperatures and doubt of known posteriors, and scores on rows set aside."""
    results, usual = [], sharing.ENERGY_ERROR
    houses = boston_rows()
    problems = {"linear": Known(houses, seed), "features": Known(features(houses, seed), seed)}
    for name, problem in problems.items():
        results += problem.judged(f"default sampler, batches of {BATCH}", name, on_minibatches(problem, steps, seed))
        announced(results[-6:], quiet=quiet)
    try:
        for error in errors:
            sharing.ENERGY_ERROR = error
            method = f"chains of a fit, energy error {error:g}"
            for name, problem in problems.items():
                results += problem.judged(method, name, on_all_rows(problem, seed))
                announced(results[-6:], quiet=quiet)
            for name in tables:
                scores = aside(name, seed)
                say(f"{method}, {name}: {scores}", quiet=quiet)
                results += [
                    row(method, metric, [value]) | {"dataset": f"{name}, set aside"} for metric, value in scores.items()
                ]
    finally:
        sharing.ENERGY_ERROR = usual
    return results


def boston_rows() -> np.ndarray:
    """The houses of Boston, standardised."""
    x = np.asarray(db.data.load("boston").x, np.float64)  # pyright: ignore[reportAttributeAccessIssue]
    return (x - x.mean(axis=0)) / x.std(axis=0)


def features(x: np.ndarray, seed: int) -> np.ndarray:
    """Random ReLU features of rows, standardised."""
    rng = np.random.default_rng(seed)
    values = np.maximum(x @ rng.normal(size=(x.shape[1], FEATURES)) / x.shape[1] ** 0.5 + rng.normal(size=FEATURES), 0)
    return (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-9)


class Known:
    """Regression on `x` with noise that is known, whose posterior is a Gaussian."""

    def __init__(self, x: np.ndarray, seed: int):
        rng = np.random.default_rng(seed)
        y = x @ rng.normal(size=x.shape[1]) + rng.normal(size=len(x)) / np.sqrt(PRECISION)
        self.data = db.data.as_data(x, y[:, None])
        self.hessian = PRECISION * x.T @ x + np.eye(x.shape[1])
        self.mean = np.linalg.solve(self.hessian, PRECISION * x.T @ y)
        self.places = rng.normal(size=(PLACES, x.shape[1]))
        network = db.Network(lambda key, x: jax.random.normal(key, (x.shape[1], 1)), lambda weights, x: x @ weights)
        prior = db.priors.GaussianPrior(1.0)
        self.posterior = db.Posterior(network, db.outcomes.Gaussian(PRECISION), prior, num_data=len(x))

    def starts(self, chains: int) -> db.model.Draw:
        """The best weights, for each chain: how long it takes to get there is another question."""
        best = np.tile(self.mean.astype(np.float32)[None, :, None], (chains, 1, 1))
        return jax.device_put(db.model.Draw(best, None))

    def judged(self, method: str, name: str, draws: db.model.Draw) -> list[dict[str, Any]]:
        """Variances of draws over the exact ones: along eigenvectors, and of predictions at random inputs."""
        away = np.asarray(draws.network, np.float64).reshape(-1, len(self.mean)) - self.mean
        values, vectors = np.linalg.eigh(self.hessian)
        exact = np.einsum("ij,jk,ik->i", self.places, np.linalg.inv(self.hessian), self.places)
        ratios = {
            "temperature": ((away @ vectors) ** 2).mean(axis=0) * values,
            "epistemic_ratio": ((away @ self.places.T) ** 2).mean(axis=0) / exact,
        }
        return [
            row(method, f"{metric}_{end}", [float(summary(values))]) | {"dataset": name}
            for metric, values in ratios.items()
            for end, summary in (("low", np.min), ("mean", np.mean), ("high", np.max))
        ]


def on_minibatches(problem: Known, steps: int, seed: int) -> db.model.Draw:
    """Draws of the default sampler, tuned by itself."""
    sampler = db.samplers.default_sampler(problem.posterior, BATCH)
    chain = db.minibatch_chain(problem.posterior, sampler, *problem.data, batch_size=BATCH, start=problem.starts(MANY))
    chain, choices = db.tune(chain, jax.random.key(seed), num_chains=MANY)
    return db.sample(chain, jax.random.key(seed + 1), num_chains=MANY, num_draws=max(1, steps // choices.thin))


def on_all_rows(problem: Known, seed: int) -> db.model.Draw:
    """Draws of the microcanonical chains of a fit."""
    options = Options()
    lengths = automatic._lengths(problem.data.x.size, options)
    return sampled(problem.posterior, problem.data, problem.starts(options.chains), lengths, options, seed)


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
    return scored(automatic.predicted_by_draws(posterior, flat, other.x), other.y)


def sampled(posterior: Any, data: Data, starts: Any, lengths: dict[str, Any], options: Options, seed: int) -> Any:
    """Draws of chains on all rows, as many as a fit keeps."""
    chain = sharing.whole_chain(posterior, data, starts, **{name: lengths[name] for name in ("burn_in", "thin")})
    number = (lengths["steps"] - lengths["burn_in"]) // lengths["thin"]
    return db.sample(chain, jax.random.key(seed + 1), num_chains=options.chains, num_draws=number)
