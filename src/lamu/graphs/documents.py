"""Clusters of similar documents, at which beliefs about topics start."""

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

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu.data.batch import Batch
from lamu.graphs.expressions import Variable
from lamu.graphs.joint import value_of
from lamu.graphs.program import GraphSite
from lamu.graphs.words import WordsFactor
from lamu.typing import Array, Numeric, RandomKey

__all__ = ["groups"]

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
