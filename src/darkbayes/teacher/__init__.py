"""How the posterior is explored."""

from darkbayes.teacher.anchors import control_variates, svrg
from darkbayes.teacher.average import Average, average_add, average_init
from darkbayes.teacher.chains import MinibatchChain, minibatch_chain
from darkbayes.teacher.curvature import with_curvature
from darkbayes.teacher.diagnostics import split_rhat
from darkbayes.teacher.examples import fisher_metric, per_example
from darkbayes.teacher.fisher import fisher_sgld
from darkbayes.teacher.gradients import Estimate, Gradients, minibatch_gradients
from darkbayes.teacher.hmc import NUTSChain, nuts_chain
from darkbayes.teacher.parallel import Chains, burn, each, in_chunks, raise_on_failure, start_chains, step_chains
from darkbayes.teacher.reservoir import Reservoir, reservoir_add, reservoir_init, reservoir_pick
from darkbayes.teacher.sampling import sample
from darkbayes.teacher.schedules import polynomial, stepped
from darkbayes.teacher.sgfs import sgfs
from darkbayes.teacher.sgld import sgld
from darkbayes.teacher.sgrld import sgrld

__all__ = [
    "Average",
    "Chains",
    "Estimate",
    "Gradients",
    "MinibatchChain",
    "NUTSChain",
    "Reservoir",
    "average_add",
    "average_init",
    "burn",
    "control_variates",
    "each",
    "fisher_metric",
    "fisher_sgld",
    "in_chunks",
    "minibatch_chain",
    "minibatch_gradients",
    "nuts_chain",
    "per_example",
    "polynomial",
    "raise_on_failure",
    "reservoir_add",
    "reservoir_init",
    "reservoir_pick",
    "sample",
    "sgfs",
    "sgld",
    "sgrld",
    "split_rhat",
    "start_chains",
    "step_chains",
    "stepped",
    "svrg",
    "with_curvature",
]
