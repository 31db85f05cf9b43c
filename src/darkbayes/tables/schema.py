"""What the columns of a table are, and how they become the inputs of a network.

A `Frame` maps a column's name to its values: float64 for numbers, NaN where one is missing; strings for categories,
None where one is missing. The inputs of the network are, in this order,

    every number, standardised and bent into `reach` standard deviations beyond the range that was seen, the median
        where it is missing;
    for every number that had missing values when the schema was made, whether it is missing;
    for every category of every column of categories, whether it is this one;
        after them, if the column had missing values when the schema was made, whether it is missing.

A category that the schema does not know has zeros everywhere.

Some columns of a file are not read as they are: dates become numbers such as the year, text the counts of its words,
numbers with marks such as 1.234,5 plain ones. What makes them is among the schema's `sources`, and a frame holds what
was made of them, so that nobody who has a frame need know.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

FARTHEST = 100.0  # Standard deviations beyond which a number is taken to be just there: outliers may be farther out.
REACH = 10.0
"""Standard deviations beyond the range that was seen within which a number counts, for teacher and student alike.

A student knows of its teacher's doubt where it has asked. So it asks within this reach, and whatever lies farther out
is taken to be at its end: the doubt there holds from there on.
"""
MOST_TOLD = 60
"""Letters of an unknown category that are told."""
Frame = dict[str, Any]
Stored = TypeVar("Stored")


@dataclasses.dataclass(frozen=True, eq=False)
class Coded:
    """A frame's column of categories in which each text is kept once.

    To numpy it is an array of strings and None.

    >>> colours = Coded.from_values(np.asarray(["red", None, "red"], object))
    >>> colours.names.tolist(), colours.codes.tolist(), colours[1:].tolist()
    (['red', None], [0, 1, 0], [None, 'red'])
    """

    names: np.ndarray
    """Those that there are, of which some may not occur, or be there twice."""
    codes: np.ndarray
    """The place of each row's among them."""
    dtype: ClassVar[Any] = np.dtype(object)

    @classmethod
    def from_values(cls, values: Any) -> "Coded":
        """Those of an array, unless they are coded."""
        if isinstance(values, cls):
            return values
        texts = values.tolist()
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return cls(np.fromiter(places, object, len(places)), np.fromiter(map(places.get, texts), np.int64, len(texts)))  # pyright: ignore[reportArgumentType]

    def counts(self) -> "Counter[str | None]":
        """How often each text occurs that does."""
        counts: Counter[str | None] = Counter()
        for name, count in zip(self.names.tolist(), np.bincount(self.codes, minlength=len(self.names)), strict=True):
            counts[name] += int(count)
        return +counts

    def are(self, texts: Any) -> np.ndarray:
        """Whether each is one of these."""
        return np.asarray([name in texts for name in self.names.tolist()], bool)[self.codes]

    def tolist(self) -> list[str | None]:
        return self.names[self.codes].tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.names[self.codes]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        codes = self.codes[rows]
        return Coded(self.names, codes) if isinstance(codes, np.ndarray) else self.names[codes]


@dataclasses.dataclass(frozen=True)
class Number:
    """A column of numbers."""

    name: str
    """What it is called in the file."""
    center: float
    """What is subtracted."""
    scale: float
    """What the rest is divided by, never zero."""
    fill: float
    """The median, which stands in for a missing value."""
    flagged: bool
    """Whether a missing value is told to the network by an input of its own."""
    low: float
    """The least value that was seen."""
    high: float
    """The largest one."""
    whole: bool
    """Whether all values were whole numbers."""

    def holds(self, values: np.ndarray) -> bool:
        """Whether all values lie in the range that was seen, and none is missing."""
        return bool(values.min(initial=self.high) >= self.low and values.max(initial=self.low) <= self.high)

    def unlike(self, value: float) -> str:
        """How a value is unlike all that were seen."""
        if np.isnan(value):
            return "is missing"
        return f"{value:.6g} is below {self.low:.6g}" if value < self.low else f"{value:.6g} is above {self.high:.6g}"


@dataclasses.dataclass(frozen=True)
class Category:
    """A column of categories."""

    name: str
    """What it is called in the file."""
    categories: tuple[str, ...]
    """Those that the model knows."""
    flagged: bool
    """Whether a missing value is told to the network by an input of its own."""

    def unlike(self, value: str | None) -> str:
        """How a value is unlike all that were seen."""
        if value is None:
            return "is missing"
        short = value if len(value) <= MOST_TOLD else f"{value[:MOST_TOLD]}..."
        return f"{short!r} is unknown"


