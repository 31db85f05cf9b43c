"""Every sampler, ready to be put through the same tests. A new one is an entry here; see `test_samplers.py`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import optax

import darkbayes as db

NUM_DATA = 100
"""The examples of the logistic regression that every sampler is to solve, of which a batch has a quarter."""


def _none(grads: Any) -> dict[str, Any]:
    return {}


@dataclasses.dataclass(frozen=True, eq=False)
class Sampler:
    """How to make a sampler, and what it needs besides the gradient."""

    make: Callable[..., optax.GradientTransformationExtraArgs]
    """``make(step_size, temperature)``."""
    step_size: float
    """One that suits the logistic regression."""
    extras: Callable[[Any], dict[str, Any]] = _none
    """What `update` needs by keyword, given gradients to take the shape from."""
    chain: dict[str, Any] | None = dataclasses.field(default_factory=dict)
    """What `minibatch_chain` needs by keyword; None if it cannot run there."""


SAMPLERS = {
    "sgld": Sampler(db.sgld, 0.007),
    "psgld": Sampler(
        lambda eta, heat=1.0: db.psgld(eta, num_data=NUM_DATA, decay=0.95, adapt_steps=100, temperature=heat), 0.0008
    ),
    "psgld with gamma": Sampler(
        lambda eta, heat=1.0: db.psgld(eta, num_data=NUM_DATA, gamma=True, temperature=heat),
        0.0008,
        extras=lambda grads: {"curvature": jax.tree.map(abs, grads)},
        chain=None,
    ),
    "fisher_sgld": Sampler(
        lambda eta, heat=1.0: db.fisher_sgld(
            eta, prior_precision=1.0, batch_share=0.25, decay=0.95, adapt_steps=100, temperature=heat
        ),
        0.2,
    ),
    "sghmc": Sampler(lambda eta, heat=1.0: db.sghmc(eta, friction=0.2, temperature=heat), 0.002),
    "scale_adapted_sghmc": Sampler(
        lambda eta, heat=1.0: db.scale_adapted_sghmc(eta, friction=0.2, adapt_steps=100, temperature=heat), 0.02
    ),
    "sgnht": Sampler(lambda eta, heat=1.0: db.sgnht(eta, friction=0.2, temperature=heat), 0.002),
    "baoa": Sampler(lambda eta, heat=1.0: db.baoa(eta, friction=0.2, temperature=heat), 0.002),
}
