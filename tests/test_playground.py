"""The playground: the library's own steps, seen as they are, by a server that answers its own page alone."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
from http.client import HTTPConnection

import numpy as np
import pytest
from examples.playground.__main__ import main
from examples.playground.offers import offers
from examples.playground.page import page, policy
from examples.playground.planes import contours
from examples.playground.runs import Run, _step
from examples.playground.server import Playground, open_server
from examples.playground.targets import play_targets
from matplotlib.path import Path as Outline

from tests.browser import Browser, contrast
from tests.for_each import for_each

CORRELATED = np.array([[1.0, 0.9], [0.9, 1.0]])  # the covariance of the target "gaussian"
RULES = [name for name, offer in offers().items() if offer.group == "Learning rules"]


def run_of(target: str, algorithm: str, step_size: float | None = None, temperature: float = 1.0, **options) -> Run:
    offer, of = offers()[algorithm], play_targets()[target]
    return Run(of, offer, step_size or offer.first_step_size(of), temperature, **options)


@pytest.mark.sampled
@pytest.mark.parametrize("name", offers())
def test_every_algorithm_moves(name) -> None:
    target = "gaussian" if offers()[name].suits(play_targets()["gaussian"]) else "line"
    run = run_of(target, name)
    (size, temperature), steps = run.settings, 3
    seen = run.advance(steps, size, temperature)
    json.dumps(seen, allow_nan=False)
    points = np.array(seen["points"], float)
    assert seen["steps"] == steps == len(points)
    assert np.isfinite(points).all()
    assert np.ptp(points, axis=0).max() > 0
    assert ("covariances" in seen) == (name in RULES)
    before = _step._cache_size()
    run.advance(2, 1.1 * size, 1.5)
    assert _step._cache_size() == before, "another step size or temperature was compiled anew"


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_ellipse_is_the_covariance_of_the_belief_at_its_temperature(temperature) -> None:
    # The Hessian of a Gaussian is a constant, so that its draws add no noise to the precision.
    seen = run_of("gaussian", "von_dense", 0.1, temperature).advance(200, 0.1, temperature)
    np.testing.assert_allclose(seen["covariances"][-1][0], temperature * CORRELATED, rtol=1e-3)


def test_chains_draw_from_the_target() -> None:
    run = run_of("gaussian", "hmc", seed=3)
    draws = np.concatenate(run.advance(500, 0.25, 1.0)["points"][100:])
    # 1600 draws, of which paths of a random length leave some hundreds: four standard errors of the second moments at
    # 200 are 0.4, which fails for one seed in ten thousand.
    np.testing.assert_allclose(draws.T @ draws / len(draws), CORRELATED, atol=0.4)


def test_a_chain_knows_its_density_at_a_new_temperature() -> None:
    run = run_of("gaussian", "random_walk", 0.5)
    run.advance(5, 0.5, 1.0)
    before = np.array(run.state.chains.log_density)
    seen = run.advance(1, 1e4, 0.25)  # a step that the test refuses
    assert seen["acceptance"] == 0
    np.testing.assert_allclose(run.state.chains.log_density, 4.0 * before, rtol=1e-5)


def test_a_run_that_leaves_the_numbers_says_so() -> None:
    seen = run_of("banana", "gradient_descent", 3.0).advance(400, 3.0, 1.0)
    json.dumps(seen, allow_nan=False)
    assert re.fullmatch(r"The loss is not finite: .*lower.*\.", seen["fault"])


def test_a_line_and_a_map_are_what_is_predicted() -> None:
    run = run_of("line", "von_dense", 0.2)
    seen = run.advance(60, 0.2, 1.0)
    left, right, *_ = play_targets()["line"].inputs
    intercept, slope = seen["points"][-1][0]
    spread = np.sqrt(np.array([1, left]) @ np.array(seen["covariances"][-1][0]) @ [1, left])
    # 24 lines: their mean is within four standard errors but for one seed in ten thousand.
    assert abs(np.mean(seen["lines"], axis=0)[0] - (intercept + left * slope)) < 4 * spread / np.sqrt(24)
    assert np.mean(seen["lines"], axis=0)[1] > np.mean(seen["lines"], axis=0)[0]  # the slope is positive
    moons = run_of("moons", "adam").advance(150, 0.05, 1.0)["map"]
    x, y = (np.array(each) for each in (play_targets()["moons"].rows.x, play_targets()["moons"].rows.y))
    left, right, low, high = play_targets()["moons"].inputs
    column = np.round((x[:, 0] - left) / (right - left) * 39).astype(int)
    row = np.round((x[:, 1] - low) / (high - low) * 39).astype(int)
    assert np.mean((np.array(moons)[row, column] > 0.5) == y) > 0.8


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_shades_are_within_some_nats_of_the_top(temperature) -> None:
    for region, depth in zip(contours(play_targets()["gaussian"], temperature)[1:], (4.5, 2.0, 0.5), strict=False):
        line = np.array(region[0])
        inside = line[(np.abs(line) < 3.95).all(axis=1)]  # not where the window cuts it
        radius = np.einsum("ni,ij,nj->n", inside, np.linalg.inv(CORRELATED), inside)
        np.testing.assert_allclose(radius / 2, depth * temperature, rtol=0.03)
        assert Outline(line).contains_point((0.0, 0.0))


def test_minibatches_are_for_algorithms_that_take_them() -> None:
    assert run_of("line", "sgld", rows=10).rows == 10
    assert run_of("line", "mala", rows=10).rows is None
    assert run_of("banana", "sgld", rows=10).rows is None


@for_each("name, question, sentence", [
        ("start", {"target": "bananna", "algorithm": "hmc"}, "'bananna' is not offered; .*'banana'"),
        ("start", {"target": "banana", "algorithm": "vogn"}, "'vogn' is not offered"),
        ("start", {"target": "ring", "algorithm": "mala", "step_size": 0, "temperature": 1}, "step_size=0 is not"),
        ("start", {"target": "ring", "algorithm": "mala", "step_size": 1, "temperature": True}, "temperature=True"),
        ("start", {"target": "line", "algorithm": "sgld", "step_size": 1, "temperature": 1, "rows": 41}, "1 to 40"),
        ("plane", {"target": "ring", "temperature": float("inf")}, "temperature=inf is not possible"),
        ("advance", {"run": 7, "steps": 1}, "run=7 is no run of this server; start a new one"),
    ])  # fmt: skip
def test_a_wrong_question_is_one_sentence(name, question, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        getattr(Playground(), name)(question)


def test_only_the_latest_runs_are_kept() -> None:
    playground = Playground()
    question = {"target": "ring", "algorithm": "gradient_descent", "step_size": 0.1, "temperature": 1}
    first, *_ = [playground.start(question)["run"] for _ in range(9)]
    assert len(playground.runs) == 8
    with pytest.raises(ValueError, match="no run of this server"):
        playground.advance({"run": first, "steps": 1, "step_size": 0.1, "temperature": 1})


@pytest.fixture(scope="module")
def port():
    with open_server(0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def asked(port: int, path: str, content: str | None = None, **headers: str):
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    named = {"Content-Type": "application/json"} | {key.replace("_", "-"): value for key, value in headers.items()}
    connection.request("GET" if content is None else "POST", path, content, named)
    answer = connection.getresponse()
    return answer.status, answer, answer.read().decode()


def test_the_page_comes_with_a_policy_that_allows_it_alone(port) -> None:
    status, answer, source = asked(port, "/")
    assert status == 200
    assert answer.headers["Content-Security-Policy"] == policy()
    for tag in ("script", "style"):
        part = re.search(f"<{tag}>(.*)</{tag}>", source, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy()
    assert not re.search(r"""(src|href)=["'](?!data:,)|url\(|@import|https?:|\son\w+=""", page())


