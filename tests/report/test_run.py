"""The page of a run, as it is written and as a browser shows it; whether chains met, and what a teacher chose."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from darkbayes.errors import InvalidInput
from darkbayes.files import write_arrays, write_json
from darkbayes.paper import presentation
from darkbayes.report import chains_line, choices_line, write_figure, write_report
from darkbayes.report.figures import size_curve
from darkbayes.report.run import ANY
from darkbayes.report.teachers import choices_table
from darkbayes.runs import provenance, row

TOY2D = presentation("toy2d")
ROWS = [
    row("sgd", "kl_from_hmc", [0.2, 0.3], paper=0.246),
    row("sgd", "kl_to_hmc", [0.1, 0.1]),
    row("student 2-4-2", "kl_from_hmc", [0.002, 0.004]),
    row("student 2-4-2", "kl_to_hmc", [0.002, 0.004]),
    row("hmc", "rhat_max", [1.001, 1.002]),
]
RESULTS = {"experiment": "toy2d", "preset": "best", "rows": ROWS, "provenance": provenance(0, 1.0)}


def cells(section: str) -> list[str]:
    """What the rows of the tables in a piece of a page say."""
    return [text for _, text in re.findall(r"<(td|th scope=\"row\")>(.*?)</t", section)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A finished run, as small as can be."""
    path = tmp_path_factory.mktemp("run")
    write_json(path / "results.json", RESULTS)
    write_json(path / "config.json", {"seed": 0, "note": "<script>alert(1)</script>"})
    maps = {f"probs.{name}": np.linspace(0, 1, 25) for name in ("sgd", "hmc", "sgld", "student 2-4-2")}
    write_arrays(path / "figure.safetensors", maps | {"x": np.zeros((2, 2)), "y": np.array([0, 1])})
    write_report(path, TOY2D)
    return path


def test_the_figure_can_be_had_as_an_image(folder, tmp_path):
    write_figure(folder, tmp_path / "new" / "figure.png", TOY2D)
    assert (tmp_path / "new" / "figure.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match=r"figure\.txt must end in \.png, \.svg or \.pdf"):
        write_figure(folder, tmp_path / "figure.txt", TOY2D)


def test_a_run_of_an_unknown_experiment_has_a_page_with_its_table_and_no_figure(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / "results.json", RESULTS | {"experiment": "mine"})
    assert presentation("mine") is ANY
    page = write_report(tmp_path).read_text()
    assert "<h1>mine</h1>" in page
    assert cells(page)[0] == "sgd"
    assert "<img" not in page
    with pytest.raises(InvalidInput, match="does not apply to mine, which has none"):
        write_figure(tmp_path, tmp_path / "figure.png")


def test_every_picture_is_said_in_words_and_every_table_can_be_scrolled_by_keys(folder):
    page = (folder / "report.html").read_text()
    assert all(len(alt) > 20 for alt in re.findall(r'<img alt="([^"]*)"', page))
    assert page.count('<div class="scroll" tabindex="0" role="region" aria-label="') == page.count('class="scroll"') > 1


def test_drawing_leaves_the_backend_of_a_notebook_alone(folder):
    code = (
        "import sys, matplotlib; matplotlib.use('svg')\n"
        "from pathlib import Path; from darkbayes import paper, report\n"
        f"report.write_report(Path({str(folder)!r}), paper.presentation('toy2d'))\n"
        "print(matplotlib.get_backend(), 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["svg", "False"]


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
    page = write_report(tmp_path, TOY2D).read_text()
    section = page[page.index("What the teacher chose") : page.index("How this was made")]
    steps = ["0.03 (0.02 to 0.04)", "50% (11% to 50%)", "10%", "3,072", "61.2", "6", "13,074"]
    assert cells(section) == ["all", "3", *steps]
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
    page = write_report(tmp_path, TOY2D).read_text()
    section = page[page.index("Did the chains meet?") : page.index("How this was made")]
    first = cells(section)
    assert first == ["student 2-4-2", "4", "1.02 (1.3)", "400 (400)", "120 (120)", "1.02", *first[6:8], "3 of 4"]
    assert "gradient noise" not in section.split("</table>")[0], "zero everywhere"
    assert "How the students learned" in section
    assert "<apart>" not in page
    assert page.count("How the students learned</h") == 1
    assert "Did the chains meet?" not in (folder / "report.html").read_text()


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
    page = write_report(tmp_path, TOY2D).read_text()
    assert "How wide a student?" in page
    assert "Students of growing width" in page
