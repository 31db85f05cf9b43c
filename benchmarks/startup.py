"""What `import darkbayes` costs beyond the `import jax` that it cannot do without.

    darkbayes bench startup       under a minute

Each import is timed in a fresh interpreter; the two take turns.
"""

from typing import Any

from benchmarks.common import announced, completed, median_row, python, with_bar

MODULES = ("jax", "darkbayes")
PROGRAM = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"


def rows(*, seed: int, quiet: bool, repetitions: int = 7) -> list[dict[str, Any]]:
    """Seconds for either import, and the median of their differences; nothing here is random, so `seed` is not used."""
    times: dict[str, list[float]] = {module: [] for module in MODULES}
    for repetition in range(repetitions + 1):
        for module in MODULES:
            took = float(completed(python("-c", PROGRAM.format(module))).stdout)
            # The first of each only brings the files into the disk's cache and compiles them to bytecode.
            if repetition:
                times[module].append(took)
    over = [own - base for base, own in zip(*times.values(), strict=True)]
    results = [median_row(f"import {module}", "import_s", values) for module, values in times.items()]
    results.append(with_bar(median_row("import darkbayes over jax", "seconds_over", over), "at most", 1.0))
    return announced(results, quiet=quiet)
