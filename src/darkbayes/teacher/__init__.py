"""How the posterior is explored."""

from darkbayes.teacher.average import Average, average_add, average_init
from darkbayes.teacher.chains import MinibatchChain, minibatch_chain
from darkbayes.teacher.diagnostics import (
    autocorrelation_time,
    effective_sample_size,
    monte_carlo_divergence,
    split_rhat,
)
from darkbayes.teacher.fisher import fisher_sgld
from darkbayes.teacher.hmc import NUTSChain, nuts_chain
from darkbayes.teacher.parallel import Chains, burn, each, in_chunks, raise_on_failure, start_chains, step_chains
from darkbayes.teacher.reservoir import Reservoir, reservoir_add, reservoir_init, reservoir_pick
from darkbayes.teacher.sampling import sample
from darkbayes.teacher.schedules import polynomial, stepped
from darkbayes.teacher.sgld import sgld
from darkbayes.teacher.temperature import (
    chains_kinetic_temperature,
    configurational_temperature,
    gradient_noise,
    kinetic_temperature,
)
from darkbayes.teacher.trace import Trace, trace_add, trace_init, trace_read
from darkbayes.teacher.verdict import Agreement, Verdict, agreement, worst_of

__all__ = [
    "Agreement",
    "Average",
    "Chains",
    "MinibatchChain",
    "NUTSChain",
    "Reservoir",
    "Trace",
    "Verdict",
    "agreement",
    "autocorrelation_time",
    "average_add",
    "average_init",
    "burn",
    "chains_kinetic_temperature",
    "configurational_temperature",
    "each",
    "effective_sample_size",
    "fisher_sgld",
    "gradient_noise",
    "in_chunks",
    "kinetic_temperature",
    "minibatch_chain",
    "monte_carlo_divergence",
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
    "trace_add",
    "trace_init",
    "trace_read",
    "worst_of",
]
