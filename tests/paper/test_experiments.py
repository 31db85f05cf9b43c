"""The experiments on real data, tiny, through the command line: every method runs, scores are in the right unit."""

import dataclasses
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from darkbayes import cli
from darkbayes.data import Images, load, random_splits, standard_splits
from darkbayes.files import read_arrays
from darkbayes.fit import Options
from darkbayes.paper import EXPERIMENTS, boston, mnist, regression, uci
from darkbayes.runs import Run
from darkbayes.student import Settings

CHAINS = {"trials": 2, "steps": 60, "burn_in": 20, "thin": 10, "hidden": (4,)}
SETTINGS = Settings(num_chains=2, query_batch=4, update_every=2, reservoir=3)
REGRESSION = CHAINS | {"settings": SETTINGS}
CASES = {
    "mnist": ("--preset", "quick"),
    "boston": ("--preset", "quick", "--on", "validation", "--splits", "paper", "--seed", "3"),
    "uci": ("--preset", "automatic", "--datasets", "yacht"),
}
METHODS = {
    "mnist": {"sgd", "sgld", "student", "dropout", "dropout mc", "bbb gaussian", "bbb mixture", "ensemble"},
    "boston": {"sgd", "fisher_sgld", "student 13-4-2", "fisher_sgld input noise", "student input noise 13-4-6"}
    | {"pbp", "vi", "dropout mc", "ensemble", "hmc"},
    "uci": {"student", "mclmc", "ensemble", "dropout mc"},
}
COMMIT = "0123abc"


def fake_mnist(name: str, **_: Any) -> Images:
    """Noise in the place of digits."""
    assert name == "mnist"
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(100, 6, 6), dtype=np.uint8)
    y = rng.integers(0, 10, size=100)
    return Images(x[:70], y[:70], x[70:], y[70:])


@pytest.fixture(scope="module", autouse=True)
def tiny_presets():
    """The presets at a size for tests, and images that need no network."""
    few = {"batch_size": 5, "dropout_steps": 3, "ensemble_steps": 3, "ensemble_size": 2}
    few_digits = mnist.MnistComparators(**few, bbb_steps=3)
    few_rows = regression.RegressionComparators(
        **few, sgd_steps=3, vi_steps=3, pbp_passes=1, hmc_chains=1, hmc_warmup=5, hmc_draws=5, hmc_depth=2
    )
    steps: Any = {"ensemble_steps": (2,)}
    quick = boston.PRESETS["quick"]
    tiny = {
        (mnist, "quick"): dataclasses.replace(
            mnist.PRESETS["quick"],
            **CHAINS,
            settings=SETTINGS,
            train=40,
            batch_size=5,
            sgd_steps=3,
            comparators=few_digits,
        ),
        (boston, "quick"): dataclasses.replace(quick, **REGRESSION, comparators=few_rows),
        (uci, "automatic"): uci.UciPreset(2, hidden=((4,),), dropout_rates=(0.1,), dropout_draws=4, **few | steps),
    }
    with pytest.MonkeyPatch.context() as patch:
        for (module, preset), settings in tiny.items():
            patch.setitem(module.PRESETS, preset, settings)
        patch.setattr(mnist, "load", fake_mnist)
        patch.setattr(mnist, "VALIDATION", 20)
        patch.setattr(mnist, "MC_DRAWS", 4)
        patch.setattr(regression, "DRAWS", 4)
        small: Any = {"hidden": (4,), "likelihood": "one-noise", "student_hidden": (4,), "chains": 2, "max_steps": 12}
        patch.setattr(uci, "Options", partial(Options, **small))
        patch.setenv("DARKBAYES_COMMIT", COMMIT)
        jax.clear_caches()  # Constants are part of what is compiled.
        yield
    jax.clear_caches()


def reproduce(case: str, out: Path, *more: str) -> dict[str, Any]:
    cli.main(["reproduce", case, *CASES[case], "--out", str(out), "--quiet", *more])
    return json.loads((out / "results.json").read_text())


@pytest.fixture(scope="module", params=list(CASES))
def finished(request, made_once) -> tuple[str, Path, dict[str, Any]]:
    """Each experiment, run once through the command line."""
    out = made_once(request.param.replace(" ", "-"), lambda out: reproduce(request.param, out))
    return request.param, out, json.loads((out / "results.json").read_text())


