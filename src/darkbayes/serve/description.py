"""What the service says of itself: the model's inputs and target, and how to ask, in the form of OpenAPI."""

import csv
import io
from typing import Any

from darkbayes.metrics import LEVEL
from darkbayes.serve.reading import Reader
from darkbayes.shipped import Shipped
from darkbayes.tables.schema import Category, Number, Schema, TableSchema

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
    503: "The answer took too long: send fewer rows.",
}
TEXT = {"type": "string"}


def describe_model(shipped: Shipped, reader: Reader) -> dict[str, Any]:
    """The answer of ``/schema``."""
    schema, target, limits = shipped.schema, shipped.schema.target, reader.limits
    if isinstance(schema, TableSchema):
        inputs = {
            "input": "table",
            "columns": [_column(column) for column in schema.columns],
            "ignored": schema.ignored,
        }
    else:
        size = {name: getattr(schema, name) for name in ("channels", "height", "width")}
        inputs = {"input": "images", "image": size | {"mean": schema.center}}
    predicted = {"task": target.task, "views": list(target.views), "target": target.described()}
    most = {"bytes": limits.body, "rows": limits.rows, "seconds": limits.seconds}
    return {"version": shipped.version} | inputs | predicted | {"level": LEVEL, "limits": most}


def describe_predict(shipped: Shipped, reader: Reader) -> dict[str, Any]:
    """What OpenAPI is told of ``/predict`` beyond its name."""
    example = _example(shipped.schema)
    content: dict[str, Any] = {"application/json": {"schema": reader.form(), "example": {reader.items: [example]}}}
    if isinstance(shipped.schema, TableSchema):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([example, example.values()])
        about = "A header with the names of the columns, then a line per row; an empty field is a missing value."
        content["text/csv"] = {"schema": TEXT | {"description": about}, "example": text.getvalue()}
    about = "Of the intervals, where there are any; one in the body comes before it."
    level = {"name": "level", "in": "query", "required": False, "description": about, "schema": reader.level}
    return {"requestBody": {"required": True, "content": content}, "parameters": [level]}


def responses(shipped: Shipped, reader: Reader) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI is told of the answers of ``/predict``."""
    error = {"application/json": {"schema": _object({"error": TEXT, "remedy": TEXT, "where": TEXT}, 2)}}
    notes = {"type": "array", "items": TEXT, "description": "What is unlike the data that were seen."}
    rows = {"type": "array", "items": _object(shipped.schema.target.answer_form())}
    answer = {"target": TEXT, "task": TEXT, "level": reader.level, "predictions": rows, "notes": notes}
    good = {
        "description": "The predictions, in the order of the rows.",
        "content": {
            "application/json": {"schema": _object(answer)},
            "text/csv": {"schema": TEXT | {"description": "The same, if Accept asks for text/csv."}},
        },
    }
    answers: dict[int | str, dict[str, Any]] = {200: good}
    return answers | {status: {"description": reason, "content": error} for status, reason in REASONS.items()}


def _column(column: Number | Category) -> dict[str, Any]:
    """A column as ``/schema`` shows it."""
    if isinstance(column, Category):
        about: dict[str, Any] = {"kind": "category", "categories": list(column.categories)}
    else:
        about = {"kind": "number", "low": column.low, "high": column.high, "median": column.fill, "whole": column.whole}
    return {"name": column.name} | about | {"missing_seen": column.flagged}


def _example(schema: Schema) -> Any:
    """A row, or an image."""
    if isinstance(schema, TableSchema):
        return {column.name: _typical(column) for column in schema.columns}
    image: Any = [[0] * schema.width for _ in range(schema.height)]
    return image if schema.channels == 1 else [image] * schema.channels


def _typical(column: Number | Category) -> Any:
    if isinstance(column, Category):
        return column.categories[0] if column.categories else None
    return int(column.fill) if column.whole and float(column.fill).is_integer() else float(f"{column.fill:.6g}")


def _object(properties: dict[str, Any], required: int | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)[:required]}
