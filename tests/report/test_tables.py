"""Results as tables, for Markdown and the terminal."""

import json
from pathlib import Path

from darkbayes.paper import presentation
from darkbayes.report import pivot
from darkbayes.runs import provenance, row
from scripts.readme import markdown

NAMES = presentation("toy2d").names
ROWS = [
    row("sgd", "kl_from_hmc", [0.2, 0.3], paper=0.246),
    row("sgd", "kl_to_hmc", [0.1, 0.1]),
    row("student 2-4-2", "kl_from_hmc", [0.002, 0.004]),
    row("student 2-4-2", "kl_to_hmc", [0.002, 0.004]),
    row("hmc", "rhat_max", [1.001, 1.002]),
]
RESULTS = {"experiment": "toy2d", "preset": "best", "rows": ROWS, "provenance": provenance(0, 1.0)}


def test_the_paper_stands_beside_ours_and_a_single_number_becomes_a_note():
    (table,) = pivot(RESULTS, names=NAMES)
    assert table.header == ["method", "KL(HMC || method), paper", "KL(HMC || method), ours", "KL(method || HMC)"]
    assert table.rows[0] == ["SGD (plug-in)", "0.246", "0.250 ± 0.050", "0.1000 ± 0.0000"]
    assert table.rows[1][:3] == ["student 2-4-2", "", "0.0030 ± 0.0010"]
    assert table.notes == ["HMC: largest split R-hat of the predictions 1.00150 ± 0.00050"]


def test_markdown_escapes_bars_and_names_its_origin():
    text = markdown(RESULTS, names=NAMES)
    assert "KL(HMC \\|\\| method)" in text
    assert "mean ± standard error over 2 trials, seed 0" in text
    assert len({line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_the_results_that_the_readme_quotes_are_whole():
    for path in (Path(__file__).parents[2] / "results").glob("*.json"):
        results = json.loads(path.read_text())
        assert results["rows"], path
        assert {"version", "commit", "jax", "device", "seed", "command"} <= results["provenance"].keys(), path
        assert "with changes" not in str(results["provenance"]["commit"]), path
        for one in results["rows"]:
            assert {"method", "metric", "mean"} <= one.keys(), path
            assert one.get("published") or {"se", "trials"} <= one.keys(), path
