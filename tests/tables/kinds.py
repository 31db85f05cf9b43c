"""Kinds of files as people have them, each really written: what `docs/files.md` says of them is what happens to them.

``python tests/tables/kinds.py`` writes the table in the docs anew.
"""

import gzip
import io
import json
import lzma
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from darkbayes.errors import InvalidInput
from darkbayes.fit import prepare_table
from darkbayes.fit.prepare import Prepared
from darkbayes.tables import from_columns, read_table
from darkbayes.tables.guessing import Wishes

DOCS = Path(__file__).parents[2] / "docs" / "files.md"
BEGIN, END = "<!-- kinds of files: python tests/tables/kinds.py -->", "<!-- end -->"
HEAD = ("| a file or a column | | what is said of it |", "|---|---|---|")
ROWS = 80
_rng = np.random.default_rng(0)
TRUTH = pd.DataFrame(
    {
        "size": np.round(_rng.uniform(1000, 9000, ROWS), 2),
        "town": _rng.choice(["Orléans", "Zürich", "Wien"], ROWS),
        "sold": pd.Timestamp("2019-01-30") + pd.to_timedelta(_rng.integers(0, 900, ROWS), "D"),
        "price": np.round(_rng.normal(0, 50, ROWS), 1),
    }
)
"""What every file that is a table holds, in its own way."""
PLAIN = TRUTH.assign(sold=TRUTH.sold.dt.strftime("%Y-%m-%d"))


class Kind(NamedTuple):
    """A kind of file: how one is written into a folder, and how it is read."""

    words: str
    write: Callable[[Path], Any]
    """Returns what is read: a path, several, or a frame."""
    layout: Mapping[str, Any] = MappingProxyType({})
    wishes: Wishes | None = None
    needs: str = ""
    """The library without which it cannot be written."""
    whole: bool = True
    """Whether it holds all columns of `TRUTH` and no others."""


def text(frame: pd.DataFrame, encoding: str = "utf-8", **how: Any) -> bytes:
    return frame.to_csv(index=False, **how).encode(encoding)


