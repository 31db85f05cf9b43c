"""From people's data to a student, without a choice to make: read, choose, tune, distil, score, write."""

from darkbayes.fit.automatic import Fitted as Fitted
from darkbayes.fit.automatic import fit as fit
from darkbayes.fit.automatic import make_student as make_student
from darkbayes.fit.automatic import predicted_by_student as predicted_by_student
from darkbayes.fit.automatic import table_queries as table_queries
from darkbayes.fit.choosing import Model as Model
from darkbayes.fit.choosing import make_posterior as make_posterior
from darkbayes.fit.exporting import export_folder as export_folder
from darkbayes.fit.exporting import load_folder as load_folder
from darkbayes.fit.features import prepare_features as prepare_features
from darkbayes.fit.folder import fit_folder as fit_folder
from darkbayes.fit.folder import guarantee_level as guarantee_level
from darkbayes.fit.options import Options as Options
from darkbayes.fit.options import for_images as for_images
from darkbayes.fit.plugin import plug_in as plug_in
from darkbayes.fit.prepare import Prepared as Prepared
from darkbayes.fit.prepare import check_weights as check_weights
from darkbayes.fit.prepare import fingerprint as fingerprint
from darkbayes.fit.prepare import hold_out as hold_out
from darkbayes.fit.prepare import infer_schema as infer_schema
from darkbayes.fit.prepare import prepare_images as prepare_images
from darkbayes.fit.prepare import prepare_table as prepare_table
from darkbayes.fit.sharing import Start as Start
