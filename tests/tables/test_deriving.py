"""Dates, numbers with marks and free text: what is read of a cell, what is made of it, and who may overrule a guess."""

import datetime
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from darkbayes import cli
from darkbayes.errors import InvalidInput
from darkbayes.tables import frame_of, from_columns, read_batches, read_table
from darkbayes.tables.guessing import Wishes
from darkbayes.tables.marks import Marked
from darkbayes.tables.moments import Dates, moment_of, parts_of
from darkbayes.tables.schema import schema_from_dict, schema_to_dict
from darkbayes.tables.words import TextColumn, counts_of
from tables.understanding import infer_schema

MOMENT = datetime.datetime(2021, 3, 4, 17, 30)
WRITTEN = (
    "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.000Z", "%Y-%m-%d %H:%M:%S+02:00", "%Y/%m/%d %H:%M",
    "%d.%m.%Y %H:%M", "%d.%m.%y %H:%M", "%d-%m-%Y %I:%M %p", "%d %b %Y %H:%M", "%d-%b-%y %H:%M", "%d %B %Y, %H:%M",
    "%B %d, %Y %I:%M %p", "%b %d %Y %H:%M", "%a, %d %b %Y %H:%M:%S GMT",
)  # fmt: skip


@pytest.mark.parametrize("form", WRITTEN)
def test_a_moment_is_the_same_however_it_is_written(form):
    assert moment_of(MOMENT.strftime(form)) == (MOMENT - datetime.datetime(1970, 1, 1)).total_seconds()


@pytest.mark.parametrize(
    "text",
    ["2021-02-29", "31.4.2021", "2021-13-01", "1.2.3.4", "12:60", "25:00", "13:00 pm", "4 Foo 2021", "20210304", "x"],
)
def test_what_is_no_moment_is_refused(text):
    for clock in (False, True):
        with pytest.raises(ValueError, match="not a"):
            moment_of(text, clock=clock)


