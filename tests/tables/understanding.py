"""What is made of a table, in one step."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from darkbayes.outcomes import OUTCOMES
from darkbayes.tables import frame_of
from darkbayes.tables.columns import Table
from darkbayes.tables.inference import infer_inputs, rows_with_target


class Understood(NamedTuple):
    schema: Any
    notes: list[str]
    usable: np.ndarray


def infer_schema(table: Table, target: str, *, task="auto", ignore=(), rows=None) -> Understood:
    """What a network reads and predicts of a table; all rows train unless `rows` says which."""
    usable, notes = rows_with_target(table, [target]), []
    columns = {target: dataclasses.replace(table.columns[target], values=table.columns[target].values[usable])}
    kind = OUTCOMES.kind(columns, task, notes)
    train = usable if rows is None else rows
    schema, more = infer_inputs(table, [target], ignore=ignore, usable=usable, rows=train)
    inputs = schema.encode(frame_of(table, schema, train))
    choice = kind.choose(columns, np.searchsorted(usable, train), inputs, table.source)
    return Understood(dataclasses.replace(schema, target=choice.target), [*notes, *more, *choice.notes], usable)


def rows(cells, count=30):
    """A table with a header and `count` rows, made by a function of the row's number."""
    return "a,b,y\n" + "".join(",".join(str(cell) for cell in cells(k)) + "\n" for k in range(count))


def kinds(table):
    return {name: column.kind for name, column in table.columns.items()}
