"""Chains of a known autocorrelation."""

import numpy as np


def autoregressive(rho: float, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Stationary AR(1) chains along the second axis, variance 1, autocorrelation rho^t: tau = (1 + rho) / (1 - rho)."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    for t in range(1, shape[1]):
        values[:, t] = rho * values[:, t - 1] + np.sqrt(1 - rho**2) * values[:, t]
    return values
