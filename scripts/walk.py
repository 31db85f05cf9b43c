"""How far a reader walks to follow the main job: the functions, files and folders that one fit passes.

    python scripts/walk.py              figures of `darkbayes fit boston.csv --target MEDV`, in a minute
    python scripts/walk.py --list       and every function, in the order in which it is first called
    PYTHONPATH=TREE/src python scripts/walk.py      the figures of another tree

A function is passed if its code lies in a .py file of the package and is called between the beginning of the command
and its end, in any thread, though not as a module is imported. It counts once. The first line counts functions at the
top of a module, taking methods and nested functions for parts of what is around them; the second counts those as well.
Lambdas, comprehensions and the bodies of classes and modules never count for themselves. A file is passed if one of the
functions that count is in it. A change of folder is a pair of functions, next to each other in the order of their first
calls, whose files lie in different folders; files at the top of the package lie in one of their own. What is first
called in another thread comes after the main thread's, since how threads interleave is chance.
"""

import argparse
import contextlib
import inspect
import itertools
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import darkbayes
from darkbayes import cli

PACKAGE = Path(darkbayes.__file__).parent
PREFIX = str(PACKAGE) + os.sep


class Function(NamedTuple):
    """A function of the package."""

    file: str
    name: str
    beside: bool
    """Whether it was first called in another thread than the main one."""

    @property
    def folder(self) -> str:
        """Where its file lies in the package."""
        return str(Path(self.file).parent)


class Walk:
    """The functions that were called, in the order of their first calls."""

    def __init__(self) -> None:
        self.passed: dict[CodeType, Function] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        code = frame.f_code
        if event == "call" and code not in self.passed and is_function(code) and not importing(frame):
            beside = threading.current_thread() is not threading.main_thread()
            self.passed[code] = Function(code.co_filename.removeprefix(PREFIX), code.co_qualname, beside)


def is_function(code: CodeType) -> bool:
    """Whether it is a function of the package that somebody has named; bodies of classes are not optimised."""
    ours = code.co_filename.startswith(PREFIX) and code.co_filename.endswith(".py")
    return ours and bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def importing(frame: FrameType | None) -> bool:
    """Whether a module of the package is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PREFIX):
            return True
        frame = frame.f_back
    return False


def walk(time_budget: str) -> list[Function]:
    """Fit, and tell what was passed."""
    tracer, program = Walk(), [sys.executable, "-m", "darkbayes"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # By a process of its own: what it calls is no part of the walk.
        subprocess.run([*program, "data", "get", "boston", "--out", ".", "--quiet"], check=True, stdout=subprocess.PIPE)
        threading.setprofile(tracer)
        sys.setprofile(tracer)
        try:
            cli.main(["fit", "boston.csv", "--target", "MEDV", "--time-budget", time_budget, "--quiet"])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return sorted(tracer.passed.values(), key=lambda function: function.beside)


def figures(functions: list[Function]) -> str:
    """How many functions there are, in how many files, and how often the folder changes."""
    files, folders = {function.file for function in functions}, [function.folder for function in functions]
    changes = sum(one != other for one, other in itertools.pairwise(folders))
    return f"{len(functions)} functions, {len(files)} files, {changes} changes of folder"


def main() -> None:
    """Walk, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every function as well")
    parser.add_argument("--time-budget", default="20s", help="that of the fit")
    arguments = parser.parse_args()
    functions = walk(arguments.time_budget)
    if arguments.list:
        for function in functions:
            print(f"{function.file:32} {function.name}")
    print(f"{PACKAGE}\nat the top of modules: {figures([one for one in functions if '.' not in one.name])}")
    print(f"with methods and nested functions: {figures(functions)}")


if __name__ == "__main__":
    main()
