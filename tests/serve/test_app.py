"""The service: what it answers, what it refuses and how, and that nothing sent to it makes it fail."""

import base64
import csv
import io
import json
import math
import socket
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import shipped_models
from benchmarks.malformed import malformed
from darkbayes.errors import InvalidInput
from darkbayes.outcomes import ClassPrediction, ClassTarget, NumberPrediction
from darkbayes.serve import Limits, make_app, serve
from darkbayes.serve.description import as_csv

with warnings.catch_warnings():
    # Newer versions of Starlette would rather have another client library.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

LIMITS = Limits(body=400_000, rows=1000, seconds=600.0)
FORMS = {"json": {"content-type": "application/json"}, "csv": {"content-type": "text/csv"}}
NAMES = b"rooms,crime rate,distance,colour"
HOUSE = {"rooms": 5, "crime rate": 0.5, "distance": 3.25, "colour": "red"}


@pytest.fixture(scope="module")
def clients(shipped):
    return {name: TestClient(make_app(shipped[name], LIMITS)) for name in shipped_models.SCHEMAS}


@pytest.fixture(scope="module")
def houses(clients):
    return clients["houses"]


def refused(answer, status, *words):
    """Checks that a request was refused with a status, in words that a person understands."""
    assert answer.status_code == status, answer.text
    content = answer.json()
    assert content["error"]
    assert content["remedy"]
    for word in words:
        assert word in json.dumps(content), content
    return content


