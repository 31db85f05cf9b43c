"""How the posterior is distilled into one network."""

from darkbayes.student.diagnosis import Diagnosis, RunDiagnostics, diagnose
from darkbayes.student.families import Family, GaussianStudent, MixtureStudent, SoftmaxStudent
from darkbayes.student.loop import (
    Distillation,
    DistillationState,
    Distilled,
    Settings,
    Snapshot,
    distil,
    distillation,
    steps_of,
)
from darkbayes.student.many import SideBySide, side_by_side
from darkbayes.student.network import Student
from darkbayes.student.queries import (
    Context,
    Queries,
    affine,
    compose,
    distortion,
    elastic,
    exchange,
    image_queries,
    jitter,
    mix,
    mixup,
    munge,
    training_inputs,
    uniform_box,
)
from darkbayes.student.sizing import Sized, size_student

__all__ = [
    "Context",
    "Diagnosis",
    "Distillation",
    "DistillationState",
    "Distilled",
    "Family",
    "GaussianStudent",
    "MixtureStudent",
    "Queries",
    "RunDiagnostics",
    "Settings",
    "SideBySide",
    "Sized",
    "Snapshot",
    "SoftmaxStudent",
    "Student",
    "affine",
    "compose",
    "diagnose",
    "distil",
    "distillation",
    "distortion",
    "elastic",
    "exchange",
    "image_queries",
    "jitter",
    "mix",
    "mixup",
    "munge",
    "side_by_side",
    "size_student",
    "steps_of",
    "training_inputs",
    "uniform_box",
]
