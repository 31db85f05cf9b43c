"""Several numbers at once, from one network: each is modelled as a number by itself is, and scored with the others."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.outcomes.base import AUTO, Choice
from darkbayes.outcomes.graphs import COMPONENT_OUTPUTS, LAST, number_outputs
from darkbayes.outcomes.guarantee import Guarantee
from darkbayes.outcomes.number import NumbersTarget, NumberTarget
from darkbayes.tables.columns import Column
from darkbayes.tables.schema import Frame, stored_as


@stored_as("several")
@dataclasses.dataclass(frozen=True)
class SeveralTarget(NumbersTarget):
    """Several targets that are numbers.

    Args:
        parts: each of them.
        guarantee: what their intervals promise, each by itself, if they were calibrated.
    """

    parts: tuple[NumberTarget, ...]
    guarantee: Guarantee | None = None

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ", ".join(self.names)

    @property
    def numbers(self) -> tuple[NumberTarget, ...]:
        return self.parts

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    @classmethod
    def suits(cls, columns: Mapping[str, Column]) -> str | None:
        return "" if len(columns) > 1 and all(column.kind == "number" for column in columns.values()) else None

    @classmethod
    def choose(
        cls, columns: Mapping[str, Column], rows: np.ndarray, inputs: np.ndarray, source: str, transform: str = AUTO
    ) -> Choice:
        if len(columns) == 1:
            (name,) = columns
            raise InvalidInput(f"several predicts two columns or more, not {name!r}: name others as well")
        for name, column in columns.items():
            if column.kind != "number":
                held = f"{name!r} holds {column.values[0]!r}"
                raise InvalidInput(f"several targets must be numbers, but {held}: predict it by itself")
        choices = [NumberTarget.choose({name: each}, rows, inputs, source, transform) for name, each in columns.items()]
        parts: Any = tuple(choice.target for choice in choices)
        reasons = "; ".join(f"{choice.target.name}: {choice.reason}" for choice in choices)
        return Choice(cls(parts), [note for choice in choices for note in choice.notes], reasons)

    def each(self, prediction: Any, truth: np.ndarray) -> list[tuple[Any, np.ndarray]]:
        return [(prediction.output(place), truth[:, place]) for place in range(len(self.parts))]

    def joined(self, values: Frame) -> np.ndarray:
        return np.stack([values[name] for name in self.names], axis=1)

    def encode(self, values: np.ndarray) -> np.ndarray:
        return np.concatenate([part.encode(values[:, place]) for place, part in enumerate(self.parts)], axis=1)

    def write_outputs(self, graph: Any, parts: Mapping[str, Any]) -> None:
        written = [number_outputs(graph, *pair) for pair in zip(self.parts, parts["outputs"], strict=True)]
        for name in written[0]:
            lifted = [graph.add("Unsqueeze", values[name], LAST) for values in written]
            value = lifted[0] if len(lifted) == 1 else graph.add("Concat", *lifted, axis=1)
            components = [parts["components"]] * (name in COMPONENT_OUTPUTS and parts["components"] > 1)
            graph.output(name, value, [len(self.parts), *components])

    @property
    def ranges(self) -> list[dict[str, Any]]:
        return [part.ranges[0] for part in self.parts]

    def words(self) -> Any:
        from darkbayes.outcomes.words.quantity import SeveralWords

        parts = []
        for place, part in enumerate(self.parts):
            guarantee = None if self.guarantee is None else self.guarantee.output(place)
            parts.append(dataclasses.replace(part, guarantee=guarantee).words())
        return SeveralWords(parts)
