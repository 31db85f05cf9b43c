"""What a request's body holds: rows of a table as JSON or CSV, or images as JSON; and how much of them it may hold.

A body of JSON is checked by a model of pydantic that is made from the schema, whose cells are read as those of files
are (`darkbayes.tables.cells`); a CSV is read as a file is.
"""

import base64
import functools
import io
import math
import re
from typing import Annotated, Any, NamedTuple

import numpy as np
import pydantic_core
from pydantic import BeforeValidator, ConfigDict, FailFast, Field, ValidationError, WithJsonSchema, create_model

from darkbayes.errors import InvalidInput
from darkbayes.serve.limits import Limits, Refused
from darkbayes.tables.cells import category_of, gaps, number_of, objects, quoted
from darkbayes.tables.columns import require_columns
from darkbayes.tables.csvfile import DELIMITERS
from darkbayes.tables.images import image_array
from darkbayes.tables.opening import is_parquet
from darkbayes.tables.schema import Category, Frame, ImageSchema, Schema, TableSchema
from darkbayes.tables.streaming import Unlike, read_batches

FORMATS = ("PNG", "JPEG")  # Of image files.
MOST_PIXELS = 2**24  # Of one image file: a few bytes may unpack to more than a machine can hold.
MARK = b"\xef\xbb\xbf"  # What some programs write before UTF-8.


class Asked(NamedTuple):
    """What a body asks for."""

    inputs: Frame | np.ndarray
    level: float | None  # Of the intervals; None where the body does not say.
    notes: list[str]


def level_form(schema: Schema) -> dict[str, Any]:
    """The form of a level, as JSON Schema has it."""
    about = "The probability with which an interval holds the target."
    form = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": schema.target.level}
    return form | {"description": about}


def read_level(level: Any) -> float | None:
    """The level of the intervals, from JSON or from the address; None where it is missing."""
    value = number_of(level)
    if not (math.isnan(value) or 0.0 < value < 1.0):
        raise ValueError(f"{quoted(level)}, not a number between 0 and 1")
    return None if math.isnan(value) else value


class Reader:
    """Reads the bodies of requests to one model."""

    def __init__(self, schema: Schema, limits: Limits):
        self.schema, self.limits = schema, limits
        self.items = "rows" if isinstance(schema, TableSchema) else "images"
        item = _row(schema) if isinstance(schema, TableSchema) else _image(schema)
        several = Annotated[list[item], FailFast(), Field(min_length=1, max_length=limits.rows)]
        level = Annotated[float | None, BeforeValidator(read_level), WithJsonSchema(level_form(schema))]
        fields: Any = {self.items: (several, ...), "level": (level, None)}
        self._model = create_model("Body", __config__=ConfigDict(extra="forbid"), **fields)

    def form(self) -> dict[str, Any]:
        """The form of a body of JSON, as JSON Schema has it."""
        form = self._model.model_json_schema()
        if rows := form.pop("$defs", {}).get("Row"):
            form["properties"][self.items]["items"] = rows
        return form

    def json(self, body: bytes) -> Asked:
        """Rows or images, and perhaps a level."""
        try:
            content = pydantic_core.from_json(body.removeprefix(MARK), allow_inf_nan=False)
        except ValueError as problem:
            remedy = "correct it; null is a missing value"
            raise Refused(422, f"the body is not valid JSON: {problem}", remedy) from None
        try:
            checked: Any = self._model.model_validate(content)
        except ValidationError as problem:
            raise self._refused(problem) from None
        if isinstance(self.schema, ImageSchema):
            return Asked(np.stack(checked.images), checked.level, [])
        wanted, unlike = self.schema.wanted, Unlike(self.schema)
        names = list(dict.fromkeys(name for row in content["rows"] for name in row))
        if len(names) > self.limits.columns:
            error = f"the rows name more than {self.limits.columns:,} columns"
            raise Refused(413, error, "send those that the model reads: see /schema", "rows")
        try:
            require_columns(list(wanted), names, "the body")
        except InvalidInput as problem:
            raise Refused(422, str(problem), "name every column in one row at least", "rows") from None
        cells = zip(*(row.__dict__.values() for row in checked.rows), strict=True)
        frame: Frame = {}
        for (name, known), values in zip(wanted.items(), cells, strict=True):
            if known is None or isinstance(known, tuple):
                frame[name] = np.asarray(values) if known is None else objects(values)
            else:
                frame |= known.spread(objects(values) if known.kind == "text" else np.asarray(values, np.float64))
        unlike.add(frame)
        return Asked(frame, checked.level, unlike.notes(names))

    def csv(self, body: bytes) -> Asked:
        remedy = "send a header with the names of the columns, and a line for each row: see /docs"
        if isinstance(self.schema, ImageSchema):
            raise Refused(415, "this model reads images, which a CSV cannot hold", "send them as JSON: see /docs")
        if is_parquet(body):
            raise Refused(415, "the body is Parquet", "send application/json or text/csv", "content-type")
        header = re.match(rb"\s*[^\r\n]*", body)
        if header and max(header[0].count(mark.encode()) for mark in DELIMITERS) >= self.limits.columns:
            raise Refused(413, f"the header names more than {self.limits.columns:,} columns", remedy, "line 1")
        try:
            batches = read_batches(body, self.schema, rows=self.limits.rows, on_bad="skip", encoding="utf-8")
            batch, *more = list(batches) or [None]
        except InvalidInput as problem:
            raise Refused(422, str(problem), remedy) from None
        for row in batches.bad:
            raise Refused(
                422, row.reason, "correct the line; an empty field is a missing value", f"{row.unit} {row.line}"
            )
        if more:
            raise self._too_many()
        assert batch is not None
        return Asked(batch.frame, None, batches.notes)

    def _too_many(self) -> Refused:
        error = f"there are more than {self.limits.rows:,} {self.items}"
        return Refused(413, error, "send them in several requests", self.items)

    def _refused(self, problem: ValidationError) -> Refused:
        """The first error in words."""
        error = problem.errors(include_url=False)[0]
        place, kind, remedy = error["loc"], error["type"], f'send {{"{self.items}": [...]}}, and "level" if you like'
        where = "".join(f"[{part}]" if isinstance(part, int) else str(part) for part in place[:2]) or "body"
        if kind == "too_long":
            return self._too_many()
        if kind == "value_error":
            says = error["msg"].removeprefix("Value error, ")
            if isinstance(self.schema, ImageSchema) and place[0] == self.items:
                size = f"{self.schema.height} lists of {self.schema.width} values from 0 to 255"
                times = "" if self.schema.channels == 1 else f"{self.schema.channels} times "
                return Refused(422, f"the image {says}", f"send {times}{size}, or a PNG or JPEG in base64", where)
            if place[0] == "level":
                return Refused(422, f"level is {says}", "send a share such as 0.9, or leave it out", where)
            return Refused(422, f"{place[-1]!r} is {says}", "send a value of the column's kind, or null", where)
        words = {
            "missing": f"the body has no {where!r}",
            "extra_forbidden": f"the body has a key {quoted(where)} that means nothing here",
            "too_short": f"there are no {where}",
            "list_type": f"{where} is {quoted(error['input'])}, not a list",
        }
        says = words.get(kind, f"{where} is {quoted(error['input'])}, not an object")
        return Refused(422, says, remedy, where if len(where) <= len(self.items) + 10 else "body")


