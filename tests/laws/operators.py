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
from lamu.operators import Cholesky, Dense, Diagonal, Operator, Scalar, Structure
from lamu.record import record
from tests.laws.harness import Row, law, row, twin

LIKE = {"layer": [jnp.zeros((2, 2)), jnp.zeros(2)], "scale": jnp.zeros(())}
D = 7
RNG = np.random.default_rng(5)
ROOT = RNG.normal(size=(D, D))
MATRIX = ROOT @ ROOT.T + np.diag(np.linspace(0.3, 2.0, D))
OTHER = np.diag(np.linspace(3.0, 0.5, D)) + 0.2 * np.outer(np.arange(D), np.arange(D)) / D
SYMMETRIC = RNG.normal(size=(D, D)) + RNG.normal(size=(D, D)).T
INDEFINITE = SYMMETRIC + SYMMETRIC.T
U, V = RNG.normal(size=(2, D))

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


scalar = row("operators", "Scalar", Scalar, "structure", build=build_scalar, keep=mean_of_diagonal)
diagonal = row("operators", "Diagonal", Diagonal, "structure", build=build_diagonal, keep=lambda a: np.diag(np.diag(a)))
dense = row("operators", "Dense", Dense, "structure", build=build_dense, keep=lambda a: a)
cholesky = row("operators", "Cholesky", Cholesky, build=build_cholesky, keep=lambda a: a)
SOUND = (scalar, diagonal, dense, cholesky)


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
def sandwich_is_the_product(row: Row) -> None:
    """Δ S⁻¹ Δ for an indefinite Δ of the same structure (dense beside a Cholesky factor)."""
    delta = kept(row, INDEFINITE)
    other = dense if row.subject is Cholesky or issubclass(row.subject, Cholesky) else row
    found = operator(row).sandwich(operator(other, INDEFINITE)).dense(LIKE)
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
    "sandwich": lambda op, v: op.sandwich(Dense(op.dense(v)) if isinstance(op, Cholesky) else op),
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
    **{name: getattr(Dense, name) for name in ("from_diagonal", "from_jacobian", "from_hessian", "from_outer")},
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
