"""The Open Inference Protocol: what Triton's client sends is answered, and what cannot be right is refused."""

import json
import struct
import warnings

import numpy as np
import pytest

from darkbayes.serve import Limits, make_app
from darkbayes.serve.server import model_name
from served import served

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

HEAD = "Inference-Header-Content-Length"
INFER = "/v2/models/houses/infer"
# Recorded from tritonclient 2: two rows, the second without its first number and its category.
BINARY = (
    b'{"id":"7","inputs":[{"name":"numbers","shape":[2,3],"datatype":"FP64","parameters":{"binary_data_size":48}},'
    b'{"name":"categories","shape":[2,1],"datatype":"BYTES","parameters":{"binary_data_size":11}}],%s}'
)
DATA = (
    b"\x00\x00\x00\x00\x00\x00\x14@\x00\x00\x00\x00\x00\x00\xe0?\x00\x00\x00\x00\x00\x00\n@\x00\x00\x00\x00\x00\x00"
    b"\xf8\x7f\x00\x00\x00\x00\x00\x00\xf0?\x00\x00\x00\x00\x00\x00\x00@\x03\x00\x00\x00red\x00\x00\x00\x00"
)
ALL_BINARY = b'"parameters":{"binary_data_output":true}'
TWO = b'"outputs":[{"name":"mean","parameters":{"binary_data":false}},{"name":"std","parameters":{"binary_data":true}}]'
LISTED = (
    b'{"id":"7","inputs":[{"name":"numbers","shape":[2,3],"datatype":"FP64","data":[5.0,0.5,3.25,%s,1.0,2.0]},'
    b'{"name":"categories","shape":[2,1],"datatype":"BYTES","data":["red",%s]}],%s}'
)


@pytest.fixture(scope="module")
def client(shipped):
    return TestClient(make_app(shipped["houses"], Limits(rows=100), name="houses"))


@pytest.fixture(scope="module")
def truth(shipped):
    frame = {
        "rooms": np.asarray([5.0, np.nan]),
        "crime rate": np.asarray([0.5, 1.0]),
        "distance": np.asarray([3.25, 2.0]),
        "colour": np.asarray(["red", None], object),
    }
    return shipped["houses"].predict(frame)