def test_a_run_over_http(port) -> None:
    catalogue = json.loads(asked(port, "/catalogue", "{}")[2])["targets"]
    assert "vogn" not in catalogue["banana"]["algorithms"]
    assert catalogue["line"]["algorithms"]["vogn"]["choices"]["family"] == "Gaussian, diagonal precision"
    place = {"target": "gaussian", "algorithm": "mala", "step_size": 0.5, "temperature": 1}
    run = json.loads(asked(port, "/start", json.dumps(place))[2])["run"]
    seen = json.loads(asked(port, "/advance", json.dumps({**place, "run": run, "steps": 4}))[2])
    assert seen["steps"] == 4
    status, _, text = asked(port, "/advance", json.dumps({**place, "run": run, "steps": 10**6}))
    assert (status, json.loads(text)["error"]) == (
        400,
        "steps=1000000 is not possible; give a whole number from 1 to 500",
    )


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/", None, {"Host": "elsewhere.example"}, 403),
        ("/catalogue", "{}", {"Origin": "https://elsewhere.example"}, 403),
        ("/catalogue", "{}", {"Content_Type": "text/plain"}, 415),
        ("/catalogue", "[]", {}, 400),
        ("/catalogue", "{", {}, 400),
        ("/catalogue", " " * 20_000, {}, 400),
        ("/../pyproject.toml", None, {}, 404),
        ("/nothing", "{}", {}, 404),
    ],
)
def test_what_is_not_for_the_server_is_refused(port, path, content, headers, status) -> None:
    found, _, text = asked(port, path, content, **headers)
    assert found == status
    assert set(json.loads(text)) == {"error"}


