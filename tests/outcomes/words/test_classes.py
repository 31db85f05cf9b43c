"""What is said of classes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from darkbayes.estimates import estimate
from darkbayes.metrics import scores
from darkbayes.outcomes import ClassPrediction
from darkbayes.outcomes.words.base import HeldOut, Judged
from darkbayes.outcomes.words.classes import ClassWords, calibration_error_by_chance, confidence_promise

WORDS = ClassWords(SimpleNamespace(name="animal", classes=("cat", "dog", "owl")))


def held(probs: Any, y: Any) -> HeldOut:
    """The same probabilities by all methods."""
    prediction = ClassPrediction.from_probs(probs, np.zeros(len(y)))
    judged = Judged(prediction, prediction.log_prob(y), np.empty(0))
    own = {"student": scores(prediction, y)}
    return HeldOut(np.asarray(y), dict.fromkeys(("student", "sgld", "sgd"), judged), own, "images")


@pytest.mark.parametrize(("right", "verdict"), [(80, "kept"), (95, "timid"), (60, "bold")])
def test_probabilities_are_judged_by_what_chance_would_bring(right, verdict):
    said = held(np.tile([0.8, 0.2], (100, 1)), (np.arange(100) >= right).astype(int))
    promise = confidence_promise(said)
    assert promise.verdict == verdict
    assert promise.measured == pytest.approx(estimate(said.student.right(said.y)))


def test_calibration_error_by_chance_is_the_mean_size_of_a_binomial_gap():
    # For n answers of probability p in one bin: E|k/n - p|, here of n = 100 and p = 1/2, sqrt(2 p (1 - p) / (pi n)).
    assert calibration_error_by_chance(np.full(100, 0.5)) == pytest.approx(np.sqrt(0.5 / (np.pi * 100)), rel=0.15)


def test_wrong_answers_are_compared_with_always_giving_the_most_common_class():
    y = np.repeat([0, 1, 2], (10, 5, 5))
    answers = np.where(np.arange(20) == 19, 0, y)
    said = WORDS.how_good(held(np.eye(3)[answers] * 0.9 + 0.1 / 3, y))
    assert said == (
        "It was wrong on 1 of 20 images (5%). Always answering cat, the most common class, would be wrong on 50%."
    )


def test_a_picture_of_confusion_counts_truth_and_answer():
    picture: Any = WORDS.trust(held(np.eye(3)[[0, 0, 1, 2]], [0, 1, 1, 2]))[1]
    assert picture.counts.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]


def test_complete_ignorance_is_all_of_the_uncertainty_there_can_be():
    example = WORDS.example(held(np.full((1, 3), 1 / 3), [2]), 0)
    assert example == ("cat 33%, dog 33%", "owl", "0%", "100%", False)


def test_of_many_classes_the_lines_are_those_that_change_most():
    many = ClassWords(SimpleNamespace(name="digit", classes=tuple("0123456789")))
    aim = np.zeros((2, 10))
    aim[1, [1, 3, 5, 7, 9]] = 0.2
    assert list(many.lines(aim)[0]) == ["1", "3", "5", "7", "9"]


def test_the_points_of_the_reliability_diagram_are_the_accuracies_of_its_bins():
    confidence = np.repeat([0.95, 0.55], [4, 2])
    probs = np.stack([confidence, 1 - confidence, np.zeros(6)], axis=1)
    picture: Any = WORDS.trust(held(probs, [0, 0, 0, 1, 0, 1]))[0]
    claimed, accuracy = picture.curves["student"]
    assert claimed == pytest.approx([55, 95])
    assert accuracy == pytest.approx([50, 75])


def test_risk_is_the_share_of_wrong_answers_from_the_surest_to_the_least_sure():
    sure = np.linspace(0.99, 0.4, 12)
    probs = np.stack([sure, (1 - sure) / 2, (1 - sure) / 2], axis=1)
    said = held(probs, [0] * 10 + [1, 1])
    shares, risk = WORDS.risks(said.student, said.y)
    assert shares == pytest.approx([1000 / 12, 1100 / 12, 100])
    assert risk == pytest.approx([0, 100 / 11, 200 / 12])
