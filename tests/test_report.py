"""Tables from results, and the page as a browser shows it."""

import json
import re
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from darkbayes.errors import InvalidInput
from darkbayes.files import write_arrays, write_json
from darkbayes.report import chains_line, choices_line, markdown, pivot, terminal, write_figure, write_report
from darkbayes.report.choices import choices_table
from darkbayes.report.figures import (
    bands,
    differences_from_pbp,
    learning_curves,
    predicted_against_true,
    reliability,
    size_curve,
)
from darkbayes.runs import provenance, row

ROWS = [
    row("sgd", "kl_from_hmc", [0.2, 0.3], paper=0.246),
    row("sgd", "kl_to_hmc", [0.1, 0.1]),
    row("student 2-4-2", "kl_from_hmc", [0.002, 0.004]),
    row("student 2-4-2", "kl_to_hmc", [0.002, 0.004]),
    row("hmc", "rhat_max", [1.001, 1.002]),
]
RESULTS = {"experiment": "toy2d", "preset": "best", "rows": ROWS, "provenance": provenance(0, 1.0)}


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """What a test drew is closed behind it."""
    yield
    plt.close("all")


CLASSIFIERS = ("sgd", "sgld", "student", "bbb gaussian")
REGRESSORS = ("sgd", "sgld", "student 13-50-2", "student input noise 13-100-100-2", "pbp")


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
    """Likewise for ``paper/uci.py``; the student is ahead on yacht alone."""
    rows = []
    for dataset, student in (("wine", -1.0), ("yacht", -0.9)):
        found = [
            row("sgld", "log_likelihood", [-0.9, -0.8]),
            row("student", "log_likelihood", [student, student - 0.01]),
            published("pbp", "log_likelihood", -0.97, 0.01),
            published("ensemble", "log_likelihood", -0.94),
            row("student", "rmse", [0.5, 0.6]),
            published("pbp", "rmse", 0.64, 0.01),
        ]
        rows += [one | {"dataset": dataset} for one in found]
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
    write_report(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A finished run, as small as can be."""
    path = tmp_path_factory.mktemp("run")
    write_json(path / "results.json", RESULTS)
    write_json(path / "config.json", {"seed": 0, "note": "<script>alert(1)</script>"})
    maps = {f"probs.{name}": np.linspace(0, 1, 25) for name in ("sgd", "hmc", "sgld", "student 2-4-2")}
    write_arrays(path / "figure.safetensors", maps | {"x": np.zeros((2, 2)), "y": np.array([0, 1])})
    write_report(path)
    return path


def test_the_paper_stands_beside_ours_and_a_single_number_becomes_a_note():
    (table,) = pivot(RESULTS)
    assert table.header == ["method", "KL(HMC || method), paper", "KL(HMC || method), ours", "KL(method || HMC)"]
    assert table.rows[0] == ["SGD (plug-in)", "0.246", "0.250 ± 0.050", "0.1000 ± 0.0000"]
    assert table.rows[1][:3] == ["student 2-4-2", "", "0.0030 ± 0.0010"]
    assert table.notes == ["HMC: largest split R-hat of the predictions 1.00150 ± 0.00050"]


def test_markdown_escapes_bars_and_names_its_origin():
    text = markdown(RESULTS)
    assert "KL(HMC \\|\\| method)" in text
    assert "mean ± standard error over 2 trials, seed 0" in text
    assert len({line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_costs_have_a_table_of_their_own():
    rows = mnist(np.random.default_rng(0))[0]
    scores, speed, costs = pivot({"rows": rows})
    assert len(scores.header) == 7
    assert scores.rows[-1][0] == "Bayes by backprop, Gaussian prior"
    assert scores.notes[0].endswith("0.80 ± 0.10 (the paper: 0.57)")
    assert speed.header == ["method", "ms per step"]
    assert costs.rows[-1] == ["SGLD", "15,000", "7,176,150,000", "0.1", "15,000"]
    (chosen,) = pivot({"rows": rows}, ["brier"])
    assert chosen.header == ["method", "Brier score"]


def test_several_data_sets_have_a_row_each_with_the_better_of_student_and_pbp_marked():
    rows = uci(np.random.default_rng(0))[0]
    likelihood, error = pivot({"rows": rows})
    assert likelihood.title == "Log likelihood, the higher the better"
    assert likelihood.header == ["data set", "student", "PBP, published", "SGLD", "deep ensemble, published"]
    assert likelihood.rows[0] == ["wine", "-1.0050 ± 0.0050", "-0.97 ± 0.01", "-0.850 ± 0.050", "-0.94"]
    marked = [[hasattr(cell, "best") for cell in line] for line in likelihood.rows]
    assert marked == [[False, False, True, False, False], [False, True, False, False, False]]
    text = markdown({"rows": rows, "provenance": provenance(0, 1.0)})
    assert "| wine | -1.0050 ± 0.0050 | **-0.97 ± 0.01** |" in text
    assert "| wine | **0.550 ± 0.050** | 0.64 ± 0.01 |" in text
    assert "over 2 trials" in text
    assert error.title == "RMSE, the lower the better"


@pytest.mark.parametrize("make", [mnist, boston, uci])
def test_in_a_terminal_no_line_is_broken_and_no_number_lost(make, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    results = {"experiment": make.__name__, "preset": "best", "rows": make(np.random.default_rng(0))[0]}
    terminal(results)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for table in pivot(results):
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
        "uci": ["on 1 of 2 data sets (yacht)", "<strong>-0.97 ± 0.01</strong>", "Bold: the better"],
    }
    for words in expected[experiment]:
        assert words in page, words


def large_name(path: Path) -> str:
    return json.loads((path / "results.json").read_text())["experiment"]


def test_figures_show_the_methods_that_they_should(large):
    experiment = large_name(large)
    if experiment == "uci":
        (axis,) = differences_from_pbp(large).axes
        assert [label.get_text() for label in axis.get_yticklabels()] == ["wine", "yacht"]
        student = next(of for of in axis.containers if of.get_label() == "student")
        assert student.lines[0].get_xdata() == pytest.approx([-0.035, 0.065])
    else:
        figure = {"mnist": reliability, "boston": predicted_against_true}[experiment](large)
        titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
        names = ["SGD (plug-in)", "SGLD", "student", "PBP"][: len(titles)]
        assert len(titles) == (3 if experiment == "mnist" else 4)
        assert all(name in title for name, title in zip(names, titles, strict=True))


def test_the_six_panels_of_the_1d_figure_are_those_of_the_paper(tmp_path):
    names = ("hmc", "sgd", "pbp", "vi", "sgld", "student 1-10-2", "student 1-32-32-2")
    arrays = {f"{kind}.{name}": np.ones(5) for kind in ("mean", "std") for name in names}
    points = {"grid": np.arange(5.0), "x": np.zeros((2, 1)), "y": np.ones((2, 1))}
    write_arrays(tmp_path / "figure.safetensors", arrays | points)
    titles = [axis.get_title() for axis in bands(tmp_path).axes]
    assert titles == [
        "(a) PBP",
        "(b) HMC",
        "(c) variational inference",
        "(d) SGD (plug-in)",
        "(e) SGLD",
        "(f) student 1-10-2",
    ]


def test_the_bars_of_the_reliability_diagram_are_the_accuracies_of_its_bins(tmp_path):
    confidence = np.repeat([0.95, 0.55], [4, 2])
    probs = np.stack([confidence, 1 - confidence], axis=1)
    y = np.array([0, 0, 0, 1, 0, 1])
    write_arrays(tmp_path / "figure.safetensors", {"probs.student": probs, "y": y})
    upper, lower = reliability(tmp_path, bins=10).axes
    heights = {round(bar.get_x() + 0.05, 2): bar.get_height() for bar in upper.containers[0]}
    assert heights == {0.55: 0.5, 0.95: 0.75}
    assert [bar.get_height() for bar in lower.containers[0]][5::4] == pytest.approx([2 / 6, 4 / 6])


def test_the_figure_can_be_had_as_an_image(folder, tmp_path):
    write_figure(folder, tmp_path / "new" / "figure.png")
    assert (tmp_path / "new" / "figure.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match=r"figure\.txt must end in \.png, \.svg or \.pdf"):
        write_figure(folder, tmp_path / "figure.txt")


def test_what_a_run_holds_cannot_become_markup(folder):
    assert "<script>" not in (folder / "report.html").read_text()


def test_the_page_is_readable_in_a_browser(folder):
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[browser]'")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    complaints: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(offline=True, viewport={"width": 390, "height": 800}).new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.goto((folder / "report.html").as_uri())
        assert page.locator("h1").inner_text().startswith("Toy 2-D classification")
        widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        images = page.evaluate("[...document.images].map(image => image.naturalWidth)")
        browser.close()
    assert widths[0] <= widths[1]
    assert images
    assert min(images) > 500
    assert not complaints


# What the teacher chose


def chosen(step_size: float, **more: object) -> dict:
    """What a run of a teacher that tunes itself leaves in the results."""
    lengths = {"burn_in": 3072, "autocorrelation": 61.2, "rhat": 1.01, "thin": 6, "steps": 13_074}
    measured = {"stiffness": 2 / 3, "heating": 0.104, "reason": "as asked for", "settled": True}
    return {"step_size": step_size} | lengths | measured | {"explanation": f"step size {step_size} <b>"} | more


def test_a_page_says_what_the_teacher_chose(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    choices = {"teacher": [chosen(0.02), chosen(0.04), chosen(0.03, stiffness=0.2)]}
    write_json(tmp_path / "results.json", RESULTS | {"choices": choices})
    page = write_report(tmp_path).read_text()
    section = page[page.index("What the teacher chose") : page.index("How this was made")]
    steps = ["0.03 (0.02 to 0.04)", "50% (11% to 50%)", "10%", "3,072", "61.2", "6", "13,074"]
    assert re.findall(r"<td>(.*?)</td>", section) == ["all", "3", *steps]
    assert "for the first run: step size 0.02 &lt;b&gt;." in section
    assert "settled in" not in section
    assert "What the teacher chose" not in (folder / "report.html").read_text()


def test_what_did_not_settle_is_told():
    results = {
        "choices": {"boston/student-13-4-2": [chosen(0.02), chosen(0.04, settled=False)], "yacht/s": [chosen(1)]}
    }
    assert choices_line(results) == (
        "boston, 2 runs: step size 0.03 (0.02 to 0.04), 13,074 steps (1 run did not settle); "
        "yacht: step size 1, 13,074 steps"
    )
    table = choices_table(results)
    assert table is not None
    assert [row[0] for row in table.rows] == ["boston", "yacht"]
    assert [row[-1] for row in table.rows] == ["1 of 2", "1 of 1"]
    assert choices_line(RESULTS) == ""
    assert choices_table(RESULTS) is None


# Did the chains meet?


def diagnosis(code: str, rhat: float | None, stopped: bool = False) -> dict:
    """What a distillation of two runs leaves in the results; the second agrees."""
    numbers = {
        "effective": 400.0,
        "autocorrelation_steps": 120.0,
        "temperature": 1.02,
        "kinetic_temperature": None,
        "noise_to_signal": 0.0,
        "divergence": 0.002,
        "teacher_error": 0.0005,
    }
    warning = {"code": "student_stopped", "text": "the student has stopped following at KL 0.002"}
    return {
        "verdict": {"code": code, "text": f"the chains <{code}>"},
        "counts": {"agree": 2} if code == "agree" else {code: 1, "agree": 1},
        "warnings": [warning] if stopped else [],
        "plateau": {"since": 6, "level": 0.002, "fall": 0.0, "error": 0.0, "stopped": stopped},
        "runs": [{"code": code, "rhat": rhat} | numbers, {"code": "agree", "rhat": 1.01} | numbers],
    }


DIAGNOSED = RESULTS | {
    "diagnostics": {
        "trial-0/student-2-4-2": diagnosis("apart", 1.3),
        "trial-1/student-2-4-2": diagnosis("agree", 1.02, stopped=True),
    }
}


def test_the_worst_verdict_is_told_with_the_count_of_each():
    line = chains_line(DIAGNOSED)
    assert line.startswith("trial-0/student-2-4-2: the chains <apart>; of 4 runs 3 agree, 1 apart; the student has")
    assert line.endswith("(in 1 of 2 distillations)")
    alone = {"diagnostics": {"student": diagnosis("agree", 1.02)}}
    assert chains_line(alone) == "the chains <agree>"
    assert chains_line(RESULTS) == ""
    assert len(line.splitlines()) == 1


def test_a_page_says_whether_the_chains_met(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / "results.json", DIAGNOSED)
    lines = [{"step": step, "loss": 1.0, "kl": 1 / step} for step in range(1, 9)]
    (tmp_path / "trial-0" / "student-2-4-2").mkdir(parents=True)
    (tmp_path / "trial-0" / "student-2-4-2" / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    page = write_report(tmp_path).read_text()
    section = page[page.index("Did the chains meet?") : page.index("How this was made")]
    cells = re.findall(r"<td>(.*?)</td>", section)
    assert cells == ["student 2-4-2", "4", "1.02 (1.3)", "400 (400)", "120 (120)", "1.02", *cells[6:8], "3 of 4"]
    assert "gradient noise" not in section.split("</table>")[0], "zero everywhere"
    assert "How the students learned" in section
    assert "<apart>" not in page
    assert page.count("How the students learned</h") == 1
    assert "Did the chains meet?" not in (folder / "report.html").read_text()


def test_the_level_at_which_a_student_stopped_is_marked():
    lines = [{"step": step, "kl": 1 / min(step, 5)} for step in range(1, 20)]
    plateau = {"since": 13, "level": 0.2, "stopped": True}
    (axis,) = learning_curves({"student": lines}, {"student": plateau}, teacher_error=0.01).axes
    assert [text.get_text() for text in axis.texts] == ["stopped at 0.2"]
    assert "the teacher's own error" in axis.get_legend_handles_labels()[1]
    (axis,) = learning_curves({"student": lines}, {"student": plateau | {"stopped": False}}).axes
    assert not axis.texts


def test_students_of_growing_width_have_a_figure_and_a_table_of_their_own(folder, tmp_path):
    sizes = [
        row(f"student 2-{width}-2", "kl_from_teacher", [1 / width, 1.1 / width]) | {"parameters": 5 * width + 2}
        for width in (8, 4, 16)
    ]
    sizes[0]["chosen"] = True
    (axis,) = size_curve(sizes).axes
    assert [text.get_text() for text in axis.texts] == ["2-4-2", "2-8-2", "2-16-2"]
    assert axis.get_legend_handles_labels()[1] == ["chosen"]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / "results.json", RESULTS | {"rows": ROWS + sizes})
    page = write_report(tmp_path).read_text()
    assert "How wide a student?" in page
    assert "Students of growing width" in page


def test_the_results_that_the_readme_quotes_are_whole():
    for path in (Path(__file__).parent.parent / "results").glob("*.json"):
        results = json.loads(path.read_text())
        assert results["rows"], path
        assert {"version", "commit", "jax", "device", "seed", "command", "wall_s"} <= results["provenance"].keys(), path
        assert "with changes" not in str(results["provenance"]["commit"]), path
        for one in results["rows"]:
            assert {"method", "metric", "mean"} <= one.keys(), path
            assert one.get("published") or {"se", "trials"} <= one.keys(), path
