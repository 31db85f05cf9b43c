"""Which outcome a column is, by what somebody says or by its values."""

from collections.abc import Mapping, Sequence

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.outcomes.base import Choice, Target
from darkbayes.tables.columns import Column

AUTO = "auto"
"""The task that is found out."""


class Outcomes:
    """The outcomes there are, in the order in which they are tried where nobody says what a column is."""

    def __init__(self, kinds: Sequence[type[Target]]):
        """All of them; of two that suit a column, the first is taken."""
        self.kinds = tuple(kinds)

    @property
    def tasks(self) -> tuple[str, ...]:
        """What may be asked for."""
        return (AUTO, *sorted(kind.task for kind in self.kinds))

    def kind(self, columns: Mapping[str, Column], task: str, notes: list[str]) -> type[Target]:
        """The outcome of columns.

        Args:
            columns: those to predict, of the rows that have a value of each.
            task: one of `tasks`.
            notes: a choice that was made is added to them, in words.

        Returns:
            The kind of target.
        """
        if task not in self.tasks:
            raise InvalidInput(f"task must be one of {', '.join(self.tasks)}, not {task!r}")
        for kind in self.kinds:
            if task == kind.task:
                return kind
            reason = kind.suits(columns) if task == AUTO else None
            if reason is not None:
                others = [other.task for other in self.kinds if other is not kind and other.suits(columns) is not None]
                notes += [f"{reason} (otherwise: task {' or '.join(others)})"] if reason else []
                return kind
        name, column = next((name, column) for name, column in columns.items() if column.kind != "number")
        raise InvalidInput(
            f"several targets must all be numbers, but {name!r} holds {column.values[0]!r}: predict it by itself"
        )

    def choose(
        self, columns: Mapping[str, Column], task: str, rows: np.ndarray, inputs: np.ndarray, source: str
    ) -> Choice:
        """The target that predicts columns; see `Target.choose` for the arguments.

        Args:
            columns: those to predict, of the rows that have a value of each.
            task: one of `tasks`.
            rows: which of these train.
            inputs: what the network reads in them.
            source: what messages call the table.

        Returns:
            The target, and what there is to know of it.
        """
        notes: list[str] = []
        choice = self.kind(columns, task, notes).choose(columns, rows, inputs, source)
        return choice._replace(notes=[*notes, *choice.notes])
