"""What is made of a table's columns."""

import dataclasses
import datetime
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darkbayes.errors import InvalidInput
from darkbayes.fit import prepare_table
from darkbayes.outcomes import ClassTarget, NumberTarget
from darkbayes.outcomes.transform import choose_transform
from darkbayes.tables import frame_of, from_columns, read_table, target_of
from darkbayes.tables.inference import LEAST_ROWS, MOST_CATEGORIES, infer_inputs
from darkbayes.tables.schema import REACH, Category, Number, TableSchema, schema_from_dict, schema_to_dict
from tables.understanding import infer_schema, rows


def test_columns_become_numbers_and_categories_with_the_statistics_of_the_rows_that_train(write):
    def cells(k):
        return ("" if k == 4 else k * k, "blue" if k % 3 else "red", k + 0.25)

    table = read_table(write(rows(cells)))
    train = np.arange(20)
    inferred = infer_schema(table, "y", rows=train)
    squares = np.asarray([k * k for k in range(20) if k != 4], float)
    number, category = inferred.schema.columns
    assert number == Number("a", squares.mean(), pytest.approx(squares.std()), 100.0, True, 0.0, 361.0, True)
    assert category == Category("b", ("blue", "red"), flagged=False)
    assert isinstance(inferred.schema.target, NumberTarget)
    assert (inferred.schema.target.low, inferred.schema.target.high) == (0.25, 19.25)
    assert schema_from_dict(json.loads(json.dumps(schema_to_dict(inferred.schema)))) == inferred.schema
    inputs = inferred.schema.encode(frame_of(table, inferred.schema))
    assert inputs.shape == (30, 4)
    assert inputs[4].tolist() == [pytest.approx((100 - squares.mean()) / squares.std(), rel=1e-5), 1, 1, 0]
    assert inferred.schema.target.encode(target_of(table, inferred.schema)).shape == (30, 1)


def test_columns_of_no_use_are_left_out_with_the_reason():
    count = 40
    table = from_columns(
        {
            "row": np.arange(count) + 1,
            "same": ["x"] * count,
            "zero": np.zeros(count),
            "none": [None] * count,
            "name": [f"person {k}" for k in range(count)],
            "mine": np.arange(count) % 7,
            "good": np.arange(count) % 5,
            "half": [3.0 if k % 2 else None for k in range(count)],
            "y": np.arange(count) + 0.5,
        }
    )
    inferred = infer_schema(table, "y", ignore=["mine"])
    assert [column.name for column in inferred.schema.columns] == ["good", "half"]
    assert inferred.schema.ignored == {
        "row": "it counts the rows (name it as a number to read it)",
        "same": "every row has the same value",
        "zero": "every row has the same value",
        "none": "every value is missing",
        "name": "text that differs in almost every row, as names and identifiers do",
        "mine": "you asked to leave it out",
    }
    assert "'same', 'zero' are left out: every row has the same value" in inferred.notes
    assert np.isfinite(inferred.schema.encode(frame_of(table, inferred.schema))).all()


def test_years_are_no_identifiers_though_they_follow_each_other_too():
    years, noise = np.arange(1950, 2010), np.random.default_rng(0).normal(size=60)
    inferred = infer_schema(from_columns({"year": years, "y": years + noise}), "y")
    assert [column.name for column in inferred.schema.columns] == ["year"]
    with pytest.raises(
        InvalidInput, match=r"has no column to predict 'y' from: .*, as identifiers do \(name it as a num"
    ):
        infer_schema(from_columns({"number": years + 1_000, "y": years + noise}), "y")


def test_of_many_categories_the_most_frequent_are_kept():
    values = [f"c{k:03d}" for k in range(80) for _ in range(2 if k < MOST_CATEGORIES else 1)] * 2
    inferred = infer_schema(from_columns({"c": values, "y": np.arange(len(values)) + 0.5}), "y")
    (column,) = inferred.schema.categories
    assert column.categories == tuple(f"c{k:03d}" for k in range(MOST_CATEGORIES))
    assert any("80 categories" in note and "23%" in note for note in inferred.notes)


