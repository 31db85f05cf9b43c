"""Who may ask the service, and what it counts and logs of it."""

import base64
import json
import re
import warnings

import pytest

from darkbayes.errors import InvalidInput
from darkbayes.serve import make_app

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

HERE = ("localhost", "127.0.0.1", "::1")


@pytest.fixture(scope="module")
def here(shipped):
    return TestClient(make_app(shipped["field"], hosts=[*HERE, "Models.Example.org"]))


@pytest.fixture(scope="module")
def secret(shipped):
    return TestClient(make_app(shipped["field"], token="correct horse"))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("models.example.org", 200),
        ("models.example.org.", 200),
        ("rebound.example.org", 421),
        ("localhost.example.org", 421),
        ("127.0.0.1@example.org", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_it_is_called_by_its_names_only(here, host, status):
    answer = here.get("/schema", headers={"host": host})
    assert answer.status_code == status, answer.text
    assert here.get("/healthz", headers={"host": host}).status_code == 200, "probes have no names"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 200),
        ("https://models.example.org", 200),
        ("http://localhost:9000", 403),
        ("https://example.org", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_only_its_own_pages_may_ask(here, shipped, origin, status):
    headers = {"host": "localhost:8000", "origin": origin}
    assert here.get("/schema", headers=headers).status_code == status
    anywhere = TestClient(make_app(shipped["field"]))
    own = 200 if origin == "http://localhost:8000" else 403
    assert anywhere.get("/schema", headers=headers).status_code == own


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (b"Bearer correct horse", 200),
        (b"bearer  correct horse ", 200),
        (b"Basic " + base64.b64encode(b"anybody:correct horse"), 200),
        (b"Basic " + base64.b64encode(b"correct horse"), 401),
        (b"Basic !!", 401),
        (b"Bearer correct hors", 401),
        (b"Bearer correct horse2", 401),
        (b"Bearer \xff", 401),
        (b"Bearer ", 401),
        (b"correct horse", 401),
        (b"", 401),
    ],
)
def test_who_has_no_token_learns_nothing_but_that_it_is_well(secret, authorization, status):
    headers = {b"authorization": authorization}
    for path in ("/schema", "/", "/metrics", "/v2", "/nothing"):
        answer = secret.get(path, headers=headers)
        assert answer.status_code == (404 if (path, status) == ("/nothing", 200) else status)
        assert ("www-authenticate" in answer.headers) == (status == 401)
    assert secret.post("/predict", headers=headers, json={"rows": [{"east": 0, "north": 0}]}).status_code == status
    assert secret.get("/livez", headers=headers).status_code == 200


@pytest.mark.parametrize("token", ["short", " spaces around ", "pässwort-utf8"])
def test_tokens_that_cannot_be_sent_or_are_guessed_are_refused(shipped, token):
    with pytest.raises(InvalidInput, match="DARKBAYES_TOKEN"):
        make_app(shipped["field"], token=token)


def test_no_answer_is_taken_for_another_kind(here, secret):
    for answer in (here.get("/", headers={"host": "localhost"}), here.get("/schema"), secret.get("/schema")):
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_is_counted_is_what_was_asked(shipped):
    client = TestClient(make_app(shipped["field"], name='a"b'))
    client.post("/predict", json={"rows": [{"east": 0, "north": 0}] * 3})
    client.post("/predict", content=b"nonsense")
    for k in range(20):
        client.get(f"/made/up/{k}")
    lines = client.get("/metrics").text.split("\n")
    assert 'darkbayes_requests_total{route="/predict",method="POST",status="200"} 1' in lines
    assert 'darkbayes_requests_total{route="/predict",method="POST",status="422"} 1' in lines
    assert 'darkbayes_requests_total{route="none",method="GET",status="404"} 20' in lines
    assert "darkbayes_rows_total 3" in lines
    assert 'darkbayes_request_seconds_bucket{route="/predict",le="+Inf"} 2' in lines
    assert 'darkbayes_request_seconds_count{route="/predict"} 2' in lines
    assert any(line.startswith('darkbayes_model_info{model="a\\"b",target="price"') for line in lines)
    # Each line is what the format allows, and each family is declared before its samples.
    sample = re.compile(r'([a-z_]+)(\{[a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*\})? -?[0-9.e+-]+')
    declared = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    for line in filter(None, lines):
        if not line.startswith("#"):
            name = sample.fullmatch(line)
            assert name is not None, line
            assert re.sub("_(bucket|sum|count)$", "", name[1]) in declared


def test_each_request_is_a_line_of_json_in_the_log(shipped, capsys):
    client = TestClient(make_app(shipped["field"], log=True, hosts=["testserver"]))
    client.get("/livez")
    client.get("/schema", headers={"host": "other\n"})
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["method"], first["path"], first["status"], first["bytes"]) == ("GET", "/livez", 200, 15)
    assert second["status"] == 421
    assert first["seconds"] >= 0
