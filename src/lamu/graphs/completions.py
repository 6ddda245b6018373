"""What is missing in rows as a mixture over draws of their latents and of what all rows share."""

# \[ p(y_\mathrm{mis} \mid y_\mathrm{obs}) \approx \frac1S \sum_s p(y_\mathrm{mis} \mid z_s, \theta_s), \qquad
#    \theta_s \sim q(\theta), \quad z_s \sim p(z \mid y_\mathrm{obs}, \theta_s) \]

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import memory
from lamu.data.arrays import Arrays
from lamu.data.incomplete import Incomplete
from lamu.dtype_policy import lenient
from lamu.graphs.bernoulli import BernoulliFactor
from lamu.graphs.bernoulli_logits import BernoulliLogitsFactor
from lamu.graphs.categorical import CategoricalFactor
from lamu.graphs.chains import ancestral, chains_of_rows
from lamu.graphs.elimination import eliminated, require_key
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, in_dtype, shape_of
from lamu.graphs.normal import LocatedNormal, NormalFactor
from lamu.graphs.poisson import PoissonFactor
from lamu.graphs.potential import Potential
from lamu.graphs.program import Site
from lamu.graphs.row_blocks import over_blocks
from lamu.graphs.statistics import Categories
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson
from lamu.record import record
from lamu.typing import Array, RandomKey

__all__ = ["DrawnEntries", "completed_by_draws", "law_of", "needs_draws", "new_rows"]

_WARMUP = 50  # sweeps of a chain before its draws are kept


@record
class DrawnEntries:
    """One variable of some rows by draws: what is observed, and the law of what is not, given each draw."""

    value: Any  # `[N, ...]`, some value where an entry is missing
    observed: Any  # whether each entry is there; None where all are, of which the rest is None too
    law: Likelihood | None  # of one entry
    f: Any  # the outputs of the law, `[S, N, entries, outputs]`
    dispersions: Any  # its parameters, leaves `[S, N, entries, ...]`


def needs_draws(graph: Any) -> bool:
    """Whether what is missing in rows has no closed form: latents are drawn, or networks or likelihoods stand below."""
    drawn = any(local.random or not local.has_density for local in (graph.local or {}).values())
    return drawn or bool(graph.networks) or any(isinstance(site.factor, Potential) for site in graph.in_rows)


def completed_by_draws(graph: Any, belief: Any, rows: Arrays, samples: int, key: RandomKey) -> dict[str, DrawnEntries]:
    """Returns every observed variable of rows by name."""
    # Of a point one chain a row makes all draws; of another belief every draw of θ has chains of its own. What the
    # observed entries of a row say of θ is left out: the belief is about θ as the training rows left it.
    of_theta, of_rows = jax.random.split(key)
    theta, graph = _values(graph, belief, samples, of_theta), graph.at_values()
    count = jax.tree.leaves(theta)[0].shape[0] if jax.tree.leaves(theta) else 1
    each = -(-samples // count)
    holes = {name: part for name, part in rows.y.items() if isinstance(part, Incomplete)}
    size = 2 * each * count * sum(memory.bytes_of(part.value) for part in holes.values())
    memory.demand(size, f"{each * count:,} draws of all rows", "ask for fewer samples, or for fewer rows at a time")
    compute = lambda data, first: _chains(graph, theta, data, jax.random.clone(of_rows), first, each, count)
    drawn = over_blocks(compute, rows.y, axis=1) if holes else {}
    told = {}
    for site in graph.in_rows:
        part = rows.y.get(site.name)
        if site.name in holes:
            told[site.name] = DrawnEntries(part.value, part.observed, law_of(site), *drawn[site.name])
        elif part is not None:
            told[site.name] = DrawnEntries(part, None, None, None, None)
    return told


def new_rows(graph: Any, belief: Any, n: int, samples: int, key: RandomKey) -> dict[str, DrawnEntries]:
    """Returns the variables that no other one of a row depends on, of n rows of which nothing is observed, by name."""
    if graph.columns:
        raise TypeError(
            f"a row has the input {graph.columns[0]!r}, which no model draws; give rows by name, with NaN for what is "
            "to be predicted"
        )
    of_theta, of_rows = jax.random.split(key)
    theta, graph = _values(graph, belief, samples, of_theta), graph.at_values()
    count = jax.tree.leaves(theta)[0].shape[0] if jax.tree.leaves(theta) else 1
    needed = frozenset().union(*(site.factor.names for site in graph.in_rows))
    last = tuple(site for site in graph.in_rows if site.name not in needed)
    laws = {site.name: law_of(site) for site in last}

    def of_blocks(rows: Any, first: Array) -> Any:
        return _ancestral(graph, theta, last, jax.random.clone(of_rows), first, len(rows), samples, count)

    one = jax.eval_shape(lambda rows, first: of_blocks(rows, first), jnp.zeros(1), jnp.zeros((), jnp.int32))
    memory.demand(n * memory.bytes_of(one), f"{samples:,} draws of {n:,} rows", "ask for fewer rows at a time")
    drawn = over_blocks(of_blocks, jnp.zeros(n), axis=1)
    told = {}
    for site in last:
        f, dispersions = drawn[site.name]
        shape = (n, *(_shape(site) or (f.shape[2],)))
        told[site.name] = DrawnEntries(
            jnp.zeros(shape, f.dtype), jnp.zeros(shape, bool), laws[site.name], f, dispersions
        )
    return told


def law_of(site: Site) -> Likelihood:
    """Returns the law of one entry of a variable, as a likelihood."""
    factor = site.factor
    if isinstance(factor, Potential):
        return factor.of_entry
    if isinstance(factor, CategoricalFactor):
        return Categorical(shape_of(site)[-1])
    law = _LAWS.get(type(factor))
    if law is None:
        raise TypeError(
            f"{site.name!r} is missing, and a {type(factor).__name__.removesuffix('Factor')} has no law of one entry; "
            "draw it by lamu.latent.generate(posterior, n), or leave it out of the rows"
        )
    return law()


def _values(graph: Any, belief: Any, samples: int, key: RandomKey) -> Any:
    """Returns T of draws of θ, along a leading axis: one of a point."""
    return jax.vmap(graph.values_of)(belief.draws(key, samples))


@partial(jax.jit, static_argnames=("each", "count"))
def _chains(graph: Any, theta: Any, data: Any, key: RandomKey, first: Array, each: int, count: int) -> Any:
    """Returns f and dispersions of every variable with holes, `[S, N, ...]`."""
    names = [name for name, part in data.items() if isinstance(part, Incomplete)]

    def of_theta(i: Array) -> Any:
        statistics = jax.tree.map(lambda leaf: leaf[i], theta)
        at, local = Environment(dict(statistics)), graph.local or {}
        sites = {site.name: site for site in in_dtype(graph.in_rows, dtype_of(statistics))}

        def kept(row: Row, here: Environment, missing: dict[str, Any], values: dict[str, Any]) -> Any:
            told = {name: _entries(sites[name], here) for name in missing}
            labels = [name for name in names if name not in missing]
            if labels:
                natural = eliminated(local, row, at, require_key(local, None))[1]
                for name in labels:
                    told[name] = (jax.nn.log_softmax(natural[name].probabilities)[None], {})
            return told

        return chains_of_rows(graph, statistics, data, jax.random.fold_in(key, i), kept, each, _WARMUP, first)

    drawn = jax.lax.map(of_theta, jnp.arange(count))  # [count, N, each, ...]
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 2, 1).reshape(-1, leaf.shape[1], *leaf.shape[3:]), drawn)


