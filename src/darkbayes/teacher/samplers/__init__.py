"""Samplers: optax gradient transformations that add the right noise."""

from darkbayes.namespaces import own
from darkbayes.teacher.samplers.auto import AutoStep as AutoStep
from darkbayes.teacher.samplers.baoa import baoa as baoa
from darkbayes.teacher.samplers.fisher import default_sampler as default_sampler
from darkbayes.teacher.samplers.fisher import fisher_sgld as fisher_sgld
from darkbayes.teacher.samplers.psgld import psgld as psgld
from darkbayes.teacher.samplers.scale_adapted import scale_adapted_sghmc as scale_adapted_sghmc
from darkbayes.teacher.samplers.sgfs import sgfs as sgfs
from darkbayes.teacher.samplers.sghmc import sghmc as sghmc
from darkbayes.teacher.samplers.sgld import sgld as sgld
from darkbayes.teacher.samplers.sgnht import sgnht as sgnht
from darkbayes.teacher.samplers.sgrld import sgrld as sgrld


def __dir__() -> list[str]:
    return own(globals())
