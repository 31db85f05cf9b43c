"""The one line that says whether chains agree."""

import re

import numpy as np
import pytest
from scipy.stats import norm

import darkbayes as db
from darkbayes.teacher.diagnostics.convergence import agreement, autocorrelation_time, effective_sample_size
from teacher.diagnostics.autoregressive import autoregressive


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        (autoregressive(0.3, (8, 400, 8)), "agree", r"8 chains is known to [2-4]% of the spread at the median input"),
        (autoregressive(0.9, (4, 99)) + np.arange(4)[:, None], "apart", r"met \(R-hat 1\.\d\d\), .* about \d+ chains"),
        (autoregressive(0.0, (8, 25, 8)), "few", r"known to \d% of the spread only \(.*\): run \d\.\d times"),
        (autoregressive(0.0, (1, 200, 8)), "one_chain", r"agreement cannot be judged, use num_chains >= 2$"),
        (np.linspace(0, 1, 100)[None], "one_chain", r"its own halves differ \(R-hat \d\.\d\d\)"),
        (np.zeros((4, 3, 8)), "short", "3 draws of each chain: too few"),
        (np.repeat([[0.0], [1.0]], 10, axis=1), "apart", "R-hat inf"),
        (np.where(np.arange(8) == 3, np.nan, autoregressive(0.3, (8, 400, 8))), "apart", "not finite"),
    ],
    ids=["agree", "apart", "few", "one chain", "one that drifts", "short", "stuck", "not a number"],
)  # fmt: skip
def test_the_verdict_says_what_is_and_what_to_do(values: np.ndarray, code: str, words: str) -> None:
    verdict = agreement(values).verdict
    assert verdict.code == code
    assert re.search(words, verdict.text), verdict.text
    assert "\n" not in verdict.text


def test_agreement_tells_the_worst_and_the_median_input() -> None:
    values = autoregressive(0.5, (4, 200, 9))
    values[0, :, 4] += 3.0
    actual = agreement(values, steps_between=7)
    assert actual.rhat == db.teacher.diagnostics.rank_rhat(values).max() == db.teacher.diagnostics.rank_rhat(values)[4]
    errors = db.teacher.diagnostics.monte_carlo_error(values) / values.std(axis=(0, 1))
    assert actual.error == np.median(errors) < np.quantile(errors, 0.95) == actual.error_large
    assert actual.effective_worst == effective_sample_size(values)[4] < actual.effective
    assert actual.autocorrelation_steps == np.median(autocorrelation_time(values, 7))


def test_the_error_of_an_average_over_separate_modes_is_what_other_chains_would_change() -> None:
    """Of chains that each stay in one of two modes: the spread of 400 averages over 16 chains, told by them to 10%."""
    rng = np.random.default_rng(5)
    modes = np.where(rng.random((400, 16)) < 0.3, 4.0, -1.0)
    values = modes.T[:, None, :] + autoregressive(0.5, (16, 100, 400), seed=6)
    errors = db.teacher.diagnostics.monte_carlo_error(values)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(values.mean(axis=(0, 1)).std(), rel=0.1)


def test_as_many_chains_as_the_verdict_names_bring_the_error_down_to_what_is_wanted() -> None:
    """Chains that never meet: the remedy is taken at its word."""
    rng = np.random.default_rng(7)

    def chains(number: int) -> np.ndarray:
        return rng.normal(size=(number, 1, 200)) + 0.1 * rng.normal(size=(number, 50, 200))

    rough = agreement(chains(16), spread=np.full(200, 3.0)).verdict
    assert rough.code == "apart"
    needed = int(re.search(r"about ([\d,]+) chains", rough.text)[1].replace(",", ""))  # pyright: ignore[reportOptionalSubscript]
    assert 30 < needed < 120
    assert agreement(chains(round(1.2 * needed)), spread=np.full(200, 3.0)).verdict.code == "agree"


def test_rank_normalised_rhat_is_that_of_vehtari_and_others() -> None:
    """Written out from the paper's definition, on chains with heavy tails of which one is wider."""
    values = np.random.default_rng(8).standard_cauchy(size=(4, 50)) * np.array([1.0, 1.0, 1.0, 4.0])[:, None]

    def scores(x: np.ndarray) -> np.ndarray:
        ranks = np.array([(x < one).sum() + 1 for one in x.ravel()], float).reshape(x.shape)
        return norm.ppf((ranks - 3 / 8) / (x.size + 1 / 4))

    wanted = max(
        float(db.teacher.diagnostics.split_rhat(scores(part))) for part in (values, abs(values - np.median(values)))
    )
    assert db.teacher.diagnostics.rank_rhat(values) == pytest.approx(wanted, rel=1e-9)
