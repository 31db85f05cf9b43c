"""Files that are read as a whole: spreadsheets, JSON, Arrow's own, and databases with a query.

A reader gives columns of cells: arrays of arrow where the file knows what they hold, else of whatever Python holds.
"""

import importlib
import io
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from darkbayes.errors import InvalidInput
from darkbayes.tables.cells import arrow, objects, quoted
from darkbayes.tables.decoding import decoded, name_of, read_content, unpacked

HEAD = 512  # Bytes that tell what a file is.
SEEKING = ("parquet", "sqlite", "duckdb")  # Kinds of which parts are read here and there.


class Loaded(NamedTuple):
    """What a file holds."""

    names: list[str]
    cells: list[Any]
    notes: list[str]


def load(path: Path, kind: str, *, query: str | None, sheet: str | None, encoding: str | None) -> Loaded:
    """The columns of a file of one of `READERS`, and what was guessed, in words."""
    if query is not None and kind not in ("sqlite", "duckdb"):
        raise InvalidInput(f"{name_of(path)} is not a database: leave out the query {quoted(query)}")
    if sheet is not None and kind != "xlsx":
        raise InvalidInput(f"{name_of(path)} is not a spreadsheet: leave out the sheet {sheet!r}")
    return READERS[kind](path, {"xlsx": sheet, "json": encoding}.get(kind, query))


def kind_of(path: Path) -> str:
    """What a file is by its first bytes: "parquet", "csv", or one of `READERS`; what cannot be read is refused."""
    head = read_content(path, HEAD)
    kind = next((kind for mark, kind in _MARKS.items() if head.startswith(mark)), None)
    if head[8:12] == b"DUCK":
        kind = "duckdb"
    if kind is None:
        kind = next((kind for mark, kind in _PAGES.items() if head.lstrip().lower().startswith(mark)), None)
    if kind is None:
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff")) and head[2:].replace(b"\0", b"").lstrip()
        return "json" if (utf16 or text)[:1] in (b"{", b"[") else "csv"
    if kind in SEEKING:
        with unpacked(path) as (stream, content):
            if stream is not content:
                raise InvalidInput(f"{name_of(path)} is compressed, and holds a file for {kind}: unpack it")
    if kind == "archive":
        kind = "xlsx" if b"xl/" in read_content(path) else "an OpenDocument or another office file"
    if kind not in (*READERS, "parquet"):
        raise InvalidInput(f"{name_of(path)} is {kind}, which is not read here: save the table as CSV, Parquet or xlsx")
    return kind


def _shown(cell: Any) -> Any:
    """A cell's value, with the unit that people see: what is shown as 24.2% is stored as .242."""
    value = cell.value
    if isinstance(value, int | float) and not isinstance(value, bool) and "%" in (cell.number_format or ""):
        return f"{100 * value:.15g}%"
    return value


def _xlsx(path: Path, sheet: str | None) -> Loaded:
    openpyxl = _optional("openpyxl", path, "spreadsheets")
    try:
        # From its bytes: by a name that does not end in .xlsx, openpyxl reads nothing.
        book = openpyxl.load_workbook(io.BytesIO(read_content(path)), read_only=True, data_only=True)
    except Exception as problem:  # It raises whatever its parts stumble over.
        raise InvalidInput(
            f"{name_of(path)} cannot be read as a spreadsheet ({problem}): save it again, or as CSV"
        ) from None
    try:
        if sheet is not None and sheet not in book.sheetnames:
            raise InvalidInput(f"{name_of(path)} has no sheet {sheet!r}: its sheets are {', '.join(book.sheetnames)}")
        chosen = sheet or book.sheetnames[0]
        rows = [tuple(map(_shown, row)) for row in book[chosen].iter_rows()]
        rows = [row for row in rows if any(cell is not None for cell in row)]
    finally:
        book.close()
    number, notes = len(book.sheetnames), []
    if number > 1 and not sheet:
        notes.append(f"{name_of(path)}: the first of its {number} sheets, {chosen!r}, is read (sheet)")
    if not rows:
        raise InvalidInput(f"{name_of(path)} has nothing in its sheet {chosen!r}: name another (sheet)")
    width = max(max((k + 1 for k, cell in enumerate(row) if cell is not None), default=0) for row in rows)
    names = [str(name).strip() if name is not None else f"column {k}" for k, name in enumerate(rows[0][:width], 1)]
    return Loaded(names, _transposed(rows[1:], len(names)), notes)


def _json(path: Path, encoding: str | None) -> Loaded:
    text, notes = decoded(path, encoding)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as problem:
        content = _json_lines(path, text, problem)
    except RecursionError:
        raise InvalidInput(f"{name_of(path)} is JSON with too many levels: a table is a list of rows") from None
    if isinstance(content, dict):
        if set(content) >= {"columns", "data"} and isinstance(content["data"], list):
            rows, width = content["data"], len(content["columns"])
            if not all(isinstance(row, list) and len(row) == width for row in rows):
                raise InvalidInput(
                    f"{name_of(path)} names {width} columns, but has rows of another length: correct them"
                )
            return Loaded([str(name) for name in content["columns"]], _transposed(rows, width), notes)
        inner = [name for name, part in content.items() if _records(part)]
        if len(inner) == 1 and not any(isinstance(part, list) for name, part in content.items() if name != inner[0]):
            notes, content = [*notes, f"{name_of(path)}: its rows are under {inner[0]!r}"], content[inner[0]]
        elif content and all(isinstance(part, dict) for part in content.values()):
            numbered = [all(map(str.isdecimal, names)) for names in (content, next(iter(content.values())))]
            if numbered == [True, False]:  # A row under each number.
                content = list(content.values())
            else:
                content = {name: list(part.values()) for name, part in content.items()}
        elif content and not any(isinstance(part, list | dict) for part in content.values()):
            content = [content]
    if isinstance(content, dict) and content and all(isinstance(part, list) for part in content.values()):
        lengths = {len(part) for part in content.values()}
        if len(lengths) > 1:
            raise InvalidInput(
                f"{name_of(path)} has columns of {min(lengths)} to {max(lengths)} rows: make them equally long"
            )
        return Loaded(list(content), [objects(part) for part in content.values()], notes)
    if not _records(content):
        raise InvalidInput(f"{name_of(path)} is JSON, but not a table: write a list of objects, one for each row")
    names = list(dict.fromkeys(name for row in content for name in row))
    return Loaded(names, [objects([row.get(name) for row in content]) for name in names], notes)