def rows_of(results: dict[str, Any], metric: str) -> dict[str, Any]:
    return {row["method"]: row for row in results["rows"] if row["metric"] == metric and "published" not in row}


def test_every_method_of_an_experiment_is_scored_on_every_trial(finished):
    case, _, results = finished
    assert results["experiment"] == case
    assert results["preset"] == CASES[case][1]
    assert results["provenance"]["commit"] == COMMIT
    metrics = {"mnist": ("error", "log_likelihood", "brier", "ece"), "uci": ("log_likelihood", "rmse")}
    for metric in metrics.get(case, regression.METRICS):
        assert set(rows_of(results, metric)) == METHODS[case]
    scores = [row for row in results["rows"] if row.get("values") and len(row["values"]) > 1]
    for row in scores:
        assert row["trials"] == len(row["values"]) == 2
        assert row["mean"] == pytest.approx(sum(row["values"]) / 2)
        assert np.isfinite(row["values"]).all()


def test_the_numbers_of_the_paper_stand_beside_ours(finished):
    case, _, results = finished
    paper = {"mnist": -0.0419, "boston": -2.306}.get(case)
    teacher = {"boston": "fisher_sgld", "uci": "mclmc"}.get(case, "sgld")
    assert rows_of(results, "log_likelihood")[teacher].get("paper") == paper
    assert "paper" not in rows_of(results, "log_likelihood").get("ensemble", {})


@pytest.fixture
def made_up(monkeypatch) -> list[tuple[str, str, int]]:
    """Scores of the nine data sets that nothing is computed for; what was asked for is told."""
    asked: list[tuple[str, str, int]] = []

    def make(method: str, run: Any, name: str, trials: list[int], preset: Any, seed: int):
        for trial in trials:
            asked.append((name, method, trial))
            scores = {method: {"log_likelihood": 1.0 + trial, "rmse": 0.5}}
            yield {"scores": scores, "settings": f"for {trial}", "seconds": 1.0}

    monkeypatch.setattr(uci, "METHODS", {method: partial(make, method) for method in uci.METHODS})
    return asked


def test_published_numbers_stand_by_the_data_set_that_they_are_of(tmp_path, made_up):
    results = reproduce("uci", tmp_path / "run", "--no-report", "--datasets", *uci.DATASETS)
    rows = [row for row in results["rows"] if row["metric"] == "log_likelihood"]
    assert [row["dataset"] for row in rows if row["method"] == "student"] == list(uci.DATASETS)
    best = {row["dataset"]: row["mean"] for row in rows if row["method"] == "best, published"}
    quoted = [row for row in results["rows"] if row.get("published")]
    assert len(quoted) == 9 * 6
    for row in quoted:
        place = uci.QUOTED.index((row["method"].removesuffix(", published"), row["metric"]))
        assert (row["mean"], row["se"]) == uci.PUBLISHED[row["dataset"]][place]
        assert row["metric"] == "rmse" or row["mean"] <= best[row["dataset"]]
    pbp = [row["mean"] for row in rows if row["method"] == "pbp, published"]
    assert pbp == [-2.57, -3.16, -2.04, 0.90, 3.73, -2.84, -2.97, -0.97, -1.63]


def test_a_run_on_many_data_sets_may_be_made_in_pieces(tmp_path, made_up):
    """And a split that is there is not run again, whatever else is asked for."""
    out = tmp_path / "run"
    reproduce("uci", out, "--no-report", "--datasets", "wine", "--trials", "1", "--only", "student")
    assert made_up == [("wine", "student", 0)]
    results = reproduce("uci", out, "--no-report", "--datasets", "protein", "wine", "--trials", "6", "--resume")
    assert len(made_up) == len(set(made_up)) == 3 * (5 + 6), "protein has five splits"
    rows = [row for row in results["rows"] if row["method"] == "ensemble" and row["metric"] == "log_likelihood"]
    assert [(row["dataset"], row["trials"]) for row in rows] == [("protein", 5), ("wine", 6)]
    assert rows[1]["settings"][1] == "for 1"
    again = reproduce("uci", out, "--no-report", "--datasets", "wine", "--trials", "1", "--resume")
    assert again["rows"] == results["rows"]
    assert len(made_up) == 33


