"""Every link, path, command, option and public name that the Markdown files mention leads to what exists.

Links between the built pages, with those of docstrings, are followed by `docs/hooks/links.py` when the site is built.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
from typer.main import get_command

import lamu
from lamu.cli.app import app
from tests.for_each import for_each

ROOT = Path(__file__).parent.parent
FILES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(FILES)}
HISTORY = "HISTORY.md"  # of development: names were right when it was written

FENCE = re.compile(r"^([ >]*)(```+|~~~+).*?^\1\2", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\)|<[a-z][^>]*?\s(?:href|src)=\"([^\"]+)\"|<(https?:[^>]*)>")
HEADING = re.compile(r"^#{1,6} +(.*?)(?:\s*\{[^}]*\})?\s*$", re.MULTILINE)
MARKED = re.compile(r"\{[^}\n]*#([\w-]+)[^}\n]*\}|\bid=\"([^\"]+)\"")
PATH = re.compile(r"(?:examples|benchmarks|tests|docs|src|verification|\.ci|\.github)/[\w.*/-]+")
RUN = re.compile(r"python (?:-m ((?:benchmarks|examples)[\w.]*)|(examples/[\w/]+\.py))([^`#\n|)]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
HOSTS = {"arxiv.org", "docs.jax.dev", "keepachangelog.com"}  # outside of the repository: papers, JAX, a convention
MADE = re.compile(r"docs/gallery/\w+\.png")  # pictures that the gallery's hook writes into the site


@cache
def cli() -> dict[str, set[str]]:
    """The options of every command, with those that all have."""
    group = get_command(app)
    common = {"--help"} | {name for part in group.params for name in part.opts}
    return {
        name: common | {each for part in command.params for each in (*part.opts, *part.secondary_opts)}
        for name, command in group.commands.items()  # pyright: ignore[reportAttributeAccessIssue]
    }


@cache
def anchors(path: Path) -> set[str]:
    """The anchors of a Markdown file, as the site makes them of its headings."""
    slugify = pytest.importorskip("markdown.extensions.toc").slugify
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(text))
    return {slugify(heading, "-") for heading in plain} | {one or other for one, other in MARKED.findall(text)}


def wrong_address(address: str) -> str:
    """What is wrong with an address outside of the repository, or nothing."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme == "mailto" or host in ("127.0.0.1", "localhost"):
        return ""
    if parts.scheme != "https" or not re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", host):
        return "is no address of https"
    return "" if host in HOSTS else "is of a host that no page has led to so far"


def wrong_links(page: str, text: str) -> Iterator[str]:
    """Links, anchors and pictures."""
    for found in LINK.finditer(CODE.sub("", text)):
        link = next(filter(None, found.groups()))
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if wrong := wrong_address(link):
                yield f"{link} {wrong}"
            continue
        path = (ROOT / page).parent / unquote(parts.path) if parts.path else ROOT / page
        path = path.resolve()
        if not path.is_relative_to(ROOT):
            yield f"{link} leads out of the repository"
        elif not path.exists() and not MADE.fullmatch(str(path.relative_to(ROOT))):
            yield f"{link} leads to no file"
        elif parts.fragment and path.suffix == ".md" and unquote(parts.fragment) not in anchors(path):
            yield f"{link} leads to no heading"


def wrong_paths(text: str) -> Iterator[str]:
    """Files and folders in code."""
    for found in CODE.finditer(text):
        path = found[2].strip()
        if PATH.fullmatch(path) and not list(ROOT.glob(path.rstrip("/"))):
            yield f"{path} is no file"


def wrong_commands(text: str) -> Iterator[str]:
    """`lamu`, `make`, and the modules and scripts that are run, with their options."""
    for found in re.finditer(r"(?:`|^|\$ )lamu ([a-z]+)((?:[^`#\n])*)", text, re.MULTILINE):
        if found[1] not in cli():
            yield f"lamu {found[1]} is no command"
        else:
            yield from (f"lamu {found[1]} has no {o}" for o in OPTION.findall(found[2]) if o not in cli()[found[1]])
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    yield from (f"make {target} is no target" for target in named if target not in targets)
    for module, script, options in RUN.findall(text):
        path = ROOT / (script or module.replace(".", "/"))
        files = [path] if script else [path.with_suffix(".py"), *path.rglob("*.py")]
        code = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
        if not code or not (script or path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()):
            yield f"{module or script} cannot be run"
        yield from (f"{module or script} has no {o}" for o in OPTION.findall(options) if f'"{o}"' not in code)


def wrong_names(text: str) -> Iterator[str]:
    """Dotted names of the library."""
    for name in set(re.findall(r"(?<![\w/.])lamu(?:\.(?!NAME\b)[A-Za-z_]\w*)+", text)):
        try:
            value = lamu
            for part in name.split(".")[1:]:
                value = getattr(value, part)
        except AttributeError:
            try:
                importlib.import_module(name)
            except ImportError:
                yield f"{name} is no name of the library"


@for_each("page", [page for page in PAGES if page != HISTORY])
def test_what_a_page_mentions_exists(page: str) -> None:
    text = PAGES[page]
    prose = FENCE.sub("", text)
    wrong = [*wrong_links(page, prose), *wrong_paths(prose), *wrong_commands(text), *wrong_names(text)]
    assert not wrong, "\n  ".join([f"{page}:", *wrong])


