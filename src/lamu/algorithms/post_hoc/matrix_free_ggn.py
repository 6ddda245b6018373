r"""The Gauss–Newton matrix by matrix-vector products alone: low rank by Lanczos's method, or matrix-free."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.post_hoc.ggn_blocks import batch_curvature, finalize
from lamu.objective import Objective
from lamu.objective.curvature import GaussNewton
from lamu.objective.curvature.over_data import OverData
from lamu.operators import Diagonal, LowRank, LowRankStructure, MatrixFree, MatrixFreeStructure
from lamu.operators.lanczos import eigenpairs
from lamu.typing import Params, RandomKey

__all__ = ["by_products"]


def by_products(
    structure: LowRankStructure | MatrixFreeStructure,
    curvature: Any,
    objective: Objective,
    params: Params,
    batches: list[Any],
    key: RandomKey,
) -> Any:
    """Returns the curvature a row of all batches."""
    if not isinstance(curvature, GaussNewton):
        raise TypeError(
            f"{type(curvature).__name__}() has no products with vectors here; take GaussNewton(), or one of the "
            "structures Dense, Diagonal and KroneckerFactored()"
        )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    whole = OverData(objective, params, stacked)
    if isinstance(structure, LowRankStructure):
        return _low_rank(structure.rank, whole, key)
    theta = params["network"]
    diagonal = _diagonal(objective, params, stacked).values
    return MatrixFree(whole, diagonal, jnp.ones(()), tree.zeros_like(theta), structure).factored()


@partial(jax.jit, static_argnums=0)
def _low_rank(rank: int, whole: OverData, key: RandomKey) -> LowRank:
    theta = whole.params["network"]
    size = tree.dimension(theta)
    rank = min(rank, size)
    unravel = tree.ravel(theta)[1]
    values, vectors = eigenpairs(whole.matvec, theta, rank, min(size, 3 * rank + 20), key)
    root = jnp.sqrt(jnp.maximum(values, 0))[:, None] * vectors
    return LowRank(jax.vmap(unravel)(root), tree.zeros_like(theta))


@jax.jit
def _diagonal(objective: Objective, params: Params, batches: Any) -> Diagonal:
    one = lambda batch: batch_curvature(Diagonal, GaussNewton(), objective, params, batch, jax.random.key(0))[0]
    total = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), jax.lax.map(one, batches))
    return finalize(total, jnp.sum(batches.mask))
