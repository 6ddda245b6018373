"""The algorithms by name, and an algorithm from the words of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from lamu import algorithms, mcmc
from lamu.cli.option_values import part, takes_words
from lamu.cli.outside import is_outside, recipe_of, require_algorithm
from lamu.data.spelling import nearest
from lamu.protocol import Recipe
from lamu.rate import Annealed, PolynomialAverage
from lamu.update_rules import ByFanIn

__all__ = ["build", "find", "parse", "recipes", "settings_of"]

_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}


def recipes() -> dict[str, Recipe]:
    """Returns every algorithm by its name, those of `lamu.algorithms` and those of `lamu.mcmc`."""
    return {**algorithms.registry(), **mcmc.registry()}


def find(name: str) -> Recipe:
    """Returns the recipe of an algorithm."""
    if is_outside(name):
        return recipe_of(name)
    known = recipes()
    if name not in known:
        raise ValueError(f"there is no algorithm {name!r}; {nearest(name, known)}")
    return known[name]


def parse(words: Sequence[str], recipe: Recipe) -> dict[str, Any]:
    """Returns settings as values: numbers, true, false, none, text, or the part that a word stands for."""
    parameters = settings_of(recipe)
    settings: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"the setting {word!r} has no value; write --set {word}=VALUE")
        if key not in parameters:
            hint = nearest(key, parameters) if parameters else "it has none"
            raise ValueError(f"{recipe.name} has no setting {key!r}; {hint}")
        if key in settings:
            raise ValueError(f"the setting {key!r} is given twice; give it once")
        if takes_words(key) and not isinstance(parameters[key].default, bool | int | float | str):
            settings[key] = part(key, text)
            continue
        value = _value(text)
        _check_kind(recipe.name, parameters[key], value, text)
        real = isinstance(parameters[key].default, float | Annealed | ByFanIn)
        whole_for_real = (real or "float" in str(parameters[key].annotation)) and isinstance(value, int)
        settings[key] = float(value) if whole_for_real else value
    return settings


def build(recipe: Recipe, settings: dict[str, Any]) -> Any:
    """Returns the algorithm with these settings."""
    needed = [
        name
        for name, parameter in settings_of(recipe).items()
        if parameter.default is inspect.Parameter.empty and name not in settings
    ]
    if needed:
        raise ValueError(f"{recipe.name} needs the setting {needed[0]!r}; give it with --set {needed[0]}=VALUE")
    algorithm = recipe.factory(**settings)
    if is_outside(recipe.name):
        require_algorithm(recipe.name, algorithm)
    return algorithm


def settings_of(recipe: Recipe) -> dict[str, inspect.Parameter]:
    """Returns the settings that an algorithm has, by name, with their defaults."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        parameters = inspect.signature(recipe.factory).parameters
    except ValueError:
        raise ValueError(
            f"{recipe.name!r} is a {type(recipe.factory).__name__} whose arguments cannot be known; give a function of "
            "Python's"
        ) from None
    for name, each in parameters.items():
        if each.kind is each.POSITIONAL_ONLY and each.default is each.empty:
            raise ValueError(f"{recipe.name!r} takes {name!r} by position alone, and --set gives arguments by name")
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in named}


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_kind(algorithm: str, parameter: inspect.Parameter, value: Any, text: str) -> None:
    """Raises a ValueError where the kind of the default, or the annotation, shows that a value cannot be meant."""
    default = parameter.default
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if default is inspect.Parameter.empty or default is None:
        return
    if isinstance(default, bool):
        wanted = None if isinstance(value, bool) else "true or false"
    elif parameter.annotation in (int, "int"):
        wanted = None if number and isinstance(value, int) else "a whole number"
    elif isinstance(default, int | float | Annealed | PolynomialAverage | ByFanIn):
        wanted = None if number else "a number"
    elif isinstance(default, str):
        wanted = None if isinstance(value, str) else "a word"
    else:
        raise ValueError(f"the setting {parameter.name!r} of {algorithm} is an object, which only Python can set")
    if wanted:
        raise ValueError(f"the setting {parameter.name!r} of {algorithm} is {wanted}, not {text!r}")
