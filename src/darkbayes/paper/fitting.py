"""What all experiments do alike: how Adam is run, and how one of many fits is looked at."""

import operator
from typing import Any

import jax
import optax


def falling_adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate falls to zero along a cosine over `steps` steps."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


def at(index: int, stacked: Any) -> Any:
    """The element at `index` of a pytree whose leaves have a leading axis of fits."""
    return jax.tree.map(operator.itemgetter(index), stacked)
