"""A teacher that tunes itself finds what theory says, on a posterior where theory says it exactly.

All is measured on one linear regression, so that each sampler compiles once and the rest runs in milliseconds.
"""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
import laws
from darkbayes import runs
from darkbayes.teacher import exploration
from darkbayes.teacher import tuning as tuning_module
from darkbayes.teacher.tuning import HEATING, with_choices
from teacher.samplers.cases import SAMPLERS

CHAINS = 16


def tuned(chain: Any, seed: int = 0, **settings: Any) -> db.teacher.Choices:
    return db.tune(chain, jax.random.key(seed), num_chains=CHAINS, **settings)[1]


@pytest.fixture(scope="module")
def sampler() -> db.samplers.AutoStep:
    return db.sgld("auto")


@pytest.fixture(scope="module")
def chain(conjugate: Any, sampler: db.samplers.AutoStep) -> Any:
    """SGLD with all data."""
    return db.minibatch_chain(conjugate.posterior, sampler, *conjugate.data, batch_size=None)


@pytest.fixture(scope="module")
def choices(chain: Any) -> db.teacher.Choices:
    return tuned(chain)


def longest_step(conjugate: Any, inflation: float = 0.5) -> float:
    """eta = 2 s / the largest eigenvalue of H, where 1 / (1 - s/2) = 1 + inflation."""
    return 2 * (2 * inflation / (1 + inflation)) * float(np.linalg.eigvalsh(conjugate.covariance).min())


# The border: step_size="auto"


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_may_wait_for_its_step_size_and_says_so(name: str) -> None:
    waiting = SAMPLERS[name].make("auto")
    assert isinstance(waiting, db.samplers.AutoStep)
    assert not waiting.tuned
    with pytest.raises(db.InvalidInput, match=r"has not been found yet: chain, choices = db\.tune\(chain, key\)"):
        waiting.init(jnp.zeros(2))
    with pytest.raises(db.InvalidInput, match="step_size must be a positive number, a schedule or 'auto', not 'fast'"):
        SAMPLERS[name].make("fast")
    with pytest.raises(db.InvalidInput, match="temperature"):
        SAMPLERS[name].make("auto", -1.0)


def test_a_sampler_that_has_got_its_step_size_is_that_sampler_after_a_ramp() -> None:
    grads, key = jnp.ones(3), jax.random.key(0)
    waiting = dataclasses.replace(db.sgld("auto"), step_size=jnp.float32(0.04), ramp=3)
    state = waiting.init(grads)
    for eta in (0.01, 0.02, 0.03, 0.04, 0.04):
        expected, _ = db.sgld(eta).update(grads, db.sgld(eta).init(grads), key=key)
        updates, state = waiting.update(grads, state, key=key)
        np.testing.assert_allclose(updates, expected, rtol=1e-5)


def test_what_cannot_be_tuned_is_refused(conjugate: Any, chain: Any) -> None:
    given = dataclasses.replace(chain, transformation=db.sgld(0.1))
    with pytest.raises(db.InvalidInput, match=r'tune needs a sampler that waits .* use step_size="auto"'):
        db.tune(given, jax.random.key(0))
    with pytest.raises(db.InvalidInput, match="has not been found yet"):
        db.sample(chain, jax.random.key(0), num_chains=1, num_draws=1)
    with pytest.raises(db.InvalidInput, match="needs at least one run"):
        db.teacher.tune_all([], jax.random.key(0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 10, "seconds": 1.0}, "only one of steps, seconds and effective may be given"),
        ({"seconds": 1.0, "effective": 10}, "only one of steps, seconds and effective may be given"),
        ({"inflation": 0.0}, r"inflation must be a positive number, not 0\.0"),
        ({"heating": -1.0}, r"heating must be a positive number, not -1\.0"),
        ({"seconds": 0.0}, r"seconds must be a positive number, not 0\.0"),
        ({"num_chains": 0}, "num_chains must be a whole number of at least 1, not 0"),
        ({"thin_by": 1.5}, r"thin_by must be a whole number of at least 1, not 1\.5"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str, chain: Any) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.tune(chain, jax.random.key(0), **settings)


# Step sizes


@pytest.mark.parametrize("inflation", [0.5, 0.1])
def test_with_all_data_the_step_is_the_longest_that_inflates_no_more_than_asked(
    inflation: float, chain: Any, conjugate: Any
) -> None:
    """And it does inflate the variance of the stiffest direction by just that."""
    choices = tuned(chain, inflation=inflation)
    assert choices.step_size == pytest.approx(longest_step(conjugate, inflation), rel=0.02)
    assert choices.heating == 0.0
    precision = np.linalg.inv(conjugate.covariance)
    covariance = laws.stationary(laws.sgld(choices.step_size, precision))
    stiffest = np.linalg.eigh(precision)[1][:, -1]
    assert stiffest @ covariance @ stiffest / (stiffest @ conjugate.covariance @ stiffest) == pytest.approx(
        1 + inflation, rel=0.02
    )
    assert 1 / (1 - choices.stiffness / 2) == pytest.approx(1 + inflation, rel=0.02)