def values_of(answer):
    """The outputs of an answer, whether they came as JSON or in binary."""
    head = answer.headers.get(HEAD)
    content = json.loads(answer.content[: None if head is None else int(head)])
    raw, values = answer.content[len(answer.content) if head is None else int(head) :], {}
    for output in content["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        flat = np.frombuffer(raw[:size], "<f8") if size else np.asarray(output["data"])
        assert output["datatype"] == "FP64"
        values[output["name"]], raw = flat.reshape(output["shape"]), raw[size:]
    assert not raw
    assert (content["model_name"], content["model_version"], content["id"]) == ("houses", "1", "7")
    return values


@pytest.mark.parametrize("asked", [ALL_BINARY, TWO])
@pytest.mark.parametrize("form", ["binary", "NaN", "null"])
def test_what_tritons_client_sends_is_answered_as_the_student_predicts(client, truth, form, asked):
    if form == "binary":
        head = BINARY % asked
        answer = client.post(INFER, content=head + DATA, headers={HEAD: str(len(head))})
    else:
        answer = client.post(INFER, content=LISTED % (form.encode(), b'""' if form == "NaN" else b"null", asked))
    assert answer.status_code == 200, answer.text
    values = values_of(answer)
    assert list(values) == ["mean", "std"] or len(values) == 6
    for name in values:
        np.testing.assert_allclose(values[name], np.ravel(getattr(truth, name)), rtol=1e-12)


@pytest.mark.filterwarnings("ignore")  # Of gevent's own.
def test_tritons_own_client_is_answered_as_the_student_predicts(shipped, truth):
    http = pytest.importorskip("tritonclient.http", reason="needs Triton's client: pip install '.[triton]'")
    with served(shipped["houses"]) as address, http.InferenceServerClient(address.removeprefix("http://")) as client:
        name = model_name(shipped["houses"].path)
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready(name)
        assert [one["name"] for one in client.get_model_metadata(name)["inputs"]] == ["numbers", "categories"]
        numbers = http.InferInput("numbers", [2, 3], "FP64")
        numbers.set_data_from_numpy(np.asarray([[5.0, 0.5, 3.25], [np.nan, 1.0, 2.0]]))
        for binary in (True, False):
            categories = http.InferInput("categories", [2, 1], "BYTES")
            categories.set_data_from_numpy(np.asarray([["red"], [""]], object), binary_data=binary)
            asked = [http.InferRequestedOutput(one, binary_data=binary) for one in ("mean", "std")]
            answer = client.infer(name, [numbers, categories], outputs=asked)
            for one in ("mean", "std"):
                np.testing.assert_allclose(np.ravel(answer.as_numpy(one)), np.ravel(getattr(truth, one)), rtol=1e-12)
        wrong = http.InferInput("numbers", [1, 2], "FP64")
        wrong.set_data_from_numpy(np.ones((1, 2)))
        with pytest.raises(http.InferenceServerException, match="shape"):
            client.infer(name, [wrong, categories])


def test_the_model_is_described_as_its_file_is(client, shipped):
    about = client.get("/v2/models/houses").json()
    inputs = {one["name"]: (one["datatype"], one["shape"]) for one in about["inputs"]}
    assert inputs == {"numbers": ("FP64", [-1, 3]), "categories": ("BYTES", [-1, 1])}
    assert [one["name"] for one in about["outputs"]] == [one.name for one in shipped["houses"].tensors[1]]
    assert about == client.get("/v2/models/houses/versions/1").json()
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    for path in (
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/houses/ready",
        "/v2/models/houses/versions/1/ready",
    ):
        assert client.get(path).status_code == 200
    for path in ("/v2/models/other", "/v2/models/houses/versions/2", "/v2/models/other/ready"):
        assert client.get(path).status_code == 404


def test_images_are_tensors_of_any_numeric_type(shipped):
    client = TestClient(make_app(shipped["digits"], name="digits"))
    image = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8)
    one: dict = {"name": "images", "shape": [1, 1, 8, 8], "datatype": "UINT8"}
    listed = client.post("/v2/models/digits/infer", json={"inputs": [one | {"data": image.tolist()}]})
    head = json.dumps({"inputs": [one | {"parameters": {"binary_data_size": 64}}]}).encode()
    packed = client.post("/v2/models/digits/infer", content=head + image.tobytes(), headers={HEAD: str(len(head))})
    assert listed.json() == packed.json()
    probs = next(output for output in listed.json()["outputs"] if output["name"] == "probs")
    np.testing.assert_allclose(probs["data"], shipped["digits"].predict(image.astype(np.float32)).probs[0], rtol=1e-6)
    answer = client.post("/v2/models/digits/infer", json={"inputs": [one | {"data": [256] * 64}]})
    assert (answer.status_code, "above 255" in answer.text) == (422, True)


