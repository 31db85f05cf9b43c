"""Probabilistic backpropagation (Hernandez-Lobato and Adams, 2015) for regression.

Weights are independent Gaussians, q(w) = N(m, v); the noise precision and the precision of the weights' prior have
gamma distributions, of shape and rate (a, b) and (a_w, b_w). Moments pass forward through the network: with the bias as
a unit of mean 1 and variance 0 and D inputs, bias included,

    m_a = M m_z / sqrt(D),    v_a = [M^2 v_z + V (m_z^2 + v_z)] / D,

and through a rectifier, with alpha = m_a / sqrt(v_a), phi and Phi the standard normal density and distribution,

    m_z = m_a Phi(alpha) + sqrt(v_a) phi(alpha),
    v_z = v_a [Phi(alpha) + alpha^2 Phi(alpha) Phi(-alpha) - alpha phi(alpha) (2 Phi(alpha) - 1) - phi(alpha)^2].

These are the paper's equations without its ratio phi/Phi, which needs a branch for units that are surely off.
Each data point multiplies q by its likelihood, and q becomes the Gaussian of the same moments (assumed density
filtering). With Z = N(y | m, s), s = v + b/(a - 1), of the network's output m, v,

    m <- m + v dlogZ/dm,    v <- v - v^2 [(dlogZ/dm)^2 - 2 dlogZ/dv].

The gamma keeps its first two moments, from Z_1 and Z_2 in which b/a and b/(a + 1) stand for b/(a - 1):

    1/a <- Z Z_2 / Z_1^2 (a + 1)/a - 1,    1/b <- Z_2/Z_1 (a + 1)/b - Z_1/Z a/b.

With e = y - m and s_1, s_2 the variances of Z_1, Z_2 this is

    a <- a g,    b <- b g Z/Z_1,    1/g = 1 + (a + 1) (Z Z_2 / Z_1^2 - 1),
    log(Z Z_2 / Z_1^2) = -1/2 log(1 + b (2v + b/a) / [a (a^2 - 1) s_1^2]) + e^2 b v / [a (a^2 - 1) s s_1 s_2],

without differences of nearly equal numbers, so that single precision suffices; the three logarithms differ by ever less
as a grows. After each pass the factor by which each weight's prior enters q is refined by expectation propagation
(`refine_priors`).
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import InvalidInput, require_count
from darkbayes.outcomes.heads.base import Predicted
from darkbayes.outcomes.heads.number import Normal
from darkbayes.types import Array, Data, Key

# A weak belief in a variance near 1, of the noise (standardised targets vary by 1) and of the weights alike.
INITIAL_SHAPE = INITIAL_RATE = 6.0
# A wider cavity knows nothing of its weight, and single precision cannot tell it from an improper one.
WIDEST_CAVITY = 1e6
# Beyond 40 standard deviations the tails are zero even in double precision.
SURELY = 40.0


class Gamma(NamedTuple):
    """A gamma distribution of a precision tau: density proportional to tau^(shape - 1) exp(-rate tau)."""

    shape: Array
    rate: Array

    @property
    def variance(self) -> Array:
        """The mean of 1/tau: that of the variance whose precision is tau."""
        return self.rate / (self.shape - 1.0)

    @property
    def usable(self) -> Array:
        """Whether it is a distribution under which 1/tau has a mean."""
        return (self.shape > 1) & (self.rate > 0) & jnp.isfinite(self.shape) & jnp.isfinite(self.rate)


class Weights(NamedTuple):
    """Independent Gaussians, for one layer ``[outputs, inputs + 1]`` with the bias last."""

    mean: Array
    variance: Array


class PriorFactors(NamedTuple):
    """How each weight's prior N(0, 1/tau) enters q: exp(-precision w^2 / 2) tau^shape exp(-rate tau)."""

    precision: Array
    shape: Array
    rate: Array


class PBPState(NamedTuple):
    """What is known of the weights and of both precisions."""

    weights: tuple[Weights, ...]
    """Those of each layer."""
    noise: Gamma
    """The precision of the noise."""
    prior: Gamma
    """The precision of the weights' prior."""
    factors: tuple[PriorFactors, ...]
    """What the prior said of the weights of each layer, to be taken back before it is said again."""


