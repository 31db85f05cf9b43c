"""Tables from results, and the page as a browser shows it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from darkbayes.errors import InvalidInput
from darkbayes.files import write_arrays, write_json
from darkbayes.report import markdown, pivot, write_figure, write_report
from darkbayes.runs import provenance, row

ROWS = [
    row("sgd", "kl_from_hmc", [0.2, 0.3], paper=0.246),
    row("sgd", "kl_to_hmc", [0.1, 0.1]),
    row("student 2-4-2", "kl_from_hmc", [0.002, 0.004]),
    row("student 2-4-2", "kl_to_hmc", [0.002, 0.004]),
    row("hmc", "rhat_max", [1.001, 1.002]),
]
RESULTS = {"experiment": "toy2d", "preset": "best", "rows": ROWS, "provenance": provenance(0, 1.0)}


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


def test_the_results_that_the_readme_quotes_are_whole():
    for path in (Path(__file__).parent.parent / "results").glob("*.json"):
        results = json.loads(path.read_text())
        assert results["rows"], path
        assert {"version", "commit", "jax", "device", "seed", "command", "wall_s"} <= results["provenance"].keys(), path
        assert "with changes" not in str(results["provenance"]["commit"]), path
        for one in results["rows"]:
            assert {"method", "metric", "mean", "se", "trials"} <= one.keys(), path
