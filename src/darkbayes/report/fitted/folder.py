"""What a fit's folder holds (`fit/folder.py`), read for the report."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import RunError
from darkbayes.files import read_arrays, read_json
from darkbayes.tables import (
    ClassPredictions,
    ClassTarget,
    Predictions,
    RealPredictions,
    RealTarget,
    Schema,
    TableSchema,
    schema_from_dict,
)

METHODS = ("student", "sgld", "sgd")
"""The student, its teacher and the plug-in network."""


@dataclasses.dataclass(frozen=True)
class Told:
    """What one of them says of the rows held out."""

    predictions: Predictions
    log_likelihood: np.ndarray
    """Of the true value in each row."""
    position: np.ndarray
    """The probability of a value below the true one; empty for classes."""

    @property
    def real(self) -> RealPredictions:
        """The predictions, which are of a number."""
        assert isinstance(self.predictions, RealPredictions)
        return self.predictions

    @property
    def classes(self) -> ClassPredictions:
        """The predictions, which are of a class."""
        assert isinstance(self.predictions, ClassPredictions)
        return self.predictions

    @property
    def doubted(self) -> np.ndarray:
        """How unsure it is of each row: the standard deviation, or the entropy."""
        return self.classes.entropy if isinstance(self.predictions, ClassPredictions) else self.real.std

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Noise and doubt of each row, in a unit in which they add up: variances, or entropies."""
        if isinstance(self.predictions, ClassPredictions):
            return self.classes.expected_entropy, self.classes.mutual_information
        return self.real.aleatoric_std**2, self.real.epistemic_std**2


@dataclasses.dataclass(frozen=True)
class Held:
    """The rows held out, and what each method says of them."""

    y: np.ndarray
    told: dict[str, Told]
    columns: dict[str, np.ndarray]
    """Values of some columns; of categories their places, -1 for a missing or an unknown one."""

    @property
    def student(self) -> Told:
        return self.told["student"]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.y)


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fit's folder."""

    results: dict[str, Any]
    config: dict[str, Any]
    facts: dict[str, Any]
    schema: Schema
    held: Held | None
    examples: list[dict[str, Any]]
    images: np.ndarray | None
    dependence: list[dict[str, Any]]
    curve: list[dict[str, Any]]
    """What the distillation wrote as it went."""

    @property
    def target(self) -> RealTarget | ClassTarget:
        return self.schema.target

    @property
    def real(self) -> RealTarget | None:
        """The target, if it is a number."""
        return self.target if isinstance(self.target, RealTarget) else None

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes; none for a number."""
        return self.target.classes if isinstance(self.target, ClassTarget) else ()

    @property
    def table(self) -> TableSchema | None:
        """The schema, if it is that of a table."""
        return self.schema if isinstance(self.schema, TableSchema) else None

    @property
    def cases(self) -> str:
        """What the examples are called."""
        return "rows" if self.table else "images"

    @property
    def stopped_at(self) -> int | None:
        """The step at which the time budget ended the fit, if it did so before the planned end."""
        chosen = self.results.get("choices", {}).get("student", [])
        last = self.curve[-1]["step"] if self.curve else None
        return last if chosen and last is not None and last < chosen[0]["steps"] else None


def read_fit(folder: Path) -> Fit:
    """Read a finished fit."""
    results, config, facts = (read_json(folder / f"{name}.json") for name in ("results", "config", "fit"))
    schema = schema_from_dict(read_json(folder / "schema.json"))
    held, examples, images = None, [], None
    if (folder / "held-out.safetensors").exists():
        held = read_held(folder, schema.target)
        examples = read_json(folder / "examples.json")
    if (folder / "examples.safetensors").exists():
        images = read_arrays(folder / "examples.safetensors")["images"]
    along, curve = folder / "dependence.json", folder / "student" / "metrics.jsonl"
    return Fit(
        results,
        config,
        facts,
        schema,
        held,
        examples,
        images,
        read_json(along) if along.exists() else [],
        [json.loads(line) for line in curve.read_text(encoding="utf-8").splitlines()] if curve.exists() else [],
    )


def read_held(folder: Path, target: RealTarget | ClassTarget) -> Held:
    """Read what was said of the rows held out."""
    arrays = read_arrays(folder / "held-out.safetensors")
    kind = ClassPredictions if isinstance(target, ClassTarget) else RealPredictions
    names = [field.name for field in dataclasses.fields(kind)]
    try:
        told = {
            method: Told(
                kind(**{name: np.asarray(arrays[f"{method}.{name}"], np.float64) for name in names}),
                np.asarray(arrays[f"{method}.log_likelihood"], np.float64),
                np.asarray(arrays.get(f"{method}.position", ()), np.float64),
            )
            for method in METHODS
        }
        y = arrays["y"]
    except KeyError as missing:
        raise RunError(f"{folder / 'held-out.safetensors'} has no {missing}: fit again") from None
    columns = {name.removeprefix("column."): of for name, of in arrays.items() if name.startswith("column.")}
    return Held(y, told, columns)
