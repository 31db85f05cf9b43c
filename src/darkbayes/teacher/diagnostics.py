"""Whether chains agree, judged where it matters: on what they predict."""

import jax
import numpy as np

from darkbayes.errors import InvalidInput


def split_rhat(values: jax.typing.ArrayLike) -> np.ndarray:
    """Split R-hat (Gelman et al., 2013) of ``[chains, draws, ...]``: the pooled over the within-half spread.

    1 means that all halves of all chains look alike.

    >>> rng = np.random.default_rng(0)
    >>> bool(split_rhat(rng.normal(size=(4, 1000))) < 1.01)
    True
    >>> bool(split_rhat(rng.normal(size=(4, 1000)) + np.arange(4)[:, None]) > 1.5)
    True
    """
    values = np.asarray(values, np.float64)
    if values.ndim < 2 or values.shape[1] < 4:
        raise InvalidInput(f"split_rhat needs [chains, draws, ...] with at least 4 draws, not shape {values.shape}")
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, -half:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.sqrt((half - 1) / half + between / within)
    # Values that never move, in any chain, agree.
    return np.where(within + between > 0, rhat, 1.0)