def standardising(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation, even of numbers whose squares are none; one for a deviation of zero."""
    reach = float(np.abs(values).max()) or 1.0
    return float((values / reach).mean() * reach), float((values / reach).std() * reach) or 1.0


def bend(values: Any, low: Any, high: Any, reach: float, xp: Any = np) -> Any:
    """Values as they are from `low` to `high`, and beyond less and less far out, by `reach` at most.

    `xp` calculates: numpy, with arrays or with values of an ONNX graph, or jax.numpy.
    """
    inside = xp.maximum(xp.minimum(values, high), low)
    return inside + reach * xp.tanh((values - inside) / reach)


@dataclasses.dataclass(frozen=True)
class TableSchema:
    """The columns of a table that a network reads, and what it predicts."""

    columns: tuple[Number | Category, ...]
    """What the network reads, in the order of the file."""
    target: Any
    """What it predicts: a `darkbayes.outcomes.Target`, which no layer as low as this may import."""
    ignored: dict[str, str] = dataclasses.field(default_factory=dict)
    """Columns that are not read, and why."""
    reach: float | None = None
    """Standard deviations beyond the range that was seen into which numbers are bent; None for no bend, as in files
    that were written before there was one."""
    sources: tuple[Any, ...] = ()
    """What reads columns of a file that are not read as they are: `Dates`, `Marked` or `TextColumn`, each with the
    `name` of the file's column and the `columns` that it makes. It may be one of the target's."""
    missing: tuple[str, ...] | None = None
    """The texts that say that a value is missing (`cells.gaps`), if somebody named them."""

    @property
    def numbers(self) -> tuple[Number, ...]:
        return tuple(column for column in self.columns if isinstance(column, Number))

    @property
    def categories(self) -> tuple[Category, ...]:
        return tuple(column for column in self.columns if isinstance(column, Category))

    @functools.cached_property
    def ends(self) -> np.ndarray:
        """The range of every number that was seen, standardised: ``[2, numbers]``."""
        ends = [[(end - column.center) / column.scale for column in self.numbers for end in (column.low, column.high)]]
        return np.clip(np.reshape(ends, (-1, 2)).T, -FARTHEST, FARTHEST)

    @property
    def wanted(self) -> dict[str, Any]:
        """The columns to read of a file, and the categories of each; None for numbers, or what else reads them."""
        makers, wanted = {made: source for source in self.sources for made in source.columns}, {}
        for column in self.columns:
            known = column.categories if isinstance(column, Category) else None
            source = makers.get(column.name)
            wanted |= {column.name: known} if source is None else {source.name: source}
        return wanted

    @property
    def wanted_target(self) -> dict[str, Any]:
        """The same of what is predicted."""
        return self.target.columns | {each.name: each for each in self.sources if each.name in self.target.columns}

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input of the network."""
        flags = sum(column.flagged for column in self.columns)
        return (len(self.numbers) + flags + sum(len(column.categories) for column in self.categories),)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Inputs of the network that belong together: a number and whether it is missing, the categories of a column.

        >>> TableSchema((Category("colour", ("blue", "red"), flagged=True),), target=None).groups
        ((0, 1, 2),)
        """
        flagged = [k for k, column in enumerate(self.numbers) if column.flagged]
        groups: list[tuple[int, ...]] = [(k, len(self.numbers) + place) for place, k in enumerate(flagged)]
        done = len(self.numbers) + len(flagged)
        for column in self.categories:
            width = len(column.categories) + column.flagged
            groups.append(tuple(range(done, done + width)))
            done += width
        return tuple(groups)

    def matrices(self, frame: Frame) -> dict[str, np.ndarray]:
        """What an exported student reads: numbers, and categories as strings, empty if missing; or one of both."""
        matrices = {}
        if self.numbers:
            matrices["numbers"] = np.stack([frame[column.name] for column in self.numbers], axis=1).astype(np.float64)
        if self.categories:
            texts = np.stack([frame[column.name] for column in self.categories], axis=1)
            matrices["categories"] = np.frompyfunc(lambda text: "" if text is None else text, 1, 1)(texts)
        return matrices

    def bent(self, scaled: Any, ends: Any = None) -> Any:
        """Standardised numbers as a network gets them: as they are inside the range that was seen, and beyond it less
        and less far out. An array, of one column with its `ends`, or a value of an ONNX graph that is being written."""
        if self.reach is None:
            return np.maximum(np.minimum(scaled, FARTHEST), -FARTHEST)
        low, high = self.ends if ends is None else ends
        return bend(scaled, low, high, self.reach)

    def encode(self, frame: Frame) -> np.ndarray:
        """The network's inputs, ``[rows, width]``, in float32."""
        encoded = np.zeros((len(next(iter(frame.values()), ())), *self.shape), np.float32)
        done = len(self.numbers)
        for place, (column, ends) in enumerate(zip(self.numbers, self.ends.T, strict=True)):
            values = np.asarray(frame[column.name], np.float64)
            # An outlier that was seen may itself lie farther out than any number is taken to be.
            missing, inside = False, column.holds(values) and bool((np.abs(ends) < FARTHEST).all())
            # What overflows is far beyond the reach, and ends there.
            with np.errstate(over="ignore"):
                scaled = (values - column.center) / column.scale
            if not inside:
                # Few rows need to be filled or bent, at a price that all would pay.
                missing = np.isnan(values)
                scaled[missing] = (column.fill - column.center) / column.scale
                beyond = np.flatnonzero((scaled < ends[0]) | (scaled > ends[1]))
                scaled[beyond] = self.bent(scaled[beyond], ends)
            encoded[:, place] = scaled
            if column.flagged:
                encoded[:, done] = missing
                done += 1
        flat, starts = encoded.reshape(-1), np.arange(len(encoded)) * encoded.shape[1]
        for column in self.categories:
            texts = Coded.from_values(frame[column.name])
            names = [*column.categories, ""] if column.flagged else list(column.categories)
            inputs = {name: place for place, name in enumerate(names, done)}
            places = np.asarray([inputs.get(name or "", -1) for name in texts.names.tolist()], np.int64)
            place = places[texts.codes]
            there = starts + place
            # One place in a long row of all is found sooner than one by row and column.
            flat[there if place.min(initial=0) >= 0 else there[place >= 0]] = 1.0
            done += len(names)
        return encoded

    def outside(self, frame: Frame) -> dict[str, np.ndarray]:
        """In a column of its own, what of each row is unlike all that was seen, in words; None where nothing is.

        >>> size = Number("size", 0.0, 1.0, 0.0, flagged=False, low=0.0, high=1.0, whole=False)
        >>> schema = TableSchema((size, Category("colour", ("blue", "red"), flagged=True)), target=None)
        >>> rows = {"size": np.asarray([0.5, 30.0, -2.0]), "colour": np.asarray(["red", "green", None], object)}
        >>> schema.outside(rows)["outside"].tolist()
        [None, "size 30 is above 1; colour 'green' is unknown", 'size -2 is below 0']
        """
        texts = np.full(len(next(iter(frame.values()), ())), None, object)
        for column in self.columns:
            values = frame[column.name]
            if isinstance(column, Category):
                values = Coded.from_values(values)
                apart = np.flatnonzero(~values.are({*column.categories, *[None] * column.flagged}))
            else:
                values = np.asarray(values, np.float64)
                if column.holds(values):
                    continue
                within = (values >= column.low) & (values <= column.high)
                apart = np.flatnonzero(~within & ~(np.isnan(values) & column.flagged))
            for row, value in zip(apart.tolist(), values[apart].tolist(), strict=True):
                reason = f"{column.name} {column.unlike(value)}"
                texts[row] = reason if texts[row] is None else f"{texts[row]}; {reason}"
        return {"outside": texts}


@dataclasses.dataclass(frozen=True)
class ImageSchema:
    """Images of one size, ``[channels, height, width]`` with values from 0 to 255, and their classes."""

    channels: int
    """1 for grey, 3 for colours."""
    height: int
    """In pixels."""
    width: int
    """In pixels."""
    center: float
    """What is subtracted from every value."""
    scale: float
    """What the rest is divided by."""
    target: Any
    """What is predicted: the classes."""
    crop: bool = False
    """Whether images of another size are scaled until they cover this one, and cut; those of older files are
    stretched."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    def matrices(self, images: np.ndarray) -> dict[str, np.ndarray]:
        return {"images": np.asarray(images, np.float32)}

    def encode(self, images: np.ndarray) -> np.ndarray:
        return ((np.asarray(images, np.float32) - np.float32(self.center)) / np.float32(self.scale)).astype(np.float32)

    def outside(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Nothing: all images have values from 0 to 255."""
        return {}


Schema = TableSchema | ImageSchema

_IS = "is"  # Where a stored part says which of them it is; no part has a field of this name.
_KINDS: dict[str, type] = {"number": Number, "category": Category, "table": TableSchema, "images": ImageSchema}


def stored_as(name: str) -> Callable[[type[Stored]], type[Stored]]:
    """Let schemas hold a dataclass, under a name of its own: what is predicted comes from elsewhere."""

    def register(kind: type[Stored]) -> type[Stored]:
        _KINDS[name] = kind
        return kind

    return register


def schema_to_dict(schema: Any) -> dict[str, Any]:
    """A schema as JSON holds it.

    Args:
        schema: a schema, or a part of one.

    Returns:
        Dicts, lists, texts and numbers.
    """
    name = next(name for name, kind in _KINDS.items() if type(schema) is kind)

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(part) for part in value]
        return schema_to_dict(value) if dataclasses.is_dataclass(value) else value

    return {_IS: name} | {field.name: plain(getattr(schema, field.name)) for field in dataclasses.fields(schema)}


def schema_from_dict(stored: dict[str, Any]) -> Any:
    """A schema from what `schema_to_dict` made of it.

    Args:
        stored: that dict.

    Returns:
        The schema, or the part of one.

    >>> column = Category("colour", ("blue", "red"), flagged=False)
    >>> schema_from_dict(schema_to_dict(column)) == column
    True
    """
    kind = _KINDS[stored[_IS]]
    names = {field.name for field in dataclasses.fields(kind)}

    def restored(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(restored, value))
        return schema_from_dict(value) if isinstance(value, dict) and value.get(_IS) in _KINDS else value

    return kind(**{name: restored(value) for name, value in stored.items() if name in names})
