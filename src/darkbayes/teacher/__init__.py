"""How the posterior is explored."""

from darkbayes.teacher.anchors import control_variates, svrg
from darkbayes.teacher.auto import AutoStep
from darkbayes.teacher.average import Average, average_add, average_init
from darkbayes.teacher.baoa import baoa
from darkbayes.teacher.chains import MinibatchChain, minibatch_chain
from darkbayes.teacher.curvature import with_curvature
from darkbayes.teacher.diagnostics import (
    autocorrelation_time,
    effective_sample_size,
    monte_carlo_divergence,
    split_rhat,
)
from darkbayes.teacher.distributed import DistributedChain, distributed_chain
from darkbayes.teacher.examples import fisher_metric, per_example
from darkbayes.teacher.fisher import fisher_sgld
from darkbayes.teacher.gradients import Estimate, Gradients, minibatch_gradients
from darkbayes.teacher.hmc import NUTSChain, nuts_chain
from darkbayes.teacher.parallel import Chains, burn, each, in_chunks, raise_on_failure, start_chains, step_chains
from darkbayes.teacher.psgld import psgld
from darkbayes.teacher.reservoir import Reservoir, reservoir_add, reservoir_init, reservoir_pick
from darkbayes.teacher.sampling import sample
from darkbayes.teacher.scale_adapted import scale_adapted_sghmc
from darkbayes.teacher.schedules import Cyclical, cyclical, polynomial, stepped
from darkbayes.teacher.sgfs import sgfs
from darkbayes.teacher.sghmc import sghmc
from darkbayes.teacher.sgld import sgld
from darkbayes.teacher.sgnht import sgnht
from darkbayes.teacher.sgrld import sgrld
from darkbayes.teacher.stacking import Stack, at, stack
from darkbayes.teacher.temperature import (
    chains_kinetic_temperature,
    configurational_temperature,
    gradient_noise,
    kinetic_temperature,
)
from darkbayes.teacher.trace import Trace, trace_add, trace_init, trace_read
from darkbayes.teacher.tuning import Choices, default_sampler, tune, tune_all, with_choices
from darkbayes.teacher.verdict import Agreement, Verdict, agreement, worst_of

__all__ = [
    "Agreement",
    "AutoStep",
    "Average",
    "Chains",
    "Choices",
    "Cyclical",
    "DistributedChain",
    "Estimate",
    "Gradients",
    "MinibatchChain",
    "NUTSChain",
    "Reservoir",
    "Stack",
    "Trace",
    "Verdict",
    "agreement",
    "at",
    "autocorrelation_time",
    "average_add",
    "average_init",
    "baoa",
    "burn",
    "chains_kinetic_temperature",
    "configurational_temperature",
    "control_variates",
    "cyclical",
    "default_sampler",
    "distributed_chain",
    "each",
    "effective_sample_size",
    "fisher_metric",
    "fisher_sgld",
    "gradient_noise",
    "in_chunks",
    "kinetic_temperature",
    "minibatch_chain",
    "minibatch_gradients",
    "monte_carlo_divergence",
    "nuts_chain",
    "per_example",
    "polynomial",
    "psgld",
    "raise_on_failure",
    "reservoir_add",
    "reservoir_init",
    "reservoir_pick",
    "sample",
    "scale_adapted_sghmc",
    "sgfs",
    "sghmc",
    "sgld",
    "sgnht",
    "sgrld",
    "split_rhat",
    "stack",
    "start_chains",
    "step_chains",
    "stepped",
    "svrg",
    "trace_add",
    "trace_init",
    "trace_read",
    "tune",
    "tune_all",
    "with_choices",
    "with_curvature",
    "worst_of",
]
