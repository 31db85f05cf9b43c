"""What the draws so far predict together at fixed inputs, in memory that does not grow with their number."""

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.outcomes.heads.base import Distribution
from darkbayes.types import Array


class Average(eqx.Module):
    """Running mean and variance over draws of each statistic of their predictions."""

    count: Array  # How many draws.
    mean: dict[str, Array]  # Of each statistic, by its name.
    variance: dict[str, Array]  # Likewise.
    kind: type[Distribution] = eqx.field(static=True)  # The distribution that a draw predicts.


def average_init(predictions: Distribution) -> Average:
    """An average of nothing, shaped for `predictions` with their draws along the first axis."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), predictions.statistics())
    return Average(jnp.zeros((), jnp.int32), zeros, zeros, type(predictions))


def average_add(average: Average, predictions: Distribution) -> Average:
    """Take in the predictions of several draws, along the first axis.

    Means and variances are merged as in Chan, Golub and LeVeque (1979): no sum of squares, so nothing cancels.
    """
    statistics = predictions.statistics()
    new = len(jax.tree.leaves(statistics)[0])
    count = average.count + new
    share = new / count

    def merge_variance(variance: Array, mean: Array, values: Array) -> Array:
        gap = jnp.mean(values, axis=0) - mean
        return (1 - share) * (variance + share * gap**2) + share * jnp.var(values, axis=0)

    variance = jax.tree.map(merge_variance, average.variance, average.mean, statistics)
    mean = jax.tree.map(lambda old, values: old + share * (jnp.mean(values, axis=0) - old), average.mean, statistics)
    return Average(count, mean, variance, average.kind)
