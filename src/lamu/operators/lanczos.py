"""Lanczos's method: a symmetric matrix by its products, as a small tridiagonal one."""

# \[ Q^\top S Q = T, \qquad T = \mathrm{tridiag}(\beta, \alpha, \beta), \qquad q_1 = v / \lVert v \rVert \]
#
# Every new vector is made orthogonal to all before it, twice, so that T is right to rounding. Where the space that v
# reaches is exhausted, a fresh random vector continues: with as many steps as coordinates the decomposition is
# complete, multiple eigenvalues included.

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.typing import Array, Params, RandomKey

__all__ = ["eigenpairs", "lanczos", "quadrature"]

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


def eigenpairs(
    product: Callable[[Params], Params], like: Params, rank: int, steps: int, key: RandomKey
) -> tuple[Array, Array]:
    """Returns the `rank` largest eigenvalues, descending, and their vectors `[rank, D]`."""
    first, others = jax.random.split(key)
    alpha, beta, basis = lanczos(product, tree.normal(first, like), steps, others)
    values, vectors = jnp.linalg.eigh(jnp.diag(alpha) + jnp.diag(beta, 1) + jnp.diag(beta, -1))
    chosen = vectors[:, ::-1][:, :rank]
    return values[::-1][:rank], jnp.matmul(chosen.T, basis, precision=_EXACT)


def quadrature(
    product: Callable[[Params], Params], like: Params, probes: int, steps: int, key: RandomKey
) -> tuple[Array, Array]:
    r"""Returns nodes and weights, `[probes, steps]`, with \(\mathrm{tr} f(S) \approx \sum w f(\mathrm{nodes})\)."""
    # For S + c I the nodes move by c, and no product is taken anew.
    #
    # Source: Ubaru, Chen & Saad (2017).
    vector, unravel = tree.ravel(like)

    def one(key: RandomKey) -> tuple[Array, Array]:
        signs, others = jax.random.split(key)
        z = jax.random.rademacher(signs, vector.shape, vector.dtype)
        alpha, beta, _ = lanczos(product, unravel(z), steps, others)
        nodes, vectors = jnp.linalg.eigh(jnp.diag(alpha) + jnp.diag(beta, 1) + jnp.diag(beta, -1))
        return nodes, vector.size * vectors[0] ** 2 / probes

    return jax.lax.map(one, jax.random.split(key, probes))
