"""What a step of a chain takes for the gradient."""

from darkbayes.namespaces import own
from darkbayes.teacher.gradients.anchors import control_variates as control_variates
from darkbayes.teacher.gradients.anchors import svrg as svrg
from darkbayes.teacher.gradients.base import GradientEstimate as GradientEstimate
from darkbayes.teacher.gradients.base import Gradients as Gradients
from darkbayes.teacher.gradients.base import fisher_metric as fisher_metric
from darkbayes.teacher.gradients.base import minibatch_gradients as minibatch_gradients
from darkbayes.teacher.gradients.base import per_example as per_example
from darkbayes.teacher.gradients.base import with_curvature as with_curvature


def __dir__() -> list[str]:
    return own(globals())
