"""The running average of predictions is the mean and variance over all draws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
from darkbayes.teacher.keeping import average_add, average_init

pytestmark = pytest.mark.usefixtures("strict")


def add_in_parts(predictions: Any, sizes: list[int]) -> Any:
    """The average after taking in `predictions`, cut along their first axis into parts of these sizes."""
    average = average_init(predictions)
    add = jax.jit(average_add)
    for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
        average = add(average, jax.tree.map(lambda leaf, s=stop, n=size: leaf[s - n : s], predictions))
    return average


@pytest.mark.parametrize("sizes", [[1] * 12, [12], [3, 3, 3, 3], [1, 7, 4]], ids=str)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_the_average_is_numpys_mean_and_variance_over_all_draws(sizes: list[int], offset: float) -> None:
    rng = np.random.default_rng(0)
    mean = np.float32(offset + rng.normal(size=(12, 5, 2)))
    predictions = db.outcomes.Normal(jnp.asarray(mean), jnp.asarray(np.exp(rng.normal(size=(12, 5, 2))), jnp.float32))
    average = add_in_parts(predictions, sizes)
    assert int(average.count) == 12
    # A sum of squares in float32 would be off by 0.1 at an offset of 1000.
    np.testing.assert_allclose(average.mean["mean"], mean.astype(np.float64).mean(axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(average.variance["mean"], mean.astype(np.float64).var(axis=0), rtol=1e-3)
    np.testing.assert_allclose(average.mean["variance"], np.asarray(predictions.variance).mean(axis=0), rtol=1e-5)


def test_the_average_of_many_draws_does_not_drift() -> None:
    """20,000 draws around 100, one by one: rounding stays well below the 0.007 by which such a mean is uncertain."""
    values = 100 + jax.random.normal(jax.random.key(0), (20_000, 1, 1))
    predictions = db.outcomes.Normal(values, jnp.ones_like(values))

    def add(average: Any, prediction: Any) -> tuple[Any, None]:
        return average_add(average, jax.tree.map(lambda leaf: leaf[None], prediction)), None

    average = jax.jit(lambda all_: jax.lax.scan(add, average_init(all_), all_)[0])(predictions)
    exact = np.asarray(values, np.float64)
    np.testing.assert_allclose(average.mean["mean"][0, 0], exact.mean(), atol=1e-3)
    np.testing.assert_allclose(average.variance["mean"][0, 0], exact.var(), atol=1e-3)


def test_the_average_of_classes_holds_probabilities_and_entropies() -> None:
    logits = jax.random.normal(jax.random.key(0), (6, 4, 3))
    predictions = db.outcomes.Categorical(jax.nn.log_softmax(logits))
    average = add_in_parts(predictions, [2, 2, 2])
    np.testing.assert_allclose(average.mean["probs"], predictions.probs.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(average.mean["entropy"], predictions.entropy.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(average.variance["probs"], np.var(predictions.probs, axis=0), rtol=1e-4, atol=1e-7)


def test_an_average_of_nothing_counts_nothing() -> None:
    average = average_init(db.outcomes.Normal(jnp.ones((3, 2, 1)), jnp.ones((3, 2, 1))))
    assert int(average.count) == 0
    assert average.mean["mean"].shape == (2, 1)
    np.testing.assert_array_equal(average.mean["variance"], 0.0)
