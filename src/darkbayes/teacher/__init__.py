"""How the posterior is explored."""

from darkbayes.namespaces import own
from darkbayes.teacher import diagnostics as diagnostics
from darkbayes.teacher import gradients as gradients
from darkbayes.teacher.chain import minibatch_chain as minibatch_chain
from darkbayes.teacher.chain import sample as sample
from darkbayes.teacher.distributed.chain import distributed_chain as distributed_chain
from darkbayes.teacher.microcanonical import adjusted_mclmc_chain as adjusted_mclmc_chain
from darkbayes.teacher.microcanonical import mclmc_chain as mclmc_chain
from darkbayes.teacher.nuts import nuts_chain as nuts_chain
from darkbayes.teacher.stored import stored_chain as stored_chain
from darkbayes.teacher.tuning import Choices as Choices
from darkbayes.teacher.tuning import tune as tune
from darkbayes.teacher.tuning import tune_all as tune_all


def __dir__() -> list[str]:
    return own(globals(), "diagnostics", "gradients", "samplers")
