"""Numbers among the arguments of algorithms and samplers: NumPy's are taken as Python's are, and checked."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jaxtyping import PyTree

import lamu
from lamu.objective.curvature import Price
from lamu.operators import Dense


def whole_arguments() -> dict[str, tuple[Any, str]]:
    """By name every whole number among the arguments of algorithms and samplers without obligatory ones."""
    found = {}
    for face in (lamu.algorithms, lamu.mcmc):
        for name in face.__all__:
            recipe = getattr(face, name)
            is_warning = isinstance(recipe, type) and issubclass(recipe, Warning)
            parameters = [] if is_warning or not callable(recipe) else inspect.signature(recipe).parameters.values()
            if any(each.default is each.empty for each in parameters):
                continue
            for each in parameters:
                if str(each.annotation) in ("int", "int | None"):
                    found[f"{name}, {each.name}"] = recipe, each.name
    return found


def test_whole_arguments_take_the_integers_of_numpy() -> None:
    """A search over `np.arange(...)` passes such."""
    recipes = whole_arguments()
    assert len(recipes) > 60
    for recipe, name in recipes.values():
        recipe(**{name: np.int64(4)})


@pytest.mark.parametrize("given", [True, 1.5, -1, "3"])
def test_other_whole_arguments_are_refused_in_one_sentence(given: object) -> None:
    for recipe, name in whole_arguments().values():
        with pytest.raises(ValueError, match=f"^{name}={given!r} .*; give a whole number of at least [0123]$"):
            recipe(**{name: given})


def test_other_numbers_of_numpy_are_checked_too() -> None:
    """`np.float32` is no float."""
    with pytest.raises(ValueError, match=r"learning_rate=-0\.5 would move uphill"):
        lamu.algorithms.adam(np.float32(-0.5))
    with pytest.raises(ValueError, match="is not a part of a run"):
        lamu.algorithms.LastPart(np.float32(1.5))
    assert lamu.networks.Dropout(np.float32(0.5)).rate == 0.5


def other_arguments() -> list[tuple[Any, str, Any]]:
    """Recipe, name and annotation of every argument whose annotation says what it must be."""
    found = []
    for recipe in {**lamu.algorithms.registry(), **lamu.mcmc.registry()}.values():
        for name, hint in typing.get_type_hints(recipe.factory).items():
            if name != "return" and not {Any, PyTree} & {hint, *typing.get_args(hint)}:
                found.append((recipe.factory, name, hint))
    return found


@pytest.mark.parametrize("given", ["nonsense", object, 1j])
def test_arguments_of_other_types_are_refused_in_one_sentence(given: object) -> None:
    arguments = other_arguments()
    assert len(arguments) > 150
    for recipe, name, hint in arguments:
        takes_objects = any(getattr(each, "_is_protocol", False) for each in (hint, *typing.get_args(hint)))
        takes_functions = any(typing.get_origin(each) is Callable for each in typing.get_args(hint))
        if (given == 1j and takes_objects) or (given is object and takes_functions):
            continue
        with pytest.raises((TypeError, ValueError), match=f"^{name}=.* (is neither|give|call it)"):
            recipe(**{name: given})


def test_the_sentence_of_a_type_names_value_and_remedy() -> None:
    with pytest.raises(TypeError, match=r"^b1='0\.9' is not a number; give for instance 0\.9$"):
        lamu.algorithms.adam(b1="0.9")
    with pytest.raises(TypeError, match=r"^curvature=Price is a class; give an object, for instance Price\(\)$"):
        lamu.algorithms.ivon(curvature=Price)
    with pytest.raises(TypeError, match=r"^covariance='diag' is not a DiagonalDeviations or a LowRankDeviations; give"):
        lamu.algorithms.swag(covariance="diag")
    with pytest.raises(TypeError, match=r"^classes='a' is not a number; give one$"):
        lamu.likelihoods.Ordinal("a")
    with pytest.raises(TypeError, match=r"^base='x' is not a Likelihood; give one$"):
        lamu.likelihoods.ZeroInflated("x")
    with pytest.raises(ValueError, match=r"^unknown activation .*; choose one of relu, tanh"):
        lamu.networks.MLP(activation=np.tanh)
    with pytest.raises(TypeError, match=r"^structure='dense' is no structure of a precision; give"):
        lamu.algorithms.von(structure="dense")


def test_lists_are_taken_for_tuples_and_structures_may_be_classes() -> None:
    assert lamu.mcmc.parallel_tempering(temperatures=[1, 3]).kernel.temperatures == (1.0, 3.0)
    assert lamu.algorithms.von(structure=Dense).structure is Dense


def constructors() -> list[tuple[Any, str]]:
    """Every argument of a likelihood, a prior or a network without obligatory ones whose annotation is of a number."""
    found = []
    for face in (lamu.likelihoods, lamu.priors, lamu.networks):
        for name in face.__all__:
            constructor = getattr(face, name)
            parameters = inspect.signature(constructor).parameters.values() if callable(constructor) else []
            if inspect.isabstract(constructor) or any(each.default is each.empty for each in parameters):
                continue
            for each in parameters:
                if each.annotation in ("Number", "Number | None", "float", "DispersionPrior", "bool", "Prior"):
                    found.append((constructor, each.name))
    return found


@pytest.mark.parametrize("given", ["nonsense", object])
def test_constructors_refuse_arguments_of_other_types(given: object) -> None:
    """Priors took any `loc` and likelihoods any prior of a dispersion, until a run failed somewhere inside."""
    found = constructors()
    assert len(found) > 50
    for constructor, name in found:
        with pytest.raises((TypeError, ValueError), match=f"^(the )?{name}[= ].*; (give|it is)"):
            constructor(**{name: given})


def test_positions_are_quoted_as_they_were_given() -> None:
    with pytest.raises(ValueError, match=r"positions=\(4, 0\.5\) have no targets"):
        lamu.likelihoods.PerPosition(lamu.likelihoods.Categorical(3), (4, 0.5))
    likelihood = lamu.likelihoods.PerPosition(lamu.likelihoods.Categorical(3), np.array([4, 2]))
    assert likelihood.positions == (4, 2)


def test_a_fraction_of_a_candidate_is_refused() -> None:
    x = np.linspace(-1.0, 1.0, 12)[:, None]
    posterior, key = lamu.regression(x, x[:, 0]), jax.random.key(0)
    for choose in (lamu.acquire.bald, lamu.acquire.batch_bald, lamu.acquire.thompson, lamu.acquire.function_draws):
        with pytest.raises(ValueError, match=r"n=2.5 is not possible; give a whole number of at least 1"):
            choose(posterior, x, 2.5, key=key)


def test_a_network_that_returns_several_arrays_is_told_to_return_one():
    network = lamu.networks.Trained(lambda params, x: {"logits": x @ params["w"]}, {"w": np.ones((6, 3), np.float32)})
    model = lamu.Model(network, lamu.likelihoods.Categorical(3))
    with pytest.raises(TypeError, match="the network Trained returns a dict, and outputs are one array"):
        lamu.fit(model, (np.ones((4, 6), np.float32), np.arange(4) % 3), lamu.algorithms.laplace(), epochs=0)
