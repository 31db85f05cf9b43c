"""Many rows: on all cores, on Ray and on Spark, each row once and in its order."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import shipped_models
from darkbayes import cli, shipped
from darkbayes.bulk import Predictor
from darkbayes.errors import InvalidInput
from darkbayes.onnxfile import ENCODED, from_encoded, seal
from darkbayes.outcomes import NumberPrediction
from darkbayes.shipped import Shipped
from darkbayes.tables import decoding, read_batches, streaming
from darkbayes.tables.streaming import in_order

ROWS = 300


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a student of houses."""
    return shipped_models.write(tmp_path_factory.mktemp("run"), "houses")


@pytest.fixture(scope="module")
def houses():
    """Rows with gaps, and some that are unlike what was seen; each has a number of its own."""
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "rooms": rng.integers(1, 11, ROWS),
            "crime rate": pa.array(rng.uniform(0, 12, ROWS), mask=rng.random(ROWS) < 0.1),
            "distance": rng.uniform(0, 50, ROWS).round(3),
            "colour": pa.array(rng.choice(["red", " blue", "white", "green"], ROWS), mask=rng.random(ROWS) < 0.1),
        }
    )


@pytest.fixture
def small(monkeypatch):
    """What is read and predicted at a time is so little that even few rows come in many parts."""
    monkeypatch.setattr(decoding, "BLOCK", 512)
    monkeypatch.setattr(streaming, "BATCH_ROWS", 16)
    monkeypatch.setattr(shipped, "MANY", 4)


def whole(run, table):
    """What the graph as it is says of all rows at once: the mean, and what is outside."""
    student = Shipped(run)
    (batch,) = read_batches(table, student.schema, rows=ROWS)
    mean = student._session.run(["mean"], student.schema.matrices(batch.frame))[0]
    return mean, student.schema.outside(batch.frame)["outside"].tolist()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
@pytest.mark.parametrize("source", ["t.csv", "t.parquet", "parts", "two"])
def test_rows_of_many_parts_are_predicted_in_their_order_as_all_at_once(tmp_path, run, houses, source, out):
    (tmp_path / "parts").mkdir()
    for place, name in enumerate(["b.parquet", "a.parquet", "c.parquet"]):
        start = (100, 0, 200)[place]
        pq.write_table(houses.slice(start, 100), tmp_path / "parts" / name)
    (tmp_path / "parts" / "_SUCCESS").touch()
    pc.write_csv(houses, tmp_path / "t.csv")
    pc.write_csv(houses.slice(0, 120), tmp_path / "one.csv")
    pc.write_csv(houses.slice(120), tmp_path / "two.csv")
    pq.write_table(houses, tmp_path / "t.parquet")
    sources = ["one.csv", "two.csv"] if source == "two" else [source]
    cli.main(["predict", str(run), *(str(tmp_path / name) for name in sources), "-o", str(tmp_path / out), "--quiet"])
    answer = pq.read_table(tmp_path / out) if out == "out.parquet" else pc.read_csv(tmp_path / out)
    mean, outside = whole(run, houses)
    np.testing.assert_allclose(answer["mean"].to_numpy(), mean, rtol=1e-5)
    assert [text or None for text in answer["outside"].to_pylist()] == outside
    assert sum(text is not None for text in outside) > 50


