"""What the service answers: ``/predict``, ``/schema``, ``/healthz``, ``/livez``, ``/metrics``, the Open Inference
Protocol under ``/v2``, a page to try the model at ``/`` and one of the API at ``/docs``.

What a request is told when it is refused is JSON: ``error`` (what was wrong), ``remedy`` (what to do) and, where it can
be said, ``where``. Bodies are read here and handed on as they are: whatever takes time is the pool's.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from darkbayes.serve import inference
from darkbayes.serve.description import SUMMARY, describe_model, describe_predict, responses
from darkbayes.serve.gate import Gate
from darkbayes.serve.limits import LIMITS, Limits, Refused, as_bytes, busy
from darkbayes.serve.measures import MEDIA_TYPE, Measures
from darkbayes.serve.pool import SMALL, Pool, Threads
from darkbayes.serve.reading import read_level
from darkbayes.serve.work import JSON, Task, Worker
from darkbayes.shipped import Shipped
from darkbayes.version import __version__

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""What the pages may load: nothing but what they hold and what this service answers."""
ROUTES = "/, /predict, /schema, /healthz, /livez, /metrics, /v2, /docs and /openapi.json"


def make_app(
    shipped: Shipped,
    limits: Limits = LIMITS,
    *,
    name: str = "student",
    pool: Pool | None = None,
    connections: Callable[[], int] = lambda: 0,
    measures: Measures | None = None,
    **gate: Any,
) -> Gate:
    """The service of one student, as an ASGI application.

    Args:
        shipped: the student.
        limits: of requests.
        name: what the Open Inference Protocol calls the student.
        pool: who answers; threads of this process if None.
        connections: how many are open.
        measures: what counts requests.
        **gate: `hosts`, `token` and `log` of the `Gate` around it.

    Returns:
        The application.
    """
    worker, counts = Worker(shipped, limits, name), measures or Measures()
    workers = pool or Threads(worker)

    target = shipped.schema.target
    about: dict[str, Any] = {"title": f"Predictions of {target.name}", "version": __version__, "description": SUMMARY}
    app = FastAPI(**about, docs_url=None, redoc_url=None)
    for kind, handler in ((Refused, _refused), (HTTPException, _no_route)):
        app.add_exception_handler(kind, handler)
    model, bodies = describe_model(shipped.version, worker.reader), Bodies(limits)
    described: dict[str, Any] = {
        "responses": responses(shipped.schema),
        "openapi_extra": describe_predict(worker.reader),
    }

    async def answer(task: Task) -> Response:
        done = await workers.run(task)
        counts.rows += done.rows
        return Response(done.body, done.status, done.headers, done.media_type)

    @app.post("/predict", summary="Predict rows", response_model=None, **described)
    async def predict(request: Request) -> Response:
        sends_csv, wants_csv, level = _sends_csv(request), _wants_csv(request), _level(request)
        async with bodies.hold(request) as body:
            return await answer(Task(body, sends_csv=sends_csv, wants_csv=wants_csv, level=level))

    @app.get("/schema", summary="The columns that the model reads, and what it predicts")
    async def schema() -> dict[str, Any]:
        return model

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", summary="Whether the service can predict: its processes are alive and have loaded the model")
    async def healthz() -> Response:
        status = "ok" if workers.ready else "unavailable"
        content = {"status": status, "version": __version__, "workers": workers.state()}
        return _json(200 if workers.ready else 503, content)

    @app.head("/livez", include_in_schema=False)
    @app.get("/livez", summary="Whether the service answers at all")
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Counters for Prometheus", response_model=None)
    async def metrics() -> Response:
        facts = {"model": name, "target": target.name, "task": target.task, "version": shipped.version}
        return Response(counts.text(facts, workers.state(), connections()), media_type=MEDIA_TYPE)

    async def infer(request: Request) -> Response:
        head = _head_length(request)
        async with bodies.hold(request) as body:
            return await answer(Task(body, "infer", head=head))

    _add_protocol(app, shipped, name, workers, infer)
    for path, page in (("/", "page"), ("/docs", "api")):
        app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(_page(page))
    return Gate(app, measures=counts, **gate)


def _add_protocol(app: FastAPI, shipped: Shipped, name: str, pool: Pool, infer: Callable[..., Any]) -> None:
    """The Open Inference Protocol's routes, under ``/v2``."""
    quietly: Any = {"include_in_schema": False, "response_model": None}

    def ready() -> Response:
        return _json(200 if pool.ready else 503, {"name": name, "ready": pool.ready})

    @app.get("/v2", **quietly)
    async def server() -> Response:
        return _json(200, {"name": "darkbayes", "version": __version__, "extensions": ["binary_tensor_data"]})

    @app.get("/v2/health/live", **quietly)
    async def live() -> Response:
        return _json(200, {"live": True})

    @app.get("/v2/health/ready", **quietly)
    async def server_ready() -> Response:
        return ready()

    def check(request: Request) -> None:
        asked, version = request.path_params["model"], request.path_params.get("version", inference.VERSION)
        if (asked, version) != (name, inference.VERSION):
            error = f"there is no model {asked[:100]!r} of version {version[:20]!r}"
            raise Refused(404, error, f"the model is called {name!r}, and its version {inference.VERSION!r}")

    for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):

        @app.get(path, **quietly)
        async def metadata(request: Request) -> Response:
            check(request)
            return _json(200, inference.describe(shipped, name))

        @app.get(f"{path}/ready", **quietly)
        async def model_ready(request: Request) -> Response:
            check(request)
            return ready()

        @app.post(f"{path}/infer", **quietly)
        async def model_infer(request: Request) -> Response:
            check(request)
            return await infer(request)


