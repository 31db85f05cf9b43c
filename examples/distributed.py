"""A posterior over data that no single process holds: chains travel between shards (Ahn et al., 2014).

Try it on one machine, with two processes that this script starts itself, each with a part of the data:

    python examples/distributed.py --processes 2

On a cluster, start it once per machine, with the address of the first and the machine's number; nothing else differs:

    python examples/distributed.py --coordinator 10.0.0.1:1234 --processes 4 --number 0     # ... 1, 2, 3

Killed at any moment, it goes on from its last checkpoint when it is started again.
"""

import argparse
import os
import socket
import subprocess
import sys

import jax
import numpy as np

import darkbayes as db


def work(arguments: argparse.Namespace) -> None:
    """What every process does."""
    # Before JAX computes anything. A machine that vanishes without a word is noticed after so many seconds.
    jax.distributed.initialize(
        arguments.coordinator, arguments.processes, arguments.number, heartbeat_timeout_seconds=30
    )
    # Here everyone makes all data and keeps a part; a real shard is read from the machine's own disk. Sizes may differ.
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, size=(200, 1))
    y = np.sin(x) + 0.5 * rng.normal(size=x.shape)
    mine = rng.integers(arguments.processes, size=len(x)) == arguments.number

    # `num_data` counts the examples of all shards.
    posterior = db.Posterior(db.mlp([10], 1), db.outcomes.Gaussian(4.0), db.priors.GaussianPrior(1.0), num_data=len(x))
    chain = db.teacher.distributed_chain(
        posterior,
        db.sgld(1e-5),
        x[mine],
        y[mine],
        batch_size=20,
        trajectory=10,  # steps at a shard, more for a fast machine and fewer for a slow one
        burn_in=arguments.rounds,  # rounds of so many steps
    )
    grid = np.linspace(-5, 5, 11)[:, None]
    average = chain.average(
        jax.random.key(0), grid, num_draws=arguments.rounds, num_chains=8, folder=arguments.folder, label="rounds"
    )

    # All processes have the result. (Gloo writes to standard output too: what a program is to read goes to a file.)
    if jax.process_index() == 0:
        prediction = db.predict_average(average)
        for at, mean, variance in zip(grid[:, 0], prediction.mean[:, 0], prediction.variance[:, 0], strict=True):
            print(f"x = {at:4.1f}: y = {mean:6.3f} +- {variance**0.5:.3f}, sin(x) = {np.sin(at):6.3f}")


def start_all(arguments: argparse.Namespace) -> int:
    """Stand in for a cluster: start the processes here."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    common = [sys.executable, __file__, "--coordinator", coordinator, "--processes", str(arguments.processes)]
    common += ["--rounds", str(arguments.rounds)]
    common += [] if arguments.folder is None else ["--folder", arguments.folder]
    processes = [subprocess.Popen([*common, "--number", str(number)]) for number in range(arguments.processes)]
    return max(abs(process.wait()) for process in processes)


def main() -> None:
    """Start one process, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2, help="how many there are")
    parser.add_argument("--coordinator", help="address and port of the first process")
    parser.add_argument("--number", type=int, help="which one this is, from 0")
    parser.add_argument("--rounds", type=int, default=1000, help="trajectories to burn in, and to keep draws of")
    parser.add_argument("--folder", help="where to keep checkpoints")
    arguments = parser.parse_args()
    if arguments.number is None:
        sys.exit(start_all(arguments))
    try:
        work(arguments)
    except db.WorkerLost as problem:
        print(problem, file=sys.stderr, flush=True)
        # At once: an orderly exit waits for the lost one until its heartbeats are missed, and so would the others.
        os._exit(1)


if __name__ == "__main__":
    main()
