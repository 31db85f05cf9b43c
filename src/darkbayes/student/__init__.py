"""How the posterior is distilled into one network."""

from darkbayes.namespaces import own
from darkbayes.student import answers as answers
from darkbayes.student.answers import Answers as Answers
from darkbayes.student.answers import Learned as Learned
from darkbayes.student.answers import distil_batch as distil_batch
from darkbayes.student.diagnosis import Diagnosis as Diagnosis
from darkbayes.student.following import Distilled as Distilled
from darkbayes.student.following import distil as distil
from darkbayes.student.loop import Distillation as Distillation
from darkbayes.student.loop import Settings as Settings
from darkbayes.student.loop import Snapshot as Snapshot
from darkbayes.student.loop import distillation as distillation
from darkbayes.student.many import side_by_side as side_by_side
from darkbayes.student.network import Student as Student
from darkbayes.student.sizing import size_student as size_student


def __dir__() -> list[str]:
    return own(globals(), "answers", "queries")
