"""What a request's body holds: rows of a table as JSON or CSV, or images as JSON; and what there is to note of it."""

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from darkbayes.serve.limits import Limits, Refused
from darkbayes.tables.columns import MISSING, TRUTH, nearest
from darkbayes.tables.csvfile import sniff
from darkbayes.tables.images import image_array
from darkbayes.tables.schema import Category, Frame, ImageSchema, Number, TableSchema

SAMPLE = 2**16
"""Bytes of a CSV in which the delimiter is looked for."""
FORMATS = ("PNG", "JPEG")
"""Of image files."""
MOST_PIXELS = 2**24
"""Of one image file: a few bytes may unpack to more than a machine can hold."""
MOST_NAMED = 5
"""How many columns or categories a note or an error names."""
MOST_QUOTED = 60
"""How many characters of a value an error quotes."""


class Asked(NamedTuple):
    """What a body asks for."""

    inputs: Frame | np.ndarray
    level: float | None
    """Of the intervals; None where the body does not say."""
    notes: list[str]


def read_json(body: bytes, schema: TableSchema | ImageSchema, limits: Limits) -> Asked:
    """Rows or images, and perhaps a level."""
    content, items = _parsed(body), "rows" if isinstance(schema, TableSchema) else "images"
    form = f'send {{"{items}": [...]}}, and "level" if you like'
    if not isinstance(content, dict):
        raise Refused(422, f"the body is {_kind(content)}, not an object", form)
    for key in content:
        if key not in (items, "level"):
            raise Refused(422, f"the body has a key {_quoted(key)} that means nothing here", form, "body")
    given = content.get(items)
    if not isinstance(given, list):
        found = f"{items} is {_kind(given)}, not a list" if items in content else f"the body has no {items!r}"
        raise Refused(422, found, form, items)
    _check_count(len(given), items, limits)
    level = content.get("level")
    if level is not None:
        level = read_level(level)
    if isinstance(schema, ImageSchema):
        return Asked(_images(given, schema), level, [])
    for place, row in enumerate(given):
        if not isinstance(row, dict):
            raise Refused(422, f"a row is {_kind(row)}, not an object", "send {column: value, ...}", f"rows[{place}]")
    names = dict.fromkeys(name for row in given for name in row)
    columns = {column.name: [row.get(column.name) for row in given] for column in schema.columns}
    return _asked(schema, columns, names, level, [f"rows[{place}]" for place in range(len(given))], _json_number)


def read_csv(body: bytes, schema: TableSchema | ImageSchema, limits: Limits) -> Asked:
    """The rows of a CSV with a header."""
    if isinstance(schema, ImageSchema):
        raise Refused(415, "this model reads images, which a CSV cannot hold", "send them as JSON: see /docs")
    text = _text(body)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sniff(body[:SAMPLE]), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        rows, lines = [], []
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise Refused(
                    422,
                    f"it has {len(row)} fields where the header has {len(header)}",
                    "give each line as many fields as the header has, and quote those with a comma",
                    f"line {reader.line_num}",
                )
            rows.append(row)
            lines.append(f"line {reader.line_num}")
            if len(rows) > limits.rows:
                _check_count(len(rows), "rows", limits)
    except csv.Error as problem:
        raise Refused(422, f"the CSV cannot be read: {problem}", "mend the line", f"line {reader.line_num}") from None
    if not header:
        raise Refused(422, "the CSV is empty", "send a header and at least one line of values")
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1] if len(set(header)) < len(header) else []
    if twice:
        raise Refused(422, f"the header names {_quoted(twice[0])} more than once", "keep one of them", "line 1")
    _check_count(len(rows), "rows", limits)
    found = dict(zip(header, zip(*rows, strict=True), strict=True))
    empty = ("",) * len(rows)
    columns = {
        column.name: [None if of.strip() in MISSING else of.strip() for of in found.get(column.name, empty)]
        for column in schema.columns
    }
    return _asked(schema, columns, dict.fromkeys(header), None, lines, _csv_number)


def read_level(level: Any) -> float:
    """The level of the intervals, from JSON or from the address."""
    try:
        value = float(level) if isinstance(level, str | int | float) and not isinstance(level, bool) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if not 0.0 < value < 1.0:
        raise Refused(422, f"level is {_quoted(level)}", "give a number between 0 and 1, such as 0.9", "level")
    return value


# Bytes to values


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        error = f"the body is not UTF-8: byte {problem.start} is {body[problem.start]:#04x}"
        raise Refused(422, error, "send it as UTF-8") from None


def _parsed(body: bytes) -> Any:
    def never(name: str) -> Any:
        raise Refused(422, f"the body holds {name}, which is no JSON", "send null for a missing value")

    try:
        return json.loads(_text(body), parse_constant=never)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise Refused(422, f"the body is no JSON: {problem.msg}", "mend it, or send text/csv", where) from None
    except RecursionError:
        raise Refused(422, "the body is nested too deeply", "send a list of rows: see /docs") from None
    except ValueError:  # A whole number of thousands of digits.
        raise Refused(
            422, "the body holds a number of too many digits", "send numbers that a double can hold"
        ) from None


def _check_count(number: int, items: str, limits: Limits) -> None:
    if number > limits.rows:
        raise Refused(413, f"there are more than {limits.rows:,} {items}", "send them in several requests", items)
    if not number:
        raise Refused(422, f"there are no {items}", "send at least one", items)


# Values to a frame


