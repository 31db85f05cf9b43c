"""Whatever a row holds, all who read it agree: files, frames and requests; prediction, evaluation, the service."""

import contextlib
import csv
import io
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shipped_models
from darkbayes import cli
from darkbayes.errors import InvalidInput
from darkbayes.estimators import DistilledRegressor
from darkbayes.serve import make_app
from darkbayes.shipped import Shipped
from darkbayes.tables import frame_of, from_columns, read_batches, read_table
from darkbayes.tables.schema import Frame

with warnings.catch_warnings():
    # Newer versions of Starlette would rather have another client library.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

SCHEMA = shipped_models.STREETS
SCHEMAS = {"streets": SCHEMA, "named": shipped_models.NAMED}
"""The second names the texts that say that a value is missing."""
NAMES = list(SCHEMA.wanted)
REFUSED = "refused"
CSV = {"content-type": "text/csv", "accept": "text/csv"}

ODD = (
    "", " ", "12", " 12 ", "\t12", "\u00a012\u2003", "\u3000", "+12", "-12", "12.", ".5", "1e3", "1E+3", "1e400",
    "-1e400", "1e-400", "0012", "-0", "1_000", "1,5", "1 000", "0x10", "1f", "1d", "1e", "--1", "\u0661\u0662",
    "\uff11\uff12", "\u00b2", "\u00bd", "inf", "-INF", "Infinity", "\u0131nf", "nan", "NaN", "NAN", "-nan", "nan(1)",
    "NA", " NA ", "na", "N/A", "<NA>", "null", "NULL", "Null", "None", "none", "?", "-", "--", "#N/A", "TRUE",
    "True ", "true", "tRuE", "False", "f", "yes", "red", " red ", "Red", "green", "1", "1.0", "01", "2", "2.0", "2e0",
    "2021-03-04", "12:30", 'say "no"', "two\nlines", "a;b", "x" * 20_000, "é", "\U0001f600", "\u200b12", "\ufeff12",
    "'12'", "12%", "$12", "\u221212", "3.4.2021", "31.2.2021", "3/4/21 5:30 pm", "4 Mar 2021", "March 4, 2021 12:00",
    "2021-03-04T12:30:00.5+02:00", "2021-13-01", "1970-01", "20210304", "1.234,5", "1.234", "1.5", "1,5e3", "OFF",
)  # fmt: skip
TEXTS = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
NUMBERS = (
    st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, width=64) | st.sampled_from([5e-324, 1e308, 10**400])
)
PLAIN = TEXTS | TEXTS | NUMBERS | st.booleans() | st.none()


@pytest.fixture(scope="module", params=SCHEMAS)
def shipped(request, tmp_path_factory) -> Shipped:
    return Shipped(shipped_models.write(tmp_path_factory.mktemp("streets"), request.param))


@pytest.fixture(scope="module")
def client(shipped) -> Iterator[TestClient]:
    # Entered: else each request has an event loop of its own, in a thread of its own.
    with TestClient(make_app(shipped)) as client:
        yield client


def written(name: str, value: Any) -> str:
    """A value as a CSV file holds it, in which areas have decimal commas."""
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if isinstance(value, str) or name != "area" else text.replace(".", ",")


def as_csv(row: dict[str, Any]) -> bytes:
    text = io.StringIO(newline="")
    cells = [written(name, value) for name, value in row.items()]
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([row, cells])
    return text.getvalue().encode()


def tried(read: Callable[[], Any]) -> Any:
    with contextlib.suppress(InvalidInput):
        return read()
    return REFUSED


def from_file(content: bytes, schema: Any = SCHEMA, target: bool = False) -> Frame:
    (batch,) = read_batches(content, schema, target=target)
    return batch.frame


def estimator(schema: Any) -> Any:
    """One whose columns are those of a schema."""
    model: Any = DistilledRegressor()
    model.schema_, model.feature_names_in_, model.n_features_in_ = schema, np.asarray(NAMES, object), len(NAMES)
    return model


def means(shipped: Shipped, frame: Any) -> Any:
    return REFUSED if frame is REFUSED else [float(f"{shipped.predict(frame).mean.item():.7g}")]


def answered(client: TestClient, content: bytes, kind: str) -> Any:
    answer = client.post("/predict", content=content, headers={"content-type": kind})
    if answer.status_code == 422:
        assert answer.json()["where"] in ("rows[0]", "line 2")
        return REFUSED
    assert answer.status_code == 200, answer.text
    return [one["mean"] for one in answer.json()["predictions"]]