def picture(size, kind="PNG"):
    """A picture whose right half is bright, as a file in base64."""
    image = Image.new("L", size)
    image.paste(255, (size[0] // 2, 0, *size))
    file = io.BytesIO()
    image.save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


# What is answered


def test_a_number_is_answered_with_its_interval_and_both_uncertainties(houses, shipped):
    answer = houses.post("/predict", json={"rows": [HOUSE, HOUSE | {"rooms": 8}]})
    assert answer.status_code == 200
    content = answer.json()
    frame = {name: np.asarray([value] * 2) for name, value in HOUSE.items()} | {"rooms": np.asarray([5.0, 8.0])}
    truth = shipped["houses"].predict(frame)
    assert isinstance(truth, NumberPrediction)
    low, high = truth.interval(0.9)
    for k, one in enumerate(content["predictions"]):
        for name in ("mean", "std", "aleatoric_std", "epistemic_std", "location", "spread"):
            assert one[name] == pytest.approx(getattr(truth, name)[k].item(), rel=1e-6)
        assert one["interval"] == pytest.approx([low[k, 0], high[k, 0]], rel=1e-6)
        assert one["std"] ** 2 == pytest.approx(one["aleatoric_std"] ** 2 + one["epistemic_std"] ** 2, rel=1e-5)
    assert (content["task"], content["target"], content["level"], content["notes"]) == ("regression", "price", 0.9, [])


def test_the_level_of_the_intervals_is_the_callers(houses):
    def width(**request):
        low, high = houses.post("/predict", **request).json()["predictions"][0]["interval"]
        return high - low

    wide = width(json={"rows": [HOUSE], "level": 0.99})
    assert wide == pytest.approx(width(json={"rows": [HOUSE]}, params={"level": "0.99"}))
    assert width(json={"rows": [HOUSE]}) < wide
    assert width(json={"rows": [HOUSE], "level": 0.99}, params={"level": "0.5"}) == pytest.approx(wide)


def test_an_interval_of_a_logarithm_is_positive(clients):
    low, high = clients["prices"].post("/predict", json={"rows": [HOUSE]}).json()["predictions"][0]["interval"]
    assert 0 < low < high


@pytest.mark.parametrize(("name", "classes"), [("flowers", [0, 1, 12]), ("plane", [False, True])])
def test_classes_are_answered_in_the_users_own_kind(clients, name, classes):
    row = HOUSE if name == "flowers" else {"east": 1.0, "north": 0.5}
    (one,) = clients[name].post("/predict", json={"rows": [row]}).json()["predictions"]
    assert type(one["prediction"]) is type(classes[0])
    assert clients[name].get("/schema").json()["target"]["classes"] == classes
    assert one["prediction"] == classes[int(np.argmax(one["probs"]))]
    assert one["probability"] == max(one["probs"])
    assert sum(one["probs"]) == pytest.approx(1, abs=1e-5)
    assert one["entropy"] == pytest.approx(one["expected_entropy"] + one["mutual_information"], abs=1e-5)


def test_several_numbers_are_answered_in_lists_and_columns(clients):
    (one,) = clients["pair"].post("/predict", json={"rows": [HOUSE]}).json()["predictions"]
    assert [len(one[name]) for name in ("mean", "std", "aleatoric_std", "epistemic_std", "interval")] == [2] * 5
    body = NAMES + b"\n5,0.5,3.25,red\n"
    answer = clients["pair"].post("/predict", content=body, headers=FORMS["csv"] | {"accept": "text/csv"})
    (line,) = csv.DictReader(io.StringIO(answer.text))
    for k, name in enumerate(("price", "rent")):
        ends = [float(line[f"{name}_lower_90"]), float(line[f"{name}_upper_90"])]
        assert (float(line[f"{name}_mean"]), ends) == (one["mean"][k], pytest.approx(one["interval"][k]))


def test_a_csv_is_answered_as_json_or_as_csv(houses):
    body = "colour,rooms,crime rate,distance\nred,5,0.5,3.25\nNA,,NA,\n"
    as_json = houses.post("/predict", content=body, headers=FORMS["csv"]).json()
    as_rows = houses.post("/predict", json={"rows": [HOUSE, {"rooms": None}]}).json()
    assert as_json["predictions"] == as_rows["predictions"]
    answer = houses.post("/predict", content=body, headers=FORMS["csv"] | {"accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert any("median" in note for note in json.loads(answer.headers["darkbayes-notes"]))
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert [float(line["mean"]) for line in lines] == [one["mean"] for one in as_json["predictions"]]
    assert set(lines[0]) == {"mean", "std", "aleatoric_std", "epistemic_std", "lower_90", "upper_90", "outside"}
    assert [line["outside"] for line in lines] == [one["outside"] or "" for one in as_json["predictions"]]
    assert "rooms is missing" in lines[1]["outside"]


def test_a_csv_of_classes_names_them(clients):
    body = "rooms;colour;distance;crime rate\n5;red;1;2\n"
    answer = clients["flowers"].post("/predict", content=body, headers=FORMS["csv"] | {"accept": "text/csv"})
    (line,) = csv.DictReader(io.StringIO(answer.text))
    assert line["prediction"] in ("0", "1", "12")
    assert float(line["probability"]) == max(float(line[f"probability_{name}"]) for name in ("0", "1", "12"))


def test_images_come_as_lists_with_or_without_the_axis_of_channels(clients):
    image = [[16 * column for column in range(8)] for _ in range(8)]
    content = clients["digits"].post("/predict", json={"images": [image, [image]]}).json()
    assert content["predictions"][0] == content["predictions"][1]


def test_images_come_as_files_of_any_size(clients):
    lists = [[0] * 4 + [255] * 4] * 8
    files = [picture((8, 8)), "data:image/png;base64," + picture((8, 8)), picture((800, 800), "JPEG")]
    first, *others = clients["digits"].post("/predict", json={"images": [lists, *files]}).json()["predictions"]
    assert others[:2] == [first] * 2
    # Scaling softens the edge.
    assert others[2]["probs"] == pytest.approx(first["probs"], abs=0.1)


def test_a_key_that_other_rows_have_is_a_missing_value(houses):
    rows = [{"rooms": 5, "distance": None, "colour": ""}, {"rooms": "5", "crime rate": "NA"}]
    first, second = houses.post("/predict", json={"rows": rows}).json()["predictions"]
    assert first == second


def test_notes_tell_what_is_unlike_the_data_seen(houses):
    rows = [HOUSE | {"colour": "green", "rooms": 12, "Distance": 1, "price": 3}, {"rooms": 3, "colour": "mauve"}]
    notes = "\n".join(houses.post("/predict", json={"rows": rows}).json()["notes"])
    for words in (
        "are ignored: 'Distance' (did you mean 'distance'?)",
        "'colour': 2 cells hold categories that the model does not know: 'green', 'mauve'",
        "'rooms' lies outside of what was seen, 1 to 9, in 1 row",
        "'distance' is missing in 1 row, which it never was before: its median, 20.25, was taken",
    ):
        assert words in notes
    assert "crime" not in notes  # It had missing values before.


@pytest.mark.parametrize(
    ("value", "meant"),
    [(3, "3"), (3.0, "3"), (True, "true"), (" red ", "red"), ("NA", None), (10**400, "1" + "0" * 400)],
)
def test_categories_are_called_as_tables_call_them(houses, value, meant):
    first, second = (
        houses.post("/predict", json={"rows": [HOUSE | {"colour": colour}]}).json() for colour in (value, meant)
    )
    assert first["predictions"] == second["predictions"]


def test_answers_hold_no_number_that_json_cannot(clients, shipped):
    app = make_app(shipped["field"])
    real = shipped["field"].predict({"east": np.zeros(1), "north": np.zeros(1)})

    class Endless:
        schema, version = shipped["field"].schema, "0"

        def predict(self, inputs):
            moments = (np.asarray([[value]]) for value in (math.inf, math.nan, -math.inf, 1.0))
            return NumberPrediction(*moments, *(np.zeros((1, 1, 1)) for _ in range(2)), np.ones((1, 1, 1)))

    assert np.isfinite(real.std).all()
    app = make_app(Endless())  # pyright: ignore[reportArgumentType]
    answer = TestClient(app).post("/predict", json={"rows": [{"east": 0, "north": 0}]})
    (one,) = json.loads(answer.text, parse_constant=pytest.fail)["predictions"]
    assert (one["mean"], one["std"], one["epistemic_std"]) == (None, None, 1.0)


# What it says of itself


def test_the_schema_tells_columns_and_target(houses, clients):
    about = houses.get("/schema").json()
    assert about["target"]["outputs"] == [{"name": "price", "transform": "identity", "low": 5.0, "high": 50.0}]
    assert (about["task"], about["views"]) == ("regression", ["quantity"])
    assert "squares" in about["target"]["words"]["arithmetic"]
    assert [column["name"] for column in about["columns"]] == list(HOUSE)
    assert about["columns"][0] == {
        "name": "rooms",
        "kind": "number",
        "low": 1,
        "high": 9,
        "median": 5.0,
        "whole": True,
        "missing_seen": False,
    }
    assert about["columns"][3]["categories"] == ["blue", "red", "white"]
    assert about["limits"] == {"bytes": 400_000, "rows": 1000, "seconds": 600.0}
    assert clients["digits"].get("/schema").json()["image"]["height"] == 8


def test_it_says_that_it_is_well(houses):
    assert houses.get("/healthz").json()["status"] == "ok"
    assert {houses.head(path).status_code for path in ("/healthz", "/livez", "/", "/docs")} == {200}


@pytest.mark.parametrize("name", shipped_models.SCHEMAS)
def test_the_examples_of_its_description_are_answered(clients, name):
    openapi = clients[name].get("/openapi.json").json()
    for kind, content in openapi["paths"]["/predict"]["post"]["requestBody"]["content"].items():
        example = content["example"]
        body = example if isinstance(example, str) else json.dumps(example)
        answer = clients[name].post("/predict", content=body, headers={"content-type": kind})
        assert answer.status_code == 200, answer.text
        assert answer.json()["notes"] == []


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_need_nothing_from_elsewhere(houses, path):
    answer = houses.get(path)
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "src=" not in answer.text
    assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")


# What is refused


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"\xff{}", "not valid JSON"),
        (b'{"rows": [', "not valid JSON"),
        (b"[" * 100_000, "recursion limit"),
        (b"[]", "a list, not an object"),
        (b"{}", "no 'rows'"),
        (b'{"rows": {}}', "rows is an object, not a list"),
        (b'{"rows": []}', "there are no rows"),
        (b'{"rows": [3]}', "rows[0]"),
        (b'{"rows": [{}], "row": []}', "means nothing here"),
        (b'{"rows": [{"size": 3}]}', "no columns 'rooms', 'crime rate', 'distance', 'colour'"),
        (b'{"rows": [{"Rooms": 3, "crime rate": 1, "distance": 1, "colour": null}]}', "did you mean 'Rooms'?"),
        (b'{"rows": [{"rooms": NaN}]}', "null is a missing value"),
        (b'{"rows": [{"rooms": -Infinity}]}', "null is a missing value"),
        (b'{"rows": [{"rooms": 1e999}]}', "infinite"),
        (b'{"rows": [{"rooms": 1%s}]}' % (b"0" * 400), "infinite"),
        (b'{"rows": [{"rooms": 1%s}]}' % (b"0" * 5000), "out of range"),
        (b'{"rows": [{}, {"rooms": "many"}]}', "'rooms' is 'many', not a number"),
        (b'{"rows": [{"rooms": true}]}', "not a number"),
        (b'{"rows": [{"colour": ["red"]}]}', "'colour' is a list, not a text"),
        (b'{"rows": [{"colour": "\\ud800"}]}', "not valid JSON"),
        (b'{"rows": [{"rooms": 3}], "level": 1}', "between 0 and 1"),
    ],
)
def test_json_that_cannot_be_read_is_refused(houses, body, words):
    refused(houses.post("/predict", content=body, headers=FORMS["json"]), 422, words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (NAMES + b"\n", "no rows"),
        (NAMES + b"\n3,1,1,red\n4\n", "line 3"),
        (b"rooms,rooms\n3,4\n", "several columns of the name 'rooms'"),
        (NAMES + b"\n3,1,1,red\nmany,1,1,red\n", "line 3"),
        (NAMES + b"\n1_000,1,1,red\n", "not a number"),
        (NAMES + b'\n"3', "not closed"),
        (b"size\n3\n", "no columns 'rooms'"),
        (b"\xff", "not in UTF-8"),
    ],
)
def test_a_csv_that_cannot_be_read_is_refused(houses, body, words):
    refused(houses.post("/predict", content=body, headers=FORMS["csv"]), 422, words)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ([[0] * 8] * 7, "another size"),
        ([[0] * 7] * 8, "another size"),
        (3, "another size"),
        ([["0"] * 8] * 8, "something else than numbers"),
        ([[True] * 8] * 8, "something else than numbers"),
        ([[256] * 8] * 8, "below 0 or above 255"),
        ("not base64!", "not base64"),
        ("AAAA", "not a PNG or JPEG"),
        (picture((8, 8), "GIF"), "not a PNG or JPEG"),
        (picture((5000, 5000)), "25,000,000 pixels"),
        (picture((80, 80))[:88], "is damaged"),
    ],
)
def test_images_that_are_none_are_refused(clients, image, words):
    refused(clients["digits"].post("/predict", json={"images": [image]}), 422, words, "8 lists of 8 values")


