"""What is believed before data: networks, priors, and the posterior they make."""

from darkbayes.model.adapters import from_equinox as from_equinox
from darkbayes.model.adapters import from_linen as from_linen
from darkbayes.model.adapters import from_nnx as from_nnx
from darkbayes.model.networks import cnn as cnn
from darkbayes.model.networks import computed_in as computed_in
from darkbayes.model.networks import mlp as mlp
from darkbayes.model.networks import resnet as resnet
from darkbayes.model.networks import sequential as sequential
from darkbayes.model.posterior import Draw as Draw
from darkbayes.model.posterior import Posterior as Posterior
from darkbayes.model.products import by_products as by_products
from darkbayes.model.pytorch import from_torch as from_torch
from darkbayes.model.subnetworks import last_layer as last_layer
from darkbayes.model.subnetworks import started_at as started_at
from darkbayes.model.subnetworks import subnetwork as subnetwork
from darkbayes.namespaces import own


def __dir__() -> list[str]:
    return own(globals(), "layers", "priors")
