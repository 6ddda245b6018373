"""The reports: whole HTML with nothing in it but what was measured, and no value that becomes a tag."""

from __future__ import annotations

import base64
import json
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.model_selection import KFold

from lamu.cli.predicting import MEANING, columns, estimates, score_explanations, score_rows
from lamu.cli.reporting import baselines
from lamu.convergence import Convergence
from lamu.data import Encoding
from lamu.likelihoods import Bernoulli, Gaussian, Poisson
from lamu.plots.style import INK, canvas
from lamu.predictives import MixturePredictive
from lamu.report import FittedRun, comparison_report, fit_report
from lamu.report.effects import as_columns, draw, effects
from lamu.report.fitted import _scored, advice
from lamu.report.page import element, picture, table, text
from lamu.scores import Estimate, ece_if_calibrated
from lamu.tabular.peers import peer
from tests.browser import COLOURS_OF_TEXT, Browser, contrast
from tests.command_line import TASKS, fit_each_task, runner

RANDOM = np.random.default_rng(0)
VOID = {"meta", "br", "img", "link"}
NASTY = ("<script>alert(1)</script>", 'a & "b" $x$ $', "it's <b>\x00\x85")


class Page(HTMLParser):
    """A parsed page: its elements, their attributes and its text; an unbalanced tag fails."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def assert_self_contained(source: str) -> Page:
    page = Page(source)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "embed", "i", "b"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], attributes
        for name in ("href", "xlink:href", "src"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert source.count("url(") == source.count("url(#")
    assert "@import" not in source
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    targets = {str(attributes["href"])[1:] for tag, attributes in page.tags if tag == "a"}
    assert targets <= set(identifiers)
    assert len(source.encode()) < 2_000_000
    return page


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    return fit_each_task(tmp_path_factory)


@pytest.mark.parametrize("task", TASKS)
def test_the_report_of_a_fit_is_one_whole_page(fitted, task) -> None:
    page = assert_self_contained((fitted / task / "report.html").read_text(encoding="utf-8"))
    metrics = json.loads((fitted / task / "metrics.json").read_text())
    for name, value in metrics["scores"].items():
        assert str(Estimate(value, metrics["standard_errors"][name])) in page.text
    parts = [value for name, value in metrics.items() if name.startswith("seconds")]
    assert sum(parts) - metrics["seconds_compiling"] == pytest.approx(2 * metrics["seconds_total"])
    assert metrics["seconds_report"] > 0
    if task != "regression":
        assert f"right probabilities would have {metrics['ece_if_calibrated']:.3f} at 24 rows" in page.text
    for words in ("gradient boosting", "linear model", "constant", "96 rows to learn from, 24 held out", "ivon"):
        assert words in page.text
    labels = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    features = len(json.loads((fitted / task / "config.json").read_text())["columns"])
    assert len([label for label in labels if str(label).startswith("mean prediction against")]) == min(features, 8)
    headings = [tag for tag, _ in page.tags if tag in ("h1", "h2")]
    assert headings == ["h1", *["h2"] * 7]


class Linear:
    """A posterior of three draws of a slope on the first of some features; the others do nothing."""

    slopes = jnp.array([1.0, 2.0, 3.0])

    def __init__(self, likelihood) -> None:
        self.likelihood = likelihood
        self.model = SimpleNamespace(likelihood=likelihood, network="Linear()")

    def predict(self, x) -> MixturePredictive:
        return MixturePredictive.equal(
            self.likelihood, {}, self.slopes[:, None, None] * jnp.asarray(x)[None, :, :1], drawn=True
        )


def test_an_effect_is_the_mean_prediction_with_the_spread_of_its_draws() -> None:
    x = RANDOM.normal(size=(50, 2))
    encoding = Encoding("y", "regression", (), ("a", "b"), units=(("y", 100.0, 10.0), ("a", 5.0, 2.0)))
    first, second = effects(Linear(Gaussian(1.0)), x, encoding, seed=0)
    assert (first.name, second.name) == ("a", "b")
    value = (first.values - 5.0) / 2.0
    np.testing.assert_allclose(first.mean[:, 0], 100.0 + 10.0 * 2.0 * value, rtol=1e-5)
    np.testing.assert_allclose(first.deviation[:, 0], 10.0 * np.sqrt(2 / 3) * np.abs(value), rtol=1e-4, atol=1e-4)
    table = as_columns([first, second])
    assert list(table) == ["column", "value", "mean", "deviation"]
    np.testing.assert_array_equal(table["mean"][: len(first.values)], first.mean[:, 0])
    assert table["column"].tolist() == ["a"] * len(first.values) + ["b"] * len(second.values)
    assert second.size < 1e-3  # the draws of a mean over rows move together, not row by row


def test_an_effect_of_words_is_at_its_levels() -> None:
    x = np.stack([RANDOM.integers(1, 3, 40), RANDOM.normal(size=40)], axis=1)
    encoding = Encoding("y", "binary", ("no", "yes"), ("kind", "b"), (("cat", "dog"), ()))
    found = {effect.name: effect for effect in effects(Linear(Bernoulli()), x, encoding, seed=0)}
    assert found["kind"].values.tolist() == ["cat", "dog"]
    assert as_columns([found["kind"]])["class"].tolist() == ["yes", "yes"]
    p = 1 / (1 + np.exp(-np.array([1.0, 2.0, 3.0])))
    assert found["kind"].mean[0, 0] == pytest.approx(p.mean(), rel=1e-4)
    labels = [label.get_text() for label in draw(found["kind"], "y").axes[0].get_xticklabels()]
    assert labels == ["cat", "dog"]


def nasty_run(rows: int = 20) -> FittedRun:
    """A run whose every name and label is HTML or a formula."""
    encoding = Encoding("<img src=x onerror=alert(1)>", "binary", ("</td>no $", "<b>yes</b> $1$"), NASTY)
    encoding = Encoding(**{**vars(encoding), "levels": ((), ("<i>red</i>", "$5"), ())})
    x = np.stack([RANDOM.normal(size=60), RANDOM.integers(0, 3, 60), RANDOM.normal(size=60)], axis=1)
    y = (RANDOM.uniform(size=60) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(np.int32)
    posterior, train, test = Linear(Bernoulli()), np.arange(40), np.arange(40, 40 + rows)
    pred = posterior.predict(x[test])
    scores = estimates(score_rows(pred, y[test], encoding))
    config = {
        "data": "<data>.csv", "target": encoding.target, "algorithm": "<ivon>", "settings": {"a": "<1>"},
        "candidates": {}, "folds": 0, "likelihood": None, "prior_as_used": "Normal(<2>)",
        "temperature": 1.0, "seed": 0, "steps": 10, "notes": ["<note> & more"], "versions": {"<python>": "3"},
    }  # fmt: skip
    return FittedRun(
        posterior, pred, columns(pred, test, y[test], encoding), encoding, x, train, test, y[test],
        [{"loss": np.linspace(2, 1, 9), "validation_step": np.array([9]), "validation_nll": np.array([0.7])}],
        {"<ivon>": scores, "constant": scores}, {"constant": Estimate(0.5, 0.1)}, MEANING, 0.9, canvas(3.0, 3.0),
        Convergence(residual=3.0, dimension=4), config, 1.0, {}, "<out>",
    )  # fmt: skip


def test_no_value_becomes_a_tag() -> None:
    page = assert_self_contained(fit_report(nasty_run()))
    shown = page.text
    for name in (*NASTY[:2], "it's <b>", "<img src=x onerror=alert(1)>", "</td>no $", "<b>yes</b> $1$", "<i>red</i>"):
        assert name in shown
    for words in ("<data>.csv", "<note> & more", "<python>", "lamu predict <out>", "It predicts better than"):
        assert words in shown
    assert "\x00" not in shown


def test_elements_escape_what_they_hold() -> None:
    assert element("td", "<b>", title='"&"') == '<td title="&quot;&amp;&quot;">&lt;b&gt;</td>'
    assert element("p", element("b", 1)) == "<p><b>1</b></p>"
    assert text("a\x08b\ud800") == "a�b�"
    assert "&lt;1&gt;" in table("<1>", ("a",), [("b",)])


def test_a_picture_has_the_colours_of_the_page_and_names_of_its_own() -> None:
    def diagonal():
        figure = canvas(3.0, 2.0)
        figure.subplots().plot((0, 1), (0, 1), color=INK)
        return figure

    one, other, again = (picture(name, diagonal(), 'a "line"') for name in "aba")
    assert INK not in one
    assert "var(--ink)" in one
    assert 'aria-label="a &quot;line&quot;"' in one
    assert_self_contained(f"<html>{one}{other}</html>")
    assert again == one  # no date, no random name


WORDS = {"data": "a.csv", "target": "y", "algorithm": "ivon", "out": "run"}


def advised(scores, differences=None, converged=None, share=0.1, rows=500, right=None) -> list[str]:
    return advice(scores, differences or {}, 0.9, converged, share, rows, right, WORDS)


def test_advice_follows_what_was_found() -> None:
    good = {"nll": Estimate(1.0, 0.1), "coverage": Estimate(0.9, 0.02)}
    found = " ".join(advised(good, {"linear model": Estimate(0.3, 0.1)}, True))
    for words in ("converged", "predicts these rows better", "too narrow", "too wide", "wide errors", "hardly"):
        assert words not in found
    # Noise of the target, and a function that the model cannot follow, are one to it: nothing is claimed of more rows.
    assert "90 % of the predictive uncertainty is noise to this model" in found
    assert "or what the model cannot follow" in found
    assert "(lamu fit a.csv --target y --test-size 0.6 --out fewer)" in found
    bad = good | {"coverage": Estimate(0.625, 0.02)}
    found = advised(bad, {"linear model": Estimate(-0.3, 0.1)}, False, 0.6, 50)
    for part, words in zip(found, ("not converged", "linear model predicts these rows better by 0.3 nats",
                                   "hold 62.5 % of the targets: they are too narrow", "more rows like these",
                                   "50 test rows", "lamu predict run"), strict=True):  # fmt: skip
        assert words in part
    assert "too wide" in " ".join(advised(good | {"coverage": Estimate(1.0, 0.0)}))
    counts = lambda held: " ".join(
        advice({"coverage": Estimate(held, 0.0)}, {}, 0.9, None, 0.1, 500, None, WORDS, True)
    )
    assert "too wide" not in counts(0.97)
    assert "too narrow. Try --likelihood negative_binomial, or" in counts(0.6)
    off = lambda right: " ".join(advised({"ece": Estimate(0.2, 0.01)}, right=right))
    assert "off by 0.20 on average, where right ones would be by 0.10: calibrate" in off(Estimate(0.1, 0.03))
    assert "calibrate them" not in off(Estimate(0.15, 0.03))  # as large as chance makes it


def test_a_point_estimate_does_not_say_that_more_rows_would_not_help() -> None:
    found = " ".join(advised({"nll": Estimate(1.0, 0.1)}, converged=True, share=0.0))
    assert "More rows would help if" not in found
    assert "The posterior is one point" in found
    assert "--algorithm laplace" in found


def rows_of_table(shown: Page, caption: str) -> list[list[str]]:
    """The cells of a table of rows, row by row."""
    texts = [text.strip() for text in shown.texts if text.strip()]
    start = texts.index(caption) + 1
    heads = texts[start : texts.index("log density", start) + 1]
    width = len(heads) + 3  # and the features
    body = texts[start + width : start + 9 * width]
    return [body[index * width : (index + 1) * width] for index in range(8)]


def test_the_worst_rows_are_the_least_probable_and_bring_their_own_features() -> None:
    run = nasty_run()
    log_prob = np.asarray(run.predictions["log_prob"])
    found = rows_of_table(Page(fit_report(run)), "Targets that the prediction held least probable")
    order = np.argsort(log_prob)[:8]
    assert [int(cells[0]) for cells in found] == [40 + index for index in order]
    assert log_prob[order[0]] < log_prob.mean() < log_prob.max()
    shown = {cell for cells in found for cell in cells}
    for index in order:  # the numbers of the first feature, in the rows that are tested
        assert f"{run.x[40 + index, 0]:.6g}" in shown
        assert f"{run.x[index, 0]:.6g}" not in shown
    uncertain = rows_of_table(Page(fit_report(run)), "Predicted with the largest uncertainty")
    assert [int(cells[0]) for cells in uncertain] == [40 + i for i in np.argsort(-np.asarray(run.pred.total))[:8]]


def test_the_report_says_what_right_probabilities_would_have() -> None:
    run = nasty_run()
    right = ece_if_calibrated(run.pred)
    shown = Page(fit_report(run)).text
    assert f"right probabilities would have {right.value:.3f} at 20 rows" in shown
    few = nasty_run(6)
    few = replace(few, scores={"<ivon>": {**few.scores["<ivon>"], "ece": Estimate(np.nan, np.nan)}})
    shown = Page(fit_report(few)).text
    assert "6 test rows are too few to tell whether the probabilities are right" in shown
    assert "too few rows" in shown
    assert "nan" not in shown


def test_few_rows_have_no_calibration_error() -> None:
    rows = {"ece": np.array([[0.9, 1.0]] * 19), "nll": np.ones(19)}
    assert np.isnan(estimates(rows)["ece"].value)
    assert score_explanations(rows)["ece"] == "calibration error; 19 rows are too few to judge it"
    rows = {name: np.concatenate([each, each]) for name, each in rows.items()}
    assert estimates(rows)["ece"].value == pytest.approx(0.1)
    told = score_explanations({"coverage": np.ones(9)}, discrete=True)["coverage"]
    assert told == "of 90 % intervals; at least 0.9, as their ends are whole numbers"
    assert score_explanations(rows)["ece"].startswith(
        "calibration error; lower is better; right probabilities would have 0.0"
    )


def test_a_default_fit_says_where_its_candidates_stopped() -> None:
    run = nasty_run()
    config = run.config | {
        "candidates": {"<mlp>": 0.7, "linear": 0.3},
        "candidates_nll": {"<mlp>": 0.51, "linear": 0.6},
    }
    shown = Page(fit_report(replace(run, convergence=None, histories=(), config=config))).text
    for words in (
        "Each candidate took 10 steps over each fold",
        "<mlp>",
        "0.70",
        "0.510",
        "not a fixed point of a rule",
    ):
        assert words in shown


@pytest.mark.parametrize(
    ("likelihood", "says", "never"),
    [
        (Gaussian(1.0), "normal noise as wide as its errors on training rows held out", "counts"),
        (Poisson(), "The targets are counts, and each baseline is negative binomial about its mean", "normal noise"),
        (Bernoulli(), "a logistic model; the frequencies", "normal noise"),
    ],
)
def test_the_noise_of_the_baselines_is_told_as_it_is(likelihood, says, never) -> None:
    pred = Linear(likelihood).predict(RANDOM.normal(size=(20, 3)))
    run = replace(nasty_run(), pred=pred)
    if likelihood.name != "Bernoulli":
        run = replace(run, encoding=Encoding("y", "regression", (), ("a", "b", "c")))
    told = "".join(map(str, _scored(run)))
    assert says in told
    assert never not in told


def test_a_baselines_noise_is_that_of_rows_held_out() -> None:
    """Of five folds: a forest's errors on its own training rows are a third of it, a line's too small by 1 − p / n."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 8)), random.normal(size=60)
    folds = KFold(5, shuffle=True, random_state=0)
    errors = np.concatenate([
        y[held] - np.stack([np.ones(len(held)), *x[held].T], 1)
        @ np.linalg.lstsq(np.stack([np.ones(len(kept)), *x[kept].T], 1), y[kept])[0]
        for kept, held in folds.split(x)
    ])  # fmt: skip
    own = np.stack([np.ones(60), *x.T], 1)
    training = y - own @ np.linalg.lstsq(own, y)[0]
    scale = float(peer("linear", "regression", x, y, x[:1], (0,) * 8).std[0])
    assert scale == pytest.approx(np.sqrt(np.mean(errors**2)), rel=0.06)  # BayesianRidge shrinks a little
    assert scale > 1.1 * np.sqrt(np.mean(training**2))
    assert float(peer("forest", "regression", x, y, x[:1], (0,) * 8).std[0]) > 0.9 * y.std()


