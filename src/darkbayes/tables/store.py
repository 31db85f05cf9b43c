"""The rows of a table that does not fit memory, on disk in a random order.

The table is read twice, by parts. The first time some rows are drawn at random (`Sample`), from which it is found out
what the columns are. The second time every row that trains is packed by that schema and thrown into one of many
buckets at random; then each bucket is shuffled in memory, and written after those before it. Every order of the rows is
as likely as any other, whatever order they came in, so that rows one after the other are a fair sample of the table.

    rows.bin        packed rows in float32: numbers as they were standardised by the sample, NaN where one is missing;
                    the place of each category; the bits of the encoded target
    sample.arrow    the cells of the sample
    store.json      what all this was made of, and the statistics of all rows that were found on the way

A store is written aside and renamed when it is whole.
"""

import contextlib
import dataclasses
import errno
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from darkbayes.errors import InvalidInput, RunError
from darkbayes.files import read_json, sync_folder, write_json
from darkbayes.tables.cells import arrow
from darkbayes.tables.columns import Table, guessed_table
from darkbayes.tables.guessing import Wishes
from darkbayes.tables.opening import FilePath, Layout, open_rows
from darkbayes.tables.schema import Coded, Frame, Number, TableSchema
from darkbayes.tables.streaming import Batch, Batches, in_order

MOST_BUCKETS, BUCKET = 256, 2**25
"""Buckets that rows are thrown into at most, each a file that is open meanwhile; and the bytes of one, unless they
would be more."""
FEWEST = 1000
"""Rows of a sample that are drawn whatever memory they take."""
ROWS, SAMPLE, MANIFEST = "rows.bin", "sample.arrow", "store.json"
LINE, UNKNOWN = "\0line", "\0unknown"  # No column, and no category, is called so.
FULL = (errno.ENOSPC, errno.EDQUOT)


class Sample(NamedTuple):
    """Some rows of a table, drawn at random and in their order."""

    cells: Any
    """A table of arrow, whose last column has their lines."""
    rows: int
    """How many there are to draw from."""
    unit: Any
    name: str
    notes: list[str]
    """As the table's `Rows` have them."""

    def table(self, wishes: Wishes) -> Table:
        """The columns as they are guessed, but where somebody says what they are."""
        *named, (_, lines) = zip(self.cells.column_names, self.cells.columns, strict=True)
        return guessed_table(dict(named), lines.to_numpy(), self.unit, self.name, wishes, self.notes)


def draw_sample(
    source: FilePath | Sequence[FilePath],
    number: int,
    seed: int = 0,
    memory: float = math.inf,
    **layout: Unpack[Layout],
) -> Sample:
    r"""Draw so many rows of a file of any size, or all if there are fewer, each as likely as any other.

    They may take so many bytes of `memory`, by the size of the first rows; `FEWEST` are drawn in any case.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "long.csv").write_text("x\n" + "\n".join(map(str, range(1000))))
    ...     sample = draw_sample(Path(folder, "long.csv"), 3)
    >>> sample.rows, sample.table(Wishes()).rows
    (1000, 3)
    """
    pa, rows, rng = arrow(), open_rows(source, **layout), np.random.default_rng(seed)
    # Those with the smallest of random numbers, of which there are never many more than it takes.
    kept, chances, limit, total = [], np.empty(0), 1.0, 0

    def cut() -> tuple[list[Any], np.ndarray, float]:
        limit = np.partition(chances, number)[number]
        return [_joined(kept, rows.name).filter(pa.array(chances < limit))], chances[chances < limit], limit

    for part in in_order(lambda piece: piece(), rows.pieces(rows.names)):
        rows.refuse(part.bad)
        chance, total = rng.random(len(part.lines)), total + len(part.lines)
        few = np.flatnonzero(chance < limit)
        cells = pa.table([*(part.cells[name] for name in rows.names), pa.array(part.lines)], [*rows.names, LINE])
        if not kept:
            number = int(min(number, max(memory * len(cells) / max(cells.nbytes, 1), FEWEST)))
        kept, chances = [*kept, cells.take(few)], np.append(chances, chance[few])
        if len(chances) > 2 * number:
            kept, chances, limit = cut()
    rows.require(total)
    kept, *_ = cut() if len(chances) > number else (kept,)
    return Sample(_joined(kept, rows.name).combine_chunks(), total, rows.unit, rows.name, list(rows.notes))


def _joined(tables: list[Any], name: str) -> Any:
    """Tables after each other, whose columns must be of types that go together."""
    pa = arrow()
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as problem:
        remedy = "write them alike, or as text"
        raise InvalidInput(f"the types of the columns differ between {name}: {problem}: {remedy}") from None


