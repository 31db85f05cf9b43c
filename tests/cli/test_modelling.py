"""The commands for one's own data from end to end, on two small tables that are fitted once."""

import csv
import gc
import gzip
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import shipped_models
import short_fits
from darkbayes import cli
from darkbayes.errors import InvalidInput
from darkbayes.fit import folder, load_folder, prepare_table
from darkbayes.predict import predict_student
from darkbayes.shipped import Shipped
from darkbayes.tables import frame_of, from_columns, read_table

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'darkbayes[tables]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'darkbayes[onnx]'")

SMALL = ["--hidden", "4", "--activation", "relu", "--student-hidden", "8", "--chains", "2", "--effort", "0.02"]

GAUSSIAN = ["--head", "gaussian"]


class Run(NamedTuple):
    """A finished fit."""

    source: Path
    out: Path
    printed: str
    message: str


def fit(source: Path, target: str, out: Path, *more: str) -> None:
    cli.main(["fit", str(source), "--target", target, "--out", str(out), *SMALL, *more])


def captured(capsys: Any, *arguments: Any) -> tuple[str, str]:
    cli.main([str(argument) for argument in arguments])
    return capsys.readouterr()


class Streams:
    """What a fixture of a module prints, which `capsys` is not there for."""

    def __init__(self, patch: pytest.MonkeyPatch):
        import io

        self.out, self.err = io.StringIO(), io.StringIO()
        patch.setattr(sys, "stdout", self.out)
        patch.setattr(sys, "stderr", self.err)


@pytest.fixture(scope="module")
def prices(tmp_path_factory) -> Run:
    """Regression; it was interrupted when the student was done, and went on."""
    root, rng = tmp_path_factory.mktemp("prices"), np.random.default_rng(0)
    a, b, noise = rng.normal(size=(3, 60)).round(3)
    lines = ["a,b,y", *(f"{a[k]},{b[k]},{a[k] - b[k] + 0.3 * noise[k]:.4f}" for k in range(60))]
    source, out = root / "prices.csv", root / "runs" / "prices"
    source.write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        streams = Streams(patch)
        short_fits.shorten(patch)
        with pytest.MonkeyPatch.context() as interrupting:
            interrupting.setattr(folder, "plug_in", _interrupt)
            with pytest.raises(SystemExit) as stop:
                fit(source, "y", out, *GAUSSIAN)
        assert stop.value.code == 130
        assert not (out / "results.json").exists()
        fit(source, "y", out, *GAUSSIAN, "--resume")
    return Run(source, out, streams.out.getvalue(), streams.err.getvalue())


def _interrupt(*arguments: Any) -> Any:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def kinds(tmp_path_factory) -> Run:
    """Classification, with categories and missing values."""
    root, rng = tmp_path_factory.mktemp("kinds"), np.random.default_rng(1)
    size, noise = rng.normal(size=(2, 60)).round(3)
    lines = ["size,colour,kind"]
    for k in range(60):
        colour = ("red", "blue", "")[k % 3]
        kind = "large" if size[k] + (colour == "red") + 0.3 * noise[k] > 0.3 else "small"
        lines.append(f"{'' if k % 9 == 0 else size[k]},{colour},{kind}")
    source, out = root / "kinds.csv", root / "runs" / "kinds"
    source.write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        streams = Streams(patch)
        short_fits.shorten(patch)
        fit(source, "kind", out, "--json", "--guarantee", "0.8")
    return Run(source, out, streams.out.getvalue(), streams.err.getvalue())


