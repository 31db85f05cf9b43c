"""Shared by all tests, doctests included: how they compile, and what they keep of it."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000
"""Of memory, in a process that goes on with what it has compiled; Linux allows 65,530."""
COMPILING = {
    # Small programs too: there are hundreds, and tests that clear caches compile them anew.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    # Programs do not say which lines they are made from, which takes time, and which nobody asks of them.
    "jax_traceback_in_locations_limit": 0,
}


def pytest_configure(config: pytest.Config) -> None:
    """Let all workers, and the processes that tests start, share what they compile: in a folder of this session.

    Or in that of the environment, if somebody has one.
    """
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if folder is None:
        folder = tempfile.mkdtemp(prefix="darkbayes-compiled-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for name, value in {"jax_compilation_cache_dir": folder, **COMPILING}.items():
        os.environ[name.upper()] = str(value)
        jax.config.update(name, value)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # Of processes that tests start; their own is below.
    # Tracing makes a great many objects that live on: the collector would look through them all again and again.
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope="module", autouse=True)
def compiled_in_haste() -> Iterator[None]:
    """Without most optimisations of the compiler, which take longer than what they save where all runs are short.

    The code is let go of when there is much of it: a process that holds what all files have compiled runs out of memory
    maps.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    if not MAPS.exists() or MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="module")
def optimised(compiled_in_haste: None) -> Iterator[None]:
    """With all optimisations. Asked for per file, by those that run longer than they compile."""
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.clear_caches()
