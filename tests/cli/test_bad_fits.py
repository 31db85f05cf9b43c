"""What a person is told who gives the commands for one's own data something that they cannot use.

Each message names the argument, file or column, the value and what to do; the exit code is 2, and nothing is left
behind. Nothing is fitted here: whatever can be refused is refused before.
"""

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shipped_models
from darkbayes import cli
from darkbayes.fit import prepare_table
from darkbayes.tables import from_columns, read_table

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'darkbayes[tables]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'darkbayes[onnx]'")


def table(row: Any = lambda k: f"{7 * k % 11},{k % 5},{k * k % 17}.5", rows: int = 40, header: str = "a,b,y") -> str:
    return "".join(f"{line}\n" for line in (header, *map(row, range(rows))))


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Runs a command that must be refused, in a folder of its own; returns what it says."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: Any) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as stop:
            cli.main([str(argument) for argument in arguments])
        assert stop.value.code == 2
        assert sorted(tmp_path.rglob("*")) == before
        shown = capsys.readouterr()
        assert shown.out == ""
        return " ".join(shown.err.split())

    return run


def infinite_in(line: int, column: int) -> Any:
    def row(k: int) -> str:
        cells = [str(7 * k % 11), str(k % 5), f"{k * k % 17}.5"]
        cells[column] = "inf" if k == line - 2 else cells[column]
        return ",".join(cells)

    return row


