"""Tables that do not fit memory: what is chosen on a sample of their rows, and how all of them reach the chains.

What the columns are, the network, where chains begin and how they are tuned, the plug-in network and the trees are of a
sample; the rows held out are some of it. Scales and ranges are of all rows that train, and so is what the chains learn.
"""

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from darkbayes.data import as_data
from darkbayes.errors import InvalidInput, RunError
from darkbayes.files import lock_folder
from darkbayes.fit.prepare import Prepared, prepare_table
from darkbayes.tables.cells import arrow
from darkbayes.tables.decoding import name_of, read_content
from darkbayes.tables.formats import kind_of
from darkbayes.tables.guessing import Wishes
from darkbayes.tables.opening import parts_in
from darkbayes.tables.store import Packing, Sample, draw_sample, keep_sample, kept_sample, made_once, write_store
from darkbayes.tables.streaming import read_batches
from darkbayes.teacher.streaming import REUSE, Feed
from darkbayes.types import Data

STORE = "rows"
"""The folder of the store, in that of the run."""
LOADED, PACKED = {"csv": 6.0, "parquet": 10.0}, 5.0
"""Bytes of memory that a fit takes for each byte of a table, as text or unpacked, if all of it is read; and by how much
text is usually compressed where it is."""
MEMORY = 0.5
"""The share of the machine's memory that a table may take unless somebody says otherwise."""
MOST_SAMPLED, SAMPLE_SHARE = 100_000, 0.1
"""Rows of the sample at most, and the share of the memory that they may take."""
MOST_HELD_OUT = 5_000
"""Rows that are held out at most: what hundreds of draws say of them takes memory."""
MOST_POOLED, POOL_SHARE, LEAST_POOL = 2**17, 1 / 32, 2**24
"""The same of a pool, and the bytes that it may take in any case: one that is small would be gone within the steps from
one kept draw to the next."""


class StreamedRows(NamedTuple):
    """All rows that train, for chains that see a pool of them at a time."""

    packing: Packing
    store: Any
    schema: Any
    pool: int
    seed: int

    @property
    def number(self) -> int:
        return self.store.rows

    def feed(self, columns: int, batch: int) -> Feed:
        """Pools of so many columns, those after the last of zeros, for batches of so many rows."""

        def load(start: int, stop: int) -> Data:
            frame, y = self.packing.unpack(self.store.read(start, stop))
            x = np.zeros((stop - start, columns), np.float32)
            x[:, : self.schema.shape[0]] = self.schema.encode(frame)
            return Data(x, y)  # pyright: ignore[reportArgumentType]

        return Feed(load, self.number, self.pool, max(1, round(REUSE * self.pool / batch)), self.seed)


def machine_memory() -> int:
    """Bytes of memory that this process may have: the machine's, or its container's if that is less."""
    whole, limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return min(whole, int(text)) if text.isdigit() else whole


def loaded_size(sources: Sequence[Path]) -> float:
    """About how many bytes a fit to a table in memory takes; 0 for files that cannot be read by parts."""
    size = 0.0
    for path in [file for source in sources for file in parts_in(source) or [source]]:
        kind = kind_of(path)
        if kind == "csv":
            with path.open("rb") as file:
                first = file.read(3)
            size += LOADED[kind] * path.stat().st_size * (1.0 if read_content(path, 3) == first else PACKED)
        elif kind == "parquet":
            try:
                about = arrow().parquet.read_metadata(path)
            except arrow().ArrowException:
                continue  # Whoever reads the rows says what is wrong with it.
            packed = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
            # Of its columns, eight to a cell at least.
            size += LOADED[kind] * max(packed, 8 * about.num_rows * about.num_columns)
        else:
            return 0.0
    return size


