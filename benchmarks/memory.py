"""Peak memory of a distillation with few kept draws and with many: it must not grow with their number.

    darkbayes bench memory        about a minute

Each runs in a process of its own, ``python -m benchmarks.memory DRAWS SEED``, which prints its peak in megabytes.
The programs are compiled beforehand and read from a cache: the compiler needs much memory, and a different amount each
time, behind which a run that grows could hide.
"""

import sys
import tempfile
from typing import Any

import jax
import optax

from benchmarks import toy
from benchmarks.common import announced, completed, python, with_bar
from benchmarks.peak import peak_megabytes
from darkbayes.data import toy2d
from darkbayes.model import mlp
from darkbayes.outcomes.heads.classes import SoftmaxHead
from darkbayes.runs import row
from darkbayes.student import Settings, Student, distil
from darkbayes.student.queries import uniform_box
from darkbayes.teacher import minibatch_chain
from darkbayes.teacher.samplers import sgld


def rows(*, seed: int, quiet: bool, few: int = 10_000, many: int = 1_000_000) -> list[dict[str, Any]]:
    """The peak resident set for either number of kept draws, and the ratio of the two."""
    with tempfile.TemporaryDirectory() as cache:
        peak_of_child(min(few, many), seed, cache)  # Fills the cache.
        peaks = [peak_of_child(draws, seed, cache) for draws in (few, many)]
    labels = [f"{draws:,} kept draws" for draws in (few, many)]
    results = [row(label, "peak_rss_mb", [peak]) for label, peak in zip(labels, peaks, strict=True)]
    ratio = row(f"{many:,} against {few:,} kept draws", "rss_ratio", [peaks[1] / peaks[0]])
    return announced([*results, with_bar(ratio, "at most", 1.05)], quiet=quiet)


def peak_of_child(draws: int, seed: int, cache: str) -> float:
    """The peak in megabytes of a fresh process that keeps so many draws."""
    everything = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    command = python("-m", "benchmarks.memory", str(draws), str(seed))
    return float(completed(command, JAX_COMPILATION_CACHE_DIR=cache, **everything).stdout)


def distil_toy(draws: int, seed: int) -> None:
    """Distil the 2-D toy problem with every step a kept draw, and a reservoir that all of them are offered to."""
    data_key, distil_key = jax.random.split(jax.random.key(seed))
    data = toy2d(data_key)
    teacher = minibatch_chain(toy.POSTERIOR, sgld(1e-2), *data, batch_size=None, thin=1)
    student = Student(mlp([10], 2), SoftmaxHead(2), optax.sgd(1e-2))
    settings = Settings(query_batch=20, reservoir=10)
    distil(teacher, student, uniform_box(-10.0, 10.0), distil_key, steps=draws, settings=settings, quiet=True)


if __name__ == "__main__":
    distil_toy(int(sys.argv[1]), int(sys.argv[2]))
    print(peak_megabytes())
