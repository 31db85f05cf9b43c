"""What all experiments do alike: how Adam is run."""

import optax


def falling_adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate falls to zero along a cosine over `steps` steps."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
