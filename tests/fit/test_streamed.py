"""Tables that do not fit memory: fitted as others are, from rows on disk, and refused for what is wrong with them."""

import errno
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from darkbayes import cli
from darkbayes.errors import InvalidInput, RunError
from darkbayes.fit import Options, Prepared, fit, loaded_size, prepare_streamed, table_queries
from darkbayes.runs import Run
from darkbayes.tables.guessing import Wishes
from darkbayes.tables.schema import Number
from darkbayes.teacher.streaming import Feed

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'darkbayes[tables]'")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'darkbayes[onnx]'")

ROWS = 3_000


@pytest.fixture(scope="module")
def columns() -> dict[str, Any]:
    """Rows sorted by what is predicted of them."""
    rng = np.random.default_rng(0)
    size, weight = rng.normal(size=(2, ROWS)).round(4)
    colour = rng.choice(["red", "green", "blue"], ROWS).astype(object)
    kind = np.where(size + (colour == "red") + 0.3 * rng.normal(size=ROWS) > 0.3, "large", "small").astype(object)
    order = np.lexsort([size, kind])
    weight[rng.choice(ROWS, 9, replace=False)], colour[::100] = np.nan, None
    size[order[7]] = 40.0  # The largest, which a sample of a third of the rows is likely to miss.
    return {"size": size[order], "weight": weight[order], "colour": colour[order], "kind": kind[order]} | {
        "number": np.arange(ROWS) + 7.0
    }


