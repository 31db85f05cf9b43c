"""Students of any teacher, tiny, through the command line; and what they keep, of numbers that are made up."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darkbayes import cli
from darkbayes.data import Images
from darkbayes.paper import mnist, presentation, regression, teachers
from darkbayes.report import pivot
from darkbayes.student import Settings

METHODS = ("sgd", "ensemble", "forest")


def fake_images(name: str, **_: Any) -> Images:
    """Noise in the place of digits."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(100, 6, 6), dtype=np.uint8)
    return Images(x[:70], np.arange(70) % 10, x[70:], np.arange(30) % 10)


@pytest.fixture(autouse=True)
def tiny_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    few: Any = {"batch_size": 5, "dropout_steps": 3, "ensemble_steps": 30, "ensemble_size": 2}
    chains: Any = {"hidden": (4,), "settings": Settings(query_batch=8)}
    quick = teachers.PRESETS["quick"]
    table = dataclasses.replace(quick.table, **chains, comparators=regression.RegressionComparators(**few, sgd_steps=3))
    comparators = mnist.MnistComparators(**few, bbb_steps=3)
    few_images: Any = {"train": 40, "batch_size": 5, "sgd_steps": 3, "queries": "jitter"}
    digits = dataclasses.replace(quick.digits, **chains, **few_images, comparators=comparators)
    own: Any = {"updates": 200, "digit_updates": 200, "trees": 3, "tree_queries": 1, "methods": METHODS}
    both = dataclasses.replace(quick, table=table, digits=digits, datasets=teachers.DATASETS, **own)
    monkeypatch.setitem(teachers.PRESETS, "quick", both)
    monkeypatch.setattr(mnist, "load", fake_images)


def test_every_teacher_and_its_student_are_scored_and_a_folder_is_filled_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["reproduce", "teachers", "--preset", "quick", "--out", str(tmp_path / "run"), "--quiet"]
    cli.main([*command, "--datasets", "mnist", "--trials", "1", "--no-report"])
    cli.main([*command, "--resume", "--datasets", "boston"])
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    scored = {(row["dataset"], row["method"]): row for row in rows if row["metric"] == "log_likelihood"}
    trees = {("boston", "forest"), ("boston", "student of forest")}
    both = {(name, method) for name in ("boston", "mnist") for method in ("sgd", "ensemble", "student of ensemble")}
    assert scored.keys() == both | trees
    assert {(name, row["trials"]) for (name, _), row in scored.items()} == {("boston", 2), ("mnist", 1)}
    assert all(np.isfinite(row["values"]).all() for row in scored.values())
    assert (tmp_path / "run" / "report.html").read_text().count("data:image/png;base64,") >= 1
    monkeypatch.setattr(teachers, "_learned", None)  # Nothing is computed again.
    cli.main([*command, "--resume", "--no-report"])
    assert json.loads((tmp_path / "run" / "results.json").read_text())["rows"] == rows


def test_what_is_kept_is_a_share_of_means_and_told_where_a_teacher_gains() -> None:
    def scores(*values: float) -> dict[str, list[float]]:
        return {"log_likelihood": list(values)}

    methods = {"sgd": scores(-3.0, -2.0), "ensemble": scores(-2.0, -1.0), "student of ensemble": scores(-2.2, -1.0)}
    methods |= {"swag": scores(-4.0, -4.0), "student of swag": scores(-4.0, -4.0)}
    kept = [row for row in teachers.score_rows("boston", methods) if row["metric"] == "gain_kept"]
    assert [(row["method"], row["dataset"]) for row in kept] == [("student of ensemble", "boston")]
    assert kept[0]["mean"] == pytest.approx(0.9)
    assert kept[0]["se"] == pytest.approx(0.1)


def test_many_methods_are_the_rows_of_a_table() -> None:
    names = [f"m{k}" for k in range(12)]
    rows = [
        {"method": n, "metric": "rmse", "mean": 1.0, "se": None, "trials": 1, "dataset": d} for d in "ab" for n in names
    ]
    (table,) = pivot({"rows": rows}, names=presentation("teachers").names)
    assert table.header == ["method", "a", "b"]
    assert [row[0] for row in table.rows] == names
    (table,) = pivot({"rows": rows[:5]}, names=presentation("teachers").names)
    assert table.header == ["data set", *names[:5]]
