"""Other methods that answer with one predictive distribution, to compare a student with."""

from darkbayes.baselines.pbp import PBP, PBPState

__all__ = ["PBP", "PBPState"]
