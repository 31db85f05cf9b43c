"""How much memory a process has needed; nothing here loads JAX, which would need some itself."""

import resource
import sys
from pathlib import Path


def peak_megabytes() -> float:
    """The largest resident set that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():
        # Linux hands the peak of the parent that started a process on to its ``ru_maxrss``, but not to ``VmHWM``.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6