def test_a_second_table_of_another_size_compiles_the_plug_in_network_alone(
    prices: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, further_compilations: Counter[str]
) -> None:
    """Which has no columns that fill up, since it would start elsewhere. No program is compiled for what numpy does."""
    a, y = np.random.default_rng(2).normal(size=(2, 75)).round(3)
    days = [f"{k % 28 + 1}.{k % 12 + 1}.2021" for k in range(75)]
    # As a spreadsheet in the west of Europe writes it.
    lines = [f"{a[k]};{days[k]};{'Kärnten' if k % 2 else 'Wien'};{y[k]}".replace(".", ",") for k in range(75)]
    lines = [line.replace(days[k].replace(".", ","), days[k]) for k, line in enumerate(lines)]
    source, run = tmp_path / "other.csv", tmp_path / "run"
    source.write_text("\n".join(["a;sold;where;y", *lines]) + "\n", encoding="cp1252")
    short_fits.shorten(monkeypatch)
    monkeypatch.setattr("darkbayes.fit.plugin.BATCH", 10)  # Less than there are rows in either part.
    fit(source, "y", run, *GAUSSIAN, "--quiet")
    assert further_compilations == {"_strides": 1}
    # A file of predictions, one of scores, and a frame in memory are of the same rows.
    cli.main(["predict", str(run), str(source), "-o", str(tmp_path / "out.csv"), "--quiet"])
    shipped = Shipped(run)
    where = ["Kärnten" if k % 2 else "Wien" for k in range(75)]
    frame = frame_of(from_columns({"a": a, "sold": days, "where": where}), shipped.schema)
    said = shipped.predict(frame)
    np.testing.assert_allclose(numbers(rows_of(tmp_path / "out.csv"), "mean"), said.mean[:, 0], rtol=1e-5, atol=1e-6)
    capsys.readouterr()
    cli.main(["evaluate", str(run), str(source), "--json", "--quiet"])
    scores = {row["metric"]: row["mean"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((said.mean[:, 0] - y) ** 2)), rel=1e-4)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def numbers(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.asarray([float(row[name]) for row in rows])


def test_a_fit_leaves_a_student_its_scores_and_a_report(prices):
    assert {path.name for path in prices.out.iterdir()} == {
        *(
            "began.json",
            "timings.json",
            "config.json",
            "dependence.json",
            "examples.json",
            "excursions.json",
            "fit.json",
            "held-out.safetensors",
        ),
        *("report.html", "results.json", "schema.json", "student", "student.onnx", "student.safetensors"),
    }
    assert f"student: {prices.out / 'student.onnx'}" in prices.printed
    assert f"report: {prices.out / 'report.html'}" in prices.printed
    assert "likelihood" in prices.printed
    assert "chains: " in prices.printed
    results = json.loads((prices.out / "results.json").read_text())
    assert {row["method"] for row in results["rows"]} == {"student", "sgld", "sgd"}
    assert json.loads((prices.out / "fit.json").read_text())["held_out"] == 12


def test_a_fit_tells_its_choices_and_how_to_go_on_after_an_interruption(prices):
    assert "- 'y' is a number; it is modelled as it is: not all of its values are positive" in prices.message
    assert (
        "darkbayes: interrupted; `fit` and `reproduce` go on from their last checkpoint with --resume" in prices.message
    )


def test_a_fit_prints_json_and_nothing_else_if_asked(kinds):
    assert json.loads(kinds.printed)["experiment"] == "fit"
    assert "- 'kind' is one of 2 classes: 'large', 'small'" in kinds.message


def test_a_guarantee_is_in_the_results_the_report_the_student_and_its_predictions(kinds, tmp_path):
    guarantee = json.loads((kinds.out / "fit.json").read_text())["guarantee"]
    assert (guarantee["level"], guarantee["rows"]) == (0.8, 12)
    assert "by the luck of these 12 the share may be anything from" in guarantee["luck"]
    assert guarantee["change"] in (kinds.out / "report.html").read_text()
    assert Shipped(kinds.out).schema.target.guarantee.rows == 12
    cli.main(["predict", str(kinds.out), str(kinds.source), "-o", str(tmp_path / "p.csv"), "--quiet"])
    assert {row["set_80"] for row in rows_of(tmp_path / "p.csv")} <= {"large", "small", "large|small"}


def test_a_guarantee_with_too_few_rows_says_how_many_are_needed(prices, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        fit(prices.source, "y", tmp_path / "run", "--guarantee", "0.95")
    assert stop.value.code == 2
    assert "guarantee 0.95 needs 19 rows that are held out to calibrate it, and there are 12" in capsys.readouterr().err


def test_a_finished_fit_is_not_overwritten_and_not_resumed_with_other_options(prices, capsys):
    for more, message in (
        ([], "already holds a run"),
        (["--resume", "--seed", "7"], "holds another run (seed is 0, not 7): choose another folder"),
    ):
        with pytest.raises(SystemExit) as stop:
            fit(prices.source, "y", prices.out, *GAUSSIAN, *more)
        assert stop.value.code == 2
        assert message in capsys.readouterr().err


def test_predictions_come_in_the_order_of_the_rows_whatever_it_is(prices, tmp_path):
    header, *lines = prices.source.read_text().splitlines()
    backwards = tmp_path / "backwards.csv"
    backwards.write_text("\n".join([header, *reversed(lines)]) + "\n")
    for source, out in ((prices.source, "out.csv"), (backwards, "backwards.out.csv")):
        cli.main(["predict", str(prices.out), str(source), "-o", str(tmp_path / out), "--quiet"])
    there, back = (numbers(rows_of(tmp_path / out), "mean") for out in ("out.csv", "backwards.out.csv"))
    assert len(there) == 60
    np.testing.assert_allclose(there, back[::-1], rtol=1e-5)


def test_predictions_go_to_standard_output_or_to_parquet(prices, tmp_path, capfdbinary):
    import pyarrow.parquet

    cli.main(["predict", str(prices.out), str(prices.source), "-o", str(tmp_path / "out.parquet"), "--level", "0.5"])
    assert b"100%" in capfdbinary.readouterr().err
    cli.main(["predict", str(prices.out), str(prices.source), "--level", "0.5", "--quiet"])
    shown = capfdbinary.readouterr()
    assert shown.err == b""
    rows = list(csv.DictReader(shown.out.decode().splitlines()))
    assert list(rows[0]) == ["mean", "std", "aleatoric_std", "epistemic_std", "lower_50", "upper_50", "outside"]
    stored = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert [text or "" for text in stored["outside"].to_pylist()] == [row.pop("outside") for row in rows]
    for name in rows[0]:
        np.testing.assert_allclose(stored[name].to_numpy(), numbers(rows, name), rtol=1e-6)


def test_bad_rows_are_skipped_if_asked_and_the_others_keep_their_lines(prices, tmp_path, capsys):
    lines = prices.source.read_text().splitlines()
    lines[4], lines[9] = "many,1,2", "1,2"
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out.csv"
    _, message = captured(capsys, "predict", prices.out, tmp_path / "new.csv", "-o", out, "--on-bad", "skip")
    assert "2 bad rows are left out: line 5: 'a' is 'many', not a number; line 10: 2 fields instead of 3" in message
    assert [int(row["line"]) for row in rows_of(out)] == [line for line in range(2, 62) if line not in (5, 10)]


def test_scores_of_numbers_are_those_of_the_predictions(prices, tmp_path, capsys):
    out = tmp_path / "out.csv"
    cli.main(["predict", str(prices.out), str(prices.source), "-o", str(out), "--quiet"])
    rows, y = rows_of(out), numbers(rows_of(prices.source), "y")
    mean, std, low, high = (numbers(rows, name) for name in ("mean", "std", "lower_90", "upper_90"))
    expected = {
        "log_likelihood": np.mean(-0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi)),
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "coverage_90": np.mean((low <= y) & (y <= high)),
    }
    shown, _ = captured(capsys, "evaluate", prices.out, prices.source, "--quiet", "--json")
    actual = {row["metric"]: row["mean"] for row in json.loads(shown)["rows"]}
    assert actual == pytest.approx(expected, rel=1e-4)
    shown, _ = captured(capsys, "evaluate", prices.out, prices.source, "--quiet")
    assert "scores on prices.csv" in shown


def test_scores_of_a_fit_are_those_of_its_file_on_the_same_rows_whatever_is_guaranteed(
    prices: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    short_fits.shorten(monkeypatch)
    out, held = tmp_path / "run", tmp_path / "held.csv"
    fit(prices.source, "b", out, "--target", "b", "y", "--guarantee", "0.8", "--seed", "3", "--quiet")
    places = prepare_table(read_table(prices.source), ["b", "y"], seed=3).places
    lines = prices.source.read_text().splitlines()
    held.write_text("\n".join([lines[0], *(lines[int(place.removeprefix("line ")) - 1] for place in places)]) + "\n")
    capsys.readouterr()
    shown, _ = captured(capsys, "evaluate", out, held, "--quiet", "--json")
    actual = {row["metric"]: (row["mean"], row["se"]) for row in json.loads(shown)["rows"]}
    # Of the 12 rows that calibrated them, intervals of each leave out the strangest.
    assert actual.pop("guaranteed_coverage_80")[0] == pytest.approx(11 / 12)
    rows = json.loads((out / "results.json").read_text())["rows"]
    expected = {row["metric"]: (row["mean"], row["se"]) for row in rows if row["method"] == "student"}
    del expected["gain_kept"]
    assert actual.keys() == expected.keys()
    for metric, score in expected.items():
        assert actual[metric] == pytest.approx(score, rel=1e-4), metric
    # And of each by itself: together they are the mean of squares.
    each = json.loads((out / "fit.json").read_text())["outputs"]
    assert np.mean([score["rmse"][0] ** 2 for score in each]) == pytest.approx(expected["rmse"][0] ** 2)
    assert np.mean([score["coverage_90"][0] for score in each]) == pytest.approx(expected["coverage_90"][0])


def test_scores_of_classes_are_those_of_the_predictions(kinds, tmp_path, capsys):
    out = tmp_path / "out.csv"
    cli.main(["predict", str(kinds.out), str(kinds.source), "-o", str(out), "--quiet"])
    rows, y = rows_of(out), [row["kind"] for row in rows_of(kinds.source)]
    own = np.asarray([float(row[f"probability_{kind}"]) for row, kind in zip(rows, y, strict=True)])
    wrong = [row["prediction"] != kind for row, kind in zip(rows, y, strict=True)]
    shown, _ = captured(capsys, "evaluate", kinds.out, kinds.source, "--quiet", "--json")
    actual = {row["metric"]: row["mean"] for row in json.loads(shown)["rows"]}
    assert actual["log_likelihood"] == pytest.approx(np.mean(np.log(own)), rel=1e-4)
    assert actual["error"] == pytest.approx(100 * np.mean(wrong))


def test_missing_and_unknown_categories_are_predicted(kinds, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("size,colour\n,\n1.5,mauve\n-1,red\n")
    out = tmp_path / "out.csv"
    _, message = captured(capsys, "predict", kinds.out, tmp_path / "new.csv", "-o", out)
    assert "'colour': 1 cell holds a category that the model does not know: 'mauve'" in message
    rows = rows_of(out)
    assert {row["prediction"] for row in rows} <= {"large", "small"}
    np.testing.assert_allclose(numbers(rows, "probability_large") + numbers(rows, "probability_small"), 1, rtol=1e-5)
    np.testing.assert_allclose(
        numbers(rows, "entropy"), numbers(rows, "expected_entropy") + numbers(rows, "mutual_information"), atol=1e-5
    )


def as_json_lines(content: bytes) -> bytes:
    rows = csv.DictReader(content.decode().splitlines())
    cells = ({name: cell or None for name, cell in row.items()} for row in rows)
    return "\n".join(json.dumps(row) for row in cells).encode()


@pytest.mark.parametrize("form", [bytes, gzip.compress, as_json_lines])
def test_a_pipe_is_read_as_a_file_of_its_content_is(kinds, form, tmp_path, capsys, monkeypatch):
    content, pipe, copies = form(kinds.source.read_bytes()), tmp_path / "pipe", tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    os.mkfifo(pipe)
    (tmp_path / "file").write_bytes(content)

    def said(*command: Any) -> list[str]:
        answers = []
        for source in (tmp_path / "file", pipe):
            feeding = threading.Thread(target=pipe.write_bytes, args=(content,))
            if source == pipe:
                feeding.start()
            shown, message = captured(capsys, *(source if part is Path else part for part in command))
            answers.append((shown + message).replace(str(source), "SOURCE").replace(source.name, "SOURCE"))
            if source == pipe:
                feeding.join()
        gc.collect()
        assert not list(copies.iterdir())
        return answers

    for command in (
        ("predict", kinds.out, Path),
        ("evaluate", kinds.out, Path, "--json"),
        ("suggest", kinds.out, Path, "-n", "3"),
    ):
        one, other = said(*command)
        assert one == other
        assert one
    fits = []
    monkeypatch.setattr("darkbayes.fit.fit_folder", lambda *given, **how: fits.append(given[:2]) or {})
    one, other = said("fit", Path, "--target", "kind", "--out", tmp_path / "run")
    assert one == other
    (one, ours), (other, theirs) = fits
    np.testing.assert_array_equal(one.train.x, other.train.x)
    assert one.schema == other.schema
    assert ours == theirs | {"source": "file"}
    assert theirs["source"] == "pipe"


def test_what_is_wrong_in_a_pipe_is_said_by_its_name(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    threading.Thread(target=pipe.write_bytes, args=(b'[{"a": 1},',)).start()
    with pytest.raises(InvalidInput, match=re.escape(f"{pipe} is not valid JSON from line 1")):
        read_table(pipe)


@pytest.mark.parametrize("name", ["prices", "kinds"])
def test_an_exported_student_says_what_the_student_of_the_folder_says(name, request, tmp_path, capsys):
    run = request.getfixturevalue(name)
    shown, _ = captured(capsys, "export", run.out, "-o", tmp_path / "own.onnx")
    assert shown.startswith(f"{tmp_path / 'own.onnx'}: ")
    student, params, schema = load_folder(run.out)
    frame = frame_of(read_table(run.source), schema)
    expected: Any = predict_student(student, params, schema.encode(frame))
    actual: Any = Shipped(tmp_path / "own.onnx").predict(frame)
    if name == "kinds":
        np.testing.assert_allclose(actual.probs, expected.probs, atol=1e-5)
        return
    mean = np.asarray(expected.mean)[:, 0] * schema.target.scale + schema.target.center
    np.testing.assert_allclose(actual.mean[:, 0], mean, rtol=1e-5, atol=1e-5)


def test_eight_bits_tell_what_they_lose(prices, tmp_path, capsys):
    out = tmp_path / "small.onnx"
    shown, _ = captured(capsys, "export", prices.out, "--int8", "-o", out)
    loss = json.loads((prices.out / "fit.json").read_text())["int8_loss"]
    assert f"log likelihood a row on the rows held out: {'lower' if loss >= 0 else 'higher'} by" in shown
    shown, _ = captured(capsys, "export", prices.out, "--int8", "-o", out, "--on", prices.source)
    assert f"log likelihood a row on {prices.source}: " in shown
    scores = []
    for model in (prices.out, out):
        printed, _ = captured(capsys, "evaluate", model, prices.source, "--json", "--quiet")
        scores.append(json.loads(printed)["rows"][0]["mean"])
    loss = scores[0] - scores[1]
    assert f"by {abs(loss):.1g}"[:6] in shown or abs(loss) < 1e-4


def test_weights_are_exported_by_name_and_for_pytorch_without_onnx(prices, tmp_path, capsys, monkeypatch):
    from safetensors.numpy import load_file

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SystemExit):
        cli.main(["export", str(prices.out), "-o", str(tmp_path / "own.onnx")])
    assert "onnx is not installed: pip install 'darkbayes[table]'" in capsys.readouterr().err
    captured(capsys, "export", prices.out, "--safetensors", "-o", tmp_path / "own.safetensors")
    assert sum(array.size for array in load_file(tmp_path / "own.safetensors").values()) == 2 * 8 + 8 + 8 * 3 + 3
    with pytest.raises(SystemExit):
        cli.main(["export", str(prices.out), "--safetensors", "-o", str(tmp_path / "own.onnx")])
    assert "does not end in .safetensors: name a file that does" in capsys.readouterr().err
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
    captured(capsys, "export", prices.out, "--torch", "-o", tmp_path / "own.pt")
    state = torch.load(tmp_path / "own.pt", weights_only=True)
    assert sum(array.numel() for array in state.values()) == 2 * 8 + 8 + 8 * 3 + 3


def test_the_report_is_written_again(prices, capsys):
    (prices.out / "report.html").unlink()
    shown, _ = captured(capsys, "report", prices.out)
    assert shown.strip() == str(prices.out / "report.html")
    assert "<html" in (prices.out / "report.html").read_text()


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "report", "export", "serve", "completion"])
def test_the_help_of_a_command_has_examples_that_fit_the_terminal(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    examples = shown.split("examples:\n")[1].split("\n\n")[0].splitlines()
    assert examples
    assert all(f"darkbayes {command}" in line and len(line) <= 85 for line in examples)
    assert "{None}" not in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_script_for_completion(shell, capsys):
    shown, _ = captured(capsys, "completion", shell)
    assert "darkbayes" in shown
    assert "evaluate" in shown
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=shown, text=True).returncode == 0


def python(*arguments: Any) -> list[str]:
    return [sys.executable, "-P", "-m", "darkbayes", *map(str, arguments)]


def test_the_package_runs_as_a_module():
    done = subprocess.run(python("--version"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("darkbayes ")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    run = shipped_models.write(tmp_path / "run", "field")
    (tmp_path / "new.csv").write_text("east,north\n" + "1,2\n" * 50_000)
    # Without a buffer a write may take a part, and the next alone tells that nobody reads.
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | {"PYTHONUNBUFFERED": "1"}}
    with subprocess.Popen(python("predict", run, tmp_path / "new.csv", "--quiet"), **options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"mean,std")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == cli.BROKEN_PIPE
