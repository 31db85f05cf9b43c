"""Distributed SGLD: the exact law of chains that travel between unequal shards, in processes of their own.

What the processes do is in worker.py. Every wait has an end, and ports are chosen when a test runs.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy import linalg

import darkbayes as db
from darkbayes.checkpoints import checkpoint_steps
from darkbayes.files import read_arrays
from darkbayes.teacher.distributed.tours import places_passed, shares_of
from together import SECONDS, exit_codes, free_port

SIZES = (3, 9, 5, 7)


LENGTHS = (4, 8, 5, 3)


PRIOR, NOISE = 2.0, 3.0


ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(db.__file__).parent.parent),
    "JAX_PLATFORMS": "cpu",
}


def examples(workers: int) -> tuple[np.ndarray, np.ndarray]:
    """A slope and an intercept; sorted, so that shards differ much."""
    rng = np.random.default_rng(0)
    number = sum(SIZES[:workers])
    x = np.stack([np.sort(rng.normal(size=number)), np.ones(number)], axis=1)
    return x, x @ [[1.0], [-0.5]] + rng.normal(size=(number, 1)) / np.sqrt(NOISE)


def shards(workers: int) -> list[tuple[np.ndarray, np.ndarray]]:
    x, y = examples(workers)
    cuts = np.cumsum(SIZES[:workers])[:-1]
    return list(zip(np.split(x, cuts), np.split(y[:, 0], cuts), strict=True))


def posterior_moments(workers: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = examples(workers)
    covariance = np.linalg.inv(PRIOR * np.eye(2) + NOISE * x.T @ x)
    return NOISE * covariance @ x.T @ y[:, 0], covariance


class Affine(NamedTuple):
    """theta -> map theta + shift + noise, as one or many steps of SGLD on a linear model with exact gradients are."""

    map: np.ndarray
    shift: np.ndarray
    noise: np.ndarray

    def then(self, other: "Affine") -> "Affine":
        return Affine(
            other.map @ self.map,
            other.map @ self.shift + other.shift,
            other.map @ self.noise @ other.map.T + other.noise,
        )


NOTHING = Affine(np.eye(2), np.zeros(2), np.zeros((2, 2)))


def law_of_tours(
    workers: int, step_size: float, times: int = 1, places: Callable[[int, int], int] = places_passed
) -> tuple[np.ndarray, np.ndarray]:
    """The exact mean and covariance of the draws that two tours leave, over all rounds and groups of chains."""
    lengths = [times * length for length in LENGTHS[:workers]]
    trajectories = []
    for (x, y), share, length in zip(shards(workers), shares_of(lengths), lengths, strict=True):
        curvature = PRIOR * np.eye(2) + NOISE / share * x.T @ x
        step = Affine(
            np.eye(2) - step_size / 2 * curvature, step_size / 2 * NOISE / share * x.T @ y, step_size * np.eye(2)
        )
        trajectory = NOTHING
        for _ in range(length):
            trajectory = trajectory.then(step)
        trajectories.append(trajectory)
    means, seconds = [], []
    for group in range(workers):
        legs = [trajectories[(group + places(number, workers)) % workers] for number in range(2 * workers)]
        tour = NOTHING
        for leg in legs:
            tour = tour.then(leg)
        mean = np.linalg.solve(np.eye(2) - tour.map, tour.shift)
        covariance = linalg.solve_discrete_lyapunov(tour.map, tour.noise)
        for leg in legs:
            mean, covariance = leg.map @ mean + leg.shift, leg.map @ covariance @ leg.map.T + leg.noise
            means.append(mean)
            seconds.append(covariance + np.outer(mean, mean))
    mean = np.mean(means, axis=0)
    return mean, np.mean(seconds, axis=0) - np.outer(mean, mean)


class Ended(NamedTuple):
    """What is left of the processes of a task."""

    codes: list[int]
    errors: list[str]
    results: list[dict[str, np.ndarray]]
    said: str


def run_processes(folder: Path, workers: int, runs: dict[str, Any], devices: int = 1, **task: Any) -> Ended:
    """Run a task in processes of their own, and wait for all of them, but not forever."""
    folder.mkdir(parents=True, exist_ok=True)
    x, y = examples(workers)
    mean, covariance = posterior_moments(workers)
    out = folder / "out"
    whole = {
        "port": free_port(),
        "sizes": SIZES[:workers],
        "x": x.tolist(),
        "y": y.tolist(),
        "out": str(out),
        "runs": runs,
    }
    # Chains start where they belong: what is tested is that they stay there.
    whole |= {"start": mean[:, None].tolist(), "spread": np.linalg.cholesky(covariance).tolist()}
    (folder / "task.json").write_text(json.dumps(whole | task))
    script = Path(__file__).with_name("worker.py")
    # One thread each, as there may be more processes than cores.
    flags = f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false"
    environment = ENVIRONMENT | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}
    logs = [folder / f"log-{number}" for number in range(workers)]
    commands = [[sys.executable, script, folder / "task.json", str(number)] for number in range(workers)]
    codes = exit_codes(commands, logs, environment)
    said = "\n".join(log.read_text(errors="replace")[-3000:] for log in logs)
    errors = [Path(f"{out}-{number}.error") for number in range(workers)]
    results = [Path(f"{out}-{number}.safetensors") for number in range(workers)]
    return Ended(
        codes,
        [path.read_text() if path.exists() else "" for path in errors],
        [read_arrays(path) if path.exists() else {} for path in results],
        said,
    )


def test_the_drift_over_a_tour_is_that_of_all_data(linear: db.Network) -> None:
    """The gradients that a chain gets, each as often as it gets it, are on average that of the whole log posterior."""
    data = db.data.as_data(*examples(4))
    whole = db.Posterior(linear, db.outcomes.Gaussian(NOISE), db.priors.GaussianPrior(PRIOR), num_data=len(data.x))
    draw = db.model.Draw(np.array([[0.3], [-0.7]], np.float32), ())
    gradient = eqx.filter_jit(lambda posterior, data: jax.grad(posterior.log_density)(draw, data).network)
    drifts = []
    for (x, y), share, length in zip(shards(4), shares_of(LENGTHS), LENGTHS, strict=True):
        drifts += [np.asarray(gradient(whole.of_shard(len(x), share), db.data.as_data(x, y[:, None])))] * length
    np.testing.assert_allclose(np.mean(drifts, axis=0), gradient(whole, data), rtol=2e-5)


def test_a_shard_scales_its_likelihood_by_its_examples_over_its_share(conjugate: Any) -> None:
    draw = conjugate.posterior.init(jax.random.key(0), conjugate.data.x)
    batch = db.Data(*(part[:2] for part in conjugate.data))
    scaled = conjugate.posterior.of_shard(3, 0.25).log_density(draw, batch)
    likelihood = np.sum(conjugate.posterior.log_likelihood(draw, batch))
    np.testing.assert_allclose(scaled, conjugate.posterior.log_prior(draw) + 3 / (2 * 0.25) * likelihood, rtol=1e-5)


def test_what_tours_sample_is_off_by_the_second_power_of_their_length() -> None:
    """Trajectories of half the length are off by a quarter; by half, if tours did not change direction."""
    mean, covariance = posterior_moments(4)
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))

    def errors(times: int, places: Callable[[int, int], int]) -> np.ndarray:
        results = law_of_tours(4, 1e-6, times, places)
        spread = whiten @ results[1] @ whiten.T - np.eye(2)
        return np.array([np.linalg.norm(whiten @ (results[0] - mean)), np.linalg.norm(spread)])

    alternating, round_and_round = (
        errors(400, places) / errors(200, places) for places in (places_passed, lambda number, workers: number)
    )
    np.testing.assert_allclose(alternating, 4, rtol=0.1)
    np.testing.assert_allclose(round_and_round[0], 2, rtol=0.1)


def test_a_process_alone_is_a_minibatch_chain(conjugate: Any) -> None:
    chain = db.teacher.distributed_chain(
        conjugate.posterior, db.sgld(0.02), *conjugate.data, batch_size=2, trajectory=[5], burn_in=3
    )
    same = db.minibatch_chain(conjugate.posterior, db.sgld(0.02), *conjugate.data, batch_size=2, burn_in=15, thin=5)
    draws = chain.sample(jax.random.key(1), num_draws=6, num_chains=3)
    expected = db.sample(same, jax.random.fold_in(jax.random.key(1), 0), num_chains=3, num_draws=6)
    np.testing.assert_allclose(draws.network, expected.network, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trajectory": [5, 5]}, "trajectory has 2 lengths but there are 1 processes"),
        ({"trajectory": 0}, "trajectory must be a whole number of at least 1, not 0"),
        ({"batch_size": 7}, "batch_size=7 is larger than the 6 examples"),
        ({"burn_in": -1}, "burn_in must be a whole number of at least 0, not -1"),
        ({"posterior": 5}, "num_data=5 examples but the shards hold 6"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str, conjugate: Any) -> None:
    settings = {"trajectory": [5], "batch_size": 2} | change
    number = settings.pop("posterior", 6)
    posterior = db.Posterior(
        conjugate.posterior.network, db.outcomes.Gaussian(NOISE), db.priors.GaussianPrior(PRIOR), num_data=number
    )
    with pytest.raises(db.InvalidInput, match=message):
        db.teacher.distributed_chain(posterior, db.sgld(0.02), *conjugate.data, **settings)


# Processes

REPEATED = {"step_size": 4e-3, "burn_in": 2, "num_draws": 20, "num_chains": 4, "trajectory": [4, 8], "batch_size": 2}
"""A run of two processes that is done whole, and once more with a kill."""


RUNS: dict[int, dict[str, Any]] = {
    2: {"whole": REPEATED | {"at": [[1.0, 1.0], [0.0, 2.0]]}},
    3: {
        "coarse": {"num_chains": 600, "trajectory": LENGTHS[:3], "step_size": 4e-3, "burn_in": 40, "num_draws": 40},
    },
}
"""What so many processes run."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Ended]:
    """What so many processes leave, run once."""
    return functools.cache(lambda workers: run_processes(tmp_path_factory.mktemp("all"), workers, RUNS[workers]))