class Totals(NamedTuple):
    """Statistics of packed rows; those of several parts add up. All but `rows` have an entry for each column."""

    rows: np.ndarray
    sums: np.ndarray
    squares: np.ndarray
    """Of numbers as they are packed, where they are there."""
    low: np.ndarray
    high: np.ndarray
    """In their own unit."""
    missing: np.ndarray
    parts: np.ndarray
    """Numbers that are not whole."""
    unknown: np.ndarray
    """Cells with a category that the sample does not have, of each column of categories."""

    def plus(self, more: "Totals") -> "Totals":
        """Those of both."""
        joined = Totals(*(np.add(one, other) for one, other in zip(self, more, strict=True)))
        return joined._replace(low=np.fmin(self.low, more.low), high=np.fmax(self.high, more.high))


class Packing(NamedTuple):
    """How rows lie in a store: by the schema that the sample gave."""

    schema: TableSchema
    target: np.ndarray
    """The encoded target of some rows."""

    @property
    def width(self) -> int:
        """Numbers of a packed row."""
        return len(self.schema.columns) + self.target[:1].size

    def pack(self, batch: Batch) -> tuple[np.ndarray, Totals]:
        """Packed rows, and their statistics."""
        numbers, categories, rows = self.schema.numbers, self.schema.categories, len(batch)
        center, scale = self._scaling
        values = np.asarray([batch.frame[column.name] for column in numbers], np.float64).reshape(-1, rows)
        with np.errstate(over="ignore"):
            scaled = (values - center) / scale
            sums, squares = np.nansum(scaled, axis=1), np.nansum(scaled**2, axis=1)
        codes = np.empty((len(categories), rows), np.int64)
        for place, column in enumerate(categories):
            texts, known = (
                Coded.from_values(batch.frame[column.name]),
                {name: k for k, name in enumerate(_names(column))},
            )
            codes[place] = np.asarray([known.get(name, len(known) - 1) for name in texts.names.tolist()])[texts.codes]
        encoded = self.schema.target.encode(batch.target).astype(self.target.dtype).reshape(rows, -1)
        packed = np.concatenate([scaled.T, codes.T, encoded.view(np.float32)], axis=1, dtype=np.float32)
        low, high = np.fmin.reduce(values, axis=1, initial=np.inf), np.fmax.reduce(values, axis=1, initial=-np.inf)
        missing, parts = np.isnan(values).sum(axis=1), (values % 1 > 0).sum(axis=1)
        unknown = np.asarray([(codes[k] > len(each.categories)).sum() for k, each in enumerate(categories)], np.int64)
        return packed, Totals(np.asarray(rows), sums, squares, low, high, missing, parts, unknown)

    def unpack(self, packed: np.ndarray) -> tuple[Frame, np.ndarray]:
        """The frame and the encoded target of packed rows."""
        numbers, categories = self.schema.numbers, self.schema.categories
        center, scale = self._scaling
        values = packed[:, : len(numbers)].T * scale + center
        frame: Frame = {column.name: values[place] for place, column in enumerate(numbers)}
        for place, column in enumerate(categories, len(numbers)):
            frame[column.name] = Coded(np.asarray(_names(column), object), packed[:, place].astype(np.int64))
        bits = np.ascontiguousarray(packed[:, len(self.schema.columns) :])
        return frame, bits.view(self.target.dtype).reshape(len(packed), *self.target.shape[1:])

    def exact(self, totals: Totals) -> TableSchema:
        """The schema with the statistics of all rows in place of the sample's; medians and categories stay."""
        columns, place = [], 0
        for column in self.schema.columns:
            if isinstance(column, Number):
                there = totals.rows - totals.missing[place]
                mean = totals.sums[place] / there
                spread = np.sqrt(max(totals.squares[place] / there - mean**2, 0.0))
                scaling = {"center": column.center + column.scale * mean, "scale": column.scale * spread}
                # Of numbers whose squares are none, the sample's are as good.
                known = all(map(np.isfinite, scaling.values())) and spread > 0
                scaling = {name: float(value) for name, value in scaling.items() if known}
                ends = {"low": float(totals.low[place]), "high": float(totals.high[place])}
                flags = {"flagged": bool(totals.missing[place]), "whole": not totals.parts[place]}
                column, place = dataclasses.replace(column, **scaling, **ends, **flags), place + 1
            columns.append(column)
        return dataclasses.replace(self.schema, columns=tuple(columns))

    @property
    def _scaling(self) -> np.ndarray:
        """Center and scale of every number, ``[2, numbers, 1]``."""
        return np.asarray([(each.center, each.scale) for each in self.schema.numbers]).reshape(-1, 2, 1).swapaxes(0, 1)


def _names(column: Any) -> list[str | None]:
    """The categories of a column by their codes; then a missing one, and one that is none of them."""
    return [*column.categories, None, UNKNOWN]


