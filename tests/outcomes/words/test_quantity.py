"""What is said of numbers, of several numbers, and of any other quantity."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from darkbayes.estimates import Estimate
from darkbayes.metrics import scores
from darkbayes.outcomes import NumberPrediction, NumberTarget, SeveralTarget
from darkbayes.outcomes.guarantee import Guarantee
from darkbayes.outcomes.words.base import HeldOut, Judged
from darkbayes.outcomes.words.quantity import QuantityWords, SeveralWords, interval_promise

ROWS = 100


def gaussian(mean: Any, noise: Any = 1.0, doubt: float = 0.0) -> NumberPrediction:
    """Gaussians with given parts of their standard deviation."""
    mean = np.asarray(mean, np.float64).reshape(len(mean), -1)
    variance = np.full_like(mean, noise**2 + doubt**2)
    return NumberPrediction.standard(
        np.zeros((1, *mean.shape)), mean[None], variance[None], np.full_like(mean, noise**2)
    )


def held(y: np.ndarray, prediction: Any, coverage: float = 0.9) -> HeldOut:
    """The same prediction by all methods."""
    judged = Judged(prediction, prediction.log_prob(y), prediction.position(y))
    own = {"student": {"coverage_90": Estimate(coverage, 0.03)}}
    return HeldOut(y, dict.fromkeys(("student", "sgld", "sgd"), judged), own, "rows")


def words(name: str = "visits", guarantee: Guarantee | None = None) -> QuantityWords:
    """Those of a target that has no more than every quantity has."""
    return QuantityWords(SimpleNamespace(name=name, low=0.0, high=20.0, logarithmic=False, guarantee=guarantee))


def test_noise_and_doubt_are_shares_of_the_variance():
    assert words().noise_share(gaussian(np.zeros(4), noise=3.0, doubt=4.0)) == pytest.approx(9 / 25)


@pytest.mark.parametrize(
    ("position", "verdict"),
    [(np.linspace(0.005, 0.995, 100), "kept"), (np.full(100, 0.5), "timid"), (np.tile([0.01, 0.5], 50), "bold")],
)
def test_intervals_are_judged_by_what_chance_would_bring(position, verdict):
    assert interval_promise(position).verdict == verdict


def test_own_intervals_that_are_too_narrow_are_a_caution_unless_what_people_get_is_calibrated():
    said = held(np.linspace(-5, 5, ROWS), gaussian(np.zeros(ROWS)), coverage=0.33)
    assert words().broken(said) == "Its intervals of visits are too narrow: those that promise 90% hold 32%."
    assert words().tiles(said)[1] == ("33%", "of the true values lie in the intervals that promise 90%")
    calibrated = words(guarantee=Guarantee(0.95, ROWS, (5.0,)))
    assert calibrated.broken(said) == ""
    before = "before they were calibrated, those that promise 90% held 33%"
    assert calibrated.tiles(said)[1] == ("95%", f"of new cases at least lie in the guaranteed intervals; {before}")
    assert calibrated.trusted(said).startswith("Before they were calibrated, its 90% intervals")


def test_answers_are_compared_with_always_giving_the_median():
    y = np.arange(ROWS) / 10
    assert "Always answering 4.95, the median, would be off by less than 2.5 half of the time" in words().how_good(
        held(y, gaussian(y + 0.5))
    )
    assert "the model is of no use yet" in words().how_good(held(y, gaussian(y + 5)))


def test_intervals_of_whole_numbers_may_hold_more_than_they_promise():
    y = np.random.default_rng(0).normal(size=ROWS)
    said = held(y, gaussian(np.zeros(ROWS)), coverage=0.99)
    assert interval_promise(said.methods["student"].position).verdict == "kept"
    assert "in 99 of 100 rows, 99.0 ± 3.0%" in words().trusted(said)
    assert "of whole numbers a little more, so they can be trusted" in words().trusted(said)


def test_a_picture_of_predictions_shows_the_interval_that_is_promised():
    y = np.linspace(0, 10, ROWS)
    picture: Any = words().trust(held(y, gaussian(y)))[1]
    low, high = picture.whiskers["interval holds the true value"]
    np.testing.assert_allclose(high - low, 2 * 1.6448536)
    assert picture.limits == (-3.0, 23.0)


def test_of_many_rows_some_are_drawn_and_that_is_said():
    y = np.zeros(1000)
    picture: Any = words().trust(held(y, gaussian(y)))[1]
    assert len(picture.points["interval holds the true value"][0]) == 300
    assert "(300 of 1,000, at random)" in picture.caption


def test_uncertainties_of_several_that_were_not_kept_for_each_are_unknown():
    both = SeveralWords([words("a"), words("b")])
    course = {"values": [0.0, 1.0], "aim": [[1.0, 2.0], [3.0, 4.0]], "aleatoric": [1.0, 1.0], "epistemic": [1.0, 4.0]}
    assert all(np.isnan(own["epistemic"]).all() for _, own in both.courses(course))
    each = course | {"epistemic": [[1.0, 4.0], [9.0, 16.0]]}
    said = [(part.name, part.sizes(own["epistemic"]).tolist()) for part, own in both.courses(each)]
    assert said == [("a", [1.0, 3.0]), ("b", [2.0, 4.0])]


def test_risk_grows_over_the_rows_from_the_surest_to_the_least_sure():
    off = np.array([4.0, 1.0, 2.0, 3.0])
    shares, risk = words().risks(gaussian(off), np.zeros(4))
    assert shares.tolist() == [100.0]  # Fewer rows than the curve begins with.
    assert risk == pytest.approx([np.sqrt(30 / 4)])
    shares, risk = words().risks(gaussian(np.arange(12.0), noise=np.arange(1.0, 13.0)[:, None]), np.zeros(12))
    assert shares == pytest.approx([1000 / 12, 1100 / 12, 100])
    assert risk == pytest.approx([np.sqrt(np.mean(np.arange(count) ** 2)) for count in (10, 11, 12)])
    _, risk = words().risks(gaussian(np.arange(12.0)), np.zeros(12))
    assert risk == pytest.approx(np.full(3, np.sqrt(np.mean(np.arange(12) ** 2))))  # It is as sure of all.


def test_each_of_several_is_judged_by_itself():
    y = np.zeros((ROWS, 2))
    said = held(y, gaussian(y + np.array([1.0, 2.0])))
    pair = SeveralTarget(tuple(NumberTarget(name, "identity", 0.0, 1.0, -9.0, 9.0) for name in "ab"))
    each = [scores(*one) for one in pair.each(said.student, y)]
    (first, own), (second, other) = SeveralWords([words("a"), words("b")]).outputs(dataclasses.replace(said, each=each))
    assert [first.name, second.name] == ["a", "b"]
    assert own.scores["student"]["rmse"].value == pytest.approx(1.0)
    assert other.scores["student"]["rmse"].value == pytest.approx(2.0)
