"""What rows have that the rows of the fit had not: columns, categories, values beyond the range, gaps."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from darkbayes.tables.cells import quoted
from darkbayes.tables.columns import SHOWN, listed, nearest
from darkbayes.tables.schema import Category, Frame, TableSchema


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
        self._examples: dict[str, dict[str, None]] = {}

    def add(self, frame: Frame) -> None:
        for column in self._schema.columns:
            values = frame[column.name]
            if isinstance(column, Category):
                counts = Counter(values.tolist())
                missing = counts.pop(None, 0)
                new = {text: count for text, count in counts.items() if text not in column.categories}
                if new:
                    self._counts["unknown", column.name] += sum(new.values())
                    examples = self._examples.setdefault(column.name, {})
                    examples.update(dict.fromkeys(list(new)[: SHOWN - len(examples)]))
            else:
                missing = int(np.isnan(values).sum())
                self._counts["beyond", column.name] += int(((values < column.low) | (values > column.high)).sum())
            self._counts["missing", column.name] += 0 if column.flagged else missing

    def notes(self, names: Sequence[str]) -> list[str]:
        """What there is to know of the rows so far, in words, and of the columns that came but not to the fit."""
        wanted, notes = list(self._schema.wanted), []
        met = {*wanted, *self._schema.ignored, *self._schema.target.columns}
        extra = [name for name in dict.fromkeys(names) if name not in met]
        if extra:
            near = [(name, nearest(name, wanted)) for name in extra[:SHOWN]]
            shown = ", ".join(quoted(name) + (f" (did you mean {close!r}?)" if close else "") for name, close in near)
            more = f" and {len(extra) - SHOWN} others" if len(extra) > SHOWN else ""
            notes.append(f"not there when the model was fitted, and not read: {shown}{more}")
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
