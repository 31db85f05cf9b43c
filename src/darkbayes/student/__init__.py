"""How the posterior is distilled into one network."""

from darkbayes.student.families import Family, GaussianStudent, MixtureStudent, SoftmaxStudent
from darkbayes.student.loop import Distillation, DistillationState, Distilled, Settings, Snapshot, distil, distillation
from darkbayes.student.network import Student
from darkbayes.student.queries import Context, Queries, jitter, mix, training_inputs, uniform_box

__all__ = [
    "Context",
    "Distillation",
    "DistillationState",
    "Distilled",
    "Family",
    "GaussianStudent",
    "MixtureStudent",
    "Queries",
    "Settings",
    "Snapshot",
    "SoftmaxStudent",
    "Student",
    "distil",
    "distillation",
    "jitter",
    "mix",
    "training_inputs",
    "uniform_box",
]
