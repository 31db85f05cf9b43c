"""How a network's outputs speak of a target, given whatever parameters the likelihood has of its own.

A likelihood has the network's output ``width``, the ``init`` and ``log_prior`` of its own parameters (none for
most), and ``distribution(params, outputs)``. `check_targets` refuses targets that it cannot explain.
"""

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, plain, require_count, require_positive
from darkbayes.model.distributions import Categorical, Distribution, Normal
from darkbayes.types import Array, PyTree


class Likelihood(Protocol):
    """What a posterior asks of its likelihood."""

    @property
    def width(self) -> int: ...

    def init(self) -> PyTree: ...

    def log_prior(self, params: PyTree) -> Array | float: ...

    def distribution(self, params: PyTree, outputs: Array) -> Distribution: ...

    def check_targets(self, y: Array) -> None: ...


class _NoParameters(eqx.Module):
    def init(self) -> PyTree:
        return ()

    def log_prior(self, params: PyTree) -> float:
        return 0.0


class Softmax(_NoParameters):
    """Classes 0 .. K-1; the outputs are logits."""

    num_classes: int = eqx.field(converter=plain)

    def __check_init__(self) -> None:
        require_count("num_classes", self.num_classes, least=2)

    @property
    def width(self) -> int:
        return self.num_classes

    def distribution(self, params: PyTree, outputs: Array) -> Categorical:
        return Categorical(jax.nn.log_softmax(outputs, axis=-1))

    def check_targets(self, y: Array) -> None:
        values = np.asarray(y)
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
            raise InvalidInput(
                f"y must be one integer class per row for Softmax, not shape {values.shape} of {values.dtype}"
            )
        outside = values[(values < 0) | (values >= self.num_classes)]
        if outside.size:
            raise InvalidInput(
                f"y holds label {outside[0]}, outside 0..{self.num_classes - 1}: relabel it or raise num_classes"
            )


def _check_real_targets(likelihood: "Gaussian | GaussianSampledNoise | GaussianInputNoise", y: Array) -> None:
    shape, dtype = np.shape(y), np.asarray(y).dtype
    if not np.issubdtype(dtype, np.floating) or shape[1:] != (likelihood.num_outputs,):
        raise InvalidInput(
            f"y must hold floats of shape [examples, {likelihood.num_outputs}] for {type(likelihood).__name__}, "
            f"not shape {shape} of {dtype}: convert y, or reshape a single output with y[:, None]"
        )


class Gaussian(_NoParameters):
    """Gaussian targets around the outputs, with a known noise precision (lambda_n of the paper)."""

    noise_precision: float = eqx.field(converter=plain)
    num_outputs: int = eqx.field(converter=plain, default=1)

    def __check_init__(self) -> None:
        require_positive("noise_precision", self.noise_precision)
        require_count("num_outputs", self.num_outputs)

    @property
    def width(self) -> int:
        return self.num_outputs

    def distribution(self, params: PyTree, outputs: Array) -> Normal:
        return Normal(outputs, jnp.full_like(outputs, 1.0 / self.noise_precision))

    def check_targets(self, y: Array) -> None:
        _check_real_targets(self, y)


class GaussianSampledNoise(eqx.Module):
    """Gaussian targets whose noise precision is inferred with the weights, one per output.

    The parameter is the log precision; the precision has a Gamma(shape, rate) prior.
    """

    num_outputs: int = eqx.field(converter=plain, default=1)
    shape: float = eqx.field(converter=plain, default=6.0)
    rate: float = eqx.field(converter=plain, default=6.0)

    def __check_init__(self) -> None:
        require_count("num_outputs", self.num_outputs)
        require_positive("shape", self.shape)
        require_positive("rate", self.rate)

    @property
    def width(self) -> int:
        return self.num_outputs

    def init(self) -> Array:
        # Of a definite dtype: a weak one turns definite at the first step, and all is compiled anew.
        return jnp.full(self.num_outputs, jnp.log(self.shape / self.rate), dtype=float)

    def log_prior(self, params: Array) -> Array:
        # The Jacobian of the log turns the exponent shape - 1 into shape.
        constant = self.shape * jnp.log(self.rate) - jax.scipy.special.gammaln(self.shape)
        return jnp.sum(self.shape * params - self.rate * jnp.exp(params) + constant)

    def distribution(self, params: Array, outputs: Array) -> Normal:
        return Normal(outputs, jnp.broadcast_to(jnp.exp(-params), outputs.shape))

    def check_targets(self, y: Array) -> None:
        _check_real_targets(self, y)


class GaussianInputNoise(_NoParameters):
    """Gaussian targets whose noise depends on the input: the outputs are means, then log variances.

    A single draw may claim any variance where it has seen no data, so the log variance is bent smoothly into
    [`min_log_variance`, `max_log_variance`]; inside, it is left as it is to within the softness of the bend.
    """

    num_outputs: int = eqx.field(converter=plain, default=1)
    min_log_variance: float = eqx.field(converter=plain, default=-8.0)
    max_log_variance: float = eqx.field(converter=plain, default=4.0)

    def __check_init__(self) -> None:
        require_count("num_outputs", self.num_outputs)
        if not -np.inf < self.min_log_variance < self.max_log_variance < np.inf:
            raise InvalidInput(
                f"min_log_variance={self.min_log_variance} must lie below max_log_variance={self.max_log_variance}, "
                "both finite"
            )

    @property
    def width(self) -> int:
        return 2 * self.num_outputs

    def distribution(self, params: PyTree, outputs: Array) -> Normal:
        mean, raw = jnp.split(outputs, 2, axis=-1)
        low, span = self.min_log_variance, self.max_log_variance - self.min_log_variance
        bent = span - jax.nn.softplus(span - jax.nn.softplus(raw - low))
        # Bent twice, it begins a little below 0: stretch it to begin there.
        least = span - float(np.logaddexp(0.0, span))
        return Normal(mean, jnp.exp(low + (bent - least) * span / (span - least)))

    def check_targets(self, y: Array) -> None:
        _check_real_targets(self, y)
