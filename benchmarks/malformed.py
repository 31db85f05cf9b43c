"""Requests that are wrong in some way, made from a service's own OpenAPI description.

A body that would be answered is made from the description, and then something in it is broken: a value, a key, the
text, the bytes, or what is said of them. A few of the results happen to be fine.
"""

import csv
import io
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

PATH = "/predict"
DEEP = 20_000
"""How often brackets are nested in a body that is nested too deeply."""
LONG = 20_000
"""Characters of a text that is too long."""


class Wrong(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes


def malformed(openapi: dict[str, Any], rng: random.Random) -> Wrong:
    """A request for predictions that is wrong in some way."""
    described = openapi["paths"][PATH]["post"]
    contents = described["requestBody"]["content"]
    kind = "text/csv" if "text/csv" in contents and rng.random() < 0.3 else "application/json"
    path, headers = PATH, {"content-type": kind}
    if kind == "text/csv":
        body = rng.choice(CSV_FAULTS)(contents[kind]["example"], rng).encode("utf-8", "surrogatepass")
    else:
        content = fitting(contents[kind]["schema"], rng)
        body = rng.choice(JSON_FAULTS)(content, rng).encode("utf-8", "surrogatepass")
    # Most have one fault; some have one in their bytes or their head as well.
    if rng.random() < 0.25:
        body = rng.choice(BYTE_FAULTS)(body, rng)
    if rng.random() < 0.15:
        headers = rng.choice(HEADERS)
    if rng.random() < 0.1:
        path += "?level=" + quote(str(rng.choice(STRANGE)), errors="surrogatepass")
    return Wrong(path, headers, body)


def fitting(schema: dict[str, Any], rng: random.Random) -> Any:
    """A value that a schema describes."""
    if "anyOf" in schema:
        return fitting(rng.choice(schema["anyOf"]), rng)
    kinds = schema.get("type", "null")
    kind = rng.choice(kinds) if isinstance(kinds, list) else kinds
    if kind == "object":
        needed = schema.get("required", ())
        return {
            name: fitting(part, rng)
            for name, part in schema["properties"].items()
            if name in needed or rng.random() < 0.8
        }
    if kind == "array":
        least = schema.get("minItems", 0)
        number = rng.randint(least, min(schema.get("maxItems", least + 3), least + 3))
        return [fitting(schema["items"], rng) for _ in range(number)]
    if kind == "number":
        low, high = schema.get("minimum", schema.get("exclusiveMinimum", -1e3)), schema.get("maximum", 1e3)
        return rng.uniform(low, schema.get("exclusiveMaximum", high))
    return "".join(rng.choice("abc é,\"'") for _ in range(rng.randint(0, 8))) if kind == "string" else None


class Raw(float):
    """A number that JSON writes as this text."""

    def __new__(cls, text: str) -> "Raw":
        made = super().__new__(cls, 0.0)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


STRANGE: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 1.5, 1e308, -1e308, 5e-324, 10**400, -(2**63), "", " ", "NaN", "1", "1e5", "null",
    "x" * LONG, "\ud800", "\0", "\u202e", "😀", "../../etc/passwd", "<script>", "%s%n", [], {}, [[]], [None],
    {"": None}, {"rows": []}, [1, "a", None, {}], "nan", "inf", "-inf", Raw("NaN"), Raw("Infinity"), Raw("-Infinity"),
    Raw("1e999"), Raw("-1e999"), Raw("1" * 5000), Raw("01"), Raw("0x10"), Raw("1_000"),
)  # fmt: skip
"""Values that stand where others should."""


