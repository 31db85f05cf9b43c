"""What the service counts of itself, as Prometheus reads it."""

import bisect
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds, of the histogram of latencies."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Measures:
    """Counters since the start."""

    def __init__(self) -> None:
        self.began = time.time()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, list[float]] = {}  # By route: how many fell between edges, then their sum.
        self.refused: Counter[str] = Counter()  # Connections that never became a request, by the reason.
        self.rows = 0

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[route, method, status] += 1
        counts = self.seconds.setdefault(route, [0.0] * (len(EDGES) + 2))
        counts[bisect.bisect_left(EDGES, seconds)] += 1
        counts[-1] += seconds

    def text(self, model: Mapping[str, str], pool: Mapping[str, Mapping[str, float]], connections: int) -> str:
        """All of it in Prometheus's text format, with what is said of the model, the processes and open connections."""
        lines = [
            *_family("requests_total", "counter", "Requests answered.", self._requests()),
            *_family("request_seconds", "histogram", "From a request's head to its answer.", self._latencies()),
            *_family("rows_total", "counter", "Rows or images predicted.", [("", {}, self.rows)]),
            *_family(
                "connections_refused_total",
                "counter",
                "Connections closed before they had sent a request.",
                (("", {"reason": reason}, count) for reason, count in sorted(self.refused.items())),
            ),
            *_family("connections", "gauge", "Open connections.", [("", {}, connections)]),
            *_family("model_info", "gauge", "The model.", [("", model, 1)]),
            *_family("start_time_seconds", "gauge", "When the service was started.", [("", {}, self.began)]),
        ]
        for name, kind, words in (
            ("alive", "gauge", "Processes that are alive and have loaded the model."),
            ("busy", "gauge", "Processes at work."),
            ("waiting", "gauge", "Requests that wait for a process."),
            ("killed", "counter", "Processes killed, mostly because their time was up."),
        ):
            ending = "_total" if kind == "counter" else ""
            samples = (("", {"lane": lane}, state[name]) for lane, state in pool.items())
            lines += _family(f"workers_{name}{ending}", kind, words, samples)
        if (memory := resident_bytes(os.getpid())) is not None:
            lines += _family("resident_memory_bytes", "gauge", "Memory of the main process.", [("", {}, memory)])
        return "\n".join(lines) + "\n"

    def _requests(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for (route, method, status), count in sorted(self.requests.items()):
            yield "", {"route": route, "method": method, "status": str(status)}, count

    def _latencies(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for route, counts in sorted(self.seconds.items()):
            total = 0.0
            for edge, count in zip((*EDGES, "+Inf"), counts, strict=False):
                total += count
                yield "_bucket", {"route": route, "le": str(edge)}, total
            yield "_sum", {"route": route}, counts[-1]
            yield "_count", {"route": route}, total


def _family(name: str, kind: str, words: str, samples: Any) -> Iterator[str]:
    yield f"# HELP darkbayes_{name} {words}"
    yield f"# TYPE darkbayes_{name} {kind}"
    for ending, labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"darkbayes_{name}{ending}{f'{{{inside}}}' if inside else ''} {value:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def resident_bytes(process: int) -> int | None:
    """The memory of a process; None where the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
