"""The Nose-Hoover thermostat."""

import numpy as np
import pytest

import darkbayes as db
from teacher.samplers.cases import GRADIENTS, path

pytestmark = pytest.mark.usefixtures("strict")


def test_sgnht_is_what_its_docstring_says() -> None:
    updates, noises, states = path(db.samplers.sgnht(0.4, friction=0.3, temperature=0.5), GRADIENTS[:4])
    v, zeta = np.zeros(3), 0.3
    for t, (g, xi) in enumerate(zip(GRADIENTS[:4], noises, strict=True)):
        v = (1 - zeta) * v - 0.2 * g + np.sqrt(0.4 * 0.3 * 0.5) * xi
        zeta = zeta + v @ v / 3 - 0.4 * 0.5 / (2 - min(zeta, 1.0))
        np.testing.assert_allclose(updates[t], v, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(states.friction[t], zeta, rtol=1e-4)
