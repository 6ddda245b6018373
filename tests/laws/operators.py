"""Laws of operators: every method does what the symmetric matrix would do, in the coordinates of `lamu.tree.ravel`.

A row's subject is the class. Its extras: `build(cls, matrix, like)`, which makes the operator of what the structure
keeps of a matrix, and `keep(matrix)`, which says in NumPy what that is. All matrices are positive, asymmetric under
permutation, and of condition about 10; the space has leaves of three ranks, one of them a number.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu import tree
from lamu.operators import (
    BlockDiagonal,
    Cholesky,
    Dense,
    DenseBlocks,
    Diagonal,
    Kronecker,
    KroneckerBlocks,
    KroneckerEigen,
    KroneckerLeading,
    LowRank,
    LowRankEigen,
    Operator,
    OutputBlocks,
    OutputCholesky,
    OutputEigen,
    Scalar,
    Scaled,
    StaleFactors,
    Structure,
)
from lamu.operators.dense import DenseEigen
from lamu.operators.layer_order import LayerOrder
from lamu.record import record
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("operators", "adds compresses factors refuses structure")

LIKE = {"layer": [jnp.zeros((2, 2)), jnp.zeros(2)], "scale": jnp.zeros(())}
D = 7
RNG = np.random.default_rng(5)
ROOT = RNG.normal(size=(D, D))
MATRIX = ROOT @ ROOT.T + np.diag(np.linspace(0.3, 2.0, D))
OTHER = np.diag(np.linspace(3.0, 0.5, D)) + 0.2 * np.outer(np.arange(D), np.arange(D)) / D
SYMMETRIC = RNG.normal(size=(D, D)) + RNG.normal(size=(D, D)).T
INDEFINITE = SYMMETRIC + SYMMETRIC.T
U, V = RNG.normal(size=(2, D))
COLUMNS = RNG.normal(size=(5, D))

# 64-bit numbers lose about 1e-16 times the condition in a solve: 1e-10 is a generous bound.
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


def unravel(vector: Any, like: Any = LIKE) -> Any:
    return ravel_pytree(like)[1](jnp.asarray(vector, ravel_pytree(like)[0].dtype))


def flat(a: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(a)[0])


def single(a: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), a)


def mean_of_diagonal(matrix: np.ndarray) -> np.ndarray:
    return np.mean(np.diag(matrix)) * np.eye(len(matrix))


def build_scalar(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    return cls(jnp.asarray(np.mean(np.diag(matrix)), ravel_pytree(like)[0].dtype))


def build_diagonal(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    return cls(unravel(np.diag(matrix), like))


def build_dense(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    return cls(jnp.asarray(matrix, ravel_pytree(like)[0].dtype))


def build_cholesky(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    return cls(jnp.asarray(np.linalg.cholesky(matrix), ravel_pytree(like)[0].dtype))


LAYER = slice(0, 6)  # the kernel, the bias, and then the scale
LEAVES = np.kron(np.eye(3), np.ones((4, 4)))[np.ix_([0, 1, 2, 3, 4, 5, 8], [0, 1, 2, 3, 4, 5, 8])]
SHIFT, RANK = 0.4, 2


def factors(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A ⊗ B with the partial traces of the layer's block: three rows (kernel and bias) of two columns."""
    blocks = matrix[LAYER, LAYER].reshape(3, 2, 3, 2)
    return np.einsum("iojo->ij", blocks) / np.trace(matrix[LAYER, LAYER]), np.einsum("ioip->op", blocks)


def keep_kronecker(matrix: np.ndarray) -> np.ndarray:
    kept = np.zeros((D, D))
    kept[LAYER, LAYER] = np.kron(*factors(matrix)) + SHIFT * np.eye(6)
    kept[6, 6] = matrix[6, 6]
    return kept