def test_a_port_in_use_is_one_sentence(capsys) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert main(["--port", str(number)]) == 2
    assert capsys.readouterr().err == (
        f"playground: port {number} is in use; give another with --port, or --port 0 for any free one\n"
    )
    assert main(["--port", "70000"]) == 2
    assert "--port 70000 is none" in capsys.readouterr().err


def test_a_browser_shows_it_and_follows_the_keyboard(port, tmp_path) -> None:
    steps = "Number(document.querySelector('#numbers dd').textContent)"
    with Browser(tmp_path) as browser:
        browser.open(f"http://127.0.0.1:{port}/#target=gaussian&algorithm=mala&step_size=0.5&steps=20")
        browser.wait("document.body?.dataset.ready === 'yes'")
        assert browser.ask(steps) == 20
        inked = "new Set(document.querySelector('#plane').getContext('2d').getImageData(0, 0, 900, 600).data).size"
        assert browser.ask(inked) > 50
        browser.ask("document.querySelector('#plane').focus()")
        browser.press("ArrowRight")
        browser.wait(f"{steps} === 21")
        browser.press(" ", " ")
        browser.wait(f"{steps} > 25")
        assert browser.ask("document.querySelector('#run').textContent") == "Pause"
        browser.press(" ", " ")
        browser.wait("document.querySelector('#run').textContent === 'Start'")
        browser.press("Home")
        browser.wait(f"{steps} === 0")
        reached = set()
        for _ in range(12):
            browser.press("Tab")
            reached.add(browser.ask("document.activeElement.id"))
        assert {
            "target",
            "algorithm",
            "step-size",
            "temperature",
            "speed",
            "run",
            "step",
            "restart",
            "plane",
        } <= reached
        for theme in ("light", "dark"):
            browser.theme(theme)
            text = "['h1', 'p', 'label', 'dt', 'dd', 'figcaption', 'footer', '#run', 'select', '#fault']"
            colours = browser.ask(
                f"{text}.map((name) => {{ const style = getComputedStyle(document.querySelector(name)); "
                "return [name, style.color, style.backgroundColor] })"
            )
            paper = browser.ask("getComputedStyle(document.body).backgroundColor")
            for name, ink, ground in colours:
                assert contrast(ink, paper if ground == "rgba(0, 0, 0, 0)" else ground) >= 4.5, (theme, name)
        browser.resize(390, 800)
        assert browser.ask("document.documentElement.scrollWidth") <= 390
        assert browser.ask("getComputedStyle(document.querySelector('#rows-label')).display") == "none"
        assert browser.complaints == []
