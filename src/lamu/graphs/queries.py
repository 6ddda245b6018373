"""What a belief about the shared variables of a graph says of rows: latents, density, and what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.dtype_policy import lenient
from lamu.families import Parts, Point, Product
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, in_dtype, value_of
from lamu.graphs.row_blocks import over_blocks
from lamu.graphs.statistics import Categories
from lamu.typing import Array, RandomKey

__all__ = ["completed", "expected_statistics", "local_beliefs", "row_log_prob", "row_log_weights"]


def local_beliefs(graph: Any, belief: Any, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
    """Returns the beliefs about the latents of rows, by name, with a leading axis of rows."""
    natural = _latents(graph, expected_statistics(graph, belief, samples, key), rows.y, key)
    return {name: part.belief() for name, part in natural.items()}


def row_log_prob(graph: Any, belief: Any, batch: Batch, samples: int, key: RandomKey) -> Array:
    r"""Returns \(\log \tfrac1S \sum_s p(\text{row} \mid \theta_s)\) of every row in nats, `[N]`."""
    # Where locals draw latents, the average is one of importance weights, and where they take turns each density is its
    # best bound.
    log_weights = row_log_weights(graph, belief, batch, samples, key)
    return jax.nn.logsumexp(log_weights, axis=0) - jnp.log(float(len(log_weights)))


def row_log_weights(graph: Any, belief: Any, batch: Batch, samples: int, key: RandomKey) -> Array:
    """Returns the logarithms of estimates of the density of every row, `[S, N]` in nats."""
    # One a draw of the shared variables where rows have closed forms; where locals draw latents, S importance weights
    # \(p(y, z_s \mid \theta_s) / q(z_s \mid y)\).
    #
    # Source: Burda, Grosse & Salakhutdinov (2016), equation 8.
    of_theta, of_rows = jax.random.split(key)
    theta = belief.draws(of_theta, samples)
    count = max((leaf.shape[0] for leaf in jax.tree.leaves(theta)), default=1)
    at = lambda i: jax.tree.map(lambda leaf: leaf[i % count], theta)
    values = graph.weighed().at_values()
    draws = max(samples, count) if any(local.random for local in (values.local or {}).values()) else count

    @jax.jit
    def of_block(y: Any, first: Array) -> Array:
        rows, own = replace(batch, y=y), jax.random.clone(of_rows)
        one = lambda i: values.row_bounds(graph.values_of(at(i)), rows, key=jax.random.fold_in(own, i), first=first)
        return jax.lax.map(one, jnp.arange(draws))

    return over_blocks(of_block, batch.y, axis=1)


def expected_statistics(graph: Any, belief: Any, samples: int, key: RandomKey) -> dict[str, Any]:
    """Returns E_q[T] of the shared variables by name: known, or averaged over draws."""
    network = belief.factors["network"] if isinstance(belief, Product) else None
    if isinstance(network, Product):
        dispersions = belief.factors["likelihood"].mean if "likelihood" in belief.factors else {}
        return {**graph.moments(network.factors), **({"likelihood": dispersions} if dispersions else {})}
    if isinstance(belief, Point):
        return graph.values_of(belief.mean)
    values = jax.vmap(graph.values_of)(belief.draws(key, samples))
    averaged = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), values)
    exact = [part for part in network.parts if isinstance(part, Product)] if isinstance(network, Parts) else []
    known = {name: factor for part in exact for name, factor in part.factors.items()}
    return {**averaged, **{s.name: s.kind.under(known[s.name]) for s in graph.shared if s.name in known}}


@jax.jit
def _latents(graph: Any, statistics: Any, y: Any, key: RandomKey) -> dict[str, Any]:
    return graph.row_latents(statistics, y, key=key)


@jax.jit
def completed(graph: Any, statistics: Any, rows: Arrays, key: RandomKey) -> tuple[Any, Any]:
    """Returns means and variances of the rows given what they hold: by name, or the arrays alone where there is one."""
    at, dtype = Environment(statistics), dtype_of(statistics)
    sites = in_dtype(graph.in_rows, dtype)

    natural = graph.row_latents(statistics, rows.y, key=key)

    def one(data: Any, natural: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        row = Row.of(sites, graph.columns, data, 1.0, dtype)
        beliefs = {name: part.belief() for name, part in natural.items()}
        moments: dict[str, Any] = {site.name: site.kind.under(beliefs[site.name]) for site in row.latent}
        means, variances = {}, {}
        for site in sites:
            value, observed = value_of(data, site.name)
            if value is None or isinstance(value, tuple):
                continue
            if observed is None:
                means[site.name], variances[site.name] = value, jnp.zeros(jnp.shape(value), dtype)
            elif site.name in beliefs:
                p = moments[site.name].probabilities
                means[site.name], variances[site.name] = p, p * (1.0 - p)
            else:
                mean, variance = _mixed(site, row, at, moments)
                means[site.name] = jnp.where(observed, value.astype(mean.dtype), mean)
                variances[site.name] = jnp.where(observed, jnp.zeros_like(variance), variance)
        return means, variances

    with lenient():
        means, variances = jax.vmap(one)(rows.y, natural)
    return (*means.values(), *variances.values()) if len(means) == 1 else (means, variances)


def _mixed(site: Any, row: Row, at: Environment, moments: dict[str, Any]) -> tuple[Array, Array]:
    """Returns mean and variance of a site, averaged over the category that it depends on, where it does."""
    shape = site.shape if site.kind is not Categories else None
    spread = lambda part: part if shape is None else jnp.broadcast_to(part, shape)
    category = next((n for n, m in moments.items() if isinstance(m, Categories) and n in site.factor.names), None)
    if category is None:
        mean, variance = site.factor.predicted(row.environment(at, moments))
        return spread(mean), spread(variance)
    p = moments[category].probabilities

    def given(one_hot: Array) -> tuple[Array, Array]:
        mean, variance = site.factor.predicted(row.environment(at, {**moments, category: Categories(one_hot)}))
        return spread(mean), spread(variance)

    means, variances = jax.vmap(given)(jnp.eye(p.shape[-1], dtype=p.dtype))
    mean = jnp.tensordot(p, means, 1)
    return mean, jnp.tensordot(p, variances + means**2, 1) - mean**2
