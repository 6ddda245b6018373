"""What a server takes and answers, as an OpenAPI document."""

from __future__ import annotations

from lamu.serving.limits import Limits
from lamu.serving.rows import ArrayRows, TableRows
from lamu.typing import Document

__all__ = ["document"]

_STATUSES = {
    "400": "The body is no JSON.",
    "413": "The body or the number of rows is beyond the limit.",
    "415": "The body is not announced as JSON.",
    "422": "The rows have not the columns, shapes or types of the rows that were fitted.",
    "500": "The server is at fault.",
    "503": "Too many requests wait, or the time is up; try again after the seconds of `Retry-After`.",
}


def document(rows: ArrayRows | TableRows, limits: Limits, version: str) -> Document:
    """Returns the document of `/openapi.json`."""
    support = rows.posterior.model.likelihood.support
    names = ["total", "aleatoric", "epistemic"]
    names = (
        ["prediction", "probabilities", *names] if support.has_classes else ["mean", *_ends(support.ordered), *names]
    )
    answer: Document = {"type": "object", "properties": {name: {} for name in names}, "required": names}
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
        "properties": {"predictions": {"type": "array", "items": answer}},
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


def _ends(ordered: bool) -> list[str]:
    return ["lower", "upper"] if ordered else []
