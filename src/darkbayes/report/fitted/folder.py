"""What a fit's folder holds (`fit/folder.py`), read for the report."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.errors import RunError
from darkbayes.estimates import Estimate, estimate
from darkbayes.files import read_arrays, read_json
from darkbayes.outcomes.pictures import METHODS, AlongColumn
from darkbayes.outcomes.words.base import HeldOut, Judged, Words
from darkbayes.tables.schema import Category, Number, Schema, TableSchema
from darkbayes.tables.stored import read_schema

NEEDED = {"results": ("experiment", "rows", "provenance"), "config": ("sha256",), "fit": ("notes", "trained")}
"""The files of a run, and what none of them lacks."""


@dataclasses.dataclass(frozen=True)
class FittedRun:
    """A fit's folder."""

    results: dict[str, Any]
    config: dict[str, Any]
    facts: dict[str, Any]
    schema: Schema
    cases: str  # What the examples are called.
    held: HeldOut | None
    examples: list[dict[str, Any]]
    images: np.ndarray | None
    dependence: list[dict[str, Any]]
    excursions: list[dict[str, Any]]
    curve: list[dict[str, Any]]  # What the distillation wrote as it went.
    again: bool  # Whether as many chains followed.

    @property
    def words(self) -> Words:
        target: Any = self.schema.target
        return target.words()

    @property
    def columns(self) -> dict[str, Number | Category]:
        """The columns of a table by name; none for images."""
        return {column.name: column for column in self.schema.columns} if isinstance(self.schema, TableSchema) else {}

    @property
    def ignored(self) -> dict[str, str]:
        return self.schema.ignored if isinstance(self.schema, TableSchema) else {}

    @property
    def along(self) -> list[tuple[Words, AlongColumn]]:
        """The words of each output, with what is predicted of it along each column."""
        pairs = [(course["column"], *each) for course in self.dependence for each in self.words.courses(course)]
        return [(words, words.along(own, self.columns[name])) for name, words, own in pairs]

    @property
    def gain(self) -> Estimate:
        """What the student gains over the plug-in network in log likelihood a row."""
        (row,) = (row for row in self.results["rows"] if row["metric"] == "gain_kept")
        if "own" in row:
            return Estimate(*row["own"])
        # Runs of 0.1 kept the share alone.
        assert self.held is not None
        return estimate(self.held.methods["student"].log_likelihood - self.held.methods["sgd"].log_likelihood)

    @property
    def stopped_at(self) -> tuple[int, int] | None:
        """The step at which the time budget ended the fit, and how many were planned; None if it did not."""
        planned = self.results.get("choices", {}).get("student", [])
        if not planned or not self.curve:
            return None
        last, steps = self.curve[-1]["step"], planned[0]["steps"] * (1 + self.again)
        # What is no multiple of `thin` is not run.
        return (last, steps) if last + planned[0].get("thin", 1) <= steps else None


def read_run(folder: Path) -> FittedRun:
    """Read a finished fit."""
    import darkbayes.outcomes  # noqa: F401  (so that schemas know what can be predicted)

    results, config, facts = (read_json(folder / f"{name}.json", *needed) for name, needed in NEEDED.items())
    schema = read_schema(folder / "schema.json")
    cases = "rows" if isinstance(schema, TableSchema) else "images"
    path = folder / "held-out.safetensors"
    held = _read_held(path, schema.target, results["rows"], facts, cases) if path.exists() else None
    paths = (folder / f"{name}.json" for name in ("examples", "dependence", "excursions"))
    examples, dependence, excursions = (read_json(path) if path.exists() else [] for path in paths)
    path = folder / "examples.safetensors"
    images = read_arrays(path)["images"] if path.exists() else None
    path = folder / "student" / "metrics.jsonl"
    curve = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    path = folder / "student" / "more.json"
    again = path.exists() and read_json(path)["again"]
    return FittedRun(
        results, config, facts, schema, cases, held, examples, images, dependence, excursions, curve, again
    )


def _read_held(path: Path, target: Any, rows: list[dict[str, Any]], facts: dict[str, Any], cases: str) -> HeldOut:
    """Read what was said of the rows held out."""
    arrays, methods, prefix = read_arrays(path), {}, ""
    # These rows calibrated the guarantee, if there is one: what it makes of them would be no test.
    own_target = dataclasses.replace(target, guarantee=None)
    try:
        y = arrays["y"]
        for method in METHODS:
            prefix = f"{method}."
            own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            position = np.asarray(own.get("position", ()), np.float64)
            prediction, log_likelihood = own_target.prediction(own), np.asarray(own["log_likelihood"], np.float64)
            methods[method] = Judged(prediction, log_likelihood, position)
    except KeyError as missing:
        raise RunError(f"{path} has no '{prefix}{missing.args[0]}': fit again") from None
    scores: dict[str, dict[str, Estimate]] = {method: {} for method in METHODS}
    for row in rows:
        scores[row["method"]][row["metric"]] = Estimate(row["mean"], row.get("se"))
    y = y[:, 0] if y.ndim > 1 and y.shape[1] == 1 else y
    each = [{metric: Estimate(*score) for metric, score in one.items()} for one in facts.get("outputs", [])]
    return HeldOut(y, methods, scores, cases, each)
