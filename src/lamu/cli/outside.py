"""Algorithms and likelihoods of other modules, by the names that the command line gives them: `package.module:name`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

from lamu.data.spelling import nearest
from lamu.likelihoods import Likelihood
from lamu.protocol import Recipe

__all__ = ["add_current_folder", "is_outside", "likelihood_of", "named_object", "recipe_of", "require_algorithm"]

_MEMBERS = ("traits", "choices", "init", "step", "posterior")


def is_outside(name: Any) -> bool:
    """Returns whether a name is that of an object in a module, `package.module:name`."""
    return isinstance(name, str) and ":" in name


def add_current_folder() -> None:
    """Puts the current folder last on the path of modules: no file in it takes the place of an installed module."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def named_object(name: str, option: str) -> Any:
    """Returns an object of a module, which is imported; the current folder is on the path."""
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{option} is {name!r}; give a name of `lamu algorithms`, or package.module:name")
    add_current_folder()
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # the module is there, and something that it needs is not
            raise
        raise ValueError(
            f"{option} is {name!r}, and there is no module {error.name!r} in {os.getcwd()!r} or on the path; run the "
            "command where the module is, or put its folder into PYTHONPATH"
        ) from None
    if not hasattr(found, attribute):
        public = [each for each in vars(found) if not each.startswith("_")]
        hint = nearest(attribute, public) if public else "it is empty"
        raise ValueError(f"{option} is {name!r}, and the module {module!r} has no {attribute!r}; {hint}")
    return getattr(found, attribute)


def recipe_of(name: str) -> Recipe:
    """Returns an algorithm of a module as a recipe: a factory whose arguments have defaults, or an algorithm itself."""
    found = named_object(name, "--algorithm")
    if not inspect.isclass(found) and all(hasattr(found, member) for member in _MEMBERS):
        return Recipe(name=name, factory=lambda: found, source=name)
    if not callable(found):
        require_algorithm(name, found)
    return Recipe(name=name, factory=found, source=name)


def require_algorithm(name: str, value: Any) -> None:
    """Raises a ValueError where a value is no algorithm, with the members that it lacks."""
    lacking = [member for member in _MEMBERS if not hasattr(value, member)]
    if lacking:
        raise ValueError(
            f"{name!r} gives a {type(value).__name__}, which is no algorithm: it lacks {_listed(lacking)}; see "
            "lamu.protocol.Algorithm"
        )


def likelihood_of(name: str) -> Likelihood:
    """Returns a likelihood of a module: an object, or what a class or a function gives without arguments."""
    found = named_object(name, "--likelihood")
    if callable(found) and not isinstance(found, Likelihood):
        if any(each.default is each.empty and each.kind not in _REST for each in _parameters(found)):
            raise ValueError(f"--likelihood is {name!r}, which needs arguments; give one whose arguments have defaults")
        found = found()
    if not isinstance(found, Likelihood):
        raise ValueError(
            f"--likelihood is {name!r}, which gives a {type(found).__name__}; give a class that inherits from "
            "lamu.likelihoods.Likelihood"
        )
    return found


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _parameters(function: Any) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(function).parameters.values())
    except ValueError:  # of a builtin that tells nothing
        return ()


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
