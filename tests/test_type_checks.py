"""That the checks of types around all tests find what they are there to find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, jaxtyped

import lamu
from tests.type_checks import MOST_OF_AN_INNER_FUNCTION, checked_once

ROWS, MORE = jnp.zeros((3, 2)), jnp.zeros((4, 2))


def sums(x: Float[Array, "N D"], y: Float[Array, "N D"], *, rows: int | None = None) -> Float[Array, " N"]:
    total = (x[:2] if rows else x) + (y[:2] if rows else y)
    return total.sum(axis=1)


def each(x: Float[Array, "N D"]) -> Iterator[Array]:
    yield from x


@pytest.mark.parametrize(
    ("call", "finds"),
    [
        (lambda f: f(ROWS, ROWS), False),
        (lambda f: f(ROWS, MORE), True),  # an axis of two sizes among the arguments
        (lambda f: f(ROWS, ROWS, rows=2), True),  # between an argument and the result
        (lambda f: f(ROWS, np.zeros((3, 2))), True),
        (lambda f: f(ROWS, ROWS, rows="2"), True),
        (lambda f: f(ROWS, ROWS.astype(int)), True),
    ],
)
def test_arguments_and_results_are_checked_together(call, finds) -> None:
    if finds:
        with pytest.raises(TypeError, match="sums"):
            call(checked_once(sums))
    else:
        assert call(checked_once(sums)).shape == (3,)


def test_sizes_are_those_of_one_call() -> None:
    checked = checked_once(sums)
    assert [checked(x, x).shape for x in (ROWS, MORE)] == [(3,), (4,)]
    assert len(list(checked_once(each)(ROWS))) == 3
    assert checked.__name__ == "sums"
    assert checked.__wrapped__ is sums


def test_dataclasses_and_the_first_of_inner_functions_are_checked() -> None:
    @jaxtyped(typechecker=lambda function: function)
    @dataclass
    class Pair:
        x: int

    with pytest.raises(TypeError):
        Pair("1")

    def made():
        @jaxtyped(typechecker=lambda function: function)
        def inner(x: int) -> int:
            return x

        return inner

    for _ in range(MOST_OF_AN_INNER_FUNCTION):
        with pytest.raises(TypeError):
            made()("1")
    assert made()("1") == "1"


def test_the_package_is_checked() -> None:
    with pytest.raises(TypeError, match="violates type hint"):
        lamu.fit_temperature(1, 2, "an algorithm", seed="much")
