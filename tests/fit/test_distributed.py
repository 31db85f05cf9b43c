"""``fit --distributed`` by processes of their own, told their place as clusters tell it; and what they refuse."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import darkbayes as db
import fit_run
from darkbayes import processes
from darkbayes.files import read_arrays, read_json
from together import SECONDS, free_port

SMALL = (
    "--hidden 4 --activation relu --likelihood one-noise --student-hidden 8 --head gaussian --chains 2 --effort 0.005 "
    "--held-out 0 --time-budget none --distributed"
)


class Ended(NamedTuple):
    """What is left of the processes of a command."""

    codes: list[int]
    printed: list[str]
    messages: list[str]


def run(folder: Path, *, places: list[dict[str, str]], more: list[list[str]] | None = None) -> Ended:
    """A fit by processes that find their place in the environment, each with more options of its own."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    lines = [f"{a:.3f},{b:.3f},{a - b + 0.1 * c:.3f}" for (a, b), c in zip(x, rng.normal(size=40), strict=True)]
    (folder / "table.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    roots = [Path(db.__file__).parent.parent, Path(fit_run.__file__).parent]
    common = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots)), "JAX_PLATFORMS": "cpu"}
    started = []
    try:
        for place, options in zip(places, more or [[]] * len(places), strict=True):
            command = [sys.executable, fit_run.__file__, "fit", "table.csv", "--target", "y", "--out", "run"]
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            started.append(
                subprocess.Popen([*command, *SMALL.split(), *options], cwd=folder, env=common | place, **streams)
            )
        said = [process.communicate(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return Ended([process.returncode for process in started], *map(list, zip(*said, strict=True)))


def test_two_tasks_of_slurm_fit_one_student_and_the_first_alone_speaks(tmp_path):
    slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    slurm |= {"JAX_COORDINATOR_PORT": str(free_port())}
    places = [slurm | {"SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)} for number in range(2)]
    ended = run(tmp_path, places=places, more=[["--json"]] * 2)
    assert ended.codes == [0, 0], ended.messages
    assert ended.printed[1] == ended.messages[1] == ""
    # Nothing else is on standard output, where Gloo writes.
    assert json.loads(ended.printed[0])["rows"] == read_json(tmp_path / "run" / "results.json")["rows"]
    assert (tmp_path / "run" / "student.onnx").exists()
    assert (tmp_path / "run" / "report.html").exists()
    *_, last = sorted((tmp_path / "run" / "student" / "checkpoint").iterdir())
    assert "1@teacher.states.params.network.0.weight" in read_arrays(last / "state-1.safetensors")


def test_processes_that_were_told_different_things_all_say_so(tmp_path):
    """Kubeflow's variables; the second process has another seed and another version."""
    kubeflow = {"JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    places = [kubeflow | {"JAX_PROCESS_ID": "0"}, kubeflow | {"JAX_PROCESS_ID": "1", "VERSION": "0.0"}]
    ended = run(tmp_path, places=places, more=[["--quiet"], ["--quiet", "--seed", "1"]])
    assert ended.codes == [2, 2]
    for number, (messages, version) in enumerate(zip(ended.messages, (db.__version__, "0.0"), strict=True)):
        expected = f"darkbayes differs between processes, it is '{version}' on process {number}"
        assert messages == f"darkbayes: {expected}: call with the same on all of them\n"
    assert not (tmp_path / "run").exists()


def test_a_coordinator_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    address, began = f"localhost:{free_port()}", time.monotonic()
    with pytest.raises(
        db.RunError, match=f"nobody answers at --coordinator {address} within 0.1 s .*: start process 0"
    ):
        processes.join(address, 2, 1)
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize(
    ("given", "environment", "message"),
    [
        (("nowhere", 2, 0), {}, "--coordinator nowhere is not an address: write HOST:PORT"),
        (("localhost:1", 2, 2), {}, "--process 2 of --processes 2: count from 0 to 1"),
        (
            (),
            {"JAX_COORDINATOR_ADDRESS": "localhost:1", "JAX_PROCESS_ID": "one"},
            "'one' in the environment is not a num",
        ),
        ((), {}, "this process does not find the others .*: start it by srun, mpirun or as a JobSet, or give --coord"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(given, environment, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(db.InvalidInput, match=message):
        processes.join(*given)
