"""Schemas as files hold them: with the version of their form and a hash of what they say, both checked when read."""

import dataclasses
import hashlib
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any, Literal

from darkbayes.errors import InvalidInput, RunError
from darkbayes.files import read_json
from darkbayes.tables.schema import ImageSchema, Schema, TableSchema, schema_from_dict, schema_to_dict

FORMAT, HASH = "format", "sha256"  # Beside the parts of a schema.
PRESENT_FORMAT = 2
"""Of schemas by this version; those of 0.1 do not say theirs and have no hash."""
MOST_SIDE = 4096  # Of an image.
ABOVE_ZERO = ("scale", "reach", "rows", "base")
ROUNDED = 1e-3  # By which a bound of zero may have been rounded.
UNIQUE = ("categories", "classes")  # Lists of which no part is there twice.
ENDLESS = "bounds"  # The one part whose numbers may be infinite: of a guarantee that holds everything.
MOST = sys.float_info.max


def schema_to_json(schema: Schema, *, sealed: bool = False) -> dict[str, Any]:
    """A schema as a JSON file holds it: its parts, their format, and their hash unless the file is `sealed` itself."""

    def full(value: Any) -> Any:
        """Without the parts that are None or empty, as they are where nobody names them."""
        if isinstance(value, list):
            return list(map(full, value))
        if not isinstance(value, dict):
            return value
        return {name: full(part) for name, part in value.items() if part not in (None, {}, [])}

    parts = {FORMAT: PRESENT_FORMAT} | full(schema_to_dict(schema))
    return parts if sealed else {HASH: _hash(parts)} | parts


def schema_from_json(stored: Any) -> Schema:
    """The schema that a JSON file holds, by `schema_to_json` or darkbayes 0.1, if it is whole and means something."""
    if not isinstance(stored, dict):
        raise InvalidInput("its schema is not an object")
    parts = {name: value for name, value in stored.items() if name != HASH}
    if HASH in stored and stored[HASH] != _hash(parts):
        raise InvalidInput("its schema is damaged or was changed: its contents do not match its checksum")
    if parts.pop(FORMAT, PRESENT_FORMAT) != PRESENT_FORMAT:
        raise InvalidInput(f"its schema has the format {_shown(stored[FORMAT])}: use a version that knows it")
    try:
        schema = schema_from_dict(parts)
    except (KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise InvalidInput(f"its schema lacks a part, or has one of an unknown kind ({problem!r})") from None
    if not isinstance(schema, TableSchema | ImageSchema) or not dataclasses.is_dataclass(schema.target):
        raise InvalidInput("its schema says nothing of a table or of images, or nothing of a target")
    _check(schema, "schema")
    if isinstance(schema, TableSchema):
        names = [column.name for column in schema.columns]
        if not names or len(set(names)) < len(names):
            raise InvalidInput("its schema has no columns, or two of one name")
    elif not all(1 <= side <= MOST_SIDE for side in schema.shape):
        raise InvalidInput(f"its schema is of images of shape {schema.shape}, which none have")
    return schema


def read_schema(path: Path) -> Schema:
    """The schema in a run's folder."""
    try:
        return schema_from_json(read_json(path))
    except InvalidInput as problem:
        raise RunError(f"{path} cannot be used ({problem}): restore it, or fit again") from None


def _hash(parts: dict[str, Any]) -> str:
    """Of what JSON says, however it is laid out."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check(part: Any, place: str) -> None:
    """Refuse a part of a schema that has something of another type than it says, or a number that cannot be."""
    kinds = typing.get_type_hints(type(part))
    for field in dataclasses.fields(part):
        value: Any = getattr(part, field.name)
        where = f"{place}.{field.name}"
        if not _fits(value, kinds[field.name], MOST if field.name != ENDLESS else 2 * MOST):
            raise InvalidInput(f"its {where} is {_shown(value)}, which it cannot be")
        if field.name == ENDLESS and not all(bound >= -ROUNDED for bound in value):
            raise InvalidInput(f"its {where} are {_shown(value)}, and no bound is below zero")
        if field.name == "high" and not part.low <= value:
            raise InvalidInput(f"its {where} is {value}, below {place}.low, {part.low}")
        if field.name in UNIQUE and not 0 < len(value) == len(set(value)):
            raise InvalidInput(f"its {where} are none, or one is there twice")
        for number, inner in enumerate(value if isinstance(value, tuple) else (value,)):
            if dataclasses.is_dataclass(inner):
                _check(inner, f"{where}[{number}]" if isinstance(value, tuple) else where)
        if field.name in ABOVE_ZERO and isinstance(value, int | float) and value <= 0:
            raise InvalidInput(f"its {where} is {value}, and no {field.name} is zero or less")


def _fits(value: Any, kind: Any, most: float) -> bool:
    """Whether a value is of a type, as annotations of stored parts name types, and no number is beyond `most`."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin is Literal:
        return value in inner
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one, most) for one in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        each = inner[:1] * len(value) if inner[-1:] == (Ellipsis,) else inner
        return len(value) == len(each) and all(_fits(*pair, most) for pair in zip(value, each, strict=True))
    if origin is dict:
        return isinstance(value, dict) and all(
            _fits(key, inner[0], most) and _fits(one, inner[1], most) for key, one in value.items()
        )
    if kind in (int, float):
        numbers = (int, float) if kind is float else (int,)
        return isinstance(value, numbers) and not isinstance(value, bool) and -most <= value <= most
    return isinstance(value, type(None) if kind is None else kind)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]}..."
