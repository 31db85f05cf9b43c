"""Examples in memory, checked once at the border, and minibatches drawn inside the compiled loop."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, require_count
from darkbayes.types import Array, Data, Key


def as_data(x: Any, y: Any) -> Data:
    """Check arrays and put them on the device: float inputs as float32, integer targets as int32.

    Images of bytes (uint8) stay such, a quarter of the memory; a `Posterior` and a `Student` see them as float32.

    Args:
        x: inputs, one row for each example.
        y: targets, floats to regress on or whole numbers for classes.

    Returns:
        The examples on the device.

    >>> as_data([[0.0], [1.0]], [0, 1]).y.dtype.name
    'int32'
    >>> as_data([[0.0], [float("nan")]], [0, 1])
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: x holds 1 value that is not finite, first at row 1: remove or impute it
    """
    inputs, targets = as_inputs(x, keep_bytes=True), np.asarray(y)
    if targets.ndim == 0 or len(targets) != len(inputs) or targets.size == 0:
        raise InvalidInput(f"x has {len(inputs)} rows but y has shape {targets.shape}: they must pair up")
    if np.issubdtype(targets.dtype, np.floating):
        targets = _as_float32("y", targets)
    elif np.issubdtype(targets.dtype, np.integer):
        outside = targets[np.abs(targets.astype(np.float64)) > np.iinfo(np.int32).max]
        if outside.size:
            raise InvalidInput(f"y holds label {outside[0]}: number the classes 0, 1, 2, ...")
        targets = targets.astype(np.int32)
    else:
        raise InvalidInput(f"y has type {targets.dtype}: encode it as floats (regression) or integers (classes)")
    return Data(inputs, jax.device_put(targets))


def as_inputs(x: Any, *, keep_bytes: bool = False) -> Array:
    """Check a batch of inputs and put it on the device as float32.

    Args:
        x: inputs, one row for each example.
        keep_bytes: whether images of bytes stay such.

    Returns:
        The inputs on the device.
    """
    inputs = np.asarray(x)
    if (not np.issubdtype(inputs.dtype, np.number) and inputs.dtype != bool) or np.iscomplexobj(inputs):
        raise InvalidInput(f"x has type {inputs.dtype}: encode it as numbers")
    if inputs.ndim < 2:
        raise InvalidInput(f"x has shape {inputs.shape}: it needs one row per example, [examples, features]")
    if inputs.size == 0:
        raise InvalidInput(f"x is empty, shape {inputs.shape}: at least one example with one feature is needed")
    if keep_bytes and inputs.dtype == np.uint8 and inputs.ndim > 2:
        return jax.device_put(inputs)
    return jax.device_put(_as_float32("x", inputs))


def _as_float32(name: str, values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    bad = ~np.isfinite(values)
    if bad.any():
        count, row = int(bad.sum()), int(np.argwhere(bad)[0][0])
        what = "value that is" if count == 1 else "values that are"
        raise InvalidInput(f"{name} holds {count} {what} not finite, first at row {row}: remove or impute it")
    return values


def check_batch_size(size: int | None, examples: int) -> int | None:
    """Refuse a batch that the data cannot fill; `None` stands for all of it.

    Args:
        size, examples: what was asked for, and how many examples there are.

    Returns:
        `size`, as a plain number or None.
    """
    if size is None:
        return None
    number = require_count("batch_size (None for all data)", size)
    if number > examples:
        remedy = f"use at most {examples}, or None for full-data gradients"
        raise InvalidInput(f"batch_size={number} is larger than the {examples} examples: {remedy}")
    return number


def minibatch(key: Key, data: Data, size: int | None, among: Array | None = None) -> Data:
    """`size` examples drawn independently and uniformly, or all of them when `size` is None.

    Independent draws make the gradient noise exactly i.i.d. with a known covariance, and cost no shuffling.

    Args:
        key, data: where the randomness comes from, and all examples.
        size: how many to draw, with replacement; None for `data` itself.
        among: how many of the first examples to draw from; all of them unless given.

    Returns:
        The drawn examples.

    >>> data = as_data([[0.0], [1.0], [2.0]], [0, 1, 2])
    >>> minibatch(jax.random.key(0), data, 2).x.shape
    (2, 1)
    """
    if size is None:
        return data
    rows = jax.random.randint(key, (size,), 0, len(data.x) if among is None else among)
    return jax.tree.map(lambda leaf: leaf[rows], data)


# The paper leaves open the means and covariances of the 2-D problem: here (-2, -2), (2, 2) and 2I. The 1-D problem is
# that of Hernandez-Lobato and Adams (2015), y = x^3 + N(0, 9).
TOY1D_NOISE_VARIANCE = 9.0


def toy2d(key: Key, per_class: int = 10) -> Data:
    """Two Gaussian classes in the plane.

    Args:
        key, per_class: where the randomness comes from, and how many points of each class.

    Returns:
        Inputs ``[2 * per_class, 2]`` and their classes.

    >>> toy2d(jax.random.key(0)).x.shape
    (20, 2)
    """
    noise = jnp.sqrt(2.0) * jax.random.normal(key, (2 * per_class, 2))
    y = jnp.repeat(jnp.arange(2, dtype=jnp.int32), per_class)
    return Data(jnp.where(y[:, None] == 0, -2.0, 2.0) + noise, y)


def toy1d(key: Key, examples: int = 20) -> Data:
    """A noisy cubic on [-4, 4].

    Args:
        key, examples: where the randomness comes from, and how many points.

    Returns:
        Inputs and targets, both ``[examples, 1]``.

    >>> toy1d(jax.random.key(0)).y.shape
    (20, 1)
    """
    input_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(input_key, (examples, 1), minval=-4.0, maxval=4.0)
    return Data(x, x**3 + jnp.sqrt(TOY1D_NOISE_VARIANCE) * jax.random.normal(noise_key, x.shape))
