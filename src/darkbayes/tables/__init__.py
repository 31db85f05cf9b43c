"""Tables and images as people have them: columns with names and kinds, and what a network reads of them.

Rows come as files (CSV, Parquet), as frames in memory (pandas, dicts, arrays) and as bodies of requests (JSON, CSV).
All are read by one policy, cell by cell, whatever the rows beside them hold (`cells`, `unlike`):

    a number            ASCII digits with an optional sign, decimal point and exponent, as text or as a number; blanks
                        around it are trimmed. No underscores, commas or other scripts' digits; infinity is refused
    a missing value     nothing, None, null, NaN, or a text of `cells.MISSING` such as NA, ? or -
    a category          a text without the blanks around it. Numbers are called as people write them, whole ones
                        without a point, and 1.0 is 1; truth values are true or false, in letters of any size
    a missing column    refused, with the nearest name. In JSON it is a key that no row has; one that some rows have is
                        a missing value in the others
    an extra column     not read, and noted unless the fit had it as well
    unlike the fit's    a category that the schema does not know, a number outside of the range that was seen, a value
                        that is missing where none was: predicted, and noted
    anything else       such as text or a truth value where a number must be: refused with its place and value, or the
                        row is left out where ``on_bad="skip"``

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
