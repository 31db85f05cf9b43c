"""What the package costs, measured: time a step, memory, bits after a kill, time to import, to predict, to serve.

Part of a checkout, not of the wheel: ``darkbayes bench NAME`` runs a file of this folder.
"""

import importlib
import time
from typing import Any

from darkbayes.errors import InvalidInput

BENCHMARKS = (
    "backbone", "cluster", "compiling", "digits", "engine", "export", "faults", "kills", "memory", "mesh", "predict",
    "resume", "samplers", "scale", "service", "startup", "streaming", "targets", "truth",
)  # fmt: skip
"""Files with a function `rows`, which takes `seed` and `quiet`, and any of its sizes, and returns rows of results."""


def run(name: str, *, seed: int, quiet: bool, **sizes: Any) -> dict[str, Any]:
    """Run a benchmark.

    Args:
        name: Which one.
        seed: Where random numbers start.
        quiet: Whether to say nothing meanwhile.
        **sizes: Those of the benchmark's own `rows`.

    Returns:
        Its results, in the form of those of an experiment.
    """
    if name not in BENCHMARKS:
        raise InvalidInput(f"no benchmark is called {name!r}: choose one of {', '.join(BENCHMARKS)}")
    from darkbayes.runs import provenance  # Not above: a process that measures its own memory would load JAX.

    began = time.time()
    # Imported when called: some of these modules are also programs (``python -m``), and Python warns when it runs one
    # that its package has imported already.
    rows = importlib.import_module(f"benchmarks.{name}").rows(seed=seed, quiet=quiet, **sizes)
    return {
        "experiment": f"bench-{name}",
        "preset": "custom" if sizes else "default",
        "rows": rows,
        "provenance": provenance(seed, time.time() - began),
    }