def _json_lines(path: Path, text: str, problem: json.JSONDecodeError) -> list[Any]:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (json.JSONDecodeError, RecursionError):
                # Of one long text the first error is the one to know.
                where = f"line {number}" if rows else f"line {problem.lineno}, column {problem.colno} ({problem.msg})"
                raise InvalidInput(f"{name_of(path)} is not valid JSON from {where} on: correct it") from None
    return rows


def _records(content: Any) -> bool:
    return isinstance(content, list) and bool(content) and all(isinstance(row, dict) for row in content)


def _ipc(path: Path, query: str | None) -> Loaded:
    pa, content = arrow(), read_content(path)
    opened = pa.ipc.open_file if content.startswith(b"ARROW1") else pa.ipc.open_stream
    try:
        table = opened(pa.BufferReader(content)).read_all()
    except (pa.ArrowInvalid, OSError) as problem:
        raise InvalidInput(f"{name_of(path)} cannot be read as Arrow or Feather ({problem}): write it again") from None
    return Loaded(list(table.column_names), list(table.columns), [])


def _sqlite(path: Path, query: str | None) -> Loaded:
    tables = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%'"
    try:
        base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            text, notes = _asked(path, query, [name for (name,) in base.execute(tables)])
            base.set_authorizer(_reads_only)
            cursor = base.execute(text)
            rows = cursor.fetchall()
        finally:
            base.close()
    except (sqlite3.Error, sqlite3.Warning) as problem:
        raise InvalidInput(f"{name_of(path)}: SQLite says {str(problem)!r}: correct the query") from None
    if cursor.description is None:
        raise InvalidInput(f"{name_of(path)}: the query {quoted(query)} gives no rows: ask with select")
    names = [column[0] for column in cursor.description]
    return Loaded(names, _transposed(rows, len(names)), notes)


def _reads_only(action: int, *about: str | None) -> int:
    """What SQLite asks before each thing that a query does."""
    reading = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reading else sqlite3.SQLITE_DENY


def _duckdb(path: Path, query: str | None) -> Loaded:
    duckdb = _optional("duckdb", path, "DuckDB's files")
    try:
        with duckdb.connect(str(path), read_only=True) as base:
            shown = base.execute("select table_name from information_schema.tables").fetchall()
            text, notes = _asked(path, query, [name for (name,) in shown])
            base.execute("set enable_external_access = false")  # A query reads this file, and writes none.
            table = arrow().table(base.sql(text))
    except duckdb.Error as problem:
        raise InvalidInput(f"{name_of(path)}: DuckDB says {str(problem)!r}: correct the query") from None
    except (TypeError, AttributeError):
        raise InvalidInput(f"{name_of(path)}: the query {quoted(query)} gives no rows: ask with select") from None
    return Loaded(list(table.column_names), list(table.columns), notes)


def _asked(path: Path, query: str | None, tables: Sequence[str]) -> tuple[str, list[str]]:
    """The query, by default for the only table there is."""
    if query is not None:
        return query, []
    if len(tables) != 1:
        holds = f"holds {len(tables)} tables ({', '.join(sorted(tables)[:10])})" if tables else "holds no table"
        raise InvalidInput(f"{name_of(path)} {holds}: say what to read", option="query", value="select ...")
    whole = tables[0].replace('"', '""')
    return f'select * from "{whole}"', [f"{name_of(path)}: its only table, {tables[0]!r}, is read (query)"]


def _optional(module: str, path: Path, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidInput(f'{name_of(path)}: reading {what} needs {module}: pip install "darkbayes[files]"') from None


def _transposed(rows: Sequence[Sequence[Any]], width: int) -> list[Any]:
    return [objects([row[k] if k < len(row) else None for row in rows]) for k in range(width)]


READERS: dict[str, Callable[[Path, str | None], Loaded]] = {
    "xlsx": _xlsx,
    "json": _json,
    "arrow": _ipc,
    "sqlite": _sqlite,
    "duckdb": _duckdb,
}
_MARKS = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"SQLite format 3\0": "sqlite",
    b"PK\x03\x04": "archive",
    b"\xd0\xcf\x11\xe0": "an old Excel (.xls) or another Office file",
    b"FEA1": "Feather of version 1",
    b"\x89HDF": "HDF5",
    b"Obj\x01": "Avro",
    b"%PDF": "PDF",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    **{bytes([0x80, protocol]): "a pickle, which may run any code" for protocol in range(2, 6)},
    b"$FL2": "SPSS",
    b"<stata": "Stata",
}
_PAGES = {b"<!doctype": "a web page", b"<html": "a web page", b"<?xml": "XML"}
"""How texts begin that are no tables, whatever letters are large."""
