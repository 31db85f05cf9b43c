"""Shared by all tests, doctests included: how they compile."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def compiled_in_haste() -> Iterator[None]:
    """Without most optimisations of the compiler, which take longer than what they save where all runs are short.

    Afterwards the code is let go of: a process that holds what all files have compiled runs out of memory maps.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


@pytest.fixture(scope="module")
def optimised(compiled_in_haste: None) -> None:
    """With all optimisations. Asked for per file, by those that run longer than they compile."""
    jax.config.update("jax_disable_most_optimizations", False)
