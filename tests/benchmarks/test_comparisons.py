"""The benchmarks that compare samplers and targets: their arithmetic, one tiny run of each, and their figures."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
import laws
from benchmarks import samplers, targets
from benchmarks.figures import FIGURES
from benchmarks.names import NAMES
from darkbayes.cli import main
from darkbayes.report import pivot, write_image

POSTERIOR = db.Posterior(db.mlp([3], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
GRID = jnp.linspace(-3.0, 3.0, 8).reshape(4, 2)


@pytest.fixture(scope="module")
def problem() -> samplers.Problem:
    """Two draws of the data, with random weights for a truth: nothing is to be close to it."""
    data = [db.data.toy2d(jax.random.key(trial)) for trial in range(2)]
    draws = jax.vmap(lambda key: POSTERIOR.init(key, data[0].x))(jax.random.split(jax.random.key(9), 5))
    truth = [db.predict_draws(POSTERIOR, draws, GRID)] * 2
    return samplers.Problem("toy2d", POSTERIOR, data, [GRID] * 2, truth, None, chains=2, steps=5120)


@pytest.fixture(scope="module")
def compared(problem: samplers.Problem) -> list[dict[str, Any]]:
    return samplers._rows_of(problem, "sgld", samplers.contenders(problem)["sgld"], jax.random.key(0))


def test_a_sampler_has_a_curve_with_its_own_step_size_and_with_the_best(compared: list[dict[str, Any]]) -> None:
    auto, tuned = compared
    assert (auto["metric"], tuned["metric"]) == ("kl_toy2d_auto", "kl_toy2d_tuned")
    assert auto["multiple_of_auto"] == 1.0
    assert tuned["multiple_of_auto"] in samplers.MULTIPLES
    assert np.isfinite([divergence for _, divergence in auto["curve"]]).all()
    assert auto["mean"] == pytest.approx(auto["curve"][-1][1])


def test_gradients_are_counted_over_all_chains_tuning_included(compared: list[dict[str, Any]]) -> None:
    auto, tuned = compared
    counts = [at for at, _ in tuned["curve"]]
    assert counts[-1] == 2 * 5120
    np.testing.assert_allclose(np.diff(np.log2(counts)), 1.0)
    tuning = {at - without for (at, _), without in zip(auto["curve"], counts, strict=True)}
    assert len(tuning) == 1
    assert tuning.pop() >= 2 * 1024


def test_chains_on_all_examples_count_their_gradients_as_minibatches(problem: samplers.Problem) -> None:
    """In batches of five, all twenty examples are four minibatches."""
    small = dataclasses.replace(problem, batch_size=5, steps=5120)
    auto, tuned = samplers._rows_of(small, "mclmc", samplers.contenders(small)["mclmc"], jax.random.key(0))
    counts = [at for at, _ in auto["curve"]]
    assert np.isfinite([divergence for _, divergence in auto["curve"]]).all()
    assert counts == sorted(counts)
    # Two a step and one to begin with, in each of two chains: about as many as the minibatches of other samplers.
    assert counts[-1] == 4 * 2 * (2 * 5120 / 8 + 1)
    assert tuned["us_per_gradient"] == auto["us_per_gradient"] > 0


def test_the_gain_is_how_much_sooner_a_sampler_is_as_close_as_sgld_ever_is() -> None:
    def tuned(method: str, *divergences: float) -> dict[str, Any]:
        curve = [[10 * 2**k, divergence] for k, divergence in enumerate(divergences)]
        time = {"us_per_gradient": 8.0 if method == "sghmc" else 1.0}
        return {"method": method, "metric": "kl_boston_tuned", "curve": curve} | time

    gains = samplers._gains(
        [tuned("sgld", 3.0, 2.0, 1.0, 1.5), tuned("sghmc", 1.0, 0.5, 0.2, 0.1), tuned("baoa", 9.0, 9.0, 9.0, 9.0)]
    )
    assert {(row["method"], row["metric"]): row["mean"] for row in gains} == {
        ("sgld", "gain_boston"): 1.0,
        ("sghmc", "gain_boston"): 4.0,
        ("sgld", "gain_boston_time"): 1.0,
        ("sghmc", "gain_boston_time"): 0.5,
    }


def test_inflation_is_in_per_cent_and_baoa_has_none() -> None:
    inflation = {(row["method"], row["metric"]): row["mean"] for row in samplers._bias_rows()}
    assert inflation["sgld", "inflation_1.0"] == pytest.approx(100.0)  # 1 / (1 - 1/2)
    assert inflation["baoa", "inflation_1.0"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("stiffness", samplers.STIFFNESSES)
def test_inflation_is_that_of_the_exact_laws(stiffness: float) -> None:
    friction = samplers.FRICTION
    exact = {
        "sgld": laws.sgld(2 * stiffness, np.eye(1)),
        "sghmc": laws.sghmc(2 * stiffness, np.eye(1), friction=friction),
        "baoa": laws.baoa(2 * stiffness, np.eye(1), friction=friction),
    }
    rows = [row for row in samplers._bias_rows() if row["metric"] == f"inflation_{stiffness}"]
    assert {row["method"]: row["mean"] for row in rows} == pytest.approx(
        {name: 100 * (laws.stationary(law)[0, 0] - 1) for name, law in exact.items()}, abs=1e-5
    )


def test_every_sampler_has_a_name_for_people(problem: samplers.Problem) -> None:
    rows = [{"method": name, "metric": "kl_toy2d_auto", "mean": 0.1} for name in samplers.contenders(problem)]
    labels = [line[0] for line in pivot({"rows": rows}, names=NAMES)[0].rows]
    assert all(label != row["method"] for label, row in zip(labels, rows, strict=True))


def test_targets_are_averaged_at_equal_gradients() -> None:
    for settings in targets.KINDS.values():
        assert settings.num_chains * settings.update_every == targets.MOST_CHAINS
    drawn = {n: s.num_chains * (1 + bool(s.reservoir) * s.reservoir_picks) for n, s in targets.KINDS.items()}
    assert drawn == {number: number for number in targets.KINDS}


def test_the_figures_are_drawn_from_the_rows_alone(compared: list[dict[str, Any]], tmp_path: Path) -> None:
    write_image(FIGURES["samplers"](compared), tmp_path / "samplers.png")
    rows = [
        {"method": f"{draws} draws", "metric": metric, "mean": 0.1 / draws, "se": 0.001, "draws": draws}
        for metric in ("kl_student", "kl_teacher")
        for draws in (1, 4, 16)
    ]
    write_image(FIGURES["targets"](rows), tmp_path / "targets.svg")
    assert (tmp_path / "samplers.png").stat().st_size > 10_000
    assert (tmp_path / "targets.svg").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["engine", "--figure", "a.png"], "--figure a.png does not apply to engine: leave it out"),
        (["targets", "--figure", "a.gif"], "--figure a.gif must end in .png, .svg or .pdf"),
    ],
)
def test_a_figure_that_cannot_be_is_refused_at_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["bench", *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