def prepare_streamed(
    sources: Sequence[Path],
    targets: Sequence[str],
    out: Path,
    *,
    memory: float,
    sha256: str,
    wishes: Wishes,
    layout: Any,
    head: str | None = None,
    **how: Any,
) -> Prepared:
    """Decide what the columns are by a sample, and write all rows that train to a store, unless it is there.

    Rows may take so many bytes of `memory`; `sha256` tells the files from others, `wishes` and `layout` say what is not
    to be guessed; `head`, which no row depends on, and `how` are what `prepare_table` takes, without weights. What is
    returned has `Prepared.rows`.
    """
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    lock = lock_folder(out)  # As long as this function runs; then the run has it.
    seed, name = how["seed"], ", ".join(Path(name_of(path)).name for path in sources)
    asked: Any = {
        key: value if isinstance(value, str | int | float) else list(value or ()) for key, value in how.items()
    }
    made_of = {f"the sha256 of {name}": sha256, "target": list(targets), **asked, "wishes": repr(wishes)}

    def prepared_by(sample: Sample) -> tuple[Prepared, Packing]:
        table = sample.table(wishes)
        share = min(how["held_out"], MOST_HELD_OUT / table.rows)
        prepared = prepare_table(table, targets, head=head, **how | {"held_out": share})
        schema: Any = prepared.schema
        return prepared, Packing(schema, np.asarray(prepared.train.y))

    def make(folder: Path) -> None:
        sample = draw_sample(list(sources), MOST_SAMPLED, seed, SAMPLE_SHARE * memory, **layout)
        prepared, packing = prepared_by(sample)
        needed, free = 8 * packing.width * sample.rows, shutil.disk_usage(folder).free
        if needed > free:
            remedy = "free some space, or choose a folder on another disk"
            short = f"{needed / 1e9:.1f} GB, and the disk has {free / 1e9:.1f} GB left"
            raise RunError(f"{folder.parent} needs {short} for the rows of {name}: {remedy}")
        try:
            batches = read_batches(list(sources), packing.schema, target=True, **layout)
            noted = {"sample": keep_sample(folder, sample), "made_of": made_of}
            held = np.asarray([int(place.rpartition(" ")[2]) for place in prepared.places])
            write_store(folder, packing, batches, held, sample.rows, seed, memory=memory, **noted)
        except InvalidInput as problem:
            sampled = len(prepared.places) + len(prepared.train.x)
            sought = f"the classes come from {sampled:,} rows drawn at random"
            lacking = f" ({sought}: remove or relabel rows of any other class)"
            text = str(problem).replace(", or have such rows left out", "")
            raise InvalidInput(text + lacking * (sampled < sample.rows)) from None

    try:
        store = made_once(out / STORE, made_of, make)
    except BaseException:
        with contextlib.suppress(OSError):
            if new:
                out.rmdir()  # Unless something is in it.
        raise
    prepared, packing = prepared_by(kept_sample(store))
    del lock
    schema, seen = packing.exact(store.totals), store.facts["sample"]["rows"]
    width = schema.shape[0]
    memory = store.facts["memory"]  # That of the run's beginning.
    pool = int(np.clip(max(POOL_SHARE * memory, LEAST_POOL) / (4 * width), 1000, MOST_POOLED))
    rows = StreamedRows(packing, store, schema, min(pool, store.rows), seed)
    held, sampled = len(prepared.places), len(prepared.places) + len(prepared.train.x)
    notes = [
        f"the rows are streamed from {out / STORE}, as all of them would not fit in memory ({memory / 1e9:.3g} GB): "
        f"what is chosen was chosen on {sampled:,} of {seen:,}, drawn at random, and {held:,} of these are held out"
    ]
    if no_target := store.facts["no_target"]:
        notes.append(f"rows without {schema.target.name!r} are left out: {no_target:,}")
    for column, count in zip(schema.categories, store.totals.unknown.tolist(), strict=True):
        if count:
            notes.append(
                f"{column.name!r}: {count:,} cells hold categories that are not in the sample: they are unknown"
            )
    facts = prepared.facts | {"rows": seen, "trained": store.rows, "dropped": no_target, "sampled": sampled}
    train = as_data(schema.encode(prepared.train_frame or {}), prepared.train.y)
    held_out: Any = prepared.held_out
    if held_out is not None:
        held_out = as_data(schema.encode(prepared.held_out_frame), held_out.y)  # pyright: ignore[reportArgumentType]
    # What was left out of the sample is told of all rows above.
    notes += prepared.notes[bool(prepared.facts["dropped"]) :]
    return prepared._replace(schema=schema, train=train, held_out=held_out, notes=notes, facts=facts, rows=rows)
