"""Numbers among the arguments of algorithms and samplers: NumPy's are taken as Python's are, and checked."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import lamu


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