def linear_moments(weights: Weights, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance of W z / sqrt(D) for independent weights and inputs; the bias is added to the inputs."""
    inputs = weights.mean.shape[-1]
    mean, variance = jnp.append(mean, 1.0), jnp.append(variance, 0.0)
    spread = weights.mean**2 @ variance + weights.variance @ (mean**2 + variance)
    return weights.mean @ mean / inputs**0.5, spread / inputs


def relu_moments(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance of max(0, a) for a ~ N(mean, variance).

    >>> mean, variance = relu_moments(jnp.array(0.0), jnp.array(1.0))
    >>> round(float(mean), 4), round(float(variance), 4)
    (0.3989, 0.3408)
    """
    deviation = jnp.sqrt(variance)
    alpha = jnp.clip(mean / deviation, -SURELY, SURELY)
    density, on, off = jax.scipy.stats.norm.pdf(alpha), jax.scipy.special.ndtr(alpha), jax.scipy.special.ndtr(-alpha)
    share = on + alpha**2 * on * off - alpha * density * (on - off) - density**2
    # Rounding may leave less than nothing of a unit that is almost surely off.
    return mean * on + deviation * density, variance * jnp.maximum(share, 0.0)


def network_moments(weights: tuple[Weights, ...], x: Array) -> tuple[Array, Array]:
    """Mean and variance of the network's outputs at one input, each layer's taken as independent Gaussians."""
    mean, variance = linear_moments(weights[0], x, jnp.zeros_like(x))
    for layer in weights[1:]:
        mean, variance = linear_moments(layer, *relu_moments(mean, variance))
    return mean, variance


def update_gamma(gamma: Gamma, error: Array, variance: Array) -> Gamma:
    """The gamma over tau after N(error | 0, variance + 1/tau) has been seen, by the module's equations."""
    a, b = gamma
    s, s1, s2 = variance + b / (a - 1.0), variance + b / a, variance + b / (a + 1.0)
    unit = b / (a * (a - 1.0) * (a + 1.0))
    log_curvature = -0.5 * jnp.log1p(unit * (2.0 * variance + b / a) / s1**2)
    log_curvature += error**2 * unit * variance / (s * s1 * s2)
    step = b / (a * (a - 1.0))  # s - s1
    log_ratio = -0.5 * (jnp.log1p(-step / s) + error**2 * step / (s * s1))  # log Z_1/Z
    growth = 1.0 / (1.0 + (a + 1.0) * jnp.expm1(log_curvature))
    return Gamma(a * growth, b * growth * jnp.exp(-log_ratio))


def observe(weights: tuple[Weights, ...], noise: Gamma, x: Array, y: Array) -> tuple[tuple[Weights, ...], Gamma]:
    """Assumed density filtering of one data point; a weight or gamma whose update is improper is left as it was."""

    def log_evidence(weights: tuple[Weights, ...]) -> tuple[Array, tuple[Array, Array]]:
        mean, variance = network_moments(weights, x)
        error, total = y[0] - mean[0], variance[0] + noise.variance
        return -0.5 * (jnp.log(total) + error**2 / total), (error, variance[0])

    slopes, (error, variance) = jax.grad(log_evidence, has_aux=True)(weights)

    def filtered(layer: Weights, slope: Weights) -> Weights:
        mean = layer.mean + layer.variance * slope.mean
        variance = layer.variance - layer.variance**2 * (slope.mean**2 - 2.0 * slope.variance)
        proper = (variance > 0) & jnp.isfinite(variance) & jnp.isfinite(mean)
        return Weights(jnp.where(proper, mean, layer.mean), jnp.where(proper, variance, layer.variance))

    learnt = update_gamma(noise, error, variance)
    noise = Gamma(*(jnp.where(learnt.usable, new, old) for new, old in zip(learnt, noise, strict=True)))
    return tuple(map(filtered, weights, slopes)), noise


def refine_priors(weights: Weights, factors: PriorFactors, prior: Gamma) -> tuple[Weights, PriorFactors, Gamma]:
    """One sweep of expectation propagation over the prior factors of weights in one dimension, one after another.

    The cavity is q without the factor: N(m, v) of precision 1/v - precision, and a gamma (a, b) without its part. Times
    the prior, a Gaussian of mean 0 and expected variance b/(a - 1), it gives the new q; the quotient of both is the new
    factor, of precision (a - 1)/b. The gamma follows as for the noise, with the cavity's mean in the error's place. A
    weight whose cavity is improper is left as it was.
    """

    def refine(prior: Gamma, site: tuple[Weights, PriorFactors]) -> tuple[Gamma, tuple[Weights, PriorFactors]]:
        (mean, variance), factor = site
        precision = 1.0 / variance - factor.precision
        cavity = Gamma(prior.shape - factor.shape, prior.rate - factor.rate)
        updated = update_gamma(cavity, mean / (variance * precision), 1.0 / precision)
        proper = (precision > 1.0 / WIDEST_CAVITY) & cavity.usable & updated.usable

        added = 1.0 / cavity.variance
        narrowed = 1.0 / (precision + added)
        weight = Weights(mean / variance * narrowed, narrowed)
        refined = PriorFactors(added, updated.shape - cavity.shape, updated.rate - cavity.rate)
        new, old = (updated, (weight, refined)), (prior, site)
        return jax.tree.map(lambda n, o: jnp.where(proper, n, o), new, old)

    prior, (weights, factors) = jax.lax.scan(refine, prior, (weights, factors))
    return weights, factors, prior


def _widths(hidden: Any) -> tuple[int, ...]:
    if not isinstance(hidden, Iterable):
        raise InvalidInput(f"hidden must hold the width of each hidden layer, not {hidden!r}: write ({hidden!r},)")
    return tuple(require_count("a hidden layer's width", width) for width in hidden)


class PBP(eqx.Module):
    """A rectifier network of one output, learnt by probabilistic backpropagation.

    Inputs and targets should be standardised. `fit` and `predict` are pure: ``jax.vmap(pbp.fit)(keys, data)`` trains on
    many data sets of one size at once. `predict_student` takes a `PBP` and its state for a student and its weights.

    With far more weights than the data can tell of, say a hundred hidden units and twenty points, the random means at
    which the weights start pass for evidence of a wide prior, and the predictive variance grows beyond reason.

    Args:
        hidden: the widths of the hidden layers; none makes a linear model.
        passes: how often the data are seen, each time in a new order.

    >>> x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    >>> pbp = PBP((10,), passes=5)
    >>> state = pbp.fit(jax.random.key(0), Data(x, 2 * x))
    >>> distribution, noise, _ = pbp.predict(state, x)
    >>> distribution.mean.shape, bool(jnp.all(distribution.variance > noise))
    ((20, 1), True)
    """

    hidden: tuple[int, ...] = eqx.field(static=True, converter=_widths)
    passes: int = eqx.field(static=True, converter=partial(require_count, "passes"), default=40)

    def init(self, key: Key, x: Array) -> PBPState:
        """Random means, and variances and factors as the prior has them."""
        widths = (x.shape[-1], *self.hidden, 1)
        keys = jax.random.split(key, len(widths) - 1)
        start = Gamma(jnp.full((), INITIAL_SHAPE, x.dtype), jnp.full((), INITIAL_RATE, x.dtype))
        weights, factors = [], []
        for inputs, outputs, layer_key in zip(widths[:-1], widths[1:], keys, strict=True):
            mean = jax.random.normal(layer_key, (outputs, inputs + 1), x.dtype) / (inputs + 1) ** 0.5
            weights.append(Weights(mean, jnp.full_like(mean, start.variance)))
            nothing = jnp.zeros_like(mean)
            factors.append(PriorFactors(jnp.full_like(mean, 1.0 / start.variance), nothing, nothing))
        return PBPState(tuple(weights), start, start, tuple(factors))

    def fit(self, key: Key, data: Data) -> PBPState:
        """Learn from ``data.x`` of shape ``[examples, features]`` and ``data.y`` of shape ``[examples, 1]``."""
        if data.x.ndim != 2:
            raise InvalidInput(f"PBP needs x of shape [examples, features], not {data.x.shape}: flatten the inputs")
        if data.y.shape != (len(data.x), 1):
            raise InvalidInput(f"PBP needs y of shape ({len(data.x)}, 1), not {data.y.shape}: it has one output")
        for name, values in data._asdict().items():
            if not jnp.issubdtype(values.dtype, jnp.floating):
                raise InvalidInput(f"PBP needs real numbers, but {name} has type {values.dtype}: convert it to floats")
        return _fit(self, key, Data(data.x, data.y.astype(data.x.dtype)))

    def predict(self, state: PBPState, x: Array) -> Predicted:
        """The predictive distribution at `x` and the part of its variance that is noise, each ``[batch, 1]``."""
        mean, variance = jax.vmap(lambda one: network_moments(state.weights, one))(x)
        noise = jnp.full_like(variance, state.noise.variance)
        return Predicted(Normal(mean, variance + noise), noise)


@eqx.filter_jit
def _fit(pbp: PBP, key: Key, data: Data) -> PBPState:
    init_key, passes_key = jax.random.split(key)

    def one_pass(state: PBPState, order_key: Key) -> tuple[PBPState, None]:
        order = jax.random.permutation(order_key, len(data.x))
        examples = Data(data.x[order], data.y[order])
        known = state.weights, state.noise
        (seen, noise), _ = jax.lax.scan(lambda now, example: (observe(*now, *example), None), known, examples)
        prior, weights, factors = state.prior, [], []
        # The prior factors of all weights are refined, the layers one after another.
        for layer, factor in zip(seen, state.factors, strict=True):
            flat_layer, flat_factor = jax.tree.map(jnp.ravel, (layer, factor))
            *refined, prior = refine_priors(flat_layer, flat_factor, prior)
            layer, factor = jax.tree.map(lambda leaf, like=layer.mean: leaf.reshape(like.shape), refined)
            weights.append(layer)
            factors.append(factor)
        return PBPState(tuple(weights), noise, prior, tuple(factors)), None

    return jax.lax.scan(one_pass, pbp.init(init_key, data.x), jax.random.split(passes_key, pbp.passes))[0]