def test_types_that_it_does_not_read_are_refused(houses, clients):
    for headers in (
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ):
        refused(houses.post("/predict", content=b"{}", headers=headers), 415)
    refused(clients["digits"].post("/predict", content=b"a\n1\n", headers=FORMS["csv"]), 415, "images")


def test_a_level_in_the_address_that_is_none_is_refused(houses):
    refused(houses.post("/predict", json={"rows": [HOUSE]}, params={"level": "ninety"}), 422, "between 0 and 1")
    refused(houses.post("/predict", json={"rows": [HOUSE]}, params={"levle": 0.5}), 422, "no parameter 'levle'")


def test_more_rows_than_allowed_are_refused(houses):
    refused(houses.post("/predict", json={"rows": [HOUSE] * 1001}), 413, "more than 1,000 rows")
    refused(houses.post("/predict", content=NAMES + b"\n" + b"1,1,1,red\n" * 1001, headers=FORMS["csv"]), 413)


def test_a_header_of_a_million_names_is_refused_at_once(shipped):
    client = TestClient(make_app(shipped["houses"]))
    for mark in (b",", b";"):
        refused(client.post("/predict", content=mark.join([b"c"] * 1_000_000), headers=FORMS["csv"]), 413, "names more")
    refused(client.post("/predict", content=b"PAR1", headers=FORMS["csv"]), 415, "Parquet")


