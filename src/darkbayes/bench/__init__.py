"""What the package costs, measured: time a step, memory, bits after a kill, time to import, to predict, to serve."""

import importlib
import time
from collections.abc import Callable
from typing import Any

from darkbayes.errors import InvalidInput


def _bench(name: str) -> Callable[..., list[dict[str, Any]]]:
    # Imported when called: some of these modules are also programs (``python -m``), and Python warns when it runs one
    # that its package has imported already.
    def rows(**settings: Any) -> list[dict[str, Any]]:
        return importlib.import_module(f"darkbayes.bench.{name}").rows(**settings)

    return rows


BENCHES: dict[str, Callable[..., list[dict[str, Any]]]] = {
    name: _bench(name)
    for name in ("engine", "export", "fits", "memory", "predict", "resume", "samplers", "service", "startup", "targets")
}
"""Each benchmark by name; called with `seed` and `quiet`, and any of its sizes, it returns rows of results."""


def run(name: str, *, seed: int, quiet: bool, **sizes: Any) -> dict[str, Any]:
    """Run a benchmark and return its results; `sizes` are those of the benchmark's own `rows`."""
    if name not in BENCHES:
        raise InvalidInput(f"no benchmark is called {name!r}: choose one of {', '.join(BENCHES)}")
    from darkbayes.runs import provenance  # Not above: a process that measures its own memory would load JAX.

    began = time.time()
    rows = BENCHES[name](seed=seed, quiet=quiet, **sizes)
    preset = "custom" if sizes else "default"
    return {
        "experiment": f"bench-{name}",
        "preset": preset,
        "rows": rows,
        "provenance": provenance(seed, time.time() - began),
    }
