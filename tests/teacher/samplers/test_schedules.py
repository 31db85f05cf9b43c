"""Step sizes and temperatures that change with the step count."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db

pytestmark = pytest.mark.usefixtures("strict")


def test_the_stepped_schedule_halves_where_the_paper_halves() -> None:
    schedule = db.schedules.stepped(1e-5, factor=0.5, every=80_000)
    steps, expected = [0, 79_999, 80_000, 159_999, 160_000, 400_000], [1, 1, 1 / 2, 1 / 2, 1 / 4, 1 / 32]
    np.testing.assert_allclose([float(schedule(t)) for t in steps], 1e-5 * np.array(expected), rtol=1e-6)


def test_the_polynomial_schedule_is_that_of_welling_and_teh() -> None:
    steps = np.array([0, 1, 10, 12_345, 10**7])
    values = [float(db.schedules.polynomial(0.3, offset=2.5, power=0.55)(jnp.int32(t))) for t in steps]
    np.testing.assert_allclose(values, 0.3 * (2.5 + steps) ** -0.55, rtol=1e-5)


@pytest.mark.parametrize(
    "schedule", [db.schedules.stepped(0.1, 0.5, 2), db.schedules.polynomial(0.1)], ids=["stepped", "polynomial"]
)
def test_schedules_work_on_traced_counts(schedule: optax.Schedule) -> None:
    counts = jnp.arange(5, dtype=jnp.int32)
    traced = jax.vmap(schedule)(counts)
    np.testing.assert_allclose(traced, [float(schedule(int(t))) for t in counts], rtol=1e-6)


def test_the_cyclical_schedule_is_that_of_zhang_and_others() -> None:
    """alpha_0/2 [cos(pi mod(k - 1, C) / C) + 1] for k = 1, 2, ...; noise from the share `explore` on."""
    step_size, temperature = db.schedules.cyclical(0.3, cycle=7, explore=0.5, temperature=0.25)
    counts = jnp.arange(30, dtype=jnp.int32)
    shares = (np.arange(30) % 7) / 7
    np.testing.assert_allclose(jax.vmap(step_size)(counts), 0.15 * (np.cos(np.pi * shares) + 1), rtol=1e-5)
    np.testing.assert_array_equal(jax.vmap(temperature)(counts), np.where(shares < 0.5, 0.0, 0.25))
    always = db.schedules.cyclical(0.3, cycle=7, explore=0.0).temperature
    np.testing.assert_array_equal(jax.vmap(always)(counts), 1.0)
