"""Files that appear whole or not at all: written aside, then renamed into place."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from darkbayes.errors import RunError

ASIDE = ".part"
"""What the name of a file ends in as long as it is being written."""


def user_cache() -> Path:
    """Where this package may keep what it can get or make again.

    Returns:
        The folder, whether it is there or not.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "darkbayes"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file aside and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}{ASIDE}")
    aside.write_bytes(content)
    os.replace(aside, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write JSON that a person can read."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file of a run, or say that it is not one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path} is not there: {path.parent} is no finished run") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise RunError(f"{path} cannot be read ({problem}): delete it and run again") from None


def write_arrays(path: Path, arrays: dict[str, Any], told: dict[str, str] | None = None) -> None:
    """Write named arrays as a safetensors file, which may say something of itself in words (`read_told`)."""
    # safetensors 0.8 stores an array that is not contiguous wrongly, and without a word.
    plain = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    write_bytes(path, safetensors.numpy.save(plain, told))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote."""
    try:
        return safetensors.numpy.load_file(path)
    except FileNotFoundError:
        raise RunError(f"{path} is not there: {path.parent} is no finished run") from None
    except safetensors.SafetensorError as problem:
        raise RunError(f"{path} is corrupt ({problem}): delete it and run again") from None


def read_told(path: Path) -> dict[str, str]:
    """What a safetensors file says of itself; nothing if it is none, or says nothing."""
    try:
        with safetensors.safe_open(path, "np") as file:
            return file.metadata() or {}
    except safetensors.SafetensorError:
        return {}
