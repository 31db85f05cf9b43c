"""``fit --distributed`` by processes of their own, told their place as clusters tell it; and what they refuse."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import yaml

import darkbayes as db
import fit_run
from darkbayes import cli, processes
from darkbayes.cli.modelling import Fit
from darkbayes.files import read_arrays, read_json, write_json
from darkbayes.shipped import Shipped
from together import SECONDS, free_port

SMALL = shlex.split(
    "--hidden 4 --activation relu --likelihood one-noise --student-hidden 8 --head gaussian --chains 2 --effort 0.005 "
    "--held-out 0 --time-budget none"
)
FIT = ["fit", "table.csv", "--target", "y", "--out", "run", "--distributed", *SMALL]
PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")


class Ended(NamedTuple):
    """What is left of the processes of a command."""

    codes: list[int]
    printed: list[str]
    messages: list[str]


def write_table(path: Path, seed: int = 0) -> None:
    """Two numbers and what follows from them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 2))
    lines = [f"{a:.3f},{b:.3f},{a - b + 0.1 * c:.3f}" for (a, b), c in zip(x, rng.normal(size=40), strict=True)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["a,b,y", *lines]) + "\n")


def environment() -> dict[str, str]:
    """Of a process that runs `fit_run`."""
    roots = [Path(db.__file__).parent.parent, Path(fit_run.__file__).parent]
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots)), "JAX_PLATFORMS": "cpu"}


