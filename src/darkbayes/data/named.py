"""Data sets by name, as arrays, and which of their rows to learn from."""

import io
import json
import math
from pathlib import Path
from typing import Literal, NamedTuple, overload

import numpy as np

from darkbayes.data.sources import fetch, find
from darkbayes.errors import DataError, InvalidInput, require_count


class NamedTable(NamedTuple):
    """Rows of numbers in the standard order."""

    x: np.ndarray
    """[rows, features], float64."""
    y: np.ndarray
    """[rows]: float64 to regress on, int64 for classes."""
    features: tuple[str, ...]
    """The names of the columns of `x`."""
    target: str
    """The name of `y`."""

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All columns by name, the target last."""
        return dict(zip(self.features, self.x.T, strict=True)) | {self.target: self.y}


class Images(NamedTuple):
    """Images with their classes, split as published."""

    train_x: np.ndarray
    """[images, rows, columns] where they are grey, [images, channels, rows, columns] in colour; uint8."""
    train_y: np.ndarray
    """[images], int64."""
    test_x: np.ndarray
    """Likewise."""
    test_y: np.ndarray
    """[images], int64."""


_Images = Literal["mnist", "fashion-mnist", "cifar10"]
_Tables = Literal["boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht", "mushroom"]


@overload
def load(name: _Images, *, folder: Path | str | None = ..., offline: bool = ..., quiet: bool = ...) -> Images: ...
@overload
def load(name: _Tables, *, folder: Path | str | None = ..., offline: bool = ..., quiet: bool = ...) -> NamedTable: ...
@overload
def load(
    name: str, *, folder: Path | str | None = ..., offline: bool = ..., quiet: bool = ...
) -> NamedTable | Images: ...
def load(
    name: str, *, folder: Path | str | None = None, offline: bool = False, quiet: bool = True
) -> NamedTable | Images:
    """A data set of the catalogue; what does not ship is downloaded once and kept.

    Args:
        name: one of `CATALOGUE`.
        folder, offline: read the files in this folder, or the cache, and nothing else.
        quiet: no progress bar and no notes on standard error.

    Returns:
        A `Table`, or `Images` for those that are pictures.

    >>> boston = load("boston")
    >>> boston.x.shape, boston.target, round(float(boston.y.mean()), 4)
    ((506, 13), 'MEDV', 22.5328)
    """
    dataset = find(name)
    contents = list(fetch(dataset, folder=folder, offline=offline, quiet=quiet).contents.values())
    if len(contents) == 1:
        return _table(contents[0].decode("utf-8"), dataset.lettered, dataset.target)
    if len(contents) == 4:
        train_x, train_y, test_x, test_y = map(_idx, contents)
    else:
        *train, train_y, test_x, test_y = contents
        train_x, test_x = np.concatenate([*map(_pictures, train)]), _pictures(test_x)
        train_y, test_y = (np.array(json.loads(labels)) for labels in (train_y, test_y))
    return Images(train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64))


def _table(text: str, letters: bool, target: str = "") -> NamedTable:
    """A table whose last column is the target, or the one named; letters become a column of zeros and ones each."""
    lines = text.splitlines()
    features = lines[0].replace('"', "").split(",")
    target = target or features[-1]
    place = features.index(target)
    del features[place]
    if not letters:
        values = np.loadtxt(lines[1:], delimiter=",", ndmin=2)
        return NamedTable(np.delete(values, place, axis=1), values[:, place].copy(), tuple(features), target)
    columns = np.array([line.split(",") for line in lines[1:]]).T
    pairs = zip(features, columns[:-1], strict=True)
    x = {f"{feature}={letter}": column == letter for feature, column in pairs for letter in np.unique(column)}
    y = np.unique(columns[-1], return_inverse=True)[1].astype(np.int64)
    return NamedTable(np.stack(list(x.values()), axis=1).astype(np.float64), y, tuple(x), target)


def _pictures(content: bytes) -> np.ndarray:
    """Square images in colour of which each is a row of one large picture, ``[images, channels, rows, columns]``."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError("images in colour are read by pillow: pip install 'darkbayes[tables]'") from None

    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    side = math.isqrt(pixels.shape[1])
    return np.ascontiguousarray(np.moveaxis(pixels.reshape(len(pixels), side, side, 3), -1, 1))


def _idx(content: bytes) -> np.ndarray:
    """An array of bytes in the idx form: two zeros, the type 8, the number of axes, their lengths, the bytes."""
    axes = content[3]
    if content[:3] != b"\0\0\x08":
        raise DataError(f"an idx file of bytes begins with 00 00 08, not {content[:3].hex(' ')}")
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()


Split = tuple[np.ndarray, np.ndarray]  # Indices of the rows to train on and of those to test on.


def standard_splits(examples: int, number: int = 20) -> list[Split]:
    """The splits of the UCI benchmark of Hernandez-Lobato and Adams (2015), bit for bit: nine tenths to train.

    Their files are drawn one after another from one old generator, so the first of twenty are the first of any number.

    Args:
        examples, number: how many rows the data set has, and how many splits.

    Returns:
        Indices of the rows to train on and of those to test on, for each split.

    >>> train, test = standard_splits(506)[0]
    >>> len(train), len(test), test[:3]
    (455, 51, array([...]))
    """
    examples, number = require_count("examples", examples, 2), require_count("number", number)
    generator = np.random.RandomState(1)  # A newer generator would give other splits.
    cut = int(np.floor(0.9 * examples + 0.5))
    if cut == examples:
        raise InvalidInput(f"examples={examples} leaves no row to test on: at least 6 are needed")
    orders = [generator.choice(range(examples), examples, replace=False) for _ in range(number)]
    return [(order[:cut].astype(np.int64), order[cut:].astype(np.int64)) for order in orders]


def random_splits(examples: int, test: int, number: int, seed: int = 0) -> list[Split]:
    """Random splits with `test` rows to test on; the paper's own for Boston, never published, had 50 of 506.

    Args:
        examples, test: how many rows the data set has, and how many of them to test on.
        number, seed: how many splits, and where the randomness comes from.

    Returns:
        Indices of the rows to train on and of those to test on, for each split.

    >>> [(len(train), len(test)) for train, test in random_splits(506, test=50, number=2)]
    [(456, 50), (456, 50)]
    """
    examples, test = require_count("examples", examples, 2), require_count("test", test)
    if test >= examples:
        most = examples - 1
        raise InvalidInput(f"test={test} leaves none of the {examples} examples to train on: use at most {most}")
    generator = np.random.default_rng(require_count("seed", seed, 0))
    orders = [generator.permutation(examples) for _ in range(require_count("number", number))]
    return [(order[test:], order[:test]) for order in orders]
