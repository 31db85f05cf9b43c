"""What a fit costs beyond its own steps: programs to compile, and CPU seconds of all but sampling.

    darkbayes bench compiling       two minutes

The fit is that of `make demo`, report included, with a few steps in place of its own: chains, optimisations and lessons
are as short as they may be, as is the training of the plug-in network, while all that is compiled stays the same, the
choice of the network included. It runs in a fresh process with an empty cache, again with what that has left, and there
once more with another table.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import announced, completed, python, with_bar
from darkbayes.runs import row

STEPS = 8
BARS = {"empty cache": {"cpu_s": 20.0, "compilations": 25.0}, "warm cache": {"cpu_s": 4.0}}
SECOND = {"compilations": 2.0}
"""Of another table in the same process."""
FEWER_ROWS, FEWER_COLUMNS = 440, 10


def rows(*, seed: int, quiet: bool, steps: int = STEPS) -> list[dict[str, Any]]:
    """CPU seconds and compilations with an empty cache, with a warm one, and of a second table in one process."""
    results, second = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for cache, bars in BARS.items():
            command = python("-m", "benchmarks.compiling", str(seed), str(steps))
            first, second = json.loads(
                completed(command, XDG_CACHE_HOME=folder, OMP_WAIT_POLICY="PASSIVE").stdout.splitlines()[-1]
            )
            results += _with_bars(f"fit, {cache}", first, bars)
        results += _with_bars("second table", second, SECOND)
    return announced(results, quiet=quiet)


def _with_bars(method: str, measured: dict[str, float], bars: dict[str, float]) -> list[dict[str, Any]]:
    made = [row(method, metric, [value]) for metric, value in measured.items()]
    return [with_bar(one, "at most", bars[one["metric"]]) if one["metric"] in bars else one for one in made]


def measure(seed: int, steps: int) -> list[dict[str, float]]:
    """Of a fit of Boston, this process's beginning included, and of one of fewer rows and columns."""
    import jax

    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **details: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(details["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    from darkbayes.compiled import keep_compiled
    from darkbayes.data import load
    from darkbayes.fit import Options, fit_folder, plugin, prepare_table
    from darkbayes.report import write_report
    from darkbayes.tables import from_columns

    plugin.MOST_STRIDES = 1
    keep_compiled()
    named: Any = load("boston")
    columns, targets = dict(zip(named.features, named.x.T, strict=True)), [named.target]
    # Of another size in both directions.
    few = {name: columns[name][:FEWER_ROWS] for name in named.features[:FEWER_COLUMNS]}
    tables = columns | {named.target: named.y}, few | {named.target: named.y[:FEWER_ROWS]}
    measured, spent, before = [], 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate(tables):
            prepared = prepare_table(from_columns(one), targets, held_out=0.2, seed=seed)
            out, options = Path(folder) / str(number), Options(max_steps=steps)
            fit_folder(
                prepared,
                {"source": f"boston-{number}", "seed": seed, "sha256": ""},
                options,
                seed,
                out,
                guarantee=0.9,
                resume=False,
                quiet=True,
            )
            write_report(out)
            cpu, count = time.process_time(), len(compiled)
            measured.append({"cpu_s": cpu - spent, "compilations": count - before})
            spent, before = cpu, count
    return measured


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