def test_a_longer_body_than_allowed_is_refused_also_if_it_does_not_say_its_length(houses):
    refused(houses.post("/predict", content=b" " * 400_001, headers=FORMS["json"]), 413, "400,000 bytes")
    pieces = (b" " * 100_000 for _ in range(5))
    refused(houses.post("/predict", content=pieces, headers=FORMS["json"]), 413, "400,000 bytes")


def test_what_takes_too_long_is_refused(shipped):
    class Slow:
        schema, version = shipped["field"].schema, "0"

        def predict(self, inputs):
            time.sleep(0.2)

    client = TestClient(make_app(Slow(), Limits(seconds=0.01)))  # pyright: ignore[reportArgumentType]
    refused(client.post("/predict", json={"rows": [{"east": 0, "north": 0}]}), 503, "longer than 0.01 seconds")


def test_a_path_or_method_that_is_not_there_is_refused(houses):
    refused(houses.get("/predictions"), 404, "/predict")
    refused(houses.get("/predict"), 405, "POST")


def test_a_fault_of_the_service_is_told_without_its_insides(shipped):
    class Broken:
        schema, version = shipped["field"].schema, "0"

        def predict(self, inputs):
            raise KeyError("a secret")

    client = TestClient(make_app(Broken()), raise_server_exceptions=False)  # pyright: ignore[reportArgumentType]
    content = refused(client.post("/predict", json={"rows": [{"east": 0, "north": 0}]}), 500)
    assert "secret" not in json.dumps(content)


