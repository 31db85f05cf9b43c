"""What ``darkbayes bench`` does once it is known to run in a checkout."""

from pathlib import Path

import benchmarks
from benchmarks.names import names_of
from darkbayes import files, report
from darkbayes.cli import common
from darkbayes.errors import InvalidInput

FIGURED = ("samplers", "targets")  # Benchmarks with a figure; their truth is NUTS.


def run(
    what: str, seed: int, out: Path | None, figure: Path | None, seconds: float | None, quiet: bool, json: bool
) -> None:
    """Run a benchmark, print its results and write them as asked; the arguments are those of the command."""
    common.require(*["numpyro"] * (what in FIGURED), *["matplotlib"] * (figure is not None))
    if figure is not None:
        if what not in FIGURED:
            raise InvalidInput(f"--figure {figure} does not apply to {what}: leave it out")
        report.check_figure(figure)
    if out is not None and out.is_dir():
        raise InvalidInput(f"--out {out} is a folder: name a file")
    if seconds is not None and what != "service":
        raise InvalidInput(f"--seconds {seconds:g} does not apply to {what}: leave it out")
    if seconds is not None and not 1 <= seconds <= 86_400:
        raise InvalidInput(f"--seconds must lie in 1..86400, not {seconds:g}")
    common.check_seed(seed)
    results = benchmarks.run(what, seed=seed, quiet=quiet, **({} if seconds is None else {"seconds": seconds}))
    if out is not None:
        files.write_json(out, results)
    if figure is not None:
        from benchmarks.figures import FIGURES

        report.write_image(FIGURES[what](results["rows"]), figure)
    common.show(results, json, names_of(results["experiment"]))
