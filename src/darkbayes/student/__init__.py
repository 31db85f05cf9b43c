"""How the posterior is distilled into one network."""

from darkbayes.student.diagnosis import Diagnosis as Diagnosis
from darkbayes.student.loop import Distillation as Distillation
from darkbayes.student.loop import DistillationState as DistillationState
from darkbayes.student.loop import Distilled as Distilled
from darkbayes.student.loop import Settings as Settings
from darkbayes.student.loop import distil as distil
from darkbayes.student.loop import distillation as distillation
from darkbayes.student.loop import follow as follow
from darkbayes.student.many import side_by_side as side_by_side
from darkbayes.student.network import Student as Student
from darkbayes.student.queries import Context as Context
from darkbayes.student.queries import Queries as Queries
from darkbayes.student.queries import image_queries as image_queries
from darkbayes.student.queries import jitter as jitter
from darkbayes.student.queries import mix as mix
from darkbayes.student.queries import mixup as mixup
from darkbayes.student.queries import uniform_box as uniform_box
from darkbayes.student.sizing import size_student as size_student
