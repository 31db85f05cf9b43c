"""Which outcome a column is, by what somebody says or by its values."""

from collections.abc import Mapping, Sequence

from darkbayes.errors import InvalidInput
from darkbayes.outcomes.base import Target
from darkbayes.tables.columns import Column

AUTO = "auto"  # The task that is found out.


class Outcomes:
    """The outcomes there are.

    Args:
        kinds: in the order in which they are tried where nobody says what a column is.
    """

    def __init__(self, kinds: Sequence[type[Target]]):
        self.kinds = tuple(kinds)

    @property
    def tasks(self) -> tuple[str, ...]:
        return (AUTO, *sorted({kind.task for kind in self.kinds}))

    def kind(
        self, columns: Mapping[str, Column], task: str, notes: list[str], likelihood: str | None = None
    ) -> type[Target]:
        """The kind of target that columns are, for one of `tasks`, with a likelihood if it must have one.

        A choice that was made is added to the notes, in words.
        """
        if task not in self.tasks:
            raise InvalidInput(f"task must be one of {', '.join(self.tasks)}, not {task!r}")
        candidates = [kind for kind in self.kinds if task in (AUTO, kind.task)]
        if likelihood is not None and task == AUTO:
            candidates = [kind for kind in candidates if likelihood in kind.likelihoods]
            if not candidates:
                known = dict.fromkeys(name for kind in self.kinds for name in kind.likelihoods)
                raise InvalidInput(f"likelihood must be one of {', '.join(known)}, not {likelihood!r}")
        reasons = {kind: reason for kind in candidates if (reason := kind.suits(columns)) is not None}
        if reasons:
            kind, reason = next(iter(reasons.items()))
            if task == AUTO and reason:
                others = " or ".join(dict.fromkeys(other.task for other in list(reasons)[1:]))
                notes.append(f"{reason} (otherwise: task {others})" if others else reason)
            return kind
        if task != AUTO or likelihood is not None:
            return candidates[0]
        name, column = next((name, column) for name, column in columns.items() if column.kind != "number")
        held = f"{name!r} holds {column.values[0]!r}"
        raise InvalidInput(f"several targets must all be numbers, but {held}: predict it by itself")
