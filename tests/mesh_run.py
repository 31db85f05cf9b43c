"""One process of the run in test_mesh.py: ``python mesh_run.py PROCESSES NUMBER PORT OUT``."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import darkbayes as db
from darkbayes.files import write_arrays

PRIOR, NOISE, AT = 2.0, 3.0, ((0.0, 1.0), (2.0, 1.0))


def examples() -> tuple[np.ndarray, np.ndarray]:
    """A slope and an intercept."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=12), np.ones(12)], axis=1)
    return x, x @ [[1.0], [-0.5]] + rng.normal(size=(12, 1)) / np.sqrt(NOISE)


def distilled(mesh: Any) -> dict[str, np.ndarray]:
    """What the student says, and what each chain of its teacher said, at the same inputs."""
    x, y = examples()
    network = db.Network(lambda key, x: jax.random.normal(key, (2, 1)), lambda weights, x: x @ weights)
    posterior = db.Posterior(network, db.outcomes.Gaussian(NOISE), db.priors.GaussianPrior(PRIOR), num_data=len(x))
    teacher = db.minibatch_chain(posterior, db.sgld(4e-3), x, y, batch_size=None, burn_in=400, thin=40)
    head = db.outcomes.GaussianHead()
    student = db.Student(db.mlp([8], head.width), head, optax.adam(1e-3))
    settings = db.Settings(num_chains=8, query_batch=16, update_every=20, reservoir=2)
    queries = db.queries.uniform_box(-2, 2)
    common: Any = {"steps": 1_200, "settings": settings, "monitor": np.array(AT), "quiet": True}
    done = db.distil(teacher, student, queries, jax.random.key(1), **common, mesh=mesh)
    said, traced = db.predict_student(student, done.params, AT), db.teacher.keeping.trace_read(done.state.trace)[0]
    return {"mean": said.mean, "std": said.std, "traced": traced[..., 0]}


if __name__ == "__main__":
    processes, number, port, out = sys.argv[1:]
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(number), initialization_timeout=300)
    once, again = (distilled(db.device_mesh(data=2)) for _ in range(2))
    same = all(np.array_equal(once[name], again[name]) for name in once)
    write_arrays(Path(f"{out}-{number}"), once | {"same": np.array(same)})
