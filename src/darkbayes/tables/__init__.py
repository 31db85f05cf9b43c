"""Tables and images as people have them: columns with names and kinds, and what a network makes of them.

Nothing here knows JAX: what serves predictions needs this and no more.
"""

from darkbayes.tables.columns import Column, Table, frame_of, from_columns, target_of
from darkbayes.tables.inference import Inference, Task, infer_schema, rows_with_target
from darkbayes.tables.predictions import ClassPredictions, Predictions, RealPredictions
from darkbayes.tables.reading import read_table
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
    "Column",
    "Frame",
    "ImageSchema",
    "Inference",
    "Number",
    "Predictions",
    "RealPredictions",
    "RealTarget",
    "Schema",
    "Table",
    "TableSchema",
    "Task",
    "frame_of",
    "from_columns",
    "infer_schema",
    "read_table",
    "rows_with_target",
    "schema_from_dict",
    "schema_to_dict",
    "target_of",
]
