"""Shared by all tests but doctests: strictness, small problems with known answers, a counter of compilations."""

import dataclasses
import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings

import darkbayes as db

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture(scope="module")
def strict_dtypes() -> Iterator[None]:
    """No implicit dtype promotion. Asked for per file: Adam of optax and NUTS of NumPyro do not survive it."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="module")
def strict(strict_dtypes: None) -> Iterator[None]:
    """No implicit rank promotion either. Not for mixtures, which broadcast over their leading axis."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def further_compilations() -> Iterator[Counter[str]]:
    """How often XLA has compiled each function since the test began, by the function's name."""
    counts: Counter[str] = Counter()

    def listen(event: str, duration: float, **details: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            counts[details["fun_name"].removeprefix("jit(").removesuffix(")")] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield counts
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def compilations(further_compilations: Counter[str]) -> Counter[str]:
    """The same, where nothing has been compiled before: tests share what they compile."""
    jax.clear_caches()
    return further_compilations


@pytest.fixture(scope="session", autouse=True)
def one_shape() -> Iterator[None]:
    """Small tables are filled up to one shape, so that most fits share what is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        for name, least in {"LEAST_ROWS": 512, "LEAST_COLUMNS": 16}.items():
            patch.setattr(f"darkbayes.fit.sharing.{name}", least)
        yield


@pytest.fixture
def small_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimators sample a small network next to not at all, whatever they are told: test_regressor.py has good fits.

    Commands optimise next to not at all before they sample.
    """
    estimators = pytest.importorskip("darkbayes.estimators.base", exc_type=ImportError)
    import short_fits

    least = {"hidden": (4,), "activation": "relu", "student_hidden": (8,), "chains": 2, "max_steps": 20}
    asked = estimators.DistilledEstimator._options
    monkeypatch.setattr(
        estimators.DistilledEstimator, "_options", lambda self: dataclasses.replace(asked(self), **least)
    )
    monkeypatch.setattr("darkbayes.fit.choosing.LEAST_ROWS", 10**9)  # No choice among likelihoods.
    short_fits.shorten(monkeypatch)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Path]:
    """A folder that takes long to make, by one worker for all: ``made_once(name, make)``; each gets a copy of its own.

    One that another is about to make is waited for.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder(name: str, make: Callable[[Path], Any]) -> Path:
        mine, original = tmp_path_factory.mktemp("made") / name, shared / f"{name}.whole"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if original.exists():
                shutil.copytree(original, mine)
            else:
                make(mine)
                shutil.copytree(mine, shared / f"{name}.part").rename(original)
        return mine

    return folder


@pytest.fixture(scope="session")
def classes() -> db.Data:
    """Ten points of each of two classes in the plane."""
    return db.data.toy2d(jax.random.key(0))


@pytest.fixture(scope="session")
def linear_network() -> Any:
    """Makes linear networks without bias of so many outputs, as pairs of functions; the weights are one array."""

    def make(outputs: int) -> db.Network:
        def init(key: jax.Array, x: jax.Array) -> jax.Array:
            return 0.5 * jax.random.normal(key, (x.shape[-1], outputs))

        return db.Network(init, lambda weights, x: x @ weights)

    return make


@pytest.fixture(scope="session")
def linear(linear_network: Any) -> db.Network:
    """A linear network of one output."""
    return linear_network(1)


@pytest.fixture(scope="session")
def logistic(linear_network: Any) -> db.Network:
    """A linear network of two outputs, for two classes."""
    return linear_network(2)


class Conjugate(NamedTuple):
    """Bayesian linear regression, whose posterior is known."""

    posterior: db.Posterior
    data: db.Data
    prior_precision: float
    noise_precision: float
    mean: np.ndarray
    covariance: np.ndarray


@pytest.fixture(scope="session")
def conjugate(linear: db.Network) -> Conjugate:
    """Six points, a slope and an intercept."""
    prior_precision, noise_precision = 2.0, 3.0
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=6), np.ones(6)], axis=1)
    y = x @ [[1.0], [-0.5]] + rng.normal(size=(6, 1)) / np.sqrt(noise_precision)
    covariance = np.linalg.inv(prior_precision * np.eye(2) + noise_precision * x.T @ x)
    mean = noise_precision * covariance @ x.T @ y[:, 0]
    posterior = db.Posterior(
        linear, db.outcomes.Gaussian(noise_precision), db.priors.GaussianPrior(prior_precision), num_data=6
    )
    return Conjugate(posterior, db.data.as_data(x, y), prior_precision, noise_precision, mean, covariance)


class Moments(NamedTuple):
    """Averages over the steps of each chain, chains along the first axis."""

    mean: np.ndarray
    square: np.ndarray
    """Of (theta - centre) (theta - centre)^T."""


@pytest.fixture(scope="session")
def regression_moments(conjugate: Conjugate) -> Any:
    """Runs chains of `conjugate` from near its posterior: ``regression_moments(chain, states, burn_in, steps)``.

    Traceable: `chain` may hold a traced step size.
    """

    def run(chain: Any, states: Any, burn_in: int, steps: int) -> Moments:
        centre = jnp.asarray(conjugate.mean[None], jnp.float32)
        number = len(states.params.network)
        start_key, step_key = jax.random.split(jax.random.key(7))
        root = jnp.asarray(np.linalg.cholesky(conjugate.covariance).T, jnp.float32)
        theta = centre + jax.random.normal(start_key, (number, 2)) @ root
        states = states._replace(params=states.params._replace(network=theta[:, :, None]))

        def step(count: jax.Array, carry: Any) -> Any:
            states, mean, square = carry
            keys = jax.random.split(jax.random.fold_in(step_key, count), number)
            states, _ = jax.vmap(chain.step)(keys, states)
            gap = states.params.network[:, :, 0] - centre
            share = (count >= burn_in).astype(jnp.float32) / steps
            return states, mean + share * gap, square + share * gap[:, :, None] * gap[:, None, :]

        zeros = jnp.zeros((number, 2)), jnp.zeros((number, 2, 2))
        _, mean, square = jax.lax.fori_loop(0, burn_in + steps, step, (states, *zeros))
        return Moments(mean + centre, square)  # pyright: ignore[reportArgumentType]

    return run


@pytest.fixture(scope="session")
def batch_noise(conjugate: Conjugate) -> Any:
    """The covariance of a minibatch gradient of `conjugate`: ``batch_noise(size, spread, residuals=True)``.

    The gradient of an example is lambda_n (x x^T d - x r) with d = theta - mean and r the residual at the mean, so over
    examples and over d of mean 0 and covariance `spread`, that of N times the mean of `size` of them is N^2/size times

        lambda_n^2 (mean_i[x x^T spread x x^T + r^2 x x^T] - X spread X - b b^T),  X = mean_i x x^T, b = mean_i x r.

    Without residuals it is that of gradients corrected by those at an anchor, with `spread` the mean square distance.
    """
    x, y = (np.asarray(part, np.float64) for part in conjugate.data)
    residual = y[:, 0] - x @ conjugate.mean
    outer = x[:, :, None] * x[:, None, :]
    middle, shift = outer.mean(axis=0), np.mean(x * residual[:, None], axis=0)
    of_residuals = np.mean(residual[:, None, None] ** 2 * outer, axis=0) - np.outer(shift, shift)

    def noise(size: int | None, spread: np.ndarray, residuals: bool = True) -> np.ndarray:
        if size is None:
            return np.zeros_like(spread)
        total = np.mean(outer @ spread @ outer, axis=0) - middle @ spread @ middle + residuals * of_residuals
        return len(x) ** 2 / size * conjugate.noise_precision**2 * total

    return noise


@pytest.fixture(scope="session")
def draw_stack() -> Any:
    """Stacks independent draws: ``draw_stack(posterior, x, number)``."""

    @eqx.filter_jit
    def stack(posterior: db.Posterior, x: jax.Array, number: int) -> db.model.Draw:
        return jax.vmap(lambda key: posterior.init(key, x))(jax.random.split(jax.random.key(0), number))

    return stack


@pytest.fixture(scope="session")
def z_scores() -> Any:
    """Scores of estimates from independent chains: ``z_scores(values, expected)``, chains along the first axis.

    About standard normal if the estimates of the chains have the expected mean.
    """

    def scores(values: Any, expected: Any) -> np.ndarray:
        values = np.asarray(values, np.float64)
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        return (values.mean(axis=0) - np.asarray(expected)) / error

    return scores


@pytest.fixture(scope="session")
def trees_equal() -> Any:
    """Whether two pytrees hold the same bits."""

    def equal(first: Any, second: Any) -> bool:
        def bits(leaf: Any) -> np.ndarray:
            return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)

        same = jax.tree.map(lambda a, b: np.array_equal(bits(a), bits(b), equal_nan=True), first, second)
        return all(jax.tree.leaves(same))

    return equal