def _row(schema: TableSchema) -> Any:
    """What a row of a table must be; a key that is not there is a missing value."""
    fields: dict[str, Any] = {}
    own, wanted = {column.name: column for column in schema.columns}, schema.wanted
    texts, others = gaps(schema.missing, text=True), gaps(schema.missing, text=False)
    for place, (name, known) in enumerate(wanted.items()):
        column = own.get(name)
        if isinstance(column, Category):
            kind, words, seen = str, "string", "One of " + ", ".join(column.categories)
            read, missing = functools.partial(category_of, known=column.categories, missing=texts), None
        elif column is None:
            # Dates or text, of which several columns are made.
            dates, words, seen = known.kind == "date", "string", known.about
            kind, missing = (float, math.nan) if dates else (str, None)
            read = functools.partial(known.value, missing=others if dates else texts)
        else:
            whole = "whole numbers " if column.whole else ""
            seen = f"Seen: {whole}from {column.low:.6g} to {column.high:.6g}, median {column.fill:.6g}."
            kind, words, missing = float, "number", math.nan
            read = functools.partial(number_of if known is None else known.value, missing=others)
        form = {"type": [words, "null"], "description": seen}
        cell = Annotated[kind | None, BeforeValidator(read), WithJsonSchema(form)]
        # Names of columns are no names of attributes.
        fields[f"column_{place}"] = cell, Field(missing, validation_alias=name)
    names = list(wanted)
    about = {"required": names, "description": "null is a missing value, and so is a key that only other rows have."}
    return create_model("Row", __config__=ConfigDict(json_schema_extra=about), **fields)


def _image(schema: ImageSchema) -> Any:
    value: Any = {"type": "number", "minimum": 0, "maximum": 255}
    for size in reversed(schema.shape if schema.channels > 1 else schema.shape[1:]):
        value = {"type": "array", "minItems": size, "maxItems": size, "items": value}
    order = "" if schema.channels == 1 else ", channel by channel"
    about = f"{schema.height} rows of {schema.width} values from 0 to 255{order}."
    file = {"type": "string", "contentEncoding": "base64", "description": "A PNG or JPEG; it is scaled to the size."}
    form = {"anyOf": [value | {"description": about}, file], "description": f"{about} Or a PNG or JPEG in base64."}
    return Annotated[Any, BeforeValidator(functools.partial(_image_of, schema=schema)), WithJsonSchema(form)]


def _image_of(image: Any, schema: ImageSchema) -> np.ndarray:
    """An image from nested lists, or from a file in base64."""
    if isinstance(image, str):
        return _decoded(image, schema)
    flat = [image]
    # A grey image may come without its axis of channels.
    grey = schema.channels == 1 and isinstance(image, list) and len(image) != 1
    for size in schema.shape[1:] if grey or schema.shape == (1, 1, 1) else schema.shape:
        if not all(isinstance(part, list) and len(part) == size for part in flat):
            raise ValueError("has another size")
        flat = [value for part in flat for value in part]
    if not {type(value) for value in flat} <= {int, float}:
        raise ValueError("holds something else than numbers")
    if min(flat) < 0 or max(flat) > 255:
        raise ValueError("holds a value below 0 or above 255")
    return np.asarray(flat, np.float32).reshape(schema.shape)


def _decoded(image: str, schema: ImageSchema) -> np.ndarray:
    """An image file in base64, with or without what a data URL says before it."""
    import PIL.Image

    try:
        content = base64.b64decode(image.partition(",")[2] if image.startswith("data:") else image, validate=True)
    except ValueError:
        raise ValueError("is text, but not base64") from None
    try:
        # Other formats are read by programs that strangers should not reach.
        with PIL.Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            height, width = opened.size
    except Exception:  # Pillow raises whatever its readers stumble over.
        raise ValueError("is not a PNG or JPEG") from None
    if height * width > MOST_PIXELS:
        raise ValueError(f"has {height * width:,} pixels, more than {MOST_PIXELS:,}")
    try:
        return image_array(content, schema).astype(np.float32)
    except Exception:
        raise ValueError("is a PNG or JPEG that is damaged") from None
