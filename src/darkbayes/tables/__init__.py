"""Tables and images as people have them: columns with names and kinds, and what a network reads of them.

Rows come as files (CSV, Parquet), as frames in memory (pandas, dicts, arrays) and as bodies of requests (JSON, CSV).
All are read by one policy, cell by cell, whatever the rows beside them hold (`cells`): see `docs/table.md`.

Nothing here knows JAX: what serves predictions needs this and no more.
"""

from darkbayes.tables.columns import frame_of as frame_of
from darkbayes.tables.columns import from_columns as from_columns
from darkbayes.tables.columns import target_of as target_of
from darkbayes.tables.images import read_image_batches as read_image_batches
from darkbayes.tables.images import read_image_folder as read_image_folder
from darkbayes.tables.reading import read_table as read_table
from darkbayes.tables.streaming import read_batches as read_batches
from darkbayes.tables.writing import TableWriter as TableWriter
