"""The rows of a file, some at a time: predictions need no more memory for a large file than for a small one.

A file is read by blocks, in order. What a block's cells are is not guessed but known from the schema, so that arrow
reads numbers at once; a block in which a cell is no number is read again as text, and its bad rows are found.
"""

import dataclasses
import functools
import itertools
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar, Unpack

import numpy as np

from darkbayes.errors import InvalidInput, require_count
from darkbayes.tables.cells import arrow, is_number, is_text, missing_in, quoted, read_cells
from darkbayes.tables.columns import SHOWN, first_of, listed, nearest, require_columns
from darkbayes.tables.csvfile import BadRow
from darkbayes.tables.marks import Marked
from darkbayes.tables.moments import Dates
from darkbayes.tables.opening import FilePath, Layout, Part, Piece, Rows, open_rows
from darkbayes.tables.schema import Category, Coded, Frame, TableSchema

Item = TypeVar("Item")
Result = TypeVar("Result")


class Unlike:
    """Counts what is unlike the data that were seen, batch by batch.

    >>> from darkbayes.outcomes import NumberTarget
    >>> price = NumberTarget("price", "identity", 0.0, 1.0, 0.0, 1.0)
    >>> unlike = Unlike(TableSchema((Category("colour", ("blue", "red"), flagged=True),), price))
    >>> unlike.add({"colour": np.asarray(["green", "red"], object)})
    >>> unlike.notes(["colour", "price"])
    ["'colour': 1 cell holds a category that the model does not know: 'green'"]
    """

    def __init__(self, schema: TableSchema):
        self._schema = schema
        self._counts: Counter[tuple[str, str]] = Counter()
        self._examples: dict[str, dict[Any, None]] = {}

    def add(self, frame: Frame) -> None:
        for column in self._schema.columns:
            values = frame[column.name]
            if isinstance(column, Category):
                counts = Coded.from_values(values).counts()
                missing = counts.pop(None, 0)
                new = {text: count for text, count in counts.items() if text not in column.categories}
                if new:
                    self._counts["unknown", column.name] += sum(new.values())
                    examples = self._examples.setdefault(column.name, {})
                    examples.update(dict.fromkeys(list(new)[: SHOWN - len(examples)]))
            elif column.holds(values):
                continue
            else:
                missing = int(np.isnan(values).sum())
                self._counts["beyond", column.name] += int(((values < column.low) | (values > column.high)).sum())
            self._counts["missing", column.name] += 0 if column.flagged else missing

    def join(self, more: "Unlike") -> None:
        """Count what another has counted of later rows."""
        self._counts += more._counts
        for name, others in more._examples.items():
            examples = self._examples.setdefault(name, {})
            examples.update(dict.fromkeys([text for text in others if text not in examples][: SHOWN - len(examples)]))

    def notes(self, names: Sequence[str]) -> list[str]:
        """What there is to know of the rows so far, in words, and of the columns that came but not to the fit."""
        wanted, notes = list(self._schema.wanted), []
        met = {*wanted, *self._schema.ignored, *self._schema.target.columns}
        extra = [name for name in dict.fromkeys(names) if name not in met]
        if extra:
            near = [(name, nearest(name, wanted)) for name in extra[:SHOWN]]
            shown = ", ".join(quoted(name) + (f" (did you mean {close!r}?)" if close else "") for name, close in near)
            more = f" and {len(extra) - SHOWN} others" if len(extra) > SHOWN else ""
            notes.append(f"columns that the model does not know are ignored: {shown}{more}")
        for column in self._schema.columns:
            name = column.name
            if count := self._counts["unknown", name]:
                cells = "1 cell holds a category" if count == 1 else f"{count} cells hold categories"
                notes.append(f"{name!r}: {cells} that the model does not know: {listed(list(self._examples[name]))}")
            if (count := self._counts["beyond", name]) and not isinstance(column, Category):
                seen = f"{column.low:.6g} to {column.high:.6g}"
                notes.append(f"{name!r} lies outside of what was seen, {seen}, in {_rows(count)}")
            if count := self._counts["missing", name]:
                taken = "it counts as none of the categories"
                if not isinstance(column, Category):
                    taken = f"its median, {column.fill:.6g}, was taken"
                notes.append(f"{name!r} is missing in {_rows(count)}, which it never was before: {taken}")
        return notes


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


BATCH_ROWS, BATCH_CELLS = 2**16, 2**21  # Rows of a batch, or fewer for them to have no more cells than this.
MOST_WORKERS = 16  # Threads that read and predict; each has some parts in memory.
KEPT_BAD = 1000  # Bad rows of which the reason is kept; the others are counted.


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some rows of a file, in its order."""

    frame: Frame
    """What `TableSchema.matrices` and `TableSchema.encode` take."""
    target: np.ndarray | None
    """What the target's `encode` takes, if it was asked for."""
    lines: np.ndarray
    """The line of each row, or its number in a Parquet file, from 1."""

    @property
    def places(self) -> np.ndarray:
        return self.lines

    @property
    def inputs(self) -> Frame:
        return self.frame

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, rows: Any) -> "Batch":
        """Those of these indices."""
        frame = {name: values[rows] for name, values in self.frame.items()}
        return Batch(frame, None if self.target is None else self.target[rows], self.lines[rows])

    def joined(self, more: "Batch") -> "Batch":
        """These rows, and more after them."""
        frame = {name: np.concatenate([values, more.frame[name]]) for name, values in self.frame.items()}
        target = None if self.target is None or more.target is None else np.concatenate([self.target, more.target])
        return Batch(frame, target, np.concatenate([self.lines, more.lines]))