@pytest.mark.parametrize(
    ("values", "task", "expected"),
    [
        (["a", "b"] * 10, "auto", ("a", "b")),
        ([True, False] * 10, "auto", ("false", "true")),
        ([k % 10 for k in range(60)], "auto", tuple("0123456789")),
        ([k % 12 + 1 for k in range(60)], "auto", tuple(str(k) for k in range(1, 13))),
        ([-1, 1] * 10, "auto", ("-1", "1")),
        ([k % 6 + 3 for k in range(60)], "auto", None),
        ([k % 6 + 3 for k in range(60)], "classification", tuple("345678")),
        ([k % 10 for k in range(60)], "regression", None),
        ([k + 1 for k in range(15)], "auto", None),
        ([k % 30 for k in range(90)], "auto", None),
        ([0.5, 1.0] * 10, "auto", None),
    ],
)
def test_the_task_follows_from_the_target_unless_it_is_given(values, task, expected):
    table = from_columns({"x": np.sin(np.arange(len(values))), "y": values})
    target = infer_schema(table, "y", task=task).schema.target
    assert (target.classes if isinstance(target, ClassTarget) else None) == expected


def test_classes_are_encoded_and_keep_the_kind_they_had_in_the_file(write):
    for values, kind in ((["yes", "no"], "text"), (["TRUE", "False"], "boolean"), (["1", "0"], "integer")):
        table = read_table(write(rows(lambda k, values=values: (np.sin(k), k % 4, values[k % 2]))))
        schema = infer_schema(table, "y").schema
        target = schema.target
        assert isinstance(target, ClassTarget)
        assert target.kind == kind
        codes = target.encode(target_of(table, schema))
        assert codes[0] != codes[1]
        assert codes.tolist() == codes[:2].tolist() * 15


def test_rows_without_a_target_are_left_out():
    y = np.where(np.arange(30) % 10 == 3, np.nan, np.arange(30) + 0.5)
    table = from_columns({"x": np.cos(np.arange(30)), "y": y})
    assert infer_schema(table, "y").usable.tolist() == [row for row in range(30) if row % 10 != 3]


def test_the_logarithm_is_chosen_where_it_helps_and_undone_by_the_target():
    x = np.random.default_rng(0).normal(size=(200, 2))
    noise = np.random.default_rng(1).normal(size=200)
    for y, transform in ((np.exp(x[:, 0] + noise / 2), "log"), (x[:, 0] + noise / 2 + 9, "identity")):
        understood = infer_schema(from_columns({"a": x[:, 0], "b": x[:, 1], "y": y}), "y")
        assert isinstance(understood.schema.target, NumberTarget)
        assert understood.schema.target.transform == transform
        assert "with the logarithm" in understood.notes[-1]
        encoded = understood.schema.target.encode(y)
        assert abs(float(encoded.mean())) < 1e-5
        assert float(encoded.std()) == pytest.approx(1, abs=1e-5)
        # The same after a change of unit: the Jacobian is that of the target's own unit.
        first, again = (choose_transform(x, scale * y) for scale in (1, 1000))
        assert again.identity == pytest.approx(first.identity - np.log(1000))
        assert again.log == pytest.approx(first.log - np.log(1000))


def test_a_target_with_a_single_zero_is_modelled_as_it_is_whichever_rows_train():
    y = np.exp(np.random.default_rng(0).normal(size=60) * 2)
    y[17] = 0.0
    table = from_columns({"x": np.log(y + 1), "y": y})
    for seed in range(8):
        prepared = prepare_table(table, ["y"], seed=seed)
        assert prepared.schema.target.transform == "identity"
        assert "not all of its values are positive" in " ".join(prepared.notes)


def test_classes_that_float64_cannot_tell_apart_are_refused_and_read_as_text():
    table = from_columns({"x": np.sin(np.arange(30.0)), "y": 2**60 + np.arange(30) % 3})
    with pytest.raises(InvalidInput, match="read them as text") as refused:
        infer_schema(table, "y", task="classification")
    assert (refused.value.option, refused.value.value) == ("category", "y")
    labels = ClassTarget("y", ("3", str(2**63 + 1)), "integer").labels
    assert labels.tolist() == [3, 2**63 + 1]


