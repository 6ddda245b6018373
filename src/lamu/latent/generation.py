"""Rows drawn from a model with latents, and missing entries drawn from rows that lack them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.incomplete import Incomplete
from lamu.dtype_policy import lenient
from lamu.graphs.expressions import Environment
from lamu.graphs.graph import Graph
from lamu.graphs.joint import Row, dtype_of, in_dtype, log_joint, shape_of
from lamu.graphs.learned_prior import LearnedPrior
from lamu.graphs.potential import Potential
from lamu.graphs.program import Site
from lamu.graphs.queries import expected_statistics
from lamu.typing import Array, RandomKey

__all__ = ["generate", "impute", "reconstruct"]


def generate(posterior: Any, n: int, key: RandomKey) -> dict[str, Array]:
    r"""Returns new rows with their latents, drawn one variable after the other in the order of the program.

    \[ z \sim p(z \mid \theta), \qquad y \sim p(y \mid z, \theta) \]

    Each row has a draw of θ of its own from the belief.

    Args:
        posterior: of a `lamu.Graph` whose rows have no inputs.
        n: how many rows.
        key: a random key.

    Returns:
        Draws by the name of every variable of a row, `[n, ...]`; of a category a one-hot vector.

    Raises:
        TypeError: for a model that is no graph, or rows with inputs.
        ValueError: for fewer than one row.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> rows = lamu.latent.generate(posterior, 3, jax.random.key(0))
        >>> rows["y"].shape, rows["z"].shape
        ((3, 5), (3, 2))
    """
    graph = _graph(posterior)
    if n < 1:
        raise ValueError(f"n={n!r} draws nothing; ask for at least one row")
    if graph.columns:
        raise TypeError(f"a row has the input {graph.columns[0]!r}, which no model draws; use predict(rows)")

    @jax.jit
    def one(key: RandomKey) -> dict[str, Array]:
        of_theta, of_row = jax.random.split(key)
        statistics = graph.values_of(posterior.belief.sample(of_theta))
        sites = in_dtype(graph.in_rows, dtype_of(statistics))
        at, values = Environment(dict(statistics)), {}
        for number, site in enumerate(sites):
            values[site.name] = _drawn(site, at, jax.random.fold_in(of_row, number))
            with lenient():
                known = {} if isinstance(site.factor, Potential) else {site.name: site.kind.of(values[site.name])}
            at = Environment({**at.statistics, **known})
        return values

    return jax.lax.map(one, jax.random.split(key, n))


def impute(posterior: Any, rows: Any, key: RandomKey, draws: int = 100, warmup: int = 50) -> dict[str, Array]:
    r"""Returns draws of the missing entries of rows, by turns between latents and holes.

    \[ z^{(s)} \sim q(z \mid y_\mathrm{obs}, y_\mathrm{mis}^{(s-1)}), \qquad
       y_\mathrm{mis}^{(s)} \sim p(y_\mathrm{mis} \mid z^{(s)}) \]

    A Markov chain whose limit is \(p(y_\mathrm{mis} \mid y_\mathrm{obs})\) where q is the exact posterior. It starts
    from \(q(z \mid y_\mathrm{obs})\), with missing entries as zero. θ is at the belief's mean.

    Args:
        posterior: of a `lamu.Graph`.
        rows: data, arrays by name, NaN where missing.
        key: a random key.
        draws: how many sweeps are kept.
        warmup: how many sweeps before.

    Returns:
        By the names of what has missing entries, `[draws, N, ...]`; entries that are there are repeated.

    Raises:
        TypeError: for a model that is no graph.
        ValueError: for rows without a missing entry, or fewer than one draw.

    Source: Rezende, Mohamed & Wierstra (2014), appendix F.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> holes = jnp.eye(5).at[0, 3].set(jnp.nan)
        >>> lamu.latent.impute(posterior, {"y": holes}, jax.random.key(0), draws=4)["y"].shape
        (4, 5, 5)
    """
    graph = _graph(posterior)
    if draws < 1:
        raise ValueError(f"draws={draws!r} keep nothing; ask for at least one")
    data = graph.read(rows).y
    holes = {name: part for name, part in data.items() if isinstance(part, Incomplete)}
    if not holes:
        raise ValueError("the rows have no missing entry; write NaN where an entry is to be drawn, or use generate(n)")
    of_theta, of_chain = jax.random.split(key)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)
    sites = {site.name: site for site in in_dtype(graph.in_rows, dtype_of(statistics))}

    def sweep(data: Any, key: RandomKey) -> dict[str, Array]:
        """Returns the variables with holes, filled anew."""
        of_latents, of_rows = jax.random.split(key)
        natural = graph.row_latents(statistics, data, key=of_latents)
        count = len(next(iter(holes.values())).value)
        keys = jax.vmap(lambda i: jax.random.fold_in(of_rows, i))(jnp.arange(count))

        def one(own: Any, natural: Any, mine: Any, key: RandomKey) -> dict[str, Array]:
            row = Row.of(tuple(sites.values()), graph.columns, own, 1.0, dtype_of(statistics))
            names = [site.name for site in row.latent]
            for number, name in enumerate(names):
                row = row.given(name, natural[name].belief().sample(jax.random.fold_in(key, number)))
            here, filled = row.environment(Environment(dict(statistics)), {}), {}
            for number, (name, part) in enumerate(mine.items()):
                y = _drawn(sites[name], here, jax.random.fold_in(key, len(names) + number))
                filled[name] = jnp.where(part.observed, part.value, y.astype(part.value.dtype))
            return filled

        return jax.vmap(one)(data, natural, holes, keys)

    @jax.jit
    def chain(key: RandomKey) -> dict[str, Array]:
        first, rest = jax.random.split(key)

        def step(filled: dict[str, Array], key: RandomKey) -> tuple[dict[str, Array], dict[str, Array]]:
            filled = sweep({**data, **filled}, key)
            return filled, filled

        keys = jax.random.split(rest, warmup + draws)
        return jax.lax.scan(step, sweep(data, first), keys)[1]

    return jax.tree.map(lambda leaf: leaf[warmup:], chain(of_chain))


def reconstruct(posterior: Any, rows: Any, key: RandomKey) -> dict[str, Array]:
    r"""Returns the means of rows given their own latents, \(E[y \mid E_q z]\), by the name of what is observed.

    Entries that are missing get their means too. θ is at the belief's mean.

    Args:
        posterior: of a `lamu.Graph`.
        rows: data, arrays by name.
        key: for locals that draw.

    Returns:
        Means by name, `[N, ...]`; of a category probabilities.

    Raises:
        TypeError: for a model that is no graph.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.latent.reconstruct(posterior, {"y": jnp.eye(5)[:2]}, jax.random.key(0))["y"].shape
        (2, 5)
    """
    graph, data = _graph(posterior), posterior.model.read(rows).y
    of_theta, of_rows = jax.random.split(key)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)
    sites = in_dtype(graph.in_rows, dtype_of(statistics))

    def one(own: Any, natural: Any) -> dict[str, Array]:
        row = Row.of(sites, graph.columns, own, 1.0, dtype_of(statistics))
        for site in row.latent:
            row = row.given(site.name, natural[site.name].belief().mean)
        here = row.environment(Environment(dict(statistics)), {})
        return {site.name: site.factor.predicted(here)[0] for site in sites if site.name in own}

    natural = graph.row_latents(statistics, data, key=of_rows)
    return jax.jit(jax.vmap(one))(data, natural)


def _graph(posterior: Any) -> Graph:
    if not isinstance(posterior.model, Graph):
        raise TypeError(f"rows are drawn from a lamu.Graph, and this is the posterior of {posterior.model.name}")
    return posterior.model


def _drawn(site: Site, at: Environment, key: RandomKey) -> Array:
    """Returns a draw of a variable of a row, given all that it depends on."""
    if isinstance(site.factor, Potential | LearnedPrior):
        return site.factor.sample(key, at)
    zero = site.kind.zeros(shape_of(site), dtype_of(at.statistics))

    def log_density(x: Any) -> Array:
        return log_joint((site,), Environment({**at.statistics, site.name: x}, at.inputs))

    return jax.grad(log_density)(zero).belief().sample(key)