def test_links_of_the_history_exist() -> None:
    assert not list(wrong_links(HISTORY, FENCE.sub("", PAGES[HISTORY])))


@for_each(
    "text, wrong",
    [
        ("[a](docs/nowhere.md)", "docs/nowhere.md leads to no file"),
        ("[a](docs/index.md#nowhere)", "docs/index.md#nowhere leads to no heading"),
        ("[![a](docs/images/none.png)](docs/index.md)", "docs/images/none.png leads to no file"),
        ('<a href="docs/none.md">a</a>', "docs/none.md leads to no file"),
        ("[a](../BRIEF.md)", "../BRIEF.md leads out of the repository"),
        ("[a](http://arxiv.org/abs/1)", "http://arxiv.org/abs/1 is no address of https"),
        ("<https://arxiv>", "https://arxiv is no address of https"),
        ("[a](https://an.index.org/lamu)", "https://an.index.org/lamu is of a host that no page has led to so far"),
        ("`examples/none.py`", "examples/none.py is no file"),
        ("`lamu fi iris`", "lamu fi is no command"),
        ("```\nlamu fit iris --folder run\n```", "lamu fit has no --folder"),
        ("`make tests`", "make tests is no target"),
        ("`python -m benchmarks.none`", "benchmarks.none cannot be run"),
        ("`python -m benchmarks.speed --slow`", "benchmarks.speed has no --slow"),
        ("`python examples/none.py`", "examples/none.py cannot be run"),
        ("`lamu.algorithms.non()`", "lamu.algorithms.non is no name of the library"),
    ],
)
def test_what_is_missing_is_found(text: str, wrong: str) -> None:
    prose = FENCE.sub("", text)
    assert [*wrong_links("README.md", prose), *wrong_paths(prose), *wrong_commands(text), *wrong_names(text)] == [wrong]


@for_each(
    "text",
    [
        '[a](docs/index.md#first-prediction) ![b](docs/images/report.png) [c](CONTRIBUTING.md "how") `f[a](x)`',
        "`examples/*.py` `lamu fit t.csv --target y --out run` `make test` `lamu.networks.MLP((3,))` `lamu.loop.fit`",
        "`python -m benchmarks.speed --quick` [a](https://arxiv.org/abs/1906.02506) http://127.0.0.1:8765/",
    ],
)
def test_what_exists_is_found(text: str) -> None:
    assert not [*wrong_links("README.md", text), *wrong_paths(text), *wrong_commands(text), *wrong_names(text)]


def hook(name: str) -> ModuleType:
    """A hook of the site."""
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dead_links_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top">A</h1><a href="api/a.html#x">1</a><a href="#top">2</a><a href="#gone">3</a><img src="a%20b.png">'
        '<a href="api">4</a><a href="https://arxiv.org">5</a><a href="/api/a.html">6</a><a href="api/a.html#y">7</a>'
    )
    (tmp_path / "api" / "a.html").write_text('<a id="x" href="../index.html">1</a><a href="none.html">2</a>')
    assert set(hook("links").dead(tmp_path)) == {
        ("index.html", "#gone", "no such anchor"),
        ("index.html", "a%20b.png", "no such file"),
        ("index.html", "api", "no such file"),
        ("index.html", "api/a.html#y", "no such anchor"),
        ("api/a.html", "none.html", "no such file"),
    }


def test_the_search_of_a_built_site_is_asked(tmp_path: Path) -> None:
    search = hook("search")
    program = search.node() or pytest.skip("not run: no Node")
    scripts = Path(pytest.importorskip("material").__file__).parent / "templates" / "assets" / "javascripts" / "workers"
    (tmp_path / "assets" / "javascripts").mkdir(parents=True)
    (tmp_path / "assets" / "javascripts" / "workers").symlink_to(scripts)
    (tmp_path / "search").mkdir()
    fields = {name: {"boost": boost} for name, boost in (("title", 10), ("text", 1), ("tags", 10))}
    config = {"lang": ["en"], "separator": r"[\s\-]+", "pipeline": ["stopWordFilter"], "fields": fields}
    texts = {"a": ("Sampling", "chains"), "b": ("Graphs", "messages and chains"), "c": ("Tables", "columns")}
    docs = [{"location": f"{page}.html", "title": title, "text": text} for page, (title, text) in texts.items()]
    (tmp_path / "search" / "search_index.json").write_text(json.dumps({"config": config, "docs": docs}))
    found = search.answers(tmp_path, ["sampling", "messages", "chains", "none"], program)
    assert found[:2] == [["a.html"], ["b.html"]]
    assert set(found[2]) == {"a.html", "b.html"}
    assert found[3] == []


def test_questions_of_newcomers_have_pages() -> None:
    questions = hook("search").QUESTIONS
    asked = {"uncertainty for my PyTorch model", "prediction interval", "calibrate probabilities", "missing values"}
    assert asked | {"Poisson regression", "VAE", "HMM"} <= set(questions)
    assert all((ROOT / "docs" / page).with_suffix(".md").is_file() for page in questions.values())


def test_the_search_reads_no_source_code_and_the_page_keeps_it() -> None:
    search, text = (
        hook("search"),
        '<p>prose</p><details class="mkdocstrings-source"><pre>code\n</pre></details><p>end</p>',
    )
    page = SimpleNamespace(content=text)
    hide, show = search.on_page_context.methods
    hide({}, page=page)
    assert page.content == "<p>prose</p><p>end</p>"
    show({}, page=page)
    assert page.content == text
