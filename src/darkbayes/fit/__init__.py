"""From people's data to a student, without a choice to make."""

from darkbayes.fit.automatic import Fitted, Options, fit, make_posterior
from darkbayes.fit.plugin import plug_in

__all__ = ["Fitted", "Options", "fit", "make_posterior", "plug_in"]
