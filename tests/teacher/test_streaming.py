"""Chains on rows that are streamed have the law that they have on rows in memory, whatever order the file has."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import darkbayes as db
from darkbayes.fit import prepare_streamed
from darkbayes.tables.guessing import Wishes
from darkbayes.teacher.streaming import Feed

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'darkbayes[tables]'")

ROWS, POOL, WINDOW, BATCH, PRECISION = 2_000, 500, 20, 50, 2.0
CHAINS, DRAWS, THIN, STEP = 32, 60, 200, 5e-7


class Streamed(NamedTuple):
    """A regression whose rows lie in a file, sorted by their target."""

    load: Callable[[int, int], db.Data]
    x: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Streamed:
    folder, rng = tmp_path_factory.mktemp("sorted"), np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2))
    y = x @ [1.0, -0.5] + rng.normal(size=ROWS)
    order = np.argsort(y)
    lines = [f"{a:.6f},{b:.6f},{c:.6f}" for (a, b), c in zip(x[order], y[order], strict=True)]
    source = folder / "sorted.csv"
    source.write_text("\n".join(["a,b,y", *lines]) + "\n")
    how: Any = {"memory": 1e5, "sha256": "", "wishes": Wishes(), "layout": {}, "held_out": 0.0, "seed": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darkbayes.tables.store.BUCKET", 2**12)
        stored = prepare_streamed([source], ["y"], folder / "run", **how).rows

    def load(start: int, stop: int) -> db.Data:
        frame, y = stored.packing.unpack(stored.store.read(start, stop))
        return db.Data(np.append(stored.schema.encode(frame), np.ones((stop - start, 1), np.float32), axis=1), y)

    whole = [np.asarray(part, np.float64) for part in load(0, ROWS)]
    covariance = np.linalg.inv(PRECISION * whole[0].T @ whole[0] + np.eye(3))
    return Streamed(load, *whole, PRECISION * covariance @ whole[0].T @ whole[1][:, 0], covariance)


@pytest.fixture(scope="module")
def chain(regression: Streamed, linear: db.Network) -> Any:
    """SGLD from draws of the posterior."""
    likelihood, prior = db.outcomes.Gaussian(PRECISION), db.priors.GaussianPrior(1.0)
    posterior = db.Posterior(linear, likelihood, prior, num_data=ROWS)
    draws = np.random.default_rng(1).multivariate_normal(regression.mean, regression.covariance, CHAINS)
    start = db.model.Draw(jnp.asarray(draws[:, :, None], jnp.float32), None)
    how: Any = {"batch_size": BATCH, "start": start, "thin": THIN}
    chain = db.minibatch_chain(posterior, db.sgld(STEP), regression.x, regression.y, **how)
    return dataclasses.replace(chain, feed=Feed(regression.load, ROWS, POOL, WINDOW, seed=0))


def moments(chain: Any, covariance: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The draws of all chains less the mean, in units in which the covariance is that of independent ones."""
    draws = db.sample(chain, jax.random.key(0), num_chains=CHAINS, num_draws=DRAWS).network[..., 0]
    return (np.asarray(draws, np.float64) - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T


def test_mean_and_covariance_are_those_of_the_exact_posterior(regression: Streamed, chain: Any, z_scores: Any) -> None:
    """Within 4 standard errors, one of which minibatches may add, as hot as they are here."""
    along = moments(chain, regression.covariance, regression.mean)
    assert np.abs(z_scores(along.mean(axis=1), 0.0)).max() < 4.0
    assert np.abs(z_scores(np.einsum("cdi,cdj->cij", along, along) / DRAWS, np.eye(3))).max() < 4.0


def test_the_pools_of_a_file_that_is_sorted_differ_as_random_ones_do(regression: Streamed) -> None:
    """The squares of their means, of rows without replacement, have about the law of chi-square."""
    y = regression.y[:, 0]
    pools = y.reshape(-1, 50)
    distance = 50 * np.sum((pools.mean(axis=1) - y.mean()) ** 2) / y.var(ddof=1)
    assert stats.chi2.sf(distance, len(pools) - 1) > 1e-4
    # Nor do rows that were neighbours stay such.
    places = np.argsort(np.argsort(y))
    assert abs(np.corrcoef(places, np.arange(ROWS))[0, 1]) < 4 / np.sqrt(ROWS)
    assert abs(np.corrcoef(places[1:], places[:-1])[0, 1]) < 4 / np.sqrt(ROWS)


def test_every_row_comes_once_in_an_epoch_and_in_another_order_in_the_next() -> None:
    feed = Feed(lambda start, stop: db.Data(np.arange(start, stop) % 12, np.zeros(0)), 12, 4, 5, seed=3)
    epochs = [[np.asarray(feed.rows(5 * (3 * epoch + pool)).x).tolist() for pool in range(3)] for epoch in range(4)]
    for pools in epochs:
        assert sorted(itertools.chain(*pools)) == list(range(12))
    assert len({str(pools) for pools in epochs}) == 4
    # By the seed and the step alone, whatever was asked for before.
    again = Feed(feed._load, 12, 4, 5, seed=3)
    assert np.asarray(again.rows(47).x).tolist() == np.asarray(feed.rows(45).x).tolist() == epochs[3][0]
    assert [feed.left(step) for step in (0, 4, 5)] == [5, 1, 5]


def test_pools_add_to_the_noise_of_minibatches_what_is_said(chain: Any) -> None:
    """So many rows that no noise cancels: the law of a walk whose drift is off by an error of each window.

    That is common to all chains, so that only draws of different times and directions count, which are independent.
    """
    step, hessian = 2e-5, PRECISION * ROWS + 1.0

    def load(start: int, stop: int) -> db.Data:
        x, noise = np.split(np.random.default_rng(start).normal(size=(stop - start, 4)).astype(np.float32), [3], axis=1)
        return db.Data(x, noise)

    feed = Feed(load, 10**7, POOL, WINDOW, seed=0)
    hot = dataclasses.replace(chain, feed=feed, transformation=db.sgld(step), start=None)
    draws = db.sample(hot, jax.random.key(1), num_chains=CHAINS, num_draws=DRAWS).network[..., 0]
    # A step leaves a share of the distance, and adds noise of the sampler and of minibatches.
    share, noise = 1 - step * hessian / 2, PRECISION**2 * ROWS**2 * (step / 2) ** 2
    sums = (1 - share**WINDOW) / (1 - share)
    own = (step + noise / BATCH) * (1 - share ** (2 * WINDOW)) / (1 - share**2)
    law = (own + noise / POOL * sums**2) / (1 - share ** (2 * WINDOW))
    assert noise / POOL * sums**2 > own  # Most of it is of pools.
    actual = np.mean(np.square(draws), axis=(0, 1)).mean()
    assert abs(actual / law - 1) < 4 * np.sqrt(2 / (3 * DRAWS))
    # No more than if minibatches were noisier by as much as rows are drawn before they go.
    assert law < (step + (1 + WINDOW * BATCH / POOL) * noise / BATCH) / (1 - share**2)
