"""What several commands do alike."""

import importlib.util
import json
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from darkbayes.errors import InvalidInput, RunError


def value(metavar: str | None, *, default: bool = True, **more: Any) -> object:
    """How an argument is shown in the help; `default` says whether its default value is worth a word."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=None if default else "", **more)


Flag = Annotated[bool, value(None, default=False)]
Json = Annotated[bool, value(None, default=False, help="print the results as JSON instead of a table")]
Quiet = Annotated[bool, value(None, default=False, help="no progress bars or notes")]
Resume = Annotated[bool, value(None, default=False, help="go on with the run that the folder holds")]
Number = Annotated[int, value("NUMBER")]
OptionalFile = Annotated[Path | None, value("FILE", default=False)]
OptionalFolder = Annotated[Path | None, value("FOLDER", default=False)]

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}  # Of durations, in seconds.
SIZES = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}  # Of memory, in bytes.


def seconds(text: str) -> float | None:
    """A duration in seconds, None for "none".

    >>> seconds("60s"), seconds("1.5m"), seconds("none")
    (60.0, 90.0, None)
    """
    if text == "none":
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        duration = float(number) * UNITS[unit]
    except ValueError:
        duration = math.nan
    if not 0 < duration < math.inf:
        raise InvalidInput(f"--time-budget {text!r} is not a duration: write 60s, 5m, 1h or none")
    return duration


def size(text: str) -> float:
    """An amount of memory in bytes.

    >>> size("2GB"), size("1.5 mb"), size("100KB")
    (2000000000.0, 1500000.0, 100000.0)
    """
    number, unit = text.strip()[:-2], text.strip()[-2:].upper()
    try:
        amount = float(number) * SIZES[unit]
    except (KeyError, ValueError):
        amount = math.nan
    if not 0 < amount < math.inf:
        raise InvalidInput(f"--memory {text!r} is not an amount: write 500MB or 2GB")
    return amount


def remedy(problem: Exception) -> str:
    """The option that mends what is wrong, if there is one.

    >>> remedy(InvalidInput("leave it out", option="ignore", value="crime rate"))
    " (--ignore 'crime rate')"
    """
    option, wanted = getattr(problem, "option", None), getattr(problem, "value", None)
    return f" (--{option}{'' if wanted is None else ' ' + shlex.quote(wanted)})" if option else ""


def check_seed(seed: int) -> None:
    """Refuse what is no seed."""
    if not 0 <= seed < 2**32:
        raise InvalidInput(f"--seed must lie in 0..{2**32 - 1}, not {seed}")


def check_run(folder: Path) -> None:
    """Refuse a path that leads to no folder; whether it holds a run is found out when it is read."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "is not there"
        raise RunError(f"{folder} {problem}: name the folder of a run, as `darkbayes fit` made it")


def check_output(out: str, sources: tuple[Path, ...]) -> None:
    """Refuse to write over what is read."""
    path = Path(out)
    for source in sources if path.exists() else ():
        parts = [source, *source.rglob("*")] if source.is_dir() else [source]
        if any(part.exists() and part.samefile(path) for part in parts):
            raise InvalidInput(f"--out {out} is a file that is read: name another")


def require(*modules: str) -> None:
    """Refuse to begin what would fail at its end for want of an optional library."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        from darkbayes.cli.doctor import extras_with  # It needs this file.

        extras = f"[{','.join(names)}]" if (names := extras_with(missing)) else ""
        raise InvalidInput(f"{', '.join(missing)} is not installed: pip install 'darkbayes{extras}'")


def require_device() -> None:
    """Refuse to begin where JAX has nothing to compute on, for whatever reason a plugin of it gives."""
    import jax

    try:
        jax.devices()
    except Exception as problem:
        reason = " ".join(str(problem).split()) or repr(problem)
        remedy = "see `darkbayes doctor`, or set JAX_PLATFORMS=cpu"
        raise RunError(f"JAX finds no device to compute on ({reason}): {remedy}") from None


def show(results: dict, as_json: bool, names: Any = None) -> None:
    """Print results, as JSON or as a table in which methods and metrics have these names."""
    if as_json:
        from darkbayes.files import finite

        print(json.dumps(finite(results), indent=1, allow_nan=False))
    else:
        from darkbayes.report import Names, terminal

        terminal(results, names or Names())


def tell(notes: list[str], quiet: bool) -> None:
    """Print notes to standard error, where they are in nobody's way."""
    if not quiet:
        for note in notes:
            print(f"- {note}", file=sys.stderr)
