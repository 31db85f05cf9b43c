"""Predictions written as they come."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darkbayes.errors import InvalidInput
from darkbayes.outcomes import ClassPrediction, ClassTarget, NumberTarget
from darkbayes.outcomes.quantity import MOMENTS
from darkbayes.tables import TableWriter, read_table

PRICE = NumberTarget("price", "identity", 0.0, 1.0, 0.0, 1.0)


def numbers(rows, level=0.9):
    """The columns of predictions of the numbers from 100 on, with a standard deviation of 2 that is all noise."""
    mean, std = np.arange(rows) + 100.0, np.full(rows, 2.0)
    parts = dict(zip(MOMENTS, (mean, std, std, 0 * std), strict=True)) | {"location": mean, "spread": std}
    return PRICE.table(PRICE.prediction(parts), level)


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_written_predictions_read_back(tmp_path, name):
    path = tmp_path / "new" / name
    with TableWriter(path) as writer:
        writer.write({"line": np.asarray([2, 5])} | numbers(2, 0.5))
        writer.write({"line": np.asarray([6, 7, 9])} | numbers(3, 0.5))
        assert not path.exists()
    table = read_table(path)
    assert list(table.columns) == ["line", "mean", "std", "aleatoric_std", "epistemic_std", "lower_50", "upper_50"]
    assert table.columns["line"].values.tolist() == [2, 5, 6, 7, 9]
    assert table.columns["mean"].values.tolist() == [100, 101, 100, 101, 102]
    np.testing.assert_allclose(table.columns["upper_50"].values[0], 100 + 2 * 0.6744898)
    assert [written.name for written in path.parent.iterdir()] == [name]


@pytest.mark.parametrize(
    ("classes", "kind", "values", "stored"),
    [
        (("no, never", "yes"), "text", ["yes", "no, never"], pa.string()),
        (("false", "true"), "boolean", [True, False], pa.bool_()),
        (("3", "5"), "integer", [5, 3], pa.int64()),
    ],
)
def test_classes_are_written_as_they_were_in_the_users_own_file(tmp_path, classes, kind, values, stored):
    prediction = ClassPrediction.from_probs([[0.25, 0.75], [0.5, 0.5]], np.asarray([0.5, 0.25]))
    for name in ("out.csv", "out.parquet"):
        with TableWriter(tmp_path / name) as writer:
            writer.write(ClassTarget("y", classes, kind).table(prediction, 0.9))
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema.field("prediction").type == stored
    assert table["prediction"].to_pylist() == values
    assert table["probability"].to_pylist() == [0.75, 0.5]
    assert table[f"probability_{classes[0]}"].to_pylist() == [0.25, 0.5]
    assert table.column_names[-3:] == ["entropy", "expected_entropy", "mutual_information"]
    with (tmp_path / "out.csv").open(newline="") as file:
        header, first, _ = csv.reader(file)
    assert header == table.column_names
    assert first[0] == str(values[0]).lower() if kind == "boolean" else str(values[0])


def test_after_an_error_no_file_is_left_and_the_old_one_stays(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail():
        with TableWriter(path) as writer:
            writer.write(numbers(2))
            raise InvalidInput("a bad row")

    with pytest.raises(InvalidInput, match="a bad row"):
        fail()
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_predictions_of_no_rows_are_a_header(tmp_path):
    with TableWriter(tmp_path / "out.csv") as writer:
        writer.write({name: values[:0] for name, values in numbers(1).items()})
    (header,) = (tmp_path / "out.csv").read_text().splitlines()
    assert header.startswith("mean,std")


def test_predictions_go_to_the_standard_output_if_asked(capfdbinary):
    with TableWriter("-") as writer:
        writer.write(numbers(1))
    out = capfdbinary.readouterr().out.decode().splitlines()
    assert out[0].startswith("mean,std")
    assert out[1].startswith("100,2,2,0,")
    assert not Path("-").exists()


FORMULAS = ["=1+1", "+cmd|x", "-2+3", "@sum(a1)", "\tx", "\r=x", "-1.5e3", "+49", "red", "a=b", None, ""]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_spreadsheet_finds_no_formulas_in_csv(tmp_path, kind):
    columns = {"=name": pa.array(FORMULAS, pa.string()).cast(kind), "mean": -np.arange(12.0)}
    kept: Any = {"safe.csv": False, "raw.csv": True, "out.parquet": False}
    for name, keep_formulas in kept.items():
        with TableWriter(tmp_path / name, keep_formulas=keep_formulas) as writer:
            writer.write(columns)
    with (tmp_path / "safe.csv").open(newline="") as one, (tmp_path / "raw.csv").open(newline="") as other:
        (header, *safe), (raw_header, *raw) = list(csv.reader(one)), list(csv.reader(other))
    assert (header[0], raw_header[0]) == ("'=name", "=name")
    assert [row[0] for row in safe] == ["'" * (k < 6) + (text or "") for k, text in enumerate(FORMULAS)]
    assert [row[0] for row in raw] == [text or "" for text in FORMULAS]
    assert [float(row[1]) for row in safe] == columns["mean"].tolist()
    assert pq.read_table(tmp_path / "out.parquet")["=name"].to_pylist() == FORMULAS


def test_a_closed_standard_output_is_told(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(InvalidInput, match="standard output is closed: name a file"):
        TableWriter("-")


def test_a_folder_and_a_file_of_another_kind_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="is a folder"):
        TableWriter(tmp_path)
    with pytest.raises(InvalidInput, match="neither CSV nor Parquet"):
        TableWriter(tmp_path / "out.xlsx")
