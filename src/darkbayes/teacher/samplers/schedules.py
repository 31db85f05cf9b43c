"""Step sizes and temperatures that change with the step count.

A number is the constant one; any optax schedule fits as well.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from darkbayes.errors import InvalidInput, require_count, require_positive, require_share
from darkbayes.types import Array

Rate = float | optax.Schedule  # What a step size or a temperature may be.


def stepped(initial: float, factor: float, every: int) -> optax.Schedule:
    """`initial` times `factor` once more after each `every` steps (the paper's Boston teacher: 0.5, 80,000).

    Args:
        initial, factor: the step size to begin with, and what it is multiplied by each time.
        every: steps between two times.

    Returns:
        The schedule.

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

    Args:
        scale, offset: the step size where ``offset + t`` is one, and how many steps ago the fall began.
        power: how fast it falls, in (0, 1].

    Returns:
        The schedule.

    >>> float(polynomial(1.0, offset=1.0, power=0.5)(3))
    0.5
    """
    require_positive("scale", scale)
    require_positive("offset", offset)
    if not 0.0 < power <= 1.0:
        raise InvalidInput(f"power must lie in (0, 1], not {power!r}")
    return lambda count: scale * (offset + jnp.asarray(count, jnp.float32)) ** -power


class Cyclical(NamedTuple):
    """The two schedules that make a sampler cyclical; in the order in which `sgld` takes them."""

    step_size: optax.Schedule
    """Falls from its peak to zero in each cycle."""
    temperature: optax.Schedule
    """Zero in the first part of each cycle."""


def cyclical(peak: float, cycle: int, explore: float = 0.8, temperature: float = 1.0) -> Cyclical:
    """Zhang et al.'s cycles (2020): long steps without noise to find another mode, then ever shorter ones to sample it.

    With r = (t mod cycle) / cycle, the step size is ``peak / 2 (cos(pi r) + 1)``; the temperature is 0 while
    r < `explore` and `temperature` after that. Any sampler takes them: ``sghmc(step_size=..., temperature=...)``.

    A chain with ``thin=cycle`` and a ``burn_in`` of whole cycles keeps one draw a cycle, where the step is shortest; a
    student that is to learn from these alone has ``Settings(update_every=cycle)``.

    Args:
        peak, cycle: the step size at the start of a cycle, and the steps of a cycle.
        explore, temperature: the share of a cycle without noise, and the temperature of its rest.

    Returns:
        Schedules of the step size and the temperature.

    >>> schedules = cyclical(0.1, cycle=4, explore=0.5)
    >>> [round(float(schedules.step_size(t)), 4) for t in range(5)]
    [0.1, 0.0854, 0.05, 0.0146, 0.1]
    >>> [float(schedules.temperature(t)) for t in range(5)]
    [0.0, 0.0, 1.0, 1.0, 0.0]
    """
    require_positive("peak", peak)
    cycle = require_count("cycle", cycle)
    require_positive("temperature", temperature)
    if explore != 0.0:
        require_share("explore", explore)

    def passed(count: jax.typing.ArrayLike) -> Array:
        """The share of the present cycle that has passed; whole numbers as long as they can be, which stay exact."""
        return (jnp.asarray(count, jnp.int32) % cycle).astype(jnp.float32) / cycle

    return Cyclical(
        lambda count: peak / 2 * (jnp.cos(jnp.pi * passed(count)) + 1),
        lambda count: jnp.where(passed(count) < explore, 0.0, temperature),
    )


def as_schedule(name: str, value: Rate, *, zero: bool = False) -> optax.Schedule:
    """A schedule from a number or a schedule; a number, and the first value of a schedule, must be positive.

    Args:
        name, value: what an error calls it, and the number or schedule.
        zero: whether they may be zero, as a temperature may.

    Returns:
        The schedule.
    """
    if callable(value):
        require_positive(f"{name} at the first step", jnp.asarray(value(jnp.zeros((), jnp.int32))), zero=zero)
        return value
    require_positive(name, value, zero=zero)
    return lambda count: value


def __dir__() -> list[str]:
    return ["Cyclical", "cyclical", "polynomial", "stepped"]  # `as_schedule` is for samplers.