def test_parts_are_those_of_the_calendar():
    moments = pd.Series(
        pd.to_datetime(["1899-12-31 23:59", "1970-01-01 00:00", "2000-02-29 06:00", "2024-12-31 12:30"])
    )
    seconds = (moments - pd.Timestamp(0)).dt.total_seconds().to_numpy()
    made = parts_of(np.append(seconds, np.nan), seconds[0])
    assert all(np.isnan(values[-1]) for values in made.values())
    calendar = moments.dt.isocalendar()
    expected = {
        "year": moments.dt.year,
        "month": moments.dt.month,
        "weekday": calendar.day,
        "hour": moments.dt.hour + moments.dt.minute / 60,
        "days": (moments - moments[0]) / pd.Timedelta(days=1),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(made[name][:-1], values.astype(float), err_msg=name)


def test_a_moment_is_the_same_whatever_type_holds_it():
    days = pd.Series(pd.date_range("2021-03-01 10:00", periods=20, freq="31h"))
    zoned = days.dt.tz_localize("Europe/Paris")
    columns = {
        "numpy": days.to_numpy(),
        "pandas": days,
        "zoned": zoned,
        "objects": np.asarray(days.dt.to_pydatetime().tolist(), object),
        "texts": days.astype(str).tolist(),
        "arrow": pa.array(days, pa.timestamp("ns")),
        "arrow, zoned": pa.array(zoned, pa.timestamp("ms", "Europe/Paris")),
        "pandas, zoned by arrow": zoned.astype(pd.ArrowDtype(pa.timestamp("us", "Europe/Paris"))),
    }
    table = from_columns(columns | {"y": np.arange(20) + 0.5})
    for name in columns:
        column = table.columns[name]
        np.testing.assert_array_equal(column.values, (days - pd.Timestamp(0)).dt.total_seconds(), err_msg=name)
    gap = pd.Series([zoned[0], None], dtype=pd.ArrowDtype(pa.timestamp("us", "Europe/Paris")))
    seconds = (days[0] - pd.Timestamp(0)).total_seconds()
    np.testing.assert_array_equal(from_columns({"at": gap}).columns["at"].values, [seconds, np.nan])
    clock = from_columns({"at": pa.array([3600, None], pa.time32("s")), "too": [datetime.time(1), None]})
    for column in clock.columns.values():
        np.testing.assert_array_equal(column.values, [3600.0, np.nan])


def test_a_doubtful_order_is_a_guess_that_can_be_overruled():
    values = {"when": [f"{k % 12 + 1}/{k % 7 + 1}/2021" for k in range(40)], "y": np.arange(40) + 0.5}
    guessed = infer_schema(from_columns(values), "y")
    assert not guessed.schema.sources[0].day_first
    assert any("month first, which is a guess (day_first)" in note for note in guessed.notes)
    said = infer_schema(from_columns(values, wishes=Wishes(day_first=True)), "y")
    assert said.schema.sources[0].day_first
    assert not any("guess" in note for note in said.notes)


def test_columns_that_surely_have_decimal_commas_decide_for_those_that_may(write):
    lines = [f"{k},5;1.{k:03d};{k}" for k in range(20)]
    table = read_table(write("\n".join(["a;b;y", *lines])))
    np.testing.assert_allclose(table.columns["a"].values, np.arange(20) + 0.5)
    np.testing.assert_allclose(table.columns["b"].values, 1000 + np.arange(20))
    alone = write("\n".join(["b;y", *(f"1,{k:03d};{k}" for k in range(20))]))
    np.testing.assert_allclose(read_table(alone).columns["b"].values, 1000 + np.arange(20))
    assert "is a guess (decimal)" in read_table(alone).columns["b"].note
    sure = read_table(alone, wishes=Wishes(decimal=",")).columns["b"]
    np.testing.assert_allclose(sure.values, 1 + np.arange(20) / 1000)
    assert "guess" not in sure.note


def test_a_number_with_marks_is_read_by_its_own_marks_alone():
    euros = Marked("x", ",", ".", "€")
    values = {"1.234,5 €": 1234.5, "€ 7": 7.0, "-1.234.567": -1234567.0, "1,5e3": 1500.0, 2.5: 2.5}
    values |= {"-€ 7": -7.0, "- 3,5 €": -3.5, "(€1.234,5)": -1234.5, "+€2": 2.0}
    assert {text: euros.value(text) for text in values} == values
    assert np.isnan(euros.value("NA"))
    for wrong in ("1.5", "12.34,5", "1,234.5", "$5", "1_000", "1e999", "--€5", "-€-5"):
        with pytest.raises(ValueError, match=r"not a number|infinite"):
            euros.value(wrong)


def test_words_are_counted_by_a_hash_that_stays():
    # The bucket of a word is its CRC: a student that was shipped long ago reads by it.
    assert np.flatnonzero(counts_of("roof")).tolist() == [19]
    assert counts_of("roof roof")[19] == pytest.approx(np.log(3))
    words = TextColumn("remark", (19,))
    np.testing.assert_allclose(words.spread(np.asarray(["roof", None], object))["remark (words 20)"], [np.log(2), 0])


def test_what_somebody_says_of_a_column_is_done_or_refused(write):
    rows = [f"{k % 4},{20210301 + k % 28},0{k % 3},id {k},{k + 0.5}" for k in range(60)]
    path = write("\n".join(["zip,day,code,name,y", *rows]))
    kinds = {"zip": "category", "day": "date", "code": "number", "name": "category"}
    table = read_table(path, wishes=Wishes(kinds))
    schema = infer_schema(table, "y").schema
    assert [column.name for column in schema.categories] == ["zip", "name"]
    assert frame_of(table, schema)["code"].tolist() == [k % 3 for k in range(60)]
    assert frame_of(table, schema)["day (days)"].tolist() == [k % 28 for k in range(60)]
    assert schema_from_dict(json.loads(json.dumps(schema_to_dict(schema)))) == schema
    (batch,) = read_batches(path, schema)
    assert batch.frame["day (days)"].tolist() == [k % 28 for k in range(60)]
    for kind, problem in (
        ("number", "'name' holds numbers, but line 2 has 'id 0'"),
        ("date", "'name' holds dates, but"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            infer_schema(read_table(path, wishes=Wishes({"name": kind})), "y")
    with pytest.raises(InvalidInput, match="no column 'nam': did you mean 'name'"):
        read_table(path, wishes=Wishes({"nam": "text"}))
    with pytest.raises(InvalidInput, match="must be one of number, category, date, text, not 'words'"):
        Wishes({"name": "words"})


GRADED = pd.DataFrame(
    {
        "country": ["NA", "DE", "FR", None] * 15,
        "grade": ["None", "A", "-"] * 20,
        "paid": ["yes", "no", "?"] * 20,
        "size": [str(k % 7) if k % 5 else "NA" for k in range(60)],
        "y": np.arange(60) + 0.5,
    }
)


def as_file(name: str, folder: Any) -> Any:
    if name == "csv":
        GRADED.to_csv(folder / "t.csv", index=False)
    elif name == "parquet":
        GRADED.to_parquet(folder / "t.parquet")
    return folder / f"t.{name}"


SOURCES = {
    "csv": lambda folder, wishes: read_table(as_file("csv", folder), wishes=wishes),
    "parquet": lambda folder, wishes: read_table(as_file("parquet", folder), wishes=wishes),
    "pandas": lambda folder, wishes: from_columns(GRADED, wishes=wishes),
    "categories": lambda folder, wishes: from_columns(GRADED.astype({"country": "category"}), wishes=wishes),
    "pyarrow": lambda folder, wishes: from_columns(pa.table(GRADED), wishes=wishes),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("missing", "countries", "grades", "paid"),
    [
        (None, "DE FR", "A", "no yes"),
        ((), "DE FR NA", "- A None", "? no yes"),
        ((" ? ",), "DE FR NA", "- A None", "no yes"),
        (("A", "-"), "DE FR NA", "None", "? no yes"),
    ],
)
def test_what_counts_as_missing_in_text_is_told_and_can_be_said(source, missing, countries, grades, paid, tmp_path):
    table = SOURCES[source](tmp_path, Wishes(missing=missing))
    inferred = infer_schema(table, "y")
    known = {column.name: " ".join(column.categories) for column in inferred.schema.categories}
    assert known == {"country": countries, "grade": grades, "paid": paid}
    # What is missing in a column of numbers is no number, whatever it means elsewhere.
    assert [(column.name, column.flagged) for column in inferred.schema.numbers] == [("size", True)]
    said = {"country": "'NA' (15 cells)", "grade": "'None' (20 cells), '-' (20 cells)", "paid": "'?' (20 cells)"}
    guesses = [f"{name!r}: {texts} read as missing, which is a guess (missing)" for name, texts in said.items()]
    notes = [] if missing is not None else guesses
    assert [note for note in inferred.notes if note.endswith("(missing)")] == notes
    # Whoever reads by the schema, stored and restored, reads the same, and needs to be told nothing.
    schema = schema_from_dict(json.loads(json.dumps(schema_to_dict(inferred.schema))))
    frame = frame_of(table, schema)
    (batch,) = read_batches(as_file("csv", tmp_path), schema)
    (packed,) = read_batches(as_file("parquet", tmp_path), schema)
    for other in (batch.frame, packed.frame, frame_of(from_columns(GRADED), schema)):
        for name, values in frame.items():
            np.testing.assert_array_equal(np.asarray(other[name]), values, err_msg=name)
    np.testing.assert_array_equal(schema.encode(batch.frame), schema.encode(frame))
    assert [text is None for text in frame["country"][:4].tolist()] == [missing is None, False, False, True]


def test_categories_of_pandas_and_mixed_cells_are_read_by_what_they_say():
    sizes, mixed = pd.cut(np.arange(40) % 8, 4), ["NA", MOMENT.date(), True, "small"] * 10
    table = from_columns(pd.DataFrame({"size": sizes, "mixed": mixed, "y": np.arange(40) + 0.5}))
    inferred = infer_schema(table, "y")
    frame = frame_of(table, inferred.schema)
    assert frame["size"].tolist() == [str(size) for size in sizes]
    assert frame["mixed"][:4].tolist() == [None, "2021-03-04", "true", "small"]


def test_what_counts_as_missing_is_told_of_columns_that_somebody_chose_and_of_targets():
    notes = infer_schema(from_columns(GRADED, wishes=Wishes({"country": "category", "paid": "text"})), "y").notes
    assert sum("which is a guess (missing)" in note for note in notes) == 3
    inferred = infer_schema(from_columns(GRADED.drop(columns="y")), "country")
    assert inferred.schema.target.classes == ("DE", "FR")
    assert "'country': 'NA' (15 cells) read as missing, which is a guess (missing)" in inferred.notes
    inferred = infer_schema(from_columns(GRADED.drop(columns="y"), wishes=Wishes(missing=())), "country")
    assert inferred.schema.target.classes == ("DE", "FR", "NA")


@pytest.mark.parametrize("missing", [("12",), (" 1e3",), ("True",), (3,), "NA"])
def test_a_missing_value_is_said_by_texts_that_nothing_else_says(missing):
    with pytest.raises(InvalidInput, match="missing must"):
        Wishes(missing=missing)


def test_the_command_line_says_what_contradicts_itself(write, capsys):
    path = write("a,y\n" + "1,2\n" * 20)
    for more, problem in (
        (["--number", "a", "--ignore", "a"], "'a' is named by --number and by --ignore"),
        (["--decimal", "x"], "decimal must be a point or a comma, not 'x'"),
        (["--query", "select 1"], "is a CSV file: leave out the query 'select 1'"),
        (["--encoding", "klingon"], "encoding 'klingon' is not known"),
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(["fit", str(path), "--target", "y", *more])
        assert stop.value.code == 2
        assert problem in capsys.readouterr().err


def test_several_files_must_have_the_same_columns_and_count_their_rows_through(write):
    first, second = write("a,y\n1,2\n3,4\n", "1.csv"), write("y,a\n6,5\n8,oops\n", "2.csv")
    table = read_table([first, write("y,a\n6,5\n", "3.csv")])
    assert table.columns["a"].values.tolist() == [1, 3, 5]
    assert table.place(2) == "row 3"
    schema = infer_schema(from_columns({"a": np.sin(np.arange(20.0)), "y": np.arange(20.0)}), "y").schema
    with pytest.raises(InvalidInput, match=r"1.csv and 1 other: row 4: 'a' is 'oops', not a number"):
        list(read_batches([first, second], schema))
    with pytest.raises(InvalidInput, match=r"4.csv has no column 'y'"):
        read_table([first, write("a,b\n1,2\n", "4.csv")])


def test_a_target_may_have_decimal_commas(write):
    path = write("\n".join(["a;y", *(f"{k % 7};{k},25" for k in range(40))]))
    schema = infer_schema(read_table(path), "y").schema
    (batch,) = read_batches(path, schema, target=True)
    np.testing.assert_allclose(batch.target, np.arange(40) + 0.25)


def test_a_file_of_another_type_is_refused_before_it_is_read(tmp_path):
    dates = Dates("when", True, False, parts=("year",))
    schema = infer_schema(from_columns({"when": ["2020-01-01", "2021-01-02"] * 10, "y": np.arange(20.0)}), "y").schema
    assert dates.columns == ("when (year)",)
    pa.parquet.write_table(pa.table({"when": [True]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match="must hold dates, as when the model was fitted, not bool"):
        read_batches(tmp_path / "t.parquet", schema)


def test_numbers_of_a_spreadsheet_are_days_if_a_column_is_named_as_dates():
    """As Excel counts them: 1 January 2020 is 43831."""
    cells = {"when": 43831.0 + np.arange(40) / 4, "seconds": 1577836800.0 + 21600 * np.arange(40)}
    wishes = Wishes(dict.fromkeys(cells, "date"))
    columns = from_columns(cells, wishes=wishes).columns
    np.testing.assert_allclose(columns["when"].values, columns["seconds"].values, rtol=1e-12)


def test_a_part_of_dates_that_is_the_same_everywhere_is_none_however_many_are_missing():
    days = [f"2021-03-{k % 28 + 1:02d}" if k % 6 else "" for k in range(60)]
    schema = infer_schema(from_columns({"sold": days, "y": np.arange(60.0)}), "y").schema
    assert [column.name for column in schema.columns] == ["sold (weekday)", "sold (days)"]
    assert [column.flagged for column in schema.columns] == [True, False]
