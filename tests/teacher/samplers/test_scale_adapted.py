"""SGHMC with scales learned during burn-in."""

import numpy as np
import pytest

import darkbayes as db
from teacher.samplers.cases import GRADIENTS, path

pytestmark = pytest.mark.usefixtures("strict")


@pytest.mark.parametrize("noisy", [True, False])
def test_scale_adapted_sghmc_is_what_its_docstring_says_and_freezes(noisy: bool) -> None:
    """The velocity is scaled along with P while that is learned."""
    eta, alpha = 0.05, 0.3
    sampler = db.samplers.scale_adapted_sghmc(
        eta, friction=alpha, adapt_steps=8, noisy_gradients=noisy, temperature=0.5
    )
    updates, noises, states = path(sampler, GRADIENTS)
    tau, mean, squares, momentum = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3)
    for t, (g, xi) in enumerate(zip(GRADIENTS, noises, strict=True)):
        if t < 8:
            share = 1 / (tau + 1)
            mean, squares = mean + share * (g - mean), squares + share * (g**2 - squares)
            tau = tau * (1 - mean**2 / squares) + 1
        scale = 1 / np.sqrt(squares)
        before = np.sqrt(eta / 2 * scale) * momentum
        variance = eta * alpha * 0.5 * scale - noisy * eta**2 / 4
        v = (1 - alpha) * before - eta / 2 * scale * g + np.sqrt(np.maximum(variance, 0.0)) * xi
        momentum = v / np.sqrt(eta / 2 * scale)
        np.testing.assert_allclose(updates[t], v, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(states.squares[t], squares, rtol=1e-4)
