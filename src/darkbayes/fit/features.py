"""From a folder of images and a backbone to rows of features, which are fitted as those of a table are.

Features are kept in the run's folder by the hash of each image's file, under a name with the hash of all else that they
depend on. A run that goes on, or another one beside it, does not compute them again.
"""

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.data import as_data
from darkbayes.export import Backbone
from darkbayes.files import read_arrays, write_arrays
from darkbayes.fit.prepare import Prepared, hold_out
from darkbayes.outcomes import ClassTarget
from darkbayes.progress import progress_bar
from darkbayes.runs import FEATURES
from darkbayes.tables.images import ImageFiles, image_array
from darkbayes.tables.schema import REACH, ImageSchema, Number, TableSchema, standardising

TOGETHER = 32  # Images that are decoded before they are run.
KEEP_SECONDS = 30.0  # Of work that is lost at most where it is interrupted.
SHOWN = 112  # Pixels of the longer side of an image in the report.
Known = dict[str, np.ndarray]


def prepare_features(
    files: ImageFiles,
    root: Path,
    backbone: Backbone,
    folder: Path,
    *,
    held_out: float = 0.2,
    seed: int = 0,
    quiet: bool = True,
) -> Prepared:
    """Split images by class, and standardise their features by those that train.

    Args:
        files: the images.
        root: the folder to which their names in the report are relative.
        backbone: what makes features of them.
        folder: the run's folder, in which the features are kept.
        held_out: the share of them to hold out.
        seed: where the split comes from.
        quiet: whether to show no progress bar.

    Returns:
        What `fit_folder` takes.
    """
    train, held = hold_out(len(files.labels), held_out, seed, files.labels)
    target = ClassTarget.of_folders(files.classes, files.numbered)
    # Pixels are scaled within the backbone.
    schema = ImageSchema(*backbone.shape, 0.0, 1.0, target, crop=True)
    values = image_features(files, backbone, schema, folder, quiet=quiet)
    features = feature_schema(values[train], target)
    data = [
        as_data(encoded(features, values[rows]), target.encode(files.labels[rows])) if len(rows) else None
        for rows in (train, held)
    ]
    assert data[0] is not None
    facts: dict[str, Any] = {"rows": len(files.labels), "trained": len(train), "held_out": len(held), "dropped": 0}
    facts["backbone"] = {"name": Path(backbone.name).name, "sha256": backbone.key, "features": backbone.width}
    places = [files.paths[row].relative_to(root).as_posix() for row in held.tolist()]
    shown = [_small(image_array(files.paths[row], schema)) for row in held.tolist()]
    notes = [*files.notes, files.fitted(backbone.shape[1:]), backbone.note]
    truth, images = target.truth(files.labels[held]), np.stack(shown) if shown else None
    return Prepared(schema, data[0], data[1], truth, None, images, places, notes, facts, backbone, features)


def feature_schema(values: np.ndarray, target: ClassTarget) -> TableSchema:
    """Features ``[rows, features]`` as columns of numbers, with the statistics of these rows."""
    columns = [
        Number(f"f{k}", *standardising(column), 0.0, False, float(column.min()), float(column.max()), False)
        for k, column in enumerate(values.astype(np.float64).T)
    ]
    return TableSchema(tuple(columns), target, reach=REACH)


def encoded(features: TableSchema, values: np.ndarray) -> np.ndarray:
    """Features as a network reads them."""
    return features.encode(dict(zip((column.name for column in features.columns), values.T, strict=True)))


def image_features(
    files: ImageFiles, backbone: Backbone, schema: ImageSchema, folder: Path, *, quiet: bool = True
) -> np.ndarray:
    """The features of all images, ``[images, features]``; those in the folder, or one beside it, are not computed."""
    path = folder / FEATURES.format(backbone.key[:16])
    known: Known = {}
    for there in filter(Path.is_file, [path, *folder.parent.glob(f"*/{path.name}")]):
        stored = read_arrays(there)
        known |= dict(zip((bytes(one).hex() for one in stored["hashes"]), stored["features"], strict=True))
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files.paths]
    new = [place for place, one in enumerate(hashes) if one not in known]
    saved = time.time()
    with progress_bar("features", len(hashes), quiet=quiet, start=len(hashes) - len(new), unit="images") as show:
        for start in range(0, len(new), TOGETHER):
            places = new[start : start + TOGETHER]
            images = np.stack([image_array(files.paths[place], schema) for place in places])
            known |= dict(zip((hashes[place] for place in places), backbone.features(images), strict=True))
            show(len(hashes) - len(new) + start + len(places))
            if time.time() - saved > KEEP_SECONDS:
                _keep(path, known)
                saved = time.time()
    known = {one: known[one] for one in hashes}
    _keep(path, known)
    return np.stack([known[one] for one in hashes])


def _keep(path: Path, known: Known) -> None:
    hashes = np.stack([np.frombuffer(bytes.fromhex(one), np.uint8) for one in known])
    write_arrays(path, {"hashes": hashes, "features": np.stack(list(known.values()))})


def _small(image: np.ndarray) -> np.ndarray:
    """An image for the report: means over blocks of pixels, so that it has no side longer than `SHOWN`."""
    channels, height, width = image.shape
    block = -(-max(height, width) // SHOWN)
    high, wide = max(height // block, 1), max(width // block, 1)
    cut = image[:, : high * block, : wide * block].reshape(channels, high, min(block, height), wide, min(block, width))
    return cut.mean(axis=(2, 4)).round().astype(np.uint8)
