"""What is said of the rows held out: predictions of the student, its teacher and a plug-in network, and their scores.

Everything is in the target's own unit.
"""

from typing import Any

import numpy as np

from darkbayes.predict import ClassPredictive, Predictive, metrics
from darkbayes.runs import row
from darkbayes.tables import ClassPredictions, ClassTarget, Predictions, RealPredictions, RealTarget

LEVEL = 0.9
"""Of the intervals whose coverage is told."""


def predictions(target: RealTarget | ClassTarget, predictive: Predictive) -> Predictions:
    """What a network says of the standardised target, in the target's own unit.

    A mixture of several Gaussians is told by the one of its mean and variance; a predictive that does not know its
    aleatoric part is all aleatoric, as a single network is.
    """
    if isinstance(predictive, ClassPredictive):
        assert isinstance(target, ClassTarget)
        probs = np.asarray(predictive.probs, np.float64)
        entropy = np.asarray(predictive.entropy, np.float64)
        expected = entropy if predictive.expected_entropy is None else np.asarray(predictive.expected_entropy)
        expected = np.minimum(expected, entropy)
        return ClassPredictions(probs, entropy, expected, entropy - expected)
    assert isinstance(target, RealTarget)
    moments = predictive.moments
    aleatoric = moments.variance if predictive.expected_variance is None else predictive.expected_variance
    told = (np.asarray(of) for of in (moments.mean, moments.variance, aleatoric))
    return RealPredictions.of(target, *told, epistemic=predictive.variance_of_means)


def log_densities(target: RealTarget | ClassTarget, predictive: Predictive, y: np.ndarray) -> np.ndarray:
    """The log density of each encoded target in `y`, in the target's own unit."""
    found = np.asarray(predictive.log_prob(y), np.float64)
    if isinstance(target, ClassTarget):
        return found
    # By the slope of the map from the target to what the network predicts.
    return found - np.log(target.scale) - (np.log(target.decode(y)) if target.transform == "log" else 0.0)


def score(target: RealTarget | ClassTarget, predictive: Predictive, y: np.ndarray) -> dict[str, float]:
    """Every metric of predictions of encoded targets `y`."""
    found = {"log_likelihood": float(np.mean(log_densities(target, predictive, y)))}
    if isinstance(predictive, ClassPredictive):
        return found | {
            "error": metrics.error(predictive, y),
            "brier": metrics.brier(predictive, y),
            "ece": metrics.ece(predictive, y),
        }
    assert isinstance(target, RealTarget)
    told = predictions(target, predictive)
    assert isinstance(told, RealPredictions)
    return found | {
        "rmse": float(np.sqrt(np.mean((told.mean - target.decode(y)) ** 2))),
        "coverage_90": metrics.coverage(predictive, y, LEVEL),
    }


def rows(scores: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """The rows of results, with the share of the Bayesian gain in log likelihood that the student keeps."""
    found = [row(method, metric, [value]) for method, of in scores.items() for metric, value in of.items()]
    if {"student", "sgld", "sgd"} <= scores.keys():
        kept = metrics.gain_kept(*(scores[method]["log_likelihood"] for method in ("student", "sgld", "sgd")))
        found.append(row("student", "gain_kept", [kept]))
    return found
