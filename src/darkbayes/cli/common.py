"""What several commands do alike."""

import importlib.util
import json
import sys

from darkbayes.errors import InvalidInput

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
"""Of durations, in seconds."""


def seconds(text: str) -> float | None:
    """A duration in seconds, None for "none".

    >>> seconds("60s"), seconds("1.5m"), seconds("none")
    (60.0, 90.0, None)
    """
    if text == "none":
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        return float(number) * UNITS[unit]
    except ValueError:
        raise InvalidInput(f"--time-budget {text} is no duration: write 60s, 5m, 1h or none") from None


def check_seed(seed: int) -> None:
    """Refuse a seed that is none."""
    if not 0 <= seed < 2**32:
        raise InvalidInput(f"--seed must lie in 0..{2**32 - 1}, not {seed}")


def require(*modules: str) -> None:
    """Refuse to begin what would fail at its end for want of an optional library."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInput(f"{', '.join(missing)} is not installed: pip install 'darkbayes[all]'")


def show(results: dict, as_json: bool) -> None:
    """Print results, as JSON or as a table."""
    if as_json:
        print(json.dumps(results, indent=1))
    else:
        from darkbayes.report import terminal

        terminal(results)


def tell(notes: list[str], quiet: bool) -> None:
    """Print notes to standard error, where they are in nobody's way."""
    if not quiet:
        for note in notes:
            print(f"- {note}", file=sys.stderr)