def test_a_split_takes_the_settings_that_do_best_on_its_own_validation_part(monkeypatch):
    """The first split's is larger than 0.2 only for the second rate, the second's for the third."""
    calls = []

    def scores(fitting, draws, keys, splits):
        calls.append((fitting.rate, list(keys), len(splits[0].train.x)))
        best = {0: 0.1, 1: 0.3}
        return [{"log_likelihood": -abs(fitting.rate - best[trial]), "rmse": fitting.rate} for trial in keys]

    monkeypatch.setattr(uci, "_scores", scores)
    run: Any = None
    records = list(uci._compared("dropout mc", run, "yacht", [0, 1], uci.UciPreset(hidden=((4,),)), 0))
    assert [record["settings"] for record in records] == ["4, rate 0.1", "4, rate 0.3"]
    assert [record["scores"]["dropout mc"]["rmse"] for record in records] == [0.1, 0.3]
    assert calls == [(rate, [0, 1], 246) for rate in (0.01, 0.1, 0.3)] + [(0.1, [0], 277), (0.3, [1], 277)]


def test_an_experiment_leaves_a_report_that_needs_nothing_else(finished):
    _, out, _ = finished
    page = (out / "report.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "Settings" in page
    assert COMMIT in page


def test_a_finished_run_is_not_computed_again(finished, monkeypatch):
    case, out, results = finished

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Run, "distil", fail)
    monkeypatch.setattr("darkbayes.runs.write_arrays", fail)
    monkeypatch.setattr(uci, "write_json", fail)
    again = reproduce(case, out, "--resume", "--no-report")
    assert again["rows"] == results["rows"]
    assert again["provenance"] == results["provenance"]


def test_scores_are_in_the_unit_of_the_target_and_of_the_rows_that_were_asked_for(finished):
    """By hand from what is predicted on the first split, with the table's own prices in thousands of dollars."""
    case, out, results = finished
    if case != "boston":
        return
    config = json.loads((out / "config.json").read_text())
    assert (config["on"], config["splits"], config["seed"]) == ("validation", "paper", 3)
    scored = random_splits(506, 50, 2, seed=3)[0][0][random_splits(456, 50, 2, seed=3)[0][1]]
    figure = read_arrays(out / "figure.safetensors")
    np.testing.assert_allclose(figure["y"], load("boston").y[scored], rtol=1e-5)
    for method in ("sgd", "student 13-4-2"):
        mean, std = figure[f"mean.{method}"], figure[f"std.{method}"]
        expected = stats.norm(mean, std).logpdf(figure["y"]).mean()
        assert rows_of(results, "log_likelihood")[method]["values"][0] == pytest.approx(expected, rel=1e-4)
        rmse = np.sqrt(np.mean((mean - figure["y"]) ** 2))
        assert rows_of(results, "rmse")[method]["values"][0] == pytest.approx(rmse, rel=1e-4)


def test_scores_of_digits_are_those_of_the_probabilities_in_the_figure(finished):
    case, out, results = finished
    if case != "mnist":
        return
    figure = read_arrays(out / "figure.safetensors")
    np.testing.assert_array_equal(figure["y"], fake_mnist("mnist").test_y)
    for method in METHODS["mnist"]:
        probs = np.asarray(figure[f"probs.{method}"], np.float64)
        own = probs[np.arange(30), figure["y"]]
        assert rows_of(results, "log_likelihood")[method]["values"][0] == pytest.approx(np.log(own).mean(), rel=1e-4)
        wrong = 100 * np.mean(probs.argmax(axis=1) != figure["y"])
        assert rows_of(results, "error")[method]["values"][0] == pytest.approx(wrong, rel=1e-4)


# Splits


