"""The one line that says whether chains agree."""

import re

import numpy as np
import pytest

import darkbayes as db
from darkbayes.teacher.diagnostics.convergence import agreement, autocorrelation_time, effective_sample_size
from teacher.diagnostics.autoregressive import autoregressive


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        (autoregressive(0.3, (4, 200, 8)), "agree", r"the chains agree \(R-hat 1\.0\d, 4\d\d effective predictions\)"),
        (autoregressive(0.9, (4, 99)) + np.arange(4)[:, None], "apart", r"not met \(R-hat 1\.\d\d\): run longer"),
        (autoregressive(0.0, (4, 10, 8)), "few", r"on only \d\d effective predictions: run longer or use more chains"),
        (autoregressive(0.0, (1, 200, 8)), "one_chain", r"agreement cannot be judged, use num_chains >= 2$"),
        (np.linspace(0, 1, 100)[None], "one_chain", r"its own halves differ \(R-hat \d\.\d\d\)"),
        (np.zeros((4, 3, 8)), "short", "3 draws of each chain: too few"),
        (np.repeat([[0.0], [1.0]], 10, axis=1), "apart", "R-hat inf"),
    ],
    ids=["agree", "apart", "few", "one chain", "one that drifts", "short", "stuck"],
)  # fmt: skip
def test_the_verdict_says_what_is_and_what_to_do(values: np.ndarray, code: str, words: str) -> None:
    verdict = agreement(values).verdict
    assert verdict.code == code
    assert re.search(words, verdict.text), verdict.text
    assert "\n" not in verdict.text


def test_agreement_tells_the_worst_and_the_median_input() -> None:
    values = autoregressive(0.5, (4, 200, 9))
    values[0, :, 4] += 3.0
    found = agreement(values, steps_between=7)
    assert found.rhat == db.diagnostics.split_rhat(values).max() == db.diagnostics.split_rhat(values)[4]
    assert found.effective_worst == effective_sample_size(values)[4] < found.effective
    assert found.autocorrelation_steps == np.median(autocorrelation_time(values, 7))
