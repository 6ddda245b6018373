"""The house: floors respected, no file in the way of a name, a light `lamu --help`, no test left uncollected."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import lamu
from tests.for_each import for_each

ROOT = Path(__file__).parent.parent
SOURCE, TESTS = ROOT / "src" / "lamu", ROOT / "tests"
FILES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in FILES]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
FLOORS = [[name.strip() for name in floor.split("|")] for floor in CONTRACTS[0]["layers"]]
HEIGHT = {name: len(FLOORS) - index for index, floor in enumerate(FLOORS) for name in floor}


def imported(tree: ast.Module) -> list[str]:
    """The modules of the package that a file imports, as dotted names; `from lamu import tree` is `lamu.tree`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] == "lamu"]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the floor"
            if node.module == "lamu":
                found += [f"lamu.{alias.name}" for alias in node.names]
            elif node.module and node.module.startswith("lamu."):
                found.append(node.module)
    return found


@for_each("path, name", zip(FILES, NAMES, strict=True))
def test_a_file_imports_from_lower_floors_only(path: Path, name: str) -> None:
    if name == "__init__.py":
        return
    floor = name.split("/")[0].removesuffix(".py")
    assert floor in HEIGHT, f"{floor} stands on no floor of pyproject.toml"
    for module in imported(ast.parse(path.read_text())):
        assert module != "lamu", "the package root is never imported from inside"
        other = module.split(".")[1]
        assert other in HEIGHT, f"{module} is a name of the root"
        assert other == floor or HEIGHT[other] < HEIGHT[floor], f"{name} imports {module} from above"


def test_the_check_sees_an_import_from_above() -> None:
    assert imported(ast.parse("from lamu import tree\nimport lamu\nfrom lamu.loop import fit")) == [
        "lamu.tree",
        "lamu",
        "lamu.loop",
    ]
    assert HEIGHT["loop"] > HEIGHT["rule"] > HEIGHT["operators"] > HEIGHT["typing"]


def submodules(package: ModuleType) -> list[str]:
    walked = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [module.name for module in walked if not module.name.endswith("__main__")]


def public_packages() -> list[ModuleType]:
    return [lamu, *(value for name in lamu.__all__ if isinstance(value := getattr(lamu, name), ModuleType))]


def test_no_file_bears_the_name_of_a_public_object_of_its_package() -> None:
    for package in public_packages():
        if not hasattr(package, "__path__"):
            continue
        files = {module.name for module in pkgutil.iter_modules(package.__path__)}
        objects = {name for name in package.__all__ if not isinstance(getattr(package, name), ModuleType)}
        assert not files & objects, f"{package.__name__}: {files & objects}"