@pytest.fixture(scope="module")
def shards(columns: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two Parquet files."""
    folder = tmp_path_factory.mktemp("tables") / "things"
    folder.mkdir()
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    for part, start in enumerate((0, 1_000)):
        parquet.write_table(table.slice(start, (1_000, 2_000)[part]), folder / f"part-{part}.parquet")
    return folder


def prepared(source: Path, out: Path, **changes: Any) -> Prepared:
    how: Any = {"memory": 1e4, "sha256": "0123", "wishes": Wishes(), "layout": {}, "held_out": 0.1, "seed": 0}
    return prepare_streamed([source], ["kind"], out, **how | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "banana"}, "head 'banana' is not one for classification: choose among softmax"),
        ({"task": "classification", "likelihood": "poisson"}, "likelihood 'poisson' is not one for classification"),
    ],
)
def test_a_head_or_likelihood_of_another_outcome_is_refused_before_rows_are_packed(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: Any, message: str
) -> None:
    monkeypatch.setattr("darkbayes.fit.streamed.write_store", None)
    with pytest.raises(InvalidInput, match=message):
        prepared(shards, tmp_path, **changes)
    assert not any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def stored(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darkbayes.tables.store.BUCKET", 2**13)
        patch.setattr("darkbayes.fit.streamed.LEAST_POOL", 0)
        return prepared(shards, tmp_path_factory.mktemp("stored"))


def fitted(stored: Prepared, out: Path, resume: bool = False) -> Any:
    """A small fit in a folder, with chains of few steps and a checkpoint at every moment."""
    least: Any = {"hidden": (4,), "activation": "relu", "student_hidden": (8,), "chains": 2, "max_steps": 200}
    schema: Any = stored.schema
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darkbayes.teacher.exploration.FIRST_PHASE", 64)
        patch.setattr("darkbayes.runs.CHECKPOINT_SECONDS", 0.0)
        patch.setattr("darkbayes.runs.CHECKPOINT_SHARE", 1.0)
        how: Any = {"queries": table_queries(schema), "rows": stored.rows}
        run = Run(out, {}, resume=resume, quiet=True)
        return fit(stored.train, schema.target, jax.random.key(0), Options(**least), run=run, **how)


def test_a_streamed_fit_that_is_killed_ends_in_the_same_bits(
    stored: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trees_equal: Any
) -> None:
    """Pools change every five steps, and where it is killed does not fall on such a step."""
    whole = fitted(stored, tmp_path / "whole")
    assert float(whole.posterior.num_data) == stored.rows.number
    rows, seen = Feed.rows, []

    def killed(feed: Feed, step: int) -> Any:
        seen.append(step // feed.window)
        if step > 140:
            raise KeyboardInterrupt
        return rows(feed, step)

    monkeypatch.setattr(Feed, "rows", killed)
    with pytest.raises(KeyboardInterrupt):
        fitted(stored, tmp_path / "killed")
    monkeypatch.undo()
    assert set(range(13)) <= set(seen)  # Every pool of the burn-in, and then those that rounds begin with.
    assert len(set(seen)) > 13
    again = fitted(stored, tmp_path / "killed", resume=True)
    assert trees_equal((again.params, again.draws), (whole.params, whole.draws))


def test_a_table_beyond_the_memory_is_streamed_by_itself_and_that_is_told(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Prepared] = []

    def stop(prepared: Prepared, *_: Any, **__: Any) -> None:
        given.append(prepared)
        raise KeyboardInterrupt

    monkeypatch.setattr("darkbayes.fit.fit_folder", stop)
    for memory in ("100KB", "1GB"):
        with pytest.raises(SystemExit):
            cli.main(["fit", str(shards), "--target", "kind", "--memory", memory, "--out", str(tmp_path / memory)])
        message = capsys.readouterr().err
        assert ("as all of them would not fit in memory (0.0001 GB): what is chosen" in message) == (memory == "100KB")
    streamed, whole = given
    assert (streamed.facts["rows"], streamed.facts["trained"] + streamed.facts["held_out"]) == (ROWS, ROWS)
    assert whole.rows is None


def test_scales_and_ranges_are_those_of_all_rows_that_train(columns: dict[str, Any], stored: Prepared) -> None:
    held = np.asarray([int(place.split()[1]) - 1 for place in stored.places])
    train = np.setdiff1d(np.arange(ROWS), held)
    assert stored.rows.number == len(train)
    assert "as identifiers do" in stored.schema.ignored["number"]  # pyright: ignore[reportAttributeAccessIssue]
    for column in stored.schema.columns:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(column, Number):
            values = columns[column.name][train]
            scales = column.center, column.scale, column.low, column.high, column.flagged
            there = values[~np.isnan(values)]
            exact = there.mean(), there.std(), there.min(), there.max(), len(there) < len(values)
            assert scales == pytest.approx(exact, rel=1e-6, abs=1e-6)


def test_a_store_holds_every_row_that_trains_once(columns: dict[str, Any], stored: Prepared) -> None:
    rows, width = stored.rows, stored.schema.shape[0]
    whole = rows.feed(width, 100)._load(0, rows.number)
    held = np.asarray([int(place.split()[1]) - 1 for place in stored.places])
    train = np.setdiff1d(np.arange(ROWS), held)
    x = stored.rows.schema.encode({name: values[train] for name, values in columns.items()})
    y = stored.schema.target.encode(columns["kind"][train])

    def sorted_rows(x: Any, y: Any) -> np.ndarray:
        both = np.column_stack([np.asarray(x, np.float64).round(3), y])
        return both[np.lexsort(both.T)]

    np.testing.assert_allclose(sorted_rows(whole.x, whole.y), sorted_rows(x, y), atol=2e-3)
    assert whole.y.dtype == np.int32
    # The rows held out are the student's to predict, and no chain's.
    assert len(stored.truth) == len(held) == round(0.1 * (len(held) + len(stored.train.x)))


def test_files_whose_columns_differ_are_refused_by_name(shards: Path, tmp_path: Path) -> None:
    first = parquet.read_table(shards / "part-0.parquet")
    other = tmp_path / "other"
    other.mkdir()
    parquet.write_table(first, other / "a.parquet")
    parquet.write_table(first.rename_columns(["size", "mass", "colour", "kind", "number"]), other / "b.parquet")
    with pytest.raises(InvalidInput, match=r"b\.parquet has no column 'weight': its columns are"):
        prepared(other, tmp_path / "run")
    parquet.write_table(first.set_column(0, "size", first["size"].cast(pa.string())), other / "b.parquet")
    with pytest.raises(InvalidInput, match=r"the types of the columns differ between .*size.*: write them alike"):
        prepared(other, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_that_the_sample_lacks_is_named_with_the_reason(tmp_path: Path) -> None:
    kinds = ["ab"[k % 2] for k in range(ROWS)]
    kinds[ROWS // 2] = "rare"
    (tmp_path / "long.csv").write_text("\n".join(["size,kind", *(f"{k % 7},{kind}" for k, kind in enumerate(kinds))]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darkbayes.tables.store.FEWEST", 100)
        with pytest.raises(InvalidInput, match=r"'rare', none of the classes .* drawn at random: remove or relabel"):
            prepared(tmp_path / "long.csv", tmp_path / "run")


def test_a_bad_cell_beyond_the_sample_is_named_by_its_line(tmp_path: Path) -> None:
    lines = [f"{k * 0.37 % 1:.3f},{'ab'[k % 2]}" for k in range(ROWS)]
    lines[(bad := 1_234)] = "broken,a"
    source = tmp_path / "long.csv"
    source.write_text("\n".join(["size,kind", *lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darkbayes.tables.store.FEWEST", 100)
        with pytest.raises(InvalidInput, match=f"long.csv: line {bad + 2}: 'size' is 'broken', not a number.*Correct"):
            prepared(source, tmp_path / "run")


def test_a_disk_that_fills_leaves_nothing_behind(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("darkbayes.tables.store.write_json", full)
    with pytest.raises(RunError, match=rf"the disk of {tmp_path} is full .* free some space, or choose a folder on"):
        prepared(shards, tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("darkbayes.fit.streamed.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 10))
    with pytest.raises(RunError, match=r"needs .* GB, and the disk has 0.0 GB left for the rows of things: free some"):
        prepared(shards, tmp_path)


def test_rows_of_another_table_and_damaged_ones_are_refused(shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    before = prepared(shards, out).rows.store
    assert prepared(shards, out).rows.store.facts == before.facts
    with pytest.raises(RunError, match=r"the sha256 of things was 0123, not 4567: choose another folder, or delete"):
        prepared(shards, out, sha256="4567")
    with pytest.raises(RunError, match=r"held_out was 0\.1, not 0\.2"):
        prepared(shards, out, held_out=0.2)
    path = out / "rows" / "rows.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"rows.bin is not as it was written .* delete .*rows to have it made again"):
        prepared(shards, out)


def test_what_a_table_takes_in_memory_is_told_before_it_is_read(shards: Path, tmp_path: Path) -> None:
    assert loaded_size([shards]) >= 10 * 8 * 4 * ROWS
    text = tmp_path / "a.csv"
    text.write_text("x,y\n1,2\n")
    assert loaded_size([text]) == 6 * 8
    text.with_suffix(".json").write_text("[{}]")
    assert loaded_size([text.with_suffix(".json")]) == 0  # Which is read as a whole, or not at all.


def test_weights_of_rows_are_refused(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(
            ["fit", str(shards), "--target", "kind", "--memory", "1KB", "--out", str(tmp_path), "--weights", "size"]
        )
    assert "--weights size does not apply to a table of more than 1e-06 GB (--memory)" in capsys.readouterr().err