@pytest.mark.parametrize("limit", [{"body": 0}, {"rows": 1.5}, {"seconds": -1}])
def test_limits_that_are_none_are_refused(limit):
    with pytest.raises(InvalidInput, match=next(iter(limit))):
        Limits(**limit)


# What nobody thought of


@pytest.fixture(scope="module")
def described(clients):
    return [(client, client.get("/openapi.json").json()) for client in (clients["houses"], clients["digits"])]


@settings(max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False), images=st.integers(0, 4))
def test_no_request_makes_it_fail(described, rng, images):
    client, openapi = described[images == 0]
    wrong = malformed(openapi, rng)
    # What the service raises is raised here, and is no answer of 500.
    answer = client.post(wrong.path, content=wrong.body, headers=wrong.headers)
    assert answer.status_code < 500
    if answer.status_code != 200:
        refused(answer, answer.status_code)
    elif answer.headers["content-type"] == "application/json":
        json.loads(answer.text, parse_constant=pytest.fail)


# The process


def test_it_listens_where_nobody_else_does(tmp_path):
    folder = shipped_models.write(tmp_path, "field")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port} of 127.0.0.1 is in use: name another"):
            serve(folder, port=port)
    with pytest.raises(InvalidInput, match="port must lie in"):
        serve(folder, port=70_000)
    with pytest.raises(InvalidInput, match="not an address of this machine"):
        serve(folder, host="no such host", port=0)


def test_there_is_no_jax_in_a_process_that_has_answered(tmp_path):
    shipped_models.write(tmp_path, "houses")
    program = f"""
import sys, threading, urllib.request, io, contextlib
from darkbayes.serve import serve
said = io.StringIO()
with contextlib.redirect_stdout(said):
    threading.Thread(target=serve, args=({str(tmp_path)!r},), kwargs=dict(port=0, quiet=True), daemon=True).start()
    while "\\n" not in said.getvalue():
        pass
row = b'{{"rooms": 5, "crime rate": 1, "distance": 2, "colour": "red"}}'
request = urllib.request.Request(said.getvalue().strip() + "/predict", b'{{"rows": [' + row + b"]}}")
request.add_header("Content-Type", "application/json")
for attempt in range(100):
    try:
        print(urllib.request.urlopen(request).status)
        break
    except ConnectionError:
        pass
print([name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib", "equinox", "optax", "pyarrow")])
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=900)
    assert done.stdout.split("\n")[:2] == ["200", "[]"], done.stderr


def test_csv_holds_no_formulas():
    target = ClassTarget("kind", ("=1+1", "-2"))
    prediction = ClassPrediction.from_probs([[0.75, 0.25], [0.25, 0.75]], np.asarray([0.5, 0.25]))
    lines = as_csv(prediction, target, 0.9, {"outside": np.asarray(["@x is unknown", None], object)}).decode()
    _, first, second = csv.reader(lines.splitlines())
    assert (first[0], first[-1]) == ("'=1+1", "'@x is unknown")
    assert (second[0], second[-1]) == ("-2", "")
