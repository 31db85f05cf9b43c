"""One predictive form, and metrics on it."""

from darkbayes.predict import metrics
from darkbayes.predict.predictive import (
    ClassPredictive,
    Predictive,
    RegressionPredictive,
    predict_average,
    predict_draws,
    predict_plugin,
    predict_student,
)

__all__ = [
    "ClassPredictive",
    "Predictive",
    "RegressionPredictive",
    "metrics",
    "predict_average",
    "predict_draws",
    "predict_plugin",
    "predict_student",
]
