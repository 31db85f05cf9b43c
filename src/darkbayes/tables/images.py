"""Images in folders, one folder per class, as arrays of one size.

The size is the most common one among the images. If it has a side longer than `MOST_SIDE`, it is scaled down until it
has none; images of another size are scaled until they cover it, and cut at the edges. Images are grey if all of them
are, and in three colours otherwise. Transparent parts show white, of an animation the first picture counts, and
photographs stand upright.
"""

import dataclasses
import io
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from darkbayes.errors import InvalidInput, require_count
from darkbayes.tables.cells import objects
from darkbayes.tables.columns import first_of, listed
from darkbayes.tables.inference import LEAST_ROWS
from darkbayes.tables.schema import ImageSchema

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
"""How the names of images end, in small or capital letters."""
MOST_SIDE = 64  # Pixels of the longest side that a network gets to see.
MOST_PIXELS = 50_000_000  # Of an image as it is stored: a small file may hold one that fills all memory.
BATCH_IMAGES = 256  # Images that are read at a time for prediction.
_ORIENTATION, _ON_THEIR_SIDE = 0x0112, (5, 6, 7, 8)


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """The image files of a folder with one subfolder per class, of which the headers were read."""

    paths: list[Path]
    """Class by class."""
    labels: np.ndarray
    """The class of each, as `Target.encode` takes it."""
    classes: tuple[str, ...]
    """The names of the subfolders, in their order."""
    sizes: list[tuple[int, int]]
    """Height and width of each, upright."""
    notes: list[str]
    """Every choice, in words."""

    @property
    def numbered(self) -> bool:
        """Whether the classes are whole numbers."""
        return all(_is_integer(name) for name in self.classes)

    def size(self, most: int) -> tuple[int, int]:
        """The most common size, scaled down if it has a side of more than so many pixels."""
        counts = Counter(self.sizes)
        common = max(counts, key=lambda size: (counts[size], size))
        share = min(most / max(common), 1.0)
        return max(1, round(common[0] * share)), max(1, round(common[1] * share))

    def fitted(self, size: tuple[int, int]) -> str:
        """What becomes of the images where all are brought to one size, in words."""
        others = sum(each != size for each in self.sizes)
        cut = sum(abs(height * size[1] - width * size[0]) > max(size) for height, width in self.sizes)
        scaled = f"; those of another size ({others}) are scaled to it" if others else ""
        cut_off = f", and what then is too wide or high is cut off at both edges ({cut})" if cut else ""
        return f"images are of {size[0]} by {size[1]} pixels high and wide{scaled}{cut_off}"


@dataclasses.dataclass(frozen=True)
class ImageFolder(ImageFiles):
    """The images of such a folder."""

    images: np.ndarray
    """uint8, ``[images, channels, height, width]``."""


@dataclasses.dataclass(frozen=True)
class ImageBatch:
    """Some images for prediction."""

    images: np.ndarray
    """What `ImageSchema.matrices` and `ImageSchema.encode` take."""
    target: np.ndarray | None
    """The class of each, if it was asked for."""
    paths: list[str]
    """Where each image comes from."""

    @property
    def places(self) -> np.ndarray:
        return objects(self.paths)

    @property
    def inputs(self) -> np.ndarray:
        return self.images

    def __len__(self) -> int:
        return len(self.paths)