@partial(jax.jit, static_argnames=("rows", "samples", "count"))
def _ancestral(
    graph: Any, theta: Any, last: Any, key: RandomKey, first: Array, rows: int, samples: int, count: int
) -> Any:
    """Returns f and dispersions of variables of new rows, `[S, N, ...]`."""

    def one(s: Array, row: Array) -> Any:
        statistics = jax.tree.map(lambda leaf: leaf[s % count], theta)
        here = ancestral(graph, statistics, jax.random.fold_in(jax.random.fold_in(key, s), row))[1]
        return {site.name: _entries(site, here) for site in in_dtype(last, dtype_of(statistics))}

    return jax.lax.map(
        lambda s: jax.vmap(lambda row: one(s, row))(first + jnp.arange(rows, dtype=first.dtype)), jnp.arange(samples)
    )


def _entries(site: Site, here: Environment) -> tuple[Array, Any]:
    """Returns the outputs of every entry's law, `[entries, outputs]`, and its parameters."""
    factor = site.factor
    if isinstance(factor, Potential):
        return factor.entries(here)
    with lenient():
        mean, variance = factor.predicted(here)
        shape = _shape(site)
        if shape is not None and not isinstance(factor, CategoricalFactor):
            mean, variance = jnp.broadcast_to(mean, shape), jnp.broadcast_to(variance, shape)
    if isinstance(factor, CategoricalFactor):
        return jnp.log(mean).reshape(-1, mean.shape[-1]), {}
    f = jnp.reshape(mean, (-1, 1))
    law = _LAWS.get(type(factor))
    if law is Gaussian:
        return f, {"log_scale": jnp.log(jnp.reshape(variance, (-1, 1))) / 2}
    if law is Bernoulli:
        return jnp.log(f) - jnp.log1p(-f), {}
    return jnp.log(f), {}


def _shape(site: Site) -> tuple[int, ...] | None:
    """Returns the shape of the entries, without the axis of categories."""
    return site.shape[:-1] if site.shape is not None and site.kind is Categories else site.shape


# The laws of one entry, of the factors that may miss some.
_LAWS: dict[Any, Any] = {
    NormalFactor: Gaussian,
    LocatedNormal: Gaussian,
    BernoulliFactor: Bernoulli,
    BernoulliLogitsFactor: Bernoulli,
    PoissonFactor: Poisson,
}
