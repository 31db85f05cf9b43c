"""What the experiments of the paper say of their runs: tables, words and figures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darkbayes.files import read_json, write_arrays, write_json
from darkbayes.paper import common, presentation, toy1d
from darkbayes.report import pivot, terminal, write_report
from darkbayes.runs import provenance, row
from scripts.readme import markdown

CLASSIFIERS = ("sgd", "sgld", "student", "bbb gaussian")
REGRESSORS = ("sgd", "fisher_sgld", "student 13-50-2", "student input noise 13-100-100-2", "pbp")


def mnist(random: np.random.Generator) -> tuple[list[dict], dict, dict]:
    """Rows, settings and arrays in the form of ``paper/mnist.py``."""
    rows = [
        row(
            method,
            metric,
            list(random.uniform(0.01, 2.0, 5)),
            paper=1.5 if metric in ("error", "log_likelihood") else None,
        )
        for metric in ("error", "log_likelihood", "brier", "ece")
        for method in CLASSIFIERS
    ]
    rows.append(row("student", "gain_kept", [0.7, 0.9], 0.57))
    rows += [row(method, "ms_per_step", [0.5]) for method in ("sgd", "sgld with student")]
    for method, networks in (("student", 1), ("sgld", 15_000)):
        costs = {"networks": networks, "parameters": networks * 478_410, "predict_ms": 0.1, "predict_ratio": networks}
        rows += [row(method, metric, [float(value)]) for metric, value in costs.items()]
    probs = random.dirichlet(np.full(10, 0.1), (len(CLASSIFIERS), 200))
    arrays = {f"probs.{name}": values for name, values in zip(CLASSIFIERS, probs, strict=True)}
    return rows, {"train": 5000, "hidden": [100, 100]}, arrays | {"y": random.integers(0, 10, 200)}


def boston(random: np.random.Generator) -> tuple[list[dict], dict, dict]:
    """Likewise for ``paper/boston.py``."""
    rows = [
        row(method, metric, list(random.uniform(1.0, 3.0, 20)))
        for metric in ("log_likelihood", "rmse", "crps", "coverage_90")
        for method in REGRESSORS
    ]
    arrays = {f"{kind}.{name}": random.uniform(1.0, 9.0, 51) for kind in ("mean", "std") for name in REGRESSORS}
    return rows, {"trials": 2}, arrays | {"y": random.uniform(5.0, 50.0, 51)}


def published(method: str, metric: str, mean: float, se: float | None = None) -> dict:
    return row(f"{method}, published", metric, [mean]) | {"se": se, "trials": 20, "published": True}


def uci(random: np.random.Generator) -> tuple[list[dict], dict, dict]:
    """Likewise for ``paper/uci.py``; of all but its teacher the student is ahead on yacht alone."""
    rows = []
    for dataset, student in (("wine", -1.0), ("yacht", -0.9)):
        scores = [
            row("student", "log_likelihood", [student, student - 0.01]),
            row("mclmc", "log_likelihood", [-0.9, -0.8]),
            published("pbp", "log_likelihood", -0.97, 0.01),
            published("best", "log_likelihood", -0.94),
            row("student", "rmse", [0.5, 0.6]),
            published("pbp", "rmse", 0.64, 0.01),
        ]
        rows += [one | {"dataset": dataset} for one in scores]
    return rows, {"trials": 2}, {}


@pytest.fixture(scope="module", params=[mnist, boston, uci], ids=lambda make: make.__name__)
def large(request, tmp_path_factory) -> Path:
    """A finished run of each large experiment in its quick preset, with learning curves."""
    path = tmp_path_factory.mktemp("large")
    rows, config, arrays = request.param(np.random.default_rng(0))
    name = request.param.__name__
    results = {"experiment": name, "preset": "quick", "rows": rows, "provenance": provenance(0, 1.0)}
    write_json(path / "results.json", results)
    write_json(path / "config.json", config | {"on": "validation"})
    if arrays:
        write_arrays(path / "figure.safetensors", arrays)
    for student in {"mnist": ("student",), "boston": ("student-13-50-2", "student-input-noise-13-50-2")}.get(name, ()):
        lines = [{"step": step, "loss": 1.0, "kl": None if step == 1 else 1 / step} for step in range(1, 9)]
        (path / student).mkdir()
        (path / student / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_report(path, presentation(name))
    return path


def test_costs_have_a_table_of_their_own():
    rows = mnist(np.random.default_rng(0))[0]
    names = presentation("mnist").names
    scores, speed, costs = pivot({"rows": rows}, names=names)
    assert len(scores.header) == 7
    assert scores.rows[-1][0] == "Bayes by backprop, Gaussian prior"
    assert scores.notes[0].endswith("0.80 ± 0.10 (the paper: 0.57)")
    assert speed.header == ["method", "ms per step"]
    assert costs.rows[-1] == ["SGLD", "15,000", "7,176,150,000", "0.1", "15,000"]
    (chosen,) = pivot({"rows": rows}, ["brier"], names)
    assert chosen.header == ["method", "Brier score"]


def test_several_data_sets_have_a_row_each_with_the_best_of_all_marked_and_counted():
    rows = uci(np.random.default_rng(0))[0]
    names = presentation("uci").names
    likelihood, error = pivot({"rows": rows}, names=names)
    assert likelihood.title == "Log likelihood, the higher the better"
    assert likelihood.header == ["data set", "student", "MCLMC (teacher)", "PBP, published", "best published"]
    assert likelihood.rows[0] == ["wine", "-1.0050 ± 0.0050", "-0.850 ± 0.050", "-0.97 ± 0.01", "-0.94"]
    marked = [[hasattr(cell, "best") for cell in line] for line in likelihood.rows]
    assert marked == [[False, False, True, False, False]] * 2
    counted = "The student is the best of all columns on 0 of 2 data sets, on 1 if its own teacher is left out"
    assert likelihood.notes == [counted]
    text = markdown({"rows": rows, "provenance": provenance(0, 1.0)}, names=names)
    assert "| wine | -1.0050 ± 0.0050 | **-0.850 ± 0.050** |" in text
    assert "| wine | **0.550 ± 0.050** | 0.64 ± 0.01 |" in text
    assert "over 2 trials" in text
    assert error.title == "RMSE, the lower the better"
    assert error.notes[0].startswith("The student is the best of all columns on 2 of 2 data sets, on 2 if")


def test_what_ran_on_fewer_splits_than_others_is_not_compared_with_them():
    values = {"student": [1.0, 2.0], "mclmc": [0.5, 1.0], "bde": [3.0]}
    rows = [row(name, "log_likelihood", some) | {"dataset": "airfoil"} for name, some in values.items()]
    (table,) = pivot({"rows": rows}, names=presentation("tables").names)
    assert [hasattr(cell, "best") for cell in table.rows[0]] == [False, True, False, False]
    assert table.notes[0].startswith("The student is the best of all columns on 1 of 1")


@pytest.mark.parametrize("make", [mnist, boston, uci])
def test_in_a_terminal_no_line_is_broken_and_no_number_lost(make, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    results = {"experiment": make.__name__, "preset": "best", "rows": make(np.random.default_rng(0))[0]}
    names = presentation(make.__name__).names
    terminal(results, names)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for table in pivot(results, names=names):
        for cell in (cell for line in table.rows for cell in line[1:]):
            assert cell in shown


def test_a_large_experiment_has_a_page(large):
    page = (large / "report.html").read_text()
    experiment = large_name(large)
    assert page.count("data:image/png;base64,") == (1 if experiment == "uci" else 2)
    assert "quick preset (a subset)" in page
    assert "Scored on the validation part" in page
    expected = {
        "mnist": ["A 784-100-100-10 network", "first 5,000 training images only", "1/15,000 of the time"],
        "boston": ["subset of the splits (2)", "student 13-100-100-2, noise from the input"],
        "uci": ["on 0 of 2 data sets", "<strong>-0.850 ± 0.050</strong>", "Bold: the best of all"],
    }
    for words in expected[experiment]:
        assert words in page, words


def large_name(path: Path) -> str:
    return read_json(path / "results.json")["experiment"]


def drawn(path: Path) -> Any:
    """The figure of a run."""
    results, config = read_json(path / "results.json"), read_json(path / "config.json")
    names, words = presentation(results["experiment"])
    draw = words(path, results, config, names).draw
    assert draw
    return draw()


def test_figures_show_the_methods_that_they_should(large):
    experiment = large_name(large)
    figure = drawn(large)
    if experiment == "uci":
        (axis,) = figure.axes
        assert [label.get_text() for label in axis.get_yticklabels()] == ["wine", "yacht"]
        student = next(points for points in axis.containers if points.get_label() == "student")
        assert student.lines[0].get_xdata() == pytest.approx([-0.065, 0.035])
    else:
        titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
        names = ["SGD (plug-in)", "SGLD", "student", "PBP"][: len(titles)]
        assert len(titles) == (3 if experiment == "mnist" else 4)
        assert all(name in title for name, title in zip(names, titles, strict=True))


def test_the_six_panels_of_the_1d_figure_are_those_of_the_paper(tmp_path):
    names = ("hmc", "sgd", "pbp", "vi", "sgld", "student 1-10-2", "student 1-32-32-2")
    arrays = {f"{kind}.{name}": np.ones(5) for kind in ("mean", "std") for name in names}
    points = {"grid": np.arange(5.0), "x": np.zeros((2, 1)), "y": np.ones((2, 1))}
    write_arrays(tmp_path / "figure.safetensors", arrays | points)
    titles = [axis.get_title() for axis in toy1d.bands(tmp_path, presentation("toy1d").names).axes]
    assert titles == [
        "(a) PBP",
        "(b) HMC",
        "(c) variational inference",
        "(d) SGD (plug-in)",
        "(e) SGLD",
        "(f) student 1-10-2",
    ]


def test_the_teacher_is_called_what_ran():
    names = presentation("boston").names
    assert names.method("sgld") == "SGLD"
    assert names.method("fisher_sgld input noise") == "Fisher SGLD, noise from the input"
    assert names.method(common.TUNED) == "Fisher SGLD with momentum"
