"""Data sets by name, as arrays."""

from pathlib import Path
from typing import Literal, NamedTuple, overload

import numpy as np

from darkbayes.data.catalogue import find
from darkbayes.data.sources import fetch
from darkbayes.errors import DataError


class Table(NamedTuple):
    """Rows of numbers in the standard order."""

    x: np.ndarray
    """[rows, features], float64."""
    y: np.ndarray
    """[rows]: float64 to regress on, int64 for classes."""
    features: tuple[str, ...]
    """The names of the columns of `x`."""
    target: str
    """The name of `y`."""


class Images(NamedTuple):
    """Grey images with their classes, split as published."""

    train_x: np.ndarray
    """[images, rows, columns], uint8."""
    train_y: np.ndarray
    """[images], int64."""
    test_x: np.ndarray
    """[images, rows, columns], uint8."""
    test_y: np.ndarray
    """[images], int64."""


_Images = Literal["mnist", "fashion-mnist"]
_Tables = Literal["boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht", "mushroom"]


@overload
def load(name: _Images, *, folder: Path | str | None = ..., offline: bool = ..., quiet: bool = ...) -> Images: ...
@overload
def load(name: _Tables, *, folder: Path | str | None = ..., offline: bool = ..., quiet: bool = ...) -> Table: ...
@overload
def load(name: str, *, folder: Path | str | None = ..., offline: bool = ..., quiet: bool = ...) -> Table | Images: ...
def load(name: str, *, folder: Path | str | None = None, offline: bool = False, quiet: bool = True) -> Table | Images:
    """A data set of the catalogue; what does not ship is downloaded once and kept.

    Args:
        name: one of `CATALOGUE`.
        folder: read the files in this folder and nowhere else.
        offline: read the cache and nothing else.
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
        return _table(contents[0].decode("utf-8"), dataset.lettered)
    train_x, train_y, test_x, test_y = map(_idx, contents)
    return Images(train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64))


def _table(text: str, letters: bool) -> Table:
    """A table whose last column is the target; letters become a column of zeros and ones each."""
    lines = text.splitlines()
    *features, target = lines[0].split(",")
    if not letters:
        values = np.loadtxt(lines[1:], delimiter=",", ndmin=2)
        return Table(values[:, :-1].copy(), values[:, -1].copy(), tuple(features), target)
    columns = np.array([line.split(",") for line in lines[1:]]).T
    pairs = zip(features, columns[:-1], strict=True)
    x = {f"{feature}={letter}": column == letter for feature, column in pairs for letter in np.unique(column)}
    y = np.unique(columns[-1], return_inverse=True)[1].astype(np.int64)
    return Table(np.stack(list(x.values()), axis=1).astype(np.float64), y, tuple(x), target)


def _idx(content: bytes) -> np.ndarray:
    """An array of bytes in the idx form: two zeros, the type 8, the number of axes, their lengths, the bytes."""
    axes = content[3]
    if content[:3] != b"\0\0\x08":
        raise DataError(f"an idx file of bytes begins with 00 00 08, not {content[:3].hex(' ')}")
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()
