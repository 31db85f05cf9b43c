"""Tables read from files."""

import contextlib
import gzip
import io
import json
import pickle
import sqlite3
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darkbayes.errors import InvalidInput
from darkbayes.tables import read_table
from darkbayes.tables.cells import MISSING
from darkbayes.tables.columns import require_columns
from tables.understanding import kinds

CITIES = "city,size,new,price\nUlm,1.5,True,10\nBonn,NA,false,20.5\n-,3e2,TRUE,\n"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_csv_file_is_read_whatever_separates_its_columns(write, delimiter, mark):
    table = read_table(write(mark + CITIES.replace(",", delimiter).encode()))
    assert kinds(table) == {"city": "text", "size": "number", "new": "boolean", "price": "number"}
    assert table.columns["city"].values.tolist() == ["Ulm", "Bonn", None]
    np.testing.assert_array_equal(table.columns["size"].values, [1.5, np.nan, 300])
    assert table.columns["new"].values.tolist() == ["true", "false", "true"]
    assert table.lines.tolist() == [2, 3, 4]


@pytest.mark.parametrize("block", [1, 8 * 2**20], ids=["cut anywhere", "whole"])
@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_and_a_last_line_without_one_are_read(write, end, block, monkeypatch):
    monkeypatch.setattr("darkbayes.tables.decoding.BLOCK", block)
    table = read_table(write(CITIES.rstrip().replace("\n", end)))
    assert table.columns["city"].values.tolist() == ["Ulm", "Bonn", None]
    assert table.lines.tolist() == [2, 3, 4]


def test_a_compressed_csv_file_and_a_parquet_file_hold_the_same_as_the_csv_file(write, tmp_path):
    plain = read_table(write(CITIES))
    pq.write_table(
        pa.table(
            {
                "city": pa.array(["Ulm", "Bonn", None]).dictionary_encode(),
                "size": pa.array([1.5, None, 300], pa.float32()),
                "new": [True, False, True],
                "price": [10, 20.5, None],
            }
        ),
        tmp_path / "t.parquet",
    )
    for other in (write(gzip.compress(CITIES.encode()), "table.csv.gz"), tmp_path / "t.parquet"):
        table = read_table(other)
        assert kinds(table) == kinds(plain)
        for name, column in table.columns.items():
            np.testing.assert_array_equal(column.values, plain.columns[name].values)
    assert table.place(2) == "row 3"


def test_line_numbers_are_right_after_quoted_line_ends_and_blank_lines(write):
    table = read_table(write('\na,b\n\n"one\ntwo, ""three""",1\n\n\n"x",2\n5" pipe,3\n"open\n",4\n'))
    assert table.lines.tolist() == [4, 8, 9, 10]
    assert table.columns["a"].values.tolist() == ['one\ntwo, "three"', "x", '5" pipe', "open"]


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters='\n",;'), max_size=8),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        max_size=12,
    ),
    delimiter=st.sampled_from(",;\t|"),
)
def test_a_written_csv_file_reads_back(tmp_path_factory, data, delimiter):
    # A first row of text that is no number keeps the first column text.
    data = [("text", 0.5), ("text", 0.5), *data, *[("text", 1.5)] * len(data)]
    path = tmp_path_factory.mktemp("written") / "table.csv"
    pd.DataFrame(data, columns=["words", "numbers"]).to_csv(path, sep=delimiter, index=False)
    table = read_table(path)
    words = [None if word.strip() in MISSING else word.strip() for word, _ in data]
    assert table.columns["words"].values.tolist() == words
    np.testing.assert_array_equal(table.columns["numbers"].values, [number for _, number in data])


def test_a_wrong_delimiter_is_refused_with_the_likely_one(write):
    path = write("a;b;y\n1;2;3\n")
    with pytest.raises(InvalidInput, match=r"one column only if a comma separates them.*is ';' the delimiter"):
        read_table(path, delimiter=",")
    assert list(read_table(path, delimiter=";").columns) == ["a", "b", "y"]
    with pytest.raises(InvalidInput, match="one character"):
        read_table(path, delimiter="::")


def test_a_first_line_that_tells_the_delimiter_is_no_header(write):
    table = read_table(write("sep=;\r\na;b\r\n1,5;x\r\n2,5;y\r\n"))
    assert list(table.columns) == ["a", "b"]
    assert table.columns["a"].values.tolist() == [1.5, 2.5]
    assert table.place(1) == "line 4"


