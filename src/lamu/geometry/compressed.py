r"""A straight step out of the matrices \(U U^\top + D\) of one rank, and back into them."""

from __future__ import annotations

from typing import Any

from lamu.operators import LowRank, LowRankEigen
from lamu.record import record

__all__ = ["Compressed"]


@record
class Compressed:
    r"""The straight step, projected: the nearest \(U U^\top\) of the old rank, with the diagonal of S kept.

    \[ S' = (1 - \rho) S + \rho H, \qquad S \leftarrow U U^\top + D, \qquad \mathrm{diag}\, S = \mathrm{diag}\, S' \]

    where U has the leading eigenvectors of the columns of S′, \([\sqrt{1-\rho}\, U, \sqrt{\rho}\, W]\), times the roots
    of their eigenvalues. D takes up what the other columns held on the diagonal, so it stays positive for ρ ≤ 1.

    Source: Mishkin et al. (2018), algorithm 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry.compressed import Compressed
        >>> from lamu.operators import LowRank
        >>> S = LowRank(jnp.array([[1.0, 0.0]]), jnp.ones(2))
        >>> H = LowRank(jnp.array([[0.0, 2.0]]), jnp.ones(2))
        >>> moved = Compressed().move(S, H, 0.5)
        >>> (moved.root**2).round(2).tolist(), moved.values.round(2).tolist()
        ([[0.0, 2.0]], [1.5, 1.0])
    """

    departure = "projection back to the rank"
    stays_positive = True

    def move(self, precision: Any, target: Any, rate: Any) -> Any:
        """Returns (1 − ρ) S + ρ H, compressed to the rank of S, and factored where S is."""
        moved = LowRank(precision.root, precision.values).toward(target, rate)
        return moved.factored() if isinstance(precision, LowRankEigen) else moved