@pytest.mark.usefixtures("small")
def test_bad_rows_of_later_parts_are_named_after_all_before_them(tmp_path, run, houses):
    lines = pc.write_csv(houses, tmp_path / "t.csv") or (tmp_path / "t.csv").read_text().splitlines()
    lines[150] = lines[150].replace(",", ",big", 1)
    lines[250] = "1,2"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    out = tmp_path / "out.parquet"
    with pytest.raises(SystemExit):
        cli.main(["predict", str(run), str(tmp_path / "t.csv"), "-o", str(out), "--quiet"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]
    cli.main(["predict", str(run), str(tmp_path / "t.csv"), "-o", str(out), "--quiet", "--on-bad", "skip"])
    answer = pq.read_table(out)
    assert answer["line"].to_pylist() == [line for line in range(2, ROWS + 2) if line not in (151, 251)]
    mean, _ = whole(run, houses.filter(pa.array(np.isin(np.arange(ROWS), [149, 249], invert=True))))
    np.testing.assert_allclose(answer["mean"].to_numpy(), mean, rtol=1e-5)


def test_results_come_in_order_whatever_takes_longest_and_errors_after_what_comes_before_them():
    def slow(number):
        time.sleep(0.002 * (7 - number % 7))
        return number

    def read():
        yield from range(40)
        raise InvalidInput("no further")

    results = in_order(slow, read())
    assert [next(results) for _ in range(40)] == list(range(40))
    with pytest.raises(InvalidInput, match="no further"):
        next(results)
    assert list(in_order(slow, iter([]))) == []


@pytest.mark.parametrize("name", ["houses", "promised kinds", "streets", "pair", "plane"])
def test_the_network_alone_says_what_the_whole_graph_does(tmp_path, name):
    student = Shipped(shipped_models.write(tmp_path, name))
    rng, rows, schema = np.random.default_rng(1), 50, student.schema
    frame = {column.name: rng.uniform(column.low - 9, column.high + 9, rows) for column in schema.numbers}
    frame |= {column.name: rng.choice([*column.categories, "new", None], rows) for column in schema.categories}
    frame[schema.numbers[0].name][::7] = np.nan
    network = student._network(frame)
    assert student._network.__name__ == "network"
    for one, other in zip(network, student._session.run(None, schema.matrices(frame)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    said, expected = student.predict_encoded(schema.encode(frame)), dict(zip(student._outputs, network, strict=True))
    np.testing.assert_array_equal(said.aim, schema.target.prediction(expected).aim)


@pytest.mark.parametrize("name", ["rent/run", "rent-int8"])
def test_a_file_that_does_not_say_where_its_network_begins_is_run_as_it_is(name):
    student = Shipped(Path(__file__).parent / "fixtures" / "0.1" / name / "student.onnx")
    assert from_encoded(student._content, *student.schema.shape) is None
    assert student._network.__name__ == "whole"
    with pytest.raises(InvalidInput, match="does not say where its network begins: give rows"):
        student.predict_encoded(np.zeros((1, *student.schema.shape), np.float32))


@pytest.mark.parametrize("operator", ["Where", "Relu"])
def test_a_file_that_names_another_value_is_run_as_it_is(run, operator):
    model = onnx.load(run / "student.onnx")
    other = next(node.output[0] for node in model.graph.node if node.op_type == operator)
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [{ENCODED: "y", other: ENCODED}.get(name, name) for name in names]
    del model.metadata_props[-1]
    assert Shipped(run, content=seal(model.SerializeToString()))._network.__name__ == "whole"


@pytest.mark.parametrize("share", [1e-9, 0.05, 0.5, 0.975])
def test_a_quantile_of_a_mixture_has_its_share_below_it_however_far_apart_the_components(share):
    rng = np.random.default_rng(2)
    location = rng.normal(size=(3, 500, 2)) * 10.0 ** rng.integers(-3, 4, (1, 500, 1))
    variance, logs = np.exp(3 * rng.normal(size=(3, 500, 2))), rng.normal(size=(3, 500, 2))
    mixture = NumberPrediction.standard(logs, location, variance)
    np.testing.assert_allclose(mixture.cdf(mixture.quantile(share)), share, rtol=1e-9, atol=1e-15)


class TestPredictor:
    """Record batches, whoever brings them."""

    def test_a_batch_of_arrow_gives_one_of_predictions_with_the_columns_kept(self, run, houses):
        each = pickle.loads(pickle.dumps(Predictor(run, keep=["id"], level=0.5)))
        (batch,) = houses.combine_chunks().to_batches()
        answer = each(batch)
        assert isinstance(answer, pa.RecordBatch)
        mean, outside = whole(run, houses)
        np.testing.assert_allclose(answer["mean"].to_numpy(), mean, rtol=1e-5)
        assert answer["outside"].to_pylist() == outside
        assert answer["id"].to_pylist() == list(range(ROWS))
        assert answer.schema.names[-3:] == ["lower_50", "upper_50", "outside"]
        empty = each(batch.slice(0, 0))
        assert (empty.schema, empty.num_rows) == (answer.schema, 0)
        assert each.nothing().schema == answer.schema.remove(0)

    def test_bad_rows_are_named_or_skipped_with_what_is_kept_of_them(self, run, houses):
        bad = houses.set_column(1, "rooms", pa.array(["3", "many", "4"] + ["5"] * (ROWS - 3)))
        with pytest.raises(InvalidInput, match="row 2: 'rooms' is 'many', not a number"):
            Predictor(run)(bad)
        skipping = Predictor(run, keep=["id"], on_bad="skip")
        assert skipping(bad)["id"].to_pylist() == [0, *range(2, ROWS)]
        assert skipping(bad.slice(1, 1)).num_rows == 0

    def test_what_it_cannot_do_is_said_first(self, run, houses, tmp_path):
        for how, message in (
            ({"keep": "id"}, r"list of names, not 'id'"),
            ({"keep": ["mean"]}, "keep names 'mean'"),
            ({"level": 1.5}, "level"),
            ({"on_bad": "mend"}, "on_bad must be"),
        ):
            with pytest.raises(InvalidInput, match=message):
                Predictor(run, **how)
        with pytest.raises(InvalidInput, match="no column 'key'"):
            Predictor(run, keep=["key"])(houses)
        with pytest.raises(InvalidInput, match="reads images"):
            Predictor(shipped_models.write(tmp_path, "digits"))


def test_killed_and_started_again_a_file_has_every_row_once(tmp_path, run, houses):
    pq.write_table(houses, tmp_path / "t.parquet", row_group_size=50)
    program = """
import os, signal, sys
from darkbayes import cli
from darkbayes.tables import streaming, writing
streaming.BATCH_ROWS = 50
append, written = writing.TableWriter.append, []
def dying(self, formed):
    append(self, formed)
    written.append(1)
    if len(written) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
writing.TableWriter.append = dying
cli.main(sys.argv[1:])
"""
    command = ["predict", str(run), str(tmp_path / "t.parquet"), "-o", str(tmp_path / "out.parquet"), "--quiet"]
    assert subprocess.run([sys.executable, "-c", program, *command]).returncode == -signal.SIGKILL
    assert not (tmp_path / "out.parquet").exists()
    cli.main(command)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "t.parquet"]
    np.testing.assert_allclose(pq.read_table(tmp_path / "out.parquet")["mean"], whole(run, houses)[0], rtol=1e-5)


@pytest.fixture
def parts(tmp_path, houses):
    """A folder of Parquet files."""
    (tmp_path / "parts").mkdir()
    for k in range(3):
        pq.write_table(houses.slice(100 * k, 100), tmp_path / "parts" / f"{k}.parquet")
    return tmp_path / "parts"


def check_once(answer, run, houses):
    """Every row is there once, with what is predicted of it."""
    answer = answer.sort_by("id")
    assert answer["id"].to_pylist() == list(range(ROWS))
    np.testing.assert_allclose(answer["mean"].to_numpy(), whole(run, houses)[0], rtol=1e-5)


def dies_once(marker):
    """What has the worker that predicts row 150 die before it can say so, the first time."""

    def prepare():
        real = Predictor.__call__

        def dying(self, batch):
            answer = real(self, batch)
            if 150 in batch.column("id").to_pylist() and not os.path.exists(marker):
                open(marker, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        Predictor.__call__ = dying

    return prepare


@pytest.mark.filterwarnings("ignore")  # Of the engines' own.
def test_ray_predicts_every_row_once_though_a_worker_dies(tmp_path, run, parts, houses):
    pytest.importorskip("ray", reason="needs ray: pip install darkbayes[cluster]")
    import ray
    import ray.data

    import darkbayes.ray

    marker = str(tmp_path / "died")
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    hook = {"worker_process_setup_hook": dies_once(marker)}
    ray.init(num_cpus=2, object_store_memory=80 * 2**20, runtime_env=hook, **quiet)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        (tmp_path / ".out.part").mkdir()
        (tmp_path / ".out.part" / "left.parquet").touch()
        out = darkbayes.ray.predict(run, parts, tmp_path / "out", keep=["id"], blocks=3)
        assert os.path.exists(marker)
        assert len(list(out.iterdir())) == 3
        check_once(pq.read_table(out), run, houses)
        with pytest.raises(InvalidInput, match="already exists: name another"):
            darkbayes.ray.predict(run, parts, out)
    finally:
        ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # Of the engines' own.
def test_spark_predicts_every_row_once(monkeypatch, run, parts, houses):
    pytest.importorskip("pyspark", reason="needs pyspark: pip install darkbayes[cluster]")
    from pyspark.sql import SparkSession

    import darkbayes.spark

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    session = SparkSession.builder.master("local[2]").config(map=local).getOrCreate()
    try:
        rows = session.read.parquet(str(parts))
        # In another order than the columns of the frame, of which both are numbers.
        frame = darkbayes.spark.predict(rows, run, keep=["distance", "crime rate", "id"])
        kept = frame.collect()
        there = {row["id"]: (row["crime rate"], row["distance"]) for row in houses.to_pylist()}
        assert {row["id"]: (row["crime rate"], row["distance"]) for row in kept} == there
        with pytest.raises(InvalidInput, match="the data frame has no column 'rooms'"):
            darkbayes.spark.predict(rows.drop("rooms"), run)
        with pytest.raises(InvalidInput, match="the data frame has no column 'key'"):
            darkbayes.spark.predict(rows, run, keep=["key"])
        frame = darkbayes.spark.predict(rows, run, keep=["id"])
        check_once(pa.table({name: [row[name] for row in frame.collect()] for name in ("id", "mean")}), run, houses)
    finally:
        session.stop()
