"""Points at which beliefs start: rows far apart, principal directions, clusters of documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.arrays import Incomplete
from lamu.data.batch import Batch
from lamu.graphs.expressions import Sum, Times, Variable
from lamu.graphs.joint import value_of
from lamu.graphs.program import GraphSite
from lamu.graphs.statistics import Categories
from lamu.graphs.words import WordsFactor
from lamu.typing import Array, Numeric, RandomKey

__all__ = ["around_means", "groups", "points", "scores", "spread", "time_points"]

# k-means++: the first row is random, and each further one is sampled by its squared distance from the nearest so far.
# Observations are compared by columns of unit variance, categories by equality; a missing entry is at
# the mean. In a third of the starts each time of a series is averaged with its neighbours, since a single symbol does
# not distinguish states that share it: of 32 fits of four hidden Markov models of categories 8 ended eight nats or more
# below the best with single times only, and 4 so. In another third times are compared by the log of the mean square of
# those around them, since states may differ in their scale alone: of three such sets 31, 41 and 9 to 21 nats were lost
# by 12, 9 and 6 of twelve seeds without it, and none with it.


_REACH, _LEAST_SQUARE = 5, 1e-6  # times on both sides, and their least mean square, of columns of unit variance


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


def time_points(x: Array, weight: Array, number: Numeric) -> tuple[Array, Array]:
    """Returns the points of the times of series, `[rows T, columns]`, for the start of a number, and their weights."""
    weighted = lambda part: jnp.concatenate([part * weight[..., None], weight[..., None]], axis=2)

    def mean(total: Array) -> Array:
        return total[..., :-1] / jnp.maximum(total[..., -1:], jnp.finfo(x.dtype).tiny)

    def around(part: Array, reach: int) -> Array:
        padded = jnp.pad(part, ((0, 0), (reach, reach), (0, 0)))
        return sum((padded[:, k : k + part.shape[1]] for k in range(1, 2 * reach + 1)), padded[:, : part.shape[1]])

    near = (weighted(x) + around(weighted(x), 1)) / 2.0
    scales = jnp.log(jnp.maximum(mean(around(weighted(x * x), _REACH)), _LEAST_SQUARE))
    points = jnp.stack([mean(weighted(x)), mean(near), scales])[number % 3]
    return points.reshape(-1, points.shape[-1]), weight.reshape(-1)


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


def around_means(x: Array, weight: Array, place: Array, count: int) -> Array:
    """Returns for each point the nearest mean of a partition into places, one iteration of k-means."""
    of_place = jax.nn.one_hot(place, count, dtype=x.dtype) * weight[:, None]
    total = jnp.sum(of_place, axis=0)[:, None]
    means = of_place.T @ x / jnp.where(total > 0, total, 1.0)
    squares = jnp.where(total[:, 0] > 0, jnp.sum(means**2, axis=1), jnp.inf)
    return jnp.argmin(squares - 2.0 * x @ means.T, axis=1)


# After one update from random factors the loadings are small and similar, and a precision per column (ARD) then shrinks
# columns to zero that the data need: later sweeps do not recover them. Of 20 random starts on iris, wine and three
# simulated factors the best lost one, by 13 to 20 nats. From the directions of Jöreskog (1967), section 4,
#
# \[ \psi_d = \Big(1 - \frac{K}{2D}\Big) \Big/ (R^{-1})_{dd}, \qquad
#    \psi^{-1/2} R\, \psi^{-1/2} = U S U^\top, \qquad z_i = S^{-1/2} U^\top \psi^{-1/2} x_i, \]
#
# none was lost; with ψ = 1, principal components, 326 nats on the cells of breast cancer.


_MOST_COLUMNS = 1024  # whose correlations are decomposed in a second; more columns start at random
_RIDGE = 1e-3  # added to correlations: in single precision their inverse has three digits left
_LEAST_NOISE = 5e-3  # ψ of a column that others determine, as bounded in R's factanal
_SPREAD = 1.0  # of log ψ in further starts; on breast cancer one of six found a bound 8 nats above the first's


def scores(key: RandomKey, in_rows: tuple[GraphSite, ...], batch: Batch, number: Numeric) -> tuple[str, Array] | None:
    """Returns the name of a vector that loadings multiply, and its initial values `[rows, K]`; None for other rows."""
    # The first start, number 0, is the same for every key.
    latents = {site.name: site for site in in_rows if site.name not in batch.y and site.shape and len(site.shape) == 1}
    sites_of = {name: [site for site in in_rows if _loaded(site, name)] for name in latents}
    sites_of = {name: sites for name, sites in sites_of.items() if sites}
    if len(sites_of) != 1:  # several would all have the same directions
        return None
    ((name, sites),) = sites_of.items()
    points_and_weight = points(sites, batch, 1)
    if points_and_weight is None or points_and_weight[0].shape[1] > _MOST_COLUMNS:
        return None
    x, weight = points_and_weight
    K, D, shape = latents[name].shape[0], x.shape[1], (x.shape[0], latents[name].shape[0])  # pyright: ignore[reportOptionalSubscript]
    R = (x * weight[:, None]).T @ x / jnp.maximum(jnp.sum(weight), 1.0)
    psi_key, rest_key = jax.random.split(key)
    psi = max(1.0 - K / (2 * D), 0.25) / jnp.diagonal(jnp.linalg.inv(R + _RIDGE * jnp.eye(D, dtype=x.dtype)))
    psi = psi * jnp.exp(jnp.where(number > 0, _SPREAD, 0.0) * jax.random.normal(psi_key, (D,), x.dtype))
    root = jnp.sqrt(jnp.clip(psi, _LEAST_NOISE, 1.0))
    size, U = jnp.linalg.eigh(R / root[:, None] / root)
    size, U = jnp.maximum(size[::-1][:K], _RIDGE), U[:, ::-1][:, :K]
    z = (x / root) @ U / jnp.sqrt(size)
    return name, jnp.concatenate([z, jax.random.normal(rest_key, shape, x.dtype)[:, z.shape[1] :]], axis=1)


def _loaded(site: GraphSite, latent: str) -> bool:
    """Returns whether a vector enters a factor with exact messages only in a product with loadings."""
    return site.factor.exact and any(_in_product(part, latent) for part in site.factor.arguments.values())


def _in_product(expression: Any, latent: str) -> bool:
    if isinstance(expression, Sum):
        return _in_product(expression.left, latent) or _in_product(expression.right, latent)
    if not isinstance(expression, Times):
        return False
    loadings, vector = expression.left, expression.right
    return isinstance(loadings, Variable) and isinstance(vector, Variable) and vector.name == latent


# Topics that start at random merge and split during the sweeps: on two sets of 2,000 documents of twenty topics the
# best of six seeds ended 10,100 and 8,600 nats below the true topics. Here documents are first clustered as if
# each had one topic, from documents far apart (`exemplars`, by Hellinger's distance), and each as if it had ten words,
# so that it may belong to several clusters:
#
# \[ z_{dk} \propto \exp\Big(\frac{\min(n_d, 10)}{n_d} \sum_v c_{dv} \log \beta_{kv}\Big), \qquad
#    \beta_{kv} \propto \sum_d z_{dk} c_{dv} + \frac{s}{K} \sum_d c_{dv} \]
#
# The best of six seeds ended 620 and 550 nats below, and the medians fell from 16,300 and 17,100 to 5,900 and 4,500;
# with twenty words to 8,500 and 7,900.


_WORDS, _UPDATES, _EVEN = 10.0, 10, 0.1  # s, the share that is spread evenly


def groups(key: RandomKey, in_rows: tuple[GraphSite, ...], batch: Batch) -> dict[str, Array]:
    """Returns the initial shares of topics `[rows, K]`, by name, of observed documents."""
    latents = {site.name for site in in_rows if value_of(batch.y, site.name)[0] is None}
    shares: dict[str, Array] = {}
    for number, site in enumerate(in_rows):
        words = value_of(batch.y, site.name)[0]
        if words is None or not isinstance(site.factor, WordsFactor):
            continue
        share, shape = site.factor.share, site.factor.topic.shape
        if not isinstance(share, Variable) or shape is None or not len(shape) == words[0].ndim == 2:
            continue
        if share.name in latents - shares.keys():
            (ids, counts), (K, V) = words, shape
            z = _grouped(jax.random.fold_in(key, number), ids, counts, batch.mask * batch.weight, K, V)
            shares[share.name] = (1.0 - _EVEN) * z + _EVEN / K
    return shares


def _grouped(key: RandomKey, ids: Array, counts: Array, weight: Array, K: int, V: int) -> Array:
    """Returns each document's membership in the clusters, `[rows, K]`."""
    counts = counts.astype(weight.dtype)
    length = jnp.maximum(jnp.sum(counts, axis=1, keepdims=True), 1.0)
    part, weight = counts / length, jnp.where(jnp.any(counts > 0, axis=1), weight, 0.0)
    total = lambda each: jnp.zeros((V, *each.shape[2:]), each.dtype).at[ids].add(each)
    mean = total(weight[:, None] * counts)
    mean = mean / jnp.maximum(jnp.sum(mean), jnp.finfo(mean.dtype).tiny)

    def choose(least: Array, numbered: tuple[Array, Array]) -> tuple[Array, Array]:
        k, noise = numbered
        chance = weight * jnp.where(k == 0, 1.0, least)
        chance = jnp.where(jnp.any(chance > 0), chance, weight)  # all documents are like a chosen one
        place = jnp.argmax(jnp.log(chance) + noise)
        chosen = jnp.zeros(V, part.dtype).at[ids[place]].add(part[place])
        distance = 1.0 - jnp.sum(jnp.sqrt(part * chosen[ids]), axis=1)
        return jnp.minimum(least, jnp.maximum(distance, 0.0)), chosen

    noise = jax.random.gumbel(key, (K, len(ids)), part.dtype)
    _, distant = jax.lax.scan(choose, jnp.ones(len(ids), part.dtype), (jnp.arange(K), noise))

    def grouped(topics: Array) -> Array:
        tiny = jnp.finfo(topics.dtype).tiny  # for unseen words, and without documents
        log = jnp.log(jnp.maximum(topics / jnp.maximum(jnp.sum(topics, axis=0, keepdims=True), tiny), tiny))
        words = jnp.minimum(length, _WORDS) * part
        return jax.nn.softmax(jnp.einsum("dw,dwk->dk", words, log[ids]), axis=1)

    def update(_: Numeric, z: Array) -> Array:
        seen = total((weight[:, None] * counts)[:, :, None] * z[:, None, :])
        return grouped(seen + _EVEN / K * jnp.sum(seen, axis=1, keepdims=True))

    return jax.lax.fori_loop(0, _UPDATES, update, grouped(0.5 * (distant.T + mean[:, None])))
