"""What distillation is compared with: each is fitted on the same data, and ends in the common predictive form."""

from darkbayes.baselines.dropout import Dropout as Dropout
from darkbayes.baselines.optimise import SGD as SGD
from darkbayes.baselines.optimise import Ensemble as Ensemble
from darkbayes.baselines.optimise import Trained as Trained
from darkbayes.baselines.optimise import optimise as optimise
from darkbayes.baselines.optimise import raise_if_diverged as raise_if_diverged
from darkbayes.baselines.pbp import PBP as PBP
from darkbayes.baselines.pbp import PBPState as PBPState
from darkbayes.baselines.swag import SWAG as SWAG
from darkbayes.baselines.swag import Walked as Walked
from darkbayes.baselines.variational import BayesByBackprop as BayesByBackprop
from darkbayes.baselines.variational import MeanField as MeanField
from darkbayes.baselines.variational import VariationalInference as VariationalInference
from darkbayes.namespaces import own


def __dir__() -> list[str]:
    return own(globals())
