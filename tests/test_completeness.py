"""Every place that a new algorithm touches, checked in seconds: `make complete` runs this file and its relatives.

A recipe fails here with the list of the files in which it is missing. The tests of what those places hold are elsewhere
(`tests/laws`, `test_documented.py`, `test_verification.py`).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import lamu
from lamu_verification import checks, shipped_rows
from lamu_verification.recipe_rows import POINTS
from tests.for_each import for_each
from tests.laws import mcmc, posteriors, protocol, recipes, stochastic  # noqa: F401  (they register their rows)
from tests.laws.harness import ROWS
from tests.test_documented import WITHOUT_INPUTS

ROOT = Path(__file__).parent.parent
TABLES = {"algorithms": lamu.algorithms.registry(), "mcmc": lamu.mcmc.registry()}
RECIPES = {name: (package, recipe) for package, table in TABLES.items() for name, recipe in table.items()}
# Expectations without random numbers; recipes with any other need a row of the stochastic laws.
WITHOUT_DRAWS = {"Delta", "Exact", "Quadrature", "WorstCase", "ZeroTemperature", "propagated moments"}


def written() -> dict[str, Path]:
    """The functions under `algorithms` and `mcmc` whose docstring states departures from the rule, with their file."""
    found = {}
    for package in TABLES:
        for path in sorted((ROOT / "src" / "lamu" / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and "Departures from the rule" in (ast.get_docstring(node) or ""):
                    found[node.name] = path
    return found


WRITTEN = written()


def named_in(page: str, name: str) -> bool:
    return bool(re.search(rf"`(?:lamu\.(?:algorithms|mcmc)\.)?{name}\b", (ROOT / page).read_text(encoding="utf-8")))


def in_laws(kind: str, name: str) -> bool:
    """Whether a row of the kind is about the recipe: "von", "von of classes" and "von, dense" are about `von`."""
    return any(row.kind == kind and re.split(r" of |, ", row.name)[0] == name for row in ROWS)


def places(name: str) -> dict[str, bool]:
    """The places that a recipe touches, each with what to write there, and whether it is there."""
    package = RECIPES[name][0] if name in RECIPES else WRITTEN[name].relative_to(ROOT / "src" / "lamu").parts[0]
    deterministic = name in RECIPES and RECIPES[name][1].choices.expectation in WITHOUT_DRAWS
    return {
        f"src/lamu/{package}/: a file whose function states its departures from the rule": name in WRITTEN,
        f"src/lamu/{package}/: @recipe(source) above that function": name in RECIPES,
        f"src/lamu/{package}/__init__.py: an import, and an entry in __all__": name in getattr(lamu, package).__all__,
        'tests/laws/recipes.py: a row("protocol", ...)': in_laws("protocol", name),
        "tests/laws/recipes.py: a call of fitted(...)": in_laws("posteriors", name) or name in WITHOUT_INPUTS,
        'tests/laws/recipes.py: a row("stochastic", ...), if its steps are random': deterministic
        or in_laws("stochastic", name),
        "verification/lamu_verification/recipe_rows.py: a check beside an independent reference": name in checks(),
        "verification/lamu_verification/recipe_rows.py: a default fit beside a reference, or an entry of POINTS": (
            (name in shipped_rows()) != (name in POINTS)
        ),
        "docs/algorithms.md: a line of its table": named_in("docs/algorithms.md", name),
    }


@for_each("name", sorted({*RECIPES, *WRITTEN}))
def test_an_algorithm_is_in_every_place_that_it_touches(name: str) -> None:
    missing = [place for place, there in places(name).items() if not there]
    assert not missing, "\n  ".join([f"{name} is missing in", *missing])


def test_the_guide_lists_the_places() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for file in {place.split(":")[0] for place in places("ivon")}:
        assert (ROOT / file).exists(), file
        assert f"`{file}`" in guide, f"CONTRIBUTING.md does not list {file}"


def test_an_algorithm_touches_five_files() -> None:
    files = {place.split(":")[0] for place in places("ivon")}
    assert len(files) == 5, files
