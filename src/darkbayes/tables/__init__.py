"""Tables and images as people have them: columns with names and kinds, and what a network makes of them.

Nothing here knows JAX: what serves predictions needs this and no more.
"""

from darkbayes.tables.predictions import ClassPredictions, Predictions, RealPredictions
from darkbayes.tables.schema import (
    REACH,
    Category,
    ClassTarget,
    Frame,
    ImageSchema,
    Number,
    RealTarget,
    Schema,
    TableSchema,
    schema_from_dict,
    schema_to_dict,
)

__all__ = [
    "REACH",
    "Category",
    "ClassPredictions",
    "ClassTarget",
    "Frame",
    "ImageSchema",
    "Number",
    "Predictions",
    "RealPredictions",
    "RealTarget",
    "Schema",
    "TableSchema",
    "schema_from_dict",
    "schema_to_dict",
]
