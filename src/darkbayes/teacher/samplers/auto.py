"""Step sizes that are found, not given.

Every sampler takes ``step_size="auto"``. It then is an `AutoStep`: a transformation whose step size is an array among
its fields, not a number in its code, so that `tune` can try many, and runs side by side can have one each, with one
compiled loop. Its other settings are fields as well: those that are arrays may change, and nothing compiles anew.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, overload

import equinox as eqx
import jax.numpy as jnp
import optax

from darkbayes.errors import InvalidInput
from darkbayes.types import Array, PyTree

P = ParamSpec("P")
Sampler = optax.GradientTransformationExtraArgs


class AutoStep(eqx.Module):
    """A sampler that waits for its step size: ``make(step_size, **settings)`` is the transformation.

    `tune` fills in the rest. Anything that scales with one number fits, such as a clipped sampler:

    >>> import darkbayes as db
    >>> clipped = AutoStep(lambda eta: optax.chain(optax.clip_by_global_norm(1e3), db.sgld(eta)))
    >>> clipped.tuned
    False
    """

    make: Callable[..., optax.GradientTransformation] = eqx.field(static=True)
    """Makes the transformation from a step size, a number or a schedule."""
    step_size: Array | None = None
    """None until it is found."""
    ramp: int | Array = 0
    """Steps in which the step size grows to its value: the start of a chain is steeper than where it stays."""
    settings: dict[str, Any] = eqx.field(default_factory=dict)
    """What else `make` is called with."""

    @property
    def tuned(self) -> bool:
        return self.step_size is not None

    def sampler(self) -> Sampler:
        """The transformation at the present step size."""
        step_size, ramp = self.step_size, self.ramp
        if step_size is None:
            raise InvalidInput('step_size="auto" has not been found yet: chain, choices = db.tune(chain, key)')

        def schedule(count: Any) -> Array:
            return step_size * jnp.minimum(1.0, (jnp.asarray(count, jnp.float32) + 1.0) / (ramp + 1.0))

        constant = isinstance(ramp, int) and ramp == 0
        return optax.with_extra_args_support(self.make(step_size if constant else schedule, **self.settings))

    def init(self, params: PyTree) -> Any:
        return self.sampler().init(params)

    def update(self, grads: PyTree, state: Any, params: PyTree | None = None, **extra: Any) -> tuple[PyTree, Any]:
        return self.sampler().update(grads, state, params, **extra)


class TunableSampler(Protocol[P]):
    """A sampler as a type checker sees it: what it returns depends on whether its step size is given."""

    @overload
    def __call__(self, step_size: float | Array | optax.Schedule, *args: P.args, **settings: P.kwargs) -> Sampler: ...

    @overload
    def __call__(self, step_size: Literal["auto"], *args: P.args, **settings: P.kwargs) -> AutoStep: ...


def auto(sampler: Callable[Concatenate[Any, P], Sampler]) -> TunableSampler[P]:
    """Let a sampler, a function of a step size and other settings, take ``step_size="auto"`` as well."""
    signature = inspect.signature(sampler)

    @functools.wraps(sampler)
    def made(step_size: Any, *args: P.args, **settings: P.kwargs) -> Any:
        if not isinstance(step_size, str):
            return sampler(step_size, *args, **settings)
        if step_size != "auto":
            raise InvalidInput(f"step_size must be a positive number, a schedule or 'auto', not {step_size!r}")
        sampler(1.0, *args, **settings)  # The other settings are checked now.
        given = signature.bind(step_size, *args, **settings).arguments
        del given["step_size"]
        return AutoStep(sampler, settings=given)

    return made
