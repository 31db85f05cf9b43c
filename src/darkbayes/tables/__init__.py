"""Tables and images as people have them: columns with names and kinds, and what a network makes of them.

Nothing here knows JAX: what serves predictions needs this and no more.
"""

from darkbayes.tables.columns import Column, Table, frame_of, from_columns, target_of
from darkbayes.tables.images import (
    ImageBatch,
    ImageBatches,
    ImageFolder,
    image_array,
    infer_image_schema,
    is_image_folder,
    read_image_batches,
    read_image_folder,
)
from darkbayes.tables.inference import Inference, Task, infer_schema, is_classes, rows_with_target
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
from darkbayes.tables.scoring import Scores
from darkbayes.tables.streaming import Batch, Batches, read_batches
from darkbayes.tables.writing import PredictionWriter, prediction_columns

__all__ = [
    "REACH",
    "Batch",
    "Batches",
    "Category",
    "ClassPredictions",
    "ClassTarget",
    "Column",
    "Frame",
    "ImageBatch",
    "ImageBatches",
    "ImageFolder",
    "ImageSchema",
    "Inference",
    "Number",
    "PredictionWriter",
    "Predictions",
    "RealPredictions",
    "RealTarget",
    "Schema",
    "Scores",
    "Table",
    "TableSchema",
    "Task",
    "frame_of",
    "from_columns",
    "image_array",
    "infer_image_schema",
    "infer_schema",
    "is_classes",
    "is_image_folder",
    "prediction_columns",
    "read_batches",
    "read_image_batches",
    "read_image_folder",
    "read_table",
    "rows_with_target",
    "schema_from_dict",
    "schema_to_dict",
    "target_of",
]
