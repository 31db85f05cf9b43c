"""Whether chains agree, what their draws are worth, and at what temperature they are."""

from darkbayes.namespaces import own
from darkbayes.teacher.diagnostics.convergence import Agreement as Agreement
from darkbayes.teacher.diagnostics.convergence import Verdict as Verdict
from darkbayes.teacher.diagnostics.convergence import agreement as agreement
from darkbayes.teacher.diagnostics.convergence import autocorrelation_time as autocorrelation_time
from darkbayes.teacher.diagnostics.convergence import effective_sample_size as effective_sample_size
from darkbayes.teacher.diagnostics.convergence import monte_carlo_divergence as monte_carlo_divergence
from darkbayes.teacher.diagnostics.convergence import monte_carlo_error as monte_carlo_error
from darkbayes.teacher.diagnostics.convergence import rank_rhat as rank_rhat
from darkbayes.teacher.diagnostics.convergence import split_rhat as split_rhat
from darkbayes.teacher.diagnostics.temperature import configurational_temperature as configurational_temperature
from darkbayes.teacher.diagnostics.temperature import kinetic_temperature as kinetic_temperature


def __dir__() -> list[str]:
    return own(globals())