def test_with_minibatches_the_step_is_that_at_which_they_heat_as_much_as_allowed(
    conjugate: Any, batch_noise: Any, sampler: db.samplers.AutoStep
) -> None:
    """The exact share is eta/4 times C along the stiffest direction; C depends on the draws and these on eta.

    Eight tunings measure it from few minibatches each, to a fifth or so; their mean is to be right within a tenth.
    """
    precision = np.linalg.inv(conjugate.covariance)

    def heating(step_size: float) -> float:
        spread = conjugate.covariance
        for _ in range(100):
            spread = laws.stationary(laws.sgld(step_size, precision, batch_noise(2, spread)))
        stiffest = np.linalg.eigh(precision)[1][:, -1]
        return step_size / 4 * float(stiffest @ batch_noise(2, spread) @ stiffest)

    plain = db.teacher.gradients.minibatch_gradients()
    chain = db.minibatch_chain(conjugate.posterior, sampler, *conjugate.data, batch_size=2, gradients=plain)
    choices = [tuned(chain, seed) for seed in range(8)]
    shares = [heating(chosen.step_size) for chosen in choices]
    assert np.mean(shares) == pytest.approx(HEATING, rel=0.1)
    assert max(shares) < 1.5 * HEATING
    assert all(chosen.heating <= 1.001 * HEATING and chosen.step_size < longest_step(conjugate) for chosen in choices)
    hasty = tuned(chain, max_burn_in=1)
    assert hasty.burn_in == exploration.FIRST_PHASE
    assert not hasty.settled
    assert "which was not enough for all to settle (standardise the inputs, or" in hasty.explain()


def test_a_sampler_without_units_has_the_same_step_size_in_every_unit(linear: db.Network) -> None:
    """Inputs times 1,000, side by side with the inputs themselves: what the runs share is their length alone.

    Chains start at weights in the unit of the inputs, as they would with standardised ones.
    """
    in_units = db.Network(lambda key, x: linear.init(key, x) / jnp.std(x), linear.apply)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x @ [[1.0], [-0.5]] + rng.normal(size=(60, 1))
    posterior = db.Posterior(in_units, db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(1e-3), num_data=60)
    waiting = db.samplers.fisher_sgld("auto", prior_precision=1e-3, batch_share=None)
    chains = [db.minibatch_chain(posterior, waiting, x * unit, y, batch_size=None) for unit in (1.0, 1e3)]
    made, (plain, large) = db.teacher.tune_all(chains, jax.random.key(0), num_chains=CHAINS, thin_by=3)
    assert large.step_size == pytest.approx(plain.step_size, rel=0.15)
    assert large.step_size != plain.step_size
    for name in ("burn_in", "thin", "steps"):
        assert getattr(plain, name) == getattr(large, name)
    assert plain.thin % 3 == 0
    assert (plain.steps - plain.burn_in) % plain.thin == 0
    for chain, chosen in zip(made, (plain, large), strict=True):
        assert isinstance(chain.transformation, db.samplers.AutoStep)
        assert float(chain.transformation.step_size) == pytest.approx(chosen.step_size)
        assert (chain.burn_in, chain.thin) == (chosen.burn_in, chosen.thin)


# Lengths


@pytest.fixture
def one_second_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second whenever it is looked at, so that every phase takes one."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            now += 1.0
            yield now

    clock = ticks()
    monkeypatch.setattr(tuning_module.time, "perf_counter", lambda: next(clock))


def test_the_length_is_as_asked_for(chain: Any, choices: db.teacher.Choices, one_second_a_look: None) -> None:
    thin, burn_in = choices.thin, choices.burn_in
    by_steps = tuned(chain, steps=5000)
    assert 5000 <= by_steps.steps < 5000 + thin
    assert by_steps.reason == "as asked for"
    with pytest.raises(db.InvalidInput, match=f"steps must be a whole number of at least {burn_in + 1}, not 100"):
        tuned(chain, steps=100)
    by_time = tuned(chain, seconds=40.0)  # The last phase, as long as burn-in, has taken one second.
    assert by_time.burn_in == exploration.FIRST_PHASE
    assert 40 * burn_in <= by_time.steps < 40 * burn_in + thin
    assert by_time.reason == "as many as 40 seconds allow"
    assert (by_time.hurried, by_steps.hurried) == (True, False)
    assert tuned(chain, seconds=1e-3).steps >= burn_in + tuning_module.LEAST_STEPS
    many = tuned(chain, effective=50_000)
    needed = math.ceil(50_000 * many.autocorrelation / CHAINS)
    assert needed <= many.steps - burn_in < needed + thin
    assert many.reason == "for 50,000 effective predictions"


