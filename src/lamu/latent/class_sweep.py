"""Rows in the style of others, in every class."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.graphs.expressions import Environment
from lamu.graphs.graph import Graph
from lamu.graphs.joint import Row, dtype_of, in_dtype, shape_of
from lamu.graphs.queries import expected_statistics
from lamu.graphs.statistics import Categories
from lamu.typing import Array, RandomKey

__all__ = ["analogies"]


def analogies(posterior: Any, rows: Any, key: RandomKey, category: str = "c") -> dict[str, Array]:
    r"""Returns the means of rows with their own style in every class, \(E[y \mid c = k, z(y_i)]\).

    \[ z(y_i) = E_q[z \mid y_i] \]

    Latents below the category take their belief's mean at the class of the row, and those between category and data
    their prior's mean at class k: of `StackedSemiSupervised` the style is \(z_2\). θ is at the belief's mean.

    Args:
        posterior: of a `lamu.Graph` with a category in its rows, such as `latent.models.SemiSupervised`.
        rows: data, arrays by name, with the category where it is known.
        key: for locals that draw.
        category: its name.

    Returns:
        By the name of what is observed beside the category, `[N, K, ...]`.

    Raises:
        TypeError: for a model that is no graph.
        ValueError: for a name that is no category of a row.

    Source: Kingma, Rezende, Mohamed & Welling (2014), figure 1.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.SemiSupervised(3, 2, 5, (8,))
        >>> data = {"y": jnp.eye(5), "c": jnp.array([0.0, 1.0, 2.0, 0.0, 1.0])}
        >>> posterior = lamu.fit(graph, data, lamu.algorithms.adam(0.01), steps=3).posterior
        >>> lamu.latent.analogies(posterior, data, jax.random.key(0))["y"].shape
        (5, 3, 5)
    """
    graph = posterior.model
    if not isinstance(graph, Graph):
        raise TypeError(f"a category is swept of a lamu.Graph, and this is the posterior of {graph.name}")
    data = graph.read(rows).y
    of_theta, of_rows = jax.random.split(key)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)
    sites, at = in_dtype(graph.in_rows, dtype_of(statistics)), Environment(dict(statistics))
    names = [site.name for site in sites if site.kind is Categories]
    if category not in names:
        known = ", ".join(names) or "a model with some"
        raise ValueError(f"the rows have no category {category!r}; give one of {known}")
    count = shape_of(next(site for site in sites if site.name == category))[-1]
    natural = graph.row_latents(statistics, data, key=of_rows)

    def one(own: Any, natural: Any, value: Array) -> dict[str, Array]:
        row = Row.of(sites, graph.columns, {n: part for n, part in own.items() if n != category}, 1.0, dtype_of(at))
        row = row.given(category, value)
        for site in row.latent:
            below = category in site.factor.names
            mean = site.factor.predicted(row.environment(at, {}))[0] if below else natural[site.name].belief().mean
            row = row.given(site.name, mean)
        here, seen = row.environment(at, {}), own.keys() - {category}
        return {site.name: site.factor.predicted(here)[0] for site in sites if site.name in seen}

    values = jnp.eye(count, dtype=dtype_of(statistics))
    in_all = jax.vmap(jax.vmap(one, in_axes=(None, None, 0)), in_axes=(0, 0, None))
    return jax.jit(in_all)(data, natural, values)
