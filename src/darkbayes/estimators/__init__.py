"""scikit-learn estimators: a table in, one ordinary network out that knows what it does not know.

`DistilledRegressor` and `DistilledClassifier` fit as ``darkbayes fit`` does (`darkbayes.fit`), with nothing to choose.
They take arrays of numbers, NaN where one is missing, and pandas frames, whose columns may also be categories, text or
truth values. What was found out of the columns is in `notes_`, how the teacher was run in `choices_`, and whether its
chains agree in `diagnosis_`.
"""

try:
    from sklearn.utils.validation import validate_data as _  # noqa: F401  (the first to come with 1.6)
except ImportError:
    raise ImportError('the estimators need scikit-learn 1.6 or newer: pip install "darkbayes[sklearn]"') from None

from darkbayes.estimators.base import Decomposition as Decomposition
from darkbayes.estimators.classifier import DistilledClassifier as DistilledClassifier
from darkbayes.estimators.regressor import DistilledRegressor as DistilledRegressor
