"""What all experiments do alike: settings of teachers and students, how teachers are tuned and comparators fitted."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import optax

from darkbayes.baselines import raise_if_diverged
from darkbayes.model import Posterior, mlp
from darkbayes.outcomes.heads.base import Head
from darkbayes.runs import Run
from darkbayes.student import Settings, Student
from darkbayes.teacher.chain import MinibatchChain
from darkbayes.types import Array, Data, Key, PyTree


def falling_adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate falls to zero along a cosine over `steps` steps."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """The settings that every experiment has."""

    trials: int
    step_size: float | Literal["auto"]
    """``"auto"`` for the default sampler, which finds it, and with it `steps`, `burn_in` and `thin`."""
    steps: int
    burn_in: int
    thin: int
    settings: Settings
    optimiser: Literal["adam", "sgd", "stepped"]
    """The student's. Adam's learning rate falls to zero along a cosine; that of SGD is what `sgd_rate` says."""
    learning_rate: float
    student_prior: float = 0.0

    def student(self, hidden: tuple[int, ...], head: Head) -> Student:
        """A student of the given hidden layers."""
        updates = (self.steps - self.burn_in) // self.settings.update_every * self.settings.updates
        adam = self.optimiser == "adam"
        optimiser = falling_adam(self.learning_rate, updates) if adam else optax.sgd(self.sgd_rate(updates))
        return Student(mlp(hidden, head.width), head, optimiser, self.student_prior)

    def sgd_rate(self, updates: int) -> float | optax.Schedule:
        """The learning rate of a student that is trained by SGD: constant."""
        return self.learning_rate


def trained(kind: Callable[..., Any], posterior: Posterior, settings: Any, steps: int, **extra: Any) -> Any:
    """A comparator that is trained by Adam, with the batches and the learning rate of all comparators."""
    return kind(posterior, falling_adam(settings.learning_rate, steps), steps, settings.batch_size, **extra)


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
