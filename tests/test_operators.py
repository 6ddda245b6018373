"""What is no law of operators: numbers of Python, and empty corners."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import tree
from lamu.operators import (
    BlockDiagonal,
    Dense,
    DenseBlocks,
    Diagonal,
    Kronecker,
    LowRank,
    MatrixFree,
    OutputBlocks,
    OutputEigen,
    Scalar,
    leading,
)


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


ROOTS = np.random.default_rng(0).normal(size=(3, 6, 6))
A, B, C = (jnp.asarray(root @ root.T + np.eye(6)) for root in ROOTS)
LAYER = {"bias": jnp.zeros(2), "kernel": jnp.zeros((2, 2))}
KRONECKER = Kronecker(A[:3, :3], B[:2, :2])
CURVATURES = {
    "diagonal": Diagonal({"bias": jnp.arange(1.0, 3.0), "kernel": jnp.arange(4.0).reshape(2, 2)}),
    "dense": Dense(A),
    "blocks": DenseBlocks({"bias": Dense(A[:2, :2]), "kernel": Dense(B[:4, :4])}),
    "kronecker": BlockDiagonal(KRONECKER.factored()),
    "product": KRONECKER,
    "leading": leading(KRONECKER, 1),
    "an output": OutputBlocks(jnp.stack([A[:3, :3], B[:3, :3]])),
    "one basis": OutputEigen.of(A[:3, :3], jnp.array([1.0, 2.0])),
    "low rank": LowRank(jax.vmap(tree.ravel(LAYER)[1])(C[:2]), tree.zeros_like(LAYER)),
}


@pytest.mark.parametrize("name", CURVATURES)
def test_kept_eigenvalues_give_the_determinant_with_a_prior(name: str) -> None:
    """For one number, one a leaf and one a weight, beside the matrix of the sum."""
    curvature = CURVATURES[name]
    leaves = {"bias": 0.3, "kernel": 0.3}
    weights = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.3), LAYER)
    expected = np.linalg.slogdet(np.asarray(curvature.dense(LAYER)) + 0.3 * np.eye(6))[1]
    for precision in (0.3, leaves, weights):
        for spectrum in (None, curvature.spectrum()):
            np.testing.assert_allclose(curvature.logdet_plus(precision, LAYER, spectrum), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["diagonal", "dense", "blocks", "an output", "low rank"])
def test_a_prior_is_added_as_the_structure_can_hold_it(name: str) -> None:
    curvature, values = CURVATURES[name], tree.ravel(LAYER)[1](jnp.arange(1.0, 7.0))
    found = curvature.add_prior(Diagonal(values), LAYER)
    expected = np.asarray(curvature.dense(LAYER)) + np.diag(np.arange(1.0, 7.0))
    np.testing.assert_allclose(found.dense(LAYER), expected, rtol=1e-12)
    if name == "dense":
        np.testing.assert_allclose(curvature.add_prior(Dense(B), LAYER).matrix, A + B)


def test_unavailable_eigenvalues_are_refused() -> None:
    with pytest.raises(TypeError, match="eigenvalues of a Cholesky are not available"):
        Dense(A).factored().spectrum()
    free = MatrixFree(Dense(A), held=jnp.diagonal(A), factor=1.0, values=jnp.zeros(6)).factored()
    with pytest.raises(TypeError, match="one prior precision for all weights"):
        free.logdet_plus(jnp.ones(6), jnp.zeros(6))


def test_the_derivative_of_a_dense_determinant_is_the_inverse() -> None:
    found = jax.grad(lambda matrix: Dense(matrix).logdet(jnp.zeros(6)))(A)
    np.testing.assert_allclose(found, np.linalg.inv(A), rtol=1e-9, atol=1e-12)
