"""How the posterior is explored."""

from darkbayes.teacher.average import Average, average_add, average_init
from darkbayes.teacher.chains import MinibatchChain, minibatch_chain
from darkbayes.teacher.diagnostics import split_rhat
from darkbayes.teacher.distributed import DistributedChain, distributed_chain
from darkbayes.teacher.fisher import fisher_sgld
from darkbayes.teacher.hmc import NUTSChain, nuts_chain
from darkbayes.teacher.parallel import Chains, burn, each, in_chunks, raise_on_failure, start_chains, step_chains
from darkbayes.teacher.reservoir import Reservoir, reservoir_add, reservoir_init, reservoir_pick
from darkbayes.teacher.sampling import sample
from darkbayes.teacher.schedules import polynomial, stepped
from darkbayes.teacher.sgld import sgld

__all__ = [
    "Average",
    "Chains",
    "DistributedChain",
    "MinibatchChain",
    "NUTSChain",
    "Reservoir",
    "average_add",
    "average_init",
    "burn",
    "distributed_chain",
    "each",
    "fisher_sgld",
    "in_chunks",
    "minibatch_chain",
    "nuts_chain",
    "polynomial",
    "raise_on_failure",
    "reservoir_add",
    "reservoir_init",
    "reservoir_pick",
    "sample",
    "sgld",
    "split_rhat",
    "start_chains",
    "step_chains",
    "stepped",
]