def _asked(
    schema: TableSchema,
    columns: dict[str, list[Any]],
    names: Iterable[str],
    level: float | None,
    places: list[str],
    number: Callable[[Any], float],
) -> Asked:
    """What rows ask for.

    Args:
        schema: what the model reads.
        columns: the values of its columns, as they came.
        names: of all columns that came.
        level: of the intervals.
        places: where each row is, for messages.
        number: makes a number of a value, or raises ValueError.
    """
    known, given = {column.name for column in schema.columns}, set(names)
    if not known & given:
        remedy = f"name its columns: {_listed([column.name for column in schema.columns])}; null is a missing value"
        raise Refused(422, "the rows have none of the columns that the model reads", remedy)
    frame: Frame = {}
    for column in schema.columns:
        if isinstance(column, Number):
            read, remedy, kind = number, "send a number or null", np.float64
        else:
            # Truth values are read however they are spelled.
            truths = set(column.categories) <= set(TRUTH)
            read, remedy, kind = partial(_category, truths=truths), "send a text or null", object
        found = np.empty(len(places), kind)
        for place, value in enumerate(columns[column.name]):
            try:
                found[place] = read(value)
            except ValueError as problem:
                raise Refused(422, f"{column.name} is {problem}", remedy, places[place]) from None
        frame[column.name] = found
    extra = [name for name in dict.fromkeys(names) if name not in known]
    return Asked(frame, level, _notes(schema, frame, extra))


def _json_number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{_quoted(value)}, not a number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError("too large for a double")
    return found


def _csv_number(value: str | None) -> float:
    if value is None:
        return math.nan
    try:
        found = float(value) if "_" not in value else math.inf
    except ValueError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{_quoted(value)}, not a number")
    return found


def _category(value: Any, truths: bool) -> str | None:
    """A category as tables call it: whole numbers without a point, truth values in small letters."""
    if value is None:
        return None
    if isinstance(value, bool):
        return TRUTH[value]
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{_kind(value)}, not a text")
    if not _is_unicode(value):
        raise ValueError("half of a surrogate pair, which is no text")
    text = value.strip()
    if truths and text.lower() in TRUTH:
        return text.lower()
    return None if text in MISSING else text


def _images(given: list[Any], schema: ImageSchema) -> np.ndarray:
    found = np.empty((len(given), *schema.shape), np.float32)
    for place, image in enumerate(given):
        try:
            found[place] = _decoded(image, schema) if isinstance(image, str) else _nested(image, schema)
        except ValueError as problem:
            raise Refused(422, f"the image {problem}", f"send {_image_form(schema)}", f"images[{place}]") from None
    return found


def _image_form(schema: ImageSchema) -> str:
    lists = f"{schema.height} lists of {schema.width} values from 0 to 255"
    return (lists if schema.channels == 1 else f"{schema.channels} times {lists}") + ", or a PNG or JPEG in base64"


def _nested(image: Any, schema: ImageSchema) -> np.ndarray:
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
        raise ValueError("is a text, but no base64") from None
    try:
        # Other formats are read by programs that strangers should not reach.
        with PIL.Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            height, width = opened.size
    except Exception:  # Pillow raises whatever its readers stumble over.
        raise ValueError("is no PNG or JPEG") from None
    if height * width > MOST_PIXELS:
        raise ValueError(f"has {height * width:,} pixels, more than {MOST_PIXELS:,}")
    try:
        return image_array(content, schema)
    except Exception:
        raise ValueError("is a PNG or JPEG that is damaged") from None


# What there is to note


def _notes(schema: TableSchema, frame: Frame, extra: list[str]) -> list[str]:
    """Of columns that are not read or not there, and of values unlike those that were seen."""
    notes = []
    if schema.target.name in extra:
        extra.remove(schema.target.name)
        notes.append(f"{_quoted(schema.target.name)} is what is predicted: it was not read")
    if extra:
        shown = [_quoted(name) + _meant(name, schema) for name in extra[:MOST_NAMED]]
        notes.append(f"not read: {_listed([*shown, *extra[MOST_NAMED:]])}")
    for column in schema.columns:
        values, name = frame[column.name], _quoted(column.name)
        if isinstance(column, Category):
            missing = sum(value is None for value in values.tolist())
            known = {None, *column.categories}
            new = dict.fromkeys(value for value in values.tolist() if value not in known)
            if new:
                notes.append(
                    f"{name} holds categories that were not seen before, and count as none of the known: "
                    + _listed([_quoted(value) for value in new])
                )
            instead = "none of the categories"
        else:
            missing = int(np.isnan(values).sum())
            beyond = int(((values < column.low) | (values > column.high)).sum())
            if beyond:
                seen = f"{column.low:.6g} to {column.high:.6g}"
                notes.append(f"{name} lies outside of what was seen, {seen}, in {_rows(beyond)}")
            instead = f"its median, {column.fill:.6g}, was taken"
        if missing and not column.flagged:
            notes.append(f"{name} is missing in {_rows(missing)}, which it never was before: {instead}")
    return notes


def _meant(name: str, schema: TableSchema) -> str:
    close = nearest(name, [column.name for column in schema.columns]) if len(name) <= MOST_QUOTED else None
    return f" (did you mean {_quoted(close)}?)" if close else ""


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _quoted(value: Any) -> str:
    """A value for a message: short, and never a nested one in full."""
    if isinstance(value, dict | list):
        return _kind(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**MOST_QUOTED:
        return "a huge number"
    shown = json.dumps(value, ensure_ascii=not isinstance(value, str) or not _is_unicode(value))
    return shown if len(shown) <= MOST_QUOTED else shown[:MOST_QUOTED] + "..."


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
