"""The student: a network, how its outputs are read, and how it learns."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from darkbayes.errors import plain, require_positive
from darkbayes.model.base import as_floats
from darkbayes.model.posterior import check_width
from darkbayes.outcomes.heads.base import Head, Predicted
from darkbayes.types import Array, Key, Network, PyTree


class Student(eqx.Module):
    """One ordinary network that learns what the draws predict together.

    >>> import darkbayes as db
    >>> student = Student(db.mlp([10, 10], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    >>> params = student.init(jax.random.key(0), jnp.zeros((1, 2)))
    >>> student.predict(params, jnp.zeros((5, 2))).distribution.probs.shape
    (5, 2)
    """

    network: Network
    """The network that is left at the end."""
    head: Head
    """How its outputs are read."""
    optimiser: optax.GradientTransformation
    """One of optax's."""
    prior_precision: float = eqx.field(converter=plain, default=0.0)
    """gamma of the paper: the precision of a Gaussian prior on the weights, per query."""
    holds_draws: bool = False
    """Whether it takes over the hidden layers of draws, side by side, before its first update: for networks of linear
    layers whose activation is the teacher's (`darkbayes.student.beginning`)."""

    def __check_init__(self) -> None:
        if self.prior_precision != 0:
            require_positive("prior_precision (0 for none)", self.prior_precision)

    def check(self, x: Array) -> None:
        """Refuse a network whose outputs the head cannot read."""
        check_width("the student's network", self.network, self.head.width, type(self.head).__name__, x)

    def init(self, key: Key, x: Array) -> PyTree:
        return self.network.init(key, as_floats(x))

    def outputs(self, params: PyTree, x: Array) -> Array:
        """What the head reads."""
        return self.network.apply(params, as_floats(x))

    def loss(self, params: PyTree, x: Array, targets: Any) -> tuple[Array, Array]:
        """The penalised loss, whose gradient Algorithm 1 follows, and the loss alone."""
        loss = jnp.mean(self.head.loss(self.outputs(params, x), targets))
        squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)] if self.prior_precision else []
        return loss + 0.5 * self.prior_precision * sum(squares, start=jnp.zeros(())), loss

    def update(self, params: PyTree, state: PyTree, x: Array, targets: Any) -> tuple[PyTree, PyTree, Array]:
        """One step of the optimiser; returns the new weights, the optimiser's state and the loss."""
        (value, loss), grads = jax.value_and_grad(self.loss, has_aux=True)(params, x, targets)
        updates, state = optax.with_extra_args_support(self.optimiser).update(grads, state, params, value=value)
        return optax.apply_updates(params, updates), state, loss

    def divergence(self, params: PyTree, average: Any, x: Array) -> Array:
        """KL(teacher || student) at each input, of a teacher's `Average` there."""
        return self.head.divergence(average, self.outputs(params, x))

    def predict(self, params: PyTree, x: Any) -> Predicted:
        """The predictive distribution at `x`, and both parts of its uncertainty where they were distilled."""
        return self.head.predict(self.outputs(params, x))
