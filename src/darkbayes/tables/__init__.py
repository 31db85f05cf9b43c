"""Tables and images as people have them: columns with names and kinds, and what a network reads of them.

Nothing here knows JAX: what serves predictions needs this and no more.
"""

from darkbayes.tables.columns import Column as Column
from darkbayes.tables.columns import Table as Table
from darkbayes.tables.columns import frame_of as frame_of
from darkbayes.tables.columns import from_columns as from_columns
from darkbayes.tables.columns import target_of as target_of
from darkbayes.tables.images import ImageBatch as ImageBatch
from darkbayes.tables.images import ImageFolder as ImageFolder
from darkbayes.tables.images import infer_image_schema as infer_image_schema
from darkbayes.tables.images import read_image_batches as read_image_batches
from darkbayes.tables.images import read_image_folder as read_image_folder
from darkbayes.tables.inference import infer_inputs as infer_inputs
from darkbayes.tables.inference import rows_with_target as rows_with_target
from darkbayes.tables.reading import read_table as read_table
from darkbayes.tables.schema import Category as Category
from darkbayes.tables.schema import Frame as Frame
from darkbayes.tables.schema import ImageSchema as ImageSchema
from darkbayes.tables.schema import Number as Number
from darkbayes.tables.schema import Schema as Schema
from darkbayes.tables.schema import TableSchema as TableSchema
from darkbayes.tables.schema import schema_from_dict as schema_from_dict
from darkbayes.tables.schema import schema_to_dict as schema_to_dict
from darkbayes.tables.streaming import Batch as Batch
from darkbayes.tables.streaming import Batches as Batches
from darkbayes.tables.streaming import read_batches as read_batches
from darkbayes.tables.writing import TableWriter as TableWriter