def build_kronecker(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    dtype = ravel_pytree(like)[0].dtype
    layer = cls(*(jnp.asarray(factor, dtype) for factor in factors(matrix)), shift=jnp.asarray(SHIFT, dtype))
    return BlockDiagonal({"layer": layer, "scale": Scalar(jnp.asarray(matrix[6, 6], dtype))})


def build_kronecker_blocks(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    return cls(build_kronecker(Kronecker, matrix, like).blocks)


def build_stale_factors(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    """In use is what the matrix says; the fresh one is another."""
    used = build_kronecker(Kronecker, matrix, like)
    return cls(used.factored(), used.scale(3.0), jnp.zeros((), jnp.int32))


def build_kronecker_eigen(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    dtype = ravel_pytree(like)[0].dtype
    (a, p), (b, q) = (np.linalg.eigh(factor) for factor in factors(matrix))
    layer = cls(*(jnp.asarray(part, dtype) for part in (p, q, np.outer(a, b) + SHIFT)))
    return BlockDiagonal({"layer": layer, "scale": Scalar(jnp.asarray(matrix[6, 6], dtype))})


def keep_kronecker_leading(matrix: np.ndarray) -> np.ndarray:
    """One eigenvector of three, both of two, and the mean of the others."""
    kept = keep_kronecker(matrix)
    (a, p), (b, q) = (np.linalg.eigh(factor) for factor in factors(matrix))
    rest = np.mean(np.outer(a[:2], b)) + SHIFT
    basis = np.kron(p[:, 2:], q)
    kept[LAYER, LAYER] = rest * np.eye(6) + (basis * (np.outer(a[2:], b).ravel() + SHIFT - rest)) @ basis.T
    return kept


def build_dense_eigen(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    values, basis = np.linalg.eigh(matrix)
    return cls(*(jnp.asarray(part, ravel_pytree(like)[0].dtype) for part in (basis, values)))


def build_layer_order(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    """The kernel is read as `[out, in]`, behind its bias."""
    dtype = ravel_pytree(like)[0].dtype
    order = np.argsort([2, 4, 3, 5, 0, 1])  # of each weight of the matrix [in, out] the place among the layer's
    of = Dense(jnp.asarray(matrix[LAYER, LAYER][np.ix_(order, order)], dtype))
    return BlockDiagonal({"layer": cls(of, True), "scale": Scalar(jnp.asarray(matrix[6, 6], dtype))})


def build_kronecker_leading(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    dtype = ravel_pytree(like)[0].dtype
    (a, p), (b, q) = (np.linalg.eigh(factor) for factor in factors(matrix))
    rest = np.mean(np.outer(a[:2], b)) + SHIFT
    layer = cls(*(jnp.asarray(part, dtype) for part in (p[:, 2:], q, np.outer(a[2:], b) + SHIFT, rest)))
    return BlockDiagonal({"layer": layer, "scale": Scalar(jnp.asarray(matrix[6, 6], dtype))})


def output_blocks(matrix: np.ndarray) -> np.ndarray:
    """The layer's block of each of its two outputs."""
    return np.einsum("ioko->oik", matrix[LAYER, LAYER].reshape(3, 2, 3, 2))


def keep_outputs(matrix: np.ndarray) -> np.ndarray:
    kept = np.zeros((D, D))
    kept[LAYER, LAYER] = np.einsum("oik,op->iokp", output_blocks(matrix), np.eye(2)).reshape(6, 6)
    kept[6, 6] = matrix[6, 6]
    return kept


def build_outputs(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    dtype, blocks = ravel_pytree(like)[0].dtype, output_blocks(matrix)
    layer = cls(jnp.asarray(np.linalg.cholesky(blocks) if issubclass(cls, OutputCholesky) else blocks, dtype))
    return BlockDiagonal({"layer": layer, "scale": Scalar(jnp.asarray(matrix[6, 6], dtype))})


def output_eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A basis for both outputs, and their eigenvalues in it."""
    blocks = output_blocks(matrix)
    basis = np.linalg.eigh(blocks.sum(axis=0))[1]
    return basis, np.einsum("ij,oik,kj->jo", basis, blocks, basis)


def keep_output_eigen(matrix: np.ndarray) -> np.ndarray:
    (basis, values), kept = output_eigen(matrix), np.zeros((D, D))
    blocks = np.einsum("ij,jo,kj->oik", basis, values, basis)
    kept[LAYER, LAYER] = np.einsum("oik,op->iokp", blocks, np.eye(2)).reshape(6, 6)
    kept[6, 6] = matrix[6, 6]
    return kept


def build_output_eigen(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    dtype = ravel_pytree(like)[0].dtype
    layer = cls(*(jnp.asarray(part, dtype) for part in output_eigen(matrix)))
    return BlockDiagonal({"layer": layer, "scale": Scalar(jnp.asarray(matrix[6, 6], dtype))})


def leading(matrix: np.ndarray) -> np.ndarray:
    """The two leading eigenvectors, times the roots of their eigenvalues, in rows."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors[:, -RANK:] * np.sqrt(values[-RANK:])).T


def keep_low_rank(matrix: np.ndarray) -> np.ndarray:
    root = leading(matrix)
    return root.T @ root + np.diag(np.diag(matrix) - np.sum(root**2, axis=0))


def build_low_rank(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    root = leading(matrix)
    columns = jax.vmap(lambda u: unravel(u, like))(jnp.asarray(root))
    return cls(columns, unravel(np.diag(matrix) - np.sum(root**2, axis=0), like))


def build_low_rank_eigen(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    """The columns rotated in NumPy."""
    root = leading(matrix)
    scaled = root / np.sqrt(np.diag(matrix) - np.sum(root**2, axis=0))
    eigenvalues, basis = np.linalg.eigh(scaled @ scaled.T)
    columns = jax.vmap(lambda u: unravel(u, like))(jnp.asarray(basis.T @ root))
    plain = build_low_rank(LowRank, matrix, like)
    return cls(columns, plain.values, jnp.asarray(eigenvalues, ravel_pytree(like)[0].dtype))


def build_scaled(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    """Three times a third of it."""
    third = build_dense(Dense, matrix / 3, like)
    return cls.of(third, 3.0)


def build_parts(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    """A block for the layer and one for the number."""
    dtype = ravel_pytree(like)[0].dtype
    blocks = {
        "layer": Dense(jnp.asarray(matrix[LAYER, LAYER], dtype)),
        "scale": Scalar(jnp.asarray(matrix[6, 6], dtype)),
    }
    return cls(blocks)


def keep_parts(matrix: np.ndarray) -> np.ndarray:
    return np.where(np.kron(np.eye(2), np.ones((6, 6)))[:D, :D], matrix, 0.0)


def build_leaves(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    matrix = jnp.asarray(matrix, ravel_pytree(like)[0].dtype)
    return cls({"layer": [Dense(matrix[:4, :4]), Dense(matrix[4:6, 4:6])], "scale": Dense(matrix[6:, 6:])})


# What each refuses, and a piece of the sentence that says so.
MISTAKEN_BLOCKS = {
    "a block is a": lambda cls: cls({"w": jnp.ones(2)}),
    "cannot hold its sum": lambda cls: cls({"w": Scalar(1.0)}).add(Diagonal({"w": jnp.ones(2)})),
    "has no blocks": lambda cls: cls({"w": Scalar(1.0)}).add(Dense(jnp.eye(2))),
}
MISTAKEN_FACTORS = {
    "is a square matrix": lambda cls: cls(jnp.ones((2, 3)), jnp.eye(2)),
    "check the order": lambda cls: cls(jnp.eye(2), jnp.eye(3)).matvec(jnp.ones((2, 2))),
    "is not a Kronecker product": lambda cls: cls(jnp.eye(2), jnp.eye(3)).add(Diagonal(jnp.ones((2, 3)))),
}
MISTAKEN_COLUMNS = {
    "of one structure": lambda cls: cls({"w": jnp.ones((1, 2))}, jnp.ones(2)),
    "for one rank": lambda cls: cls([jnp.ones((1, 2)), jnp.ones((2, 2))], [jnp.ones(2), jnp.ones(2)]),
    "is not a low rank": lambda cls: cls(jnp.ones((1, 2)), jnp.ones(2)).add(Dense(jnp.eye(2))),
}

scalar = row("operators", "Scalar", Scalar, "structure", build=build_scalar, keep=mean_of_diagonal)
diagonal = row("operators", "Diagonal", Diagonal, "structure", build=build_diagonal, keep=lambda a: np.diag(np.diag(a)))
dense = row("operators", "Dense", Dense, "structure", build=build_dense, keep=lambda a: a)
cholesky = row("operators", "Cholesky", Cholesky, build=build_cholesky, keep=lambda a: a)
parts = row(
    "operators",
    "BlockDiagonal",
    BlockDiagonal,
    "adds refuses",
    mistakes=MISTAKEN_BLOCKS,
    build=build_parts,
    keep=keep_parts,
)
leaves = row(
    "operators", "DenseBlocks", DenseBlocks, "structure adds", build=build_leaves, keep=lambda a: a * (LEAVES > 0)
)
kronecker = row(
    "operators",
    "Kronecker",
    Kronecker,
    "adds factors refuses",
    mistakes=MISTAKEN_FACTORS,
    build=build_kronecker,
    keep=keep_kronecker,
)
kronecker_eigen = row(
    "operators", "KroneckerEigen", KroneckerEigen, "long", build=build_kronecker_eigen, keep=keep_kronecker
)
kronecker_blocks = row(
    "operators",
    "KroneckerBlocks",
    KroneckerBlocks,
    "adds",
    build=build_kronecker_blocks,
    keep=keep_kronecker,
)
kronecker_leading = row(
    "operators",
    "KroneckerLeading",
    KroneckerLeading,
    "adds",
    build=build_kronecker_leading,
    keep=keep_kronecker_leading,
)
stale_factors = row("operators", "StaleFactors", StaleFactors, "adds", build=build_stale_factors, keep=keep_kronecker)
dense_eigen = row("operators", "DenseEigen", DenseEigen, "long", build=build_dense_eigen, keep=lambda a: a)
layer_order = row("operators", "LayerOrder", LayerOrder, "long", build=build_layer_order, keep=keep_parts)
low_rank = row(
    "operators",
    "LowRank",
    LowRank,
    "adds compresses refuses",
    mistakes=MISTAKEN_COLUMNS,
    build=build_low_rank,
    keep=keep_low_rank,
)
low_rank_eigen = row("operators", "LowRankEigen", LowRankEigen, "long", build=build_low_rank_eigen, keep=keep_low_rank)
scaled = row("operators", "Scaled", Scaled, build=build_scaled, keep=lambda a: a)
outputs = row(
    "operators",
    "OutputBlocks",
    OutputBlocks,
    "adds",
    build=build_outputs,
    keep=keep_outputs,
)
output_cholesky = row("operators", "OutputCholesky", OutputCholesky, "long", build=build_outputs, keep=keep_outputs)
output_spectrum = row("operators", "OutputEigen", OutputEigen, "long", build=build_output_eigen, keep=keep_output_eigen)
SOUND = (scalar, diagonal, dense, cholesky, parts, leaves, kronecker, kronecker_eigen, low_rank, low_rank_eigen)


def operator(row: Row, matrix: np.ndarray = MATRIX, like: Any = LIKE) -> Any:
    return row.extras["build"](row.subject, matrix, like)


def kept(row: Row, matrix: np.ndarray = MATRIX) -> np.ndarray:
    return row.extras["keep"](matrix)


def columns(function: Any) -> np.ndarray:
    """The matrix of a linear function on the space."""
    return np.stack([flat(function(unravel(e))) for e in np.eye(D)], axis=1)


@law("operators")
def declares_what_it_is(row: Row) -> None:
    assert isinstance(operator(row), Operator)
    assert isinstance(operator(row).factored(), Operator)
    assert isinstance(operator(row), Structure) == ("structure" in row.traits)


@law("operators")
def dense_is_the_matrix(row: Row) -> None:
    np.testing.assert_allclose(operator(row).dense(LIKE), kept(row), **CLOSE)


@law("operators")
def matvec_is_the_product(row: Row) -> None:
    found = operator(row).matvec(unravel(U))
    assert jax.tree.structure(found) == jax.tree.structure(LIKE)
    np.testing.assert_allclose(flat(found), kept(row) @ U, **CLOSE)


@law("operators")
def solve_is_the_inverse(row: Row) -> None:
    np.testing.assert_allclose(flat(operator(row).solve(unravel(U))), np.linalg.solve(kept(row), U), **CLOSE)


@law("operators")
def solve_undoes_matvec(row: Row) -> None:
    op = operator(row)
    np.testing.assert_allclose(flat(op.solve(op.matvec(unravel(U)))), U, **CLOSE)
    np.testing.assert_allclose(flat(op.matvec(op.solve(unravel(U)))), U, **CLOSE)


@law("operators")
def inverse_root_squares_to_the_inverse(row: Row) -> None:
    """R Rᵀ = S⁻¹, with R applied to the basis."""
    root = columns(operator(row).inverse_root)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(kept(row)), **CLOSE)


@law("operators")
def sample_has_the_covariance(row: Row) -> None:
    """Means and covariances of n draws within five standard errors: 35 numbers, a false alarm with probability 2e-5."""
    n = 20_000
    op, covariance = operator(row), np.linalg.inv(kept(row))
    draws = jax.vmap(lambda key: ravel_pytree(op.sample(key, LIKE))[0])(jax.random.split(jax.random.key(2), n))
    draws = np.asarray(draws)
    variance = np.diag(covariance)
    assert np.all(np.abs(draws.mean(axis=0)) < 5.0 * np.sqrt(variance / n))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.all(np.abs(draws.T @ draws / n - covariance) < 5.0 * error)


@law("operators")
def logdet_is_slogdet(row: Row) -> None:
    found = operator(row).logdet(LIKE)
    assert found.shape == ()
    np.testing.assert_allclose(found, np.linalg.slogdet(kept(row))[1], **CLOSE)


@law("operators")
def diagonal_and_variance_are_diagonals(row: Row) -> None:
    op = operator(row)
    assert jax.tree.map(jnp.shape, op.diagonal(LIKE)) == jax.tree.map(jnp.shape, LIKE)
    np.testing.assert_allclose(flat(op.diagonal(LIKE)), np.diag(kept(row)), **CLOSE)
    np.testing.assert_allclose(flat(op.variance(LIKE)), np.diag(np.linalg.inv(kept(row))), **CLOSE)


@law("operators")
def trace_solve_is_the_trace(row: Row) -> None:
    """For every structure that the other may have."""
    for other in SOUND:
        found = operator(row).trace_solve(operator(other, OTHER), LIKE)
        expected = np.trace(np.linalg.solve(kept(row), kept(other, OTHER)))
        np.testing.assert_allclose(found, expected, **CLOSE, err_msg=other.name)


@law("operators")
def tangent_covariance_is_the_product(row: Row) -> None:
    """J S⁻¹ Jᵀ of two rows with three outputs, and the diagonals alone."""
    jacobian = np.random.default_rng(1).normal(size=(2, 3, D))
    expected = np.einsum("nkd,de,nle->nkl", jacobian, np.linalg.inv(kept(row)), jacobian)
    tangents = jax.vmap(jax.vmap(unravel))(jnp.asarray(jacobian))
    for op in (operator(row), operator(row).factored()):
        np.testing.assert_allclose(op.tangent_covariance(tangents, marginal=False), expected, **CLOSE)
        variances = op.tangent_covariance(tangents, marginal=True)
        np.testing.assert_allclose(variances, np.einsum("nkk->nk", expected), **CLOSE)


@law("operators", when="structure")
def sandwich_is_the_product(row: Row) -> None:
    """Δ S⁻¹ Δ for an indefinite Δ of the same structure."""
    delta = kept(row, INDEFINITE)
    found = operator(row).sandwich(operator(row, INDEFINITE)).dense(LIKE)
    np.testing.assert_allclose(found, delta @ np.linalg.solve(kept(row), delta), rtol=1e-9, atol=1e-9)


@law("operators")
def scale_multiplies(row: Row) -> None:
    for factor in (2.5, jnp.asarray(2.5), jnp.asarray(2.5, jnp.float32)):
        np.testing.assert_allclose(operator(row).scale(factor).dense(LIKE), 2.5 * kept(row), **CLOSE)


@law("operators")
def factored_is_equal(row: Row) -> None:
    op, factored = operator(row), operator(row).factored()
    np.testing.assert_allclose(factored.dense(LIKE), op.dense(LIKE), **CLOSE)
    np.testing.assert_allclose(flat(factored.solve(unravel(U))), flat(op.solve(unravel(U))), **CLOSE)
    np.testing.assert_allclose(factored.logdet(LIKE), op.logdet(LIKE), **CLOSE)
    draws = [flat(each.sample(jax.random.key(4), LIKE)) for each in (op, factored)]
    np.testing.assert_allclose(*draws, **CLOSE, err_msg="the same key gives the same draw")


@law("operators")
def is_positive_sees_signs_and_nans(row: Row) -> None:
    """A NaN in any leaf, and the negative operator (of which a factor is a NaN)."""
    op = operator(row)
    assert op.is_positive(LIKE)
    assert op.is_positive(LIKE).shape == ()
    assert not op.scale(-1.0).is_positive(LIKE)
    held, structure = jax.tree.flatten(op)
    for index in range(len(held)):
        if not jnp.issubdtype(jnp.result_type(held[index]), jnp.floating):
            continue  # a count
        spoilt = [leaf * jnp.nan if index == i else leaf for i, leaf in enumerate(held)]
        assert not jax.tree.unflatten(structure, spoilt).is_positive(LIKE), f"a NaN in leaf {index}"


@law("operators", when="structure")
def from_diagonal_keeps_the_diagonal(row: Row) -> None:
    found = row.subject.from_diagonal(unravel(U)).dense(LIKE)
    np.testing.assert_allclose(found, kept(row, np.diag(U)), **CLOSE)


@law("operators", when="structure")
def from_jacobian_keeps_the_sum(row: Row) -> None:
    """Σ_b J_bᵀ W_b J_b, with correlated outputs and a weight that is not positive in every row."""
    rng = np.random.default_rng(8)
    jacobian, root = rng.normal(size=(4, 3, D)), rng.normal(size=(4, 3, 3))
    weight = root + root.swapaxes(1, 2)
    leaves = jax.vmap(jax.vmap(unravel))(jnp.asarray(jacobian))
    found = row.subject.from_jacobian(leaves, jnp.asarray(weight)).dense(LIKE)
    np.testing.assert_allclose(found, kept(row, np.einsum("bkp,bkl,blq->pq", jacobian, weight, jacobian)), **CLOSE)


@law("operators", when="structure")
def from_hessian_keeps_the_matrix(row: Row) -> None:
    product = lambda v: unravel(jnp.asarray(INDEFINITE) @ ravel_pytree(v)[0])
    np.testing.assert_allclose(row.subject.from_hessian(product, LIKE).dense(LIKE), kept(row, INDEFINITE), **CLOSE)


@law("operators", when="structure")
def from_outer_keeps_the_symmetric_part(row: Row) -> None:
    found = row.subject.from_outer(unravel(U), unravel(V)).dense(LIKE)
    np.testing.assert_allclose(found, kept(row, (np.outer(U, V) + np.outer(V, U)) / 2), **CLOSE)


@law("operators", when="structure")
def linear_in_its_leaves(row: Row) -> None:
    moved = jax.tree.map(lambda s, h: 0.25 * s - 1.5 * h, operator(row), operator(row, INDEFINITE))
    np.testing.assert_allclose(moved.dense(LIKE), 0.25 * kept(row) - 1.5 * kept(row, INDEFINITE), **CLOSE)


@law("operators", when="adds")
def add_of_the_identity_is_exact(row: Row) -> None:
    """And so are the solves and determinants of the sum."""
    found, expected = operator(row).add(Scalar(jnp.asarray(0.7))), kept(row) + 0.7 * np.eye(D)
    np.testing.assert_allclose(found.dense(LIKE), expected, **CLOSE)
    np.testing.assert_allclose(flat(found.solve(unravel(U))), np.linalg.solve(expected, U), **CLOSE)
    np.testing.assert_allclose(found.logdet(LIKE), np.linalg.slogdet(expected)[1], **CLOSE)


@law("operators", when="compresses")
def add_keeps_both(row: Row) -> None:
    found = operator(row).add(operator(row, OTHER)).add(build_diagonal(Diagonal, MATRIX, LIKE))
    np.testing.assert_allclose(found.dense(LIKE), kept(row) + kept(row, OTHER) + np.diag(np.diag(MATRIX)), **CLOSE)
    assert found.rank == 2 * RANK


@law("operators", when="compresses")
def toward_keeps_the_leading_directions_and_the_diagonal(row: Row) -> None:
    """The best approximation of the mean of both U Uᵀ in the dense twin's eigenvectors, and its diagonal."""
    part = lambda rows, d: row.subject(jax.vmap(unravel)(jnp.asarray(COLUMNS[rows])), unravel(d))
    first, second = np.linspace(0.5, 1.5, D), np.linspace(2.0, 1.0, D)
    found = part(slice(0, RANK), first).toward(part(slice(RANK, None), second), 0.3)
    full = 0.7 * COLUMNS[:RANK].T @ COLUMNS[:RANK] + 0.3 * COLUMNS[RANK:].T @ COLUMNS[RANK:]
    values, vectors = np.linalg.eigh(full)
    best = (vectors[:, -RANK:] * values[-RANK:]) @ vectors[:, -RANK:].T
    diagonal = np.diag(full) + 0.7 * first + 0.3 * second
    assert found.rank == RANK
    np.testing.assert_allclose(found.dense(LIKE), best - np.diag(np.diag(best)) + np.diag(diagonal), **CLOSE)
    np.testing.assert_allclose(flat(found.diagonal(LIKE)), diagonal, rtol=1e-12)
    assert found.is_positive(LIKE)


@law("operators", when="compresses")
def a_small_eigenvalue_beside_a_large_one(row: Row) -> None:
    """In float32, for columns far from orthogonal: the eigenvalues of UᵀD⁻¹U are wrong by 1e-7 of the largest."""
    root = np.random.default_rng(3).normal(size=(2, D)) * np.array([[3e3], [1.0]])
    root[1] += root[0] / 3
    root, values = root.astype(np.float32), np.linspace(0.5, 1.5, D).astype(np.float32)
    exact = root.T.astype(float) @ root.astype(float) + np.diag(values.astype(float))
    like = single(LIKE)
    found = row.subject(jax.vmap(lambda u: unravel(u, like))(jnp.asarray(root)), unravel(values, like))
    np.testing.assert_allclose(found.logdet(like), np.linalg.slogdet(exact)[1], rtol=1e-5)
    np.testing.assert_allclose(flat(found.variance(like)), np.diag(np.linalg.inv(exact)), rtol=2e-3)


@law("operators", when="factors")
def a_singular_factor_leaves_the_shift(row: Row) -> None:
    """Factors of one example, in float32: rounding must not take S below its shift, nor a variance above 1 / δ."""
    rng = np.random.default_rng(4)
    factors, shift = [np.outer(u, u) for u in (rng.normal(size=30), 1e3 * rng.normal(size=20))], 1e-2
    op = row.subject(*(jnp.asarray(factor, jnp.float32) for factor in factors), shift=shift)
    like = jnp.zeros((30, 20), jnp.float32)
    assert op.is_positive(like)
    variance = np.asarray(op.variance(like))
    assert np.all((variance > 0) & (variance < (1 + 1e-4) / shift))


@law("operators", when="refuses")
def refuses_with_a_reason(row: Row) -> None:
    for reason, mistake in row.extras["mistakes"].items():
        said = ""
        try:
            mistake(row.subject)
        except (TypeError, ValueError) as error:
            said = str(error)
        assert reason in said, f"{reason!r} is not in {said!r}"


METHODS = {
    "matvec": lambda op, v: op.matvec(v),
    "solve": lambda op, v: op.solve(v),
    "inverse_root": lambda op, v: op.inverse_root(v),
    "logdet": lambda op, v: op.logdet(v),
    "diagonal": lambda op, v: op.diagonal(v),
    "variance": lambda op, v: op.variance(v),
    "dense": lambda op, v: op.dense(v),
    "sample": lambda op, v: op.sample(jax.random.key(1), v),
    "trace_solve": lambda op, v: op.trace_solve(op, v),
    "scale": lambda op, v: op.scale(3.0),
}


@law("operators")
def float32_beside_float64(row: Row) -> None:
    """Operators, vectors and scalars keep their precision; the conditions here cost at most three digits of seven."""
    for name, method in METHODS.items():
        low = method(operator(row, MATRIX, single(LIKE)), single(unravel(U)))
        high = method(operator(row), unravel(U))
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(low)), f"{name} leaves float32"
        if name != "sample":  # another generator
            np.testing.assert_allclose(flat(low), flat(high), rtol=2e-3, atol=2e-4, err_msg=name)


@law("operators")
def jit_and_vmap_change_nothing(row: Row) -> None:
    pair = [operator(row), operator(row, OTHER)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pair)
    vectors = jax.tree.map(lambda *leaves: jnp.stack(leaves), unravel(U), unravel(V))
    for name, method in METHODS.items():
        alone = [flat(method(op, unravel(v))) for op, v in zip(pair, (U, V), strict=True)]
        np.testing.assert_allclose(flat(jax.jit(method)(pair[0], unravel(U))), alone[0], **CLOSE, err_msg=name)
        together = jax.vmap(lambda op, v, method=method: ravel_pytree(method(op, v))[0])(stacked, vectors)
        np.testing.assert_allclose(together, np.stack(alone), **CLOSE, err_msg=name)


def broken(base: Any, name: str, **methods: Any) -> Any:
    """A class that differs from the sound one in the given methods, and goes through JAX as that one does."""
    return record(type(f"{base.__name__}{name}", (base,), {"__module__": __name__, **methods}))


def twin_of(of: Row, fault: str, laws: str, **methods: Any) -> None:
    twin(of, fault, laws, broken(of.subject, fault.title().replace(" ", ""), **methods))


def scaled_gram(op: LowRank) -> jax.Array:
    """UᵀD⁻¹U."""
    rows = jax.vmap(lambda u: ravel_pytree(u)[0])(op.root)
    return (rows / ravel_pytree(op.values)[0][None]) @ rows.T


key_once = jax.random.key(0)
twin_of(scalar, "logdet without D", "logdet_is_slogdet", logdet=lambda op, like: jnp.log(op.value))
twin_of(
    scalar,
    "sum for mean of the diagonal",
    "from_diagonal_keeps_the_diagonal from_jacobian_keeps_the_sum",
    from_diagonal=classmethod(lambda cls, d: cls(jnp.sum(ravel_pytree(d)[0]))),
)
twin_of(
    scalar,
    "mean over leaves for mean over coordinates",
    "from_diagonal_keeps_the_diagonal",
    from_diagonal=classmethod(lambda cls, d: cls(jnp.mean(jnp.stack([jnp.mean(leaf) for leaf in jax.tree.leaves(d)])))),
)
twin_of(
    scalar,
    "inner product undivided",
    "from_outer_keeps_the_symmetric_part",
    from_outer=classmethod(lambda cls, u, v: cls(tree.dot(u, v))),
)
twin_of(
    scalar, "standard deviation for variance", "diagonal_and_variance_are_diagonals",
    variance=lambda op, like: jax.tree.map(lambda leaf: jnp.full_like(leaf, op.value**-0.5), like),
)  # fmt: skip
twin_of(
    scalar,
    "trace without D",
    "trace_solve_is_the_trace",
    trace_solve=lambda op, other, like: jnp.mean(ravel_pytree(other.diagonal(like))[0]) / op.value,
)
twin_of(
    scalar, "scaled by the square", "scale_multiplies", scale=lambda op, c: Scalar(op.value * tree.cast(c**2, op.value))
)
twin_of(scalar, "sign of dense", "dense_is_the_matrix", dense=lambda op, like: -Scalar.dense(op, like))
twin_of(scalar, "bend without inverse", "sandwich_is_the_product", sandwich=lambda op, d: Scalar(d.value**2))

twin_of(diagonal, "solve forgets the division", "solve_is_the_inverse solve_undoes_matvec", solve=Diagonal.matvec)
twin_of(diagonal, "matvec divides", "matvec_is_the_product solve_undoes_matvec", matvec=Diagonal.solve)
twin_of(
    diagonal,
    "variance for standard deviation in draws",
    "inverse_root_squares_to_the_inverse sample_has_the_covariance",
    inverse_root=Diagonal.solve,
)
twin_of(
    diagonal,
    "one key for every leaf",
    "sample_has_the_covariance",
    sample=lambda op, key, like: op.inverse_root(
        jax.tree.map(lambda leaf: jax.random.normal(jax.random.clone(key), leaf.shape, leaf.dtype), like)
    ),
)
twin_of(
    diagonal,
    "the same key always",
    "sample_has_the_covariance",
    sample=lambda op, key, like: Diagonal.sample(op, jax.random.clone(key_once), like),
)
twin_of(
    diagonal,
    "tangents without the inverse",
    "tangent_covariance_is_the_product",
    tangent_covariance=lambda op, jacobian, marginal: Diagonal.tangent_covariance(
        Diagonal(op.variance(op.values)), jacobian, marginal
    ),
)
twin_of(diagonal, "sign of logdet", "logdet_is_slogdet", logdet=lambda op, like: -Diagonal.logdet(op, like))
twin_of(
    diagonal,
    "outputs taken as independent",
    "from_jacobian_keeps_the_sum",
    from_jacobian=classmethod(
        lambda cls, jacobian, weight: Diagonal.from_jacobian(jacobian, weight * jnp.eye(weight.shape[-1])[None])
    ),
)
twin_of(
    diagonal,
    "row sums for the diagonal",
    "from_hessian_keeps_the_matrix",
    from_hessian=classmethod(lambda cls, product, like: cls(product(jax.tree.map(jnp.ones_like, like)))),
)
twin_of(
    diagonal,
    "square of one for the product of two",
    "from_outer_keeps_the_symmetric_part",
    from_outer=classmethod(lambda cls, u, v: Diagonal.from_outer(u, u)),
)
twin_of(diagonal, "variance for diagonal", "diagonal_and_variance_are_diagonals", diagonal=Diagonal.variance)
twin_of(
    diagonal,
    "another value where traced",
    "jit_and_vmap_change_nothing",
    logdet=lambda op, like: Diagonal.logdet(op, like) + isinstance(like["scale"], jax.core.Tracer) * 1e-3,
)
twin_of(
    diagonal,
    "float64 always",
    "float32_beside_float64",
    solve=lambda op, v: jax.tree.map(lambda s, leaf: leaf.astype(jnp.float64) / s.astype(jnp.float64), op.values, v),
)
twin_of(
    diagonal, "factored forgets", "factored_is_equal",
    factored=lambda op: Diagonal(jax.tree.map(jnp.ones_like, op.values)),
)  # fmt: skip

twin_of(
    dense,
    "transposed root in draws",
    "inverse_root_squares_to_the_inverse sample_has_the_covariance",
    inverse_root=lambda op, z: unravel(jnp.linalg.inv(op.factored().root) @ ravel_pytree(z)[0]),
)
twin_of(
    dense, "half of logdet", "logdet_is_slogdet factored_is_equal", logdet=lambda op, like: Dense.logdet(op, like) / 2
)
twin_of(
    dense,
    "elementwise inverse for variance",
    "diagonal_and_variance_are_diagonals",
    variance=lambda op, like: jax.tree.map(jnp.reciprocal, op.diagonal(like)),
)
twin_of(
    dense,
    "diagonals alone in the trace",
    "trace_solve_is_the_trace",
    trace_solve=lambda op, other, like: tree.dot(op.variance(like), other.diagonal(like)),
)
twin_of(
    dense,
    "outer product not symmetrised",
    "from_outer_keeps_the_symmetric_part",
    from_outer=classmethod(lambda cls, u, v: cls(jnp.outer(ravel_pytree(u)[0], ravel_pytree(v)[0]))),
)
twin_of(
    dense,
    "lower triangle of the Hessian",
    "from_hessian_keeps_the_matrix",
    from_hessian=classmethod(lambda cls, product, like: cls(jnp.tril(Dense.from_hessian(product, like).matrix))),
)
twin_of(
    dense,
    "mean over the batch for the sum",
    "from_jacobian_keeps_the_sum",
    from_jacobian=classmethod(lambda cls, j, w: Dense.from_jacobian(j, w / w.shape[0])),
)
twin_of(
    dense,
    "one factor in the bend",
    "sandwich_is_the_product",
    sandwich=lambda op, d: Dense(jnp.linalg.solve(op.matrix, d.matrix)),
)
twin_of(
    cholesky, "scaled like a matrix", "scale_multiplies", scale=lambda op, c: Cholesky(op.root * tree.cast(c, op.root))
)
twin_of(
    cholesky,
    "claims to be a structure",
    "declares_what_it_is",
    **{
        name: getattr(Dense, name)
        for name in (
            "from_diagonal",
            "from_jacobian",
            "from_hessian",
            "from_outer",
            "sandwich",
            "statistic",
            "second_moment",
        )
    },
)
twin_of(
    cholesky, "root for matrix", "matvec_is_the_product solve_undoes_matvec",
    matvec=lambda op, v: unravel(op.root @ ravel_pytree(v)[0]),
)  # fmt: skip
twin_of(
    cholesky,
    "products by column for products by row",
    "diagonal_and_variance_are_diagonals",
    diagonal=lambda op, like: unravel(jnp.sum(op.root**2, axis=0), like),
)


@record
class SquareRoots:
    """A diagonal that holds square roots: sound alone, but no structure that the rule could move in a straight line."""

    roots: Any

    def dense(self, like: Any) -> jax.Array:
        return jnp.diag(ravel_pytree(self.roots)[0] ** 2)


twin(
    diagonal,
    "square roots in the leaves",
    "linear_in_its_leaves",
    SquareRoots,
    build=lambda cls, a, like: cls(unravel(np.sqrt(np.abs(np.diag(a))))),
)

twin_of(
    parts,
    "one key for every block",
    "sample_has_the_covariance",
    sample=lambda op, key, like: op._map(lambda block, part: block.sample(jax.random.clone(key), part), like),
)
twin_of(
    parts,
    "the last block forgotten",
    "logdet_is_slogdet factored_is_equal",
    logdet=lambda op, like: op.blocks["layer"].logdet(like["layer"]),
)
twin_of(
    parts,
    "dimensions of the other's whole",
    "trace_solve_is_the_trace",
    trace_solve=lambda op, other, like: tree.dot(op.variance(like), other.diagonal(like)),
)
twin_of(
    parts,
    "blocks in reverse",
    "dense_is_the_matrix",
    dense=lambda op, like: jnp.flip(BlockDiagonal.dense(op, like)),
)
twin_of(parts, "adds nothing", "add_of_the_identity_is_exact", add=lambda op, other: op)
twin_of(parts, "accepts anything", "refuses_with_a_reason", __post_init__=lambda op: None)
twin_of(
    leaves,
    "blocks of the Hessian with all the others moving",
    "from_hessian_keeps_the_matrix",
    from_hessian=classmethod(
        lambda cls, product, like: cls(
            jax.tree.map(lambda leaf: Dense(jnp.full((leaf.size, leaf.size), 1.0)), product(like))
        )
    ),
)
twin_of(
    leaves,
    "outer product of one vector",
    "from_outer_keeps_the_symmetric_part",
    from_outer=classmethod(lambda cls, u, v: DenseBlocks.from_outer(u, u)),
)
twin_of(
    kronecker,
    "the two factors exchanged",
    "dense_is_the_matrix",
    dense=lambda op, like: jnp.kron(op.output_factor, op.input_factor) + op.shift * jnp.eye(6),
)
twin_of(
    kronecker,
    "each factor shifted by the root",
    "solve_is_the_inverse solve_undoes_matvec logdet_is_slogdet factored_is_equal",
    factored=lambda op: Kronecker(
        op.input_factor + jnp.sqrt(op.shift) * jnp.eye(3), op.output_factor + jnp.sqrt(op.shift) * jnp.eye(2), 0.0
    ).factored(),
)
twin_of(
    kronecker,
    "both factors scaled",
    "scale_multiplies",
    scale=lambda op, c: Kronecker(
        op.input_factor * tree.cast(c, op.shift), op.output_factor * tree.cast(c, op.shift), op.shift
    ),
)
twin_of(
    kronecker,
    "shift forgotten",
    "diagonal_and_variance_are_diagonals",
    diagonal=lambda op, like: Kronecker(op.input_factor, op.output_factor).diagonal(like),
)
twin_of(
    kronecker,
    "rounding left in the eigenvalues",
    "a_singular_factor_leaves_the_shift",
    factored=lambda op: KroneckerEigen(
        (a := jnp.linalg.eigh(op.input_factor))[1],
        (b := jnp.linalg.eigh(op.output_factor))[1],
        jnp.outer(a[0], b[0]) + op.shift,
    ),
)
twin_of(kronecker, "any shape", "refuses_with_a_reason", __post_init__=lambda op: None)
twin_of(
    kronecker_eigen,
    "vectors of the wrong side",
    "matvec_is_the_product solve_undoes_matvec",
    matvec=lambda op, v: KroneckerEigen(op.input_basis.T, op.output_basis, op.eigenvalues).matvec(v),
)
twin_of(
    kronecker_eigen,
    "inverse for root",
    "inverse_root_squares_to_the_inverse sample_has_the_covariance",
    inverse_root=KroneckerEigen.solve,
)
twin_of(
    kronecker_eigen,
    "the other's shift forgotten",
    "trace_solve_is_the_trace",
    trace_solve=lambda op, other, like: KroneckerEigen.trace_solve(
        op, Kronecker(other.input_factor, other.output_factor) if isinstance(other, Kronecker) else other, like
    ),
)
twin_of(
    low_rank,
    "determinant without the diagonal",
    "logdet_is_slogdet factored_is_equal",
    logdet=lambda op, like: jnp.sum(jnp.log1p(op.factored().eigenvalues)),
)
twin_of(
    low_rank,
    "diagonal not corrected",
    "toward_keeps_the_leading_directions_and_the_diagonal",
    toward=lambda op, other, rate: LowRank(
        LowRank.toward(op, other, rate).root, tree.add(tree.scale(op.values, 1 - rate), other.values, rate)
    ),
)
twin_of(
    low_rank,
    "first columns for leading directions",
    "toward_keeps_the_leading_directions_and_the_diagonal",
    toward=lambda op, other, rate: LowRank(
        tree.scale(op.root, (1 - rate) ** 0.5),
        jax.tree.map(
            lambda d, e, u: (1 - rate) * d + rate * (e + jnp.sum(u**2, axis=0)), op.values, other.values, other.root
        ),
    ),
)
twin_of(
    low_rank,
    "columns summed",
    "add_keeps_both",
    add=lambda op, other: (
        LowRank(tree.add(op.root, other.root), tree.add(op.values, other.values))
        if isinstance(other, LowRank)
        else LowRank.add(op, other)
    ),
)
twin_of(
    low_rank,
    "columns scaled like the diagonal",
    "scale_multiplies",
    scale=lambda op, c: LowRank(tree.scale(op.root, c), tree.scale(op.values, c)),
)
twin_of(
    low_rank,
    "eigenvalues as they came",
    "a_small_eigenvalue_beside_a_large_one",
    logdet=lambda op, like: (
        jnp.sum(jnp.log(ravel_pytree(op.values)[0])) + jnp.sum(jnp.log1p(jnp.linalg.eigvalsh(scaled_gram(op))))
    ),
)
twin_of(low_rank, "any columns", "refuses_with_a_reason", __post_init__=lambda op: None)
twin_of(
    low_rank_eigen,
    "diagonal alone",
    "solve_is_the_inverse solve_undoes_matvec",
    solve=lambda op, v: Diagonal(op.values).solve(v),
)
twin_of(
    low_rank_eigen,
    "weights of the solve in the root",
    "inverse_root_squares_to_the_inverse sample_has_the_covariance",
    inverse_root=lambda op, z: LowRankEigen.solve(op, jax.tree.map(lambda leaf, d: leaf * jnp.sqrt(d), z, op.values)),
)
twin_of(
    low_rank_eigen,
    "inverse of the diagonal for its bound",
    "diagonal_and_variance_are_diagonals",
    variance=lambda op, like: Diagonal(op.diagonal(like)).variance(like),
)

twin_of(
    diagonal,
    "negative is positive",
    "is_positive_sees_signs_and_nans",
    is_positive=lambda op, like: jnp.isfinite(op.logdet(like)) | (op.logdet(like) != 0),
)
twin_of(
    parts,
    "the first block speaks for all",
    "is_positive_sees_signs_and_nans",
    is_positive=lambda op, like: op.blocks["layer"].is_positive(like["layer"]),
)
twin_of(
    low_rank,
    "columns not looked at",
    "is_positive_sees_signs_and_nans",
    is_positive=lambda op, like: Diagonal(op.values).is_positive(like),
)
twin_of(
    kronecker,
    "a NaN that is not negative",
    "is_positive_sees_signs_and_nans",
    is_positive=lambda op, like: ~jnp.any(op.factored().eigenvalues <= 0),
)
