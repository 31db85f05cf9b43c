"""Whether a target is better modelled by its logarithm.

Both ways are tried with kernel ridge regression, a stand-in for a network that is fitted in closed form. Its kernel is

    k(x, x') = x.x'/d + exp(-|x - x'|^2 / 2d)

for d inputs, its ridge is the one of `RIDGES` with the least error in leaving one row out at a time, and what is
compared is the Gaussian log likelihood of the rows left out; for log y it is the density of y, by the Jacobian 1/y.
"""

import contextlib
import dataclasses
import importlib.util
from typing import Any, Literal

import numpy as np

RIDGES = tuple(10.0**k for k in range(-4, 3))  # What may be added to the kernel's diagonal.
MARGIN = 0.05  # Nats per row by which the logarithm must do better.
MOST_ROWS, MOST_INPUTS = 1000, 2000  # Rows and inputs that are looked at; of more, evenly spaced ones are taken.


@dataclasses.dataclass(frozen=True)
class TransformChoice:
    """How a target is modelled, and the log likelihoods per row, in nats, that decided it."""

    transform: Literal["identity", "log"]
    identity: float
    log: float

    def __str__(self) -> str:
        how = "by its logarithm" if self.transform == "log" else "as it is"
        compared = f"{self.log:.2f} with the logarithm, {self.identity:.2f} without"
        return f"it is modelled {how} (log likelihood per row in a quick trial {compared})"


def choose_transform(inputs: np.ndarray, y: np.ndarray) -> TransformChoice:
    """Compare a positive target, of which not all values may be the same, with its logarithm, by its inputs.

    The inputs are ``[rows, width]``.

    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> noise = np.random.default_rng(0).normal(size=50)
    >>> choose_transform(x, np.exp(3 * x[:, 0] + noise)).transform
    'log'
    >>> choose_transform(x, 10 + x[:, 0] + 0.1 * noise).transform
    'identity'
    """
    y = np.asarray(y, np.float64)
    rows, columns = (
        np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.int64)
        for count, most in ((len(y), MOST_ROWS), (inputs.shape[1], MOST_INPUTS))
    )
    y, x = y[rows], np.asarray(inputs[np.ix_(rows, columns)], np.float64)
    with _one_thread():
        return _compared(x, y)


def _one_thread() -> contextlib.AbstractContextManager[Any]:
    """Linear algebra by one thread: on a busy machine several wait for each other far longer than they work."""
    if importlib.util.find_spec("threadpoolctl") is None:  # It comes with scikit-learn.
        return contextlib.nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


def _compared(x: np.ndarray, y: np.ndarray) -> TransformChoice:
    products = x @ x.T / x.shape[1]
    squares = np.diag(products)
    values, vectors = np.linalg.eigh(products + np.exp(products - (squares[:, None] + squares[None, :]) / 2))

    def log_likelihood(y: np.ndarray) -> float:
        """Of each row under what the others say of it, on average."""
        scale = max(float(np.abs(y).max()), np.finfo(np.float64).tiny)
        centred = y / scale - (y / scale).mean()
        projected, squared = vectors.T @ centred, vectors**2
        errors = []
        for ridge in RIDGES:
            shrunk = 1 / (np.maximum(values, 0) + ridge)
            errors.append(float(np.mean(((vectors @ (shrunk * projected)) / (squared @ shrunk)) ** 2)))
        variance = max(min(errors), np.finfo(np.float64).tiny)
        return -0.5 * float(np.log(2 * np.pi * np.e * variance)) - float(np.log(scale))

    identity = log_likelihood(y)
    log = log_likelihood(np.log(y)) - float(np.log(y).mean())
    return TransformChoice("log" if log > identity + MARGIN else "identity", identity, log)
