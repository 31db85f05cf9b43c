"""What distillation is compared with: each is fitted on a `Posterior` and ends in draws of it."""

from darkbayes.baselines.bbb import BayesByBackprop
from darkbayes.baselines.dropout import Dropout
from darkbayes.baselines.ensemble import Ensemble
from darkbayes.baselines.meanfield import MeanField
from darkbayes.baselines.optimise import Trained, optimise, raise_if_diverged
from darkbayes.baselines.sgd import SGD
from darkbayes.baselines.vi import VariationalInference

__all__ = [
    "SGD",
    "BayesByBackprop",
    "Dropout",
    "Ensemble",
    "MeanField",
    "Trained",
    "VariationalInference",
    "optimise",
    "raise_if_diverged",
]
