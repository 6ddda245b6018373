"""Generation of rows from a latent-variable model, and imputation of missing entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.base.arguments import whole, whole_number
from lamu.base.compile_once import row_keys
from lamu.data.arrays import Incomplete
from lamu.graphs.chains import ancestral, chains_of_rows, drawn_site
from lamu.graphs.expressions import Environment
from lamu.graphs.graph import Graph
from lamu.graphs.joint import Row, dtype_of, in_dtype, shape_of
from lamu.graphs.program import LearnedPrior
from lamu.graphs.queries import expected_statistics, with_absent_missing
from lamu.graphs.reading import over_blocks
from lamu.graphs.statistics import Categories
from lamu.latent.row_proposals import graph_of
from lamu.typing import Array, Belief, Data, RandomKey, Statistics

__all__ = ["analogies", "generate", "impute", "reconstruct"]


def analogies(posterior: Any, rows: Any, key: RandomKey, category: str = "c") -> dict[str, Array]:
    r"""Returns the means of rows with their own style in every class, \(E[y \mid c = k, z(y_i)]\).

    \[ z(y_i) = E_q[z \mid y_i] \]

    Latents below the category are at their belief's mean for the row's class, and those between category and data
    at their prior's mean for class k: in `StackedSemiSupervised` the style is \(z_2\). θ is at the belief's mean.

    Args:
        posterior: posterior of a `lamu.Graph` with a category in its rows, such as `latent.models.SemiSupervised`.
        rows: data, arrays by name, with the category if known.
        key: for locals that sample.
        category: name of the category.

    Returns:
        Means by the names of the other observed variables, `[N, K, ...]`.

    Raises:
        TypeError: for a model that is not a graph.
        ValueError: for a name that is not a category of a row.

    Source: Kingma, Rezende, Mohamed & Welling (2014), figure 1.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.SemiSupervised(3, 2, 5, (8,))
        >>> data = {"y": jnp.eye(5), "c": jnp.array([0.0, 1.0, 2.0, 0.0, 1.0])}
        >>> posterior = lamu.fit(graph, data, lamu.algorithms.adam(0.01), steps=3).posterior
        >>> lamu.latent.analogies(posterior, data, jax.random.key(0))["y"].shape
        (5, 3, 5)
    """
    graph = graph_of(posterior)
    data = graph.read(rows).y
    of_theta, of_rows = jax.random.split(key)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)
    names = [site.name for site in graph.in_rows if site.kind is Categories]
    if category not in names:
        categories = ", ".join(names) or "a model with some"
        raise ValueError(f"the rows have no category {category!r}; give one of {categories}")
    of_block = lambda y, first: _analogies(graph, statistics, y, jax.random.clone(of_rows), first, category)
    return over_blocks(of_block, data)


@partial(jax.jit, static_argnames="category")
def _analogies(
    graph: Graph, statistics: Statistics, data: Data, key: RandomKey, first: Array, category: str
) -> dict[str, Array]:
    """Returns the means of a block of rows in every class."""
    sites, environment = in_dtype(graph.in_rows, dtype_of(statistics)), Environment(dict(statistics))
    count = shape_of(next(site for site in sites if site.name == category))[-1]
    natural = graph.row_latents(statistics, data, key=key, first=first)

    def means(own: Any, natural: Any, value: Array) -> dict[str, Array]:
        row = Row.of(
            sites, graph.columns, {n: part for n, part in own.items() if n != category}, 1.0, dtype_of(environment)
        )
        row = row.given(category, value)
        for site in row.latent:
            below = category in site.factor.names
            mean = (
                site.factor.predicted(row.environment(environment, {}))[0]
                if below
                else natural[site.name].belief().mean
            )
            row = row.given(site.name, mean)
        row_environment, observed = row.environment(environment, {}), own.keys() - {category}
        return {site.name: site.factor.predicted(row_environment)[0] for site in sites if site.name in observed}

    values = jnp.eye(count, dtype=dtype_of(statistics))
    in_all = jax.vmap(jax.vmap(means, in_axes=(None, None, 0)), in_axes=(0, 0, None))
    return in_all(data, natural, values)


_DRAWS = 100  # samples for a mean without a closed form, whose error is then a tenth of a deviation


def generate(posterior: Any, n: int, key: RandomKey) -> dict[str, Array]:
    r"""Returns new rows with their latents, sampled one variable after the other in program order.

    \[ z \sim p(z \mid \theta), \qquad y \sim p(y \mid z, \theta) \]

    Each row has its own sample of θ from the belief.

    Args:
        posterior: posterior of a `lamu.Graph` whose rows have no inputs.
        n: number of rows.
        key: a random key.

    Returns:
        Samples by the name of every variable of a row, `[n, ...]`; for a category a one-hot vector.

    Raises:
        TypeError: for a number that is not an integer, a model that is not a graph, rows with inputs, or documents.
        ValueError: for fewer than one row.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> rows = lamu.latent.generate(posterior, 3, jax.random.key(0))
        >>> rows["y"].shape, rows["z"].shape
        ((3, 5), (3, 2))
    """
    graph = graph_of(posterior)
    if whole(n) is None:
        raise TypeError(f"n={n!r} is not a number of rows; call generate(posterior, n, key)")
    n = whole_number("n", n)
    if graph.columns:
        raise TypeError(f"a row has the input {graph.columns[0]!r}, which no model draws; use predict(rows)")
    words = [site.name for site in graph.in_rows if site.factor.is_of_words]
    if words:
        raise TypeError(
            f"how many {words[0]} a document has is not a part of the model; draw words by predict({n}).sample(key, m)"
        )

    generate_block = lambda rows, first: _generated(graph, posterior.belief, jax.random.clone(key), len(rows), first)
    return over_blocks(generate_block, np.zeros(n))


@partial(jax.jit, static_argnames="count")
def _generated(graph: Graph, belief: Belief, key: RandomKey, count: int, first: Array) -> dict[str, Array]:
    """Returns rows starting at a number, each sampled by its number."""

    def generate_row(key: RandomKey) -> dict[str, Array]:
        of_theta, of_row = jax.random.split(key)
        return ancestral(graph, graph.values_of(belief.sample(of_theta)), of_row)[0]

    return jax.lax.map(generate_row, row_keys(key, count, first))


def impute(posterior: Any, rows: Any, key: RandomKey, draws: int = 100, warmup: int = 50) -> dict[str, Array]:
    r"""Returns samples of the missing entries of rows, by Gibbs sampling of latents and missing entries.

    \[ z' \sim q(z \mid y_\mathrm{obs}, y_\mathrm{mis}), \qquad
       \alpha = \min\Big(1, \frac{p(y, z')\, q(z \mid y)}{p(y, z)\, q(z' \mid y)}\Big), \qquad
       z \leftarrow \text{a trajectory of } p(z \mid y_\mathrm{obs}), \qquad
       y_\mathrm{mis} \sim p(y_\mathrm{mis} \mid z) \]

    A Markov chain a row, whose limit is \(p(y_\mathrm{mis} \mid y_\mathrm{obs})\): latents are proposed by the beliefs
    of their locals (encoders, flows, classifiers) and accepted with probability α. If much is missing, α is nearly
    zero; real-valued latents then follow a Hamiltonian trajectory with the missing entries marginalised, of five
    gradients of the decoder, with a step size from each row's warm-up. It starts from \(q(z \mid y_\mathrm{obs})\),
    with missing entries as zero. A missing label is the chain's sampled category. `Delta` codes have no density, and
    are not corrected. θ is at the belief's mean.

    The samples of all rows take `draws` times the memory of the rows; the chains run some rows at a time within
    `lamu.memory.budget()`, with the same samples.

    Args:
        posterior: posterior of a `lamu.Graph`.
        rows: data, arrays by name, NaN where missing.
        key: a random key.
        draws: number of sweeps that are kept.
        warmup: number of sweeps before.

    Returns:
        Samples by the names of variables with missing entries, `[draws, N, ...]`; observed entries are repeated.

    Raises:
        TypeError: for a model that is not a graph.
        ValueError: for rows without a missing entry, fewer than one sample, or more than fit in memory.

    Source: Mattei & Frellsen (2018), algorithm 1; Rezende, Mohamed & Wierstra (2014), appendix F, without α; Neal
        (2011) for trajectories.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> holes = jnp.eye(5).at[0, 3].set(jnp.nan)
        >>> lamu.latent.impute(posterior, {"y": holes}, jax.random.key(0), draws=4)["y"].shape
        (4, 5, 5)
    """
    graph = graph_of(posterior)
    draws = whole_number("draws", draws)
    of_theta, of_chain = jax.random.split(key)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)
    data = with_absent_missing(graph, statistics, graph.rows(rows)).y
    holes = {name: part for name, part in data.items() if isinstance(part, Incomplete)}
    if not holes:
        raise ValueError("the rows have no missing entry; write NaN where an entry is to be drawn, or use generate(n)")

    size = draws * sum(memory.bytes_of(part.value) for part in holes.values())
    memory.demand(size, f"{draws:,} draws of all rows", "ask for fewer draws, or for some of the rows at a time")
    chain = lambda data, first: _imputed(graph, statistics, data, jax.random.clone(of_chain), first, draws, warmup)
    return over_blocks(chain, data, axis=1)


@partial(jax.jit, static_argnames=("draws", "warmup"))
def _imputed(
    graph: Graph, statistics: Statistics, data: Data, key: RandomKey, first: Array, draws: int, warmup: int
) -> dict[str, Array]:
    """Returns samples of the missing entries of a block of rows, `[draws, rows, ...]`."""
    holes = {name: part for name, part in data.items() if isinstance(part, Incomplete)}

    def kept(row: Row, here: Environment, missing: Any, values: Any, *_: Any) -> dict[str, Array]:
        """Returns the variables with missing entries; a label with dependents is a latent of the row."""
        labels = [name for name in holes if name not in missing]
        own = {name: jnp.argmax(values[name], axis=-1).astype(holes[name].value.dtype) for name in labels}
        return {**missing, **own}

    samples = chains_of_rows(graph, statistics, data, key, kept, draws, warmup, first)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), samples)


def reconstruct(posterior: Any, rows: Any, key: RandomKey) -> dict[str, Array]:
    r"""Returns the means of rows given their own latents, \(E[y \mid E_q z]\), by the names of observed variables.

    Missing entries get their means too. θ is at the belief's mean. Entries that depend on each other
    (`latent.models.DARN`) have the average of 100 samples.

    Args:
        posterior: posterior of a `lamu.Graph`.
        rows: data, arrays by name.
        key: for locals that sample, and means without a closed form.

    Returns:
        Means by name, `[N, ...]`; for a category probabilities.

    Raises:
        TypeError: for a model that is not a graph.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.latent.reconstruct(posterior, {"y": jnp.eye(5)[:2]}, jax.random.key(0))["y"].shape
        (2, 5)
    """
    graph, data = graph_of(posterior), posterior.model.read(rows).y
    of_theta, of_rows, of_means = jax.random.split(key, 3)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)
    of_block = lambda y, first: _reconstructed(
        graph, statistics, y, jax.random.clone(of_rows), jax.random.clone(of_means), first
    )
    return over_blocks(of_block, data)


@jax.jit
def _reconstructed(
    graph: Graph, statistics: Statistics, data: Data, of_rows: RandomKey, of_means: RandomKey, first: Array
) -> dict[str, Array]:
    """Returns the means of a block of rows."""
    sites = in_dtype(graph.in_rows, dtype_of(statistics))

    def means(own: Any, natural: Any, key: RandomKey) -> dict[str, Array]:
        row = Row.of(sites, graph.columns, own, 1.0, dtype_of(statistics))
        for site in row.latent:
            row = row.given(site.name, natural[site.name].belief().mean)
        environment = row.environment(Environment(dict(statistics)), {})
        observed = [site for site in sites if site.name in own]
        return {site.name: _mean(site, environment, jax.random.fold_in(key, n)) for n, site in enumerate(observed)}

    natural = graph.row_latents(statistics, data, key=of_rows, first=first)
    return jax.vmap(means)(data, natural, row_keys(of_means, len(jax.tree.leaves(data)[0]), first))


def _mean(site: Any, environment: Environment, key: RandomKey) -> Array:
    """Returns the mean of a variable given its arguments; by samples if only a joint density is known."""
    if not isinstance(site.factor, LearnedPrior):
        return site.factor.predicted(environment)[0]
    draws = jax.vmap(lambda i: drawn_site(site, environment, jax.random.fold_in(key, i)))(jnp.arange(_DRAWS))
    return jnp.mean(draws, axis=0)
