"""Whether commands that are killed again and again leave the same bytes as those that are left alone, and nothing else.

    darkbayes bench kills        100 kills, about half an hour

`fit`, `reproduce` and `predict` run once undisturbed and once in lives that end by SIGKILL at random moments, until one
ends by itself; if it was not killed often enough by then, it begins anew. Every file but checkpoints and timings must
be the same, results, verdict and report included, and none may be there that the undisturbed command did not leave.
What is killed is the command line in a process of its own, ``python -m benchmarks.kills ARGUMENTS``,
which saves checkpoints all the time.
"""

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import environment, python, say, with_bar
from darkbayes import cli, runs
from darkbayes.data import load
from darkbayes.errors import RunError
from darkbayes.files import write_text

FIT = "fit ../boston.csv --target MEDV --out run --effort {effort} --time-budget none --hidden 16 --chains 2 --quiet"
COMMANDS = {"fit": FIT, "reproduce": "reproduce toy2d --preset quick --out run --quiet"}
PREDICT = "predict ../student.onnx ../large.csv --out predictions.csv --quiet"
RESUMED = ("fit", "reproduce")
APART = ("checkpoint", "timings.json")  # What may differ.
TRIES = 3  # Lives that may end by themselves before the signal comes, as a multiple of the kills.


def rows(*, seed: int, quiet: bool, kills: int = 100, effort: float = 0.1, repeated: int = 400) -> list[dict[str, Any]]:
    """Of each command, how many kills struck, whether all files are the same, and how many are too many."""
    rng, result = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_boston(folder / "boston.csv", 1)
        write_boston(folder / "large.csv", repeated)
        commands: dict[str, list[str]] = {
            name: command.format(effort=effort).split() for name, command in COMMANDS.items()
        }
        for number, (name, command) in enumerate({**commands, "predict": PREDICT.split()}.items()):
            whole, broken = folder / f"{name}-whole", folder / f"{name}-broken"
            whole.mkdir()
            broken.mkdir()
            began = time.perf_counter()
            live(command, whole)
            lasts = time.perf_counter() - began
            if name == "fit":
                (folder / "student.onnx").write_bytes((whole / "run" / "student.onnx").read_bytes())
            command = [*command, "--resume"] if name in RESUMED else command
            wanted, struck, ends = kills // 3 + (number < kills % 3), 0, []
            for moment in rng.uniform(0.0, lasts, TRIES * wanted).tolist():
                if struck == wanted:
                    break
                if live(command, broken, moment):
                    struck += 1
                else:
                    ends.append(judged(whole, broken))
            live(command, broken)
            ends.append(judged(whole, broken))
            same, strays = all(equal for equal, _ in ends), sum(number for _, number in ends)
            say(f"{name}: {struck} kills, the same bytes: {same or 'no'}, stray files: {strays}", quiet=quiet)
            result += [
                with_bar(runs.row(name, "bit_identical", [float(same)]), "at least", 1.0),
                with_bar(runs.row(name, "kills", [float(struck)]), "at least", float(wanted)),
                with_bar(runs.row(name, "stray_files", [float(strays)]), "at most", 0.0),
            ]
    return result


def live(command: list[str], folder: Path, until: float | None = None) -> bool:
    """Run a command in a folder, to its end or for so many seconds; returns whether it was killed."""
    process = subprocess.Popen(
        python("-m", "benchmarks.kills", *command),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        _, complaints = process.communicate(timeout=until)
    except subprocess.TimeoutExpired:
        process.kill()
        _, complaints = process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode not in (0, -signal.SIGKILL):
        raise RunError(f"{' '.join(command)} failed by itself: {complaints[-1000:]}")
    return process.returncode != 0


def judged(whole: Path, broken: Path) -> tuple[bool, int]:
    """How a command that has come to its end compares; the next begins in an empty folder."""
    result = compared(whole, broken)
    shutil.rmtree(broken)
    broken.mkdir()
    return result


def compared(whole: Path, broken: Path) -> tuple[bool, int]:
    """Whether all files of the one are the same in the other, and how many others that has."""
    wanted, left = (
        {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()} for folder in (whole, broken)
    )
    wanted = {name: path for name, path in wanted.items() if not set(name.parts) & set(APART)}
    same = all(name in left and path.read_bytes() == left[name].read_bytes() for name, path in wanted.items())
    strays = [name for name in left if name not in wanted and not set(name.parts) & set(APART)]
    strays += [name for name in left if any(part.startswith(".") for part in name.parts) and name not in strays]
    return same and bool(wanted), len(strays)


def write_boston(path: Path, times: int) -> None:
    """The table of that name as a CSV file, its rows so many times."""
    table: Any = load("boston")
    lines = [",".join(map(repr, row)) for row in np.column_stack([table.x, table.y]).tolist()]
    write_text(path, "\n".join([",".join([*table.features, table.target]), *lines * times]) + "\n")


if __name__ == "__main__":
    runs.CHECKPOINT_SECONDS, runs.CHECKPOINT_SHARE = 0.0, 1.0
    cli.main()