def _written(value: Any) -> str:
    """JSON, with literals as they are."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_written(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value, ensure_ascii=not isinstance(value, str) or "\ud800" in value)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, part in inside for place in _places(part, (*path, name)))]


def _broken(content: Any, rng: random.Random) -> str:
    """Some value is another."""
    places = _places(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.choice(places)
        strange = rng.choice(STRANGE)
        if not place:
            return _written(strange)
        holder = content
        for name in place[:-1]:
            holder = holder[name] if isinstance(holder, dict | list) and _has(holder, name) else {}
        if isinstance(holder, dict | list) and _has(holder, place[-1]):
            holder[place[-1]] = strange
    return _written(content)


def _has(holder: Any, name: Any) -> bool:
    return name in holder if isinstance(holder, dict) else isinstance(name, int) and name < len(holder)


def _renamed(content: Any, rng: random.Random) -> str:
    """Some key is another, or there is one more."""
    holders = [content]
    for value in content.values():
        holders += [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
    holder = rng.choice(holders)
    if holder and rng.random() < 0.5:
        value = holder.pop(rng.choice(list(holder)))
    else:
        value = rng.choice(STRANGE)
    holder[rng.choice(("", "rows", "Level", "\ud800", "\0", "a" * LONG, "__proto__", "é"))] = value
    return _written(content)


def _deep(content: Any, rng: random.Random) -> str:
    opened = rng.choice(("[", '{"rows":', '{"rows":[', "[[1],"))
    return opened * rng.choice((100, 1000, DEEP)) + rng.choice(("", "1"))


def _many(content: Any, rng: random.Random) -> str:
    name = next(iter(content))
    item = _written(content[name][0]) if content[name] else "{}"
    number = 20_001 if len(item) < 200 else 200
    return f'{{"{name}":[{",".join([item] * number)}]}}'


def _bare(content: Any, rng: random.Random) -> str:
    return rng.choice(("", "null", "[]", "{}", "0", '"rows"', "{", "}", "rows=1", "\ufeff{}", "undefined", "True"))


JSON_FAULTS: tuple[Callable[[Any, random.Random], str], ...] = (*[_broken] * 8, *[_renamed] * 3, _deep, _many, _bare)


def _csv_cells(example: str, rng: random.Random) -> str:
    """Some cells or names are others."""
    lines = list(csv.reader(io.StringIO(example)))
    lines += [list(lines[-1]) for _ in range(rng.randint(0, 3))]
    for _ in range(rng.randint(1, 4)):
        line = rng.choice(lines)
        value = rng.choice(STRANGE)
        line[rng.randrange(len(line))] = value if isinstance(value, str) else _written(value)
    text = io.StringIO()
    csv.writer(text, delimiter=rng.choice(",,,;\t|")).writerows(lines)
    return text.getvalue()


def _csv_ragged(example: str, rng: random.Random) -> str:
    lines = example.splitlines()
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(("1", ",,,,,,", '"', '"a""b', "\0", '"\n', "a,b\rc")))
    return "\n".join(lines)


def _csv_header(example: str, rng: random.Random) -> str:
    header = example.splitlines()[0]
    return rng.choice((header, header + "\n", "", "\n", f"{header},{header}\n1\n", header + "\n" + "1\n" * 20_001))


CSV_FAULTS = (_csv_cells, _csv_cells, _csv_ragged, _csv_header)


def _cut(body: bytes, rng: random.Random) -> bytes:
    return body[: rng.randint(0, len(body))]


def _flipped(body: bytes, rng: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randint(1, 8) if changed else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _inserted(body: bytes, rng: random.Random) -> bytes:
    place = rng.randint(0, len(body))
    return body[:place] + rng.choice((b"\xff", b"\xc3\x28", b"\x00", b"\xed\xa0\x80", b"\xfe\xff\x00{")) + body[place:]


def _random(body: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(0, 200))


BYTE_FAULTS = (_cut, _flipped, _inserted, _random)
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"content-type": ""},
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "multipart/form-data; boundary=x"},
    {"content-type": "application/json; charset=utf-16"},
    {"content-type": ";;;=\"'"},
    {"content-type": "application/json", "content-encoding": "gzip"},
    {"content-type": "application/json", "accept": "text/csv;q=x"},
    {"content-type": "text/csv", "accept": "text/csv"},
    {"content-type": "text/csv"},
    {"content-type": "application/json"},
)
