"""Files that appear whole or not at all: written aside, then renamed into place; and folders that one process uses.

What has been renamed is there after a power cut as well. What a killed process left aside is removed by the next one
that writes the same file.
"""

import contextlib
import glob
import hashlib
import json
import math
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

ABOUT, HASH = "darkbayes", "sha256"
"""Under which name a file of arrays says something of itself, and of that its hash."""
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


def finite(content: Any) -> Any:
    """With null for what is no finite number, as JSON has none.

    >>> finite({"rows": [{"mean": -math.inf, "trials": 1}]})
    {'rows': [{'mean': None, 'trials': 1}]}
    """
    if isinstance(content, dict):
        return {name: finite(part) for name, part in content.items()}
    if isinstance(content, list | tuple):
        return [finite(part) for part in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def read_json(path: Path, *needed: str) -> Any:
    """Read a JSON file of a run that says the things `needed`, or say that it is not one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path} is not there: {path.parent} is not a finished run") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise RunError(f"{path} cannot be read ({problem}): delete it and run again") from None
    if missing := [name for name in needed if not isinstance(content, dict) or name not in content]:
        raise RunError(f"{path} does not say {missing[0]!r}, as that of a finished run does: run again")
    return content


def write_arrays(path: Path, arrays: dict[str, Any], words: dict[str, str] | None = None) -> None:
    """Write named arrays as a safetensors file with a hash, which may say something of itself (`read_words`)."""
    # safetensors 0.8 stores an array that is not contiguous wrongly, and without a word.
    plain, words = {name: np.asarray(value, order="C") for name, value in arrays.items()}, words or {}
    # All under one name: it would write several in no order.
    about = {ABOUT: json.dumps(words | {HASH: _digest(plain, words)})}
    write_bytes(path, safetensors.numpy.save(plain, about))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote; what is damaged is refused."""
    return _read(path)[0]


def read_words(path: Path) -> dict[str, str]:
    """What such a file says of itself."""
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the words of a file whose hash is right."""
    try:
        with safetensors.safe_open(path, "np") as file:
            arrays, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        # Files of 0.1 have no hash, and nothing about them or one thing of this package's.
        old = all(name.startswith(f"{ABOUT}.") for name in about)
        if not old and ABOUT not in about:
            raise RunError(f"{path} was not written by darkbayes, or is damaged: give another file")
        words = about if old else json.loads(about[ABOUT])
        whole = old or words.pop(HASH) == _digest(arrays, words)
    except FileNotFoundError:
        raise RunError(f"{path} is not there: {path.parent} is not a finished run") from None
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RunError(f"{path} is corrupt ({problem}): delete it and run again") from None
    if not whole:
        raise RunError(f"{path} is damaged, as its hash shows: delete it and run again")
    return arrays, words


def _digest(arrays: dict[str, np.ndarray], words: dict[str, str]) -> str:
    """The hash of arrays and of what is said of them."""
    digest = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
