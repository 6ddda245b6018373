"""Packages whose public names are imported when they are first used."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, file: str, renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a package's `__getattr__` and `__dir__`: the names that its `if TYPE_CHECKING` block imports."""
    # Renamed names work for one minor version under the old name, with a warning. The block that type checkers read is
    # the table of names. A fit then loads the modules that it uses and not those of every family, likelihood and
    # algorithm, which together take as long to import as JAX itself.
    modules: dict[str, str] = {}

    def find(name: str) -> Any:
        if renamed is not None and name in renamed:
            new = renamed[name]
            warnings.warn(f"{package}.{name} is {package}.{new} now", DeprecationWarning, stacklevel=2)
            return getattr(sys.modules[package], new)
        if not modules:
            tree = ast.parse(Path(file).read_text(encoding="utf-8"))
            blocks = [block for block in tree.body if isinstance(block, ast.If)]
            nodes = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
            modules.update((alias.name, str(node.module)) for node in nodes for alias in node.names)
        module = modules.get(name)
        if module is None and (name.startswith("_") or find_spec(f"{package}.{name}") is None):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module in (None, package):  # a file of the package, which need not be a public name
            return import_module(f"{package}.{name}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*vars(sys.modules[package]), *sys.modules[package].__all__})