def run(folder: Path, places: list[dict[str, str]], commands: list[list[str]]) -> Ended:
    """A command by processes that find their place in the environment, each in its own words."""
    started = []
    try:
        for place, words in zip(places, commands, strict=True):
            streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            command, variables = [sys.executable, fit_run.__file__, *words], environment() | place
            started.append(subprocess.Popen(command, cwd=folder, env=variables, **streams))
        said = [process.communicate(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return Ended([process.returncode for process in started], *map(list, zip(*said, strict=True)))


@pytest.fixture(scope="module")
def slurm(made_once) -> Path:
    """What two tasks of Slurm leave, and how they ended."""

    def make(folder: Path) -> None:
        write_table(folder / "table.csv")
        step = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
        step |= {"JAX_COORDINATOR_PORT": str(free_port())}
        places = [step | {"SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)} for number in range(2)]
        write_json(folder / "ended.json", run(folder, places, [[*FIT, "--json"]] * 2)._asdict())

    return made_once("slurm", make)


def test_two_tasks_of_slurm_fit_one_student_and_the_first_alone_speaks(slurm):
    ended = Ended(**read_json(slurm / "ended.json"))
    assert ended.codes == [0, 0], ended.messages
    assert ended.printed[1] == ended.messages[1] == ""
    # Nothing else is on standard output, where Gloo writes.
    assert json.loads(ended.printed[0])["rows"] == read_json(slurm / "run" / "results.json")["rows"]
    assert (slurm / "run" / "student.onnx").exists()
    assert (slurm / "run" / "report.html").exists()
    *_, last = sorted((slurm / "run" / "student" / "checkpoint").iterdir())
    assert "1@teacher.states.params.network.0.weight" in read_arrays(last / "state-1.safetensors")


@pytest.mark.filterwarnings("ignore")  # Of Ray's own.
def test_two_actors_of_ray_as_the_page_has_them_fit_the_same_student(slurm, tmp_path, monkeypatch):
    """Word for word, but for the number of processes, where things lie, and that here both share the rows of chains."""
    ray = pytest.importorskip("ray", reason="needs ray: pip install darkbayes[cluster]")
    (code,) = re.findall(r"^```python\n(import subprocess\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    quiet = "num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level='ERROR', "
    here = {
        "ray.init()": f"ray.init({quiet}object_store_memory=80 * 2**20)",
        ":1234": f":{free_port()}",
        "/data/": f"{slurm}/",
        "houses.csv --target price": "table.csv --target y",
        "--out " + f"{slurm}/run": f"--out {tmp_path}/run",
        "range(4)": "range(2)",
        "address, 4,": "address, 2,",
    }
    for said, instead in here.items():
        assert said in code
        code = code.replace(said, instead)
    command = tmp_path / "darkbayes"
    options = shlex.join([*SMALL, "--data-devices", "2", "--quiet"])
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {fit_run.__file__} "$@" {options}\n')
    command.chmod(0o755)
    for name, value in (environment() | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}).items():
        monkeypatch.setenv(name, value)
    scope: dict[str, Any] = {}
    try:
        exec(compile(code, "docs/distributed.md", "exec"), scope)
    finally:
        ray.shutdown()
    assert scope["codes"] == [0, 0]
    students = [Shipped(folder / "run") for folder in (slurm, tmp_path)]
    rows = np.random.default_rng(1).normal(size=(20, 2))
    one, other = (student.predict({"a": rows[:, 0], "b": rows[:, 1]}) for student in students)
    np.testing.assert_allclose(other.mean, one.mean, atol=1e-4)
    np.testing.assert_allclose(other.std, one.std, atol=1e-4)


def test_processes_that_were_told_different_things_all_say_so(tmp_path):
    """Kubeflow's variables; another seed alone, another table alone, another version alone."""
    kubeflow = {"JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    places = [kubeflow | {"JAX_PROCESS_ID": "0"}, kubeflow | {"JAX_PROCESS_ID": "1", "VERSION": "0.0"}]
    commands = []
    for number in range(2):
        write_table(tmp_path / str(number) / "table.csv", seed=number)
        quiet = ["--quiet", *FIT[2:]]
        seed = ["fit", "0/table.csv", *quiet, "--seed", str(number)]
        commands.append([*seed, "/", "fit", f"{number}/table.csv", *quiet, "/", "fit", "0/table.csv", *quiet])
    ended = run(tmp_path, places, commands)
    assert ended.codes == [2, 2]
    for number, (messages, version) in enumerate(zip(ended.messages, (db.__version__, "0.0"), strict=True)):
        remedy = f" on process {number}: call with the same on all of them"
        seed, table, other = (line.removesuffix(remedy) for line in messages.splitlines())
        assert seed == f"darkbayes: seed differs between processes, it is {number}"
        assert re.fullmatch("darkbayes: sha256 differs between processes, it is '[0-9a-f]{64}'", table)
        assert other == f"darkbayes: darkbayes differs between processes, it is '{version}'"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "environment", "place"),
    [
        (("a:1", 4, 3), {}, ("a:1", 4, 3)),
        ((), {}, (None, None, None)),  # JAX finds out, as of Slurm and Open MPI 4.
        ((), {"JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}, (None, None, None)),
        ((), {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}, ("a:1", 4, 3)),
        ((), {"JAX_COORDINATOR_ADDRESS": "a:1", "NUM_PROCESSES": "4", "PROCESS_ID": "3"}, ("a:1", 4, 3)),
        (("a:1",), {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}, ("a:1", 4, 3)),
        (("a:1", 2, 0), {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}, ("a:1", 2, 0)),
    ],
)
def test_a_place_is_what_is_given_or_else_what_the_environment_says(given, environment, place, monkeypatch):
    assert joined(given, environment, monkeypatch) == place


def joined(given: Any, environment: dict[str, str], patch: pytest.MonkeyPatch) -> Any:
    """The place that JAX is told."""
    calls: list[Any] = []
    patch.setattr(processes, "_reach", lambda coordinator: None)
    patch.setattr(jax.distributed, "initialize", lambda *place, **waits: calls.append(place))
    for name, value in environment.items():
        patch.setenv(name, value)
    processes.join(*given)
    return calls[0]


def commands_of(text: str) -> list[Fit]:
    """The fits in a script, as the command line understands them."""
    lines = re.findall(r"\bdarkbayes (fit .*?)(?: &| \$resume|\s+\$\(.*\))?$", text, re.MULTILINE)
    return [cli._parsed(shlex.split(line)) for line in lines]


def test_the_scripts_of_the_page_are_fits_by_several_processes():
    scripts = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    by_hand, slurm, mpi = ([fit for fit in commands_of(script)] for script in scripts)
    assert [(fit.coordinator, fit.processes, fit.process) for fit in by_hand] == [
        ("localhost:1234", 2, 0),
        ("localhost:1234", 2, 1),
    ]
    assert [fit.distributed for fit in (*slurm, *mpi)] == [True, True]


def test_the_manifests_of_the_page_tell_each_pod_its_place(monkeypatch):
    job, jobs = (yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
    program, *words = job["spec"]["trainer"]["command"]
    assert program == "darkbayes"
    assert cli._parsed(words).distributed

    name, ((one,),) = jobs["metadata"]["name"], [jobs["spec"]["replicatedJobs"]]
    pods = one["template"]["spec"]
    (container,) = pods["template"]["spec"]["containers"]
    (fit,) = commands_of(" ".join(container["args"]))
    assert fit.distributed
    assert fit.chains % pods["parallelism"] == 0
    assert pods["parallelism"] == pods["completions"]
    *said, index = container["env"]
    assert "job-completion-index" in index["valueFrom"]["fieldRef"]["fieldPath"]
    variables = {variable["name"]: variable["value"] for variable in said} | {index["name"]: "3"}
    # The first pod of the first job, in the service that a JobSet makes under its own name.
    place = (f"{name}-{one['name']}-0-0.{name}:1234", pods["parallelism"], 3)
    assert joined((), variables, monkeypatch) == place


@pytest.mark.parametrize(
    ("chains", "share", "message"),
    [
        (8, 1, r"--chains 8 cannot .* 16 devices of 4 processes: use --chains 16, or let .* \(--data-devices 2\)"),
        (6, 4, r"6 cannot .* 16 devices of 4 processes, --data-devices 4 to a chain: use --chains 8, .*-devices 8\)"),
        (8, 3, "--data-devices 3 must divide the 16 devices of 4 processes"),
        (8, 0, "--data-devices must be a whole number of at least 1, not 0"),
    ],
)
def test_devices_that_chains_and_rows_cannot_be_divided_among_are_refused(chains, share, message, monkeypatch):
    monkeypatch.setattr(processes, "require_alike", lambda **settings: None)
    monkeypatch.setattr(jax, "device_count", lambda: 16)
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(db.InvalidInput, match=message):
        Fit((), distributed=True, chains=chains, data_devices=share)._mesh({})


def test_devices_that_share_rows_are_those_of_several_processes():
    with pytest.raises(db.InvalidInput, match="--data-devices 2 is for several processes: add --distributed"):
        Fit((), data_devices=2).run()


def test_a_coordinator_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    address, began = f"localhost:{free_port()}", time.monotonic()
    with pytest.raises(db.RunError, match=f"nobody answers at coordinator {address} within 0.1 s .*: start process 0"):
        processes.join(address, 2, 1)
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize(
    ("given", "environment", "message"),
    [
        (("nowhere", 2, 0), {}, "coordinator nowhere is not an address: write HOST:PORT"),
        (("localhost:99999", 2, 0), {}, "coordinator localhost:99999 is not an address: write HOST:PORT"),
        (("localhost:1", 0, 0), {}, "processes must be 1 or more, not 0"),
        (("localhost:1", 2, 2), {}, "process 2 of 2 processes: count from 0 to 1"),
        (
            (),
            {"JAX_COORDINATOR_ADDRESS": "localhost:1", "JAX_PROCESS_ID": "one"},
            "'one' in the environment is not a num",
        ),
        ((), {}, "this process does not find the others .*: start it by srun, mpirun or as a JobSet, or give coord"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(given, environment, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(db.InvalidInput, match=message):
        processes.join(*given)


def test_a_process_that_waited_in_vain_says_where(capfd):
    """As the runtime below Python ends a process: before all have met, and after."""
    fatal = "E0000 client.h:1 JAX distributed service detected fatal errors\n"
    for lines, said in (
        (
            [f"{processes.WAITING}localhost:7 for 2 processes\n", fatal],
            "not all came within 300 s, .* localhost:7 for 2",
        ),
        ([f"{processes.WAITING}localhost:7 for 2\n", f"{processes.TOGETHER}\n", fatal], "See what that one wrote last"),
    ):
        reading, writing = os.pipe()
        with os.fdopen(writing, "w") as stream:
            stream.writelines(lines)
        processes._pass_on(reading)
        shown = capfd.readouterr().err
        assert re.search(said, shown)
        assert len(shown.splitlines()) == 1
