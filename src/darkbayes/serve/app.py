"""The service: ``/predict``, ``/schema``, ``/healthz``, a page to try the model at ``/`` and one of the API at
``/docs``.

What a request is told when it is refused is JSON: ``error`` (what was wrong), ``remedy`` (what to do) and, where it can
be said, ``where``.
"""

import asyncio
import contextlib
import errno
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from darkbayes.errors import InvalidInput, require_count
from darkbayes.serve.description import SUMMARY, as_csv, as_json, describe_model, describe_predict, responses
from darkbayes.serve.reading import LIMITS, Limits, Reader, Refused, read_level
from darkbayes.shipped import Shipped
from darkbayes.version import __version__

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""What the pages may load: nothing but what they hold and what this service answers."""
MOST_TOLD = 4000  # Bytes of notes that travel in the head of a CSV's answer.
HOST, PORT, MOST_PORT = "127.0.0.1", 8000, 2**16 - 1
GRACE = 5  # Seconds that requests have to finish in when the service is stopped.
ROUTES = "/, /predict, /schema, /healthz, /docs and /openapi.json"


def make_app(shipped: Shipped, limits: Limits = LIMITS) -> FastAPI:
    """The service of one student; `limits` holds for each request."""
    # What took too long goes on in its thread and keeps it busy, so that a machine that is behind refuses early.
    pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="predict")

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        pool.shutdown(wait=False, cancel_futures=True)

    target, reader = shipped.schema.target, Reader(shipped.schema, limits)
    about: dict[str, Any] = {"title": f"Predictions of {target.name}", "version": __version__, "description": SUMMARY}
    app = FastAPI(**about, docs_url=None, redoc_url=None, lifespan=lifespan)
    for kind, handler in ((Refused, _refused), (HTTPException, _no_route), (Exception, _failed)):
        app.add_exception_handler(kind, handler)
    model = describe_model(shipped.version, reader)
    described: dict[str, Any] = {"responses": responses(shipped.schema), "openapi_extra": describe_predict(reader)}

    @app.post("/predict", summary="Predict rows", response_model=None, **described)
    async def predict(request: Request) -> Response:
        read = reader.csv if _sends_csv(request) else reader.json
        try:
            level = read_level(request.query_params.get("level"))
        except ValueError as problem:
            raise Refused(422, f"level is {problem}", "give a number between 0 and 1, such as 0.9", "level") from None
        wants_csv = _wants_csv(request)
        body = await _body(request, limits)

        def work() -> Response:
            asked = read(body)
            chosen = asked.level or level or target.level
            prediction, outside = shipped.predict(asked.inputs), shipped.schema.outside(asked.inputs)
            if not wants_csv:
                return Response(
                    as_json(prediction, target, chosen, outside, asked.notes), media_type="application/json"
                )
            head = {"darkbayes-notes": json.dumps(asked.notes)[:MOST_TOLD]}
            return Response(as_csv(prediction, target, chosen, outside), media_type="text/csv", headers=head)

        running = asyncio.get_running_loop().run_in_executor(pool, work)
        try:
            return await asyncio.wait_for(running, limits.seconds)
        except TimeoutError:
            error = f"the answer took longer than {limits.seconds:g} seconds"
            raise Refused(503, error, "send fewer rows, or try again when the service is less busy") from None

    @app.get("/schema", summary="The columns that the model reads, and what it predicts")
    async def schema() -> dict[str, Any]:
        return model

    @app.get("/healthz", summary="Whether the service is up")
    async def healthz() -> dict[str, str]:
        return {"status": "ok", "version": __version__, "target": target.name}

    for path, name in (("/", "page"), ("/docs", "api")):
        app.get(path, include_in_schema=False)(_page(name))
    return app


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
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(415, "the body is compressed", "send it as it is", "content-encoding")
    if kind not in ("", "application/json", "text/csv"):
        raise Refused(415, f"the body is {kind[:40]!r}", remedy, "content-type")
    return kind == "text/csv"


def _wants_csv(request: Request) -> bool:
    kinds = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    return "text/csv" in kinds and "application/json" not in kinds


async def _body(request: Request, limits: Limits) -> bytes:
    """The body; what is too long is read to its end all the same: whoever still sends cannot read the answer."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limits.body:
                    parts.append(chunk)
                else:
                    parts.clear()
    except TimeoutError:
        if size <= limits.body:
            remedy = "send it faster, or in several requests"
            raise Refused(408, f"the body did not arrive in {limits.seconds:g} seconds", remedy) from None
    except ClientDisconnect:
        raise Refused(400, "the connection was closed before the body had arrived", "send it again") from None
    if size > limits.body:
        raise Refused(413, f"the body has more than {limits.body:,} bytes", "send the rows in several requests")
    return b"".join(parts)


async def _refused(request: Request, problem: Any) -> Response:
    # A body that did not arrive in full would be taken for the next request of the connection.
    headers = {"Connection": "close"} if problem.status in (400, 408, 413) else None
    return _json(problem.status, problem.content, headers)


async def _no_route(request: Request, problem: Any) -> Response:
    words = {
        404: (f"there is nothing at {request.url.path[:100]}", f"there are {ROUTES}"),
        405: (f"{request.method} is not answered here", "POST to /predict, GET all else"),
    }
    error, remedy = words.get(problem.status_code, (str(problem.detail), "see /docs"))
    return _json(problem.status_code, {"error": error, "remedy": remedy}, problem.headers)


async def _failed(request: Request, problem: Exception) -> Response:
    remedy = "this is a fault of the service: see its log, and report it"
    return _json(500, {"error": f"the service failed ({type(problem).__name__})", "remedy": remedy})


def _json(status: int, content: dict[str, Any], headers: Any = None) -> Response:
    # With what is not ASCII escaped: half of a surrogate pair in a quoted name has no UTF-8.
    return Response(json.dumps(content), status, headers, media_type="application/json")


def serve(
    path: Path | str, *, host: str = HOST, port: int = PORT, limits: Limits = LIMITS, quiet: bool = False
) -> None:
    """Serve the student of a run's folder or an ONNX file until interrupted; quiet, it says its address alone.

    By default only this machine can reach it, and nobody is asked for a password. Port 0 is any that is free.
    """
    import uvicorn

    shipped = Shipped(path)
    with _listening(host, port) as listener:
        app = make_app(shipped, limits)
        address, number = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"http://{shown}:{number}", flush=True)
        if not quiet:
            print(f"predicts {shipped.schema.target.name} from {shipped.path}; stop with Ctrl-C", flush=True)
            if not address.startswith("127.") and address != "::1":
                print("other machines can reach this address, and no password is asked for", flush=True)
        quietly: Any = {"log_level": "warning", "access_log": False, "server_header": False}
        config = uvicorn.Config(app, **quietly, timeout_graceful_shutdown=GRACE)
        # The customary way to stop it.
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that is bound, or why there is none."""
    if require_count("port", port, 0) > MOST_PORT:
        raise InvalidInput(f"port must lie in 0..{MOST_PORT}, not {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except (socket.gaierror, UnicodeError) as problem:
        raise InvalidInput(f"host {host!r} is no address of this machine ({problem}): try {HOST}") from None
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            error = f"port {port} of {host} is in use: name another, or 0 for any that is free"
        elif problem.errno == errno.EACCES:
            error = f"port {port} may not be used by this user: name one above 1023"
        else:
            error = f"nothing can listen on {host}:{port} ({problem.strerror}): try {HOST}"
        raise InvalidInput(error) from None
