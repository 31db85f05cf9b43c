"""What the page of a fit says of its numbers, whatever is predicted, and how the terminal shows them."""

import json
import shutil

import numpy as np
import pytest

from darkbayes.files import write_json
from darkbayes.report import pivot, terminal
from darkbayes.report.fitted.folder import read_run
from darkbayes.report.fitted.words import cautions, unknown, verdict
from darkbayes.tables.schema import TableSchema
from report.fitted.folders import CHOICES, COLUMNS, PRICE, RUN, build, course, numbers
from scripts.readme import markdown


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A regression."""
    said = numbers(np.random.default_rng(0), PRICE)
    return build(tmp_path_factory.mktemp("fit"), TableSchema(COLUMNS, PRICE), said)


def test_the_gain_is_as_the_fit_wrote_it_and_of_older_runs_taken_row_by_row(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    results = json.loads((folder / "results.json").read_text())
    results["rows"][-1]["own"] = [2.0, 0.5]
    write_json(tmp_path / "results.json", results)
    assert read_run(tmp_path).gain == (2.0, 0.5)
    del results["rows"][-1]["own"]
    write_json(tmp_path / "results.json", results)
    assert read_run(tmp_path).gain == pytest.approx(read_run(folder).gain)


def test_noise_and_doubt_are_told_apart(folder):
    run = read_run(folder)
    size = numbers(np.random.default_rng(0), PRICE)[2]["size"]
    noise = np.median(1 / (1 + (0.1 + 0.3 * size) ** 2))
    said = unknown(run, run.held)
    assert f"{noise:.0%} of the variance of a typical prediction is noise (aleatoric)" in said
    assert f"The other {1 - noise:.0%} is doubt (epistemic)" in said


def test_doubt_that_does_not_grow_beyond_what_was_seen_is_a_caution(tmp_path):
    build(tmp_path, TableSchema(COLUMNS, PRICE), None)
    assert not any("does not grow" in caution for caution in cautions(read_run(tmp_path)))
    falls = course(COLUMNS[0], PRICE)
    falls["epistemic"] = [0.1, *[0.3] * 39, 0.1]
    write_json(tmp_path / "dependence.json", [falls])
    assert (
        "Beyond the values seen of size its doubt about price does not grow: do not mistake its certainty there for "
        "knowledge."
    ) in cautions(read_run(tmp_path))


def test_what_is_wrong_with_a_table_is_a_caution(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    facts = json.loads((tmp_path / "fit.json").read_text())
    facts |= {"leaks": [{"column": "tax", "alone": 0.999, "next": 0.41}], "trained": 60}
    facts |= {"drift": [{"column": name, "by": 0.5} for name in "abcd"], "dropped": 0}
    facts["neighbour"]["ahead"] = [-0.2, 0.05]
    write_json(tmp_path / "fit.json", facts)
    run = read_run(tmp_path)
    assert cautions(run) == [
        "tax alone gives price away (over 99% of its variance on rows held out; the next column: 41%). Is it known "
        "when you predict? If not, --ignore it.",
        "Rows change along the file: a, b, c and 1 more differ between its first and last third. If it is in order of "
        "time, these scores, on rows picked at random, flatter the model.",
        "Only 60 rows to learn from: another sample would give another model.",
        "Gradient boosting did better than the student: −0.200 ± 0.050 in log likelihood.",
    ]
    assert verdict(run) == "Use it with care: 4 cautions below."


def test_a_student_that_is_worse_than_a_plug_in_network_is_called_so(tmp_path):
    y, predictions, columns = numbers(np.random.default_rng(0), PRICE)
    swapped = predictions | {"student": predictions["sgd"], "sgd": predictions["student"]}
    run = read_run(build(tmp_path, TableSchema(COLUMNS, PRICE), (y, swapped, columns)))
    texts = " ".join(cautions(run))
    assert "The plug-in network did better than the student: −" in texts
    assert "does not speak for its teacher" in texts
    assert "too narrow" in run.words.trusted(run.held)
    assert "Its intervals of price are too narrow: those that promise 90% hold" in texts
    assert verdict(run).startswith("Of no use yet: answering price without looking")


def test_chains_that_do_not_agree_and_a_budget_that_ran_out_are_cautions(tmp_path):
    apart = {"code": "apart", "text": "the chains have not met (R-hat 1.62)"}
    diagnosis = {"verdict": apart, "counts": {"apart": 1}, "warnings": [], "plateau": None}
    build(
        tmp_path,
        TableSchema(COLUMNS, PRICE),
        numbers(np.random.default_rng(0), PRICE),
        diagnostics={"student": diagnosis | {"runs": [RUN | {"code": "apart", "rhat": 1.62}]}},
        choices={"student": [CHOICES | {"steps": 9000, "hurried": True}]},
    )
    text = " ".join(cautions(read_run(tmp_path)))
    assert "Of the teacher: the chains have not met (R-hat 1.62)." in text
    assert "There was no time for more: give it a larger --time-budget." in text
    assert "ended the fit after 5,000 of 9,000 steps" in text
    assert "Only" not in text


@pytest.mark.parametrize(
    ("steps", "again", "ended"), [(5009, 0, False), (5010, 0, True), (2504, 1, False), (4000, 1, True)]
)
def test_only_a_budget_that_ran_out_is_told_as_such(steps, again, ended, tmp_path):
    """Steps after burn-in that make up no kept draw are never taken; as many chains again take as many steps."""
    folder = build(tmp_path, TableSchema(COLUMNS, PRICE), numbers(np.random.default_rng(0), PRICE))
    results = json.loads((folder / "results.json").read_text())
    results["choices"] = {"student": [CHOICES | {"steps": steps, "thin": 10}]}
    write_json(folder / "results.json", results)
    write_json(folder / "student" / "more.json", {"again": bool(again), "note": ""})
    cut = f"The time budget ended the fit after 5,000 of {steps * (1 + again):,} steps: the student had not finished"
    assert [text.startswith(cut) for text in cautions(read_run(folder)) if "time budget" in text] == [True] * ended


def test_in_a_terminal_methods_have_rows_with_names_for_people(folder, capsys):
    results = json.loads((folder / "results.json").read_text())
    lines = [line[0] for line in pivot(results)[0].rows]
    assert lines == ["student (one network)", "teacher (400 draws)", "plug-in network"]
    terminal(results)
    printed = " ".join(capsys.readouterr().out.split())
    assert "± standard error over 120 examples held out" in printed
    assert "the student keeps 100% ± 0% of what the teacher gains over the plug-in network" in printed
    assert "120 examples held out" in markdown(results)
    results["rows"][-1]["clear"] = False
    assert "no gain to keep" in pivot(results)[0].notes[0]
    terminal(results | {"rows": []})
    assert "nothing was held out" in capsys.readouterr().out
