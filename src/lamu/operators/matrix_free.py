"""Matrix-free precisions: solves by conjugate gradients, draws by solves, determinants by Lanczos quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.operators.diagonal import Diagonal
from lamu.operators.interface import Operator, is_number
from lamu.record import record, static
from lamu.typing import Array, Number, OperatorTree, Params, PyTree, RandomKey

__all__ = ["MatrixFree", "MatrixFreeStructure", "eigenpairs", "lanczos", "quadrature"]


# \[ Q^\top S Q = T, \qquad T = \mathrm{tridiag}(\beta, \alpha, \beta), \qquad q_1 = v / \lVert v \rVert \]
#
# Every new vector is orthogonalised twice against all earlier ones, so that T is exact up to rounding. Where the Krylov
# space of v is exhausted, the iteration continues with a random vector: with as many steps as coordinates the
# decomposition is complete, including multiple eigenvalues.


_EXACT = jax.lax.Precision.HIGHEST


def lanczos(
    product: Callable[[Params], Params], start: Params, steps: int, key: RandomKey
) -> tuple[Array, Array, Array]:
    """Returns T's diagonal and off-diagonal, `[steps]` and `[steps - 1]`, and Q, `[steps, D]`."""
    vector, unravel = tree.ravel(start)
    if not 1 <= steps <= vector.size:
        raise ValueError(f"steps={steps!r} of {vector.size} coordinates; take at least one, and no more than those")
    tiny = 100 * jnp.finfo(vector.dtype).eps

    def outside(w: Array, basis: Array) -> Array:
        for _ in range(2):
            w = w - jnp.matmul(basis.T, jnp.matmul(basis, w, precision=_EXACT), precision=_EXACT)
        return w

    def step(carry: tuple[Array, Array, Array], k: Array) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
        basis, q, largest = carry
        basis = basis.at[k].set(q)
        w = tree.ravel(product(unravel(q)))[0]
        alpha = q @ w
        w = outside(w, basis)
        beta = jnp.linalg.norm(w)
        largest = jnp.maximum(largest, jnp.maximum(jnp.abs(alpha), beta))
        fresh = outside(jax.random.normal(jax.random.fold_in(key, k), q.shape, q.dtype), basis)
        ended = beta <= tiny * largest
        after = jnp.where(ended, fresh / jnp.linalg.norm(fresh), w / jnp.where(ended, 1, beta))
        return (basis, after, largest), (alpha, jnp.where(ended, jnp.zeros_like(beta), beta))

    zeros = jnp.zeros((steps, vector.size), vector.dtype)
    first = (zeros, vector / jnp.linalg.norm(vector), jnp.zeros((), vector.dtype))
    (basis, _, _), (alpha, beta) = jax.lax.scan(step, first, jnp.arange(steps))
    return alpha, beta[:-1], basis


def _eigh_tridiagonal(alpha: Array, beta: Array) -> tuple[Array, Array]:
    return jnp.linalg.eigh(jnp.diag(alpha) + jnp.diag(beta, 1) + jnp.diag(beta, -1))


def eigenpairs(
    product: Callable[[Params], Params], like: Params, rank: int, steps: int, key: RandomKey
) -> tuple[Array, Array]:
    """Returns the `rank` largest eigenvalues, descending, and their vectors `[rank, D]`."""
    first, others = jax.random.split(key)
    alpha, beta, basis = lanczos(product, tree.normal(first, like), steps, others)
    values, vectors = _eigh_tridiagonal(alpha, beta)
    chosen = vectors[:, ::-1][:, :rank]
    return values[::-1][:rank], jnp.matmul(chosen.T, basis, precision=_EXACT)


def quadrature(
    product: Callable[[Params], Params], like: Params, probes: int, steps: int, key: RandomKey
) -> tuple[Array, Array]:
    r"""Returns nodes and weights, `[probes, steps]`, with \(\mathrm{tr} f(S) \approx \sum w f(\mathrm{nodes})\)."""
    # For S + c I the nodes are shifted by c, without further products.
    #
    # Source: Ubaru, Chen & Saad (2017).
    vector, unravel = tree.ravel(like)

    def one(key: RandomKey) -> tuple[Array, Array]:
        signs, others = jax.random.split(key)
        z = jax.random.rademacher(signs, vector.shape, vector.dtype)
        alpha, beta, _ = lanczos(product, unravel(z), steps, others)
        nodes, vectors = _eigh_tridiagonal(alpha, beta)
        return nodes, vector.size * vectors[0] ** 2 / probes

    return jax.lax.map(one, jax.random.split(key, probes))


