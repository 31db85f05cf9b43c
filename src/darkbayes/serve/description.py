"""What the service says: predictions; and of itself, the model's inputs and target, and how to ask, in OpenAPI."""

import csv
import io
import json
import math
from typing import Any

import numpy as np

from darkbayes.outcomes import Prediction, Target
from darkbayes.serve.reading import Reader, level_form
from darkbayes.tables.cells import text_of
from darkbayes.tables.schema import Category, Schema, TableSchema
from darkbayes.tables.writing import no_formula

SUMMARY = (
    "Predictions of one network that was distilled from a Bayesian one, each with what it does not know: "
    "aleatoric, the noise in the target, which more data would not lower; and epistemic, the doubt of the model, "
    "which more data of this kind would."
)
REASONS = {
    408: "The body did not arrive in time.",
    413: "The body is too large, or holds too many rows.",
    415: "The body is neither JSON nor CSV.",
    422: "The body cannot be read: `where` says where, `remedy` what to do.",
    503: "The service is busy (`Retry-After` says when to send it again), or the answer took too long.",
}
TEXT = {"type": "string"}
OUTSIDE = {
    "type": ["string", "null"],
    "description": "What of the row is unlike all that was seen; null if nothing is.",
}
Columns = dict[str, np.ndarray]


def describe_model(version: str, reader: Reader) -> dict[str, Any]:
    """The answer of ``/schema``."""
    schema, target, limits = reader.schema, reader.schema.target, reader.limits
    if isinstance(schema, TableSchema):
        columns, made = [], {name: source for source in schema.sources for name in source.columns}
        for column in schema.columns:
            source = made.get(column.name)
            if source is not None and source.name != column.name:
                # Told once, by the first of the columns that are made of it.
                if column.name == source.columns[0]:
                    own = {"kind": source.kind, "example": source.example, "made": list(source.columns)}
                    columns.append({"name": source.name} | own | {"missing_seen": column.flagged})
                continue
            if isinstance(column, Category):
                own: dict[str, Any] = {"kind": "category", "categories": list(column.categories)}
            else:
                own = {"kind": "number", "low": column.low, "high": column.high}
                own |= {"median": column.fill, "whole": column.whole}
            columns.append({"name": column.name} | own | {"missing_seen": column.flagged})
        inputs = {"input": "table", "columns": columns, "ignored": schema.ignored}
    else:
        size = {name: getattr(schema, name) for name in ("channels", "height", "width")}
        inputs = {"input": "images", "image": size | {"mean": schema.center}}
    predicted = {"task": target.task, "views": list(target.views), "target": target.described()}
    most = {"bytes": limits.body, "rows": limits.rows, "seconds": limits.seconds}
    return {"version": version} | inputs | predicted | {"level": target.level, "limits": most}


def describe_predict(reader: Reader) -> dict[str, Any]:
    """What OpenAPI says of ``/predict`` beyond its name."""
    example = _example(reader.schema)
    content: dict[str, Any] = {"application/json": {"schema": reader.form(), "example": {reader.items: [example]}}}
    if isinstance(reader.schema, TableSchema):
        text = io.StringIO()
        written = example | {
            source.name: source.written(example[source.name])
            for source in reader.schema.sources
            if source.kind == "number" and source.name in example
        }
        csv.writer(text, lineterminator="\n").writerows([written, written.values()])
        about = "A header with the names of the columns, then a line per row; an empty field is a missing value."
        content["text/csv"] = {"schema": TEXT | {"description": about}, "example": text.getvalue()}
    about = "Of the intervals, where there are any; one in the body comes before it."
    form = level_form(reader.schema)
    level = {"name": "level", "in": "query", "required": False, "description": about, "schema": form}
    return {"requestBody": {"required": True, "content": content}, "parameters": [level]}


def responses(schema: Schema) -> dict[int, dict[str, Any]]:
    """What OpenAPI says of the answers of ``/predict``."""
    error = {"application/json": {"schema": _object({"error": TEXT, "remedy": TEXT, "where": TEXT}, 2)}}
    notes = {"type": "array", "items": TEXT, "description": "What is unlike the data that were seen."}
    outside = {"outside": OUTSIDE} if isinstance(schema, TableSchema) else {}
    rows = {"type": "array", "items": _object(schema.target.answer_form() | outside)}
    answer = {"target": TEXT, "task": TEXT, "level": level_form(schema), "predictions": rows, "notes": notes}
    same = {"schema": TEXT | {"description": "The same, if Accept asks for text/csv."}}
    content = {"application/json": {"schema": _object(answer)}, "text/csv": same}
    good = {"description": "The predictions, in the order of the rows.", "content": content}
    return {200: good} | {status: {"description": reason, "content": error} for status, reason in REASONS.items()}


def _example(schema: Schema) -> Any:
    """A row, or an image."""
    if not isinstance(schema, TableSchema):
        image: Any = [[0] * schema.width for _ in range(schema.height)]
        return image if schema.channels == 1 else [image] * schema.channels
    row: dict[str, Any] = {column.name: next(iter(column.categories), None) for column in schema.categories}
    for column in schema.numbers:
        whole = column.whole and float(column.fill).is_integer()
        row[column.name] = int(column.fill) if whole else float(f"{column.fill:.6g}")
    row |= {source.name: source.example for source in schema.sources if source.kind != "number"}
    return {name: row[name] for name in schema.wanted}


def _object(properties: dict[str, Any], required: int | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)[:required]}


def as_json(prediction: Prediction, target: Target, level: float, outside: Columns, notes: list[str]) -> bytes:
    """The whole answer; what no JSON number can hold is null."""
    answers = target.answer(prediction, level) | outside
    columns = {name: _plain(values, target.digits) for name, values in answers.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    answer = {"target": target.name, "task": target.task, "level": level, "predictions": rows, "notes": notes}
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()


def as_csv(prediction: Prediction, target: Target, level: float, outside: Columns) -> bytes:
    """One line per row under a header, as `darkbayes predict` writes them."""
    columns = target.table(prediction, level) | outside
    text = io.StringIO(newline="")
    rows = zip(*(_plain(values, target.digits) for values in columns.values()), strict=True)
    cells = ([text_of(value) if isinstance(value, bool) else value for value in row] for row in [columns, *rows])
    safe = ([no_formula(value) if isinstance(value, str) else value for value in row] for row in cells)
    csv.writer(text, lineterminator="\n").writerows(safe)
    return text.getvalue().encode()


def _plain(values: np.ndarray, digits: int) -> list[Any]:
    """Plain numbers without digits that mean nothing, None where one is not finite; or what else there is."""
    if values.dtype.kind != "f":
        return values.tolist()
    short = [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values.ravel().tolist()]
    return np.asarray(short, object).reshape(values.shape).tolist()