@pytest.mark.parametrize(("splits", "sizes"), [("standard", (455, 51)), ("paper", (456, 50))])
def test_rows_are_split_and_standardised_on_what_is_learned_from(splits, sizes):
    table = load("boston")
    rows = standard_splits(506, 2) if splits == "standard" else random_splits(506, 50, 2, seed=7)
    for split, (train, test) in zip(regression.split_table(table, 2, 7, splits), rows, strict=True):
        assert (len(split.train.x), len(split.test.x)) == sizes
        for part, where in ((split.train, train), (split.test, test)):
            prices = np.asarray(part.y)[:, 0] * split.scale + split.center
            np.testing.assert_allclose(prices, table.y[where], rtol=1e-4)
        np.testing.assert_allclose(np.mean(split.train.x, axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(np.std(split.train.x, axis=0), 1, rtol=1e-4)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_the_unit_of_a_feature_changes_nothing_that_is_learned_from(unit):
    """A thousandth or a thousand of every feature: the same inputs but for rounding, and so the same results."""
    table = load("boston")
    plain, other = (regression.split_table(rows, 1, 0)[0] for rows in (table, table._replace(x=table.x * unit)))
    for name in ("train", "test"):
        np.testing.assert_allclose(getattr(other, name).x, getattr(plain, name).x, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(getattr(other, name).y, getattr(plain, name).y)


def test_test_rows_are_never_seen_in_validation():
    """The prices are made unique, so that they tell the rows."""
    table = load("boston")._replace(y=np.arange(506.0))
    splits = regression.split_table(table, 2, 0, on="validation")
    for split, (train, _) in zip(splits, standard_splits(506, 2), strict=True):
        new, held = (
            set(np.rint(np.asarray(part.y)[:, 0] * split.scale + split.center).astype(int).tolist())
            for part in (split.train, split.test)
        )
        assert (len(new), len(held)) == (404, 51)
        assert not new & held
        assert new | held == set(train.tolist())


def test_digits_are_scaled_and_the_last_of_the_training_file_are_for_validation():
    images = fake_mnist("mnist")
    data, held_out = mnist.split(mnist.PRESETS["quick"], quiet=True)
    np.testing.assert_allclose(data.x, images.train_x[:40] / 126, rtol=1e-6)
    np.testing.assert_allclose(held_out.x, images.test_x / 126, rtol=1e-6)
    again, validation = mnist.split(dataclasses.replace(mnist.PRESETS["quick"], on="validation"), quiet=True)
    np.testing.assert_array_equal(again.x, data.x)
    np.testing.assert_allclose(validation.x, images.train_x[50:] / 126, rtol=1e-6)
    np.testing.assert_array_equal(validation.y, images.train_y[50:])


def test_a_comparator_alone_scores_as_it_does_among_the_others(finished, tmp_path):
    case, _, results = finished
    if case != "mnist":
        return
    alone = reproduce("mnist", tmp_path / "alone", "--only", "ensemble")
    assert {row["method"] for row in alone["rows"]} == {"ensemble"}
    whole = rows_of(results, "error")["ensemble"]
    assert rows_of(alone, "error")["ensemble"]["values"] == whole["values"]


# Refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mnist", "--splits", "paper"], "--splits paper does not apply to mnist: leave it out"),
        (["toy2d", "--on", "validation"], "--on validation does not apply to toy2d: leave it out"),
        (["toy1d", "--splits", "standard"], "--splits standard does not apply to toy1d: leave it out"),
        (["uci", "--preset", "literal"], "--preset literal is not one of uci's: choose automatic, quick"),
        (["uci", "--datasets", "wine", "iris"], "--datasets wine iris does not apply to uci: leave it out"),
        (["uci", "--only", "bbb"], "--only bbb does not apply to uci: leave it out"),
        (
            ["mnist", "--preset", "literal", "--only", "bbb"],
            "--only bbb does not apply to a preset without comparators",
        ),
        (["boston", "--only", "bbb"], "--only bbb does not apply to boston: leave it out"),
        (["boston", "--trials", "0"], "--trials must be a whole number of at least 1, not 0"),
    ],
)
def test_what_an_experiment_does_not_have_is_refused_before_anything_is_written(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["reproduce", *arguments, "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_presets_are_runnable_as_they_stand():
    for name in ("mnist", "boston"):
        for preset in EXPERIMENTS[name].PRESETS.values():
            assert preset.steps >= preset.burn_in + preset.thin
            assert preset.thin % preset.settings.update_every == 0
