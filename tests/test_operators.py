"""What is no law of operators: numbers of Python, and empty corners."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import tree
from lamu.operators import Dense, Scalar


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_scalar_may_be_a_python_number(dtype) -> None:
    like = {"w": jnp.ones((2, 2), dtype), "b": jnp.ones((), dtype)}
    number, array = Scalar(4.0), Scalar(jnp.asarray(4.0, dtype))
    for method in (Scalar.matvec, Scalar.solve, Scalar.inverse_root, Scalar.diagonal, Scalar.variance, Scalar.dense):
        for a, b in zip(jax.tree.leaves(method(number, like)), jax.tree.leaves(method(array, like)), strict=True):
            assert a.dtype == dtype
            np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(number.logdet(like), array.logdet(like), rtol=1e-6)
    assert number.scale(0.5).value == 2.0
    assert number.sandwich(Scalar(6.0)).value == 9.0


def test_a_scalar_of_another_dtype_takes_the_space_s() -> None:
    like = jnp.ones(3, jnp.float32)
    assert Scalar(jnp.asarray(4.0, jnp.float64)).dense(like).dtype == jnp.float32


def test_an_empty_space_has_a_scalar() -> None:
    assert Scalar.from_diagonal({}).value == 0.0
    assert tree.dimension({}) == 0


def test_a_dense_matrix_of_a_large_network_is_refused_before_it_is_made() -> None:
    with pytest.raises(ValueError, match="1,000,000 coordinates takes 4,000 GB; choose the structure Diagonal"):
        Dense.from_diagonal({"w": jnp.ones((1000, 1000), jnp.float32)})
