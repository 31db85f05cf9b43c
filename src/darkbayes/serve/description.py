"""What the service says of itself: the model's inputs and target, and how to ask, in the form of OpenAPI."""

from typing import Any

from darkbayes.serve.answers import LEVEL
from darkbayes.serve.limits import Limits
from darkbayes.shipped import Shipped
from darkbayes.tables.schema import Category, ClassTarget, ImageSchema, Number, RealTarget, TableSchema
from darkbayes.tables.writing import as_in_files

SUMMARY = (
    "Predictions of one network that was distilled from a Bayesian one, each with what it does not know: "
    "aleatoric, the noise in the target, which more data would not lower; and epistemic, the doubt of the model, "
    "which more data of this kind would."
)


def describe_model(shipped: Shipped, limits: Limits) -> dict[str, Any]:
    """The answer of ``/schema``."""
    schema, target = shipped.schema, shipped.schema.target
    about: dict[str, Any] = {"version": shipped.version, "input": "table" if _is_table(schema) else "images"}
    if isinstance(target, RealTarget):
        about["task"] = "regression"
        about["target"] = {
            "name": target.name,
            "transform": target.transform,
            "low": target.low,
            "high": target.high,
        }
    else:
        about["task"] = "classification"
        about["target"] = {"name": target.name, "classes": as_in_files(target).tolist()}
    if isinstance(schema, TableSchema):
        about["columns"] = [_column(column) for column in schema.columns]
        about["ignored"] = schema.ignored
    else:
        about["image"] = {
            "channels": schema.channels,
            "height": schema.height,
            "width": schema.width,
            "mean": schema.center,
        }
    return about | {"level": LEVEL, "limits": {"bytes": limits.body, "rows": limits.rows, "seconds": limits.seconds}}


def describe_predict(shipped: Shipped, limits: Limits) -> dict[str, Any]:
    """What OpenAPI is told of ``/predict`` beyond its name."""
    schema = shipped.schema
    json_body = {"schema": _body(schema, limits), "example": _example(schema)}
    content: dict[str, Any] = {"application/json": json_body}
    if isinstance(schema, TableSchema):
        names = [column.name for column in schema.columns]
        values = [_typical(column) for column in schema.columns]
        example = "\n".join(",".join(map(_field, line)) for line in (names, values)) + "\n"
        about = "A header with the names of the columns, then a line per row; an empty field is a missing value."
        content["text/csv"] = {"schema": {"type": "string", "description": about}, "example": example}
    parameters = [
        {
            "name": "level",
            "in": "query",
            "required": False,
            "description": "Of the intervals; one in the body comes before it.",
            "schema": _level(),
        }
    ] * isinstance(schema.target, RealTarget)
    return {"requestBody": {"required": True, "content": content}, "parameters": parameters}


