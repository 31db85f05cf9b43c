"""What can be predicted: an outcome is a file here and, for what a network learns by, one of its name in `heads/`.

`OUTCOMES` lists those that there are. To add one, write these two files, and name them here.
"""

import importlib
from typing import TYPE_CHECKING

from darkbayes.namespaces import own
from darkbayes.outcomes.base import Outcomes
from darkbayes.outcomes.base import Prediction as Prediction
from darkbayes.outcomes.base import Target as Target
from darkbayes.outcomes.classes import ClassPrediction as ClassPrediction
from darkbayes.outcomes.classes import ClassTarget as ClassTarget
from darkbayes.outcomes.counts import CountPrediction as CountPrediction
from darkbayes.outcomes.counts import CountTarget as CountTarget
from darkbayes.outcomes.number import NumberPrediction as NumberPrediction
from darkbayes.outcomes.number import NumberTarget as NumberTarget
from darkbayes.outcomes.several import SeveralTarget as SeveralTarget

OUTCOMES = Outcomes([CountTarget, ClassTarget, NumberTarget, SeveralTarget])

HEADS = ("base", "classes", "counts", "number")
"""The files of `heads/`, which load JAX: their names are found when first asked for."""

if TYPE_CHECKING:
    from darkbayes.outcomes.heads.base import *  # noqa: F403
    from darkbayes.outcomes.heads.classes import *  # noqa: F403
    from darkbayes.outcomes.heads.counts import *  # noqa: F403
    from darkbayes.outcomes.heads.number import *  # noqa: F403
else:

    def __getattr__(name):
        for module in () if name.startswith("_") else HEADS:
            names = vars(importlib.import_module(f"{__name__}.heads.{module}"))
            if getattr(names.get(name), "__module__", None) == f"{__name__}.heads.{module}":
                return names[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        heads = (vars(importlib.import_module(f"{__name__}.heads.{module}")) for module in HEADS)
        return own(globals(), *(name for head in heads for name in own(head) if name[0].isupper()))
