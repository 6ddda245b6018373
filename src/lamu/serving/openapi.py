"""The OpenAPI document of a server."""

from __future__ import annotations

from typing import Any

from lamu.serving.limits import Limits
from lamu.serving.rows import ArrayRows, TableRows
from lamu.typing import Document

__all__ = ["document"]

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