def known(frame: Any) -> Any:
    """A frame as lists, in which all categories that are not known are alike: they are to the model."""
    if frame is REFUSED:
        return frame
    shown = {name: values.tolist() for name, values in frame.items()}
    for column in SCHEMA.categories:
        (value,) = shown[column.name]
        shown[column.name] = [value if value in (None, *column.categories) else "unknown"]
    return repr(shown)


@settings(max_examples=500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(cells=st.tuples(*[PLAIN] * len(NAMES)), odd=st.lists(st.integers(0, len(NAMES) - 1), max_size=2))
def test_a_row_is_the_same_to_all(shipped, client, cells, odd):
    # Most cells are plain, so that not every row is refused for one of them.
    good = (3, 0.5, "red", "true", "3.4.2021 12:30", "1.234,5")
    row = {name: cell if k in odd else good[k] for k, (name, cell) in enumerate(zip(NAMES, cells, strict=True))}
    content, schema = as_csv(row), shipped.schema
    frame = tried(lambda: from_file(content, schema))
    texts = {name: [written(name, value)] for name, value in row.items()}
    frames = {
        "evaluate": tried(lambda: from_file(as_csv(row | {"price": 3}), schema, target=True)),
        "values": tried(lambda: frame_of(from_columns({name: [value] for name, value in row.items()}), schema)),
        "texts": tried(lambda: frame_of(from_columns(texts), schema)),
        "pandas": tried(lambda: frame_of(from_columns(pd.DataFrame(texts)), schema)),
        "estimator": tried(lambda: estimator(schema)._frame(pd.DataFrame(texts))),
        "strings": tried(lambda: frame_of(from_columns(pd.DataFrame(texts, dtype="string")), schema)),
    }
    assert {name: known(other) for name, other in frames.items()} == dict.fromkeys(frames, known(frame)), row
    expected = means(shipped, frame)
    assert answered(client, content, "text/csv") == expected, row
    for body in ({"rows": [row]}, {"rows": [{name: value for name, (value,) in texts.items()}]}):
        # Infinity is no JSON, and refused as such.
        if "Infinity" not in json.dumps([value for value in row.values() if not isinstance(value, str)]):
            assert answered(client, json.dumps(body).encode(), "application/json") == expected, row
    if frame is not REFUSED:
        np.testing.assert_array_equal(schema.encode(frame), schema.encode(frames["values"]))


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(
    columns=st.tuples(*[st.lists(TEXTS, min_size=3, max_size=3)] * len(NAMES)),
    schema=st.sampled_from([*SCHEMAS.values()]),
)
def test_what_a_row_is_does_not_depend_on_the_rows_beside_it(tmp_path_factory, columns, schema):
    path = tmp_path_factory.mktemp("files")
    rows = [dict(zip(NAMES, cells, strict=True)) for cells in zip(*columns, strict=True)]
    alone = [tried(lambda row=row: from_file(as_csv(row), schema)) for row in rows]
    good = [k for k, frame in enumerate(alone) if frame is not REFUSED]
    content = b"".join([as_csv(rows[0]), *(as_csv(row).partition(b"\n")[2] for row in rows[1:])])
    (path / "t.csv").write_bytes(content)
    pq.write_table(pa.table(dict(zip(NAMES, columns, strict=True))), path / "t.parquet")
    for file in (path / "t.csv", path / "t.parquet"):
        batches = read_batches(file, schema, on_bad="skip")
        together = [
            known({name: column[[k]] for name, column in part.frame.items()})
            for part in batches
            for k in range(len(part))
        ]
        assert together == [known(alone[k]) for k in good]
        assert batches.num_bad == 3 - len(good)
        table = read_table(file)
        for k, frame in enumerate(alone):
            assert known(tried(lambda table=table, k=k: frame_of(table, schema, np.asarray([k])))) == known(frame)
    whole = from_columns(dict(zip(NAMES, columns, strict=True)))
    for k, frame in enumerate(alone):
        assert known(tried(lambda k=k: frame_of(whole, schema, np.asarray([k])))) == known(frame)


@pytest.mark.parametrize("name", shipped_models.PROMISED)
def test_all_show_the_same_guaranteed_intervals_and_sets(tmp_path, capsys, name):
    run, new, out = (tmp_path / part for part in ("run", "new.csv", "out.csv"))
    model, rng = Shipped(shipped_models.write(run, name)), np.random.default_rng(0)
    columns = {"rooms": rng.integers(1, 10, 40), "crime rate": rng.random(40), "distance": 40 * rng.random(40)}
    rows, target = pd.DataFrame(columns | {"colour": rng.choice(shipped_models.COLOURS, 40)}), model.schema.target
    frame = frame_of(from_columns(rows), model.schema)
    prediction = model.predict(frame)
    table, answer = target.table(prediction, 0.8), target.answer(prediction, 0.8)
    assert any(column.startswith(("lower_80", "price_lower_80", "set_80")) for column in table)
    # Files of predictions, and the service.
    rows.to_csv(new, index=False)
    cli.main(["predict", str(run), str(new), "-o", str(out), "--quiet"])
    with TestClient(make_app(model)) as client:
        said = client.post("/predict", json={"rows": rows.astype(object).to_dict("records")}).json()
        text = client.post("/predict", content=new.read_bytes(), headers=CSV).text
        assert client.get("/schema").json()["target"]["words"]["guarantee"] == target.promise
    for shown in (out.read_text(), text):
        lines = pd.read_csv(io.StringIO(shown), dtype={"set_80": str})
        pd.testing.assert_frame_equal(lines[list(table)], pd.DataFrame(table), check_dtype=False, rtol=1e-6)
    assert said["level"] == 0.8
    for key in {"interval", "set"} & set(answer):
        for row, expected in zip(said["predictions"], answer[key], strict=True):
            np.testing.assert_allclose(row[key], np.asarray(expected, float), rtol=1e-6)
    # Scores, of truths that the predictions hold and others.
    truth = {column: rng.choice(texts or [0.5, 15.0, 500.0], 40) for column, texts in target.columns.items()}
    rows.assign(**truth).to_csv(new, index=False)
    capsys.readouterr()
    cli.main(["evaluate", str(run), str(new), "--json", "--quiet"])
    scores = {row["metric"]: row["mean"] for row in json.loads(capsys.readouterr().out)["rows"]}
    held = prediction.covered(target.truth(target.joined(truth)), 0.8).mean()
    assert 0 < held < 1
    assert scores.get("guaranteed_coverage_80", scores.get("set_coverage_80")) == pytest.approx(held)


def test_a_graph_itself_says_which_classes_are_in_the_set(tmp_path):
    model, rng = Shipped(shipped_models.write(tmp_path, "promised kinds")), np.random.default_rng(0)
    rows = {"rooms": rng.integers(1, 10, 40), "crime rate": rng.random(40), "distance": 40 * rng.random(40)}
    frame = frame_of(from_columns(rows | {"colour": rng.choice(shipped_models.COLOURS, 40)}), model.schema)
    prediction: Any = model.predict(frame)
    sets = prediction.sets(0.8)
    np.testing.assert_array_equal(model._session.run(["set"], model.schema.matrices(frame))[0], sets)
    assert sets.any(axis=1).all()
    assert not sets.all()


def test_a_column_that_is_missing_is_refused_by_all(client):
    row = {"rooms": 3, "Width": 0.5, "colour": "red", "new": True, "sold": "2021-03-04", "area": 12}
    hint = r"no column 'width': did you mean 'Width'\?"
    with pytest.raises(InvalidInput, match=hint):
        read_batches(as_csv(row), SCHEMA)
    with pytest.raises(InvalidInput, match=hint):
        frame_of(from_columns({name: [value] for name, value in row.items()}), SCHEMA)
    for content, kind in ((as_csv(row), "text/csv"), (json.dumps({"rows": [row]}).encode(), "application/json")):
        answer = client.post("/predict", content=content, headers={"content-type": kind})
        assert answer.status_code == 422
        assert "no column 'width': did you mean 'Width'?" in answer.json()["error"]


def test_all_note_the_same(client):
    row = {"rooms": 12, "width": None, "colour": "green", "new": True, "shop": 1, "sold": "2021-03-04", "area": "12,5"}
    batches = read_batches(as_csv(row), SCHEMA)
    list(batches)
    assert len(batches.notes) == 4
    for content, kind in ((as_csv(row), "text/csv"), (json.dumps({"rows": [row]}).encode(), "application/json")):
        assert client.post("/predict", content=content, headers={"content-type": kind}).json()["notes"] == batches.notes
