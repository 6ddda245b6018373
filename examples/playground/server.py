"""The playground's server: one page and four questions, answered to this machine alone."""

# It listens on the loopback address. What other pages of a browser could send is refused: a request must name this
# server as its host (against names that are pointed here), and come as JSON, which no form and no simple request of
# another origin can.

from __future__ import annotations

import errno
import json
import math
import sys
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from examples.playground.offers import Offer, offers
from examples.playground.page import page, policy
from examples.playground.planes import contours
from examples.playground.runs import Run
from examples.playground.targets import PlayTarget, play_targets

from lamu.data.wording import nearest

__all__ = ["Playground", "open_server", "serve"]

_HOST = "127.0.0.1"
_RUNS = 8  # kept at once: as many pages that are open
_STEPS = 500  # of one answer
_BODY = 10_000  # bytes of a question
_SILENT = 30.0  # seconds until a connection that says nothing is closed


class Playground:
    """The answers of the server, by name; every one takes and returns what JSON holds."""

    def __init__(self) -> None:
        self.runs: OrderedDict[int, Run] = OrderedDict()
        self.started = 0

    def catalogue(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the targets, and of each the algorithms that suit it, with their choices of the rule."""
        del question
        targets = {
            name: {
                "title": target.title,
                "about": target.about,
                "window": target.window,
                "axes": target.axes,
                "inputs": target.inputs,
                "rows": _rows(target),
                "algorithms": {
                    name: {
                        "title": offer.title,
                        "group": offer.group,
                        "step_size": offer.first_step_size(target),
                        "choices": _choices(offer),
                    }
                    for name, offer in offers().items()
                    if offer.suits(target)
                },
            }
            for name, target in play_targets().items()
        }
        return {"targets": targets}

    def plane(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the contours of a target at a temperature; none for a target with more than two parameters."""
        target = _named(question, "target", play_targets())
        temperature = _number(question, "temperature")
        return {"contours": [] if target.window is None else contours(target, temperature)}

    def start(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Begins a run, and returns its number."""
        target = _named(question, "target", play_targets())
        offer = _named(question, "algorithm", {name: each for name, each in offers().items() if each.suits(target)})
        rows = None if question.get("rows") is None else _count(question, "rows", target.rows.count)
        seed = _count(question, "seed", 2**31 - 1, least=0) if "seed" in question else 0
        run = Run(target, offer, _number(question, "step_size"), _number(question, "temperature"), rows, seed)
        self.started += 1
        self.runs[self.started] = run
        if len(self.runs) > _RUNS:
            self.runs.popitem(last=False)
        return {"run": self.started}

    def advance(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Makes some more steps of a run, and returns what is seen of them."""
        number = question.get("run")
        if not isinstance(number, int) or number not in self.runs:
            raise ValueError(f"run={number!r} is no run of this server; start a new one")
        self.runs.move_to_end(number)
        steps = _count(question, "steps", _STEPS)
        return self.runs[number].advance(steps, _number(question, "step_size"), _number(question, "temperature"))


def _choices(offer: Offer) -> dict[str, str]:
    row = offer.make(offer.step_size).choices
    choices = {"family": row.family, "expectation": row.expectation, "curvature": row.curvature}
    return {**choices, "geometry": row.geometry, "departures": ", ".join(row.departures) or "none"}


def _rows(target: PlayTarget) -> dict[str, Any] | None:
    """Returns the rows of a target with data, for its picture."""
    return {"x": target.rows.x.tolist(), "y": target.rows.y.tolist()} if target.inputs is not None else None


def _named(question: Mapping[str, Any], name: str, known: Mapping[str, Any]) -> Any:
    value = question.get(name)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={value!r} is not offered; {nearest(str(value), tuple(known))}")
    return known[value]


def _number(question: Mapping[str, Any], name: str) -> float:
    value = question.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name}={value!r} is not possible; give a positive number")
    return float(value)


def _count(question: Mapping[str, Any], name: str, most: int, least: int = 1) -> int:
    value = question.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name}={value!r} is not possible; give a whole number from {least} to {most}")
    return value


class _Handler(BaseHTTPRequestHandler):
    """Requests, one after the other: JAX computes, and a browser may hold several connections open."""

    server_version, sys_version = "lamu", ""
    timeout = _SILENT

    def __init__(self, playground: Playground, lock: Lock, *arguments: Any) -> None:
        self.questions = {
            "/catalogue": playground.catalogue,
            "/plane": playground.plane,
            "/start": playground.start,
            "/advance": playground.advance,
        }
        self.lock = lock
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answers with the page."""
        if not self._is_meant():
            return
        if self.path != "/":
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"there is no {self.path[:80]!r} here; the page is at /"})
            return
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", page().encode(), policy())

    def do_POST(self) -> None:
        """Answers a question."""
        if not self._is_meant():
            return
        answer = self.questions.get(self.path)
        kind, length = self.headers.get("Content-Type", ""), self.headers.get("Content-Length", "")
        if answer is None:
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"there is no {self.path[:80]!r} here"})
        elif kind.split(";")[0].strip() != "application/json":
            self._answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, {"error": "a question comes as application/json"})
        elif not length.isdecimal() or int(length) > _BODY:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": f"a question has at most {_BODY} bytes, and says how many"})
        else:
            try:
                question = json.loads(self.rfile.read(int(length)))
                if not isinstance(question, dict):
                    raise ValueError("a question is an object of names and values")
                with self.lock:
                    found = answer(question)
            except ValueError as error:
                self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
            except Exception as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"})
                raise
            else:
                self._answer(HTTPStatus.OK, found)

    def _is_meant(self) -> bool:
        """Whether the request names this server; answers it where not."""
        _, port, *_ = self.connection.getsockname()
        hosts = {f"{name}:{port}" for name in (_HOST, "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in hosts and (origin is None or origin.removeprefix("http://") in hosts):
            return True
        self._answer(HTTPStatus.FORBIDDEN, {"error": f"this server answers to http://{_HOST}:{port} alone"})
        return False

    def _answer(self, status: HTTPStatus, found: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(found, allow_nan=False).encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes, policy: str = "default-src 'none'") -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Content-Security-Policy", policy),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Stays silent: a line a request would fill the terminal."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would share the port with another server

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Passes over a browser that has closed its connection; prints any other error.
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def open_server(port: int) -> ThreadingHTTPServer:
    """Returns a server on the loopback address that does not yet answer; `serve_forever()` makes it."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port {port} is none; give a number from 1024 to 65535, or 0 for any that is free")
    try:
        return _Server((_HOST, port), partial(_Handler, Playground(), Lock()))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        reason = "in use" if error.errno == errno.EADDRINUSE else "not yours to use"
        raise ValueError(f"port {port} is {reason}; give another with --port, or --port 0 for any free one") from error


def serve(port: int, announce: Any) -> None:
    """Answers until it is interrupted."""
    with open_server(port) as server:
        announce(f"http://{_HOST}:{server.server_address[1]}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
