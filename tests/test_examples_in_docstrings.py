"""Every example in a docstring runs and says what it shows."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import lamu

MODULES = ["lamu", *(m.name for m in pkgutil.walk_packages(lamu.__path__, "lamu.") if not m.name.endswith("__main__"))]
pytestmark = pytest.mark.examples
FINDER = doctest.DocTestFinder(exclude_empty=True)


def examples() -> list[doctest.DocTest]:
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        found += [test for test in FINDER.find(module, name) if test.examples]
    return found


@pytest.mark.parametrize("example", examples(), ids=lambda test: test.name)
def test_example(example: doctest.DocTest) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(example, out=said.append, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