def is_image_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder of images by class: one with subfolders that hold images."""
    path = Path(path)
    return path.is_dir() and any(_images_in(folder) for folder in _folders_in(path))


def list_image_folder(path: str | os.PathLike[str]) -> ImageFiles:
    """What the headers say of the images of a folder with a subfolder per class.

    Hidden files and other kinds are ignored; what cannot be an image, or is too large, is refused by its name.

    Args:
        path: the folder.

    Returns:
        The files, their classes and sizes.
    """
    paths, labels, notes = _by_class(Path(path))
    counts = Counter(labels)
    if len(counts) == 1:
        raise InvalidInput(f"{path} has images of one class alone, {labels[0]!r}: at least two are needed")
    if len(paths) < LEAST_ROWS:
        needed = f"at least {LEAST_ROWS} are needed, and hundreds for good results"
        raise InvalidInput(f"{path} has {len(paths)} images: {needed}")
    fewest, most = min(counts.values()), max(counts.values())
    notes.insert(0, f"{len(paths)} images of {len(counts)} classes: {fewest} to {most} each")
    if single := [str(image) for image, label in zip(paths, labels, strict=True) if counts[label] == 1]:
        notes.append(f"the only image of its class is learned from, and never tested: {first_of(single)}")
    headers = list(_read(paths, _header))
    for number, words in (
        (sum(header.turned for header in headers), "turned upright, as their cameras say"),
        (sum(header.transparent for header in headers), "transparent in parts, which show white"),
    ):
        notes += [f"{number} {'is' if number == 1 else 'are'} {words}"] if number else []
    return ImageFiles(paths, objects(labels), tuple(counts), [header.size for header in headers], notes)


def read_image_folder(path: str | os.PathLike[str]) -> ImageFolder:
    """Read the images of a folder that has a subfolder per class; hidden files and other kinds are ignored.

    Args:
        path: the folder.

    Returns:
        The images, all of one size, and their classes.
    """
    files = list_image_folder(path)
    height, width = size = files.size(MOST_SIDE)
    images = np.empty((len(files.paths), 3, height, width), np.uint8)
    for k, image in enumerate(_read(files.paths, lambda path: _decoded(path, height, width, crop=True))):
        images[k] = image
    if _is_grey(images):
        images = np.ascontiguousarray(images[:, :1])
    colours = "they are grey" if images.shape[1] == 1 else "they are in three colours"
    notes = [*files.notes, files.fitted(size), colours]
    return ImageFolder(files.paths, files.labels, files.classes, files.sizes, notes, images)


def infer_image_schema(folder: ImageFolder, target: Any, rows: np.ndarray | None = None) -> ImageSchema:
    """What a network reads of images.

    Args:
        folder: the images.
        target: the classes.
        rows: the indices of those that train, of which statistics are; all by default.

    Returns:
        The schema.
    """
    images = folder.images if rows is None else folder.images[rows]
    # Values below 256 are counted and not converted: no copy in floating point is made.
    counts = np.bincount(images.reshape(-1), minlength=256).astype(np.float64)
    values = np.arange(256)
    center = float(counts @ values / counts.sum())
    scale = float(np.sqrt(counts @ (values - center) ** 2 / counts.sum()))
    if not scale:
        raise InvalidInput(f"all images are of the one value {center:g}: there is nothing to tell them apart")
    _, channels, height, width = folder.images.shape
    return ImageSchema(channels, height, width, center, scale, target, crop=True)


def image_array(source: Path | bytes, schema: ImageSchema) -> np.ndarray:
    """One image, a file or its content, as a schema has them: uint8, ``[channels, height, width]``."""
    try:
        image = _decoded(source, schema.height, schema.width, schema.crop)
    except _unreadable() as problem:
        name = "what was given" if isinstance(source, bytes) else source
        raise InvalidInput(f"{name} cannot be read as an image: {problem}") from None
    if schema.channels == 3:
        return image
    if _is_grey(image[None]):
        return image[:1]
    brightness = np.asarray([0.299, 0.587, 0.114])
    return np.rint(np.tensordot(brightness, image.astype(np.float64), axes=1)).astype(np.uint8)[None]


class ImageBatches:
    """Images in batches; see `read_image_batches`, and `darkbayes.tables.streaming.Batches` for what they have."""

    unit = "file"
    no_places = objects([])

    def __init__(
        self, paths: list[Path], labels: list[str] | None, schema: ImageSchema, rows: int, skip: bool, notes: list[str]
    ):
        self._paths, self._labels, self._schema, self._rows, self._skip = paths, labels, schema, rows, skip
        self._notes = notes
        self.bad: list[str] = []
        self.num_rows = 0

    @property
    def notes(self) -> list[str]:
        left = f"{len(self.bad)} file{'s are' if len(self.bad) > 1 else ' is'} left out: {first_of(self.bad)}"
        return [*self._notes, *([left] if self.bad else [])]

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def estimate(self) -> int:
        return len(self._paths) - len(self.bad)

    def each(self, work: Callable[[ImageBatch], Any]) -> Iterator[Any]:
        """What is made of each batch, in their order."""
        return map(work, self)

    def __iter__(self) -> Iterator[ImageBatch]:
        self.bad, self.num_rows = [], 0
        kept: dict[int, np.ndarray] = {}
        for k, path in enumerate(self._paths):
            try:
                kept[k] = image_array(path, self._schema)
            except InvalidInput as problem:
                if not self._skip:
                    remedy = "Replace it, or have such files left out"
                    raise InvalidInput(f"{problem}. {remedy}", option="on-bad", value="skip") from None
                self.bad.append(str(problem))
            if kept and (len(kept) == self._rows or k == len(self._paths) - 1):
                self.num_rows += len(kept)
                target = None if self._labels is None else objects(self._labels[k] for k in kept)
                yield ImageBatch(np.stack([*kept.values()]), target, [str(self._paths[k]) for k in kept])
                kept = {}


def read_image_batches(
    source: str | os.PathLike[str],
    schema: ImageSchema,
    *,
    rows: int = BATCH_IMAGES,
    on_bad: Literal["refuse", "skip"] = "refuse",
    target: bool = False,
) -> ImageBatches:
    """Read images for prediction: one file, those of a folder, or else those of its subfolders, by name.

    Args:
        source: the image, or the folder.
        schema: what the images are brought to.
        rows: how many each batch but the last has.
        on_bad: whether the first file that cannot be read is refused, or all of them are skipped.
        target: whether the classes are delivered too; the folder then has a subfolder per class, as for fitting.

    Returns:
        The batches, to be iterated over once.
    """
    source = Path(source)
    require_count("rows", rows)
    if on_bad not in ("refuse", "skip"):
        raise InvalidInput(f"on_bad must be 'refuse' or 'skip', not {on_bad!r}")
    if not source.exists():
        raise InvalidInput(f"{source} is not there: give an image or a folder of images")
    paths, labels, notes = [source], None, []
    if target:
        paths, labels, notes = _by_class(source)
        (classes,) = schema.target.columns.values()
        if strange := [name for name in dict.fromkeys(labels) if name not in classes]:
            known = listed(classes)
            raise InvalidInput(f"{source} has folders for {listed(strange)}, which the model does not know: {known}")
    elif source.is_dir():
        paths = _images_in(source) or [path for folder in _folders_in(source) for path in _images_in(folder)]
    if not paths:
        raise InvalidInput(f"{source} has no images: their names end in {', '.join(SUFFIXES)}")
    return ImageBatches(paths, labels, schema, rows, on_bad == "skip", notes)


def _by_class(path: Path) -> tuple[list[Path], list[str], list[str]]:
    """All images, class by class; the class of each; and what was passed over."""
    if not path.is_dir():
        raise InvalidInput(f"{path} is not a folder: images come in a folder that has a subfolder per class")
    by_class, empty = {}, []
    for folder in _folders_in(path):
        if images := _images_in(folder):
            by_class[folder.name] = images
        elif is_image_folder(folder):
            raise InvalidInput(f"{folder} holds folders, not images: did you mean {folder} rather than {path}?")
        else:
            empty.append(folder.name)
    if not by_class:
        kinds = f"({', '.join(SUFFIXES)})"
        loose = "".join(f"; {image} lies in none" for image in _images_in(path)[:1])
        remedy = "put those of each class into one of its own"
        raise InvalidInput(f"{path} has no subfolders with images {kinds}{loose}: {remedy}")
    notes = [f"folders without images are left out: {listed(empty)}"] if empty else []
    if beside := _images_in(path):
        notes.append(f"{len(beside)} image{'s' if len(beside) > 1 else ''} outside the folders of classes: not read")
    names = sorted(by_class, key=int if all(map(_is_integer, by_class)) else str)
    paths, labels = zip(*((image, name) for name in names for image in by_class[name]), strict=True)
    return list(paths), list(labels), notes


def _is_integer(name: str) -> bool:
    """Whether a name is how an integer is written, so that it can be had back from the integer."""
    return name.removeprefix("-").isdecimal() and str(int(name)) == name


def _entries(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "__")))


def _folders_in(path: Path) -> list[Path]:
    return [entry for entry in _entries(path) if entry.is_dir()]


def _images_in(path: Path) -> list[Path]:
    return [entry for entry in _entries(path) if entry.suffix.lower() in SUFFIXES and entry.is_file()]


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise InvalidInput('reading images needs Pillow: pip install "darkbayes[tables]"') from None
    return PIL


def _unreadable() -> tuple[type[Exception], ...]:
    """What Pillow raises on files that are not images, or broken ones."""
    return (OSError, ValueError, SyntaxError, EOFError, _pillow().Image.DecompressionBombError)


def _opened(source: Path | io.BytesIO) -> Any:
    """An image of which nothing but its header was read, if its header says that it is not too large."""
    pillow = _pillow()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pillow.Image.DecompressionBombWarning)
        try:
            image = pillow.Image.open(source)
        except pillow.Image.DecompressionBombWarning as problem:
            raise ValueError(f"{problem}: make it smaller") from None
    if (pixels := math.prod(image.size)) > MOST_PIXELS:
        image.close()
        raise ValueError(f"it has {pixels:,} pixels, and at most {MOST_PIXELS:,} are read: make it smaller")
    return image


class _Header(NamedTuple):
    """What an image says of itself before it is decoded."""

    size: tuple[int, int]
    turned: bool
    transparent: bool


def _header(path: Path) -> _Header:
    with _opened(path) as image:
        orientation = image.getexif().get(_ORIENTATION, 1)
        size = image.size if orientation in _ON_THEIR_SIDE else image.size[::-1]
        return _Header(size, orientation in range(2, 9), _is_transparent(image))


def _is_transparent(image: Any) -> bool:
    return image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info


def _read(paths: Sequence[Path], read: Callable[[Path], Any]) -> Iterator[Any]:
    """What is read of each image; in the end, files of which it could not be read are refused."""
    unreadable = []
    for path in paths:
        try:
            yield read(path)
        except _unreadable() as problem:
            unreadable.append(f"{path} ({problem})")
    if unreadable:
        count = "1 file" if len(unreadable) == 1 else f"{len(unreadable)} files"
        raise InvalidInput(f"{count} cannot be read as images: {first_of(unreadable)}. Delete or replace them")


def _decoded(source: Path | bytes, height: int, width: int, crop: bool) -> np.ndarray:
    """An image as uint8 ``[3, height, width]``: scaled until it covers that and cut at the edges, or else stretched."""
    pillow = _pillow()
    with _opened(io.BytesIO(source) if isinstance(source, bytes) else source) as opened:
        image = pillow.ImageOps.exif_transpose(opened)
        if image.mode.startswith("I"):
            # Sixteen bits for each grey, of which Pillow's own conversion would cut off all beyond 255.
            deep = np.asarray(image)
            image = pillow.Image.fromarray((deep / 257 if deep.max() > 255 else deep).astype(np.uint8))
        elif _is_transparent(image):
            image = image.convert("RGBA")
            image = pillow.Image.alpha_composite(pillow.Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB")
    if image.size != (width, height):
        resize = pillow.ImageOps.fit if crop else pillow.Image.Image.resize
        image = resize(image, (width, height), pillow.Image.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(image, np.uint8), -1, 0)


def _is_grey(images: np.ndarray) -> bool:
    return all(bool((images[:, 0] == images[:, k]).all()) for k in (1, 2))
