"""The command line: every experiment in a tiny setting from end to end, and errors a person understands."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from darkbayes import cli
from darkbayes.paper import toy1d, toy2d
from darkbayes.student import Settings

TINY = {
    "trials": 2,
    "steps": 300,
    "burn_in": 100,
    "thin": 20,
    "settings": Settings(num_chains=2, query_batch=16, update_every=2, reservoir=4, restarts=2),
    "hmc_chains": 2,
    "hmc_warmup": 20,
    "hmc_draws": 20,
}
EXPERIMENTS = {
    "toy2d": (toy2d, "quick", {"students": ((4,),)}),
    "toy1d": (toy1d, "literal", {"students": ((3, 3),), "pbp_passes": 2, "vi_steps": 20, "vi_draws": 10}),
}


@pytest.fixture(scope="module", autouse=True)
def tiny_presets():
    """A preset of each experiment, at a size for tests."""
    with pytest.MonkeyPatch.context() as patch:
        for module, preset, own in EXPERIMENTS.values():
            patch.setitem(module.PRESETS, preset, dataclasses.replace(module.PRESETS[preset], **TINY, **own))
        yield


def reproduce(experiment: str, out: Path, *more: str) -> None:
    cli.main(["reproduce", experiment, "--preset", EXPERIMENTS[experiment][1], "--out", str(out), "--quiet", *more])


@pytest.fixture(scope="module", params=list(EXPERIMENTS))
def finished(request, made_once) -> tuple[str, Path]:
    """Each experiment, run once through the command line."""
    return request.param, made_once(request.param, lambda out: reproduce(request.param, out))


def test_an_experiment_leaves_results_in_the_one_form(finished):
    experiment, out = finished
    results = json.loads((out / "results.json").read_text())
    assert results["experiment"] == experiment
    assert results["preset"] == EXPERIMENTS[experiment][1]
    methods = {row["method"] for row in results["rows"]}
    assert {"sgd", "sgld", "hmc"} < methods
    assert any(method.startswith("student ") for method in methods)
    assert {"pbp", "vi"} <= methods or experiment != "toy1d"
    for row in results["rows"]:
        assert row["trials"] == 2
        assert row["mean"] == pytest.approx(sum(row["values"]) / 2)
        assert row["se"] >= 0
    assert results["provenance"]["seed"] == 0


def test_an_experiment_leaves_a_report_that_needs_nothing_else(finished):
    _, out = finished
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "Settings" in page
    assert "KL(HMC || method)" in page


def test_an_experiment_says_whether_its_chains_met(finished, capsys):
    experiment, out = finished
    results = json.loads((out / "results.json").read_text())
    students = EXPERIMENTS[experiment][2]["students"]
    assert len(results["diagnostics"]) == 2 * len(students)
    for name, diagnosis in results["diagnostics"].items():
        assert name.startswith("trial-")
        assert len(diagnosis["runs"]) == sum(diagnosis["counts"].values()) == 1
        assert diagnosis["runs"][0]["temperature"] is not None
    assert "Did the chains meet?" in (out / "report.html").read_text()
    reproduce(experiment, out, "--resume")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("chains: ")]
    assert line.startswith("chains: trial-") or ", in the worst of " in line
    assert json.loads((out / "results.json").read_text())["diagnostics"] == results["diagnostics"]


def test_a_finished_run_resumes_to_the_same_results_at_once(finished, monkeypatch):
    experiment, out = finished
    monkeypatch.setattr("darkbayes.paper.toy.sample", None)  # Any new sampling would fail.
    before = json.loads((out / "results.json").read_text())["rows"]
    reproduce(experiment, out, "--resume")
    assert json.loads((out / "results.json").read_text())["rows"] == before


def test_the_report_can_be_written_again(finished, capsys):
    _, out = finished
    (out / "report.html").unlink()
    cli.main(["report", str(out)])
    assert (out / "report.html").exists()
    assert str(out / "report.html") in capsys.readouterr().out


def test_the_table_and_the_report_are_shown_at_the_end(finished, capsys):
    experiment, out = finished
    reproduce(experiment, out, "--resume")
    shown = capsys.readouterr().out
    assert "SGLD" in shown
    assert f"report: {out / 'report.html'}" in shown.replace("\n", "")
    reproduce(experiment, out, "--resume", "--json")
    assert json.loads(capsys.readouterr().out)["experiment"] == experiment


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "--trials must be a whole number of at least 1, not 0"),
        (["--seed", "-1"], "--seed must lie in 0..4294967295, not -1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["reproduce", "toy2d", "--out", str(tmp_path / "run"), *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_refused(finished, capsys):
    experiment, out = finished
    with pytest.raises(SystemExit) as stop:
        reproduce(experiment, out)
    assert stop.value.code == 2
    assert "already holds a run: resume it" in capsys.readouterr().err


def test_a_report_of_no_run_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", str(tmp_path)])
    assert stop.value.code == 2
    assert "is not a finished run" in capsys.readouterr().err


def test_a_run_that_diverges_says_so_and_exits_with_1(tmp_path, capsys, monkeypatch):
    hot = dataclasses.replace(toy2d.PRESETS["quick"], step_size=1e6)
    monkeypatch.setitem(toy2d.PRESETS, "quick", hot)
    with pytest.raises(SystemExit) as stop:
        cli.main(["reproduce", "toy2d", "--preset", "quick", "--out", str(tmp_path / "run"), "--quiet"])
    assert stop.value.code == 1
    assert re.search(
        r"diverged: at step \d+ the log posterior of chain \d+ .*smaller step size", capsys.readouterr().err
    )
    assert not (tmp_path / "run" / "results.json").exists()


def test_a_missing_library_is_named_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "darkbayes.cli.common.importlib.util.find_spec", lambda name: None if name == "jinja2" else name
    )
    with pytest.raises(SystemExit) as stop:
        reproduce("toy2d", tmp_path / "run")
    assert stop.value.code == 2
    assert "jinja2 is not installed: pip install 'darkbayes[table]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_presets_are_runnable_as_they_stand():
    for module, *_ in EXPERIMENTS.values():
        for preset in module.PRESETS.values():
            assert preset.steps >= preset.burn_in + preset.thin
            assert preset.thin % preset.settings.update_every == 0
            assert preset.student((4,), module.problem().head)


def test_the_version_is_printed(capsys):
    cli.main(["--version"])
    assert re.fullmatch(r"darkbayes \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    assert "darkbayes reproduce toy2d --preset quick" in capsys.readouterr().out


def test_the_help_of_an_option_is_one_paragraph_as_wide_as_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit):
        cli.main(["fit", "--help"])
    line = "SQLite or DuckDB; a folder of Parquet files; or one with a subfolder of images for each class"
    assert line in capsys.readouterr().out
