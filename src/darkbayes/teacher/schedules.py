"""Step sizes that change with the step count. A number is the constant one; any optax schedule fits as well."""

import jax
import jax.numpy as jnp
import optax

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.types import Array


def stepped(initial: float, factor: float, every: int) -> optax.Schedule:
    """`initial` times `factor` once more after each `every` steps (the paper's Boston teacher: 0.5, 80,000).

    >>> schedule = stepped(1e-5, factor=0.5, every=80_000)
    >>> [f"{float(schedule(t)):.3g}" for t in (0, 79_999, 80_000, 160_000)]
    ['1e-05', '1e-05', '5e-06', '2.5e-06']
    """
    require_positive("initial", initial)
    require_positive("factor", factor)
    require_count("every", every)
    return optax.exponential_decay(initial, every, factor, staircase=True)


def polynomial(scale: float, offset: float = 1.0, power: float = 0.55) -> optax.Schedule:
    """Welling and Teh's ``scale * (offset + t) ** -power``; SGLD converges for powers in (0.5, 1].

    >>> float(polynomial(1.0, offset=1.0, power=0.5)(3))
    0.5
    """
    require_positive("scale", scale)
    require_positive("offset", offset)
    if not 0.0 < power <= 1.0:
        raise InvalidInput(f"power must lie in (0, 1], not {power!r}")

    def schedule(count: jax.typing.ArrayLike) -> Array:
        return scale * (offset + jnp.asarray(count, jnp.float32)) ** -power

    return schedule


def as_schedule(name: str, value: float | optax.Schedule) -> optax.Schedule:
    """A schedule from a number or a schedule; a number, and the first value of a schedule, must be positive."""
    if callable(value):
        require_positive(f"{name} at the first step", jnp.asarray(value(jnp.zeros((), jnp.int32))))
        return value
    require_positive(name, value)
    return lambda count: value
