"""Where the student asks its teacher."""

from darkbayes.student.queries.images import affine as affine
from darkbayes.student.queries.images import distortion as distortion
from darkbayes.student.queries.images import elastic as elastic
from darkbayes.student.queries.images import image_queries as image_queries
from darkbayes.student.queries.inputs import Context as Context
from darkbayes.student.queries.inputs import Queries as Queries
from darkbayes.student.queries.inputs import compose as compose
from darkbayes.student.queries.inputs import exchange as exchange
from darkbayes.student.queries.inputs import jitter as jitter
from darkbayes.student.queries.inputs import mix as mix
from darkbayes.student.queries.inputs import mixup as mixup
from darkbayes.student.queries.inputs import munge as munge
from darkbayes.student.queries.inputs import training_inputs as training_inputs
from darkbayes.student.queries.inputs import uniform_box as uniform_box
