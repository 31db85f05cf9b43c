"""The experiment on guarantees with a student that is made up: its splits, what it counts, and how it goes on."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from darkbayes import cli
from darkbayes.outcomes import ClassPrediction, NumberPrediction
from darkbayes.paper import conformal


class Overconfident:
    """In place of a fit: predicts with noise, and is surer than it should be."""

    def __init__(self, data: Any, target: Any, *_: Any, **__: Any):
        self.classes = getattr(target, "classes", None)
        self.scale = float(np.std(data.y))

    def predict(self, x: np.ndarray) -> Any:
        rng = np.random.default_rng(len(x))
        if self.classes:
            logits = 3 * rng.normal(size=(len(x), len(self.classes)))
            return ClassPrediction.from_probs(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
        shape = (1, len(x), 1)
        return NumberPrediction.standard(np.zeros(shape), rng.normal(size=shape), np.full(shape, 0.1))


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformal, "fit", Overconfident)
    monkeypatch.setitem(conformal.PRESETS, "default", dataclasses.replace(conformal.ConformalPreset(), trials=2))


def test_guaranteed_regions_are_counted_on_rows_that_did_not_calibrate_them(tmp_path: Any) -> None:
    command = ["reproduce", "conformal", "--out", str(tmp_path / "run"), "--quiet", "--no-report"]
    cli.main([*command, "--datasets", "airfoil", "--trials", "1"])
    cli.main([*command, "--resume", "--datasets", "airfoil", "digits"])
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    shares = {(row["dataset"], row["method"]): row for row in rows if row["metric"] == "coverage_90"}
    assert {"student", "student guaranteed"} <= {method for _, method in shares}
    assert {dataset: row["trials"] for (dataset, _), row in shares.items()} == {"airfoil": 2, "digits": 2}
    for (dataset, method), row in shares.items():
        # Five standard deviations of the share among some 500 rows that as many others calibrate.
        assert all(abs(share - 0.9) < 0.095 for share in row["values"]) == (method != "student"), (dataset, method)
    widths = {(row["dataset"], row["method"]): row["mean"] for row in rows if row["metric"] == "width"}
    assert widths["digits", "student"] < widths["digits", "student guaranteed"] <= 10


def test_rows_to_learn_from_are_a_fifth_of_a_table_and_few_digits() -> None:
    for name, trained, rows in (("airfoil", 300, 1503), ("digits", 50, 1797)):
        prepared = conformal.prepare_split(name, seed=0)
        assert (prepared.facts["trained"], prepared.facts["held_out"]) == (trained, rows - trained)