def test_huge_and_tiny_numbers_have_a_finite_center_and_scale():
    x = np.arange(20.0) - 7
    table = from_columns({"huge": x * 1e306, "tiny": x * 1e-300, "y": np.sin(x)})
    schema = infer_schema(table, "y").schema
    assert np.isfinite(schema.encode(frame_of(table, schema))).all()


def test_ten_thousand_columns_are_read_and_understood(write):
    random = np.random.default_rng(0)
    header = ",".join(f"x{k}" for k in range(9_999)) + ",y\n"
    body = "".join(",".join(f"{value:.3f}" for value in row) + "\n" for row in random.normal(size=(20, 10_000)))
    table = read_table(write(header + body))
    assert infer_schema(table, "y").schema.shape == (9_999,)


# What is refused.


def good(k):
    return (np.sin(k), k % 4, k + 0.5)


def refused(table, message, target="y", **options):
    with pytest.raises(InvalidInput, match=message):
        infer_schema(read_table(table) if isinstance(table, Path) else table, target, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n  \n", "is empty"),
        ("a,b,y\n", "names of 3 columns, but no rows"),
        (rows(good, 5), f"5 rows with a value of 'y': at least {LEAST_ROWS}"),
        (rows(lambda k: (np.sin(k), k % 4, "one")), "'y' is 'one' in every row"),
        (rows(lambda k: (np.sin(k), k % 4, 3.5)), "'y' is 3.5 in every row"),
        (rows(lambda k: (np.sin(k), k % 4, "")), "'y' is missing in every row"),
        (rows(lambda k: (7, "", k + 0.5)), "no column to predict 'y' from"),
        (rows(lambda k: (np.sin(k), k % 4, f"id {k}")), "30 different values in 30 rows"),
        (rows(good).replace("a,b,y", "a,b,price"), "no column 'y'"),
        (rows(good).replace("a,b,y", "a,y,y"), "several columns of the name 'y'"),
        (rows(good).replace("a,b,y", "1,2,3"), "its first line holds numbers"),
        (rows(lambda k: ("oops" if k in (4, 9) else k, 1, k)), r"'a' holds numbers, but line 6 has 'oops' \(2 such"),
        (rows(lambda k: (k, 1, "oops" if k == 4 else k)), "'y' holds numbers, but line 6 has 'oops'"),
        (
            rows(lambda k: ("soon" if k == 4 else f"2021-03-{k % 28 + 1}", 1, k)),
            "'a' holds dates, but line 6 has 'soon'",
        ),
        (
            rows(lambda k: (f"{k}.5.2021" if k < 25 else "40.5.2021", 1, k)),
            r"'a' holds dates, but line 2 has '0.5.2021' \(6",
        ),
        (rows(lambda k: (k, k, f"2021-03-{k % 28 + 1}")), "the target 'y' holds dates, which cannot be predicted"),
        (rows(lambda k: ("inf" if k == 5 else k, 1, k)), "'a' is infinite in line 7: correct"),
        (rows(lambda k: ("inf" if k in (5, 8) else k, 1, k)), r"'a' is infinite in line 7 \(2 such cells\)"),
        (rows(lambda k: (f'"{k},5"' if k % 2 else k + 0.25, 1, k)), "'a' holds numbers with commas, such as '1,5'"),
        (
            (rows(good) + "Genève,1,2\n").encode() + b"M\xfcnchen,1,2\n",
            r"line 33 holds the byte 0xFC \(in Latin-1 it would read .*M.nchen",
        ),
        (b"PK\x03\x04 and so on", "cannot be unpacked"),
        (b"\x00\x01\x02", "not text"),
        (rows(good) + "1,2\n3,4,5\n6,7,8,9\n", "line 32: 2 fields instead of 3; line 34: 4 fields instead of 3"),
        (rows(good) + '"open,1,2\n', "quote that opens in the row of line 32"),
        ('a,"b\n', "quote that opens in the row of line 1"),
        ("a" * 200_000 + ",y\n1,2\n", "a first line that cannot be read .field larger"),
        ("a\n" + "1\n" * 20, "no column 'y'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(write, content, message):
    refused(write(content), message)


def test_ten_rows_are_enough_but_a_note_says_that_they_are_few(write):
    inferred = infer_schema(read_table(write(rows(good, LEAST_ROWS))), "y")
    assert "10 rows are few" in inferred.notes[0]


def test_a_missing_name_is_answered_by_the_nearest_one(write):
    path = write(rows(good).replace("a,b,y", "size,colour,Price"))
    refused(path, "no column 'price': did you mean 'Price'?", target="price")
    refused(path, "no column 'color': did you mean 'colour'?", target="Price", ignore=["color"])
    refused(path, "is the target", target="Price", ignore=["Price"])


def test_a_task_that_does_not_fit_the_target_is_refused(write):
    text = write(rows(lambda k: (np.sin(k), k % 4, "ab"[k % 2])), "text.csv")
    refused(text, "regression predicts numbers, but 'y' holds 'a'", task="regression")
    refused(write(rows(good)), "classification predicts classes, but 'y' holds the number 0.5", task="classification")
    refused(write(rows(good)), "task must be", task="guess")


def test_nested_values_and_durations_are_refused_unless_they_are_ignored(tmp_path):
    columns = {"x": np.arange(20.0) ** 2, "y": np.arange(20) + 0.5}
    hour = datetime.timedelta(hours=1)
    for values, message in (([hour] * 20, "durations, such as '1:00:00'"), ([[1]] * 20, "of the kind list")):
        pq.write_table(pa.table(columns | {"when": values}), tmp_path / "t.parquet")
        refused(read_table(tmp_path / "t.parquet"), f"'when' holds .*{message}")
        assert infer_schema(read_table(tmp_path / "t.parquet"), "y", ignore=["when"]).schema.shape == (1,)
    refused(from_columns(pd.DataFrame(columns | {"when": pd.Timedelta(hour)})), "'when' holds durations")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InvalidInput, match="cannot be read as Parquet"):
        read_table(tmp_path / "t.parquet")


def test_codes_that_begin_with_a_zero_stay_text(write):
    table = read_table(write(rows(lambda k: (f"{k % 3:05d}", 1, k + 0.5))))
    inferred = infer_schema(table, "y")
    assert inferred.schema.categories[0].categories == ("00000", "00001", "00002")
    assert any("begins with a zero" in note for note in inferred.notes)


def test_numbers_beyond_what_was_seen_are_bent_into_their_reach():
    x = np.random.default_rng(0).uniform(2.0, 4.0, 50)
    schema = infer_inputs(from_columns({"x": x, "y": x}), ["y"], usable=np.arange(50), rows=np.arange(50))[0]
    plain = dataclasses.replace(schema, reach=None)
    (low,), (high,) = schema.ends
    np.testing.assert_array_equal(schema.encode({"x": x}), plain.encode({"x": x}))
    far = np.asarray([-1e300, -50.0, 1.9, 4.1, 50.0, 1e300])
    bent, straight = schema.encode({"x": far})[:, 0], plain.encode({"x": far})[:, 0]
    assert (np.diff(bent) >= 0).all()
    np.testing.assert_allclose(bent[[0, -1]], [low - REACH, high + REACH], rtol=1e-6)
    np.testing.assert_allclose(bent[2:4], straight[2:4], rtol=1e-4)  # Just outside, next to nothing changes.
    assert np.abs(straight[[0, -1]]).tolist() == [100.0, 100.0]


def test_an_outlier_that_was_seen_is_encoded_alike_whatever_stands_beside_it():
    number = Number("x", 0.0, 1.0, 0.0, flagged=False, low=-3.0, high=1000.0, whole=False)
    for reach in (REACH, None):
        schema = TableSchema((number,), target=None, reach=reach)
        alone, beside = (schema.encode({"x": np.asarray(x)})[0, 0] for x in ([1000.0], [1000.0, np.nan]))
        assert alone == beside == schema.bent(np.asarray([[1000.0]]))[0, 0] <= 100 + REACH
