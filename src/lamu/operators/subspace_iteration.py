"""Leading eigenpairs of a positive matrix by subspace iteration, from a few products."""

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

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu import fast_random
from lamu.typing import Array

__all__ = ["COLUMNS_TO_SPARE", "iterated", "leading_eigenpairs", "orthonormal"]

COLUMNS_TO_SPARE = 8  # in addition to those that are kept; Halko et al. (2011) take 5 to 10
_COLD, _WARM = 3, 2  # iterations from random columns, and from those of an earlier matrix
_ONE_THREAD = 9000  # OpenBLAS multiplies matrices of up to about this many numbers with a vector in one thread

# By default accelerators round the operands of float32 products.
_EXACT = jax.lax.Precision.HIGHEST


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
