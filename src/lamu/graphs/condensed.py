"""Fewer rows with the same sums: where a row's bound is quadratic in what it observes, two moments say all."""

# \[ \sum_i w_i\, b(y_i) = \sum_j w'_j\, b(y'_j) \quad\text{for every quadratic } b, \qquad
#    \sum_j w'_j = \sum_i w_i,\; \sum_j w'_j y'_j = \sum_i w_i y_i,\;
#    \sum_j w'_j y'_j y_j'^\top = \sum_i w_i y_i y_i^\top \]
#
# 2 D rows do, at the mean plus and minus the scaled eigenvectors of the scatter. Gaussian latents with one observed
# vector are such rows: their covariance is that of every row, and their mean linear in y.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from lamu.data.batch import Batch
from lamu.data.incomplete import Incomplete
from lamu.graphs.local import Local
from lamu.graphs.multivariate_normal import MultivariateNormalFactor
from lamu.graphs.network import applications
from lamu.graphs.normal import NormalFactor
from lamu.graphs.program import Site

__all__ = ["condensed"]


def condensed(sites: tuple[Site, ...], local: Mapping[str, Local], batch: Batch) -> Batch | None:
    """Returns fewer rows that stand for all of a batch, or None where the bound of a row is not quadratic."""
    drawn = any(each.random for each in local.values())
    if drawn or not _quadratic(sites, batch):
        return None
    ((name, y),) = batch.y.items()
    rows, D = y.shape
    if rows <= 2 * D:
        return None
    weight = jnp.asarray(batch.mask * batch.weight, y.dtype)
    total = jnp.sum(weight)
    mean = weight @ y / total
    away = (y - mean[None]) * jnp.sqrt(weight)[:, None]
    sizes, directions = jnp.linalg.eigh(away.T @ away)
    steps = directions.T * jnp.sqrt(jnp.maximum(sizes, 0.0) * D / total)[:, None]
    ones = jnp.ones(2 * D, y.dtype)
    same = lambda leaf: jnp.broadcast_to(leaf[:1], (2 * D, *leaf.shape[1:]))
    return Batch(
        x=same(batch.x),
        y={name: jnp.concatenate([mean[None] + steps, mean[None] - steps])},
        mask=ones * (batch.count / (2 * D)),
        weight=ones * (total / batch.count),
    )


def _quadratic(sites: tuple[Site, ...], batch: Batch) -> bool:
    """Whether rows observe one vector without holes, and everything in them is Gaussian with shared precisions."""
    if len(batch.y) != 1 or batch.offset is not None:
        return False
    (name,) = batch.y
    latent = {site.name for site in sites} - {name}
    gaussian = all(isinstance(site.factor, NormalFactor | MultivariateNormalFactor) for site in sites)
    called = any(True for _ in applications(sites))  # a network is linear in nothing
    if name not in {site.name for site in sites} or not gaussian or called:
        return False
    fixed = not any(site.factor.arguments["precision"].names & {name, *latent} for site in sites)
    alone = all(len({site.name, *site.factor.names} & latent) < 2 and name not in site.factor.names for site in sites)
    y: Any = batch.y[name]
    return fixed and alone and not isinstance(y, Incomplete) and y.ndim == 2 and jnp.issubdtype(y.dtype, jnp.floating)
