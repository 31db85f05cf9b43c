"""From a file or a folder to arrays: which rows train, which are held out, and what a network makes of them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from darkbayes.data import as_data
from darkbayes.errors import InvalidInput
from darkbayes.tables import (
    Frame,
    ImageFolder,
    Schema,
    Table,
    Task,
    frame_of,
    infer_image_schema,
    infer_schema,
    is_classes,
    rows_with_target,
    target_of,
)
from darkbayes.types import Data

MOST_HELD_OUT = 10_000
"""Rows that are held out at most: more would not make scores more certain, and teach more where they are."""
LEAST_TRAINED = 5
"""Rows that must be left to learn from."""


class Prepared(NamedTuple):
    """What a fit needs of a source, and what a report shows of it."""

    schema: Schema
    train: Data
    held_out: Data | None
    train_frame: Frame | None
    """The training rows as they were read; None for images."""
    held_out_frame: Frame | np.ndarray | None
    """The rows held out as they were read, or the images."""
    places: list[str]
    """Where each row held out comes from: "line 7", or the image's file."""
    notes: list[str]
    """Every choice, in words."""
    facts: dict[str, Any]
    """Numbers for the report."""


def hold_out(values: np.ndarray, share: float, seed: int, *, classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows to train on and of those to hold out, at random; of classes, alike of each.

    One row of each class trains in any case.

    >>> train, held = hold_out(np.array(["a", "b"] * 10), 0.2, seed=0, classes=True)
    >>> len(train), sorted(np.array(["a", "b"] * 10)[held].tolist())
    (16, ['a', 'a', 'b', 'b'])
    """
    if not 0.0 <= share < 1.0:
        raise InvalidInput(f"held_out must be a share from 0 to below 1, not {share!r}")
    number, rng = min(round(share * len(values)), MOST_HELD_OUT), np.random.default_rng(seed)
    order = rng.permutation(len(values))
    if classes:
        # By class and otherwise at random; evenly spaced places in this order are of all classes in proportion.
        _, class_of = np.unique(np.asarray(values, str), return_inverse=True)
        order = order[np.argsort(class_of[order], kind="stable")]
        _, firsts = np.unique(class_of[order], return_index=True)
        order = np.delete(order, firsts)
        number = min(number, len(order))
        order = order[((np.arange(number) + rng.random()) * len(order) / max(number, 1)).astype(np.int64)]
    held = np.sort(order[:number])
    train = np.setdiff1d(np.arange(len(values)), held)
    if len(train) < LEAST_TRAINED:
        raise InvalidInput(
            f"held_out {share} leaves {len(train)} of {len(values)} rows to learn from: hold out a smaller share"
        )
    return train, held


def prepare_table(
    table: Table,
    target: str,
    *,
    task: Task = "auto",
    ignore: Sequence[str] = (),
    held_out: float = 0.2,
    seed: int = 0,
    split: tuple[np.ndarray, np.ndarray] | None = None,
) -> Prepared:
    """Decide what the columns are by the rows that train; `split` gives the rows instead of `held_out`."""
    usable = rows_with_target(table, target)
    if split is None:
        values, classes = table.columns[target].values[usable], is_classes(table, target, task, usable, [])
        train, held = (usable[rows] for rows in hold_out(values, held_out, seed, classes=classes))
    else:
        train, held = split
    found = infer_schema(table, target, task=task, ignore=ignore, rows=train)
    schema, dropped = found.schema, table.rows - len(usable)
    notes = found.notes
    if dropped:
        notes = [f"rows without {target!r} are left out: {dropped}", *notes]
    frames = [frame_of(table, schema, rows) for rows in (train, held)]
    targets = [target_of(table, schema.target, rows) for rows in (train, held)]
    parts = [
        as_data(schema.encode(frame), schema.target.encode(y)) if len(y) else None
        for frame, y in zip(frames, targets, strict=True)
    ]
    assert parts[0] is not None
    facts: dict[str, Any] = {"rows": table.rows, "trained": len(train), "held_out": len(held), "dropped": dropped}
    if found.transform is not None:
        facts["transform"] = str(found.transform)
    places = [table.place(row) for row in held.tolist()]
    return Prepared(schema, parts[0], parts[1], frames[0], frames[1], places, notes, facts)


def fingerprint(path: Path) -> str:
    """A hash of a file, or of the names and sizes of the files in a folder."""
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            digest.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
    else:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def prepare_images(folder: ImageFolder, root: Path, *, held_out: float = 0.2, seed: int = 0) -> Prepared:
    """Split images by class, and standardise them by those that train."""
    train, held = hold_out(folder.labels, held_out, seed, classes=True)
    schema = infer_image_schema(folder, train)
    parts = [
        as_data(schema.encode(folder.images[rows]), schema.target.encode(folder.labels[rows])) if len(rows) else None
        for rows in (train, held)
    ]
    assert parts[0] is not None
    facts = {"rows": len(folder.labels), "trained": len(train), "held_out": len(held), "dropped": 0}
    places = [folder.paths[row].relative_to(root).as_posix() for row in held.tolist()]
    return Prepared(schema, parts[0], parts[1], None, folder.images[held], places, folder.notes, facts)
