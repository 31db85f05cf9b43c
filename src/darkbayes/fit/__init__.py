"""From people's data to a student, without a choice to make."""

from darkbayes.fit.automatic import Fitted, Options, fit, make_posterior, make_student, table_queries
from darkbayes.fit.exporting import export_folder, load_folder
from darkbayes.fit.folder import fit_folder
from darkbayes.fit.plugin import plug_in
from darkbayes.fit.prepare import Prepared, fingerprint, prepare_images, prepare_table
from darkbayes.fit.scores import log_densities, predictions, score
from darkbayes.fit.sharing import Start

__all__ = [
    "Fitted",
    "Options",
    "Prepared",
    "Start",
    "export_folder",
    "fingerprint",
    "fit",
    "fit_folder",
    "load_folder",
    "log_densities",
    "make_posterior",
    "make_student",
    "plug_in",
    "predictions",
    "prepare_images",
    "prepare_table",
    "score",
    "table_queries",
]