class Bodies:
    """Reads bodies, and knows how much of them is held."""

    def __init__(self, limits: Limits):
        self.limits, self.held = limits, 0

    @contextlib.asynccontextmanager
    async def hold(self, request: Request) -> AsyncIterator[bytes]:
        """A request's body, which is held until the request has been answered."""
        limits, parts, size, held = self.limits, [], 0, 0
        # Where the rest of a body is not read, the connection closes: it would be taken for the next request.
        try:
            try:
                async with asyncio.timeout(limits.seconds):
                    async for chunk in request.stream():
                        size += len(chunk)
                        parts.append(chunk)
                        # What is too long is read for a while: whoever still sends cannot read the answer.
                        if size > limits.body:
                            parts.clear()
                        if size > 4 * limits.body:
                            break
                        # Small ones are always taken: their number is that of connections.
                        if SMALL < size <= limits.body:
                            self.held, held = self.held + size - held, size
                            if self.held > limits.bodies:
                                raise busy("the service holds too many large bodies", connection="close")
            except TimeoutError:
                if size <= limits.body:
                    remedy = "send it faster, or in several requests"
                    error = f"the body did not arrive in {limits.seconds:g} seconds"
                    raise Refused(408, error, remedy, connection="close") from None
            except ClientDisconnect:
                error = "the connection was closed before the body had arrived"
                raise Refused(400, error, "send it again", connection="close") from None
            if size > limits.body:
                error = f"the body has more than {limits.body:,} bytes"
                raise Refused(413, error, "send the rows in several requests", connection="close")
            yield b"".join(parts)
        finally:
            self.held -= held


def _page(name: str) -> Callable[[], Awaitable[HTMLResponse]]:
    text = resources.files("darkbayes.serve").joinpath(f"{name}.html").read_text(encoding="utf-8")

    async def page() -> HTMLResponse:
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"})

    return page


def _sends_csv(request: Request) -> bool:
    """Whether the body is CSV rather than JSON, which it is if it does not say; what it says may be refused."""
    kind, *parameters = (part.strip().lower() for part in request.headers.get("content-type", "").split(";"))
    remedy = "send application/json or text/csv, in UTF-8"
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip(" \"'") not in ("utf-8", "utf8", "us-ascii"):
            raise Refused(415, f"the body is in {value[:40]!r}", remedy, "content-type")
    _check_encoding(request)
    if kind not in ("", JSON, "text/csv"):
        raise Refused(415, f"the body is {kind[:40]!r}", remedy, "content-type")
    return kind == "text/csv"


def _check_encoding(request: Request) -> None:
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(415, "the body is compressed", "send it as it is", "content-encoding")


def _wants_csv(request: Request) -> bool:
    kinds = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    return "text/csv" in kinds and JSON not in kinds


def _level(request: Request) -> float | None:
    if others := [name for name in request.query_params if name != "level"]:
        raise Refused(422, f"there is no parameter {others[0][:40]!r}", "the only one is level", others[0][:40])
    try:
        return read_level(request.query_params.get("level"))
    except ValueError as problem:
        raise Refused(422, f"level is {problem}", "give a number between 0 and 1, such as 0.9", "level") from None


def _head_length(request: Request) -> int | None:
    """How many bytes of the body are JSON, if binary tensors follow."""
    _check_encoding(request)
    value = request.headers.get(inference.HEAD)
    if value is not None and not re.fullmatch("[0-9]{1,10}", value):
        raise Refused(422, f"{inference.HEAD} is {value[:40]!r}", "send the number of bytes of JSON", inference.HEAD)
    return None if value is None else int(value)


async def _refused(request: Request, problem: Any) -> Response:
    return Response(problem.body, problem.status, problem.headers, JSON)


async def _no_route(request: Request, problem: Any) -> Response:
    words = {
        404: (f"there is nothing at {request.url.path[:100]}", f"there are {ROUTES}"),
        405: (f"{request.method} is not answered here", "POST to /predict, GET all else"),
    }
    error, remedy = words.get(problem.status_code, (str(problem.detail), "see /docs"))
    return _json(problem.status_code, {"error": error, "remedy": remedy}, problem.headers)


def _json(status: int, content: dict[str, Any], headers: Any = None) -> Response:
    return Response(as_bytes(content), status, headers, JSON)