def test_public_names_keep_their_type_when_everything_is_imported() -> None:
    def kinds() -> dict[str, str]:
        return {
            f"{package.__name__}.{name}": type(getattr(package, name)).__name__
            for package in public_packages()
            for name in package.__all__
        }

    before = kinds()
    for name in submodules(lamu):
        importlib.import_module(name)
    assert kinds() == before


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["--version"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys, json\nfrom lamu.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "heavy = ('jax', 'numpy', 'pandas', 'sklearn', 'flax', 'numpyro')\n"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_door_imports_nothing_until_it_is_asked() -> None:
    script = (
        "import sys, lamu\nassert 'jax' not in sys.modules\nlamu.Model\nassert 'jax' in sys.modules\nprint(dir(lamu))"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True, capture_output=True)


def test_the_core_waits_for_no_graph_and_no_table() -> None:
    """Nothing of a fit, an algorithm or a sampler needs what only graphs, latents, programs and tables are made of."""
    script = (
        "import sys, lamu\nlamu.fit, lamu.fit_folds, lamu.scores, lamu.calibration, lamu.mcmc.nuts\n"
        "lamu.algorithms.ivon\n"
        "roots = ('graphs', 'latent', 'programs', 'tabular', 'sklearn', 'report', 'cli')\n"
        "print([name for name in roots if f'lamu.{name}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_name_of_a_face_loads_what_it_needs() -> None:
    """The faces import their names when they are asked for them, so that one algorithm does not wait for the others."""
    script = (
        "import sys, lamu\nlamu.algorithms.ivon\n"
        "print(len([name for name in sys.modules if name.startswith('lamu')]))\n"
        "assert not {'lamu.algorithms.post_hoc', 'lamu.mcmc', 'lamu.algorithms.closed_form'} & set(sys.modules)\n"
        "assert lamu.priors.normal.__name__ == 'lamu.priors.normal'\n"
        "assert set(lamu.families.__all__) <= set(dir(lamu.families))"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=True, capture_output=True, text=True)
    assert int(done.stdout) <= 200


def test_the_scores_wait_for_no_sampler() -> None:
    """`lamu fit` and the report import the scores, and have no use for what chains are made of."""
    script = "import sys, lamu.scores\nassert 'lamu.mcmc' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


def test_a_first_fit_imports_no_package_that_it_does_not_use() -> None:
    """NumPyro's transforms are for variables in real coordinates, SciPy's optimiser for learned dispersions."""
    script = (
        "import sys, jax.numpy as jnp, lamu\nfrom lamu import graphs\nfrom lamu.families import Gamma\n"
        "def level(m):\n"
        "    noise = m.sample('noise', Gamma(1.0, 1.0))\n"
        "    with m.rows():\n"
        "        m.sample('y', graphs.Normal(0.0, precision=noise))\n"
        "lamu.fit(lamu.Graph(level), {'y': jnp.array([2.0, 3.0])}, lamu.algorithms.vmp(), progress=False)\n"
        "network = lamu.networks.Trained(lambda w, x: x @ w['w'], {'w': jnp.eye(2)})\n"
        "model = lamu.Model(network, lamu.likelihoods.Categorical(2))\n"
        "lamu.fit(model, (jnp.eye(2), jnp.arange(2)), lamu.algorithms.laplace(), epochs=0, progress=False)\n"
        "print([name for name in ('numpyro', 'scipy.optimize', 'sklearn', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=120, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_door_knows_what_it_lists() -> None:
    assert sorted(lamu.__all__) == lamu.__all__
    assert set(lamu.__all__) <= set(dir(lamu))
    with pytest.raises(AttributeError, match="no attribute 'Modle'"):
        _ = lamu.Modle
    assert lamu.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_everything_that_looks_like_a_test_is_collected() -> None:
    """A misnamed file, a nested test, a law without its decorator, or two tests of one name would run never."""
    for path in sorted(TESTS.rglob("*.py")):
        tree, law_file = ast.parse(path.read_text()), path.parent.name == "laws" and not path.name.startswith("test_")
        top = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        tests = [
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
        ]
        in_classes = [
            node.name
            for cls in tree.body
            if isinstance(cls, ast.ClassDef) and cls.name.startswith("Test")
            for node in cls.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
        ]
        if tests:
            assert path.name.startswith("test_"), f"{path} holds tests and is not collected"
        seen = [node.name for node in top if node.name.startswith("test_")]
        assert sorted(tests) == sorted(seen + in_classes), f"{path} holds tests that are not collected"
        assert len(seen) == len(set(seen)), f"{path} holds two tests of one name"
        if law_file:
            taking_a_row = [
                n
                for n in top
                if [a.arg for a in n.args.args] == ["row"]
                and n.name[0] != "_"
                and ast.unparse(n.returns or ast.Constant(None)) == "None"
            ]
            decorated = [n for n in taking_a_row if any("law(" in ast.unparse(d) for d in n.decorator_list)]
            assert taking_a_row == decorated, f"{path} holds laws that are not registered"


PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "images" / "architecture.svg"


def files_named(text: str) -> set[str]:
    """Files and folders in backticks of a page, or the whole text of an element of a picture."""
    quoted = re.findall(r"`([^`\n]+)`", text) + re.findall(r">([^<>\n]+)<", text)
    return {name for name in quoted if re.fullmatch(r"[\w.-]+(/[\w.-]+)*(\.(py|md|toml|yml)|/)", name)}


@for_each("path", [PAGE, PICTURE])
def test_the_page_of_the_architecture_names_files_that_exist(path: Path) -> None:
    named = files_named(path.read_text(encoding="utf-8"))
    assert {"loop.py", "rule.py", "posterior.py", "running/conclusion.py"} <= named
    missing = sorted(name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists())
    assert not missing, f"{path.name} names files that are not there: {missing}"


def test_the_page_of_the_architecture_has_the_floors_in_their_order() -> None:
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert [[name.strip() for name in line.split("|")] for line in blocks[0].splitlines()] == FLOORS


def test_a_file_that_is_not_there_is_found() -> None:
    assert files_named("`loop.py`, `scores/` and `a | b`\n<text>running/gone.py</text>") == {
        "loop.py",
        "scores/",
        "running/gone.py",
    }


def test_what_is_left_to_the_night_is_there() -> None:
    """A renamed test would run by day again, unseen."""
    folder = Path(__file__).parent
    lines = (folder / "night.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert lines == sorted(set(lines))
    for line in lines:
        file, function = line.split("[")[0].split("::")
        assert f"\ndef {function}(" in (folder.parent / file).read_text(encoding="utf-8"), line
