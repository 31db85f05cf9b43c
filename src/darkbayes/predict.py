"""One form for every prediction, whoever made it: draws, a student, a plug-in network (`darkbayes.outcomes`)."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from darkbayes.compiled import compiled_briefly
from darkbayes.data.arrays import as_inputs
from darkbayes.model.posterior import Draw, Posterior
from darkbayes.outcomes.heads.base import Predicted
from darkbayes.types import Array, PyTree


def predict_draws(posterior: Posterior, draws: Draw, x: Any) -> Any:
    """The average of what draws predict.

    Args:
        posterior: what the draws are of.
        draws: with one or more axes of draws in front, as `sample` returns them.
        x: the inputs.

    Returns:
        The prediction of each input.

    >>> import darkbayes as db
    >>> import jax.numpy as jnp
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> x = jnp.zeros((5, 2))
    >>> draws = jax.vmap(lambda key: posterior.init(key, x))(jax.random.split(jax.random.key(0), 3))
    >>> predict_draws(posterior, draws, x).probs.shape
    (5, 2)
    """
    x = as_inputs(x, keep_bytes=True)
    one = jax.eval_shape(posterior.init, jax.random.key(0), x)
    flat = jax.tree.map(
        lambda leaf, like: leaf if leaf.ndim == like.ndim + 1 else np.asarray(leaf).reshape(-1, *like.shape), draws, one
    )
    # What was believed before the data, and how many these are, is part of no prediction, and compiles nothing anew.
    bare: Any = dataclasses.replace(posterior, prior=None, num_data=1)  # pyright: ignore[reportArgumentType]
    return jax.device_get(said_together(bare, flat, x)).prediction()


@compiled_briefly
def said_together(posterior: Posterior, draws: Draw, x: Array) -> Predicted:
    """What draws, along the first axis, predict together at `x`; traceable."""
    predict = partial(posterior.distribution, x=x)
    kind = eqx.filter_eval_shape(predict, jax.tree.map(lambda leaf: leaf[0], draws))
    return type(kind).together(predict, draws)


def predict_plugin(posterior: Posterior, draw: Draw, x: Any) -> Any:
    """What a single set of weights predicts, the plug-in approximation.

    Args:
        posterior, draw: what the weights are of, and the weights.
        x: the inputs.

    Returns:
        The prediction of each input.
    """
    return predict_draws(posterior, jax.tree.map(lambda leaf: np.asarray(leaf)[None], draw), x)


def predict_average(average: Any) -> Any:
    """What the draws of a finished run predicted together at the monitored inputs.

    For numbers it is the Gaussian with the mixture's mean and variance, as the draws themselves were not kept.

    Args:
        average: a teacher's `Average`.

    Returns:
        The prediction of each input.
    """
    return average.kind.averaged(average.mean, average.variance).prediction()


def predict_student(student: Any, params: PyTree, x: Any) -> Any:
    """What a student predicts, in one forward pass.

    Args:
        student, params: a `Student`, or a comparator with a `predict` like its, and its weights.
        x: the inputs.

    Returns:
        The prediction of each input.
    """
    return jax.device_get(_predict_student(student, params, as_inputs(x, keep_bytes=True))).prediction()


@compiled_briefly
def _predict_student(student: Any, params: PyTree, x: Array) -> Predicted:
    return student.predict(params, x)
