"""Files read in batches."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darkbayes.errors import InvalidInput
from darkbayes.outcomes import ClassTarget, NumberTarget
from darkbayes.tables import decoding, read_batches
from darkbayes.tables.schema import Category, Number, TableSchema


def number(name):
    return Number(name, 0.0, 1.0, 0.0, flagged=True, low=-300.0, high=100.0, whole=False)


PRICE = NumberTarget("price", "identity", 0.0, 1.0, 0.0, 1.0)
SCHEMA = TableSchema(
    (number("size"), Category("colour", ("blue", "red"), flagged=True), Category("new", ("false", "true"), False)),
    PRICE,
    {"id": "it counts the rows"},
)
GOOD = "id,colour,size,new,price\n1,red,1.5,True,10\n2,NA,?,FALSE,20\n3, blue ,-3e2,-,30\n"


@pytest.fixture
def small_blocks(monkeypatch):
    """Files are read by so few bytes at a time that even a small one has many blocks."""
    monkeypatch.setattr(decoding, "BLOCK", 16)


def together(batches):
    """All rows of a file, as lists."""
    parts = list(batches)
    names = parts[0].frame
    frame = {name: [value for part in parts for value in part.frame[name].tolist()] for name in names}
    return frame, [line for part in parts for line in part.lines.tolist()]


def test_a_csv_file_and_a_parquet_file_give_the_columns_of_the_schema(tmp_path):
    columns = {
        "new": [True, False, None],
        "size": pa.array([1.5, None, -300]),
        "colour": pa.array(["red", None, "blue"]).dictionary_encode(),
        "a.b": [1, 2, 3],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text(GOOD)
    for source, lines, unit in ((tmp_path / "t.csv", [2, 3, 4], "line"), (tmp_path / "t.parquet", [1, 2, 3], "row")):
        batches = read_batches(source, SCHEMA)
        frame, places = together(batches)
        np.testing.assert_array_equal(frame["size"], [1.5, np.nan, -300])
        assert frame["colour"] == ["red", None, "blue"]
        assert frame["new"] == ["true", "false", None]
        assert (places, batches.unit, batches.num_rows, batches.num_bad) == (lines, unit, 3, 0)
    assert read_batches(tmp_path / "t.csv", SCHEMA).notes == []
    assert batches.notes == [
        "columns that the model does not know are ignored: 'a.b'",
        "'new' is missing in 1 row, which it never was before: it counts as none of the categories",
    ]


@pytest.mark.usefixtures("small_blocks")
def test_batches_have_the_rows_asked_for_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("size,colour,new\n" + "".join(f"{k},red,true\n" for k in range(50)))
    pq.write_table(pa.table({"size": range(50), "colour": ["red"] * 50, "new": [True] * 50}), tmp_path / "t.parquet")
    for source in (path, tmp_path / "t.parquet"):
        begun = read_batches(source, SCHEMA, rows=7)
        next(iter(begun))
        assert begun.estimate == pytest.approx(50, rel=0.2)
        parts = list(read_batches(source, SCHEMA, rows=7))
        assert [len(part) for part in parts] == [7] * 7 + [1]
        frame, lines = together(parts)
        assert frame["size"] == list(range(50))
        assert lines == sorted(lines)
        assert SCHEMA.encode(parts[0].frame).shape == (7, 7)


@pytest.mark.parametrize("block", [16, 2**20])
def test_bad_rows_are_skipped_with_their_line_numbers_or_refuse_the_file(monkeypatch, block):
    monkeypatch.setattr(decoding, "BLOCK", block)
    text = (
        b"\nsize,colour,new\n"
        b"1,red,true\n"
        b'2,"two\nlines",true\n'
        b"\n   \n"
        b"big,red,true\n"
        b"4,red\n"
        b"5,blue,false,extra\n"
        b"inf,blue,false\n"
        b'huge,5"pipe,true\n'
        b" NA ,blue,false\n"
        b'"9",red,"true"\n'
    )
    batches = read_batches(text, SCHEMA, on_bad="skip")
    frame, lines = together(batches)
    np.testing.assert_array_equal(frame["size"], [1, 2, np.nan, 9])
    assert frame["colour"] == ["red", "two\nlines", "blue", "red"]
    assert lines == [3, 4, 13, 14]
    assert [str(bad) for bad in batches.bad] == [
        "line 8: 'size' is 'big', not a number",
        "line 9: 2 fields instead of 3",
        "line 10: 4 fields instead of 3",
        "line 11: 'size' is infinite",
        "line 12: 'size' is 'huge', not a number",
    ]
    assert batches.notes[-1].startswith("5 bad rows are left out: line 8")
    with pytest.raises(InvalidInput, match=r"the table: line 8: 'size' is 'big', not a number.*left out") as problem:
        list(read_batches(text, SCHEMA))
    assert (problem.value.option, problem.value.value) == ("on-bad", "skip")


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(
        st.text(st.characters(codec="ascii", exclude_characters="\r\x00"), max_size=6), min_size=1, max_size=9
    ),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    blanks=st.lists(st.integers(0, 2), min_size=9, max_size=9),
    block=st.integers(4, 40),
)
def test_line_numbers_are_those_in_which_the_rows_begin(cells, quoting, blanks, block):
    written, expected = io.StringIO(), []
    writer = csv.writer(written, quoting=quoting, lineterminator="\n")
    writer.writerow(["size", "colour", "new"])
    for k, (cell, blank) in enumerate(zip(cells, blanks, strict=False)):
        written.write("\n" * blank)
        expected.append(written.getvalue().count("\n") + 1)
        writer.writerow([k, cell, "true"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BLOCK", block)
        frame, lines = together(read_batches(written.getvalue().encode(), SCHEMA))
    assert lines == expected
    assert frame["size"] == list(range(len(cells)))


def test_columns_that_are_not_there_are_named_with_the_nearest():
    with pytest.raises(InvalidInput, match=r"the table has no column 'size': did you mean 'Size'\?"):
        read_batches(GOOD.replace("size", "Size").encode(), SCHEMA)
    with pytest.raises(InvalidInput, match="no columns 'size', 'colour', 'new'"):
        read_batches(b"x,y\n1,2\n", SCHEMA)
    with pytest.raises(InvalidInput, match="several columns of the name 'id'"):
        read_batches(GOOD.replace("size", "id").encode(), SCHEMA)


def test_extra_columns_and_unknown_categories_are_noted_and_predicted():
    text = "shop,colour,size,new\na,green,1,true\nb,red,2,true\nc,pink,3,perhaps\n"
    batches = read_batches(text.encode(), SCHEMA)
    frame, _ = together(batches)
    assert frame["colour"] == ["green", "red", "pink"]
    assert batches.notes == [
        "columns that the model does not know are ignored: 'shop'",
        "'colour': 2 cells hold categories that the model does not know: 'green', 'pink'",
        "'new': 1 cell holds a category that the model does not know: 'perhaps'",
    ]


def test_values_outside_of_what_was_seen_and_new_gaps_are_noted():
    batches = read_batches(b"size,colour,new\n1,red,true\n200,NA,NA\n-301,red,\n", SCHEMA, rows=1)
    assert len(list(batches)) == 3
    assert batches.notes == [
        "'size' lies outside of what was seen, -300 to 100, in 2 rows",
        "'new' is missing in 2 rows, which it never was before: it counts as none of the categories",
    ]


def test_the_target_is_delivered_when_it_is_asked_for():
    text = GOOD.replace("3, blue ,-3e2,-,30", "3,blue,1,true,NA")
    batches = read_batches(text.encode(), SCHEMA, target=True)
    (batch,) = batches
    assert batch.target is not None
    assert batch.target.tolist() == [10, 20]
    assert (batch.lines.tolist(), batches.no_target) == ([2, 3], 1)
    assert batches.notes == ["1 row has no 'price'"]
    with pytest.raises(InvalidInput, match="no column 'price'"):
        read_batches(b"size,colour,new\n1,red,true\n", SCHEMA, target=True)


def test_a_class_that_is_none_makes_a_row_bad_if_the_target_is_asked_for():
    schema = TableSchema((number("x"),), ClassTarget("y", ("false", "true"), "boolean"))
    batches = read_batches(b"x,y\n1,TRUE\n2,maybe\n3,false\n", schema, target=True, on_bad="skip")
    (batch,) = batches
    assert batch.target is not None
    assert batch.target.tolist() == ["true", "false"]
    assert str(batches.bad[0]) == "line 3: 'y' is 'maybe', none of the classes 'false', 'true'"
    assert len(next(iter(read_batches(b"x,y\n1,TRUE\n2,maybe\n3,false\n", schema)))) == 3


def test_integers_are_classes_whatever_a_parquet_file_makes_of_them(tmp_path):
    schema = TableSchema((number("x"),), ClassTarget("y", ("0", "1"), "integer"))
    for values in ([0, 1, None], [0.0, 1.0, None], ["0", "1", ""]):
        pq.write_table(pa.table({"x": ["1", "NA", "2"], "y": values}), tmp_path / "t.parquet")
        (batch,) = read_batches(tmp_path / "t.parquet", schema, target=True)
        assert batch.target is not None
        assert batch.target.tolist() == ["0", "1"]
        np.testing.assert_array_equal(batch.frame["x"], [1, np.nan])


def test_text_in_a_parquet_column_of_numbers_is_a_bad_row_and_other_types_are_refused(tmp_path):
    schema = TableSchema((number("x"),), PRICE)
    pq.write_table(pa.table({"x": ["1", "two", "3"]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match="row 2: 'x' is 'two', not a number"):
        list(read_batches(tmp_path / "t.parquet", schema))
    pq.write_table(pa.table({"x": pa.array([1], pa.timestamp("s"))}), tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match=r"'x' .* must hold numbers, as when the model was fitted, not timestamp"):
        read_batches(tmp_path / "t.parquet", schema)


def test_files_that_cannot_be_trusted_are_refused_even_if_bad_rows_are_skipped():
    for text, message in (
        (b"", "is empty"),
        (b"size,colour,new\n", "names of 3 columns, but no rows"),
        ("size,colour,new\n1,Genève,true\n".encode() + b"1,M\xfcnchen,true\n", "line 3 holds the byte 0xFC"),
        (b'size,colour,new\n1,red,true\n2,"red,true\n', "row of line 3 is not closed"),
    ):
        with pytest.raises(InvalidInput, match=message):
            list(read_batches(text, SCHEMA, on_bad="skip"))
    with pytest.raises(InvalidInput, match="on_bad must be"):
        read_batches(GOOD.encode(), SCHEMA, on_bad="mend")  # pyright: ignore[reportArgumentType]


def test_a_file_can_be_gone_through_again():
    batches = read_batches(GOOD.encode(), SCHEMA)
    first = together(batches)
    np.testing.assert_equal(together(batches), first)
    assert batches.num_rows == 3
