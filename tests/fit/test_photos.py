"""A folder of images, from files to a student: on a backbone's features, and by convolutions."""

import dataclasses
import json
import re

import numpy as np
import pytest
from PIL import Image

from darkbayes.cli import main
from darkbayes.errors import InvalidInput
from darkbayes.export import Backbone, load_backbone
from darkbayes.files import read_arrays
from darkbayes.fit import Options, export_folder, fit_folder, for_images, prepare_features, prepare_images
from darkbayes.fit.features import image_features
from darkbayes.report import write_report
from darkbayes.shipped import Shipped
from darkbayes.tables import read_image_batches, read_image_folder
from darkbayes.tables.images import list_image_folder
from darkbayes.tables.schema import ImageSchema

onnx = pytest.importorskip("onnx")
SHORT = Options(hidden=(), student_hidden=(8,), chains=2, max_steps=20, activation="relu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Sixty images of two classes, reddish and greenish ones, a few of another size."""
    folder, random = tmp_path_factory.mktemp("photos") / "pets", np.random.default_rng(0)
    for k in range(60):
        image = random.integers(0, 256, (8, 12 if k < 6 else 8, 3)).astype(np.uint8)
        image[..., k % 2] //= 3
        path = folder / ("red", "green")[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    """The mean of each colour, as an ONNX file of a batch of one."""
    from onnx import TensorProto, helper

    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 3, *sides)) for name, sides in SIDES.items()]
    graph = helper.make_graph(nodes, "means", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("backbone") / "means.onnx"
    onnx.save(model, path)
    return path


SIDES = {"x": (8, 8), "y": (1, 1)}


def colours(path):
    """The mean of each colour of the middle of an image, standardised as ImageNet is."""
    with Image.open(path) as image:
        pixels = np.asarray(image, np.float64)
    start = (pixels.shape[1] - 8) // 2
    means = pixels[:, start : start + 8].mean(axis=(0, 1))
    return (means - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]


def test_features_are_those_of_each_file_and_are_computed_once(photos, backbone, tmp_path, monkeypatch):
    files, model = list_image_folder(photos), load_backbone(backbone)
    schema = ImageSchema(*model.shape, 0.0, 1.0, None, crop=True)
    values = image_features(files, model, schema, tmp_path / "one")
    np.testing.assert_allclose(values, [colours(path) for path in files.paths], atol=1e-5)
    asked = []
    run = Backbone.features
    monkeypatch.setattr(Backbone, "features", lambda self, images: asked.append(len(images)) or run(self, images))
    for folder in ("one", "two"):  # The same again, and another run beside it.
        np.testing.assert_array_equal(image_features(files, model, schema, tmp_path / folder), values)
    assert asked == []
    turned = dataclasses.replace(files, paths=[*files.paths[1:], backbone.parent / "new.png"])
    Image.fromarray(np.full((8, 8, 3), 50, np.uint8)).save(turned.paths[-1])
    again = image_features(turned, model, schema, tmp_path / "one")
    assert asked == [1]
    np.testing.assert_array_equal(again[:-1], values[1:])
    np.testing.assert_allclose(again[-1], colours(turned.paths[-1]), atol=1e-5)


def test_a_fit_on_a_backbone_leaves_one_file_for_images(photos, backbone, tmp_path, small_fits):
    out, model = tmp_path / "run", load_backbone(backbone)
    prepared = prepare_features(list_image_folder(photos), photos, model, out, seed=1)
    assert prepared.train.x.shape == (48, 3)
    np.testing.assert_allclose(np.asarray(prepared.train.x).std(axis=0), 1, atol=1e-5)
    options, note = for_images(SHORT, prepared.train.x.shape[1:], 48)
    assert (options.network, note) == ("head", "the sampled network works on the features; the backbone stays as it is")
    config = {"source": "pets", "sha256": "", "seed": 1}
    fit_folder(prepared, config, options, 1, out, resume=False, quiet=True)
    shipped = Shipped(out)
    (batch,) = read_image_batches(photos, shipped.schema)
    said = shipped.predict(batch.images)
    held = [batch.paths.index(str(photos / place)) for place in prepared.places]
    kept = read_arrays(out / "held-out.safetensors")["student.log_likelihood"]
    np.testing.assert_allclose(said[held].log_prob(prepared.truth), kept, atol=1e-5)
    # Scores are the file's own, from the features on.
    own = shipped.predict_encoded(np.asarray(prepared.held_out.x))
    np.testing.assert_array_equal(own.log_prob(prepared.truth), kept)
    assert np.ptp(said.probs) > 1e-3
    page = write_report(out).read_text("utf-8")
    assert "means.onnx" in page
    assert all(title in page for title in ("It is sure of", "Unsure, for noise", "Unsure, for doubt", "The worst"))
    export_folder(out, "onnx", tmp_path / "copy.onnx")
    assert (tmp_path / "copy.onnx").read_bytes() == (out / "student.onnx").read_bytes()
    lines = export_folder(out, "onnx", tmp_path / "small.onnx", int8=True, on=photos)
    assert "log likelihood" in lines[1]
    assert "after the backbone" in export_folder(out, "safetensors", tmp_path / "weights.safetensors")[0]


def test_a_fit_by_convolutions_leaves_a_file_that_predicts_the_same(photos, tmp_path, small_fits):
    prepared = prepare_images(read_image_folder(photos), photos, seed=1)
    assert prepared.train.x.shape == (48, 3, 8, 8)
    short = dataclasses.replace(SHORT, hidden=None, student_hidden=Options.student_hidden)
    options, note = for_images(short, prepared.train.x.shape[1:], 48)
    assert (options.network, options.hidden) == ("cnn", (1, 8, 16, 32))
    assert note == "the network is a CNN (small enough for a CPU to sample; another may be named)"
    options = dataclasses.replace(options, hidden=(1, 2, 4), student_hidden=(1, 4, 4))
    out = tmp_path / "run"
    fit_folder(prepared, {"source": "pets", "sha256": "", "seed": 1}, options, 1, out, resume=False, quiet=True)
    facts = json.loads((out / "fit.json").read_text("utf-8"))
    assert facts["options"]["network"] == "cnn"
    export_folder(out, "onnx", tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (out / "student.onnx").read_bytes()
    assert "convolutions of 2 channels and a hidden layer of 4" in write_report(out).read_text("utf-8")


@pytest.mark.parametrize(
    ("shape", "images", "network", "kind"),
    [
        ((1, 8, 8), 1000, "auto", "cnn"),
        ((1, 4, 8), 1000, "auto", "mlp"),
        ((3, 64, 64), 10**6, "auto", "mlp"),
        ((3, 64, 64), 10**6, "cnn", "cnn"),
        ((3, 32, 32), 1000, "resnet", "resnet"),
    ],
)
def test_the_kind_of_network_follows_from_size_and_device(shape, images, network, kind, monkeypatch):
    options, note = for_images(Options(), shape, images, network)
    assert options.network == kind
    assert ("as asked for" in note) == (network != "auto")
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert for_images(Options(), (3, 32, 32), 1000)[0].network == "resnet"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["pets", "--backbone", "none.onnx"], "none.onnx cannot be used as a backbone: there is no such file"),
        (["pets", "--backbone-size", "32"], "--backbone-size 32 does not apply to a folder of images without"),
        (["pets", "--backbone", "x.onnx", "--network", "cnn"], "--network cnn does not go with a --backbone"),
        (["loose"], "loose has no subfolders with images .*; loose/1.png lies in none"),
        (["large"], r"large/a/1.png .*400000000 pixels"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(options, message, photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets").symlink_to(photos)
    (tmp_path / "loose").mkdir()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "loose" / "1.png")
    for k in range(12):
        path = tmp_path / "large" / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(path)
    from tables.test_images import png_of  # A header alone, without the pixels that it speaks of.

    (tmp_path / "large" / "a" / "1.png").write_bytes(png_of(20_000, 20_000))
    with pytest.raises(SystemExit):
        main(["fit", *options])
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


def test_the_only_image_of_a_class_is_named(photos, tmp_path):
    for k, path in enumerate(sorted(photos.rglob("*.png"))[:12]):
        new = tmp_path / "pets" / ("lone" if k == 0 else "abc"[k % 3]) / path.name
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(path.read_bytes())
    notes = list_image_folder(tmp_path / "pets").notes
    assert any(
        "the only image of its class is learned from, and never tested: " in note and "lone" in note for note in notes
    )


def test_a_broken_image_is_named_before_its_features_are_asked_for(photos, backbone, tmp_path):
    files = list_image_folder(photos)
    broken = tmp_path / "broken.png"
    broken.write_bytes(files.paths[0].read_bytes()[:60])
    model = load_backbone(backbone)
    with pytest.raises(InvalidInput, match=r"broken.png cannot be read as an image"):
        image_features(
            dataclasses.replace(files, paths=[broken, *files.paths[1:]]),
            model,
            ImageSchema(*model.shape, 0.0, 1.0, None, crop=True),
            tmp_path / "run",
        )
