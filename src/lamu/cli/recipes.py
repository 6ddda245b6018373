"""The algorithms by name, and the construction of an algorithm from the words of the command line."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np

from lamu import algorithms, mcmc, operators
from lamu.algorithms.post_hoc.subnetwork import AllWeights, HeadWeights, LargestVariance, Matching
from lamu.data import Encoding
from lamu.data.wording import nearest
from lamu.likelihoods import Gaussian, Likelihood
from lamu.model import Model
from lamu.networks import Linear
from lamu.networks.normalisation import Dropout
from lamu.objective import curvature
from lamu.priors import ARD
from lamu.protocol import Algorithm, Recipe
from lamu.rate import Annealed, PolynomialAverage
from lamu.typing import Inputs, Options, Targets
from lamu.update_rules import ByFanIn

__all__ = [
    "add_current_folder",
    "build",
    "find",
    "is_outside",
    "likelihood_of",
    "named_object",
    "parse",
    "recipe_of",
    "recipes",
    "require_algorithm",
    "required_parts",
    "settings_of",
    "whole_settings",
]


# The parts of an algorithm that a word selects, by setting.
_PARTS: dict[str, Options] = {
    "weights": {"all": AllWeights(), "last_layer": HeadWeights()},
    "structure": {
        "dense": operators.Dense,
        "diagonal": operators.Diagonal,
        "blocks": operators.DenseBlocks,
        "kronecker": operators.KroneckerFactored(),
        "low_rank": operators.LowRankStructure(20),
        "matrix_free": operators.MatrixFreeStructure(),
        "per_class": operators.OutputBlocks,
        "shared_basis": operators.OutputEigen,
    },
    "curvature": {
        "ggn": curvature.GaussNewton(),
        "sampled": curvature.SampledGaussNewton(1),
        "fisher": curvature.SquaredGradients(),
        "hessian": curvature.Hessian(),
    },
}


def _part(setting: str, word: str) -> Any:
    """Returns the part that a word names."""
    if word in _PARTS[setting]:
        return _PARTS[setting][word]
    if setting == "weights" and ("/" in word or "*" in word):
        return Matching(word)
    if setting == "weights" and word.isdigit():
        return LargestVariance(int(word))
    raise ValueError(f"there is no {setting} {word!r}; {nearest(word, _PARTS[setting])}")


_MEMBERS = ("traits", "choices", "init", "step", "posterior")


def is_outside(name: str | None) -> bool:
    """Returns whether a name is that of an object in a module, `package.module:name`."""
    return isinstance(name, str) and ":" in name


def add_current_folder() -> None:
    """Appends the current folder to the module path: none of its files shadows an installed module."""
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)


def named_object(name: str, option: str) -> Any:
    """Returns an object of a module, which is imported with the current folder on the path."""
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        known = "a name of `lamu algorithms`, or " if option == "--algorithm" else ""
        raise ValueError(f"{option} is {name!r}; give {known}package.module:name")
    add_current_folder()
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # the module exists, but one of its imports does not
            raise
        raise ValueError(
            f"{option} is {name!r}, and there is no module {error.name!r} in {os.getcwd()!r} or on the path; run the "
            "command where the module is, or put its folder into PYTHONPATH"
        ) from None
    if not hasattr(imported, attribute):
        public = [member for member in vars(imported) if not member.startswith("_")]
        hint = nearest(attribute, public) if public else "it is empty"
        raise ValueError(f"{option} is {name!r}, and the module {module!r} has no {attribute!r}; {hint}")
    return getattr(imported, attribute)


def recipe_of(name: str) -> Recipe:
    """Returns an algorithm of a module as a recipe: a factory whose arguments have defaults, or an algorithm itself."""
    algorithm = named_object(name, "--algorithm")
    if not inspect.isclass(algorithm) and all(hasattr(algorithm, member) for member in _MEMBERS):
        return Recipe(name=name, factory=lambda: algorithm, source=name)
    if not callable(algorithm):
        require_algorithm(name, algorithm)
    return Recipe(name=name, factory=cast("Callable[..., Algorithm]", algorithm), source=name)


def require_algorithm(name: str, value: object) -> None:
    """Raises a ValueError for a value that is no algorithm, with the members that it lacks."""
    lacking = [member for member in _MEMBERS if not hasattr(value, member)]
    if lacking:
        raise ValueError(
            f"{name!r} gives a {type(value).__name__}, which is not an algorithm: it lacks {_enumeration(lacking)}; "
            "see lamu.protocol.Algorithm"
        )


def likelihood_of(name: str) -> Likelihood:
    """Returns a likelihood of a module: an object, or the result of a class or function called without arguments."""
    likelihood = named_object(name, "--likelihood")
    if callable(likelihood) and not isinstance(likelihood, Likelihood):
        if any(
            parameter.default is parameter.empty and parameter.kind not in _REST
            for parameter in _parameters(likelihood)
        ):
            raise ValueError(f"--likelihood is {name!r}, which needs arguments; give one whose arguments have defaults")
        likelihood = likelihood()
    if not isinstance(likelihood, Likelihood):
        raise ValueError(
            f"--likelihood is {name!r}, which gives a {type(likelihood).__name__}; give a class that inherits from "
            "lamu.likelihoods.Likelihood"
        )
    return likelihood


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _parameters(function: Callable[..., object]) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(function).parameters.values())
    except ValueError:  # of a builtin without a signature
        return ()


def _enumeration(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


Setting: TypeAlias = bool | int | float | str | None
_OF_GRAPHS = ("em", "vmp", "ncvmp", "svi", "cvi")
_RATE = 0.1  # the dropout rate, Gal & Ghahramani's smallest


def required_parts(
    algorithm: str, model: Model, encoding: Encoding, x: Inputs, y: Targets, weight: np.ndarray | None = None
) -> tuple[Model, str]:
    """Returns the model with the parts that an algorithm needs, and a sentence about them, empty if there are none."""
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
        return _linear(model, encoding, x, y, weight)
    if algorithm == "pbp" and encoding.task != "regression":
        raise ValueError(
            f"pbp propagates moments to a target with Gaussian noise, and the task of {encoding.target!r} is "
            f"{encoding.task}; give another algorithm, for instance --algorithm ivon"
        )
    if algorithm == "extended_kalman" and model.likelihood == Gaussian():
        scale = _noise(np.asarray(x, float), np.asarray(y, float), weight)
        note = f"extended_kalman: known noise, {scale:.2g} of the target's deviation, that of least squares"
        return replace(model, likelihood=Gaussian(scale)), note
    return model, ""


def _linear(model: Model, encoding: Encoding, x: Inputs, y: Targets, weight: np.ndarray | None) -> tuple[Model, str]:
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
    scale = _noise(np.asarray(x, float), np.asarray(y, float), weight)
    note = f"conjugate: a linear model with known noise, {scale:.2g} of the target's deviation, that of least squares"
    return replace(model, network=Linear(), likelihood=Gaussian(scale)), note


def _noise(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> float:
    """Returns the residual deviation of least squares relative to the target's; one for too few rows."""
    counts = np.ones(len(y)) if weight is None else weight
    design, root = np.column_stack([np.ones(len(y)), x]), np.sqrt(counts)
    coefficients, _, rank, _ = np.linalg.lstsq(root[:, None] * design, root * y, rcond=None)
    spread = float(np.sqrt(np.average((y - np.average(y, weights=counts)) ** 2, weights=counts)))
    free = counts.sum() - int(rank)
    if free < 1 or spread == 0.0:
        return 1.0
    noise = float(np.sqrt(np.sum(counts * (y - design @ coefficients) ** 2) / free) / spread)
    return max(noise, 1e-3)  # an exactly linear target has no noise and an infinite density


_WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}


def recipes() -> dict[str, Recipe]:
    """Returns every algorithm of `lamu.algorithms` and `lamu.mcmc` by name."""
    return {**algorithms.registry(), **mcmc.registry()}


def find(name: str) -> Recipe:
    """Returns the recipe of an algorithm."""
    if is_outside(name):
        return recipe_of(name)
    by_name = recipes()
    if name not in by_name:
        raise ValueError(f"there is no algorithm {name!r}; {nearest(name, by_name)}")
    return by_name[name]


def parse(words: Sequence[str], recipe: Recipe) -> Options:
    """Returns settings as values: numbers, true, false, none, text, or the part that a word names."""
    parameters = settings_of(recipe)
    settings: Options = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"the setting {word!r} has no value; write --set {word}=VALUE")
        if key not in parameters:
            hint = nearest(key, parameters) if parameters else "it has none"
            raise ValueError(f"{recipe.name} has no setting {key!r}; {hint}")
        if key in settings:
            raise ValueError(f"the setting {key!r} is given twice; give it once")
        if key in _PARTS and not isinstance(parameters[key].default, bool | int | float | str):
            settings[key] = _part(key, text)
            continue
        value = _value(text)
        _check_kind(recipe.name, parameters[key], value, text)
        real = isinstance(parameters[key].default, float | Annealed | ByFanIn)
        real = real or "float" in str(parameters[key].annotation)
        settings[key] = float(value) if real and isinstance(value, int) else value
    return settings


