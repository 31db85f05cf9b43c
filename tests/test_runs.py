"""Run folders: whole files or none, resumption in the same bits, and refusals that say what to do."""

import fcntl
import functools
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.checkpoints import load_checkpoint, named_leaves, save_checkpoint
from darkbayes.files import read_arrays, read_json, write_arrays, write_json
from darkbayes.runs import CHECKPOINT_SHARE, Run, provenance, row
from darkbayes.student.loop import Distillation, Snapshot
from darkbayes.teacher.chain import in_chunks


@pytest.fixture(scope="module")
def tree() -> dict:
    return {
        "key": jax.random.key(3),
        "count": jnp.int32(7),
        "nested": (jnp.arange(6.0).reshape(2, 3).T, [jnp.ones(())]),
        "nothing": None,
    }


@pytest.fixture(scope="module")
def parts(classes: db.Data) -> Distillation:
    posterior = db.Posterior(db.mlp([4], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    chain = db.minibatch_chain(posterior, db.sgld(1e-2), *classes, batch_size=None, burn_in=10, thin=5)
    student = db.Student(db.mlp([4], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    return db.distillation(chain, student, db.queries.uniform_box(-5, 5), db.Settings(query_batch=8, reservoir=4))


def test_a_checkpoint_gives_back_the_same_bits(tree, tmp_path, trees_equal):
    save_checkpoint(tmp_path, tree, 12)
    actual = load_checkpoint(tmp_path, tree)
    assert actual is not None
    loaded, step = actual
    assert step == 12
    assert trees_equal(loaded, tree)
    assert loaded["count"].shape == ()


def test_the_last_two_checkpoints_are_kept_and_nothing_half_written_stays(tree, tmp_path):
    (tmp_path / ".step-1.99").mkdir(parents=True)
    for step in (1, 2, 30):
        save_checkpoint(tmp_path, tree, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000000002", "step-000000000030"]


def test_without_a_checkpoint_there_is_nothing_to_load(tree, tmp_path):
    assert load_checkpoint(tmp_path / "none", tree) is None


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_checkpoint_is_refused_with_a_remedy(tree, tmp_path, damage):
    save_checkpoint(tmp_path, tree, 1)
    save_checkpoint(tmp_path, tree, 2)
    file = tmp_path / "step-000000000002" / "state.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
        file.write_bytes(content)
    elif damage == "truncate":
        file.write_bytes(content[:-4])
    else:
        file.unlink()
    with pytest.raises(
        db.RunError, match=r"corrupt or truncated: delete .*step-000000000002 to go on from the one before"
    ):
        load_checkpoint(tmp_path, tree)


def test_a_damaged_manifest_is_refused(tree, tmp_path):
    save_checkpoint(tmp_path, tree, 1)
    (tmp_path / "step-000000000001" / "manifest.json").write_text("{")
    with pytest.raises(db.RunError, match=r"corrupt or truncated: delete .* to go on from the start"):
        load_checkpoint(tmp_path, tree)
    (tmp_path / "step-000000000001" / "manifest.json").write_text("[]")
    with pytest.raises(db.RunError, match="corrupt or truncated"):
        load_checkpoint(tmp_path, tree)


def test_a_checkpoint_of_another_configuration_is_refused(tree, tmp_path):
    save_checkpoint(tmp_path, tree, 1)
    with pytest.raises(db.RunError, match="belongs to another configuration"):
        load_checkpoint(tmp_path, tree | {"count": jnp.zeros(2)})


def test_arrays_that_are_not_contiguous_are_stored_as_they_are(tmp_path):
    value = np.arange(6.0).reshape(2, 3).T
    write_arrays(tmp_path / "a.safetensors", {"value": value, "scalar": np.float32(2.0)})
    back = read_arrays(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(back["value"], value)
    assert back["scalar"].shape == ()
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_every_changed_byte_of_stored_arrays_is_noticed(tmp_path):
    path, arrays = (
        tmp_path / "a.safetensors",
        {"value": np.arange(6.0), "none": np.zeros((0, 3)), "scalar": np.int32(2)},
    )
    write_arrays(path, arrays, {"what": "numbers", "by": "nobody"})
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        with pytest.raises(db.RunError, match=r"a\.safetensors"):
            read_arrays(path)


def test_unreadable_files_are_named(tmp_path):
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(db.RunError, match=r"bad\.safetensors is corrupt"):
        read_arrays(tmp_path / "bad.safetensors")
    with pytest.raises(db.RunError, match=r"gone\.safetensors is not there"):
        read_arrays(tmp_path / "gone.safetensors")
    with pytest.raises(db.RunError, match=r"results\.json is not there"):
        read_json(tmp_path / "results.json")
    (tmp_path / "fit.json").write_text("{}")
    with pytest.raises(db.RunError, match=r"fit\.json does not say 'notes', as that of a finished run does"):
        read_json(tmp_path / "fit.json", "notes")


def test_a_folder_with_another_run_is_refused(tmp_path):
    Run(tmp_path / "run", {"seed": 0, "steps": 5})
    with pytest.raises(db.RunError, match="already holds a run: resume it"):
        Run(tmp_path / "run", {"seed": 0, "steps": 5})
    with pytest.raises(db.RunError, match=r"another run \(seed is 0, not 1\)"):
        Run(tmp_path / "run", {"seed": 1, "steps": 5}, resume=True)
    Run(tmp_path / "run", {"seed": 0, "steps": 5}, resume=True)


def test_a_folder_that_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    (tmp_path / ".mine.part").write_text("precious")
    with pytest.raises(db.RunError, match="is not empty and holds no run"):
        Run(tmp_path, {}, resume=True)
    with pytest.raises(db.RunError, match="is a file"):
        Run(tmp_path / "mine.txt", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.part", "mine.txt"]


def test_a_run_that_was_begun_with_another_version_is_refused(tmp_path):
    Run(tmp_path, {"seed": 0})
    began = read_json(tmp_path / "began.json")
    write_json(tmp_path / "began.json", began | {"jax": "0.1"})
    with pytest.raises(db.RunError, match=r"was begun elsewhere \(jax is '0\.1', not"):
        Run(tmp_path, {"seed": 0}, resume=True)


def test_a_checkpoint_of_another_seed_is_refused(parts, tmp_path):
    run = Run(tmp_path / "run", {}, quiet=True)
    run.distil("d", parts, jax.random.key(0), 15)
    with pytest.raises(db.RunError, match="another seed"):
        run.distil("d", parts, jax.random.key(1), 60)


def test_the_weights_of_a_student_are_loaded_again(parts, tmp_path, classes, trees_equal):
    state = Run(tmp_path / "run", {}, quiet=True).distil("d", parts, jax.random.key(0), 15)
    file = tmp_path / "run" / "d" / "student.safetensors"
    assert trees_equal(db.load_student(file, parts.student, classes.x), parts.best(state))
    wider = db.Student(db.mlp([5], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    with pytest.raises(db.RunError, match="another network"):
        db.load_student(file, wider, classes.x)


def test_a_run_that_was_killed_as_it_began_begins_anew(tmp_path):
    (tmp_path / "began.json").write_text("{}")
    Run(tmp_path, {"seed": 0}, resume=True)
    assert read_json(tmp_path / "config.json") == {"seed": 0}
    assert read_json(tmp_path / "began.json")["version"] == db.__version__


def test_what_a_kill_left_half_written_does_not_stand_in_the_way(tmp_path):
    (tmp_path / ".config.json.99.part").write_text("{")
    Run(tmp_path, {"seed": 0})
    (tmp_path / "trial-0").mkdir()
    (tmp_path / "trial-0" / ".hmc.safetensors.99.part").write_bytes(b"half")
    Run(tmp_path, {"seed": 0}, resume=True)
    assert not list(tmp_path.rglob("*.part"))


def test_a_piece_of_work_is_done_once(tmp_path):
    calls = []

    def compute() -> dict:
        calls.append(1)
        return {"value": np.ones(2)}

    run = Run(tmp_path / "run", {})
    for _ in range(2):
        np.testing.assert_array_equal(run.once("piece", compute)["value"], np.ones(2))
    assert len(calls) == 1


def test_a_run_that_is_killed_and_cut_otherwise_leaves_the_same_bytes(parts, tmp_path, monkeypatch):
    """Metrics and verdict included: what is told of a run hangs on its steps, and not on the clock."""
    key, steps = jax.random.key(0), 510
    Run(tmp_path / "whole", {}, quiet=True).distil("d", parts, key, steps)
    monkeypatch.setattr("darkbayes.runs.CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr("darkbayes.runs.CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr("darkbayes.student.loop.in_chunks", functools.partial(in_chunks, seconds=1e-5))
    saves = itertools.count(1)

    def save(*given: Any) -> None:
        save_checkpoint(*given)
        if next(saves) % 23 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr("darkbayes.runs.save_checkpoint", save)
    kills, done = 0, False
    while not done:
        try:
            Run(tmp_path / "broken", {}, resume=True, quiet=True).distil("d", parts, key, steps)
            done = True
        except KeyboardInterrupt:
            kills += 1
    assert kills >= 2
    for name in ("student.safetensors", "metrics.jsonl", "diagnostics.json"):
        assert (tmp_path / "whole" / "d" / name).read_bytes() == (tmp_path / "broken" / "d" / name).read_bytes()
    steps_told = [json.loads(line)["step"] for line in (tmp_path / "whole/d/metrics.jsonl").read_text().splitlines()]
    assert steps_told == [*range(10 + 5 * 5, 510, 25), 510]


def test_a_folder_in_use_is_refused_until_its_process_is_dead(tmp_path):
    Run(tmp_path / "run", {"seed": 0})
    code = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[1], 0), 2); print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path / "run"], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            with pytest.raises(db.RunError, match="is in use by another process: wait until it ends"):
                Run(tmp_path / "run", {"seed": 0}, resume=True)
        finally:
            other.kill()
    Run(tmp_path / "run", {"seed": 0}, resume=True)


def test_the_next_to_write_a_file_removes_what_a_killed_one_left(tmp_path):
    path, dead = tmp_path / "out [1].json", subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, alive, locked = (tmp_path / f".{path.name}.{number}.part" for number in (dead.pid, 1, dead.pid + 2**22))
    other = tmp_path / f".other.json.{dead.pid}.part"
    for file in (left, alive, locked, other):
        file.write_bytes(b"half")
    with locked.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_json(path, {})
    assert {file.name for file in tmp_path.iterdir()} == {path.name, alive.name, locked.name, other.name}


def test_what_is_renamed_is_on_the_disk_before(tmp_path, monkeypatch):
    order: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr("darkbayes.files.os.fsync", lambda file: (order.append("sync"), fsync(file)))
    monkeypatch.setattr("darkbayes.files.os.replace", lambda *names: (order.append("rename"), replace(*names)))
    write_json(tmp_path / "new" / "a.json", {})
    assert order == ["sync", "rename", "sync"]


@pytest.mark.parametrize(("save_s", "between"), [(0.01, 10), (0.2, 10), (3.0, 150)])
def test_checkpoints_take_little_of_a_runs_time(save_s, between, tmp_path, monkeypatch):
    """By a clock of its own: 4,000 chunks of half a second, and checkpoints that take their time."""
    now, saved = [0.0], []

    def save(folder: Path, state: object, step: int) -> None:
        saved.append(now[0])
        now[0] += save_s

    def chunks(state: Snapshot, steps: int, deadline: float | None = None) -> Iterator[Snapshot]:
        for step in range(1, steps + 1):
            now[0] += 0.5
            yield Snapshot(state, step, None, None)

    state = SimpleNamespace(update_key=jax.random.key(0), teacher=SimpleNamespace(step=np.int32(4000)))
    endless = SimpleNamespace(
        check_steps=int,
        init=lambda key: state,
        run=chunks,
        best=lambda state: {"weight": np.ones(2)},
        diagnose=lambda state, curve: SimpleNamespace(as_dict=dict),
    )
    monkeypatch.setattr("darkbayes.runs.time", SimpleNamespace(time=lambda: now[0]))
    monkeypatch.setattr("darkbayes.runs.save_checkpoint", save)
    Run(tmp_path / "run", {}, quiet=True).distil("d", endless, jax.random.key(0), 4000)
    # The first is the one that is timed, the last is the one at the end; a pause lasts until the next chunk is over.
    assert (len(saved) - 2) * save_s <= CHECKPOINT_SHARE * now[0]
    assert np.diff(saved)[1:-1] == pytest.approx(between + save_s, abs=1.0)
    assert len(saved) > 2000 / (between + save_s + 1.0)


def test_metrics_have_one_line_per_step_after_resuming(parts, tmp_path):
    key = jax.random.key(0)
    run = Run(tmp_path / "run", {}, quiet=True)
    run.distil("d", parts, key, 60)
    file = tmp_path / "run" / "d" / "metrics.jsonl"
    before = file.read_text()
    # What a killed run had written after its last checkpoint, the last line cut short.
    file.write_text(before + '{"step": 61, "loss": 1.0, "kl": 1.0}\n{"step": 7')
    run.distil("d", parts, key, 110)
    steps = [json.loads(line)["step"] for line in file.read_text().splitlines()]
    assert file.read_text().startswith(before)  # Up to the line of the checkpoint's own step.
    assert steps == sorted(set(steps))
    assert steps[-1] == 110
    assert 61 not in steps


def test_results_say_where_they_come_from(tmp_path):
    origin = provenance(seed=5, wall_s=1.25)
    assert origin["seed"] == 5
    assert origin["version"] == db.__version__
    assert {"commit", "jax", "device", "command", "wall_s"} <= origin.keys()
    write_json(tmp_path / "p.json", origin)
    assert read_json(tmp_path / "p.json") == origin


def test_a_copy_of_a_checkout_is_told_its_commit(monkeypatch):
    monkeypatch.setenv("DARKBAYES_COMMIT", "0123abc")
    assert provenance(seed=0, wall_s=0.0)["commit"] == "0123abc"


def test_a_row_has_mean_and_standard_error():
    made = row("sgd", "error", [1.0, 3.0], paper=1.5)
    assert made["mean"] == 2.0
    assert made["se"] == pytest.approx(1.0)
    assert made["trials"] == 2
    assert made["paper"] == 1.5
    assert row("sgd", "error", [1.0])["se"] is None


def test_leaves_are_named_by_their_paths(parts):
    params = parts.student.init(jax.random.key(0), jnp.zeros((1, 2)))
    assert set(named_leaves(params)) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    write_json(path, {"old": True})

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("darkbayes.files.os.replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_json(path, {"old": False})
    assert json.loads(Path(path).read_text()) == {"old": True}
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
