"""Fits of the commands in a moment."""

import pytest

from darkbayes.fit import automatic, plugin

STRIDES = 3
"""Looks of the plug-in network at the rows kept aside."""


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Few steps of the optimisations before the chains of a fit, and of the plug-in network beside them.

    What is compiled stays the same.
    """
    train = plugin._train
    patch.setattr(automatic, "START_STEPS", (100, 100))
    patch.setattr(plugin, "_train", lambda *given: train(*given[:-1], min(given[-1], STRIDES)))
