"""What is believed before data: networks, likelihoods, priors, and the posterior they make."""

from darkbayes.model.adapters import from_equinox, from_linen, from_nnx
from darkbayes.model.distributions import (
    Categorical,
    Distribution,
    Normal,
    NormalMixture,
    categorical_entropy,
    kl_categorical,
    kl_normal,
    normal_log_prob,
)
from darkbayes.model.layers import sequential
from darkbayes.model.likelihoods import Gaussian, GaussianInputNoise, GaussianSampledNoise, Likelihood, Softmax
from darkbayes.model.networks import cnn, mlp
from darkbayes.model.posterior import Draw, Posterior, check_width
from darkbayes.model.priors import GaussianPrior, Prior, SampledPrecisionPrior, ScaledGaussianPrior, ScaleMixturePrior
from darkbayes.model.pytorch import from_torch
from darkbayes.model.subnetworks import last_layer, started_at, subnetwork

__all__ = [
    "Categorical",
    "Distribution",
    "Draw",
    "Gaussian",
    "GaussianInputNoise",
    "GaussianPrior",
    "GaussianSampledNoise",
    "Likelihood",
    "Normal",
    "NormalMixture",
    "Posterior",
    "Prior",
    "SampledPrecisionPrior",
    "ScaleMixturePrior",
    "ScaledGaussianPrior",
    "Softmax",
    "categorical_entropy",
    "check_width",
    "cnn",
    "from_equinox",
    "from_linen",
    "from_nnx",
    "from_torch",
    "kl_categorical",
    "kl_normal",
    "last_layer",
    "mlp",
    "normal_log_prob",
    "sequential",
    "started_at",
    "subnetwork",
]