NUMBERS = {"name": "numbers", "shape": [1, 3], "datatype": "FP64", "data": [1, 2, 3]}
CATEGORIES = {"name": "categories", "shape": [1, 1], "datatype": "BYTES", "data": ["red"]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "no list of objects under 'inputs'"),
        ({"inputs": [3]}, "no list of objects"),
        ({"inputs": [CATEGORIES]}, "'numbers' is missing"),
        ({"inputs": [NUMBERS, NUMBERS]}, "once each"),
        ({"inputs": [NUMBERS | {"name": ["numbers"]}]}, "a list"),
        ({"inputs": [NUMBERS | {"shape": [1, 2]}, CATEGORIES]}, "shape"),
        ({"inputs": [NUMBERS | {"shape": [3]}, CATEGORIES]}, "shape"),
        ({"inputs": [NUMBERS | {"shape": [True, 3]}, CATEGORIES]}, "shape"),
        ({"inputs": [NUMBERS | {"shape": [0, 3], "data": []}, CATEGORIES]}, "0 rows"),
        ({"inputs": [NUMBERS | {"shape": [2, 3]}, CATEGORIES]}, "3 values"),
        ({"inputs": [NUMBERS | {"shape": [2, 3], "data": [1] * 6}, CATEGORIES]}, "different numbers of rows"),
        ({"inputs": [NUMBERS | {"datatype": "BYTES"}, CATEGORIES]}, "where FP64 is read"),
        ({"inputs": [NUMBERS | {"datatype": None}, CATEGORIES]}, "None"),
        ({"inputs": [NUMBERS, CATEGORIES | {"datatype": "FP64"}]}, "where BYTES is read"),
        ({"inputs": [NUMBERS | {"data": [1, "2", 3]}, CATEGORIES]}, "not a number"),
        ({"inputs": [NUMBERS | {"data": [[1, 2], 3]}, CATEGORIES]}, "side by side"),
        ({"inputs": [NUMBERS | {"data": [1, 2, 10**400]}, CATEGORIES]}, "cannot be read"),
        ({"inputs": [NUMBERS | {"data": [1, 2, float("inf")]}, CATEGORIES]}, "infinite"),
        ({"inputs": [NUMBERS | {"data": None}, CATEGORIES]}, "not a list"),
        ({"inputs": [NUMBERS, CATEGORIES | {"data": [3]}]}, "not a text"),
        ({"inputs": [NUMBERS | {"parameters": {"binary_data_size": 24}}, CATEGORIES]}, "0 more"),
        ({"inputs": [NUMBERS | {"parameters": []}, CATEGORIES]}, "not an object"),
        ({"inputs": [NUMBERS, CATEGORIES], "outputs": [{"name": "median"}]}, "'mean'"),
        ({"inputs": [NUMBERS, CATEGORIES], "outputs": [{"name": "mean"}] * 9}, "once each"),
        ({"inputs": [NUMBERS, CATEGORIES], "id": 7}, "not a text"),
    ],
)
def test_what_cannot_be_right_is_refused(client, content, words):
    answer = client.post(INFER, content=json.dumps(content))
    assert (answer.status_code, words in answer.json()["error"]) == (422, True), answer.text


@pytest.mark.parametrize(
    ("head", "data", "length", "words"),
    [
        (b"{}", b"", "3", "has 2 bytes"),
        (b"{}", b"", "-1", "'-1'"),
        (BINARY % ALL_BINARY, DATA[:-1], None, "bytes of binary data"),
        (BINARY % ALL_BINARY, DATA + b"x", None, "belong to no input"),
        (BINARY % ALL_BINARY, DATA[:48] + struct.pack("<I", 2**31) + b"\0" * 7, None, "longer than its bytes"),
        (BINARY % ALL_BINARY, DATA[:48] + b"\x03\x00\x00\x00\xff\xff\xff\x00\x00\x00\x00", None, "cannot be read"),
        ((BINARY % ALL_BINARY).replace(b"48", b"47"), DATA, None, "cannot be read"),
        ((BINARY % ALL_BINARY).replace(b"FP64", b"INT3"), DATA, None, "'INT3'"),
    ],
)
def test_binary_data_that_do_not_fit_are_refused(client, head, data, length, words):
    answer = client.post(INFER, content=head + data, headers={HEAD: length or str(len(head))})
    assert (answer.status_code, words in answer.json()["error"]) == (422, True), answer.text


def test_more_rows_than_allowed_are_refused(client):
    many = {"inputs": [NUMBERS | {"shape": [101, 3], "data": [1] * 303}, CATEGORIES]}
    assert client.post(INFER, json=many).status_code == 413
