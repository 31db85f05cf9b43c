"""One distillation by the devices of several processes: the student, and the law of its teacher, stay what they are."""

import os
import signal
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import darkbayes as db
import mesh_run
from darkbayes.checkpoints import load_checkpoint
from darkbayes.files import read_arrays
from together import exit_codes, free_port


def environment(devices: int) -> dict[str, str]:
    """Of a process that has so many devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return os.environ | {"PYTHONPATH": str(Path(db.__file__).parent.parent), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


@pytest.fixture(scope="module")
def alone() -> dict[str, np.ndarray]:
    """What one device has in the end."""
    return mesh_run.distilled(None, mesh_run.parts())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What two processes leave, each with two devices: chains and rows divided by two. The second is killed at last."""
    folder = tmp_path_factory.mktemp("mesh")
    port = free_port()
    commands = [[sys.executable, mesh_run.__file__, "2", str(number), str(port), str(folder)] for number in range(2)]
    codes = exit_codes(commands, [folder / f"log-{number}" for number in range(2)], environment(devices=2))
    assert codes == [3, -signal.SIGKILL], (folder / "log-0").read_text()[-3000:]
    return folder


@pytest.fixture(scope="module")
def divided(folder) -> list[dict[str, np.ndarray]]:
    """What each of the processes has in the end."""
    return [read_arrays(folder / str(number)) for number in range(2)]


def test_the_student_is_the_same_whoever_computed_it(alone, divided, folder):
    """Two processes, one, and one that goes on from the middle of what two have begun."""
    for each in (*divided, mesh_run.in_folder(None, mesh_run.parts(), folder / "half")):
        for name, expected in alone.items():
            np.testing.assert_allclose(each[name], expected, atol=1e-4)


def test_the_student_is_the_same_whatever_the_mesh(alone, tmp_path):
    commands = [[sys.executable, mesh_run.__file__, str(tmp_path)]]
    assert exit_codes(commands, [tmp_path / "log"], environment(devices=8)) == [0], (tmp_path / "log").read_text()
    for number in mesh_run.SHAPES:
        arrays = read_arrays(tmp_path / f"{number}-devices")
        for name, expected in alone.items():
            np.testing.assert_allclose(arrays[name], expected, atol=1e-4, err_msg=f"{number} devices")


def test_a_run_that_was_stopped_ends_in_the_same_bits_on_the_same_mesh(divided):
    assert [bool(each["same"]) for each in divided] == [True, True]


def test_a_disk_that_fills_ends_all_with_a_message_and_the_folder_stays_whole(divided, folder):
    """That the run then goes on to the same bits is said above."""
    said = [(folder / f"full-{number}").read_text() for number in range(2)]
    assert said == ["[Errno 28] No space left on device", "process 0 of 2 gave up: see its message"]


def test_checkpoints_are_written_by_all_and_whole_or_not_there(folder):
    """What is each chain's own in two shards, all else in the first; and nothing aside."""
    *_, last = sorted((folder / "run" / "student" / "checkpoint").iterdir())
    assert not list(last.parent.glob(".*"))
    assert sorted(path.name for path in last.iterdir()) == ["manifest.json", "state-1.safetensors", "state.safetensors"]
    first, second = (read_arrays(last / name) for name in ("state.safetensors", "state-1.safetensors"))
    assert first["teacher.states.params.network"].shape == (4, 2, 1) == second["4@teacher.states.params.network"].shape
    assert all(name.startswith("4@") for name in second)
    (last / "state-1.safetensors").write_bytes((last / "state.safetensors").read_bytes())
    with pytest.raises(db.RunError, match="is corrupt or truncated"):
        load_checkpoint(last.parent, {})


def test_no_device_steps_the_chains_of_another(divided):
    assert [int(each["gathers"]) for each in divided] == [0, 0]


def test_students_that_take_over_draws_stay_whole_on_every_device(divided):
    """Their checkpoints are written by the first process alone, which must have all of them."""
    assert [int(each["divided"]) for each in divided] == [0, 0]


def test_those_who_are_left_are_told_of_a_lost_process(folder):
    lost = (folder / "lost").read_text()
    assert lost.startswith("process 0 has lost touch with another of the 2 processes (")
    assert lost.endswith("with a folder and resume they go on from the last checkpoint")


def test_chains_on_a_mesh_have_the_law_of_the_posterior(divided, z_scores):
    """Mean and variance of what they predict at two inputs; four at |z| < 4.

    Steps are so short that the bias of their size is far below that. Fails by chance with probability 3e-4.
    """
    x, y = mesh_run.examples()
    covariance = np.linalg.inv(mesh_run.PRIOR * np.eye(2) + mesh_run.NOISE * x.T @ x)
    at = np.array(mesh_run.AT)
    mean, variance = at @ covariance @ x.T @ y[:, 0] * mesh_run.NOISE, np.einsum("ij,jk,ik->i", at, covariance, at)
    traced = divided[0]["traced"].astype(np.float64)
    assert np.abs(z_scores(traced.mean(axis=1), mean)).max() < 4
    assert np.abs(z_scores(((traced - mean) ** 2).mean(axis=1), variance)).max() < 4


def test_chains_that_cannot_be_divided_are_refused(conjugate):
    chain = db.minibatch_chain(conjugate.posterior, db.sgld(0.02), *conjugate.data, batch_size=None)
    head = db.outcomes.GaussianHead()
    student = db.Student(db.mlp([3], head.width), head, optax.sgd(1e-3))
    parts = db.distillation(chain, student, db.queries.jitter(0.1), db.Settings(num_chains=3))
    mesh = jax.sharding.AbstractMesh((2, 1), ("chain", "data"))
    with pytest.raises(db.InvalidInput, match="num_chains=3 must be a multiple of the mesh's 2 devices"):
        parts.on(mesh)
    with pytest.raises(db.InvalidInput, match=f"data=7 must divide the {jax.device_count()} devices"):
        db.device_mesh(data=7)