def test_by_default_the_length_keeps_within_bounds(
    chain: Any, choices: db.teacher.Choices, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choices.steps - choices.burn_in == pytest.approx(tuning_module.LEAST_STEPS, abs=choices.thin)
    assert choices.reason == "the fewest that teach a student for 1,000 effective predictions"
    monkeypatch.setattr(tuning_module, "LEAST_STEPS", 10)
    monkeypatch.setattr(tuning_module, "MOST_STEPS", 100)
    short = tuned(chain)
    assert short.steps - short.burn_in == pytest.approx(100, abs=short.thin)
    assert short.reason.startswith("the most by default, not the ")


def test_it_is_measured_how_soon_predictions_forget(chain: Any, conjugate: Any) -> None:
    """A direction that keeps r of itself in a step has the autocorrelation time (1 + r) / (1 - r).

    A prediction mixes the two directions, and its time is the mean of theirs by their share of its variance.
    """
    choices = tuned(chain, inflation=0.05)
    precision = np.linalg.inv(conjugate.covariance)
    stiffness, directions = np.linalg.eigh(precision)
    kept = 1 - choices.step_size / 2 * stiffness
    variances = 1 / (stiffness * (1 - choices.step_size / 4 * stiffness))
    parts = (np.asarray(conjugate.data.x, np.float64) @ directions) ** 2 * variances
    times = parts @ ((1 + kept) / (1 - kept)) / parts.sum(axis=1)
    assert choices.autocorrelation == pytest.approx(np.quantile(times, 0.9), rel=0.2)
    assert choices.thin == round(choices.autocorrelation / 10)
    assert choices.burn_in > 10 * choices.autocorrelation
    assert choices.rhat < 1.05
    assert choices.settled


# Again, and after a fall


def test_the_same_key_makes_the_same_choices(chain: Any, choices: db.teacher.Choices) -> None:
    assert tuned(chain) == choices
    assert tuned(chain, seed=1) != choices


def test_keptrestore_the_chain(chain: Any, choices: db.teacher.Choices, trees_equal: Any) -> None:
    made, again = db.tune(chain, jax.random.key(0), num_chains=CHAINS)
    assert again == choices
    stored = db.teacher.Choices(**json.loads(json.dumps(dataclasses.asdict(choices))))
    restored = with_choices(chain, stored)
    assert jax.tree.structure(restored) == jax.tree.structure(made)
    assert trees_equal(restored.transformation.step_size, made.transformation.step_size)
    assert restored.transformation.settings == made.transformation.settings
    assert (restored.burn_in, restored.thin) == (choices.burn_in, choices.thin)
    assert restored.transformation.ramp == choices.burn_in // 10


def test_a_run_keeps_what_was_chosen(
    chain: Any, choices: db.teacher.Choices, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.Run(tmp_path / "run", {}, quiet=True)
    _, kept = run.tune("teacher", [chain], jax.random.key(0), num_chains=CHAINS)
    (stored,) = json.loads((run.path / "teacher" / "choices.json").read_text())
    assert kept == [choices]
    assert stored == dataclasses.asdict(choices) | {"explanation": choices.explain()}

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("tuned again")

    monkeypatch.setattr(runs, "tune_all", fail)
    (restored,), again = run.tune("teacher", [chain], jax.random.key(0), num_chains=CHAINS)
    assert again == kept
    assert restored.transformation.tuned
    results = run.finish("toy2d", "auto", [], 0)
    assert results["choices"] == {"teacher": [stored]}


def test_chains_that_leave_the_finite_numbers_begin_again_with_smaller_steps(
    chain: Any, conjugate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a start that looks a million times softer than what comes after it."""
    real = exploration._phase

    def deceived(chains: Any, states: Any, steps: Any, *rest: Any) -> Any:
        after, seen = real(chains, states, steps, *rest)
        return after, seen if steps else dataclasses.replace(seen, stiffness=1e-6 * seen.stiffness)

    monkeypatch.setattr(exploration, "_phase", deceived)
    assert tuned(chain).step_size == pytest.approx(longest_step(conjugate), rel=0.02)


def test_where_no_step_size_is_small_enough_the_error_says_what_to_do(
    conjugate: Any, sampler: db.samplers.AutoStep
) -> None:
    x, y = conjugate.data
    chain = db.minibatch_chain(conjugate.posterior, sampler, 1e25 * x, y, batch_size=None)
    with pytest.raises(db.Divergence, match=r"no step size was found .* standardise the inputs and targets"):
        tuned(chain)


# Words


def test_keptexplain_themselves(choices: db.teacher.Choices) -> None:
    explained = dataclasses.replace(choices, step_size=0.0661, autocorrelation=18.6, thin=2, steps=11024)
    assert explained.explain() == (
        "step size 0.0661: discretisation inflates the variance along the stiffest direction by 50%, minibatches add "
        "0% there; burn-in 1,024 steps, after which the log posterior no longer rose; predictions forget where "
        "they were within 19 steps, so one draw in 2 is kept; 11,024 steps in all, the fewest that teach a student for "
        "1,000 effective predictions"
    )
    assert "by inf%" in dataclasses.replace(choices, stiffness=2.5).explain()


def test_anything_that_scales_with_one_number_can_be_tuned(chain: Any, conjugate: Any) -> None:
    """Such as a sampler behind a clip that never acts."""
    clipped = db.samplers.AutoStep(lambda eta: optax.chain(optax.clip_by_global_norm(1e6), db.sgld(eta)))
    choices = tuned(dataclasses.replace(chain, transformation=clipped))
    assert choices.step_size == pytest.approx(longest_step(conjugate), rel=0.02)
