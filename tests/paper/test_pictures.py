"""Residual networks on images, at the smallest size, through the command line."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import darkbayes as db
from darkbayes import cli
from darkbayes.data import Images
from darkbayes.model import layers
from darkbayes.paper import cifar10, fashion, pictures

TINY: Any = {"depth": 8, "width": 1, "train": 40, "validation": 8, "scored": 12, "shifted": 6, "batch_size": 4}
TINY |= {"sgd_steps": 3, "chains": 2, "cycle": 4, "steps": 10, "burn_in": 2, "thin": 2, "kept": 2, "pilot_steps": 4}
TINY |= {
    "teachers": ("sghmc cold",),
    "temperatures": (0.1, 0.1),
    "dropout_draws": 2,
    "query_batch": 4,
    "step_size": 1e-4,
}


def fake(name: str, **_: Any) -> Images:
    rng, shape = np.random.default_rng(0), (3, 8, 8) if name == "cifar10" else (6, 6)
    x = rng.integers(0, 256, (60, *shape), np.uint8)
    y = rng.integers(0, 10, 60)
    return Images(x[:45], y[:45], x[45:], y[45:])


def small_network(outputs: int) -> db.Network:
    """Compiled in a tenth of the time that a residual network takes."""
    flat = layers.GlobalAvgPool2d(), layers.Flatten()
    return db.sequential([layers.Conv2d(2, 3), *flat, layers.Linear(outputs)])


@pytest.fixture(scope="module")
def finished(made_once: Any) -> Path:
    def make(out: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pictures, "load", fake)
            patch.setattr(db, "resnet", lambda outputs, depth, width: small_network(outputs))
            patch.setattr("darkbayes.teacher.chain.seconds_per_step", lambda chain, number: 1.0)
            patch.setitem(cifar10.PRESETS, "quick", dataclasses.replace(cifar10.PRESETS["quick"], **TINY))
            command = ["reproduce", "cifar10", "--preset", "quick", "--out", str(out), "--quiet"]
            cli.main(command)
            before = (out / "results.json").read_bytes()
            (out / "results.json").unlink()
            (out / "trial-0" / "ensemble.safetensors").unlink()  # As if it had been ended there.
            cli.main([*command, "--resume", "--no-report"])
            assert (out / "results.json").read_bytes() == before

    return made_once("cifar10", make)


def test_every_method_is_scored_on_every_set_and_goes_on_where_it_was_ended(finished: Path) -> None:
    rows = json.loads((finished / "results.json").read_text())["rows"]
    methods = {"sgd", "ensemble", "dropout mc", "sghmc cold", "student"}
    sets = {f"{kind} {severity}" for kind in pictures.CORRUPTIONS for severity in (1, 3, 5)}
    for metric, wanted in {
        "error": {"cifar10"} | sets,
        "ece": {"cifar10"},
        "auroc_total": {"mnist", "fashion-mnist"},
    }.items():
        places = {(row["method"], row["dataset"]) for row in rows if row["metric"] == metric}
        assert places == {(method, name) for method in methods for name in wanted}
    assert {row["method"] for row in rows if row["metric"] == "auroc_epistemic"} == methods - {"sgd"}
    assert [row["dataset"] for row in rows if row["metric"] == "gain_kept"] == ["cifar10"]
    assert all(np.isfinite(row["mean"]) for row in rows)
    assert json.loads((finished / "trial-0" / "temperature.json").read_text())["temperature"] == 0.1
    assert "residual network" in (finished / "report.html").read_text()


def test_a_pilot_never_sees_the_images_that_it_is_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "load", fake)
    preset = dataclasses.replace(fashion.PRESETS["quick"], **TINY, on="validation")
    data, held_out, shifts = pictures.images(preset, quiet=True)
    images = fake("fashion-mnist")
    np.testing.assert_array_equal(data.x[:, 0], images.train_x[:32])
    np.testing.assert_array_equal(held_out.x[:, 0], images.train_x[32:40])
    np.testing.assert_array_equal(held_out.y, images.train_y[32:40])
    assert {one.shape for one in shifts.values()} == {(6, 1, 6, 6)}


def test_images_are_corrupted_as_the_numbers_say() -> None:
    x = np.random.default_rng(0).integers(60, 190, (4, 3, 16, 16)).astype(np.uint8)
    exact = x.astype(np.float64)
    middle = exact.mean(axis=(2, 3), keepdims=True)
    np.testing.assert_allclose(pictures.corrupted(x, "brightness", 0.1), exact + 25.5, atol=0.51)
    np.testing.assert_allclose(pictures.corrupted(x, "contrast", 0.4), middle + 0.4 * (exact - middle), atol=0.51)
    noise = pictures.corrupted(x, "noise", 0.04) - exact
    assert abs(noise.std() / (0.04 * 255) - 1) < 4 / np.sqrt(2 * x.size)
    blurred = pictures.corrupted(x, "blur", 1.0)
    assert 0.2 < (blurred - middle).std() / (exact - middle).std() < 0.4  # 1 / (2 sqrt(pi)) of white noise.


def test_images_of_other_sets_are_put_into_the_shape_of_these() -> None:
    small, large = np.full((2, 1, 2, 2), 9, np.uint8), np.arange(2 * 3 * 6 * 6, dtype=np.uint8).reshape(2, 3, 6, 6)
    grown = pictures.fitting(small, (3, 4, 4))
    assert grown.shape == (2, 3, 4, 4)
    assert grown.sum() == 3 * small.sum()
    np.testing.assert_array_equal(
        pictures.fitting(large, (1, 4, 4))[:, 0], large.mean(axis=1).astype(np.uint8)[:, 1:5, 1:5]
    )


@pytest.mark.parametrize("module", [cifar10, fashion])
def test_presets_keep_draws_in_whole_cycles(module: Any) -> None:
    for preset in module.PRESETS.values():
        assert preset.cycle % preset.thin == 0
        assert preset.kept * preset.thin <= preset.rounded(preset.steps) - preset.burn_in
