"""From a file or a folder to arrays: which rows train, which are held out, and what a network makes of them."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from darkbayes.data import as_data
from darkbayes.errors import InvalidInput
from darkbayes.export import Backbone
from darkbayes.outcomes import OUTCOMES, ClassTarget, Target
from darkbayes.outcomes.base import AUTO, Choice
from darkbayes.tables.columns import Column, Table, frame_of, require_columns, target_of
from darkbayes.tables.images import ImageFolder, infer_image_schema
from darkbayes.tables.inference import infer_inputs, rows_with_target
from darkbayes.tables.schema import Frame, Schema, TableSchema
from darkbayes.types import Data, WeightedData

MOST_HELD_OUT = 10_000
"""Rows that are held out at most: more would not make scores more certain, and teach more where they are."""
LEAST_TRAINED = 5
"""Rows that must be left to learn from."""
LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e9
"""What the heaviest row counts for at least, and any at most: single precision would lose the prior, or other rows."""


class Prepared(NamedTuple):
    """What a fit needs of a source, and what a report shows of it."""

    schema: Schema
    """What the columns or images are."""
    train: Data
    """The encoded rows to learn from."""
    held_out: Data | None
    """The encoded rows to score on, if there are any."""
    truth: np.ndarray
    """What predictions of the rows held out are scored by."""
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
    backbone: Backbone | None = None
    """What makes features of images, if those are learned from."""
    features: TableSchema | None = None
    """How they are standardised, one column for each."""
    rows: Any = None
    """All rows that train, if `train` is a sample of them (`streamed.StreamedRows`)."""


def hold_out(rows: int, share: float, seed: int, strata: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows to train on and of a share to hold out, at random, both in order.

    Where `strata` say what each row is, both parts have some of each, in proportion. Any row is as likely to be held
    out as another, the only one of its kind among them: a guarantee rests on that.

    >>> labels = np.array(["a", "b"] * 10)
    >>> train, held = hold_out(20, 0.2, seed=0, strata=labels)
    >>> len(train), sorted(labels[held].tolist())
    (16, ['a', 'a', 'b', 'b'])
    """
    if not 0.0 <= share < 1.0:
        raise InvalidInput(f"held_out must be a share from 0 to below 1, not {share!r}")
    number, rng = min(round(share * rows), MOST_HELD_OUT), np.random.default_rng(seed)
    order = rng.permutation(rows)
    if strata is not None:
        # By class and otherwise at random; evenly spaced places in this order are of all classes in proportion.
        _, class_of = np.unique(np.asarray(strata, str), return_inverse=True)
        order = order[np.argsort(class_of[order], kind="stable")]
        order = order[((np.arange(number) + rng.random()) * rows / max(number, 1)).astype(np.int64)]
    held = np.sort(order[:number])
    train = np.setdiff1d(np.arange(rows), held)
    if len(train) < LEAST_TRAINED:
        left = f"leaves {len(train)} of {rows} rows to learn from"
        raise InvalidInput(f"held_out {share} {left}: hold out a smaller share")
    return train, held


def check_weights(name: str, values: Any, rows: int, place: Callable[[int], str] = "row {}".format) -> np.ndarray:
    """What rows count for, as numbers; what cannot be is refused under this name, and by the `place` of its row.

    >>> check_weights("sample_weight", [1, 0.5, 2], 3).tolist()
    [1.0, 0.5, 2.0]
    """
    try:
        weights = np.asarray(values, np.float64)
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"{name} must hold numbers: {problem}") from None
    if weights.shape != (rows,):
        raise InvalidInput(f"{name} has shape {weights.shape}: give one weight for each of {rows:,} rows")
    bad = np.flatnonzero(~((weights >= 0) & (weights <= MOST_WEIGHT)))
    if len(bad):
        held = "missing" if np.isnan(weights[bad[0]]) else f"{weights[bad[0]]:g}"
        raise InvalidInput(f"{name} is {held} in {place(int(bad[0]))}: a weight is a number from 0 to {MOST_WEIGHT:g}")
    if not weights.max() >= LEAST_WEIGHT:
        raise InvalidInput(f"{name} is zero, or almost, in every row: give some rows a weight of at least 1")
    return weights


def infer_schema(
    table: Table,
    targets: Sequence[str],
    kind: type[Target],
    *,
    usable: np.ndarray,
    rows: np.ndarray,
    ignore: Sequence[str] = (),
    chosen: bool = False,
    transform: str = AUTO,
) -> tuple[TableSchema, Choice, list[str]]:
    """What a network reads, what it predicts, and how it was decided, every choice in words.

    Of the `usable` rows, which have a target, those in `rows` train: statistics are of these alone. Where somebody has
    `chosen` the columns to predict from, one that counts the rows is read as well. `transform` is one of the kind's.
    """
    if transform not in (AUTO, *kind.transforms):
        known = " or ".join((AUTO, *kind.transforms))
        raise InvalidInput(f"the transform of the target of {kind.task} must be {known}, not {transform!r}")
    inputs, notes = infer_inputs(table, targets, ignore=ignore, usable=usable, rows=rows, chosen=chosen)
    columns = target_columns(table, targets, usable)
    encoded = inputs.encode(frame_of(table, inputs, rows))
    choice = kind.choose(columns, np.searchsorted(usable, rows), encoded, table.source, transform)
    return dataclasses.replace(inputs, target=choice.target), choice, [*notes, *choice.notes]


def target_columns(table: Table, targets: Sequence[str], usable: np.ndarray) -> dict[str, Column]:
    """The columns to predict, of the rows that have a target."""
    columns = {name: table.columns[name] for name in targets}
    return {name: dataclasses.replace(column, values=column.values[usable]) for name, column in columns.items()}


