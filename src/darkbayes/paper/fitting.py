"""What several experiments do alike: how Adam is run, teachers are tuned, and comparators are fitted."""

import dataclasses
from typing import Any

import jax
import optax

from darkbayes.baselines import raise_if_diverged
from darkbayes.runs import Run
from darkbayes.teacher import MinibatchChain
from darkbayes.types import Array, Data, Key, PyTree


def falling_adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate falls to zero along a cosine over `steps` steps."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


def tuned(
    run: Run, name: str, teachers: list[MinibatchChain], key: Key, preset: Any, monitor: Array | None = None
) -> tuple[list[MinibatchChain], Any]:
    """Teachers with the step sizes that they found, and the preset with the lengths that they found."""
    settings = preset.settings
    teachers, choices = run.tune(
        name, teachers, key, monitor=monitor, num_chains=settings.num_chains, thin_by=settings.update_every
    )
    lengths = {length: getattr(choices[0], length) for length in ("steps", "burn_in", "thin")}
    return teachers, dataclasses.replace(preset, **lengths)


def fit_trials(method: Any, key: Key, trials: int, data: Data, axis: int | None) -> tuple[PyTree, Key]:
    """A comparator, fitted in all trials at once.

    Args:
        method: The comparator.
        key: Where its random numbers start.
        trials: How many there are.
        data: What to fit to.
        axis: The axis of `data` that trials lie along; None where all have the same.

    Returns:
        What was fitted, stacked, and a key for each trial to draw with.
    """
    fit_key, draw_key = jax.random.split(key)
    fitted = jax.jit(jax.vmap(method.fit, in_axes=(0, axis)))(jax.random.split(fit_key, trials), data)
    raise_if_diverged(fitted)
    return fitted, jax.random.split(draw_key, trials)