def test_all_processes_get_the_same_draws(ended: Callable[[int], Ended]) -> None:
    done = ended(3)
    assert done.codes == [0] * 3, done.said
    for name, run in RUNS[3].items():
        draws = [results[f"{name}.draws"] for results in done.results]
        assert draws[0].shape == (3 * run["num_chains"], run["num_draws"], 2)
        assert len(np.unique(draws[0].reshape(-1, 2), axis=0)) == draws[0].size // 2
        for other in draws[1:]:
            np.testing.assert_array_equal(other, draws[0])


def test_chains_that_travel_have_the_law_of_their_tours(ended: Callable[[int], Ended], z_scores: Any) -> None:
    """With a step so coarse that it is not the posterior's, to which it tends (see above); five entries at |z| < 4.

    Fails by chance with probability 3e-4 for another seed.
    """
    draws = ended(3).results[0]["coarse.draws"].astype(np.float64)

    def scores(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        centred = draws - mean
        outer = np.einsum("cti,ctj->cij", centred, centred) / draws.shape[1]
        return np.append(z_scores(draws.mean(axis=1), mean), z_scores(outer, covariance)[np.triu_indices(2)])

    assert np.abs(scores(*law_of_tours(3, RUNS[3]["coarse"]["step_size"]))).max() < 4
    assert np.abs(scores(*posterior_moments(3))).max() > 10


def test_the_average_is_that_of_the_draws(ended: Callable[[int], Ended]) -> None:
    results = ended(2).results[1]
    predictions = results["whole.draws"].reshape(-1, 2).astype(np.float64) @ np.array([[1.0, 0.0], [1.0, 2.0]])
    assert results["whole.count"] == len(predictions)
    np.testing.assert_allclose(results["whole.mean"][:, 0], predictions.mean(axis=0), rtol=1e-5)


def test_a_killed_worker_is_reported_and_the_run_resumes_to_the_same_bits(
    ended: Callable[[int], Ended], tmp_path: Path
) -> None:
    """On two devices a process, while the whole run had one."""
    stored = {"run": REPEATED | {"folder": str(tmp_path / "stored")}}
    killed = run_processes(tmp_path / "killed", 2, stored, devices=2, signal=signal.SIGKILL, signal_in=13)
    assert killed.codes == [3, -signal.SIGKILL], killed.said
    assert "WorkerLost: process 0 has lost touch with another of the 2 processes" in killed.errors[0]
    assert "start all of them again; with a folder and resume they go on from the last checkpoint" in killed.errors[0]
    assert checkpoint_steps(tmp_path / "stored" / "worker-0") == [10, 12]
    # As if it had been killed as the last checkpoint was written: not all parts are there.
    (tmp_path / "stored" / "worker-1" / "step-000000000012").rename(tmp_path / "gone")
    resumed = run_processes(tmp_path / "resumed", 2, stored, devices=2)
    assert resumed.codes == [0, 0], resumed.said
    np.testing.assert_array_equal(resumed.results[0]["run.draws"], ended(2).results[0]["whole.draws"])


def test_the_example_runs(tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "examples" / "distributed.py"
    command = [sys.executable, script, "--processes", "2", "--rounds", "8", "--folder", tmp_path / "parts"]
    with (tmp_path / "log").open("w") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=lines, env=ENVIRONMENT, start_new_session=True)
    try:
        code = process.wait(timeout=SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said = (tmp_path / "log").read_text()
    assert code == 0, said
    assert "x =  5.0: y =" in said
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["worker-0", "worker-1"]