class Store(NamedTuple):
    """Packed rows in a random order."""

    folder: Path
    width: int
    rows: int
    totals: Totals
    facts: dict[str, Any]
    """What else was noted when it was made."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Some rows, one after the other; beyond the last come the first again."""
        if stop > self.rows:
            return np.concatenate([self.read(start, self.rows), self.read(0, stop - self.rows)])
        size = 4 * self.width
        flat = np.fromfile(self.folder / ROWS, np.float32, (stop - start) * self.width, offset=start * size)
        return flat.reshape(-1, self.width)


def write_store(
    folder: Path, packing: Packing, batches: Batches, leave_out: np.ndarray, expected: int, seed: int, **facts: Any
) -> None:
    """Pack the rows of a file, shuffle them and write them into the part of a store that is being made.

    Rows of the lines `leave_out` are held out; about `expected` there are, or somewhat fewer; `facts` are noted.
    """
    buckets = int(np.clip(-(-expected * packing.width * 4 // BUCKET), 1, MOST_BUCKETS))
    # Not the numbers that drew the sample.
    rng, totals, digest = np.random.default_rng([seed, 1]), None, hashlib.sha256()

    def packed(batch: Batch) -> tuple[np.ndarray, Totals]:
        return packing.pack(batch.part(~np.isin(batch.lines, leave_out)))

    paths = [folder / f"bucket-{number}" for number in range(buckets)]
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(path.open("wb")) for path in paths]
        for rows, more in batches.each(packed):
            totals = more if totals is None else totals.plus(more)
            chosen = rng.integers(buckets, size=len(rows))
            order = np.argsort(chosen, kind="stable")
            ends = np.cumsum(np.bincount(chosen, minlength=buckets))
            for file, some in zip(files, np.split(rows[order], ends[:-1]), strict=True):
                file.write(some.data)
    assert totals is not None
    with (folder / ROWS).open("wb") as whole:
        for path in paths:
            rows = np.fromfile(path, np.float32).reshape(-1, packing.width)
            content = rows[rng.permutation(len(rows))].data
            whole.write(content)
            digest.update(content)
            path.unlink()
        whole.flush()
        os.fsync(whole.fileno())
    arrow().default_memory_pool().release_unused()
    about = {"rows": int(totals.rows), "width": packing.width, "no_target": batches.no_target}
    sums = {name: np.asarray(value).tolist() for name, value in totals._asdict().items()}
    write_json(folder / MANIFEST, about | {"sha256": digest.hexdigest(), "totals": sums, **facts})


def made_once(folder: Path, made_of: dict[str, Any], make: Callable[[Path], None]) -> Store:
    """A store, whole and checked, made only if an earlier call did not get to make it: by `make`, in a folder beside.

    What it is `made_of` tells it from others.
    """
    remedy = f"choose another folder, or delete {folder}"
    existed = folder.exists()
    if not existed:
        aside = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            make(aside)
            os.replace(aside, folder)
        except BaseException as problem:
            shutil.rmtree(aside, ignore_errors=True)
            if isinstance(problem, OSError) and problem.errno in FULL:
                free = shutil.disk_usage(folder.parent).free / 1e9
                why = f"the disk of {folder.parent} is full ({free:.1f} GB are left without them)"
                raise RunError(f"{why}: free some space, or choose a folder on another disk") from None
            raise
        sync_folder(folder.parent)
    about = read_json(folder / MANIFEST)
    for name, value in made_of.items():
        if (stored := about["made_of"].get(name)) != value:
            other = f"{name} was {stored}, not {value}"
            raise RunError(f"{folder} holds the rows of another table or fit: {other}: {remedy}")
    path, size = folder / ROWS, 4 * about["rows"] * about["width"]
    if not path.exists() or path.stat().st_size != size or (existed and _sha256(path) != about["sha256"]):
        raise RunError(f"{path} is not as it was written ({size:,} bytes): delete {folder} to have it made again")
    totals = Totals(*(np.asarray(about["totals"][name]) for name in Totals._fields))
    return Store(folder, about["width"], about["rows"], totals, about)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def keep_sample(folder: Path, sample: Sample) -> dict[str, Any]:
    """Write a sample beside the rows; returned is what the store has to note of it."""
    with arrow().OSFile(str(folder / SAMPLE), "wb") as file, arrow().ipc.new_file(file, sample.cells.schema) as writer:
        writer.write_table(sample.cells)
    return {name: value for name, value in sample._asdict().items() if name != "cells"}


def kept_sample(store: Store) -> Sample:
    """The sample that was kept beside the rows of a store."""
    with arrow().OSFile(str(store.folder / SAMPLE), "rb") as file:
        cells = arrow().ipc.open_file(file).read_all()
    return Sample(cells, **store.facts["sample"])