FILES = {
    "an empty file": ("", "data.csv is empty: a table has a line with the names of its columns, and rows"),
    "blank lines": ("\n\n", "data.csv is empty"),
    "a header only": ("a,b,y\n", "data.csv has the names of 3 columns, but no rows: is it the right file?"),
    "one class only": (
        table(lambda k: f"{k % 7},{k % 5},yes"),
        "data.csv: 'y' is 'yes' in every row: to tell classes apart, there must be examples of at least two",
    ),
    "a constant target": (
        table(lambda k: f"{k % 7},{k % 5},3.5"),
        "data.csv: 'y' is 3.5 in every row: there is nothing to learn",
    ),
    "a target without a value": (
        table(lambda k: f"{k % 7},{k % 5},"),
        "'y' is missing in every row of data.csv: there is nothing to learn",
    ),
    "no column of use": (
        table(lambda k: f"4,,{k * k % 17}.5"),
        "data.csv has no column to predict 'y' from: 'a' left out: every row has the same value; 'b' left out: every "
        "value is missing",
    ),
    "duplicate names": (
        table(header="a,a,y"),
        "data.csv has several columns of the name 'a': rename them or delete all but one",
    ),
    "mixed types": (
        table(lambda k: f"{'big' if k == 7 else k % 7},{k % 5},{k % 17}.5", header="my size,b,y"),
        "data.csv: 'my size' holds numbers, but line 9 has 'big': correct it, leave the cell empty if the value is "
        "missing, or leave the column out (--ignore 'my size')",
    ),
    "a target of mixed types": (
        table(lambda k: f"{k % 7},{k % 5},{'big' if k == 7 else k}"),
        "data.csv: the target 'y' holds numbers, but line 9 has 'big': correct it, leave the cell empty if the value",
    ),
    "bytes that are not UTF-8": (
        table(lambda k: f"{k % 7},{'e' if k else 'é'},{k % 17}.5").encode() + "2,é,1.5\n".encode("latin-1"),
        "data.csv is not in UTF-8: line 42 holds the byte 0xE9 (in Latin-1 it would read '2,é,1.5'). Save it again as",
    ),
    "a strange delimiter": (
        table().replace(",", ":"),
        "data.csv has no column 'y'; its only one is 'a:b:y': if these are several columns, say what separates them "
        "(--delimiter)",
    ),
    "no header": (
        "1,2,3\n4,5,6\n" * 20,
        "data.csv has no column 'y', and its first line holds numbers ('1', '2', '3'): put a line with the names",
    ),
    "a row too long": (
        table(lambda k: f"{k},{k},{k},{k}" if k == 4 else f"{k % 7},{k % 5},{k % 17}.5"),
        "data.csv: line 6: 4 fields instead of 3 (',' was taken to separate columns). Put quotes around text",
    ),
    "nine rows": (table(rows=9), "data.csv has 9 rows with a value of 'y': at least 10 are needed"),
    "one row": (table(rows=1), "data.csv has 1 row with a value of 'y': at least 10 are needed"),
    "dates": (
        table(lambda k: f"{k % 7},2024-02-{k % 30 + 1:02d},{k % 17}.5"),
        "data.csv: 'b' holds dates, but line 31 has '2024-02-30': correct it, leave the cell empty if the value is "
        "missing, or leave the column out (--ignore b)",
    ),
    "dates to predict": (
        table(lambda k: f"{k % 7},{k % 5},2024-01-{k % 28 + 1:02d}"),
        "data.csv: the target 'y' holds dates, which cannot be predicted: turn it into a number",
    ),
    "an infinity": (
        table(infinite_in(line=5, column=0)),
        "data.csv: 'a' is infinite in line 5: correct it, or leave the cell empty if the value is missing",
    ),
    "an infinite target": (table(infinite_in(line=5, column=2)), "data.csv: 'y' is infinite in line 5: correct it"),
    "names to predict": (
        table(lambda k: f"{k % 7},{k % 5},name {k}"),
        "data.csv: 'y' has 40 different values in 40 rows: too many for classes. Is it the right column?",
    ),
    "a spreadsheet": (
        b"PK\x03\x04 and so on",
        "data.csv is compressed, and cannot be unpacked (File is not a zip file): make it again",
    ),
    "no text": (
        b"\x00\x01\x02" * 50,
        "data.csv holds bytes that are not text, and is no other kind of table that is known",
    ),
    "a broken Parquet file": (b"PAR1 and no more", "data.csv cannot be read as Parquet"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_fitted_is_refused(name, tmp_path, refused):
    content, message = FILES[name]
    (tmp_path / "data.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused("fit", "data.csv", "--target", "y")


def test_an_infinity_is_refused_wherever_it_is(tmp_path, refused):
    """Whether a row trains or is held out is chance; whether its table is accepted is none."""
    for line in range(2, 42, 3):
        (tmp_path / "data.csv").write_text(table(infinite_in(line, column=1)))
        assert f"'b' is infinite in line {line}" in refused("fit", "data.csv", "--target", "y")


ARGUMENTS = {
    "a head of another outcome": (["--target", "y", "--task", "regression", "--head", "softmax"], "softmax"),
    "two targets that are classes": (
        ["--target", "a", "y", "--task", "classification"],
        "classification predicts one column, not 'a', 'y': name one target",
    ),
    "a likelihood of another outcome": (
        ["--target", "y", "--task", "regression", "--likelihood", "poisson"],
        "likelihood 'poisson' is not one for regression: choose among one-noise, input-noise",
    ),
    "a target that is not there": (["--target", "Yy"], "data.csv has no column 'Yy': did you mean 'y'?"),
    "a target like no other": (["--target", "price"], "data.csv has no column 'price': its columns are 'a', 'b', 'y'"),
    "no target": ([], "--target is needed: which column of data.csv is to be predicted?"),
    "a wrong delimiter": (
        ["--target", "y", "--delimiter", ";"],
        "data.csv has one column only if a semicolon separates them, but its first line ('a,b,y') has a comma: is ',' "
        "the delimiter?",
    ),
    "a long delimiter": (["--target", "y", "--delimiter", "::"], "the delimiter must be one character"),
    "a share above one": (
        ["--target", "y", "--held-out", "1.5"],
        "--held-out must be a share from 0 to below 1, such as 0.2, not 1.5",
    ),
    "a share that is no number": (["--target", "y", "--held-out", "nan"], "--held-out must be a share from 0 to below"),
    "a share that leaves nothing": (
        ["--target", "y", "--held-out", "0.99"],
        "held_out 0.99 leaves 0 of 40 rows to learn from: hold out a smaller share",
    ),
    "a time that is none": (
        ["--target", "y", "--time-budget", "soon"],
        "--time-budget 'soon' is not a duration: write 60s, 5m, 1h or none",
    ),
    "no time": (["--target", "y", "--time-budget", "0"], "--time-budget '0' is not a duration"),
    "a time before": (["--target", "y", "--time-budget", "-5s"], "--time-budget '-5s' is not a duration"),
    "no units": (
        ["--target", "y", "--hidden", "0"],
        "a width in hidden must be a whole number of at least 1, not 0",
    ),
    "fewer than no units": (["--target", "y", "--student-hidden", "-3"], "a width in student_hidden must be"),
    "no chains": (["--target", "y", "--chains", "0"], "chains must be a whole number of at least 1, not 0"),
    "a seed that is none": (["--target", "y", "--seed", "-1"], "--seed must lie in 0..4294967295, not -1"),
    "a strange column to ignore": (
        ["--target", "y", "--ignore", "bb"],
        "data.csv has no column 'bb': did you mean 'b'?",
    ),
    "the target to ignore": (["--target", "y", "--ignore", "y"], "'y' is the target: it cannot be ignored as well"),
    "every column to ignore": (
        ["--target", "y", "--ignore", "a", "b"],
        "data.csv has no column to predict 'y' from: 'a', 'b' left out",
    ),
    "an unknown task": (
        ["--target", "y", "--task", "regresion"],
        "--task must be one of auto, classification, counts, regression, not regresion",
    ),
    "classes that are numbers": (
        ["--target", "y", "--task", "classification"],
        "classification predicts classes, but 'y' holds the number 0.5: choose the task regression (--task regression)",
    ),
    "a likelihood of counts for numbers": (
        ["--target", "y", "--likelihood", "poisson"],
        "counts are whole numbers from 0, but 'y' holds 0.5: correct it, or choose another task or likelihood",
    ),
    "a transform that is none": (["--target", "y", "--transform", "root"], "--transform"),
    "a logarithm of classes": (
        ["--target", "a", "--task", "classification", "--transform", "log"],
        "the transform of the target of classification must be auto, not 'log'",
    ),
    "a logarithm of zero": (
        ["--target", "b", "--task", "regression", "--transform", "log"],
        "data.csv: 'b' holds 0, which has no logarithm: choose another transform (--transform none)",
    ),
    "a missing value that is a number": (
        ["--target", "y", "--missing", "?", "-999"],
        "missing must name texts that are no numbers and no truth values, not '-999': leave these cells empty",
    ),
    "a number that is none": (["--target", "y", "--chains", "many"], "many"),
    "a file to write into": (["--target", "y", "--out", "data.csv"], "data.csv is a file: choose a folder"),
    "a folder of other things": (
        ["--target", "y", "--out", "full"],
        "full is not empty and holds no run: choose another folder",
    ),
    "a folder of another run": (
        ["--target", "y", "--out", "run"],
        "run already holds a run: resume it, or choose another folder",
    ),
    "another run to resume": (
        ["--target", "y", "--out", "run", "--resume"],
        "run holds another run (chains is 3, not 8",
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_cannot_be_is_refused(name, tmp_path, refused):
    (tmp_path / "data.csv").write_text(table())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"chains": 3}')
    arguments, message = ARGUMENTS[name]
    assert message in refused("fit", "data.csv", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["z", "--likelihood", "poisson"], "likelihood 'poisson' is for counts, but 'z' holds 'so': leave"),
        (
            ["y", "z", "--likelihood", "one-noise"],
            "likelihood 'one-noise' is for regression, but 'z' holds 'so': leave",
        ),
        (
            ["y", "z", "--task", "regression"],
            "several targets must be numbers, but 'z' holds 'so': predict it by itself",
        ),
        (["y", "z"], "several targets must all be numbers, but 'z' holds 'so': predict it by itself"),
        (["y", "b", "--task", "counts"], "counts predicts one column, not 'y', 'b': name one target"),
    ],
)
def test_a_target_of_another_kind_is_refused_with_its_value(arguments, message, tmp_path, refused):
    (tmp_path / "data.csv").write_text(table(lambda k: f"{7 * k % 11},{k % 5},{k}.5,so", header="a,b,y,z"))
    assert message in refused("fit", "data.csv", "--target", *arguments)


def test_a_source_that_is_not_there_is_refused(refused):
    assert "nowhere.csv does not exist: name a file" in refused("fit", "nowhere.csv", "--target", "y")
    assert "nowhere does not exist" in refused("fit", "nowhere")


def test_a_folder_without_images_is_refused(tmp_path, refused):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    assert "photos has no subfolders with images (.png, .jpg" in refused("fit", "photos")
    assert "--target y does not apply to a folder of images: leave it out" in refused("fit", "photos", "--target", "y")
    assert "--ignore a b does not apply to a folder" in refused("fit", "photos", "--ignore", "a", "b")
    assert "--task regression does not apply to a folder" in refused("fit", "photos", "--task", "regression")
    assert "--transform log does not apply to a folder" in refused("fit", "photos", "--transform", "log")


@pytest.mark.parametrize("backbone", [(), ("--backbone", "nowhere.onnx")])
@pytest.mark.parametrize(("option", "name"), [("head", "gaussian"), ("likelihood", "one-noise")])
def test_a_head_of_another_outcome_is_refused_before_an_image_is_read(tmp_path, refused, backbone, option, name):
    for kind in ("cats", "dogs"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        (tmp_path / "photos" / kind / "1.png").write_bytes(b"no image")
    message = f"{option} '{name}' is not one for classification: choose among softmax"
    assert message in refused("fit", "photos", f"--{option}", name, *backbone)


def notes_of(content: str, path: Path) -> str:
    path.write_text(content)
    return "\n".join(prepare_table(read_table(path), "y").notes)


def test_columns_that_say_nothing_are_left_out_with_a_note(tmp_path):
    notes = notes_of(table(lambda k: f"{k % 7},4,{k % 17}.5"), tmp_path / "constant.csv")
    assert "'b' is left out: every row has the same value" in notes
    notes = notes_of(table(lambda k: f"{k % 7},,{k % 17}.5"), tmp_path / "missing.csv")
    assert "'b' is left out: every value is missing" in notes


def test_ten_rows_are_enough_and_said_to_be_few(tmp_path):
    notes = notes_of(table(rows=10), tmp_path / "ten.csv")
    assert "10 rows are few: expect wide intervals, and scores that another split would change" in notes


def test_rows_without_a_target_are_left_out_with_a_note(tmp_path):
    notes = notes_of(table(lambda k: f"{k % 7},{k % 5},{'' if k % 4 == 3 else k + 0.5}"), tmp_path / "gaps.csv")
    assert "rows without 'y' are left out: 10" in notes


@pytest.mark.parametrize("rows", [10, 12, 40, 51])
def test_a_share_of_the_rows_is_held_out_however_few_values_the_target_takes(rows):
    columns = {"a": [7 * k % 11 for k in range(rows)], "y": [k // 2 + 0.5 for k in range(rows)]}
    assert prepare_table(from_columns(columns), "y").facts["held_out"] == round(0.2 * rows)


def test_of_each_class_rows_are_held_out_in_proportion_and_one_trains_at_least():
    kinds = ["often"] * 50 + ["rarely"] * 20 + ["once"]
    columns = {"a": [7 * k % 11 for k in range(len(kinds))], "y": kinds}
    prepared = prepare_table(from_columns(columns), "y", seed=3)
    assert prepared.held_out is not None
    names = prepared.schema.target.classes
    counts = dict(zip(names, np.bincount(np.asarray(prepared.held_out.y), minlength=3).tolist(), strict=True))
    assert counts["once"] == 0
    assert counts == {"often": 10, "rarely": 4, "once": 0}


def test_ten_thousand_columns_are_prepared(tmp_path):
    rng, width = np.random.default_rng(0), 10_000
    lines = [",".join([*(f"c{k}" for k in range(width)), "y"])]
    lines += [",".join(map(str, rng.integers(0, 100, width + 1).tolist())) for _ in range(60)]
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n")
    prepared = prepare_table(read_table(tmp_path / "wide.csv"), "y")
    assert prepared.train.x.shape == (48, width)


def test_more_columns_than_a_network_may_read_are_refused(monkeypatch, tmp_path, refused):
    monkeypatch.setattr("darkbayes.tables.inference.MOST_WIDTH", 1)
    (tmp_path / "data.csv").write_text(table())
    message = refused("fit", "data.csv", "--target", "y")
    assert "the columns of data.csv make 2 inputs, more than 1: leave some out (--ignore)" in message


@pytest.mark.parametrize("command", ["predict", "evaluate", "export", "serve", "report"])
def test_a_run_folder_that_is_none_is_refused(command, tmp_path, refused):
    (tmp_path / "empty").mkdir()
    (tmp_path / "data.csv").write_text(table())
    source = ["data.csv"] if command in ("predict", "evaluate") else []
    message = refused(command, "empty", *source)
    assert "empty" in message
    assert "not a run of `darkbayes fit`, or one that did not finish" in message or "not a finished run" in message
    assert "nowhere is not there: name" in refused(command, "nowhere", *source)
    message = refused(command, "data.csv", *source)
    assert (
        "data.csv is refused: it is damaged or not an ONNX file" in message
        or "data.csv is a file: name the folder" in message
    )


@pytest.fixture
def houses(tmp_path) -> Path:
    """A run's folder with a student that reads rooms, crime rate, distance and colour."""
    return shipped_models.write(tmp_path / "houses", "houses")


HOUSES = "rooms,crime rate,distance,colour,price\n3,1.5,4,red,20\n4,2.5,5,blue,22\n"


def test_a_port_in_use_is_refused(houses, refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused("serve", houses, "--port", port)
    assert f"port {port} of 127.0.0.1 is in use: name another, or 0 for any that is free" in message
    assert "port must lie in 0..65535, not 65536" in refused("serve", houses, "--port", 65536)


def test_a_column_that_the_student_reads_must_be_there(houses, tmp_path, refused):
    (tmp_path / "new.csv").write_text(HOUSES.replace("distance", "Distances"))
    message = refused("predict", houses, "new.csv")
    assert "new.csv has no column 'distance': did you mean 'Distances'?" in message
    (tmp_path / "new.csv").write_text(HOUSES.replace("price", "cost"))
    assert "new.csv has no column 'price'" in refused("evaluate", houses, "new.csv")
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    message = refused("predict", houses, "new.csv")
    assert "new.csv has no columns 'rooms', 'crime rate', 'distance', 'colour': its columns are 'a', 'b'" in message


def test_columns_and_categories_unseen_at_fit_time_are_told_and_passed_over(houses, tmp_path, capsys):
    (tmp_path / "new.csv").write_text(HOUSES.replace("price", "garden").replace("red", "mauve"))
    cli.main(["predict", str(houses), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")])
    message = capsys.readouterr().err
    assert "columns that the model does not know are ignored: 'garden'" in message
    assert "'colour': 1 cell holds a category that the model does not know: 'mauve'" in message
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


def test_rows_that_cannot_be_read_are_refused_with_their_lines_and_nothing_is_written(houses, tmp_path, refused):
    (tmp_path / "new.csv").write_text(HOUSES + "many,1,2,red,3\n5,inf,2,red,3\n6,7\n")
    message = refused("predict", houses, "new.csv", "-o", "out.csv", "--quiet")
    assert "new.csv: line 4: 'rooms' is 'many', not a number; line 5: 'crime rate' is infinite; line 6: 2 fields" in (
        message
    )
    assert "Correct these rows, or have such rows left out (--on-bad skip)" in message


def test_outputs_of_another_kind_are_refused_by_their_names(houses, tmp_path, refused):
    (tmp_path / "new.csv").write_text(HOUSES)
    message = refused("predict", houses, "new.csv", "-o", "out.xlsx")
    assert "out.xlsx is neither CSV nor Parquet by its name: let it end in .csv or .parquet" in message
    assert "houses is a folder: give the name of a CSV" in refused("predict", houses, "new.csv", "-o", houses)


def test_a_value_that_is_impossible_to_the_model_is_told_and_leaves_the_results_json(tmp_path, capsys):
    prices = shipped_models.write(tmp_path / "prices", "prices")
    (tmp_path / "new.csv").write_text(HOUSES.replace(",22\n", ",-22\n"))
    cli.main(["evaluate", str(prices), str(tmp_path / "new.csv"), "--json"])
    shown = capsys.readouterr()
    assert "the log likelihood is minus infinity: the model holds at least one of these values" in shown.err
    rows = json.loads(shown.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["rows"]
    assert [row["mean"] for row in rows if row["metric"] == "log_likelihood"] == [None]


@pytest.mark.parametrize("command", ["predict", "suggest"])
def test_what_is_read_is_not_written_over(command, houses, tmp_path, refused):
    (tmp_path / "new.csv").write_text(HOUSES)
    (tmp_path / "link.csv").symlink_to(tmp_path / "new.csv")
    for name in ("new.csv", "link.csv"):
        assert f"--out {name} is a file that is read: name another" in refused(command, houses, "new.csv", "-o", name)
    assert (tmp_path / "new.csv").read_text() == HOUSES


@pytest.mark.parametrize("level", ["0", "1", "2", "nan"])
def test_a_level_that_is_no_probability_is_refused(level, houses, tmp_path, refused):
    (tmp_path / "new.csv").write_text(HOUSES)
    message = refused("predict", houses, "new.csv", "--level", level)
    assert f"level must lie between 0 and 1, not {float(level)}" in message


def test_nothing_to_predict_or_to_score_is_refused(houses, tmp_path, refused):
    assert "nowhere.csv does not exist: give a file that holds a table" in refused("predict", houses, "nowhere.csv")
    (tmp_path / "new.csv").write_text(HOUSES.splitlines()[0] + "\n")
    assert "new.csv has the names of 5 columns, but no rows" in refused("predict", houses, "new.csv", "--quiet")
    (tmp_path / "new.csv").write_text(HOUSES.replace(",20\n", ",\n").replace(",22\n", ",\n"))
    assert "no row has a value of 'price'" in refused("evaluate", houses, "new.csv", "--quiet")


def test_exports_that_exclude_each_other_are_refused(houses, refused):
    assert "--onnx and --torch are files of their own: name one" in refused("export", houses, "--onnx", "--torch")
    assert "--int8 is for ONNX: leave out --safetensors" in refused("export", houses, "--int8", "--safetensors")
    assert "--on data.csv is what the loss of --int8 is measured on" in refused("export", houses, "--on", "data.csv")
