"""What the page of a fit says of its numbers, whatever is predicted, and how the terminal shows them."""

import json
import shutil

import numpy as np
import pytest

from darkbayes.files import write_arrays, write_json
from darkbayes.metrics import kept_gain
from darkbayes.report import markdown, pivot, terminal
from darkbayes.report.fitted.folder import read_run
from darkbayes.report.fitted.spots import least_sure
from darkbayes.report.fitted.words import cautions, gain, kept_words, paragraphs
from darkbayes.tables.schema import TableSchema
from report.fitted.folders import CHOICES, COLUMNS, PRICE, RUN, build, course, held_out, numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A regression."""
    said = numbers(np.random.default_rng(0), PRICE)
    return build(tmp_path_factory.mktemp("fit"), TableSchema(COLUMNS, PRICE), said)


def test_the_share_kept_is_taken_row_by_row(folder):
    held = read_run(folder).held
    student, teacher, plug_in = (held.methods[name].log_likelihood for name in ("student", "sgld", "sgd"))
    kept = gain(held)
    assert kept.gain.value == pytest.approx(np.mean(teacher - plug_in))
    assert kept.share.value == pytest.approx(np.mean(student - plug_in) / np.mean(teacher - plug_in))
    assert kept.share.error == pytest.approx(0.0, abs=1e-12)  # Student and teacher are the same here.


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        ([1.0, 1.1, 0.9, 1.0], "keeps 50 ±"),
        ([-1.0, -1.1, -0.9, -1.0], "no gain of which the student could keep a share"),
        ([5.0, -4.0, 5.0, -4.0], "may be chance"),
        ([np.inf, 1.0, 1.0, 1.0], "cannot be computed"),
    ],
)
def test_a_share_of_no_gain_is_not_named(teacher, words):
    text = kept_words(kept_gain(np.array([0.5, 0.6, 0.4, 0.5]), np.array(teacher), np.zeros(4)), "rows")
    assert words in text
    assert ("%" in text) == ("keeps 50" in words)


def test_the_least_sure_part_is_where_doubt_was_put(folder):
    run = read_run(folder)
    (spot,) = least_sure(run, run.held)
    assert spot.column == "size"
    assert spot.where.endswith("or more")
    said = dict(paragraphs(run))["What does it not know?"]
    assert f"It is least sure of price where size {spot.where}: ±" in said


def test_doubt_beyond_what_was_seen_is_named_and_missed_where_it_does_not_grow(folder, tmp_path):
    grows = "its doubt grows most along size: from ±0.445 to ±0.548 at 12.5"
    assert grows in dict(paragraphs(read_run(folder)))["What does it not know?"]
    build(tmp_path, TableSchema(COLUMNS, PRICE), None)
    assert grows in dict(paragraphs(read_run(tmp_path)))["What does it not know?"]
    falls = course(COLUMNS[0], PRICE)
    falls["epistemic"] = [0.1, *[0.3] * 39, 0.1]
    write_json(tmp_path / "dependence.json", [falls])
    assert dict(paragraphs(read_run(tmp_path))) == {
        "What does it not know?": "Its doubt does not grow beyond the values seen of size: do not mistake its "
        "certainty there for knowledge."
    }


def test_a_student_that_is_worse_than_a_plug_in_network_is_called_so(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    arrays = held_out(numbers(np.random.default_rng(0), PRICE))
    for name in [name for name in arrays if name.startswith("student.")]:
        other = name.replace("student", "sgd")
        arrays[name], arrays[other] = arrays[other], arrays[name]
    write_arrays(tmp_path / "held-out.safetensors", arrays)
    run = read_run(tmp_path)
    said = dict(paragraphs(run))
    assert "That one did better" in said["Was it worth the effort?"]
    assert "too narrow" in said["Can its certainty be trusted?"]
    assert any("does not speak for its teacher" in caution for caution in cautions(run))


def test_chains_that_do_not_agree_and_a_budget_that_ran_out_are_cautions(tmp_path):
    apart = {"code": "apart", "text": "the chains have not met"}
    diagnosis = {"verdict": apart, "counts": {"apart": 1}, "warnings": [], "plateau": None}
    build(
        tmp_path,
        TableSchema(COLUMNS, PRICE),
        numbers(np.random.default_rng(0), PRICE),
        diagnostics={"student": diagnosis | {"runs": [RUN | {"code": "apart", "rhat": 1.62}]}},
        choices={"student": [CHOICES | {"steps": 9000, "reason": "as many as 30 seconds allow"}]},
    )
    text = " ".join(cautions(read_run(tmp_path)))
    assert "4 chains did not come to the same predictions (R-hat 1.62; up to 1.1 is agreement)" in text
    assert "larger --time-budget" in text
    assert "ended the fit after 5,000 of 9,000 steps" in text
    assert "Only" not in text


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
