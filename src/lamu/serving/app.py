"""The server: `POST /predict` with limits, and endpoints for health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lamu.serving.requests import ArrayRows, Batcher, Limits, Metrics, Question, Refused, TableRows, size_of
from lamu.typing import Document

__all__ = ["application", "document"]

_LEVEL = 0.9
_AT_ONCE = 4096  # bytes of a body that are parsed faster than handed to a thread


def application(rows: ArrayRows | TableRows, limits: Limits | None = None, version: str = "") -> Starlette:
    """Returns the ASGI application that answers with the predictions of a posterior."""
    limits = Limits() if limits is None else limits
    metrics = Metrics()
    batcher = Batcher(rows.answer, rows.programs, limits.rows, metrics)
    about: Document = {}

    async def predict(request: Request) -> Response:
        begun, counted = time.perf_counter(), metrics.waiting < limits.waiting
        try:
            if not counted:
                raise Refused(503, f"{limits.waiting} requests wait already; try again in a second")
            metrics.waiting += 1
            async with asyncio.timeout(limits.seconds):
                answer = await batcher.ask(await _question(request, rows, limits))
            response: Response = JSONResponse({"predictions": answer})
        except Refused as refusal:
            response = _refusal(refusal)
        except TimeoutError:
            response = _refusal(Refused(503, f"no answer within {limits.seconds:g} seconds; try again later"))
        except ClientDisconnect:
            response = _refusal(Refused(400, "the request ended before its body did"))
        finally:
            metrics.waiting -= counted
        metrics.answered(response.status_code, time.perf_counter() - begun)
        return response

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "waiting": metrics.waiting})

    async def openapi(_: Request) -> Response:
        return JSONResponse(about)

    async def numbers(_: Request) -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        count = 1
        while count <= size_of(limits.rows):  # compile and time all programs before the first request
            questions = [Question(rows.read(rows.example(count)), count, _LEVEL)]
            batcher.predicted(questions)
            answers = batcher.predicted(questions)
            about.update(about or document(rows, limits, version, answers[0][0]))
            count *= 4
        task = asyncio.create_task(batcher.run())
        try:
            yield
        finally:
            task.cancel()

    routes = [
        Route("/predict", predict, methods=["POST"]),
        Route("/healthz", health, methods=["GET"]),
        Route("/metrics", numbers, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _refusal(refusal: Refused) -> Response:
    headers = {"Retry-After": "1"} if refusal.status == 503 else {}
    return JSONResponse({"error": str(refusal)}, refusal.status, headers)


async def _question(request: Request, rows: ArrayRows | TableRows, limits: Limits) -> Question:
    """Reads and checks the body of a request."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "the body is not announced as JSON; send Content-Type: application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limits.body:
            raise Refused(413, f"the body has more than {limits.body:,} bytes; send fewer rows at a time")
    if len(body) <= _AT_ONCE:
        return _read(body, rows, limits)
    # In a thread, to keep the event loop free.
    return await asyncio.to_thread(_read, body, rows, limits)


def _read(body: bytes, rows: ArrayRows | TableRows, limits: Limits) -> Question:
    asked = _parsed(body)
    foreign = sorted(set(asked) - {"rows", "level"})
    if foreign:
        raise Refused(422, f"the request has the unknown entry {foreign[0][:60]!r}; it takes 'rows' and 'level'")
    given, level = asked.get("rows"), asked.get("level", _LEVEL)
    if not isinstance(given, list) or not given:
        raise Refused(422, "the request needs 'rows', a list of one row or more")
    if len(given) > limits.rows:
        raise Refused(413, f"the request has {len(given):,} rows, and {limits.rows:,} are taken at a time")
    if type(level) is not float or not 0.001 <= level <= 0.999:
        raise Refused(422, "the level is not a number from 0.001 to 0.999; for 90 % write 0.9")
    return Question(rows.read(given), len(given), level)


def _parsed(body: bytes) -> Document:
    try:
        asked: Any = json.loads(body, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else " ".join(str(error).split())[:200]
        raise Refused(400, f"the body is not JSON: {reason}") from error
    if not isinstance(asked, dict):
        raise Refused(422, "the body is not a JSON object; send {'rows': [...]}")
    return asked


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:60]} is beyond 1e308")
    return value


_STATUSES = {
    "400": "The body is not JSON.",
    "413": "The body or the number of rows is beyond the limit.",
    "415": "The body is not announced as JSON.",
    "422": "The rows have not the columns, shapes or types of the rows that were fitted.",
    "500": "The server is at fault.",
    "503": "Too many requests wait, or the time is up; try again after the seconds of `Retry-After`.",
}


def document(rows: ArrayRows | TableRows, limits: Limits, version: str, answer: Document) -> Document:
    """Returns the document of `/openapi.json`; `answer` is an example answer for a row, which determines the types."""
    support = rows.posterior.model.likelihood.support
    request = {
        "type": "object",
        "required": ["rows"],
        "additionalProperties": False,
        "properties": {
            "rows": {"type": "array", "items": rows.schema, "minItems": 1, "maxItems": limits.rows},
            "level": {"type": "number", "minimum": 0.001, "maximum": 0.999, "default": 0.9},
        },
    }
    answers = {
        "type": "object",
        "required": ["predictions"],
        "properties": {"predictions": {"type": "array", "items": _types(answer)}},
    }
    sentence = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    as_json = lambda schema: {"application/json": {"schema": schema}}
    predict = {
        "summary": f"Predict rows: {support.values}; entropies in nats for classes, else variances.",
        "requestBody": {"required": True, "content": as_json(request)},
        "responses": {
            "200": {"description": "One prediction a row.", "content": as_json(answers)},
            **{status: {"description": about, "content": as_json(sentence)} for status, about in _STATUSES.items()},
        },
    }
    plain = lambda summary: {"get": {"summary": summary, "responses": {"200": {"description": summary}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lamu", "version": version or "0"},
        "paths": {
            "/predict": {"post": predict},
            "/healthz": plain("Whether the server answers."),
            "/metrics": plain("Counts and times in Prometheus' text format."),
        },
    }


def _types(value: Any) -> Document:
    """Returns the JSON schema of values like this one; infinite numbers are null."""
    if isinstance(value, dict):
        properties = {name: _types(part) for name, part in value.items()}
        return {"type": "object", "properties": properties, "required": list(value), "additionalProperties": False}
    if isinstance(value, list):
        items = _types(value[0]) if value else {}
        return {"type": "array", "items": items, "minItems": len(value), "maxItems": len(value)}
    return {"type": "string" if isinstance(value, str) else ["number", "null"]}
