"""Columns in memory, and the rows that a schema makes of them."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from darkbayes.errors import InvalidInput
from darkbayes.tables import frame_of, from_columns
from darkbayes.tables.schema import Category
from tables.understanding import infer_schema, kinds


def test_a_pandas_frame_becomes_the_same_columns_whatever_its_types():
    frame = pd.DataFrame(
        {
            "int": [1, 2, 3],
            "nullable": pd.array([1, None, 3], "Int64"),
            "float": [0.5, np.nan, 1],
            "object": [1, "2", None],
            "texts": ["a", None, "b"],
            "strings": pd.array(["a", None, "b"], "string"),
            "category": pd.Categorical([1, None, 2]),
            "bool": [True, False, True],
            "boolean": pd.array([True, None, False], "boolean"),
            7: [1.0, 2.0, 3.0],
        }
    )
    table = from_columns(frame)
    assert list(kinds(table).values()) == 4 * ["number"] + 3 * ["text"] + 2 * ["boolean"] + ["number"]
    np.testing.assert_array_equal(table.columns["nullable"].values, [1, np.nan, 3])
    np.testing.assert_array_equal(table.columns["object"].values, [1, 2, np.nan])
    assert table.columns["category"].values.tolist() == ["1", None, "2"]
    assert table.columns["boolean"].values.tolist() == ["true", None, "false"]
    assert list(table.columns)[-1] == "7"


def test_categories_of_polars_are_read_and_a_lazy_frame_is_refused():
    pl = pytest.importorskip("polars")
    for kind in (pl.Categorical, pl.Enum(["a", "b"])):
        frame = pl.DataFrame({"c": pl.Series(["a", "b", None] * 4, dtype=kind), "x": list(range(12))})
        assert from_columns(frame).columns["c"].values.tolist() == ["a", "b", None] * 4
        with pytest.raises(InvalidInput, match=r"not computed yet: give it after .collect\(\)"):
            from_columns(frame.lazy())


def test_a_matrix_gets_names_and_one_of_another_shape_is_refused():
    assert list(from_columns(np.zeros((3, 2))).columns) == ["x0", "x1"]
    assert list(from_columns(np.zeros((3, 2)), ["a", "b"]).columns) == ["a", "b"]
    for data, names, message in (
        (np.zeros(3), None, "two dimensions"),
        (np.zeros((3, 2)), ["a"], "2 columns"),
        ({"a": [1], "b": [1, 2]}, None, "one length"),
        (pd.DataFrame(np.zeros((2, 2)), columns=["a", "a"]), None, "several columns of the name 'a'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            from_columns(data, names)


def test_a_column_that_is_not_what_it_was_is_refused_when_it_is_used():
    schema = infer_schema(from_columns({"x": np.arange(20.0) ** 2, "y": np.arange(20) + 0.5}), "y").schema
    with pytest.raises(InvalidInput, match="the data: index 1: 'x' is 'many', not a number"):
        frame_of(from_columns({"x": [None, "many"]}), schema)
    with pytest.raises(InvalidInput, match="no column 'x': its columns are 'size'"):
        frame_of(from_columns({"size": [1.0]}), schema)


def test_categories_that_look_like_numbers_or_truth_values_are_recognised_again():
    schema = infer_schema(from_columns({"x": [True, False] * 10, "y": np.arange(20) + 0.5}), "y").schema
    assert frame_of(from_columns({"x": ["TRUE", "maybe"]}), schema)["x"].tolist() == ["true", "maybe"]
    codes = dataclasses.replace(schema, columns=(Category("x", ("1", "2"), flagged=False),))
    assert frame_of(from_columns({"x": [1.0, np.nan, 2.5]}), codes)["x"].tolist() == ["1", None, "2.5"]
