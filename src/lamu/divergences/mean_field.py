r"""The mean-field Gaussian next to a correlated one, in the Rényi divergence of any order between zero and one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.operators import Dense, Diagonal, Operator
from lamu.typing import Array, Params

__all__ = ["closest", "mixed"]

ITERATIONS = 500


def closest(target: Gaussian, alpha: float) -> Gaussian:
    r"""Returns the mean-field Gaussian q of least \(D_\alpha(q \,\|\, p)\) for a Gaussian p with precision Λ."""
    # The means agree. The precisions \(\psi_i\) solve \(\psi_i\, (S_\alpha^{-1})_{ii} = 1\) with \(S_\alpha = \alpha\,
    # \mathrm{diag}(\psi) + (1 - \alpha) \Lambda\), here by a fixed point on Schur complements,
    #
    # \[ \psi_i = \Lambda_{ii} - (1 - \alpha)\, \Lambda_{i,-i}\, (S_\alpha)_{-i,-i}^{-1}\, \Lambda_{-i,i} \]
    #
    # whose ends are closed: \(\psi_i = \Lambda_{ii}\) at α = 1, the reverse divergence, and \(\psi_i = 1 /
    # \Sigma_{ii}\) at α = 0, the inclusive one. Between them every variance falls from \(\Sigma_{ii}\) to \(1 /
    # \Lambda_{ii}\).
    matrix = target.precision.dense(target.mean)
    like = target.mean
    unravel = tree.ravel(like)[1]
    if alpha == 1.0:
        return Gaussian(like, Diagonal(unravel(jnp.diagonal(matrix))))

    def improved(_: Any, psi: Array) -> Array:
        inverse = jnp.linalg.inv(alpha * jnp.diag(psi) + (1 - alpha) * matrix)
        return (1 / jnp.diagonal(inverse) - alpha * psi) / (1 - alpha)

    psi = jax.lax.fori_loop(0, ITERATIONS if alpha else 1, improved, jnp.diagonal(matrix))
    return Gaussian(like, Diagonal(unravel(psi)))


def mixed(a: float, one: Operator, b: float, other: Operator, like: Params) -> Operator:
    """Returns a · S + b · S′, in the common structure where it is linear in its leaves, else as a matrix."""
    linear = type(one) is type(other) and hasattr(type(one), "from_diagonal") and not isinstance(one, Dense)
    if linear and jax.tree.structure(one) == jax.tree.structure(other):
        return jax.tree.map(lambda s, t: a * s + b * t, one, other)
    return Dense(a * one.dense(like) + b * other.dense(like))
