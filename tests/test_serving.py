"""`lamu serve`: answers beside `predict`'s own, refusals of one sentence, limits, batches, load and random bodies."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import uvicorn

import lamu as library
from lamu.cli.output_dir import load_posterior, read_config
from lamu.cli.serving import serve
from lamu.data import Encoding
from lamu.serving import ArrayRows, HttpProtocol, Limits, TableRows, application
from lamu.serving.requests import Batcher, Metrics, Question
from tests.command_line import QUICK, fit_each_task
from tests.serving_client import Answer, Connection, clients, paced


@contextlib.contextmanager
def served(rows, limits=None):
    """Gives the port of a server in a thread of this process."""
    config = uvicorn.Config(application(rows, limits), port=0, log_config=None, http=HttpProtocol)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def ask(port: int, *documents: Any, **options: Any) -> list[Answer]:
    """Returns the answers to requests that are sent at once."""
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in documents]

    async def all_at_once() -> list[Answer]:
        with contextlib.ExitStack() as stack:
            kept = [stack.enter_context(contextlib.closing(Connection(port))) for _ in bodies]
            return await asyncio.gather(*(one.ask(body, **options) for one, body in zip(kept, bodies, strict=True)))

    return asyncio.run(all_at_once())


def get(port: int, path: str) -> str:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.read().decode()


def table_rows(run: Path) -> TableRows:
    config = read_config(run)
    return TableRows(load_posterior(run, config, ()), Encoding.of(config), 8)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    return fit_each_task(tmp_path_factory)


@pytest.fixture(scope="module")
def arrays() -> ArrayRows:
    x, y = library.data.load("diabetes")
    model = library.Model(library.networks.Linear(), library.likelihoods.Gaussian(55.0)).standardised(x, y)
    return ArrayRows(library.fit(model, (x, y), library.algorithms.conjugate()).posterior, (10,))


@pytest.fixture(scope="module")
def port(arrays):
    with served(arrays, Limits(rows=64, body=20_000)) as port:
        yield port


@pytest.mark.stress
def test_a_table_is_answered_as_predict_answers(fitted, lamu, tmp_path):
    for task in ("regression", "classes"):
        frame = pd.read_csv(fitted / f"{task}.csv").drop(columns="target").head(3)
        frame.to_csv(tmp_path / f"{task}.csv", index=False)
        ran = lamu("predict", fitted / task, tmp_path / f"{task}.csv", "--samples", "8", "--json")
        expected = json.loads(ran.out)["predictions"]
        rows = table_rows(fitted / task)
        with served(rows) as port:
            (answer,) = ask(port, {"rows": json.loads(frame.to_json(orient="records"))})
            schema = json.loads(get(port, "/openapi.json"))["paths"]["/predict"]["post"]["requestBody"]
            types = answers_of(port)
        assert answer.status == 200, answer.document
        assert conforms(answer.document, types["200"])
        assert not conforms({"predictions": [{}]}, types["200"])
        for found, row in zip(answer.document["predictions"], expected, strict=True):
            if task == "classes":
                assert found["prediction"] == str(row["prediction"])
                found |= {f"p_{label}": p for label, p in found["probabilities"].items()}
            assert math.isclose(found["total"], found["aleatoric"] + found["epistemic"], rel_tol=1e-5)
            numbers = {name: value for name, value in row.items() if isinstance(value, float)}
            np.testing.assert_allclose([found[name] for name in numbers], list(numbers.values()), rtol=1e-4, atol=1e-5)
        properties = schema["content"]["application/json"]["schema"]["properties"]["rows"]["items"]["properties"]
        assert list(properties) == list(frame.columns)


def conforms(value: Any, schema: Any) -> bool:
    """Whether a value is one that a schema of the document describes."""
    kinds = {dict: "object", list: "array", str: "string", int: "number", float: "number", type(None): "null"}
    kind, allowed = kinds[type(value)], schema["type"]
    if kind not in (allowed if isinstance(allowed, list) else [allowed]):
        return False
    if kind == "object":
        named = schema.get("properties", {})
        return set(schema["required"]) <= set(value) and all(conforms(value[name], named[name]) for name in value)
    return kind != "array" or all(conforms(part, schema["items"]) for part in value)


def answers_of(port: int) -> dict[str, Any]:
    """The schema of the answers by status."""
    responses = json.loads(get(port, "/openapi.json"))["paths"]["/predict"]["post"]["responses"]
    return {status: about["content"]["application/json"]["schema"] for status, about in responses.items()}


@pytest.mark.stress
def test_dates_and_trials_are_answered_as_predict_answers(lamu, tmp_path):
    """A count of successes in trials, from dates, numbers and words; what is wrong with them is one sentence."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
    frame = pd.DataFrame({"day": days, "size": rng.normal(size=60), "kind": rng.choice(["a", "b"], 60)})
    frame["tries"] = rng.integers(1, 9, 60)
    frame["hits"] = rng.binomial(frame["tries"], 0.5)
    frame.to_csv(tmp_path / "t.csv", index=False)
    ran = lamu("fit", "t.csv", "--target", "hits", "--trials", "tries", "--dates", "--out", "run", *QUICK)
    assert ran.code == 0, ran.err
    asked = frame.drop(columns="hits").tail(3)
    asked.to_csv(tmp_path / "new.csv", index=False)
    ran = lamu("predict", "run", "new.csv", "--samples", "8", "--json")
    assert ran.code == 0, ran.err
    rows = table_rows(tmp_path / "run")
    good = json.loads(asked.to_json(orient="records"))
    with served(rows, Limits(rows=4)) as port:
        (answer,) = ask(port, {"rows": good})
        alone = ask(port, *({"rows": [row]} for row in good))
        assert conforms(answer.document, answers_of(port)["200"])
        schema = json.loads(get(port, "/openapi.json"))["paths"]["/predict"]["post"]["requestBody"]
        bad = ask(
            port,
            {"rows": [good[0] | {"day": "no day"}]},
            {"rows": [good[0] | {"tries": -1}]},
            {"rows": [{name: value for name, value in good[0].items() if name != "tries"}]},
        )
        fuzzed = ask(port, *itertools.islice(random_bodies(port, 3), 12))
    assert answer.status == 200, answer.document
    assert {answer.status for answer in fuzzed} <= {200, 400, 413, 422, 503}
    items = schema["content"]["application/json"]["schema"]["properties"]["rows"]["items"]["properties"]
    assert set(items) == {"day", "size", "kind", "tries"}
    for found, one, row in zip(answer.document["predictions"], alone, json.loads(ran.out)["predictions"], strict=True):
        np.testing.assert_allclose([*found.values()], [*one.document["predictions"][0].values()], rtol=1e-4, atol=1e-6)
        numbers = {name: value for name, value in row.items() if isinstance(value, float) and name in found}
        assert "mean" in numbers
        np.testing.assert_allclose([found[name] for name in numbers], [*numbers.values()], rtol=1e-4, atol=1e-5)
    assert [answer.status for answer in bad] == [422] * 3, [answer.document for answer in bad]
    for answer, word in zip(bad, ("day", "trials", "tries"), strict=True):
        assert word in answer.document["error"]


