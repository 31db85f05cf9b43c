"""One process of the distributed runs in test_chain.py: ``python worker.py TASK.json NUMBER``."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import darkbayes as db
from darkbayes.files import write_arrays, write_text
from darkbayes.teacher.distributed import chain as distributed


def end_itself_in(call: int, with_signal: int) -> None:
    """Let this process get a signal in its trajectory number `call`."""
    take_steps, calls = distributed.burn, iter(range(10**9))

    def burn(*arguments):
        if next(calls) == call:
            os.kill(os.getpid(), with_signal)
        return take_steps(*arguments)

    distributed.burn = burn


def run_task(task: dict[str, Any], number: int) -> None:
    x, y = np.array(task["x"]), np.array(task["y"])
    rows = slice(sum(task["sizes"][:number]), sum(task["sizes"][: number + 1]))
    start, spread = np.array(task["start"], np.float32), np.array(task["spread"], np.float32)
    network = db.Network(lambda key, x: start + spread @ jax.random.normal(key, (2, 1)), lambda weights, x: x @ weights)
    posterior = db.Posterior(
        network, db.outcomes.Gaussian(3.0), db.priors.GaussianPrior(2.0), num_data=task.get("num_data", len(x))
    )
    if number == 1 and "signal" in task:
        end_itself_in(task["signal_in"], task["signal"])
    results = {}
    for name, run in task["runs"].items():
        chain = db.teacher.distributed_chain(
            posterior,
            db.sgld(run["step_size"]),
            x[rows],
            y[rows],
            batch_size=run.get("batch_size"),
            trajectory=run["trajectory"],
            burn_in=run["burn_in"],
        )
        folder = run.get("folder")
        common = {"num_draws": run["num_draws"], "num_chains": run["num_chains"], "save_seconds": 0.0}
        draws = chain.sample(jax.random.key(run.get("seed", 0)), folder=folder, **common)
        results[f"{name}.draws"] = draws.network[..., 0]
        if "at" in run:
            average = chain.average(jax.random.key(0), run["at"], **common)
            results[f"{name}.mean"] = average.mean["mean"]
            results[f"{name}.count"] = average.count
    # Not by standard output, where Gloo writes too.
    write_arrays(Path(f"{task['out']}-{number}.safetensors"), results)


def main() -> None:
    task, number = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    jax.distributed.initialize(
        f"localhost:{task['port']}",
        num_processes=len(task["sizes"]),
        process_id=number,
        initialization_timeout=600,
        heartbeat_timeout_seconds=100,
    )
    try:
        run_task(task, number)
    except (db.RunError, db.InvalidInput, db.Divergence) as problem:
        write_text(Path(f"{task['out']}-{number}.error"), f"{type(problem).__name__}: {problem}")
        # An orderly exit would wait for those who are gone.
        os._exit(3)


if __name__ == "__main__":
    main()
