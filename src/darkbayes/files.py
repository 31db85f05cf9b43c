"""Files that appear whole or not at all: written aside, then renamed into place; and folders that one process uses.

What has been renamed is there after a power cut as well. What a killed process left aside is removed by the next one
that writes the same file.
"""

import contextlib
import glob
import json
import os
import re
import weakref
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy

from darkbayes.errors import RunError

try:
    import fcntl
except ImportError:  # Where there are no such locks, nobody is kept out.
    fcntl = None

ASIDE = ".part"
"""What the name of a file ends in as long as it is being written."""


def user_cache() -> Path:
    """Where this package may keep what it can get or make again: a folder, whether it is there or not."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "darkbayes"


def open_aside(path: Path) -> IO[bytes]:
    """Begin to write a file that is to be `path`: aside, where `put_in_place` takes it from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left_over in path.parent.glob(f".{glob.escape(path.name)}.*{ASIDE}"):
        if is_left_over(left_over) and not _in_use(left_over):
            left_over.unlink(missing_ok=True)
    file = path.with_name(f".{path.name}.{os.getpid()}{ASIDE}").open("wb")
    _lock(file.fileno())
    return file


def put_in_place(file: IO[bytes], path: Path) -> None:
    """Give a file that was written aside its name, and close it."""
    with file:
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have what was renamed in a folder survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_left_over(path: Path) -> bool:
    """Whether a file is one that a process did not get to rename, or has not yet."""
    return re.fullmatch(rf"\..+\.\d+{re.escape(ASIDE)}", path.name) is not None and path.is_file()


def _lock(descriptor: int) -> bool:
    """Whether what is open is this process's alone, from now on until it is closed; yes where there are no locks."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # Some file systems have none.
        return True
    return True


def _in_use(aside: Path) -> bool:
    """Whether some process may still write a file aside: one of its number is there, or one elsewhere has locked it."""
    if fcntl is None:
        return True
    try:
        os.kill(int(aside.name.removesuffix(ASIDE).rpartition(".")[2]), 0)
    except ProcessLookupError:
        with aside.open("rb") as file:
            return not _lock(file.fileno())
    except (OSError, OverflowError):
        return True
    return True


class FolderLock:
    """A folder that no other process uses, as long as this object lives.

    The system gives it back when a process ends, however it ends.
    """

    def __init__(self, folder: Path):
        descriptor = os.open(folder, os.O_RDONLY)
        weakref.finalize(self, os.close, descriptor).atexit = False
        if not _lock(descriptor):
            raise RunError(f"{folder} is in use by another process: wait until it ends, or choose another folder")


_LOCKED: "weakref.WeakValueDictionary[tuple[int, int], FolderLock]" = weakref.WeakValueDictionary()


def lock_folder(folder: Path) -> FolderLock | None:
    """Keep other processes out of a folder that is there; None where the system has no such locks.

    Returned is what holds it, the same for all in this process.
    """
    if fcntl is None:
        return None
    known = folder.stat().st_dev, folder.stat().st_ino
    lock = _LOCKED.get(known) or FolderLock(folder)
    _LOCKED[known] = lock
    return lock


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file aside and rename it into place."""
    with open_aside(path) as file:
        try:
            file.write(content)
            put_in_place(file, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


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
        raise RunError(f"{path} is not there: {path.parent} is not a finished run") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise RunError(f"{path} cannot be read ({problem}): delete it and run again") from None


def write_arrays(path: Path, arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write named arrays as a safetensors file, which may say something of itself in words (`read_metadata`)."""
    # safetensors 0.8 stores an array that is not contiguous wrongly, and without a word.
    plain = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    write_bytes(path, safetensors.numpy.save(plain, metadata))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote."""
    try:
        return safetensors.numpy.load_file(path)
    except FileNotFoundError:
        raise RunError(f"{path} is not there: {path.parent} is not a finished run") from None
    except safetensors.SafetensorError as problem:
        raise RunError(f"{path} is corrupt ({problem}): delete it and run again") from None


def read_metadata(path: Path) -> dict[str, str]:
    """What a safetensors file says of itself; nothing if it is none, or says nothing."""
    try:
        with safetensors.safe_open(path, "np") as file:
            return file.metadata() or {}
    except safetensors.SafetensorError:
        return {}
