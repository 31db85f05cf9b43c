"""What XLA has compiled is kept for the next process: JAX's own cache, in the user's cache folder. And how to compile.

Compiling takes longer than many a fit. The folder is one for each version of JAX and of this package and each kind of
processor, and all of them together are bounded. JAX has a bound of its own, which needs another package; and after a
process was killed at the wrong moment it stores nothing more. Nor does it replace an entry that is damaged.
"""

import contextlib
import functools
import hashlib
import os
import platform
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
from jax.core import Tracer

from darkbayes.files import user_cache
from darkbayes.version import __version__

Function = TypeVar("Function", bound=Callable[..., Any])
SWITCH = "DARKBAYES_COMPILED"
"""The environment variable that turns it off, by one of these:"""
OFF = ("off", "no", "false", "0")
MOST_BYTES = 512 * 2**20
"""That are kept from one process to the next, over all versions."""
ENTRY = "-cache"
"""What the names of entries end in."""
CHECKED = ".checked"
"""A file that is as old as the last look for damaged entries."""
FEWER = {"xla_backend_optimization_level": 1, "xla_cpu_parallel_codegen_split_count": 1}
"""XLA's settings for less work at compiling: fewer passes over the machine code, all of it in one piece."""
FEWEST = FEWER | ({"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {})
"""The same by an older emitter of code, which compiles in two thirds of the time and runs a third longer; while there
is one."""
LEAST_SECONDS = "jax_persistent_cache_min_compile_time_secs"
USUAL_LEAST = 1.0
"""JAX's own value of it, which leaves out most of what a fit compiles."""


def compiled_soon(function: Function) -> Function:
    """``eqx.filter_jit`` of what runs no longer than it compiles: on a CPU with fewer optimisations.

    Those of the machine code take half of the time, and loops over small matrices run as fast without them.

    Args:
        function: what to compile.

    Returns:
        The function, compiled when it is called; inside of another that is compiled it becomes a part of that.
    """
    return _compiled_by(FEWER, function)


def compiled_briefly(function: Function) -> Function:
    """The same of what runs for a moment, where nothing counts but how long it compiles.

    Args:
        function: what to compile.

    Returns:
        The function, as by `compiled_soon`.
    """
    return _compiled_by(FEWEST, function)


def _compiled_by(options: dict[str, Any], function: Function) -> Function:
    usual, soon = eqx.filter_jit(function), eqx.filter_jit(function, compiler_options=options)  # pyright: ignore[reportCallIssue]

    @functools.wraps(function)
    def call(*given: Any) -> Any:
        fewer_still = jax.config.read("jax_disable_most_optimizations")  # Somebody's own choice.
        inside = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(given))
        return (soon if jax.default_backend() == "cpu" and not fewer_still and not inside else usual)(*given)

    return call  # pyright: ignore[reportReturnType]


@functools.cache
def keep_compiled() -> Path | None:
    """Keep what this process compiles from now on, and use what others have kept, unless somebody chose otherwise.

    A cache that JAX has been given already, by its environment variable or by ``jax.config``, is left as it is.

    Returns:
        The folder; None where nothing is kept by us: it is turned off, JAX has another, or the folder is of no use.
    """
    if why_not() is not None:
        return None
    try:
        folder = _folder()
        _forget_damaged(folder)
        _forget_oldest(folder.parent)
    except OSError:
        return None  # A full disk, a home that cannot be written: one compiles, as before.
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if getattr(jax.config, LEAST_SECONDS) == USUAL_LEAST:
        jax.config.update(LEAST_SECONDS, 0.0)
    return folder


def why_not() -> str | None:
    """Who chose that we keep nothing of what is compiled.

    Returns:
        The switch that is set; None where we keep it.
    """
    settings: Any = jax.config
    if os.environ.get(SWITCH, "").strip().lower() in OFF:
        return f"{SWITCH}={os.environ[SWITCH]}"
    if settings.jax_compilation_cache_dir is not None:
        return f"jax_compilation_cache_dir={settings.jax_compilation_cache_dir}"
    return None if settings.jax_enable_compilation_cache else "jax_enable_compilation_cache=False"


def compiled_folder() -> Path:
    """Where we keep what is compiled, a folder for each version and kind of processor in it.

    Returns:
        The folder, whether it is there or not.
    """
    return user_cache() / "compiled"


def _folder() -> Path:
    """The folder, made if need be; nobody else may write there, since what lies in it is run."""
    folder = compiled_folder() / f"darkbayes-{__version__}-jax-{jax.__version__}-{_processor()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        about = folder.stat()
        if about.st_uid != os.getuid() or about.st_mode & 0o022:
            raise PermissionError(f"{folder} is somebody else's")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written")
    return folder


def _processor() -> str:
    """The kind of processor, in eight letters: a home may be shared by machines that cannot run each other's code."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.startswith(("flags", "Features")):
                return hashlib.sha256(f"{platform.machine()} {line}".encode()).hexdigest()[:8]
    return hashlib.sha256(f"{platform.machine()} {platform.processor()}".encode()).hexdigest()[:8]


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.glob(f"*{ENTRY}"):
        with contextlib.suppress(FileNotFoundError):  # Another process may be here.
            yield path, path.stat()


def _forget_damaged(folder: Path) -> None:
    """Delete what a process left half written; each entry is looked at once, or twice as clocks of files are coarse."""
    now, checked = time.time(), folder / CHECKED
    last = checked.stat().st_mtime if checked.exists() else 0.0
    for path, about in _entries(folder):
        if about.st_mtime >= last - 1.0 and _damaged(path):
            path.unlink(missing_ok=True)
    checked.touch()
    os.utime(checked, (now, now))


def _damaged(path: Path) -> bool:
    """Whether an entry is not whole; of other compressions than zlib's, which few use, only whether it is empty."""
    content = path.read_bytes() if path.exists() else b""
    if content[:1] != b"\x78":
        return not content
    try:
        zlib.decompress(content)
    except zlib.error:
        return True
    return False


def _forget_oldest(parent: Path) -> None:
    """Delete what was not used for longest, until the rest is within bounds; and folders in which nothing is left."""
    entries = sorted(
        (entry for folder in parent.iterdir() if folder.is_dir() for entry in _entries(folder)),
        key=lambda entry: max(entry[1].st_atime, entry[1].st_mtime),
    )
    excess = sum(about.st_size for _, about in entries) - MOST_BYTES
    for path, about in entries:
        if excess <= 0:
            break
        path.unlink(missing_ok=True)
        excess -= about.st_size
        if not any(_entries(path.parent)):
            (path.parent / CHECKED).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # JAX makes it anew where it is needed.
                path.parent.rmdir()