class Point(Linear):
    slopes = jnp.array([2.0])


def test_the_report_of_equally_uncertain_rows_does_not_rank_them() -> None:
    encoding = Encoding("y", "regression", (), ("a", "b"))
    x = RANDOM.normal(size=(60, 2))
    y = 2 * x[:, 0] + RANDOM.normal(size=60)
    posterior, test = Point(Gaussian(1.0)), np.arange(40, 60)
    pred = posterior.predict(x[test])
    scores = estimates(score_rows(pred, y[test], encoding))
    run = replace(
        nasty_run(), posterior=posterior, pred=pred, predictions=columns(pred, test, y[test], encoding), x=x,
        encoding=encoding, y_test=y[test], scores={"adam": scores, "constant": scores},
    )  # fmt: skip
    shown = assert_self_contained(fit_report(run)).text
    assert "equally uncertain about all rows" in shown
    for words in ("Risk against coverage", "largest uncertainty", "Bands hold"):
        assert words not in shown
    assert "largest uncertainty" in Page(fit_report(nasty_run())).text


def test_the_report_of_a_comparison_has_every_row() -> None:
    row = lambda name, value: {
        "algorithm": name, "scores": {"nll": value}, "standard_errors": {"nll": 0.1},
        "nll_difference": {"value": value - 1.0, "standard_error": 0.1},
    }  # fmt: skip
    about = {
        "data": "<d>", "target": "<t>", "task": "binary", "rows": {"train": 10, "test": 5}, "splits": 1, "seed": 0,
        "likelihood": None, "budget": {"batch_size": 64}, "notes": ["<n>"],
    }  # fmt: skip
    rows = [row("a", 1.0), row("b<", 0.5), row("c", 1.5), row("d", 1.01), {"algorithm": "e", "failure": "<why>"}]
    tables = [("algorithm", "nll"), ("b<", "0.5")], [("algorithm", "steps"), ("b<", "7")]
    page = assert_self_contained(comparison_report(about, rows, "a", tables, MEANING, ["<legend>"], {"python": "3"}))
    assert "Better than a by more than two standard errors of the nll: b<" in page.text
    assert "Worse than a by more than two standard errors of the nll: c" in page.text
    assert "do not tell from a: d" in page.text
    for words in ("e: <why>", "<legend>", "<n>", "batch size 64"):
        assert words in page.text