def whole_settings(settings: Sequence[str], defaults: Mapping[str, int], of: str) -> dict[str, int]:
    """Returns the integers of `--set`, with defaults for those not given."""
    sizes = dict(defaults)
    for text in settings:
        name, _, value = text.partition("=")
        if name not in sizes:
            raise ValueError(f"--set {name} is not a setting of {of}; {nearest(name, sizes)}")
        if not value.isdigit() or int(value) < 1:
            raise ValueError(f"--set {text} is not a number of {name}; give a whole number from 1")
        sizes[name] = int(value)
    return sizes


def build(recipe: Recipe, settings: Options) -> Algorithm:
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
    """Returns the settings of an algorithm by name, with their defaults."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        parameters = inspect.signature(recipe.factory).parameters
    except ValueError:
        raise ValueError(
            f"{recipe.name!r} is a {type(recipe.factory).__name__} whose arguments cannot be known; give a function of "
            "Python's"
        ) from None
    for name, option in parameters.items():
        if option.kind is option.POSITIONAL_ONLY and option.default is option.empty:
            raise ValueError(f"{recipe.name!r} takes {name!r} by position alone, and --set gives arguments by name")
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in named}


def _value(text: str) -> Setting:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# The kinds of settings, by their defaults, with the types of values that each accepts.
_KINDS = {
    "true or false": ((bool,), (bool,)),
    "a whole number": ((), (int,)),  # if the annotation says so
    "a number": ((int, float, Annealed, PolynomialAverage, ByFanIn), (int, float)),
    "a word": ((str,), (str,)),
}


def _check_kind(algorithm: str, parameter: inspect.Parameter, value: Setting, text: str) -> None:
    """Raises a ValueError if a value contradicts the kind of the default or the annotation."""
    default = parameter.default
    if default is inspect.Parameter.empty or default is None:
        return
    kind = next((kind for kind, (defaults, _) in _KINDS.items() if isinstance(default, defaults)), None)
    if kind != "true or false" and parameter.annotation in (int, "int"):
        kind = "a whole number"
    if kind is None:
        raise ValueError(f"the setting {parameter.name!r} of {algorithm} is an object, which only Python can set")
    if type(value) not in _KINDS[kind][1]:
        raise ValueError(f"the setting {parameter.name!r} of {algorithm} is {kind}, not {text!r}")
