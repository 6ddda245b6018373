"""Rows far apart, one for each component, at which beliefs about mixtures and series of states start."""

# k-means++: the first row is random, and each further one is sampled by its squared distance from the nearest so far.
# Observations are compared by columns of unit variance, categories by equality; a missing entry is at
# the mean. In half of the starts each time of a series is averaged with its neighbours, since a single symbol does
# not distinguish states that share it: of 32 fits of four hidden Markov models of categories 8 ended eight nats or more
# below the best with single times only, and 4 so.

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.arrays import Incomplete
from lamu.data.batch import Batch
from lamu.graphs.program import GraphSite
from lamu.graphs.statistics import Categories
from lamu.typing import Array, RandomKey

__all__ = ["points", "spread", "with_neighbours"]


def points(sites: Iterable[GraphSite], batch: Batch, axes: int) -> tuple[Array, Array] | None:
    """Returns each point's observations, `[points, columns]`, and its weight; None if there is nothing to compare."""
    # With one of `axes` a point is a row, with two a time of a row.
    shape, columns, seen = None, [], []
    for site in sites:
        value, present = _observed(batch, site)
        if value is None or value.ndim < axes or (shape is not None and value.shape[:axes] != shape):
            continue
        shape = value.shape[:axes]
        if site.kind is Categories:
            count = site.factor.statistics(value).probabilities.shape[-1]
            value, present = jax.nn.one_hot(value.astype(int), count, dtype=batch.weight.dtype), present[..., None]
        flat = value.reshape(-1, value[(0,) * axes].size).astype(batch.weight.dtype)
        columns.append(flat)
        seen.append(jnp.broadcast_to(present, value.shape).reshape(flat.shape))
    if shape is None:
        return None
    x, present = jnp.concatenate(columns, axis=1), jnp.concatenate(seen, axis=1)
    weight = jnp.broadcast_to((batch.mask * batch.weight).reshape(-1, *[1] * (axes - 1)), shape).reshape(-1)
    weight = jnp.where(jnp.any(present, axis=1), weight, 0.0)
    by_entry = jnp.where(present, weight[:, None], 0.0)
    total = jnp.maximum(jnp.sum(by_entry, axis=0), jnp.finfo(x.dtype).tiny)
    x = jnp.where(present, x - jnp.sum(jnp.where(present, by_entry * x, 0.0), axis=0) / total, 0.0)
    variance = jnp.sum(by_entry * x * x, axis=0) / total
    return x * jax.lax.rsqrt(jnp.where(variance > 0, variance, 1.0)), weight


def _observed(batch: Batch, site: GraphSite) -> tuple[Any, Any]:
    """Returns the numbers that a site observes, and which are observed; None for other data, including documents."""
    part = batch.y.get(site.name) if isinstance(batch.y, dict) else None
    value = part.value if isinstance(part, Incomplete) else part
    if value is None or not hasattr(value, "ndim"):
        return None, None
    return value, part.observed if isinstance(part, Incomplete) else jnp.ones((1,) * value.ndim, bool)


def with_neighbours(x: Array, weight: Array, rows: int, share: Array) -> tuple[Array, Array]:
    """Returns the points of times averaged with their neighbours of a share of the weight, and weights."""
    total = jnp.concatenate([x * weight[:, None], weight[:, None]], axis=1).reshape(rows, -1, x.shape[1] + 1)
    padded = jnp.pad(total, ((0, 0), (1, 1), (0, 0)))
    total = (total + share * (padded[:, :-2] + padded[:, 2:])).reshape(len(x), -1)
    return total[:, :-1] / jnp.maximum(total[:, -1:], jnp.finfo(x.dtype).tiny), weight


def spread(key: RandomKey, x: Array, weight: Array, count: int) -> tuple[Array, Array]:
    """Returns the indices of points that are far apart, `[count]`, and for each point the nearest of these."""

    def choose(state: tuple[Array, Array], numbered: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        (least, nearest), (k, noise) = state, numbered
        chance = weight * jnp.where(k == 0, 1.0, least)
        chance = jnp.where(jnp.any(chance > 0), chance, weight)  # all points equal a chosen one
        place = jnp.argmax(jnp.log(chance) + noise)
        distance = jnp.sum((x - x[place][None]) ** 2, axis=1)
        return (jnp.minimum(least, distance), jnp.where(distance < least, k, nearest)), place

    start = (jnp.full(len(x), jnp.inf, x.dtype), jnp.zeros(len(x), int))
    noise = jax.random.gumbel(key, (count, len(x)), x.dtype)
    (_, nearest), places = jax.lax.scan(choose, start, (jnp.arange(count), noise))
    return places, nearest