REFUSALS = [
    (b"no JSON", 400, "the body is not JSON"),
    (b'{"rows": [NaN]}', 400, "NaN is not a number of JSON"),
    (b"[" * 5000, 400, "not JSON"),
    (b'{"rows": [[1e999]]}', 400, "beyond 1e308"),
    (b"\xff", 400, "not JSON"),
    ([1], 422, "not a JSON object"),
    ({"rows": []}, 422, "one row or more"),
    ({"rows": [[1.0] * 9]}, 422, "row 0 has 9 entries where a list of 10 is expected"),
    ({"rows": [[1.0] * 10, [True] * 10]}, 422, "row 1 has the boolean True where a number is expected"),
    ({"rows": [[10**400] * 10]}, 422, ""),
    ({"rows": [[1.0] * 10], "level": 1.0}, 422, "for 90 % write 0.9"),
    ({"rows": [[1.0] * 10], "labels": 1}, 422, "unknown entry 'labels'"),
    ({"rows": [[1.0] * 10] * 65}, 413, "65 rows, and 64 are taken"),
    (b" " * 20_001, 413, "more than 20,000 bytes"),
]


@pytest.mark.stress
def test_bad_requests_get_a_sentence(port, arrays):
    for answer, (body, status, phrase) in zip(ask(port, *(body for body, *_ in REFUSALS)), REFUSALS, strict=True):
        assert answer.status == status, (body, answer.document)
        assert phrase in answer.document["error"]
        assert "\n" not in answer.document["error"]
    assert ask(port, {"rows": [[1.0] * 10]}, kind="text/plain")[0].status == 415
    assert ask(port, {"rows": [[1.0] * 10]}, path="/other")[0].status == 404