def test_compare_writes_a_report_beside_its_table(capsys, tmp_path, monkeypatch) -> None:
    lamu = runner(capsys, tmp_path, monkeypatch)
    score = {"accuracy": 0.9, "nll": 0.3, "ece": 0.1}
    split = {"scores": score, "standard_errors": score, "nll": [0.3] * 30, "steps": 4, "seconds": 1.0, "evidence": None}
    answer = {"splits": [split], "streams": 1, "memory": None, "epochs": 4}
    monkeypatch.setattr("lamu.cli.comparing.run", lambda task: answer)
    words = ("compare", "iris", "--algorithms", "adam,ivon,boosting", "--epochs", "4", "--likelihood", "categorical")
    ran = lamu(*words, "--report", "found.html")
    assert ran.code == 0, ran.err
    page = assert_self_contained((tmp_path / "found.html").read_text(encoding="utf-8"))
    for name in ("adam", "ivon", "boosting"):
        assert name in page.text
    again = lamu(*words, "--report", "found.html")
    assert again.code == 2
    assert "choose another --report" in again.err
    assert "give FILE.html" in lamu(*words, "--report", "found.pdf").err


@pytest.fixture(scope="module")
def pages(fitted, tmp_path_factory) -> list[str]:
    nasty = tmp_path_factory.mktemp("nasty") / "report.html"
    nasty.write_text(fit_report(nasty_run()), encoding="utf-8")
    return [path.resolve().as_uri() for path in (*(fitted / task / "report.html" for task in TASKS), nasty)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def opened(browser: Browser, address: str) -> None:
    browser.open("about:blank")
    browser.open(address)
    browser.wait(f"location.href === {json.dumps(address)} && document.readyState === 'complete'")


@pytest.mark.stress
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_shows_it_without_complaint_and_legibly(browser, pages, theme) -> None:
    browser.resize(1100, 1000)
    for address in pages:
        browser.theme(theme)
        opened(browser, address)
        seen = browser.ask(COLOURS_OF_TEXT)
        assert {"H1", "P", "TD", "DT", "FIGCAPTION", "text"} <= {tag for tag, *_ in seen}
        for tag, ink, ground in seen:
            assert contrast(ink, ground) >= 4.5, (address, tag, ink, ground)
        paper = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert (contrast(paper, "rgb(0, 0, 0)") < 2) == (theme == "dark")
    assert browser.complaints == []


@pytest.mark.stress
def test_it_fits_a_phone(browser, pages) -> None:
    browser.theme("light")
    browser.resize(390, 800)
    for address in pages:
        opened(browser, address)
        assert browser.ask("innerWidth") == 390
        assert browser.ask("document.documentElement.scrollWidth") <= 390, address
        # What is wider scrolls in its own frame, and a keyboard reaches the frame.
        unreached = (
            "[...document.querySelectorAll('body *')].filter((each) => each.scrollWidth > each.clientWidth + 1 &&"
            "  ['auto', 'scroll'].includes(getComputedStyle(each).overflowX) && each.tabIndex < 0).length"
        )
        assert browser.ask(unreached) == 0, address
        # Text of a picture stays as large as a caption's.
        small = "Math.min(...[...document.querySelectorAll('svg text')].map((e) => e.getBoundingClientRect().height))"
        assert browser.ask(small) >= 7, address


@pytest.mark.stress
def test_the_keyboard_reaches_every_link_and_frame(browser, pages) -> None:
    browser.theme("light")
    browser.resize(1100, 1000)
    for address in pages:
        opened(browser, address)
        places = "[...document.querySelectorAll('a[href], [tabindex]')]"
        reached = []
        for _ in range(browser.ask(f"{places}.length")):
            browser.press("Tab")
            reached.append(browser.ask(f"{places}.indexOf(document.activeElement)"))
            assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid", address
            left = browser.ask("document.activeElement.getBoundingClientRect().left")
            assert left >= 0, "what has the focus is outside the page"
        assert reached == list(range(len(reached)))
        browser.ask("document.querySelector('.skip').focus()")
        browser.press("Enter", "\r")
        browser.wait("location.hash === '#content'")
        browser.press("Tab")  # goes on in the content, not in the table of contents
        assert browser.ask("document.querySelector('main').contains(document.activeElement)")


@pytest.mark.stress
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_prints_dark_on_white(browser, pages, theme) -> None:
    browser.theme(theme, media="print")
    browser.resize(718, 1000)  # a sheet of A4 within margins of 1 cm
    for address in pages:
        opened(browser, address)
        assert browser.ask("document.documentElement.scrollWidth") <= 718, address
        assert browser.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
        for tag, ink, ground in browser.ask(COLOURS_OF_TEXT):
            assert ground == "rgb(255, 255, 255)"
            assert contrast(ink, ground) >= 4.5, (address, tag, ink)
        assert base64.b64decode(browser.call("Page.printToPDF")["data"]).startswith(b"%PDF")


def test_baselines_are_fitted_beside_the_work_and_do_not_warn() -> None:
    x = RANDOM.normal(size=(60, 2)) * [1.0, 1e4]
    y, encoding = (x[:, 0] > 0).astype(int), Encoding("y", "binary", ("no", "yes"), ("u", "v"), levels=((), ()))
    filters = list(warnings.filters)
    with baselines(x[:40], y[:40], x[40:], encoding, counts=False) as coming:
        found = coming.result()
    assert set(found) == {"gradient boosting", "linear model", "constant"}
    alone = peer("linear", "binary", x[:40], y[:40], x[40:], (0, 0), 2)
    np.testing.assert_allclose(found["linear model"].mean, alone.mean)
    assert warnings.filters == filters
