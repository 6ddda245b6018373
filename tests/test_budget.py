"""Budgets of the source, in lines of code: each figure may fall and not rise; and no name of the public faces is lost.

A line is code if it is neither blank, a comment, a docstring, an import nor `__all__`. A change that adds code takes as
much out, or raises a ceiling here and says in its commit why. A figure that has fallen takes its ceiling with it.
"""

from __future__ import annotations

import ast
import collections
from pathlib import Path
from types import ModuleType

import lamu

SOURCE, FACES = Path(__file__).parent.parent / "src" / "lamu", Path(__file__).parent / "faces.txt"
ROOTS = {
    "graphs": {"graphs", "latent", "programs"},
    "tables": {"cli", "data", "report", "serving", "sklearn", "tabular"},
    "outside of the library": {"verification"},
}
BUDGETS = {  # the ceiling, and the goal
    "lines": (106_564, 74_000),
    "files": (350, 330),
    "lines of code": (53_372, 36_000),
    "lines of code, core": (35_432, 25_000),
    "lines of code, graphs": (8_497, 6_000),
    "lines of code, tables": (9_443, 5_000),
    "lines of code, outside of the library": (0, 0),
    "docstring lines a line of code": (0.467, 0.5),
    "import lines a line of code": (0.164, 0.15),
    "`Any` a thousand lines of code": (40, 40),
    "`isinstance` a thousand lines of code": (24.3, 14),
    "abstract bases": (44, 30),
    "names of classes in two files": (23, 0),
}
SLACK = 0.02  # A figure this far below its ceiling takes the ceiling down: otherwise it would rise again unseen.


def kinds(text: str, tree: ast.Module) -> list[str]:
    """The kind of each line of a file."""
    kind = ["code" if line.strip() else "blank" for line in text.splitlines()]
    for index, line in enumerate(text.splitlines()):
        if line.lstrip().startswith("#"):
            kind[index] = "comment"
    for node in ast.walk(tree):
        marked = [(node, "import")] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            marked = [(node, "import")]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            marked = [(node.body[0], "docstring")] if ast.get_docstring(node, clean=False) is not None else []
        for part, name in marked:
            kind[part.lineno - 1 : part.end_lineno] = [name] * (part.end_lineno - part.lineno + 1)
    return kind


def abstract(node: ast.ClassDef) -> bool:
    """Whether a class is a protocol, has `ABC` for a base, or declares a method that it leaves to its subclasses."""
    bases = {
        ast.unparse(base).split("[")[0].split(".")[-1] for base in [*node.bases, *(k.value for k in node.keywords)]
    }
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
    left = any("abstractmethod" in ast.unparse(decorator) for item in methods for decorator in item.decorator_list)
    return left or bool(bases & {"Protocol", "ABC", "ABCMeta"})


def figures(source: Path) -> dict[str, float]:
    """The figures of `BUDGETS` for a folder of Python files."""
    lines, code, uses = collections.Counter(), collections.Counter(), collections.Counter()
    holders, bases, files = collections.defaultdict(set), 0, sorted(source.rglob("*.py"))
    for path in files:
        tree = ast.parse(text := path.read_text(encoding="utf-8"))
        counted = collections.Counter(kinds(text, tree))
        folder = path.relative_to(source).parts[0]
        lines += counted
        code[next((root for root, folders in ROOTS.items() if folder in folders), "core")] += counted["code"]
        uses.update(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                holders[node.name].add(path)
                bases += abstract(node)
    thousand = max(lines["code"], 1) / 1000
    return {
        "lines": lines.total(),
        "files": len(files),
        "lines of code": lines["code"],
        **{f"lines of code, {root}": code[root] for root in ("core", *ROOTS)},
        "docstring lines a line of code": lines["docstring"] / thousand / 1000,
        "import lines a line of code": lines["import"] / thousand / 1000,
        "`Any` a thousand lines of code": uses["Any"] / thousand,
        "`isinstance` a thousand lines of code": uses["isinstance"] / thousand,
        "abstract bases": bases,
        "names of classes in two files": sum(len(paths) > 1 for paths in holders.values()),
    }


def names_of_faces() -> list[str]:
    """What `lamu` and the packages that it lists hand out, and the packages that these list in turn."""
    found, waiting = set(), [("lamu", lamu)]
    while waiting:
        face, module = waiting.pop()
        found |= {f"{face}.{name}" for name in module.__all__}
        parts = [(f"{face}.{name}", getattr(module, name)) for name in module.__all__]
        waiting += [(name, part) for name, part in parts if isinstance(part, ModuleType) and hasattr(part, "__all__")]
    return sorted(found)


def test_no_figure_is_above_its_ceiling_or_far_below() -> None:
    wrong = []
    for name, value in figures(SOURCE).items():
        ceiling, goal = BUDGETS[name]
        if value > ceiling:
            wrong.append(f"{name}: {value:,.6g} is above the ceiling of {ceiling:,} (goal {goal:,}): take code out")
        elif value < ceiling * (1 - SLACK):
            wrong.append(f"{name}: {value:,.6g} is far below the ceiling of {ceiling:,}: lower the ceiling to it")
    assert not wrong, "\n  ".join(["Budgets of tests/test_budget.py:", *wrong])


def test_lines_are_counted_by_kind(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    text = '''"""Two lines
of a docstring."""
from typing import Any, Protocol

__all__ = ["A"]


class A(Protocol):
    """A."""

    x: Any  # one

    # a comment
    def f(self, y: Any) -> bool:
        return isinstance(y, int)
'''
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "graphs" / "b.py").write_text("class A:\n    x = 1\n")
    assert figures(tmp_path) == {
        "lines": 17,
        "files": 2,
        "lines of code": 6,
        "lines of code, core": 4,
        "lines of code, graphs": 2,
        "lines of code, tables": 0,
        "lines of code, outside of the library": 0,
        "docstring lines a line of code": 3 / 6,
        "import lines a line of code": 2 / 6,
        "`Any` a thousand lines of code": 2000 / 6,
        "`isinstance` a thousand lines of code": 1000 / 6,
        "abstract bases": 1,
        "names of classes in two files": 1,
    }


def test_no_name_of_the_faces_is_lost() -> None:
    listed, found = FACES.read_text(encoding="utf-8").split(), names_of_faces()
    lost, new = sorted(set(listed) - set(found)), sorted(set(found) - set(listed))
    assert not lost, f"names that the faces handed out are missing: {lost}"
    assert not new, f"tests/faces.txt lacks these new names; add them: {new}"
    assert listed == found, "tests/faces.txt is sorted, one name a line"