CHUNKED = b"POST /predict HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize("begun", [b"POST /predict HTTP/1.1\r\nA: ", b"POST /", CHUNKED + b"2;", CHUNKED + b"0\r\nA: "])
@pytest.mark.parametrize("part", [b"a" * 10_000, b"a" * 9_000 + b"\r\nB: "])
def test_a_head_that_does_not_end_is_refused(port, begun, part):
    """httptools bounds neither heads, names of chunks nor what follows the last one."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(begun)
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                client.sendall(part)
                time.sleep(0.005)
            pytest.fail("a million bytes were taken")
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(100).startswith(b"HTTP/1.1 400 Bad Request")
    assert ask(port, {"rows": [[1.0] * 10]})[0].status == 200


def test_a_body_and_a_head_of_the_usual_size_are_taken(arrays):
    rows = [[1.0 + 1e-9 * number] * 10 for number in range(700)]
    with served(arrays, Limits(rows=1024)) as port:
        (answer,) = ask(port, {"rows": rows})  # in several pieces, more than the bound of a head together
        long = ask(port, {"rows": rows[:1]}, kind="application/json; note=" + "a" * 30_000)[0]
    assert len(json.dumps(rows)) > 80_000
    assert (answer.status, len(answer.document["predictions"]), long.status) == (200, 700, 200)


def test_the_command_says_where_it_serves_when_it_listens(tmp_path, monkeypatch):
    told, startup = [], uvicorn.Server.startup

    async def begun(server: uvicorn.Server, sockets: Any = None) -> None:
        assert not told
        await startup(server, sockets)

    async def ended(server: uvicorn.Server) -> None:
        assert re.fullmatch(r"serving .*saved on http://127\.0\.0\.1:\d+; Ctrl-C ends it", *told)

    monkeypatch.setattr(uvicorn.Server, "startup", begun)
    monkeypatch.setattr(uvicorn.Server, "main_loop", ended)
    monkeypatch.setattr("lamu.cli.serving.print", lambda line, flush: told.append(line), raising=False)
    serve(_saved(tmp_path), "127.0.0.1", 0, {"rows": 1})
    assert told


def test_the_command_takes_the_protocol_with_the_bound(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(
        uvicorn.Server, "run", lambda self, sockets: taken.append((self.config.http, sockets[0].close())[0])
    )
    serve(_saved(tmp_path), "127.0.0.1", 0, {})
    assert taken == [HttpProtocol]


@pytest.mark.filterwarnings("ignore::lamu.data.UnfamiliarRows")  # 1e300 has a finite prediction in 64 bits
def test_bad_rows_of_a_table_get_a_sentence(fitted):
    rows = table_rows(fitted / "regression")
    good = rows.example(1)[0]
    name = next(iter(good))
    with served(rows) as port:
        cases = [
            (
                [{k: v for k, v in good.items() if k != name} | {"what": 1}],
                f"lacks the column '{name}', and has 'what'",
            ),
            ([good, {k: v for k, v in good.items() if k != name}], f"row 1 lacks the column '{name}'"),
            ([good | {name: "a word"}], f"row 0 has the string 'a word' in the column '{name}', which takes number"),
            ([good | {name: None}], "null"),
            ([3], "row 0 is the number 3; give an object of columns by name"),
            ([good | {name: 1e300}], "float"),
        ]
        for answer, (_, phrase) in zip(ask(port, *({"rows": rows} for rows, _ in cases)), cases, strict=True):
            assert answer.status == 422 or phrase == "float", answer.document
            assert answer.status == 200 or phrase in answer.document["error"]
        further, alone = ask(port, {"rows": [good | {"what": "\ud800"}]}, {"rows": [good]})
        assert (further.status, further.document) == (200, alone.document)  # ignored, as `lamu predict` does


@dataclass(frozen=True)
class Holding(ArrayRows):
    """Rows of which the first that are asked for wait until forty requests do."""

    ports: list[int] = field(default_factory=list)  # of the server, from when its first answer is to wait

    def programs(self, questions):
        return object()  # not quick before: predicted beside the loop

    def answer(self, questions):
        end = time.monotonic() + 60.0
        for port in [self.ports.pop() for _ in list(self.ports)]:
            while "lamu_waiting 40" not in get(port, "/metrics") and time.monotonic() < end:
                time.sleep(0.01)
        return super().answer(questions)


def test_requests_that_wait_are_one_batch_and_keep_their_own_answers(arrays):
    x = library.data.load("diabetes")[0]
    rows = Holding(arrays.posterior, arrays.shape)
    with served(rows, Limits(rows=64)) as port:
        before = get(port, "/metrics")
        rows.ports.append(port)
        answers = ask(port, *({"rows": x[i : i + 1 + i % 3].tolist(), "level": (0.5, 0.9)[i % 2]} for i in range(40)))
        after = get(port, "/metrics")
        assert json.loads(get(port, "/healthz")) == {"status": "ok", "waiting": 0}
    for i, answer in enumerate(answers):
        pred = arrays.posterior.predict(x[i : i + 1 + i % 3])
        lower, upper = pred.interval((0.5, 0.9)[i % 2])
        found = pd.DataFrame(answer.document["predictions"])
        expected = pd.DataFrame({"mean": pred.mean, "lower": lower, "upper": upper, "epistemic": pred.epistemic})
        np.testing.assert_allclose(found[expected.columns], expected, rtol=1e-5)
    count = lambda text, name: float(re.search(rf"^{name} (\S+)$", text, re.M)[1])
    assert count(after, "lamu_rows_total") - count(before, "lamu_rows_total") == sum(1 + i % 3 for i in range(40))
    assert count(after, "lamu_batches_total") - count(before, "lamu_batches_total") < 30
    assert count(after, "lamu_waiting") == 0


class Slow(ArrayRows):
    def programs(self, questions):
        return tuple(question.count for question in questions)  # of which that of two was not quick before

    def answer(self, questions):
        if questions[0].count == 2:
            time.sleep(0.5)
        if any(question.count == 3 for question in questions):
            raise ValueError("three rows are too much")
        if any(question.count == 5 for question in questions):
            raise RuntimeError("a fault of the server's own")
        return super().answer(questions)


def test_what_is_too_much_is_503_and_what_fails_is_alone(arrays):
    slow, row = Slow(arrays.posterior, (10,)), [1.0] * 10
    with served(slow, Limits(waiting=2, seconds=0.3)) as port:
        statuses = [answer.status for answer in ask(port, *[{"rows": [row] * 2}] * 5)]
        assert statuses == [503] * 5  # three too many, and two whose time is up
        time.sleep(1.0)
        answers = ask(port, {"rows": [row]}, {"rows": [row] * 3}) + ask(port, {"rows": [row] * 5})
        assert [answer.status for answer in answers] == [200, 422, 500]
        assert "three rows are too much" in answers[1].document["error"]
        assert "fault" not in answers[2].document["error"]  # which is the log's


@dataclass(frozen=True)
class Paused(ArrayRows):
    """Rows that note the threads of their predictions, of which the second request's takes a while."""

    threads: list[str] = field(default_factory=list)

    def answer(self, questions):
        self.threads.append(threading.current_thread().name)
        if questions[0].level == 0.5:
            time.sleep(1.0)
        return super().answer(questions)


