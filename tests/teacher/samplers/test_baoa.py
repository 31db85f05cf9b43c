"""Underdamped Langevin dynamics by a splitting."""

import numpy as np
import pytest

import darkbayes as db
from teacher.samplers.cases import GRADIENTS, path

pytestmark = pytest.mark.usefixtures("strict")


def test_baoa_is_what_its_docstring_says() -> None:
    updates, noises, _ = path(db.samplers.baoa(0.08, friction=0.3, temperature=0.5), GRADIENTS)
    h = np.sqrt(0.04)
    decay = np.exp(-(-np.log(0.7) / h) * h)  # exp(-gamma h)
    m = np.zeros(3)
    for g, xi, update in zip(GRADIENTS, noises, updates, strict=True):
        kicked = m - h * g
        m = decay * kicked + np.sqrt(0.5 * (1 - decay**2)) * xi
        np.testing.assert_allclose(update, h / 2 * kicked + h / 2 * m, rtol=1e-4, atol=1e-6)


def test_at_friction_one_baoa_averages_the_noise_of_two_steps() -> None:
    """Leimkuhler and Matthews (2013): theta + D g + sqrt(2 D) (xi + xi') / 2, with D = eta / 4."""
    updates, noises, _ = path(db.samplers.baoa(0.08, friction=1.0), GRADIENTS)
    expected = -0.02 * GRADIENTS[1:] + np.sqrt(0.04) * (noises[1:] + noises[:-1]) / 2
    np.testing.assert_allclose(updates[1:], expected, rtol=1e-4, atol=1e-6)