@record
class MatrixFreeStructure:
    """The structure of a `MatrixFree` precision: how it solves, and how it estimates determinants and diagonals.

    Attributes:
        tolerance: the residual at which a solve stops, relative to its right-hand side.
        iterations: the largest number of products in one solve.
        probes: the number of random vectors for a determinant or a diagonal.
        steps: the number of products for each of them.

    Raises:
        ValueError: for a number that is not positive.

    Examples:
        >>> from lamu.operators import MatrixFreeStructure
        >>> MatrixFreeStructure().probes
        16
    """

    tolerance: float = static(default=1e-5)
    iterations: int = static(default=500)
    probes: int = static(default=16)
    steps: int = static(default=40)

    by_rows = by_factors = False

    def __post_init__(self) -> None:
        for name in ("tolerance", "iterations", "probes", "steps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)!r} must be a positive number")

    def numbers_held(self, like: Params) -> int:
        """Returns the size of the diagonal.

        Args:
            like: a vector of the space, or its shapes.
        """
        return Diagonal.numbers_held(like)

    def __str__(self) -> str:
        return "matrix-free"


@record
class MatrixFree(Operator):
    r"""The operator \(S = c H + \mathrm{diag}(d)\), given by products with H.

    Solves are preconditioned conjugate gradients; a draw solves for a draw from N(0, S); the determinant and the
    diagonal of the inverse are stochastic estimates with fixed random vectors. It is not linear in its leaves.

    Attributes:
        of: H, any object with `matvec` and `noise`.
        held: the diagonal of H, for the preconditioner.
        factor: c.
        values: d, a vector of the space.
        how: the tolerance and the numbers of iterations, probes and steps.
        nodes: the nodes of H's quadrature, `[probes, steps]`; None before it is computed.
        weights: the weights of the nodes.

    Source: Hestenes & Stiefel (1952); Papandreou & Yuille (2010), for the draws; Ubaru, Chen & Saad (2017).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import MatrixFree
        >>> class Ones:
        ...     matvec = staticmethod(lambda v: jnp.sum(v) * jnp.ones_like(v))
        >>> S = MatrixFree(Ones(), held=jnp.ones(2), factor=1.0, values=jnp.ones(2))
        >>> S.solve(jnp.ones(2)).round(4).tolist()
        [0.3333..., 0.3333...]
    """

    of: OperatorTree
    held: Params
    factor: Number | Array
    values: Params
    how: MatrixFreeStructure = MatrixFreeStructure()
    nodes: Any = None
    weights: Any = None

    def matvec(self, v: Params) -> Params:
        """Returns S v, one product with H."""
        own = jax.tree.map(jnp.multiply, self.values, v)
        return tree.add(own, self.of.matvec(v), self.factor)

    def factored(self) -> MatrixFree:
        """Returns the operator with the quadrature of H, which gives the determinant for any constant d."""
        if self.nodes is not None:
            return self
        nodes, weights = self._quadrature(self.of.matvec)
        return MatrixFree(self.of, self.held, self.factor, self.values, self.how, nodes, weights)

    def solve(self, v: Params) -> Params:
        inverse = jax.tree.map(jnp.reciprocal, self.diagonal(v))
        precondition = lambda r: jax.tree.map(jnp.multiply, inverse, r)
        how = self.how
        return jax.scipy.sparse.linalg.cg(self.matvec, v, tol=how.tolerance, maxiter=how.iterations, M=precondition)[0]

    def inverse_root(self, z: Params) -> Params:
        r"""Returns \(S^{-1/2} z\), in the Krylov space of z."""
        vector, unravel = tree.ravel(z)
        flat = tree.ravel(self._outer())[0]
        steps = min(self.how.iterations, vector.size)
        # In coordinates in which the diagonal is one: (C S C) with C = D^(-1/2), and R = C (C S C)^(-1/2).
        alpha, beta, basis = lanczos(self._within, z, steps, jax.random.key(0))
        nodes, vectors = _eigh_tridiagonal(alpha, beta)
        inner = vectors @ (vectors[0] * jax.lax.rsqrt(jnp.maximum(nodes, jnp.finfo(nodes.dtype).tiny)))
        return unravel(flat * (basis.T @ inner) * jnp.linalg.norm(vector))

    def sample(self, key: RandomKey, like: Params) -> Params:
        ours, others = jax.random.split(key)
        own = jax.tree.map(lambda d, z: jnp.sqrt(d) * z, self.values, tree.normal(ours, like))
        return self.solve(tree.add(own, self.of.noise(others, like), jnp.sqrt(jnp.asarray(self.factor))))

    def logdet(self, like: Params) -> Array:
        """Returns an estimate of log det S, by stochastic Lanczos quadrature."""
        constant = self._one_value()
        if self.nodes is not None and constant is not None:
            floor = jnp.maximum(self.nodes, 0) * jnp.asarray(self.factor, self.nodes.dtype)
            return jnp.sum(self.weights * jnp.log(floor + constant))
        nodes, weights = self._quadrature(self._within)
        small = jnp.sum(weights * jnp.log(jnp.maximum(nodes, jnp.finfo(nodes.dtype).tiny)))
        return small + Diagonal(self.diagonal(like)).logdet(like)

    def diagonal(self, like: Params) -> Params:
        return tree.add(self.values, self.held, self.factor)

    def variance(self, like: Params) -> Params:
        """Returns an estimate of the diagonal of S⁻¹, by solves with random signs."""
        vector, unravel = tree.ravel(like)
        count = self.how.probes

        def add(total: Params, key: RandomKey) -> tuple[Params, None]:
            z = unravel(jax.random.rademacher(key, vector.shape, vector.dtype))
            return tree.add(total, jax.tree.map(jnp.multiply, z, self.solve(z)), 1 / count), None

        keys = jax.random.split(jax.random.key(0), count)
        estimate = jax.lax.scan(add, tree.zeros_like(like), keys)[0]
        # The inverse of the diagonal is a lower bound.
        return jax.tree.map(lambda v, d: jnp.maximum(v, 1 / d), estimate, self.diagonal(like))

    def scale(self, factor: Number) -> MatrixFree:
        values = tree.scale(self.values, factor)
        return MatrixFree(self.of, self.held, self.factor * factor, values, self.how, self.nodes, self.weights)

    def add(self, other: Operator) -> MatrixFree:
        """Returns S plus a Diagonal or a Scalar."""
        if not other.is_diagonal:
            raise TypeError(f"a {type(other).__name__} cannot be added to a matrix-free precision; add a Diagonal")
        values = tree.add(self.values, other.diagonal(self.values))
        return MatrixFree(self.of, self.held, self.factor, values, self.how, self.nodes, self.weights)

    def spectrum(self) -> Array:
        """Returns the nodes of H's quadrature, instead of its eigenvalues."""
        return self.factored().nodes

    def logdet_plus(self, precision: PyTree, like: Params, spectrum: PyTree = None) -> Array:
        """Returns an estimate of log det(S + δ I) for a d of zeros, from the quadrature.

        Raises:
            TypeError: for more than one number.
        """
        if not is_number(precision):
            raise TypeError("a matrix-free evidence needs one prior precision for all weights; give a number")
        factored = self.factored()
        values = jnp.maximum(factored.nodes, 0) * jnp.asarray(self.factor, factored.nodes.dtype)
        return jnp.sum(factored.weights * jnp.log(values + jnp.asarray(precision, values.dtype)))

    def preconditioner(self, like: Params) -> Diagonal:
        return Diagonal(self.diagonal(like))

    def is_positive(self, like: Params) -> Array:
        """Returns whether d is positive, since H is positive semi-definite."""
        return Diagonal(self.values).is_positive(like)

    def _outer(self) -> Params:
        return jax.tree.map(jax.lax.rsqrt, self.diagonal(self.values))

    def _within(self, v: Params) -> Params:
        """Returns (C S C) v with C the inverse root of the diagonal."""
        scale = self._outer()
        return jax.tree.map(jnp.multiply, scale, self.matvec(jax.tree.map(jnp.multiply, scale, v)))

    def _quadrature(self, product: Callable[[Params], Params]) -> tuple[Array, Array]:
        steps = min(self.how.steps, tree.dimension(self.values))
        return quadrature(product, self.values, self.how.probes, steps, jax.random.key(0))

    def _one_value(self) -> Array | None:
        """Returns the constant value of d; None where d is not constant or is traced."""
        vector = tree.ravel(self.values)[0]
        if isinstance(vector, Tracer):
            return None
        return vector[0] if bool(jnp.all(vector == vector[0])) else None
