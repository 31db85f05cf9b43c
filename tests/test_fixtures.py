"""What an earlier version fitted and exported is read for ever: see scripts/fixtures.py for what is in each folder.

By the command line and by `load`, so that no name inside the package matters.
"""

import csv
import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darkbayes import cli

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'darkbayes[tables]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'darkbayes[onnx]'")

ROOT = Path(__file__).parent / "fixtures"
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-7}
"""Single precision, of values that are not far below one."""
TEXT = ("file", "prediction")
"""Columns of predictions that are no numbers."""


def folders(holding: str) -> Any:
    """The fixtures that hold such a file, of all versions."""
    return pytest.mark.parametrize(
        "folder", [pytest.param(path.parent, id=str(path.parent.relative_to(ROOT))) for path in ROOT.glob(holding)]
    )


def model(folder: Path) -> str:
    """What is asked, as it is called from its folder."""
    return "run" if (folder / "run").exists() else "student.onnx"


def source(folder: Path) -> str:
    return "rows.csv" if (folder / "rows.csv").exists() else "images"


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


@folders("*/*/predictions.csv")
def test_a_student_of_an_earlier_version_predicts_the_same_numbers(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    cli.main(["predict", model(folder), source(folder), "-o", str(tmp_path / "predictions.csv"), "--quiet"])
    stored, now = read_csv(folder / "predictions.csv"), read_csv(tmp_path / "predictions.csv")
    assert len(now) == len(stored)
    assert [column for column in now[0] if column in stored[0]] == list(stored[0])
    for column in stored[0]:
        before, after = [row[column] for row in stored], [row[column] for row in now]
        if column in TEXT:
            assert after == before
        else:
            np.testing.assert_allclose(np.float64(after), np.float64(before), err_msg=column, **CLOSE)


@folders("*/*/evaluation.json")
def test_a_student_of_an_earlier_version_has_the_same_scores(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    cli.main(["evaluate", model(folder), source(folder), "--json", "--quiet"])
    now = {(row["method"], row["metric"]): row for row in json.loads(capsys.readouterr().out)["rows"]}
    for row in json.loads((folder / "evaluation.json").read_text())["rows"]:
        again = now[row["method"], row["metric"]]
        assert again["examples"] == row["examples"]
        # Some metrics have no standard error: None, which becomes NaN.
        stored, scores = (np.array([one["mean"], one["se"]], float) for one in (row, again))
        if folder.name == "income" and row["metric"] == "rmse":
            # Modelled by its logarithm: its point was the mean, and is the median.
            assert scores[0] < stored[0]
        else:
            np.testing.assert_allclose(scores, stored, err_msg=row["metric"], **CLOSE)


@folders("*/*/run")
def test_a_run_of_an_earlier_version_is_reported_on(folder, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'darkbayes[report]'")
    shutil.copytree(folder / "run", tmp_path / "run")
    cli.main(["report", str(tmp_path / "run")])
    assert Path(capsys.readouterr().out.strip()) == tmp_path / "run" / "report.html"
    assert "</html>" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@folders("*/*/run/student.onnx")
def test_a_run_of_an_earlier_version_is_exported(folder, tmp_path, capsys):
    """From its weights, which say the same as the graph that it was left with."""
    fixture, again = folder.parent, tmp_path / "again.onnx"
    cli.main(["export", str(folder), "-o", str(again)])
    capsys.readouterr()
    answers = []
    for student in (folder / "student.onnx", again):
        cli.main(["evaluate", str(student), str(fixture / source(fixture)), "--json", "--quiet"])
        answers.append(json.loads(capsys.readouterr().out)["rows"])
    for before, after in zip(*answers, strict=True):
        np.testing.assert_allclose(after["mean"], before["mean"], err_msg=before["metric"], **CLOSE)


@folders("*/*/estimator.safetensors")
def test_an_estimator_of_an_earlier_version_predicts_the_same_numbers(folder):
    estimators = pytest.importorskip("darkbayes.estimators", reason="needs scikit-learn", exc_type=ImportError)
    pandas = importlib.import_module("pandas")
    estimator = getattr(estimators, folder.name).load(folder / "estimator.safetensors")
    rows = pandas.read_csv(folder / "rows.csv")
    stored = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    answers = {"predict": estimator.predict(rows), "parts": np.stack(estimator.decompose(rows))}
    if "std" in stored:
        answers["std"] = estimator.predict(rows, return_std=True)[1]
        answers["interval"] = estimator.predict_interval(rows, 0.8)
    else:
        answers["probabilities"] = estimator.predict_proba(rows)
    assert answers.keys() == stored.keys()
    for name, values in stored.items():
        if isinstance(values[0], str):
            assert answers[name].tolist() == values
        else:
            np.testing.assert_allclose(answers[name], values, err_msg=name, **CLOSE)


def test_there_are_fixtures():
    """An empty list of cases would pass in silence."""
    kept = {path.name for path in (ROOT / "0.1").iterdir()}
    made = {"rent", "rent-int8", "income", "penguins", "loans", "shapes", "toy2d"}
    assert kept == made | {"DistilledRegressor", "DistilledClassifier"}
