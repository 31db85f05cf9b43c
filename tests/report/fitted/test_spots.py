"""Where a model does well and where it does not, in numbers."""

import math

import numpy as np
import pytest

from darkbayes.outcomes.words.base import Losses
from darkbayes.report.fitted.spots import rank_correlation, risks
from report.fitted.folders import DECISION, PRICE


def test_risk_grows_over_the_rows_from_the_surest_to_the_least_sure():
    off = np.array([4.0, 1.0, 2.0, 3.0])
    shares, risk = risks(PRICE.words(), Losses("", "", "", off, off))
    assert shares.tolist() == [1.0]  # Fewer rows than the curve begins with.
    assert risk == pytest.approx([math.sqrt(30 / 4)])
    shares, risk = risks(PRICE.words(), Losses("", "", "", np.arange(12.0), np.arange(12.0)))
    assert shares == pytest.approx([10 / 12, 11 / 12, 1])
    assert risk == pytest.approx([math.sqrt(np.mean(np.arange(count) ** 2)) for count in (10, 11, 12)])
    wrong = np.array([0.0] * 10 + [1.0, 1.0])
    assert risks(DECISION.words(), Losses("", "", "", wrong, np.arange(12.0)))[1] == pytest.approx(
        [0, 100 / 11, 200 / 12]
    )


def test_equal_values_share_their_rank():
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([3.0, 3.0, 5.0])) == 1.0
    assert math.isnan(rank_correlation(np.ones(3), np.arange(3.0)))
