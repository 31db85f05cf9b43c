"""Folders of images, one per class."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from darkbayes.errors import InvalidInput
from darkbayes.outcomes import ClassTarget
from darkbayes.tables import read_image_batches, read_image_folder
from darkbayes.tables.images import image_array, infer_image_schema, is_image_folder

PETS = ClassTarget("class", ("cat", "dog"))


def pixels(seed, height=6, width=4, channels=3):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    """Twelve images of two classes."""
    for k in range(12):
        save(tmp_path / "pets" / ("cat" if k % 3 else "dog") / f"{k:02d}.png", pixels(k))
    return tmp_path / "pets"


def test_a_folder_of_images_becomes_arrays_with_classes(folder):
    assert is_image_folder(folder)
    pictures = read_image_folder(folder)
    assert pictures.images.shape == (12, 3, 6, 4)
    assert pictures.images.dtype == np.uint8
    assert pictures.classes == ("cat", "dog")
    for path, label, image in zip(pictures.paths, pictures.labels, pictures.images, strict=True):
        assert path.parent.name == label
        np.testing.assert_array_equal(image, np.moveaxis(pixels(int(path.stem)), -1, 0))
    assert pictures.notes == [
        "12 images of 2 classes: 4 to 8 each",
        "images are of 6 by 4 pixels high and wide",
        "they are in three colours",
    ]


def test_the_schema_standardises_the_images_that_train(folder):
    pictures = read_image_folder(folder)
    rows = np.arange(8)
    schema = infer_image_schema(pictures, PETS, rows)
    assert schema.shape == (3, 6, 4)
    inputs = schema.encode(pictures.images[rows])
    assert abs(float(inputs.mean())) < 1e-5
    assert float(inputs.std()) == pytest.approx(1, abs=1e-5)
    assert PETS.encode(pictures.labels).tolist() == [0] * 8 + [1] * 4


def test_images_are_grey_if_all_are_and_colours_turn_grey_for_such_a_model(tmp_path):
    for k in range(12):
        grey = pixels(k, channels=1)
        # Half of them are grey without saying so.
        save(tmp_path / "digits" / str(k % 11) / f"{k}.png", grey if k % 2 else np.stack([grey] * 3, axis=-1))
    pictures = read_image_folder(tmp_path / "digits")
    assert pictures.images.shape == (12, 1, 6, 4)
    assert pictures.classes == tuple(str(k) for k in range(11))
    schema = infer_image_schema(pictures, PETS)
    save(tmp_path / "colour.png", np.full((6, 4, 3), (255, 0, 0), np.uint8))
    assert (image_array(tmp_path / "colour.png", schema) == 76).all()


def test_sizes_are_the_most_common_one_and_large_images_are_scaled_down(folder, tmp_path):
    save(folder / "cat" / "other.png", pixels(0, 12, 12))
    pictures = read_image_folder(folder)
    assert pictures.images.shape == (13, 3, 6, 4)
    assert pictures.notes[1].endswith(
        "; those of another size (1) are scaled to it, and what then is too wide or high is cut off at both edges (1)"
    )
    for k in range(10):
        save(tmp_path / "photos" / "ab"[k % 2] / f"{k}.png", np.full((200, 100, 3), 20 * k, np.uint8))
    pictures = read_image_folder(tmp_path / "photos")
    assert pictures.images.shape == (10, 1, 64, 32)
    assert (
        pictures.notes[1] == "images are of 64 by 32 pixels high and wide; those of another size (10) are scaled to it"
    )
    assert pictures.images[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 160, 20, 60, 100, 140, 180]


def test_all_kinds_of_image_files_are_read(folder):
    plain = np.full((6, 4, 3), 200, np.uint8)
    for suffix in ("JPG", "jpeg", "bmp", "gif", "webp"):
        save(folder / "dog" / f"plain.{suffix}", plain)
    transparent = np.zeros((6, 4, 4), np.uint8)
    transparent[:3, :, 3] = 255
    save(folder / "dog" / "transparent.png", transparent)
    save(folder / "dog" / "deep.png", np.full((6, 4), 257 * 100, np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6
    save(folder / "dog" / "turned.jpg", np.full((4, 6, 3), 50, np.uint8), exif=exif.tobytes())
    pictures = read_image_folder(folder)
    assert pictures.images.shape == (20, 3, 6, 4)
    message = ["1 is turned upright, as their cameras say", "1 is transparent in parts, which show white"]
    assert pictures.notes[1:3] == message
    assert "another size" not in pictures.notes[3]
    for path, image in zip(pictures.paths, pictures.images, strict=True):
        if path.stem == "plain":
            assert np.abs(image.astype(int) - 200).max() <= 2
        if path.stem == "deep":
            assert (image == 100).all()
    top = pictures.images[[path.stem for path in pictures.paths].index("transparent")]
    assert (top[:, :3] == 0).all()
    assert (top[:, 3:] == 255).all()


def test_junk_and_empty_folders_are_passed_over(folder):
    (folder / "empty").mkdir()
    (folder / ".git").mkdir()
    (folder / "__MACOSX").mkdir()
    (folder / "cat" / "._00.png").write_bytes(b"junk")
    (folder / "cat" / "Thumbs.db").write_bytes(b"junk")
    (folder / "cat" / "more").mkdir()
    save(folder / "beside.png", pixels(0))
    pictures = read_image_folder(folder)
    assert len(pictures.images) == 12
    assert pictures.notes[1:3] == [
        "folders without images are left out: 'empty'",
        "1 image outside the folders of classes: not read",
    ]


def test_files_that_are_no_images_are_named(folder):
    (folder / "cat" / "broken.png").write_bytes(b"this is no image")
    whole = io.BytesIO()
    Image.fromarray(pixels(0, 60, 60)).save(whole, "png")
    with pytest.raises(InvalidInput, match=r"1 file cannot be read as images: .*broken.png"):
        read_image_folder(folder)
    (folder / "cat" / "broken.png").write_bytes(whole.getvalue()[:3000])
    with pytest.raises(InvalidInput, match=r"1 file cannot be read as images: .*broken.png \(.*truncated"):
        read_image_folder(folder)


def test_folders_from_which_no_classes_can_be_learnt_are_refused(tmp_path):
    def refused(path, message):
        with pytest.raises(InvalidInput, match=message):
            read_image_folder(path)

    assert not is_image_folder(tmp_path)
    refused(tmp_path, "has no subfolders with images")
    refused(tmp_path / "none", "is not a folder")
    for k in range(12):
        save(tmp_path / "one" / "cat" / f"{k}.png", pixels(k))
    refused(tmp_path / "one", "one class alone, 'cat'")
    save(tmp_path / "few" / "a" / "1.png", pixels(0))
    save(tmp_path / "few" / "b" / "1.png", pixels(0))
    refused(tmp_path / "few", "has 2 images: at least 10")
    save(tmp_path / "split" / "train" / "a" / "1.png", pixels(0))
    refused(tmp_path / "split", r"did you mean .*train rather than")
    for k in range(12):
        save(tmp_path / "same" / "ab"[k % 2] / f"{k}.png", np.full((6, 4), 7, np.uint8))
    with pytest.raises(InvalidInput, match="of the one value 7"):
        infer_image_schema(read_image_folder(tmp_path / "same"), PETS)


def test_images_for_prediction_come_in_batches_from_a_file_a_folder_or_folders(folder):
    pictures = read_image_folder(folder)
    schema = infer_image_schema(pictures, PETS)
    (single,) = read_image_batches(pictures.paths[0], schema)
    np.testing.assert_array_equal(single.images, pictures.images[:1])
    parts = list(read_image_batches(folder / "cat", schema, rows=5))
    assert [len(part) for part in parts] == [5, 3]
    assert parts[0].target is None
    batches = read_image_batches(folder, schema, target=True)
    (everything,) = batches
    np.testing.assert_array_equal(everything.images, pictures.images)
    assert everything.target is not None
    assert everything.target.tolist() == pictures.labels.tolist()
    assert everything.paths == [str(path) for path in pictures.paths] == everything.places.tolist()
    assert everything.places.dtype == object
    assert (len(batches), batches.num_rows) == (12, 12)
    np.testing.assert_array_equal(image_array(pictures.paths[3].read_bytes(), schema), pictures.images[3])


def test_unreadable_images_are_skipped_or_refused_in_prediction(folder):
    schema = infer_image_schema(read_image_folder(folder), PETS)
    (folder / "cat" / "aa.png").write_bytes(b"junk")
    with pytest.raises(InvalidInput, match=r"aa.png cannot be read as an image.*left out") as problem:
        list(read_image_batches(folder / "cat", schema))
    assert (problem.value.option, problem.value.value) == ("on-bad", "skip")
    batches = read_image_batches(folder / "cat", schema, on_bad="skip")
    assert sum(len(batch) for batch in batches) == 8
    assert batches.notes[0].startswith("1 file is left out: ")
    with pytest.raises(InvalidInput, match="what was given cannot be read as an image"):
        image_array(b"junk", schema)


def test_a_source_without_images_or_with_unknown_classes_is_refused(folder, tmp_path):
    schema = infer_image_schema(read_image_folder(folder), PETS)
    (tmp_path / "empty").mkdir()
    for source, options, message in (
        (tmp_path / "empty", {}, "has no images"),
        (tmp_path / "none", {}, "is not there"),
        (folder, {"on_bad": "mend"}, "on_bad must be"),
        (folder, {"rows": 0}, "rows must be"),
    ):
        with pytest.raises(InvalidInput, match=message):
            read_image_batches(source, schema, **options)
    save(folder / "bird" / "1.png", pixels(0))
    with pytest.raises(InvalidInput, match="folders for 'bird', which the model does not know"):
        read_image_batches(folder, schema, target=True)


def png_of(width: int, height: int) -> bytes:
    """The beginning of a PNG file that says it has so many pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    ends = zlib.compress(bytes(100))
    chunks = [header, b"IDAT" + ends]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


@pytest.mark.parametrize("side", [7_100, 10_000, 13_000, 50_000])
@pytest.mark.filterwarnings("error")
def test_an_image_that_would_fill_the_memory_is_refused_before_it_is_decoded(side, folder):
    schema = infer_image_schema(read_image_folder(folder), ClassTarget("class", ("a", "b")))
    with pytest.raises(InvalidInput, match=r"cannot be read as an image: .* pixels"):
        image_array(png_of(side, side), schema)
    (folder / "cat" / "large.png").write_bytes(png_of(side, side))
    with pytest.raises(InvalidInput, match=r"1 file cannot be read as images: .*large\.png .*pixels"):
        read_image_folder(folder)
