"""SWAG (Maddox, Garipov, Izmailov, Vetrov and Wilson, 2019): a Gaussian over where SGD wanders around its solution.

After training, K points theta_k of a walk by SGD at a constant rate are looked at, and

    q(theta) = N(mean, 1/2 diag(variance) + 1/(2 (R - 1)) sum_r d_r d_r^T),

with the mean and the variances of the points, and the deviations d_r of the last R of them from the mean as it was at
that time. A draw is mean + sqrt(variance / 2) * xi + sum_r d_r zeta_r / sqrt(2 (R - 1)), xi and zeta standard normal.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from darkbayes.baselines.optimise import SGD, optimise
from darkbayes.errors import InvalidInput, require_count
from darkbayes.model.posterior import Draw
from darkbayes.teacher.noise import normal_like
from darkbayes.types import Array, Data, Key


class Walked(eqx.Module):
    """The mean and the variance of the points of a walk, and the last deviations from it."""

    mean: Draw
    """Of the points."""
    variance: Draw
    """Of the points, one for each weight."""
    deviations: Draw
    """Of the last points, along the first axis."""


class SWAG(SGD):
    """A Gaussian of a diagonal and a low-rank part, fitted to a walk of SGD; any network will do.

    >>> import darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> method = SWAG(posterior, optax.adam(1e-2), 100, 10, walk=optax.sgd(0.1), points=20, every=5, rank=4)
    >>> draws = method.draws(jax.random.key(2), method.fit(jax.random.key(1), data), 3)
    >>> draws.network[1].weight.shape
    (3, 2, 10)
    """

    walk: optax.GradientTransformation = eqx.field(default_factory=lambda: optax.sgd(0.01))
    """SGD at a constant rate, which wanders around; what it remembers is forgotten at each point."""
    points: int = eqx.field(converter=partial(require_count, "points", least=2), default=40)
    """Points of the walk."""
    every: int = eqx.field(converter=partial(require_count, "every"), default=50)
    """Steps between two of them; the paper has an epoch."""
    rank: int = eqx.field(converter=partial(require_count, "rank", least=2), default=20)
    """How many of the last points the low-rank part is made of."""

    def __check_init__(self) -> None:
        if self.rank > self.points:
            raise InvalidInput(f"rank={self.rank} is more than the points={self.points} of the walk: use at most that")

    def train(self, key: Key, data: Data) -> Walked:
        train_key, walk_key = jax.random.split(key)
        begin = super().train(train_key, data)
        zeros = jax.tree.map(jnp.zeros_like, begin)

        def visit(carry: tuple[Draw, Draw, Draw], step: tuple[Array, Key]) -> tuple[tuple[Draw, Draw, Draw], Draw]:
            (params, mean, variance), (number, key) = carry, step
            size, share = self.batch_size, 1 / (number + 1)
            params = optimise(self.loss, params, self.walk, data, key, batch_size=size, steps=self.every)
            gap = jax.tree.map(jnp.subtract, params, mean)
            mean = jax.tree.map(lambda mean, gap: mean + share * gap, mean, gap)
            variance = jax.tree.map(lambda old, gap: (1 - share) * (old + share * gap**2), variance, gap)
            return (params, mean, variance), jax.tree.map(jnp.subtract, params, mean)

        steps = jnp.arange(self.points), jax.random.split(walk_key, self.points)
        (_, mean, variance), deviations = jax.lax.scan(visit, (begin, zeros, zeros), steps)
        return Walked(mean, variance, jax.tree.map(lambda leaf: leaf[-self.rank :], deviations))

    def draws(self, key: Key, fitted: Walked, number: int = 1) -> Draw:
        """`number` draws of the Gaussian."""

        def one(key: Key) -> Draw:
            own_key, shared_key = jax.random.split(key)
            weights = jax.random.normal(shared_key, (self.rank,)) / jnp.sqrt(2.0 * (self.rank - 1))

            def around(mean: Array, variance: Array, deviations: Array, noise: Array) -> Array:
                return mean + jnp.sqrt(0.5 * variance) * noise + jnp.tensordot(weights, deviations, axes=1)

            noise = normal_like(own_key, fitted.mean)
            return jax.tree.map(around, fitted.mean, fitted.variance, fitted.deviations, noise)

        return jax.vmap(one)(jax.random.split(key, require_count("number", number)))
