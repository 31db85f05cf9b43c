"""A linear network and a likelihood that has a parameter and a prior of its own: not quadratic, and soon compiled."""

from typing import Any

import jax
import numpy as np
import pytest

import darkbayes as db


@pytest.fixture(scope="module")
def data() -> db.Data:
    rng = np.random.default_rng(0)
    return db.data.as_data(rng.normal(size=(7, 2)), rng.normal(size=(7, 1)))


@pytest.fixture(scope="module")
def posterior(linear: db.Network) -> db.Posterior:
    return db.Posterior(linear, db.outcomes.GaussianSampledNoise(), db.priors.GaussianPrior(2.0), num_data=7)


@pytest.fixture(scope="module")
def draws(posterior: db.Posterior, data: db.Data) -> list[db.model.Draw]:
    return [posterior.init(key, data.x) for key in jax.random.split(jax.random.key(1))]


@pytest.fixture(scope="module")
def exact(posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]) -> Any:
    return jax.value_and_grad(lambda draw: -posterior.log_density(draw, data))(draws[0])