def responses(shipped: Shipped) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI is told of the answers of ``/predict``."""
    error = {"application/json": {"schema": _object({"error": _text(), "remedy": _text(), "where": _text()}, 2)}}
    found: dict[int | str, dict[str, Any]] = {
        200: {
            "description": "The predictions, in the order of the rows.",
            "content": {
                "application/json": {"schema": _answer(shipped.schema.target)},
                "text/csv": {"schema": {"type": "string", "description": "The same, if Accept asks for text/csv."}},
            },
        }
    }
    reasons = {
        408: "The body did not arrive in time.",
        413: "The body is too large, or holds too many rows.",
        415: "The body is neither JSON nor CSV.",
        422: "The body cannot be read: `where` says where, `remedy` what to do.",
        503: "The answer took too long: send fewer rows.",
    }
    return found | {status: {"description": reason, "content": error} for status, reason in reasons.items()}


def _is_table(schema: TableSchema | ImageSchema) -> bool:
    return isinstance(schema, TableSchema)


def _column(column: Number | Category) -> dict[str, Any]:
    """A column as ``/schema`` shows it."""
    if isinstance(column, Category):
        about: dict[str, Any] = {"kind": "category", "categories": list(column.categories)}
    else:
        about = {"kind": "number", "low": column.low, "high": column.high, "median": column.fill, "whole": column.whole}
    return {"name": column.name} | about | {"missing_seen": column.flagged}


def _typical(column: Number | Category) -> Any:
    if isinstance(column, Category):
        return column.categories[0] if column.categories else None
    return int(column.fill) if column.whole and float(column.fill).is_integer() else float(f"{column.fill:.6g}")


def _field(value: Any) -> str:
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _example(schema: TableSchema | ImageSchema) -> dict[str, Any]:
    if isinstance(schema, TableSchema):
        return {"rows": [{column.name: _typical(column) for column in schema.columns}]}
    image: Any = [[0] * schema.width for _ in range(schema.height)]
    return {"images": [image if schema.channels == 1 else [image] * schema.channels]}


def _text() -> dict[str, Any]:
    return {"type": "string"}


def _number(description: str = "") -> dict[str, Any]:
    return {"type": ["number", "null"]} | ({"description": description} if description else {})


def _level() -> dict[str, Any]:
    about = "The probability with which an interval holds the target."
    return {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": LEVEL, "description": about}


def _object(properties: dict[str, Any], required: int | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)[:required]}


def _body(schema: TableSchema | ImageSchema, limits: Limits) -> dict[str, Any]:
    if isinstance(schema, TableSchema):
        row = {"type": "object", "properties": {column.name: _value(column) for column in schema.columns}}
        items, name = row | {"description": "A key that is not there, or null, is a missing value."}, "rows"
    else:
        items, name = _image(schema), "images"
    several = {"type": "array", "minItems": 1, "maxItems": limits.rows, "items": items}
    return _object({name: several, "level": _level()}, 1) | {"additionalProperties": False}


def _value(column: Number | Category) -> dict[str, Any]:
    if isinstance(column, Category):
        return {"type": ["string", "null"], "description": "One of " + ", ".join(column.categories), "maxLength": 1000}
    kind = "whole numbers " if column.whole else ""
    return _number(f"Seen: {kind}from {column.low:.6g} to {column.high:.6g}, median {column.fill:.6g}.")


def _image(schema: ImageSchema) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 255}
    sizes = schema.shape if schema.channels > 1 else schema.shape[1:]
    for size in reversed(sizes):
        value = {"type": "array", "minItems": size, "maxItems": size, "items": value}
    order = "" if schema.channels == 1 else ", channel by channel"
    lists = value | {"description": f"{schema.height} rows of {schema.width} values from 0 to 255{order}."}
    file = {"type": "string", "contentEncoding": "base64", "description": "A PNG or JPEG; it is scaled to the size."}
    return {"anyOf": [lists, file], "description": f"{lists['description']} Or a PNG or JPEG in base64."}


def _answer(target: RealTarget | ClassTarget) -> dict[str, Any]:
    if isinstance(target, RealTarget):
        one = {
            "mean": _number(),
            "std": _number("Of the whole: its square is the sum of the next two's squares."),
            "aleatoric_std": _number("Noise in the target."),
            "epistemic_std": _number("Doubt of the model."),
            "location": _number("Of the Gaussian that the target follows"
                                + (", by its logarithm." if target.transform == "log" else ".")),
            "spread": _number("Standard deviation of that Gaussian."),
            "interval": {"type": "array", "items": _number(), "minItems": 2, "maxItems": 2},
        }  # fmt: skip
        whole: dict[str, Any] = {"level": _level()}
    else:
        kind = {"text": "string", "integer": "integer", "boolean": "boolean"}[target.kind]
        one = {
            "prediction": {"type": kind, "description": "The most probable class."},
            "probability": _number("Of that class."),
            "entropy": _number("Of the probabilities, in nats: the whole uncertainty."),
            "expected_entropy": _number("The aleatoric part: what a model without doubt would still not know."),
            "mutual_information": _number("The epistemic part: doubt of the model."),
            "probs": {"type": "array", "items": _number(), "description": "In the order of `classes`."},
        }
        whole = {"classes": {"type": "array", "items": {"type": kind}}}
    notes = {"type": "array", "items": _text(), "description": "What is unlike the data that were seen."}
    predictions = {"type": "array", "items": _object(one)}
    return _object({"target": _text(), "task": _text()} | whole | {"predictions": predictions, "notes": notes})