def prepare_table(
    table: Table,
    targets: Sequence[str],
    *,
    task: str = AUTO,
    likelihood: str | None = None,
    head: str | None = None,
    transform: str = AUTO,
    ignore: Sequence[str] = (),
    held_out: float = 0.2,
    seed: int = 0,
    split: tuple[np.ndarray, np.ndarray] | None = None,
    weights: str | None = None,
    balanced: bool = False,
) -> Prepared:
    """Decide what the columns are by the rows that train.

    Args:
        table: the table.
        targets: the columns to predict.
        task: one of `OUTCOMES.tasks`.
        likelihood, head: what the outcome must have.
        transform: what of a number is modelled: "none" for the number itself, "log" for its logarithm.
        ignore: columns to leave out.
        held_out: the share of the rows to hold out.
        seed: where the split comes from.
        split: the rows to train on and to hold out, in place of a split at random.
        weights: the column that says what each row counts for in training; rows of weight zero are left out.
        balanced: whether all classes are to count alike.

    Returns:
        What a fit needs.
    """
    usable, notes = rows_with_target(table, targets), []
    dropped, counts = table.rows - len(usable), np.ones(table.rows)
    if weights is not None:
        counts, ignore = _weights(table, weights, targets, usable), [*ignore, weights]
        rows, usable = len(usable), usable[counts[usable] > 0]
        notes.append(f"rows count for what {weights!r} says in training; scores count each row held out alike")
        notes += [f"rows of weight zero are left out: {rows - len(usable)}"] * (rows > len(usable))
    columns = target_columns(table, targets, usable)
    kind = OUTCOMES.kind(columns, task, notes, likelihood)
    kind.check_kinds(likelihood, head)
    if split is None:
        parts = hold_out(len(usable), held_out, seed, kind.strata(columns))
        train, held = (usable[rows] for rows in parts)
    else:
        train, held = split
    schema, choice, more = infer_schema(
        table, targets, kind, usable=usable, rows=train, ignore=ignore, transform=transform
    )
    target = choice.target
    if dropped:
        notes = [f"rows without {target.name!r} are left out: {dropped}", *notes]
    frames = [frame_of(table, schema, rows) for rows in (train, held)]
    values = [target_of(table, schema, rows) for rows in (train, held)]
    encoded = [(schema.encode(frame), target.encode(y)) for frame, y in zip(frames, values, strict=True)]
    data: list[Any] = [as_data(*both) if len(both[1]) else None for both in encoded]
    if balanced:
        counts[train] *= _balanced(values[0], targets, kind)
        world = "probabilities are those of a world in which they are as frequent"
        notes.append(f"classes count alike in training: {world}")
    learned_from: Any = data[0]
    if weights is not None or balanced:
        learned_from = WeightedData(learned_from.x, learned_from.y, jax.device_put(counts[train].astype(np.float32)))
    facts: dict[str, Any] = {"rows": table.rows, "trained": len(train), "held_out": len(held), "dropped": dropped}
    if choice.reason:
        facts["transform"] = choice.reason
    places = [table.place(row) for row in held.tolist()]
    truth = target.truth(values[1])
    return Prepared(schema, learned_from, data[1], truth, frames[0], frames[1], places, [*notes, *more], facts)


def _weights(table: Table, name: str, targets: Sequence[str], usable: np.ndarray) -> np.ndarray:
    """What each row counts for, by a column; those that have no target need no weight."""
    require_columns([name], list(table.columns), table.source)
    if name in targets or table.columns[name].kind != "number":
        why = "is the target" if name in targets else "does not hold numbers"
        raise InvalidInput(f"{name!r} {why}: name a column of weights, numbers of 0 or more")
    counts = np.zeros(table.rows)
    place = lambda row: table.place(int(usable[row]))  # noqa: E731
    counts[usable] = check_weights(f"{table.source}: {name!r}", table.columns[name].values[usable], len(usable), place)
    return counts


def _balanced(values: np.ndarray, targets: Sequence[str], kind: type[Target]) -> np.ndarray:
    """What each row counts for where all classes count alike, and rows for one on average."""
    strata = kind.strata(dict.fromkeys(targets, Column("text", values)))
    if strata is None:
        raise InvalidInput(f"class weights need classes, but {', '.join(targets)!r} has none ({kind.task})")
    _, codes, numbers = np.unique(np.asarray(strata, str), return_inverse=True, return_counts=True)
    return len(codes) / (len(numbers) * numbers[codes])


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
    """Split images by class, and standardise them by those that train.

    Args:
        folder: the images.
        root: the folder to which their names in the report are relative.
        held_out: the share of them to hold out.
        seed: where the split comes from.

    Returns:
        What `fit_folder` takes.
    """
    train, held = hold_out(len(folder.labels), held_out, seed, folder.labels)
    target = ClassTarget.of_folders(folder.classes, folder.numbered)
    schema = infer_image_schema(folder, target, train)
    data = [
        as_data(schema.encode(folder.images[rows]), target.encode(folder.labels[rows])) if len(rows) else None
        for rows in (train, held)
    ]
    assert data[0] is not None
    facts = {"rows": len(folder.labels), "trained": len(train), "held_out": len(held), "dropped": 0}
    places = [folder.paths[row].relative_to(root).as_posix() for row in held.tolist()]
    truth = target.truth(folder.labels[held])
    return Prepared(schema, data[0], data[1], truth, None, folder.images[held], places, folder.notes, facts)