def test_one_pause_of_the_machine_sends_no_later_batch_to_the_thread(arrays, monkeypatch):
    # A hundred times as long as it is: other work on the machine decides nothing.
    monkeypatch.setattr("lamu.serving.requests._AT_ONCE", 0.5)
    rows = Paused(arrays.posterior, (10,))
    with served(rows, Limits(rows=1)) as port:
        rows.threads.clear()
        for level in (0.9, 0.5, 0.9):
            (answer,) = ask(port, {"rows": [[1.0] * 10], "level": level})
            assert answer.status == 200
    assert not any(name.startswith("lamu-predict") for name in rows.threads), rows.threads


def test_requests_that_are_being_read_join_the_batch():
    batches: list[int] = []

    def predict(questions):
        batches.append(len(questions))
        return [None] * len(questions)

    async def work() -> None:
        batcher = Batcher(predict, lambda _: 0, 100, Metrics())
        question = Question(None, 1, 0.9)
        batcher.predicted([question])  # fast enough for the event loop

        async def arrives(turn: int) -> None:
            for _ in range(turn):
                await asyncio.sleep(0)
            await batcher.ask(question)

        running = asyncio.create_task(batcher.run())
        await asyncio.gather(*(arrives(turn) for turn in range(4)))
        running.cancel()

    asyncio.run(work())
    assert batches == [1, 4]


