"""One process of the run in test_mesh.py: ``python mesh_run.py PROCESSES NUMBER PORT OUT``; or one alone, whose devices
form meshes of several sizes: ``python mesh_run.py OUT``.
"""

import errno
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import darkbayes as db
from darkbayes import processes, runs
from darkbayes.files import write_arrays, write_text
from darkbayes.mesh import laid
from darkbayes.student.loop import Distillation
from darkbayes.teacher.keeping import trace_read

PRIOR, NOISE, AT = 2.0, 3.0, ((0.0, 1.0), (2.0, 1.0))
STEPS, STOPPED = 1_200, 800
KEY = 1
SHAPES = {8: 1, 4: 2, 2: 1}
"""How many devices of one process share the run, and how many of them the rows of each chain."""


def examples() -> tuple[np.ndarray, np.ndarray]:
    """A slope and an intercept."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=12), np.ones(12)], axis=1)
    return x, x @ [[1.0], [-0.5]] + rng.normal(size=(12, 1)) / np.sqrt(NOISE)


def parts() -> Any:
    """What is distilled into what."""
    x, y = examples()
    network = db.Network(lambda key, x: jax.random.normal(key, (2, 1)), lambda weights, x: x @ weights)
    posterior = db.Posterior(network, db.outcomes.Gaussian(NOISE), db.priors.GaussianPrior(PRIOR), num_data=len(x))
    head = db.outcomes.GaussianHead()
    return {
        "chain": db.minibatch_chain(posterior, db.sgld(4e-3), x, y, batch_size=None, burn_in=400, thin=40),
        "student": db.Student(db.mlp([8], head.width), head, optax.adam(1e-3)),
        "queries": db.queries.uniform_box(-2, 2),
        "settings": db.Settings(num_chains=8, query_batch=16, update_every=20, reservoir=2),
        "monitor": np.array(AT),
    }


def said(student: db.Student, params: Any, state: Any) -> dict[str, np.ndarray]:
    """What the student says, and what each chain of its teacher said, at the same inputs."""
    says, traced = db.predict_student(student, params, AT), trace_read(state.trace)[0]
    return {"mean": says.mean, "std": says.std, "traced": traced[..., 0]}


def distilled(mesh: Any, parts: dict[str, Any]) -> dict[str, np.ndarray]:
    """One distillation."""
    done = db.distil(**parts, key=jax.random.key(KEY), steps=STEPS, quiet=True, mesh=mesh)
    return said(parts["student"], done.params, done.state)


def in_folder(mesh: Any, parts: dict[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """The same in a run's folder, begun there or gone on with."""
    whole = db.distillation(**parts)
    run = runs.Run(folder, {}, resume=True, quiet=True, mesh=mesh)
    state = run.distil("student", whole, jax.random.key(KEY), STEPS)
    return said(whole.student, whole.best(state), state)


def stopped(mesh: Any, parts: dict[str, Any], folder: Path) -> None:
    """A run in a folder until it has saved a checkpoint in its middle; all processes stop there."""
    save = runs.save_shards

    def save_and_stop(folder: Path, state: Any, step: int) -> None:
        save(folder, state, step)
        if step >= STOPPED:
            raise InterruptedError

    runs.save_shards, runs.CHECKPOINT_SECONDS, runs.CHECKPOINT_SHARE = save_and_stop, 0.0, 1.0
    try:
        in_folder(mesh, parts, folder)
    except InterruptedError:
        runs.save_shards = save


def on_a_full_disk(mesh: Any, parts: dict[str, Any], folder: Path) -> str:
    """What is said where the first process cannot keep how it goes; the folder is left as a full disk leaves it."""
    sync = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/metrics.jsonl"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    os.fsync = full
    try:
        in_folder(mesh, parts, folder)
    except (OSError, db.RunError) as problem:
        return str(problem)
    finally:
        os.fsync = sync
    return ""


def gathers(mesh: Any, parts: dict[str, Any]) -> int:
    """How often devices hand each other what belongs to chains, in a program that runs chains in turn."""
    chain = db.mclmc_chain(parts["chain"].posterior, *examples(), burn_in=20, thin=20)
    others: Any = parts | {"chain": chain}
    divided = db.distillation(**others).on(mesh)
    burn: Any = Distillation.burn
    program = burn.lower(divided, divided.init(laid(jax.random.key(KEY), mesh)), np.int32(1)).compile()
    return program.compiled.as_text().count("all-gather(")


def divided_students(mesh: Any) -> int:
    """How many arrays of students that take over draws, which lie along chains, are not whole everywhere."""
    (x, y), head = examples(), db.outcomes.GaussianHead()
    network, likelihood = db.mlp([4], 1), db.outcomes.Gaussian(NOISE)
    posterior = db.Posterior(network, likelihood, db.priors.GaussianPrior(PRIOR), num_data=len(x))
    chain = db.minibatch_chain(posterior, db.sgld(4e-3), x, y, batch_size=None, burn_in=4, thin=4)
    student = db.Student(db.mlp([16], head.width), head, optax.adam(1e-3), holds_draws=True)
    parts = db.distillation(chain, student, db.queries.uniform_box(-2, 2), db.Settings(num_chains=4)).on(mesh)
    state, _ = parts.advance(parts.burn(parts.init(laid(jax.random.key(KEY), mesh)), np.int32(4)), np.int32(2))
    return sum(not leaf.is_fully_replicated for leaf in jax.tree.leaves((state.students, state.optimisers)))


def main(number: int, count: int, port: str, out: str) -> None:
    processes.join(f"localhost:{port}", count, number)
    mesh, same = db.device_mesh(data=2), parts()
    once, folder = distilled(mesh, same), Path(out) / "run"
    stopped(mesh, same, folder)
    if number == 0:
        shutil.copytree(folder, Path(out) / "half")
    write_text(Path(out) / f"full-{number}", on_a_full_disk(mesh, same, folder))
    resumed = in_folder(mesh, same, folder)
    bits = all(np.array_equal(once[name], resumed[name]) for name in once)
    counts = {"gathers": np.array(gathers(mesh, same)), "divided": np.array(divided_students(mesh))}
    write_arrays(Path(out) / str(number), once | {"same": np.array(bits)} | counts)
    processes.gather(np.zeros(1))
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        processes.gather(np.zeros(1))
    except db.WorkerLost as problem:
        write_text(Path(out) / "lost", str(problem))
        os._exit(3)


def alone(out: str) -> None:
    """The same distillation by all devices of one process, and by some of them."""
    same = parts()
    for number, rows in SHAPES.items():
        devices = np.array(jax.devices()[:number]).reshape(-1, rows)
        write_arrays(Path(out) / f"{number}-devices", distilled(jax.sharding.Mesh(devices, ("chain", "data")), same))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        alone(sys.argv[1])
    else:
        main(int(sys.argv[2]), int(sys.argv[1]), *sys.argv[3:])
