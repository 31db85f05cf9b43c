"""Where the rows of a CSV file begin and end."""

import csv
import io

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from darkbayes.tables.csvfile import Block, _walked, row_ends
from darkbayes.tables.opening import parse_rows


@settings(max_examples=200, deadline=None)
@given(st.text('ab",\n', max_size=30))
def test_rows_begin_where_the_standard_library_says_whatever_the_quotes(text):
    text += "\n"
    ends = row_ends(text.encode(), ",")
    assert ends.tolist() == _walked(text.encode(), ",").tolist()
    if not len(ends) or ends[-1] != len(text) - 1:
        return  # A quote is not closed; a file that ends so is refused.
    expected, line, reader = [], 1, csv.reader(io.StringIO(text, newline=""))
    for row in reader:
        expected += [(line, len(row))] if row else []
        line = reader.line_num + 1
    kept, lines, bad = parse_rows(Block(text.encode(), 1, ","), 2, {0: pa.string()})
    assert sorted([(at, 2) for at in lines.tolist()] + [(row.line, int(row.reason.split()[0])) for row in bad]) == [
        (at, count) for at, count in expected if count != 1 or text.split("\n")[at - 1].strip()
    ]
    assert kept.num_rows == len(lines)
