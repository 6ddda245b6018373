"""The algorithms by name, and an algorithm from the words of the command line."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamu import algorithms, mcmc
from lamu.data import Encoding
from lamu.data.wording import nearest
from lamu.likelihoods import Gaussian, Likelihood
from lamu.model import Model
from lamu.networks import Linear
from lamu.networks.dropout import Dropout
from lamu.priors import ARD
from lamu.protocol import Recipe
from lamu.rate import Annealed, PolynomialAverage
from lamu.typing import Inputs, Targets
from lamu.update_rules import ByFanIn

__all__ = [
    "add_current_folder",
    "build",
    "find",
    "is_outside",
    "likelihood_of",
    "named_object",
    "parse",
    "part",
    "parts",
    "recipe_of",
    "recipes",
    "require_algorithm",
    "required_parts",
    "settings_of",
    "takes_words",
]


def takes_words(setting: str) -> bool:
    """Returns whether a setting is chosen by a word."""
    return setting in _TABLES


def parts(setting: str) -> dict[str, Any]:
    """Returns the words of a setting and what they stand for."""
    return _TABLES[setting]()


def part(setting: str, word: str) -> Any:
    """Returns what a word stands for."""
    from lamu.algorithms.post_hoc.subnetwork import LargestVariance, Matching

    known = parts(setting)
    if word in known:
        return known[word]
    if setting == "weights" and ("/" in word or "*" in word):
        return Matching(word)
    if setting == "weights" and word.isdigit():
        return LargestVariance(int(word))
    raise ValueError(f"there is no {setting} {word!r}; {nearest(word, known)}")


def _weights() -> dict[str, Any]:
    from lamu.algorithms.post_hoc.subnetwork import AllWeights, HeadWeights

    return {"all": AllWeights(), "last_layer": HeadWeights()}


def _structures() -> dict[str, Any]:
    from lamu import operators as known

    return {
        "dense": known.Dense,
        "diagonal": known.Diagonal,
        "blocks": known.DenseBlocks,
        "kronecker": known.KroneckerFactored(),
        "low_rank": known.LowRankStructure(20),
        "matrix_free": known.MatrixFreeStructure(),
        "per_class": known.OutputBlocks,
        "shared_basis": known.OutputEigen,
    }


def _curvatures() -> dict[str, Any]:
    from lamu.objective import curvature as known

    return {
        "ggn": known.GaussNewton(),
        "sampled": known.SampledGaussNewton(1),
        "fisher": known.SquaredGradients(),
        "hessian": known.Hessian(),
    }


_TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "weights": _weights,
    "structure": _structures,
    "curvature": _curvatures,
}


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


_OF_GRAPHS = ("em", "vmp", "ncvmp", "svi", "cvi")
_RATE = 0.1  # the share of units that are dropped, Gal & Ghahramani's smallest


def required_parts(algorithm: str, model: Model, encoding: Encoding, x: Inputs, y: Targets) -> tuple[Model, str]:
    """Returns the model with the parts that an algorithm needs, and a sentence about them, empty where none is."""
    if algorithm in _OF_GRAPHS:
        raise ValueError(
            f"{algorithm} learns graphs and conjugate models of Python's, lamu.Graph for instance, and a table gets a "
            "network; give another algorithm, for instance --algorithm ivon"
        )
    if algorithm in ("dropout", "mc_dropout"):
        network: Any = model.network
        if any(encoding.cardinalities):
            network = replace(network, base=replace(network.base, dropout=Dropout(_RATE)))
        else:
            network = replace(network, dropout=Dropout(_RATE))
        return replace(model, network=network), f"{algorithm}: a network that drops {100 * _RATE:g} % of its units"
    if algorithm == "conjugate_scales":
        return replace(model, prior=ARD()), "conjugate_scales: the prior ARD(), a scale for the weights of every input"
    if algorithm == "conjugate":
        return _linear(model, encoding, x, y)
    if algorithm == "pbp" and encoding.task != "regression":
        raise ValueError(
            f"pbp propagates moments to a target with Gaussian noise, and the task of {encoding.target!r} is "
            f"{encoding.task}; give another algorithm, for instance --algorithm ivon"
        )
    if algorithm == "extended_kalman" and model.likelihood == Gaussian():
        scale = _noise(np.asarray(x, float), np.asarray(y, float))
        told = f"extended_kalman: known noise, {scale:.2g} of the target's deviation, that of least squares"
        return replace(model, likelihood=Gaussian(scale)), told
    return model, ""


def _linear(model: Model, encoding: Encoding, x: Inputs, y: Targets) -> tuple[Model, str]:
    """Returns Bayesian linear regression with the noise of least squares, in units of the target's deviation."""
    if encoding.task != "regression":
        raise ValueError(
            f"conjugate is exact for a regression with Gaussian noise, and the task of {encoding.target!r} is "
            f"{encoding.task}; give another algorithm, for instance --algorithm laplace"
        )
    if model.likelihood != Gaussian():
        name = type(model.likelihood).__name__
        raise ValueError(
            f"conjugate is exact for Gaussian noise, and the likelihood is {name}; give --likelihood gaussian"
        )
    words = [name for name, levels in zip(encoding.columns, encoding.cardinalities, strict=False) if levels]
    if words:
        raise ValueError(
            f"conjugate reads numbers, and the column {words[0]!r} is of categories; leave it out, or give another "
            "algorithm, for instance --algorithm laplace"
        )
    scale = _noise(np.asarray(x, float), np.asarray(y, float))
    told = f"conjugate: a linear model with known noise, {scale:.2g} of the target's deviation, that of least squares"
    return replace(model, network=Linear(), likelihood=Gaussian(scale)), told


def _noise(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the residual deviation of least squares, of the target's; one where there are too few rows."""
    design = np.column_stack([np.ones(len(y)), x])
    coefficients, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    free, spread = len(y) - int(rank), float(y.std())
    if free < 1 or spread == 0.0:
        return 1.0
    found = float(np.sqrt(np.sum((y - design @ coefficients) ** 2) / free) / spread)
    return max(found, 1e-3)  # a target that is exactly linear has no noise, and a density that is not finite


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