def test_the_commands_refuse_in_a_sentence_and_export_a_run(fitted, lamu, tmp_path):
    assert "there is no folder" in lamu("serve", tmp_path / "none").err
    assert "--shape 'a' is not a shape" in lamu("serve", _saved(tmp_path), "--shape", "a").err
    ran = lamu("export", fitted / "classes", tmp_path / "out")
    assert ran.code == 0, ran.err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"arrays.npz", "encoding.json", "moments.stablehlo", "prediction_set.stablehlo", "schema.json"}
    assert Encoding.of(json.loads((tmp_path / "out" / "encoding.json").read_text())) == Encoding.of(
        read_config(fitted / "classes")
    )
    assert "exists already" in lamu("export", fitted / "classes", tmp_path / "out").err


def test_the_code_of_a_network_is_given_on_the_command_line(lamu, tmp_path, monkeypatch):
    x, y = (part.astype(float) for part in library.data.load("diabetes"))
    module = "import numpy as np, lamu\nline = lambda params, x: x @ params['slope']\n"
    module += "def network():\n    return lamu.networks.Trained(line, {'slope': np.zeros((10, 1))})\n"
    (tmp_path / "my_model.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    network = importlib.import_module("my_model").network()
    model = library.Model(network, library.likelihoods.Gaussian(55.0)).standardised(x, y)
    saved = library.fit(model, (x, y), library.algorithms.laplace(), epochs=0).posterior.save(tmp_path / "saved")
    refused = lamu("serve", saved)
    assert refused.code == 2, refused.out
    assert "give the network that holds it to `lamu serve` or `lamu export`, --network package" in refused.err
    (tmp_path / "serve.toml").write_text('network = "my_model:network"')
    assert "give --trust my_model" in lamu("export", saved, "out", "--config", "serve.toml").err
    assert "has no 'networks'" in lamu("export", saved, "out", "--network", "my_model:networks").err
    ran = lamu("export", saved, "out", "--network", "my_model:network")
    assert ran.code == 0, ran.err


def _saved(tmp_path: Path) -> Path:
    x, y = library.data.load("diabetes")
    model = library.Model(library.networks.Linear(), library.likelihoods.Gaussian(55.0)).standardised(x, y)
    return library.fit(model, (x, y), library.algorithms.conjugate()).posterior.save(tmp_path / "saved")


def random_value(schema: Any, draw: random.Random) -> Any:
    """Returns a value that a schema describes, or, now and then, one that it does not."""
    if draw.random() < 0.05:
        odd = [None, True, -1, 0.5, 1e308, -1e-320, 10**30, "", "\ud800", "a" * 300, "\x00", [], {}, [[]], {"a": 1}]
        return draw.choice(odd)
    kind = schema.get("type", "string")
    kind = draw.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        found = {name: random_value(part, draw) for name, part in schema["properties"].items()}
        if draw.random() < 0.05:
            found.pop(draw.choice(list(found)))
        return found | ({"other": 1} if draw.random() < 0.02 else {})
    if kind == "array":
        count = draw.randint(schema.get("minItems", 0), min(schema.get("maxItems", 4), schema.get("minItems", 0) + 3))
        return [random_value(schema["items"], draw) for _ in range(count)]
    if kind == "number":
        return draw.choice([draw.gauss(0, 100), draw.randint(-5, 5), draw.uniform(0, 1), 10 ** draw.uniform(-30, 30)])
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "null":
        return None
    return draw.choice([*schema.get("examples", ["a", "2020-01-02", "3"]), "never seen"])


def random_bodies(port: int, seed: int):
    operation = json.loads(get(port, "/openapi.json"))["paths"]["/predict"]["post"]
    schema, draw = operation["requestBody"]["content"]["application/json"]["schema"], random.Random(seed)
    while True:
        body = json.dumps(random_value(schema, draw)).encode()
        cut = draw.randrange(len(body) + 1)
        yield body[:cut] + bytes([draw.randrange(256)]) + body[cut + 1 :] if draw.random() < 0.1 else body


@pytest.mark.filterwarnings("ignore::lamu.data.UnfamiliarRows")  # 1e300 has a finite prediction in 64 bits
def test_random_bodies_get_no_server_error(port):
    answers, types = ask(port, *itertools.islice(random_bodies(port, 0), 60)), answers_of(port)
    assert all(conforms(answer.document, types[str(answer.status)]) for answer in answers)
    assert {answer.status for answer in answers} <= {200, 400, 413, 422, 503}
    assert len({answer.status for answer in answers}) > 1


SECONDS = float(os.environ.get("LAMU_SERVE_SECONDS", "60"))  # 600 for ten minutes


@pytest.mark.stress
def test_a_server_under_three_times_its_load_answers_rightly_or_says_503(tmp_path, capsys):
    x, _ = library.data.load("diabetes")
    saved = _saved(tmp_path)
    words = [sys.executable, "-c", "from lamu.cli import main; main()", "serve", str(saved), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(re.search(r":(\d+);", server.stdout.readline())[1])
            while True:
                with contextlib.suppress(OSError):
                    get(port, "/healthz")
                    break
                time.sleep(0.1)
            figures = under_load(port, server.pid, x, library.load(saved), SECONDS)
        finally:
            server.terminate()
    with capsys.disabled():
        print(json.dumps(figures, indent=1))
    assert figures["wrong"] == 0
    assert set(figures["statuses"]) <= {200, 400, 413, 415, 422, 503}
    assert figures["statuses"][503] > 0
    assert figures["grown_mb"] < 100
    assert figures["half_load_503"] == 0
    assert figures["half_load_p99_ms"] <= 3 * figures["unloaded_median_ms"]


def under_load(port: int, pid: int, x: np.ndarray, posterior: Any, seconds: float) -> dict[str, Any]:
    """Returns what a server does unloaded, at half of what it sustains, and with far more clients than it takes."""
    lower, upper = posterior.predict(x).interval(0.9)
    truth = np.stack([posterior.predict(x).mean, lower, upper], axis=1)
    row_of = {json.dumps({"rows": [row]}).encode(): number for number, row in enumerate(x.tolist())}
    good, fuzz, draw = itertools.cycle(row_of), random_bodies(port, 1), random.Random(2)
    mixed = (next(fuzz) if draw.random() < 0.2 else next(good) for _ in itertools.count())
    wrong, seen, statuses = [0], [], {}

    def see(answer: Answer) -> None:
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        seen.append(answer.seconds)
        number = row_of.get(answer.body)
        if number is not None and answer.status != 503:
            found = answer.document["predictions"][0] if answer.status == 200 else None
            right = found and np.allclose([found[k] for k in ("mean", "lower", "upper")], truth[number], rtol=1e-4)
            wrong[0] += not right

    def phase(work: Any) -> tuple[list[float], dict[int, int], Any]:
        seen.clear()
        statuses.clear()
        result = asyncio.run(work)
        return sorted(seen), dict(statuses), result

    phase(clients(port, 32, good, 2.0, see))  # every size of a batch is compiled
    alone, _, _ = phase(clients(port, 1, good, 3.0, see))
    _, _, answered = phase(clients(port, 16, good, 5.0, see))
    sustained = answered / 5.0
    half, half_statuses, _ = phase(paced(port, sustained / 2, good, min(seconds, 20.0), see))
    memory = lambda: int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024
    phase(clients(port, 192, mixed, 5.0, see))
    before = memory()
    _, over, answered = phase(clients(port, 192, mixed, seconds, see))  # three times the 64 that may wait
    return {
        "unloaded_median_ms": 1e3 * alone[len(alone) // 2],
        "sustained_a_second": sustained,
        "half_load_p99_ms": 1e3 * half[int(0.99 * len(half))],
        "half_load_503": half_statuses.get(503, 0),
        "overload_answers": answered,
        "statuses": over,
        "wrong": wrong[0],
        "grown_mb": memory() - before,
    }