class Batches:
    """The rows of a file in batches; see `read_batches`.

    Attributes:
        unit: What the `places` of a batch count, "line" or "row"; `no_places` are those of no row.
        bad: The rows that were left out, the first `KEPT_BAD` of them; `num_bad` is the number of all.
        num_rows: How many were delivered.
        no_target: How many rows were left out because they have no target, if it was asked for.
    """

    no_places = np.empty(0, np.int64)

    def __init__(self, rows: Rows, schema: TableSchema, number: int | None, on_bad: str, target: bool):
        if on_bad not in ("refuse", "skip"):
            raise InvalidInput(f"on_bad must be 'refuse' or 'skip', not {on_bad!r}")
        self._rows, self._name, self.names, self.unit = rows, rows.name, rows.names, rows.unit
        self._schema, self._skip = schema, on_bad == "skip"
        self._target = schema.target if target else None
        self._wanted = schema.wanted | (schema.wanted_target if target else {})
        fitting = max(min(BATCH_ROWS, BATCH_CELLS // max(len(self._wanted), 1)), 1)
        self._number = fitting if number is None else require_count("rows", number)
        require_columns(list(self._wanted), self.names, self._name)
        self._require_types()
        self._reset()

    def _reset(self) -> None:
        self.bad: list[BadRow] = []
        self.num_bad = self.num_rows = self.no_target = 0
        self._read, self._share = 0, 0.0
        self._unlike = Unlike(self._schema)

    def each(self, work: Callable[[Batch], Result]) -> Iterator[Result]:
        """What is made of the rows, in their order: of some at a time, on all cores.

        Args:
            work: what makes it, on any thread; never of no row.

        Returns:
            Its results. What is known of the rows (`num_rows`, `notes`) is of those delivered so far.
        """
        self._reset()

        def read(piece: Piece) -> tuple[Good, Result | None]:
            good = self._good(piece())
            refused = good.bad and not self._skip
            return good, work(good.batch) if len(good.batch) and not refused else None

        for good, result in in_order(read, self._rows.pieces(list(self._wanted), self._number, self._wanted)):
            self._count(good)
            if result is not None:
                self.num_rows += len(good.batch)
                yield result
        self._rows.require(self.num_rows + self.num_bad + self.no_target)

    @property
    def estimate(self) -> int | None:
        """About how many rows the file will have delivered in the end, by the part of it that has been read."""
        return round(self._read / self._share) if self._share else None

    @property
    def notes(self) -> list[str]:
        """What is to be known of the rows delivered so far, in words."""
        notes = [*self._rows.notes, *self._unlike.notes(self.names)]
        if self.no_target:
            have = "rows have" if self.no_target > 1 else "row has"
            notes.append(f"{self.no_target} {have} no {self._schema.target.name!r}")
        if self.num_bad:
            left = f"{self.num_bad} bad row{'s are' if self.num_bad > 1 else ' is'} left out"
            notes.append(f"{left}: {first_of(self.bad, self.num_bad)}")
        return notes

    def __iter__(self) -> Iterator[Batch]:
        waiting, delivered = None, 0
        for batch in self.each(lambda batch: batch):
            waiting = waiting.joined(batch) if waiting else batch
            while len(waiting) >= self._number:
                self.num_rows = delivered = delivered + self._number
                yield waiting.part(slice(self._number))
                waiting = waiting.part(slice(self._number, None))
            self.num_rows = delivered + len(waiting)
        if waiting:
            yield waiting

    def _require_types(self) -> None:
        """Refuse a file whose columns are of other types, where it knows them."""
        types = arrow().types if self._rows.types else None
        for name, known in self._wanted.items():
            kind = self._rows.types.get(name)
            if kind is None or types is None:
                continue
            kind = kind.value_type if types.is_dictionary(kind) else kind
            fits = is_number(kind) or is_text(kind)
            if isinstance(known, tuple):
                fits, words = fits or types.is_boolean(kind), "categories"
            elif isinstance(known, Dates):
                fits, words = fits or (types.is_temporal(kind) and not types.is_duration(kind)), "dates"
            else:
                words = "numbers" if known is None or isinstance(known, Marked) else "text"
            if not fits:
                wanted = f"{words}, as when the model was fitted"
                raise InvalidInput(f"{name!r} of {self._name} must hold {wanted}, not {kind}")

    def _good(self, part: Part) -> "Good":
        """The good rows among these, as a frame holds them; on any thread."""
        values, strays = read_cells(part.cells, self._wanted, self._schema.missing)
        if self._target is not None:
            values |= {name: np.asarray(values[name]) for name in self._target.columns}
            strays += self._target.strays(values)
        # A row is reported once, for its first bad cell.
        reasons, lines = dict(reversed(strays)), part.lines
        bad = part.bad + [BadRow(int(lines[row]), reason, self.unit) for row, reason in reasons.items()]
        good, target, no_target = np.ones(len(lines), bool), None, 0
        good[list(reasons)] = False
        if self._target is not None:
            there = np.logical_and.reduce([~missing_in(values[name]) for name in self._target.columns])
            no_target = int((good & ~there).sum())
            good, target = good & there, self._target.joined(values)
        batch = Batch({column.name: values[column.name] for column in self._schema.columns}, target, lines)
        batch, unlike = batch if good.all() else batch.part(good), Unlike(self._schema)
        unlike.add(batch.frame)
        last = int(lines[-1]) if len(lines) else 0
        return Good(batch, sorted(bad, key=lambda row: row.line), last, no_target, unlike, part.share)

    def _count(self, good: "Good") -> None:
        """Take note of what was read, in order."""
        self._share, self._read = good.share, self._read + len(good.batch)
        self.num_bad += len(good.bad)
        self.bad += good.bad[: KEPT_BAD - len(self.bad)]
        if good.bad and not self._skip:
            problem = f"{self._name}: {first_of(good.bad)} (read up to {self.unit} {max(good.bad[-1].line, good.last)})"
            remedy = "Correct these rows, or have such rows left out"
            raise InvalidInput(f"{problem}. {remedy}", option="on-bad", value="skip")
        self.no_target += good.no_target
        self._unlike.join(good.unlike)


class Good(NamedTuple):
    """The good rows of a part, and what else is known of it."""

    batch: Batch
    bad: list[BadRow]
    last: int  # The line of its last row.
    no_target: int
    unlike: Unlike
    share: float


def in_order(work: Callable[[Item], Result], items: Iterator[Item]) -> Iterator[Result]:
    """What `work` makes of each item, in their order, on all cores; some items are read ahead of the results.

    >>> list(in_order(lambda number: 2 * number, iter(range(5))))
    [0, 2, 4, 6, 8]
    """

    def tasks() -> Iterator[Callable[[], Result]]:
        try:
            for item in items:
                yield functools.partial(work, item)
        except Exception as problem:  # Of reading; it is told after all that comes before it.
            yield functools.partial(_raise, problem)

    remaining = tasks()
    first = list(itertools.islice(remaining, 2))
    if len(first) < 2:
        yield from (task() for task in first)
        return
    workers = min(os.cpu_count() or 1, MOST_WORKERS)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for task in itertools.chain(first, remaining):
                waiting.append(pool.submit(task))
                if len(waiting) > workers + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _raise(problem: Exception) -> Any:
    raise problem


def read_batches(
    source: FilePath | bytes | Sequence[FilePath] | Any,
    schema: TableSchema,
    *,
    rows: int | None = None,
    on_bad: Literal["refuse", "skip"] = "refuse",
    target: bool = False,
    **layout: Unpack[Layout],
) -> Batches:
    r"""Read a CSV or a Parquet file of any size, or the content of one, in order and in bounded memory.

    Other files (`formats`) are read as a whole, several files and a folder of Parquet files one after another, and a
    table or a record batch of arrow as it is.

    Columns that the schema does not read are passed over. What the file as a whole lacks is said at once; a row is bad
    if it has too many or too few fields, or text or infinity where a number must be. Bytes that are not UTF-8, and
    quotes that are never closed, are refused in any case: what comes after them cannot be trusted.

    Args:
        source: the file or files, the content of one, or a table or a record batch of arrow.
        schema: what is read of them.
        rows: how many each batch but the last has; by default some thousands, fewer if there are many columns.
        on_bad: whether the first bad row is refused, or all of them are skipped.
        target: whether the target is delivered too, for rows that have one; then a row with an unknown class is bad.
        layout: how a file is laid out (`opening.Layout`); detected by default.

    Returns:
        The batches, to be iterated over once.

    >>> from darkbayes.outcomes import NumberTarget
    >>> from darkbayes.tables.schema import Number
    >>> size = Number("size", 0.0, 1.0, 0.0, flagged=False, low=0.0, high=1.0, whole=False)
    >>> schema = TableSchema((size,), NumberTarget("price", "identity", 0.0, 1.0, 0.0, 1.0))
    >>> batches = read_batches(b"size,shop\n1.5,a\nbig,b\n2.5,c\n", schema, on_bad="skip")
    >>> [(batch.frame["size"].tolist(), batch.lines.tolist()) for batch in batches]
    [([1.5, 2.5], [2, 4])]
    >>> batches.notes[-1]
    "1 bad row is left out: line 3: 'size' is 'big', not a number"
    """
    return Batches(open_rows(source, **layout), schema, rows, on_bad, target)
