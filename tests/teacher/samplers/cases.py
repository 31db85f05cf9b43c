"""Every sampler, ready to be put through the same tests. A new one is an entry here; see `test_every_sampler.py`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import darkbayes as db

NUM_DATA = 100
"""The examples of the logistic regression that every sampler is to solve, of which a batch has a quarter."""


def _none(grads: Any) -> dict[str, Any]:
    return {}


def _examples(grads: Any) -> dict[str, Any]:
    """As `per_example` has it: three examples, whose gradients spread by a tenth."""
    of_examples = jax.tree.map(lambda g: jnp.stack([0.9 * g, g, 1.1 * g]).astype(g.dtype), grads)
    return {"per_example": of_examples, "num_data": NUM_DATA, "all_data": False}


def _metric(grads: Any) -> dict[str, Any]:
    """As `fisher_metric` has it: a metric that does not change."""
    return {"metric": jax.tree.map(jnp.square, grads), "metric_gradient": jax.tree.map(jnp.zeros_like, grads)}


@dataclasses.dataclass(frozen=True, eq=False)
class Sampler:
    """How to make a sampler, and what it needs besides the gradient."""

    make: Callable[..., optax.GradientTransformationExtraArgs]
    """``make(step_size, temperature)``."""
    step_size: float
    """One that suits the logistic regression."""
    extras: Callable[[Any], dict[str, Any]] = _none
    """What `update` needs by keyword, given gradients to take the shape from."""
    chain: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What `minibatch_chain` needs by keyword."""
    cools: bool = True
    """Whether its temperature may be zero."""


SAMPLERS = {
    "sgld": Sampler(db.sgld, 0.007),
    "psgld": Sampler(
        lambda eta, heat=1.0: db.samplers.psgld(eta, num_data=NUM_DATA, decay=0.95, adapt_steps=100, temperature=heat),
        0.0008,
    ),
    "psgld with gamma": Sampler(
        # Without damping the first gradient alone is the scale, and Gamma has the square of its inverse.
        lambda eta, heat=1.0: db.samplers.psgld(eta, num_data=NUM_DATA, damping=0.03, gamma=True, temperature=heat),
        0.0008,
        extras=lambda grads: {"curvature": jax.tree.map(abs, grads)},
        chain={"gradients": db.teacher.gradients.with_curvature()},
    ),
    "fisher_sgld": Sampler(
        lambda eta, heat=1.0: db.samplers.fisher_sgld(
            eta, prior_precision=1.0, batch_share=0.25, decay=0.95, adapt_steps=100, temperature=heat
        ),
        0.15,
    ),
    "fisher_sgld with friction": Sampler(
        lambda eta, heat=1.0: db.samplers.fisher_sgld(
            eta, prior_precision=1.0, batch_share=0.25, friction=0.2, decay=0.95, adapt_steps=100, temperature=heat
        ),
        0.04,
    ),
    "sgfs": Sampler(
        lambda eta, heat=1.0: db.samplers.sgfs(eta, prior_precision=1.0, decay=0.95, adapt_steps=100, temperature=heat),
        0.2,
        extras=_examples,
        chain={"gradients": db.teacher.gradients.per_example()},
        cools=False,
    ),
    "sgfs, full": Sampler(
        lambda eta, heat=1.0: db.samplers.sgfs(
            eta, prior_precision=1.0, full=True, decay=0.95, adapt_steps=100, temperature=heat
        ),
        0.2,
        extras=_examples,
        chain={"gradients": db.teacher.gradients.per_example()},
        cools=False,
    ),
    "sgrld": Sampler(
        lambda eta, heat=1.0: db.samplers.sgrld(eta, prior_precision=1.0, temperature=heat),
        0.1,
        extras=_metric,
        chain={"gradients": db.teacher.gradients.fisher_metric()},
    ),
    "sghmc": Sampler(lambda eta, heat=1.0: db.samplers.sghmc(eta, friction=0.2, temperature=heat), 0.002),
    "scale_adapted_sghmc": Sampler(
        lambda eta, heat=1.0: db.samplers.scale_adapted_sghmc(eta, friction=0.2, adapt_steps=100, temperature=heat),
        0.02,
    ),
    "sgnht": Sampler(lambda eta, heat=1.0: db.samplers.sgnht(eta, friction=0.2, temperature=heat), 0.002),
    "baoa": Sampler(lambda eta, heat=1.0: db.samplers.baoa(eta, friction=0.2, temperature=heat), 0.002),
}

GRADIENTS = np.random.default_rng(0).normal(size=(12, 3)) * [0.1, 1.0, 10.0]
"""Twelve gradients of three weights, to walk through by hand."""


def path(transformation: Any, gradients: np.ndarray, **extras: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """The updates on given gradients, the noise that went into each, and the states after each."""
    state, step, updates, noises, states = transformation.init(jnp.zeros(3)), jax.jit(transformation.update), [], [], []
    for t, g in enumerate(gradients):
        update, state = step(jnp.asarray(g, jnp.float32), state, key=jax.random.key(t), **extras)
        updates.append(update)
        noises.append(jax.random.normal(jax.random.key(t), (3,)))
        states.append(state)
    stacked = jax.tree.map(lambda *leaves: np.asarray(jnp.stack(leaves), np.float64), *states)
    return np.asarray(updates, np.float64), np.asarray(noises, np.float64), stacked
