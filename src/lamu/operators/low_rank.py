"""Low rank plus diagonal: correlations at a cost linear in the dimension."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base import fast_random
from lamu.base.arguments import require_whole_field
from lamu.operators.diagonal import Diagonal, Scaled, inverse_square_root
from lamu.operators.interface import Operator, is_number
from lamu.record import record, static
from lamu.typing import Array, Number, Params, PyTree

__all__ = [
    "COLUMNS_TO_SPARE",
    "LowRank",
    "LowRankCovariance",
    "LowRankEigen",
    "LowRankStructure",
    "iterated",
    "leading_eigenpairs",
    "orthonormal",
]


@record
class LowRank(Operator):
    r"""The operator \(S = U U^\top + \mathrm{diag}(d)\), with as many columns U as its rank L.

    It is not linear in its leaves: the rank of a sum is the sum of the ranks (`add`), which `toward` compresses to L.
    Solving, sampling and determinants cost \(O(D L^2)\) once and \(O(D L)\) after `factored()`; they need positive d.

    Attributes:
        root: U, leaves `[rank, ...]` like a vector of the space with a leading axis.
        values: d, a vector of the space.

    Source:
        Mishkin, Kunstner, Nielsen, Schmidt and Khan, "SLANG: fast structured covariance approximations for Bayesian
        deep learning with natural gradient", 2018.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import LowRank
        >>> S = LowRank(root=jnp.array([[1.0, 0.0]]), values=jnp.ones(2))
        >>> [round(x, 6) for x in S.solve(jnp.ones(2)).tolist()]
        [0.5, 1.0]
    """

    root: Params
    values: Params

    def __post_init__(self) -> None:
        """Checks that the columns are vectors of the space of d, with the same number in all leaves."""
        if jax.tree.structure(self.root) != jax.tree.structure(self.values):
            raise ValueError("root and values must be trees of one structure; stack the columns in front of every leaf")
        shapes = [(jnp.shape(u), jnp.shape(d)) for u, d in _pairs(self.root, self.values)]
        for u, d in shapes:
            if u[1:] != d or u[:1] != shapes[0][0][:1]:
                raise ValueError(
                    f"a leaf of root has the shape {u} beside values of {d}; it must be (rank, *{d}) for one rank"
                )

    @classmethod
    def from_diagonal(cls, diagonal: Params, rank: int) -> LowRank:
        """Returns diag(diagonal), with `rank` columns of zeros."""
        zeros = jax.tree.map(lambda leaf: jnp.zeros((rank, *leaf.shape), leaf.dtype), diagonal)
        return cls(zeros, diagonal)

    @property
    def rank(self) -> int:
        """The number of columns of U."""
        return jax.tree.leaves(self.root)[0].shape[0]

    def matvec(self, v: Params) -> Params:
        """Returns U (Uᵀ v) + d v."""
        return tree.add(_combine(self.root, _products(self.root, v)), jax.tree.map(jnp.multiply, self.values, v))

    def factored(self) -> LowRankEigen:
        r"""Returns an equal operator with columns rotated by the eigenvectors of \(U^\top D^{-1} U\).

        The eigenvalues are computed from the rotated columns, so that a small one keeps its relative precision beside a
        large one. The sign of an eigenvector is arbitrary; here every column's sum is nonnegative.
        """
        gram = _between(self.root, self.root, jax.tree.map(jnp.reciprocal, self.values))
        basis = jnp.linalg.eigh((gram + gram.T) / 2)[1]
        sums = reduce(jnp.add, [jnp.sum(u, axis=tuple(range(1, u.ndim))) for u in jax.tree.leaves(self.root)])
        signs = jnp.where(sums @ basis < 0, -1.0, 1.0).astype(basis.dtype)
        rotated = _rotate(self.root, basis * signs[None])
        squares = [jnp.sum(u**2 / d[None], axis=tuple(range(1, u.ndim))) for u, d in _pairs(rotated, self.values)]
        return LowRankEigen(rotated, self.values, reduce(jnp.add, squares))

    def diagonal(self, like: Params) -> Params:
        return jax.tree.map(lambda u, d: d + _squares(u), self.root, self.values)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        return self.factored().trace_solve(other, like)

    def scale(self, factor: Number) -> LowRank:
        """Returns factor · S, for a nonnegative factor."""
        return LowRank(_scale_root(self.root, factor), tree.scale(self.values, factor))

    def add(self, other: Operator) -> LowRank:
        """Returns S plus a LowRank, Diagonal or Scalar, exactly: the columns are concatenated and the ranks add."""
        if isinstance(other, LowRank):
            both = jax.tree.map(lambda u, w: jnp.concatenate([u, w]), self.root, other.root)
            return LowRank(both, tree.add(self.values, other.values))
        if other.is_diagonal:
            return LowRank(self.root, tree.add(self.values, other.diagonal(self.values)))
        raise TypeError(
            f"a {type(other).__name__} is not a low rank plus a diagonal; add a LowRank, a Diagonal or a Scalar"
        )

    def spectrum(self) -> Array:
        """Returns the eigenvalues of U Uᵀ, `[rank]`: the nonzero ones of S where d is zero."""
        flat = jax.vmap(lambda u: tree.ravel(u)[0])(self.root)
        return jnp.linalg.eigvalsh(flat @ flat.T)

    def logdet_plus(self, precision: PyTree, like: Params, spectrum: PyTree = None) -> Array:
        """Returns log det(S + Δ): by the eigenvalues where d is zero and Δ one number, else by a factorisation."""
        if spectrum is None or not is_number(precision):
            return super().logdet_plus(precision, like)
        number = jnp.asarray(precision, spectrum.dtype)
        others = tree.dimension(like) - spectrum.shape[0]
        return jnp.sum(jnp.log(spectrum + number)) + others * jnp.log(number)

    def toward(self, other: LowRank | LowRankEigen, rate: Number) -> LowRank:
        r"""Returns \((1 - \rho) S + \rho\,\mathrm{other}\), compressed to the rank of S.

        Args:
            other: of any rank.
            rate: ρ, from zero to one.
        """
        values = tree.add(tree.scale(self.values, 1 - rate), other.values, rate)
        return _compressed([self.root, other.root], [1 - rate, rate], values, self.rank)

    def averaged(self) -> LowRank:
        """Returns the mean of operators stacked along a leading axis of every leaf.

        The mean is exact: the columns are concatenated, so that the mean of n operators has n times the rank.
        """
        count = jax.tree.leaves(self.values)[0].shape[0]
        aside = lambda u: u.reshape(-1, *u.shape[2:]) * jnp.sqrt(jnp.asarray(1 / count, u.dtype))
        mean = lambda d: jnp.mean(d, axis=0)
        return LowRank(jax.tree.map(aside, self.root), jax.tree.map(mean, self.values))

    def is_positive(self, like: Params) -> Array:
        """Returns whether every d is positive and U finite: sufficient, and what solving needs."""
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(self.root)]
        return reduce(jnp.logical_and, finite, Diagonal(self.values).is_positive(like))


@record
class LowRankStructure:
    r"""The structure of low-rank plus diagonal precisions of a given rank.

    Attributes:
        rank: L, the number of columns.

    Raises:
        ValueError: for a rank below one.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import LowRankStructure
        >>> LowRankStructure(3).from_diagonal(jnp.ones(2)).root.shape
        (3, 2)
    """

    rank: int = static()

    by_rows = by_factors = False

    def __post_init__(self) -> None:
        require_whole_field(self, "rank", problem="leaves a diagonal alone, which is vogn()")

    def __str__(self) -> str:
        return f"low-rank ({self.rank}) plus diagonal"

    def numbers_held(self, like: Params) -> int:
        """Returns the number of values in the vectors of Lanczos's method and in the columns.

        Args:
            like: a vector of the space, or its shapes.
        """
        return 4 * self.rank * Diagonal.numbers_held(like)

    def from_diagonal(self, diagonal: Params) -> LowRankEigen:
        """Returns diag(diagonal), with columns of zeros, factored."""
        zero = jnp.zeros(self.rank, jnp.result_type(*jax.tree.leaves(diagonal)))
        return LowRankEigen(LowRank.from_diagonal(diagonal, self.rank).root, diagonal, zero)


@record
class LowRankEigen(Operator):
    r"""The operator \(S = U U^\top + D\) where \(U^\top D^{-1} U = \mathrm{diag}(\lambda)\).

    Not linear in its leaves. `LowRank.factored()` makes it.

    Attributes:
        root: U, leaves `[rank, ...]`.
        values: d, the diagonal of D, a vector of the space.
        eigenvalues: λ, shape `[rank]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import LowRank
        >>> LowRank(jnp.array([[2.0, 0.0]]), jnp.ones(2)).factored().eigenvalues.tolist()
        [4.0]
    """

    root: Params
    values: Params
    eigenvalues: Array

    def matvec(self, v: Params) -> Params:
        return LowRank(self.root, self.values).matvec(v)

    def factored(self) -> LowRankEigen:
        return self

    def solve(self, v: Params) -> Params:
        r"""Returns \(S^{-1} v = D^{-1} v - D^{-1} U (1 + \Lambda)^{-1} U^\top D^{-1} v\)."""
        scaled = jax.tree.map(jnp.divide, v, self.values)
        correction = _combine(self.root, _products(self.root, scaled) / (1 + self.eigenvalues))
        return jax.tree.map(lambda x, c, d: x - c / d, scaled, correction, self.values)

    def inverse_root(self, z: Params) -> Params:
        r"""Returns \(R z\) with \(R = D^{-1/2} (I + W W^\top)^{-1/2}\) for \(W = D^{-1/2} U\).

        It is \(I - W\, \mathrm{diag}(1 / (s (1 + s)))\, W^\top\) with \(s = \sqrt{1 + \lambda}\), for a λ of zero too.
        """
        scaled = jax.tree.map(lambda leaf, d: leaf * inverse_square_root(d), z, self.values)
        s = jnp.sqrt(1 + self.eigenvalues)
        correction = _combine(self.root, _products(self.root, scaled) / (s * (1 + s)))
        return jax.tree.map(lambda x, c, d: x - c / d, scaled, correction, self.values)

    def logdet(self, like: Params) -> Array:
        """Returns the sum of log d plus the sum of log(1 + λ)."""
        return Diagonal(self.values).logdet(self.values) + jnp.sum(jnp.log1p(self.eigenvalues))

    def diagonal(self, like: Params) -> Params:
        return LowRank(self.root, self.values).diagonal(like)

    def variance(self, like: Params) -> Params:
        """Returns the diagonal of S⁻¹.

        The difference loses digits where a column is much larger than d, so that it is bounded below by the inverse of
        the diagonal of S.
        """

        def leaf(u: Array, d: Array) -> Array:
            weights = (1 / (1 + self.eigenvalues)).astype(u.dtype)
            removed = jnp.tensordot(weights, (u / d[None]) ** 2, axes=1, precision=_EXACT)
            return jnp.maximum(1 / d - removed, 1 / (d + _squares(u)))

        return jax.tree.map(leaf, self.root, self.values)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other), by one product with the other per column."""
        columns = jax.tree.map(lambda u, d: u / d[None], self.root, self.values)
        forms = jax.vmap(lambda u: tree.dot(u, other.matvec(u)))(columns)
        inverse = jax.tree.map(jnp.reciprocal, self.values)
        return tree.dot(inverse, other.diagonal(like)) - jnp.sum(forms / (1 + self.eigenvalues))

    def scale(self, factor: Number) -> Scaled:
        """Returns factor · S, for a positive factor, without a copy of U."""
        return Scaled.of(self, factor)

    def is_positive(self, like: Params) -> Array:
        """Returns whether every d is positive and U finite."""
        return jnp.all(self.eigenvalues >= 0) & LowRank(self.root, self.values).is_positive(like)


# By default accelerators round the operands of float32 products.
_EXACT = jax.lax.Precision.HIGHEST
# The most columns that are rotated in one loop with unrolled sums; compile time grows with their square.
_WRITTEN_OUT = 24


def _products(root: Params, v: Params) -> Array:
    """Returns Uᵀ v, shape `[rank]`."""
    return reduce(jnp.add, [jnp.tensordot(u, x, axes=x.ndim, precision=_EXACT) for u, x in _pairs(root, v)])


def _combine(root: Params, coefficients: Array) -> Params:
    """Returns U c, a vector of the space."""
    return jax.tree.map(lambda u: jnp.tensordot(coefficients.astype(u.dtype), u, axes=1, precision=_EXACT), root)


def _between(left: Params, other: Params, weights: Params | None = None) -> Array:
    """Returns Uᵀ diag(w) V, a column at a time, since CPUs are slow at products of such thin matrices."""
    # Shape `[rank, rank]`.
    if jax.tree.leaves(other)[0].shape[0] > _WRITTEN_OUT:
        other = other if weights is None else jax.tree.map(lambda v, w: v * w[None], other, weights)
        pairs = [(u.reshape(u.shape[0], -1), v.reshape(v.shape[0], -1)) for u, v in _pairs(left, other)]
        return reduce(jnp.add, [jnp.matmul(u, v.T, precision=_EXACT) for u, v in pairs])
    columns = []
    for k in range(jax.tree.leaves(other)[0].shape[0]):
        column = jax.tree.map(lambda v: v[k], other)  # noqa: B023  (used at once)
        column = column if weights is None else jax.tree.map(jnp.multiply, column, weights)
        columns.append(_products(left, column))
    return jnp.stack(columns, axis=1)


def _squares(u: Array) -> Array:
    """Returns the sum of the columns' squares, coordinate by coordinate."""
    # Term by term: CPUs take a hundred times longer for a reduction over the outermost axis.
    return reduce(jnp.add, [u[k] * u[k] for k in range(u.shape[0])], jnp.zeros_like(u, shape=u.shape[1:]))


def _compressed(groups: list[Params], weights: list[Number], values: Params, rank: int) -> LowRank:
    """Returns the leading directions of the weighted sum of U Uᵀ; the remainder is added to the diagonal."""
    sizes = [jax.tree.leaves(group)[0].shape[0] for group in groups]
    blocks = {(i, j): _between(groups[i], groups[j]) for i in range(len(groups)) for j in range(i + 1)}
    indices = range(len(groups))
    gram = jnp.block([[blocks[i, j] if j <= i else blocks[j, i].T for j in indices] for i in indices])
    roots = [jnp.full(size, jnp.sqrt(jnp.asarray(w, gram.dtype))) for size, w in zip(sizes, weights, strict=True)]
    factors = jnp.concatenate(roots)
    gram = gram * factors[:, None] * factors[None, :]
    basis = factors[:, None] * jnp.linalg.eigh((gram + gram.T) / 2)[1]  # eigenvalues ascend
    dropped, starts = sum(sizes) - rank, [sum(sizes[:i]) for i in range(len(sizes))]

    def column(parts: tuple[Array, ...], index: int) -> Array:
        """Returns one of the rotated columns of a leaf, as a sum of products that XLA fuses into one loop."""
        terms = [
            part[k] * basis[start + k, index].astype(part.dtype)
            for part, start in zip(parts, starts, strict=True)
            for k in range(part.shape[0])
        ]
        return reduce(jnp.add, terms)

    def rotated(parts: tuple[Array, ...], by: Array) -> Array:
        """Returns the rotated columns for some rows of the transposed basis, or for one row."""
        shares = zip(parts, jnp.split(by, starts[1:], axis=-1), strict=True)
        return reduce(jnp.add, [jnp.tensordot(b.astype(u.dtype), u, axes=1, precision=_EXACT) for u, b in shares])

    def kept(*parts: Array) -> Array:
        if sum(sizes) > _WRITTEN_OUT:
            return rotated(parts, basis.T[dropped:])
        columns = [column(parts, index) for index in range(dropped, sum(sizes))]
        return jnp.stack(columns) if columns else parts[0][:0]

    def held(d: Array, *parts: Array) -> Array:
        if sum(sizes) > _WRITTEN_OUT:
            return jax.lax.scan(lambda d, by: (d + rotated(parts, by) ** 2, None), d, basis.T[:dropped])[0]
        return reduce(jnp.add, [column(parts, index) ** 2 for index in range(dropped)], d)

    # optimization_barrier: otherwise XLA recomputes the rotated columns at every use.
    columns, values = jax.lax.optimization_barrier((jax.tree.map(kept, *groups), jax.tree.map(held, values, *groups)))
    return LowRank(columns, values)


def _rotate(root: Params, basis: Array) -> Params:
    """Returns U Q for an orthogonal Q, which does not change U Uᵀ."""
    return jax.tree.map(lambda u: jnp.tensordot(basis.T.astype(u.dtype), u, axes=1, precision=_EXACT), root)


def _scale_root(root: Params, factor: Number) -> Params:
    return jax.tree.map(lambda u: u * jnp.sqrt(jnp.asarray(factor, u.dtype)), root)


def _pairs(a: Params, b: Params) -> list[tuple[Array, Array]]:
    return list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@record
class LowRankCovariance(Operator):
    r"""The operator \(S = C^{-1}\) for a covariance \(C = U U^\top + \mathrm{diag}(d)\).

    `LowRank` is a precision of this form. Here the covariance has the form, and the precision does not: by Woodbury's
    identity its low-rank term is subtracted. Solving is a product with C, \(O(D L)\); products with S, determinants
    and draws cost \(O(D L^2)\) once and \(O(D L)\) after `factored()`.

    Attributes:
        covariance: C, a `LowRank` with positive d; `factored()` also stores its eigenvalues.

    Source: Maddox, Garipov, Izmailov, Vetrov & Wilson (2019), equation 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import LowRank, LowRankCovariance
        >>> S = LowRankCovariance(LowRank(root=jnp.array([[1.0, 0.0]]), values=jnp.ones(2)))
        >>> S.variance(jnp.ones(2)).tolist(), [round(x, 6) for x in S.matvec(jnp.ones(2)).tolist()]
        ([2.0, 1.0], [0.5, 1.0])
    """

    covariance: LowRank | LowRankEigen

    def matvec(self, v: Params) -> Params:
        """Returns S v, by Woodbury's identity."""
        return self.covariance.solve(v)

    def solve(self, v: Params) -> Params:
        """Returns S⁻¹ v, a product with the covariance."""
        return self.covariance.matvec(v)

    def inverse_root(self, z: Params) -> Params:
        r"""Returns R z with R Rᵀ = C, \(R = D^{1/2} (I + W W^\top)^{1/2}\) for \(W = D^{-1/2} U\).

        It is \(C\) times the root of \(C^{-1}\) of `LowRank`: \(C\, D^{-1/2} (I + W W^\top)^{-1/2}\).
        """
        factored = self.covariance.factored()
        return factored.matvec(factored.inverse_root(z))

    def factored(self) -> LowRankCovariance:
        """Returns an equal operator whose covariance has its eigenvalues."""
        return LowRankCovariance(self.covariance.factored())

    def logdet(self, like: Params) -> Array:
        """Returns log det S = −log det C."""
        return -self.covariance.logdet(like)

    def diagonal(self, like: Params) -> Params:
        return self.covariance.variance(like)

    def variance(self, like: Params) -> Params:
        return self.covariance.diagonal(like)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(C other), by one product with the other per column."""
        forms = jax.vmap(lambda u: tree.dot(u, other.matvec(u)))(self.covariance.root)
        return tree.dot(self.covariance.values, other.diagonal(like)) + jnp.sum(forms)

    def scale(self, factor: Number) -> Scaled:
        return Scaled.of(self, factor)

    def is_positive(self, like: Params) -> Array:
        """Returns whether every d is positive and U finite."""
        return self.covariance.is_positive(like)


# \[ V \leftarrow \mathrm{orth}\big((A + \tau I)\, V\big) \quad \text{a few times}, \qquad
#    V^\top A V = R\, \Theta\, R^\top, \qquad A \approx (V R)\, \Theta\, (V R)^\top \]
#
# With w columns the pair of eigenvalue \(\theta_k\) converges by the factor \(\theta_{w+1} / \theta_k\) an iteration.
# From columns near the leading eigenvectors, such as those of an earlier matrix, one or two iterations suffice. The
# shift τ is of the order of rounding errors, and keeps the columns independent where the rank of A is below their
# number. LAPACK's factorisation is used for small matrices only: for larger ones its threads wait for each other in a
# busy loop, which on a shared machine takes hundreds of times the time of the factorisation.
#
# Source: Rutishauser (1970); Halko, Martinsson & Tropp (2011), algorithm 4.4. Twice is enough: Giraud et al. (2005).


COLUMNS_TO_SPARE = 8  # in addition to those that are kept; Halko et al. (2011) take 5 to 10
_COLD, _WARM = 3, 2  # iterations from random columns, and from those of an earlier matrix
_ONE_THREAD = 9000  # OpenBLAS multiplies matrices of up to about this many numbers with a vector in one thread

# By default accelerators round the operands of float32 products.


def orthonormal(columns: Array) -> Array:
    """Returns orthonormal columns that span the same spaces in order; for large matrices by two Gram–Schmidt passes."""
    if columns.size <= _ONE_THREAD:
        return jnp.linalg.qr(columns)[0]
    rows = columns.T
    # A column of zeros remains zero.
    least = jnp.finfo(columns.dtype).tiny

    def add(index: Array, basis: Array) -> Array:
        v = rows[index]
        for _ in range(2):
            v = v - jnp.matmul(jnp.matmul(basis, v, precision=_EXACT), basis, precision=_EXACT)
            v = v * jax.lax.rsqrt(jnp.maximum(jnp.matmul(v, v, precision=_EXACT), least))
        return basis.at[index].set(v)

    return jax.lax.fori_loop(0, rows.shape[0], add, jnp.zeros_like(rows)).T


def iterated(matrix: Array, start: Array, iterations: int) -> tuple[Array, Array]:
    """Returns Ritz values, ascending, and their vectors in the columns, from independent columns `[n, w]`."""
    n = matrix.shape[0]
    mean = jnp.trace(matrix) / n
    # For A = 0 the scale is zero and the columns stay unchanged.
    scale = jnp.where(mean > 0, 1 / jnp.where(mean > 0, mean, 1), 0)
    shift = jnp.finfo(matrix.dtype).eps

    def product(_: Array, space: Array) -> Array:
        moved = jnp.matmul(matrix, space, precision=_EXACT) * scale.astype(matrix.dtype)
        return orthonormal(moved + shift * space)

    space = jax.lax.fori_loop(0, iterations, product, orthonormal(start))
    small = jnp.matmul(space.T, jnp.matmul(matrix, space, precision=_EXACT), precision=_EXACT)
    values, rotation = jnp.linalg.eigh((small + small.T) / 2)
    return values, jnp.matmul(space, rotation, precision=_EXACT)


def leading_eigenpairs(matrix: Array, rank: int, near: Array | None = None) -> tuple[Array, Array]:
    """Returns the leading eigenvalues of a positive matrix, ascending, and eigenvectors in the columns."""
    # They are exact where the matrix is hardly wider than the rank. The iteration starts from `near`, orthonormal
    # columns `[n, rank]` such as the eigenvectors of an earlier A, and from a few random columns, for directions that
    # have grown.
    n = matrix.shape[0]
    rank = min(rank, n)
    if n <= rank + COLUMNS_TO_SPARE:
        values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
        return jnp.maximum(values[n - rank :], 0), vectors[:, n - rank :]
    key = jax.random.key(0)
    random = COLUMNS_TO_SPARE if near is not None else rank + COLUMNS_TO_SPARE
    start = fast_random.normal(key, (n, random), matrix.dtype)
    start = start if near is None else jnp.concatenate([near, start], axis=1)
    values, vectors = iterated(matrix, start, _COLD if near is None else _WARM)
    return jnp.maximum(values[-rank:], 0), vectors[:, -rank:]