def test_percentages_of_a_spreadsheet_are_what_people_see(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["part", "whole"], [0.242, 1], [None, 2], [0.05, 3]):
        book.active.append(row)
    for row in (2, 4):
        book.active.cell(row, 1).number_format = "0.0%"
    book.save(tmp_path / "t.xlsx")
    columns = read_table(tmp_path / "t.xlsx").columns
    np.testing.assert_array_equal(columns["part"].values, [24.2, np.nan, 5.0])
    assert columns["whole"].values.tolist() == [1.0, 2.0, 3.0]


def test_a_path_that_is_no_file_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(InvalidInput, match="does not exist"):
        read_table(tmp_path / "none.csv")


def test_tables_need_neither_jax_nor_arrow_until_a_file_is_read():
    script = """
import sys
sys.modules["jax"] = sys.modules["pyarrow"] = sys.modules["pandas"] = None
from darkbayes.errors import InvalidInput
from darkbayes.tables import frame_of, from_columns, read_table
from darkbayes.tables.schema import Number, TableSchema
schema = TableSchema((Number("x", 0.0, 1.0, 0.0, False, 0.0, 1.0, False),), target=None)
assert frame_of(from_columns({"x": ["3", "4"], "y": ["a", "b"]}), schema)["x"].tolist() == [3, 4]
try:
    read_table(__import__("os").devnull)
except InvalidInput as problem:
    assert "darkbayes[tables]" in str(problem)
else:
    raise AssertionError("the file was read without arrow")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_spreadsheet_is_one_whatever_its_name_and_packed_or_not(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book, content = openpyxl.Workbook(), io.BytesIO()
    for row in (["a", "b"], [1, "x"], [2, "y"]):
        book.active.append(row)
    book.save(content)
    for name, written in {"t.xls": content.getvalue(), "t.xlsx.gz": gzip.compress(content.getvalue())}.items():
        (tmp_path / name).write_bytes(written)
        assert read_table(tmp_path / name).columns["a"].values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_files_that_are_read_here_and_there_have_to_be_unpacked(kind, tmp_path):
    path = tmp_path / "t"
    if kind == "parquet":
        pq.write_table(pa.table({"a": [1, 2]}), path)
    else:
        with contextlib.closing(sqlite3.connect(path)) as base:
            base.execute("create table t (a)")
            base.commit()
    (tmp_path / "t.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(InvalidInput, match=rf"is compressed, and holds a file for {kind}: unpack it"):
        read_table(tmp_path / "t.gz")


def test_a_damaged_page_of_parquet_is_refused_by_the_name_of_its_file(tmp_path):
    pq.write_table(pa.table({"a": np.arange(5000.0), "y": np.arange(5000.0)}), tmp_path / "t.parquet")
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    content[20:60] = b"\xff" * 40
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"t\.parquet cannot be read as Parquet \(.*\): write it again"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\n<HTML><body>a,b</body>", "a web page"),
        (b"<!doctype html>\n<p>", "a web page"),
        (b"<?XML version='1.0'?>", "XML"),
        (pickle.dumps({"a": [1]}, protocol=2), "a pickle"),
    ],
)
def test_what_is_no_table_is_called_what_it_is(content, what, tmp_path):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InvalidInput, match=rf"t\.csv is {what}.*, which is not read here"):
        read_table(tmp_path / "t.csv")


def test_a_query_writes_nothing(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as base:
        base.execute("create table t as select 1 as a")
        base.commit()
    with pytest.raises(InvalidInput, match="SQLite says 'not authorized': correct the query"):
        read_table(tmp_path / "t.db", query=f"attach '{tmp_path / 'new.db'}' as n")
    assert read_table(tmp_path / "t.db", query="select a + 1 as b from t").columns["b"].values.tolist() == [2.0]
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as base:
        base.execute("create table t as select 1 as a")
    with pytest.raises(InvalidInput, match="DuckDB says"):
        read_table(tmp_path / "t.duckdb", query=f"copy t to '{tmp_path / 'stolen.csv'}'")
    assert read_table(tmp_path / "t.duckdb", query="select a + 1 as b from t").columns["b"].values.tolist() == [2.0]
    assert {path.name for path in tmp_path.iterdir()} == {"t.db", "t.duckdb"}


def test_json_with_a_row_under_each_number_is_a_table(tmp_path):
    for number, content in enumerate(({"0": {"a": 1, "b": "x"}, "1": {"a": 2, "b": "y"}}, {"a": {"0": 1, "1": 2}})):
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
        assert read_table(tmp_path / f"{number}.json").columns["a"].values.tolist() == [1.0, 2.0]


def test_a_column_that_is_there_is_not_suggested_for_another():
    with pytest.raises(InvalidInput, match=r"has no columns 'CHAS', 'RIM': did you mean 'RM'\?"):
        require_columns(["CRIM", "CHAS", "RIM"], ["CRIM", "RM"], "t.csv")
