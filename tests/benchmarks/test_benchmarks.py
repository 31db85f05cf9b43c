"""Every benchmark at a tiny size; nothing here asserts a time."""

import dataclasses
import functools
import importlib.util
import json
from typing import Any

import jax
import numpy as np
import pytest

import benchmarks
from benchmarks import engine as engine_benchmark
from benchmarks import export, memory, startup, streaming
from benchmarks.images import Images, our_chain
from benchmarks.shapes import SHAPES
from darkbayes import cli
from darkbayes.cli import research
from darkbayes.errors import InvalidInput
from darkbayes.export.pytorch import to_arrays

TINY_SHAPES = tuple(
    dataclasses.replace(shape, examples=40, hidden=(3,), chains=2, thin=2, rounds=1, batch_size=shape.batch_size and 4)
    for shape in (*SHAPES[:2], dataclasses.replace(SHAPES[0], name="mnist", speedup_bar=SHAPES[2].speedup_bar))
)
"""Two that differ, as each is compiled."""
TINY_IMAGES = Images(depth=8, width=2, side=8, classes=3, examples=12, batch_size=4, chains=2, steps=2)


def metrics_of(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    by_metric: dict[str, list[dict[str, Any]]] = {}
    for row in results["rows"]:
        by_metric.setdefault(row["metric"], []).append(row)
    return by_metric


@pytest.fixture(scope="module")
def engine() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.engine.PAUSE", 0.0)
        sizes: dict[str, Any] = {"shapes": TINY_SHAPES, "images": TINY_IMAGES, "repetitions": 2, "seconds": 0.01}
        return benchmarks.run("engine", seed=0, quiet=True, **sizes)


def test_the_engine_is_timed_with_one_and_with_many_chains(engine):
    methods = {row["method"] for row in metrics_of(engine)["us_per_step"]}
    for shape in TINY_SHAPES:
        assert sum(method.startswith(f"engine {shape.name}") for method in methods) == 2
    assert "engine resnet-8, 2 chains, per chain" in methods
    assert all(row["mean"] > 0 for row in engine["rows"])


def test_the_engine_is_compared_with_pytorch(engine):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs PyTorch: pip install torch")
    rows = metrics_of(engine)["speedup"]
    assert len(rows) == len(SHAPES) + 1
    assert {row["bar"] for row in rows} == {8.0, 20.0, 1.25, 1.3}


def test_on_a_gpu_a_step_has_bars_of_its_own_and_what_pytorch_cannot_capture_is_left_out(monkeypatch, capsys):
    """On a machine without a GPU, which is where capturing fails."""
    monkeypatch.setattr(engine_benchmark, "_on_gpu", lambda: True)
    monkeypatch.setattr(engine_benchmark, "PAUSE", 0.0)
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: capturing works")
    shape = dataclasses.replace(TINY_SHAPES[0], gpu_bars=(80.0, 18.0))
    rows = engine_benchmark.shape_rows(shape, True, seed=0, quiet=True, repetitions=1, seconds=0.01)
    assert [(row["bar"], row["bar_is"]) for row in rows[:2]] == [(80.0, "at most"), (18.0, "at most")]
    assert not any("CUDA graph" in row["method"] for row in rows)
    assert "as one CUDA graph failed, and is left out: " in capsys.readouterr().err


def test_both_libraries_take_the_same_step_on_images(monkeypatch):
    """Of all examples and without noise, and in float32."""
    pytorch = pytest.importorskip("benchmarks.pytorch", reason="needs PyTorch: pip install torch")
    monkeypatch.setattr(pytorch.torch, "randint", lambda among, shape, device: pytorch.torch.arange(*shape))
    monkeypatch.setattr(pytorch.torch, "randn_like", pytorch.torch.zeros_like)
    images = dataclasses.replace(TINY_IMAGES, precision="float32", batch_size=TINY_IMAGES.examples, step_size=0.01)
    x, y = images.data(seed=0)
    chain = our_chain(images, x, y)
    draw = chain.init(jax.random.key(0)).params
    grads = jax.grad(chain.posterior.log_density)(draw, chain.data)
    moved = jax.tree.map(lambda w, g: w + images.step_size / 2 * g, draw, grads)  # From rest.
    theirs = pytorch.Chains(images, x, y, [draw.network], seed=0, backend="cpu")
    theirs.run(1)
    parts = theirs._parts(theirs.weights[0])
    for name, expected in to_arrays(images.network, moved.network).items():
        np.testing.assert_allclose(parts[name].detach().numpy(), expected, rtol=1e-3, atol=1e-4, err_msg=name)


def test_streamed_rows_are_held_to_the_memory_and_the_speed_of_those_in_memory(monkeypatch):
    """On a table of its own; the processes that fit it are not run."""

    def child(work, table, folder, seed, *steps):
        assert sum(parquet.read_metadata(path).num_rows for path in table.iterdir()) == 500
        return "{}\n512.5\n" if work == "fit" else "[[20.0, 10.0, 25.0], [18.0, 10.0, 20.0]]\n"

    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'darkbayes[tables]'")
    monkeypatch.setattr(streaming, "_child", child)
    monkeypatch.setattr(streaming, "FILE_ROWS", 400)
    results = metrics_of(benchmarks.run("streaming", seed=0, quiet=True, gigabytes=1e-4))
    assert (results["peak_rss_mb"][0]["mean"], results["peak_rss_mb"][0]["bar"]) == (512.5, 2000.0)
    assert (results["times_in_memory"][0]["mean"], results["times_in_memory"][0]["bar"]) == (0.9, 0.8)


def test_peak_memory_is_measured_in_processes_of_their_own(monkeypatch):
    monkeypatch.setattr(memory, "peak_of_child", functools.cache(memory.peak_of_child))  # One process stands for all.
    results = metrics_of(benchmarks.run("memory", seed=0, quiet=True, few=50, many=50))
    assert len(results["peak_rss_mb"]) == 2
    assert results["peak_rss_mb"][0]["mean"] > 50
    assert results["rss_ratio"][0]["bar"] == 1.05


def test_the_command_line_writes_results(tmp_path, capsys):
    out = tmp_path / "results" / "startup.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "rows", lambda seed, quiet: [{"method": "import", "metric": "import_s", "mean": 1}])
        cli.main(["bench", "startup", "--out", str(out), "--quiet"])
    assert json.loads(out.read_text())["experiment"] == "bench-startup"
    assert "import" in capsys.readouterr().out


def test_a_folder_as_output_is_refused_at_once(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", "startup", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "is a folder: name a file" in capsys.readouterr().err


def test_an_installed_package_says_where_benchmarks_are(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(research, "REPOSITORY", tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", "startup"])
    assert stop.value.code == 2
    assert "benchmarks come with a checkout" in capsys.readouterr().err


def test_an_unknown_benchmark_is_refused():
    with pytest.raises(InvalidInput, match="no benchmark is called 'speed'"):
        benchmarks.run("speed", seed=0, quiet=True)


def test_darkbayes_imports_nothing_slow_beside_jax():
    """Import time in a form that does not depend on the machine: which of the heavy libraries are loaded."""
    import subprocess
    import sys

    heavy = "{'matplotlib', 'numpyro', 'sklearn', 'flax', 'torch', 'onnx', 'jinja2', 'tyro', 'rich'}"
    code = f"import sys, darkbayes; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_the_service_bears_many_clients_wrong_requests_and_attackers():
    sizes = {"seconds": 1.0, "clients": 2, "bodies": 40, "connections": 40}
    results = metrics_of(benchmarks.run("service", seed=0, quiet=True, **sizes))
    assert [row["mean"] > 0 for row in results["requests"]] == [True, True]
    assert [row["mean"] for row in results["errors"]] == [0, 0]
    assert results["wrong_requests"][0]["mean"] >= 40
    assert results["server_errors"][0]["mean"] == 0
    assert results["refused"][0]["mean"] == 40
    assert results["attacks"][0]["mean"] > 0
    assert results["p99_ratio"][0]["bar"] == 2.0
    assert results["memory_ratio"][0]["bar"] == 1.2
    assert results["recovery_s"][0]["mean"] > 0


def test_a_large_file_is_predicted_in_order_and_its_bad_rows_are_found(monkeypatch):
    if importlib.util.find_spec("pyarrow") is None:
        pytest.skip("needs pyarrow: pip install 'darkbayes[tables]'")
    took = {"": [1.0, 2.0], "0.1": [6.0, 6.0], "pyarrow": [0.5, 0.5]}
    # A shallow checkout lacks the code of 0.1, and twelve processes would take long.
    monkeypatch.setattr("benchmarks.predict.first_release", lambda folder: folder)
    monkeypatch.setattr("benchmarks.predict.seconds_of", lambda who, *rest: took[who])
    sizes: dict[str, Any] = {"gigabytes": 1e-3, "bad": 3, "megabytes": 0.1, "repetitions": 1}
    results = metrics_of(benchmarks.run("predict", seed=0, quiet=True, **sizes))
    for metric, ratio in (("times_first_release", 6.0), ("times_less_cpu", 3.0), ("share_of_pyarrow", 0.5)):
        assert [row["mean"] for row in results[metric]] == [ratio] * 4
    assert results["rows"][0]["mean"] > 5_000
    assert results["order_kept"][0]["mean"] == 1.0
    assert results["bad_rows_found"][0]["mean"] == 3
    assert 0 < results["peak_rss_mb"][0]["mean"] < results["peak_rss_mb"][0]["bar"]


def test_a_student_is_compared_with_averages_over_its_teachers_draws():
    sizes: dict[str, Any] = {"hidden": (5,), "student_hidden": (8, 8), "draws": 3, "repetitions": 1}
    results = metrics_of(benchmarks.run("export", seed=0, quiet=True, time_budget=None, **sizes))
    assert len(results["latency_us"]) == 2 + 4
    assert len(results["latency_ratio"]) == 4
    assert {row["bar"] for row in results["latency_ratio"]} == {500.0}
    assert results["size_ratio"][0]["bar"] == 1.1


def test_all_ways_to_average_over_draws_agree():
    prepared = export.prepare_table(*export.named_table("boston"), seed=0)
    options = export.Options(hidden=(5,), activation="relu", student_hidden=(8,), time_budget=None)
    posterior, _, _, draws = export._fitted(prepared, options, jax.random.key(0))
    x = np.asarray(prepared.train.x[:1])
    ways = [
        export._one_by_one(draws, x, (5,)),
        export._in_numpy(draws, x),
        export._one_program(posterior, draws, x, export._in_turn),
        export._one_program(posterior, draws, x, export._at_once),
    ]
    first, *others = (np.asarray(way()[0]).reshape(-1) for way in ways)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-4, atol=1e-5)
