"""Effective sample sizes against known answers."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
from darkbayes.teacher.diagnostics.convergence import (
    autocorrelation_time,
    effective_sample_size,
    monte_carlo_divergence,
)
from darkbayes.teacher.keeping import Average
from teacher.diagnostics.autoregressive import autoregressive


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.4])
def test_the_effective_sample_size_of_autoregressive_chains_is_the_known_one(rho: float) -> None:
    """40 independent estimates from 4 chains of 2,000: their mean within 5%, each within a third."""
    values = autoregressive(rho, (4, 2000, 40))
    ratio = effective_sample_size(values) / (8000 * (1 - rho) / (1 + rho))
    assert ratio.mean() == pytest.approx(1.0, abs=0.05)
    assert np.abs(ratio - 1).max() < 1 / 3


def test_it_predicts_how_far_the_mean_is_off() -> None:
    """The variance of 400 means over the variance of a draw is one over the effective number."""
    values = autoregressive(0.8, (3, 300, 400), seed=1)
    assert values.mean(axis=(0, 1)).var() * np.median(effective_sample_size(values)) == pytest.approx(1.0, abs=0.2)


def test_chains_that_are_apart_are_worth_little_however_long() -> None:
    apart = autoregressive(0.0, (4, 1000), seed=2) + 5 * np.arange(4)[:, None]
    assert effective_sample_size(apart) < 10
    assert effective_sample_size(apart[:1]) > 800


def test_values_that_never_move_count_as_they_are() -> None:
    values = np.stack([np.ones((2, 50)), autoregressive(0.5, (2, 50))], axis=-1)
    assert effective_sample_size(values)[0] == 100
    assert np.isfinite(effective_sample_size(values)).all()


def test_the_autocorrelation_time_is_in_steps() -> None:
    assert autocorrelation_time(autoregressive(0.9, (4, 4000)), steps_between=10) == pytest.approx(190, rel=0.2)


@pytest.mark.parametrize("function", [db.teacher.diagnostics.split_rhat, effective_sample_size, autocorrelation_time])
def test_too_few_draws_are_refused(function: Any) -> None:
    with pytest.raises(db.InvalidInput, match=r"at least 4 draws, not shape \(2, 3\)"):
        function(np.zeros((2, 3)))


def test_the_error_of_an_average_is_that_of_averages_of_so_many_draws() -> None:
    """Of 2,000 averages of 50 independent draws; to second order, hence 10%."""
    rng = np.random.default_rng(3)
    probs = rng.dirichlet([4.0, 2.0, 3.0], size=(2000, 50))
    truth, means = np.array([4.0, 2.0, 3.0]) / 9, probs.mean(axis=1)
    divergence = float((truth * np.log(truth / means)).sum(axis=1).mean())
    average = Average(
        jnp.int32(50), {"probs": probs.mean((0, 1))[None]}, {"probs": probs.var((0, 1))[None]}, db.outcomes.Categorical
    )
    assert monte_carlo_divergence(average, 50.0) == pytest.approx(divergence, rel=0.1)

    mean, variance = rng.normal(size=(2000, 50)), rng.gamma(9.0, 0.1, size=(2000, 50))
    p_mean, p_variance = 0.0, 0.9 + 1.0
    q_mean, q_variance = mean.mean(axis=1), variance.mean(axis=1) + mean.var(axis=1)
    ratio = p_variance / q_variance
    divergence = 0.5 * float((ratio - 1 - np.log(ratio) + (p_mean - q_mean) ** 2 / q_variance).mean())
    of_all = {"mean": mean, "variance": variance}
    average = Average(
        jnp.int32(50),
        {name: values.mean()[None, None] for name, values in of_all.items()},
        {name: values.var()[None, None] for name, values in of_all.items()},
        db.outcomes.Normal,
    )
    assert monte_carlo_divergence(average, 50.0) == pytest.approx(divergence, rel=0.1)