def file(name: str, content: bytes | Callable[[], bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content())
        return folder / name

    return write


def marked(form: str, points: str = ",.") -> pd.DataFrame:
    """The table, with sizes written by this form."""
    swapped = str.maketrans(",.", points)
    return PLAIN.assign(size=[format(value, form).translate(swapped) for value in TRUTH["size"]])


def dated(form: str) -> bytes:
    return text(PLAIN.assign(sold=TRUTH.sold.dt.strftime(form)))


def beside(**columns: Any) -> bytes:
    return text(PLAIN.assign(**columns))


def zipped(**files: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("_", "."), data)
    return content.getvalue()


def excel(folder: Path) -> Path:
    with pd.ExcelWriter(folder / "t.xlsx", engine="openpyxl") as book:
        TRUTH.to_excel(book, index=False, sheet_name="sales")
        pd.DataFrame({"a": [1]}).to_excel(book, sheet_name="more")
    return folder / "t.xlsx"


def sqlite(folder: Path) -> Path:
    with sqlite3.connect(folder / "t.db") as base:
        PLAIN.to_sql("sales", base, index=False)
    base.close()
    return folder / "t.db"


def duck(folder: Path) -> Path:
    import duckdb

    arrow = pa.Table.from_pandas(TRUTH)
    with duckdb.connect(str(folder / "t.duckdb")) as base:
        base.register("arrow", arrow)
        base.execute("create table sales as select * from arrow")
    return folder / "t.duckdb"


def parquet(folder: Path) -> Path:
    pyarrow.parquet.write_table(pa.Table.from_pandas(TRUTH, preserve_index=False), folder / "t.parquet")
    return folder / "t.parquet"


def feather(folder: Path) -> Path:
    pyarrow.feather.write_feather(pa.Table.from_pandas(TRUTH, preserve_index=False), str(folder / "t.feather"))
    return folder / "t.feather"


def several(folder: Path) -> list[Path]:
    halves = PLAIN[: ROWS // 2], PLAIN[ROWS // 2 :][["price", "sold", "town", "size"]]
    return [file(f"{k}.csv", text(half))(folder) for k, half in enumerate(halves)]


def polars(folder: Path) -> Any:
    import polars

    return polars.from_arrow(pa.Table.from_pandas(TRUTH, preserve_index=False))


def json_text(orient: Any, **how: Any) -> Callable[[], bytes]:
    return lambda: PLAIN.to_json(orient=orient, **how).encode()


_words = ["the", "old", "house", "has", "a", "new", "roof", "and", "no", "garden"]
_notes = [" ".join(_rng.choice(_words, 8)) for _ in range(ROWS)]
SQL = "select size, town, sold, price from sales"
KINDS = {
    "csv": Kind("CSV: commas, semicolons, tabs or bars", file("t.csv", text(PLAIN, sep=";"))),
    "comma": Kind("CSV with decimal commas", file("t.csv", text(marked(".2f", ".,"), sep=";"))),
    "thousands": Kind("CSV with `1.234,50`", file("t.csv", text(marked(",.2f", ".,"), sep=";"))),
    "spaces": Kind("CSV with `1 234,50`", file("t.csv", text(marked(",.2f", "\u202f,"), sep=";"))),
    "money": Kind("CSV with `$1,234.50`", file("t.csv", beside(size=[f"${value:,.2f}" for value in TRUTH["size"]]))),
    "latin-1": Kind("CSV in Latin-1 or Windows-1252", file("t.csv", text(PLAIN, "cp1252"))),
    "utf-16": Kind("text with tabs in UTF-16, as spreadsheets save it", file("t.txt", text(PLAIN, "utf-16", sep="\t"))),
    "gzip": Kind("CSV packed by gzip", file("t.csv.gz", gzip.compress(text(PLAIN)))),
    "bzip2": Kind("CSV packed by bzip2 or xz", file("t.csv.xz", lzma.compress(text(PLAIN)))),
    "zip": Kind("a zip archive of one file", file("t.zip", zipped(t_csv=text(PLAIN)))),
    "xlsx": Kind("Excel (xlsx)", excel, needs="openpyxl"),
    "parquet": Kind("Parquet", parquet),
    "feather": Kind("Feather, Arrow IPC", feather),
    "records": Kind("JSON: a list of rows", file("t.json", json_text("records"))),
    "columns": Kind("JSON: an object of columns", file("t.json", json_text("columns"))),
    "lines": Kind("JSON lines", file("t.jsonl", json_text("records", lines=True))),
    "sqlite": Kind("SQLite", sqlite),
    "query": Kind("SQLite with `--query`", sqlite, {"query": f"{SQL} where size > 0"}),
    "duckdb": Kind("DuckDB", duck, {"query": SQL}, needs="duckdb"),
    "several": Kind("several files with the same columns", several),
    "pandas": Kind("a frame of pandas", lambda folder: TRUTH),
    "polars": Kind("a frame of polars", polars, needs="polars"),
    "pyarrow": Kind("a table of pyarrow", lambda folder: pa.Table.from_pandas(TRUTH, preserve_index=False)),
    "dates": Kind("dates such as `2019-04-30`, and with times", file("t.csv", dated("%Y-%m-%dT00:00:00Z"))),
    "us dates": Kind("dates such as `4/30/2019`", file("t.csv", dated("%m/%d/%Y"))),
    "eu dates": Kind("dates such as `30.4.2019`", file("t.csv", dated("%d.%m.%Y"))),
    "named dates": Kind("dates such as `30 Apr 2019`", file("t.csv", dated("%d %b %Y"))),
    "compact dates": Kind(
        "dates such as `20190430`, with `--date`", file("t.csv", dated("%Y%m%d")), wishes=Wishes({"sold": "date"})
    ),
    "times": Kind(
        "times such as `17:30`", file("t.csv", beside(at=[f"{k % 24}:30" for k in range(ROWS)])), whole=False
    ),
    "identifier": Kind("an identifier", file("t.csv", beside(customer_id=_rng.permutation(ROWS) * 7 + 1000))),
    "constant": Kind("one value only", file("t.csv", beside(country="FR"))),
    "duplicate": Kind("a column that is there twice", file("t.csv", beside(size_m2=TRUTH["size"]))),
    "free text": Kind("free text", file("t.csv", beside(remark=_notes))),
    "words": Kind(
        "free text, with `--text`", file("t.csv", beside(remark=_notes)), wishes=Wishes({"remark": "text"}), whole=False
    ),
    "many": Kind(
        "more than 50 categories", file("t.csv", beside(street=[f"street {k % 65}" for k in range(ROWS)])), whole=False
    ),
    "codes": Kind(
        "codes such as `01067`", file("t.csv", beside(code=[f"0{k % 5}067" for k in range(ROWS)])), whole=False
    ),
    "truth": Kind(
        "truth in several spellings", file("t.csv", beside(new=["yes", "No", "Y", "true"] * (ROWS // 4))), whole=False
    ),
    "gaps": Kind(
        "`NA` or `-` in a column of text",
        file("t.csv", beside(land=["NA", "DE", "-", "FR"] * (ROWS // 4))),
        whole=False,
    ),
    "no gaps": Kind(
        "the same with `--missing -`",
        file("t.csv", beside(land=["NA", "DE", "-", "FR"] * (ROWS // 4))),
        wishes=Wishes(missing=("-",)),
        whole=False,
    ),
    "stray": Kind("numbers with words among them", file("t.csv", beside(size=["big", *TRUTH["size"][1:]]))),
    "contradiction": Kind("numbers with both marks", file("t.csv", beside(size=["1,5", "1.25", *["3"] * (ROWS - 2)]))),
    "damaged": Kind("a packed file that is damaged", file("t.csv.gz", gzip.compress(text(PLAIN))[:-20])),
    "archive": Kind("a zip archive of several files", file("t.zip", zipped(a_csv=text(PLAIN), b_csv=text(PLAIN)))),
    "xls": Kind("old Excel (xls)", file("t.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))),
    "ods": Kind("OpenDocument", file("t.ods", zipped(mimetype=b"application/vnd.oasis.opendocument.spreadsheet"))),
    "pickle": Kind("a pickle", file("t.pkl", b"\x80\x04\x95" + bytes(60))),
    "html": Kind("a web page", file("t.csv", b"<!DOCTYPE html><html>404</html>")),
    "nested": Kind("JSON that is not a table", file("t.json", json.dumps([1, [2]]).encode())),
    "binary": Kind("anything else that is not text", file("t.bin", bytes(range(256)))),
}


class Tried(NamedTuple):
    """What became of a file."""

    row: str
    """Of the table in the docs."""
    source: Any
    table: Any
    ready: Prepared | None
    """None if it was refused."""


def tried(name: str, folder: Path) -> Tried:
    """Write a file of this kind into a folder, and prepare a fit to it."""
    kind, table, ready = KINDS[name], None, None
    source = kind.write(folder)
    try:
        file = isinstance(source, Path | list)
        table = read_table(source, wishes=kind.wishes, **kind.layout) if file else from_columns(source)
        ready = prepare_table(table, ["price"], task="regression", seed=0)
    except InvalidInput as problem:
        said = str(problem)
    else:
        usual = "'price'" if name.endswith("dates") else ("'price'", "'sold'")
        said = "; ".join(note for note in ready.notes if not note.startswith(usual))
    said = said.replace(f"{folder}/", "").replace("|", r"\|")
    return Tried(f"| {kind.words} | {'fits' if ready else 'refused'} | {said} |", source, table, ready)


def main() -> None:
    """Write the table into the docs."""
    rows = []
    for name in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(tried(name, Path(folder)).row)
    table = "\n".join([*HEAD, *rows])
    before, _, rest = DOCS.read_text().partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
