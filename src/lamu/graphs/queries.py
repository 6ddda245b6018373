"""Queries of a belief about a graph's shared variables: a row's latents, density and missing entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.base.arguments import whole_number
from lamu.base.compile_once import compiled_lightly, compiled_once, lenient, row_keys
from lamu.convergence import sound_average
from lamu.data.arrays import Arrays, Incomplete
from lamu.data.batch import Batch
from lamu.families import Draws, Ensemble, Mixture, Parts, Point, Product
from lamu.families.interface import finite_draws
from lamu.families.products import factor_of
from lamu.graphs.chains import ancestral, chains_of_rows, with_values
from lamu.graphs.circuit import CircuitFactor
from lamu.graphs.elimination import averaged_over_combinations, first_local, marginalise, require_key
from lamu.graphs.expressions import Environment
from lamu.graphs.factor import averaged, one_hot
from lamu.graphs.joint import Row, dtype_of, in_dtype, names_above, shape_of, value_of
from lamu.graphs.network import first_weights
from lamu.graphs.normal_factors import (
    LocatedMultivariateNormal,
    LocatedNormal,
    MultivariateNormalFactor,
    NormalFactor,
    OfVectors,
)
from lamu.graphs.positive_factors import (
    BernoulliFactor,
    BernoulliLogitsFactor,
    CategoricalFactor,
    MixedPoissonFactor,
    PoissonFactor,
)
from lamu.graphs.potential import Potential
from lamu.graphs.program import GraphSite
from lamu.graphs.reading import over_blocks
from lamu.graphs.statistics import Categories, Chance, Observed, Probabilities, States
from lamu.graphs.words import WordsFactor
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson
from lamu.record import record
from lamu.typing import Array, Belief, Data, Params, RandomKey, Statistics, Targets

__all__ = [
    "IDLE_BELOW",
    "DrawnEntries",
    "completed",
    "completed_by_draws",
    "divergences_of_units",
    "expected_statistics",
    "idle_units",
    "law_of",
    "local_beliefs",
    "needs_draws",
    "new_rows",
    "predictive_statistics",
    "prior_draws",
    "row_log_prob",
    "row_log_weights",
    "with_absent_missing",
]


def local_beliefs(graph: Any, belief: Belief, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
    """Returns the beliefs about the latents of rows, by name, with a leading axis of rows."""
    of_theta, of_rows = _split(key)
    statistics = expected_statistics(graph, belief, samples, of_theta)
    return over_blocks(lambda y, first: _latents(graph, statistics, y, of_rows, first), rows.y)


def with_absent_missing(graph: Any, statistics: Statistics, rows: Arrays) -> Arrays:
    """Returns rows with absent leaf variables as missing, if the rows have no missing entries otherwise."""
    absent = tuple(
        site
        for site in graph.in_rows
        if site.name not in names_above(graph.in_rows) and value_of(rows.y, site.name)[0] is None
    )
    if not absent or any(isinstance(part, Incomplete) for part in rows.y.values()):
        return rows

    def predictions(data: Data) -> dict[str, Array]:
        environment, dtype = Environment(dict(statistics)), dtype_of(statistics)
        row = Row.of(in_dtype(graph.in_rows, dtype), graph.columns, data, 1.0, dtype)
        with lenient():
            row_environment = row.environment(environment, row.zeros(environment))
            return {site.name: site.factor.targets(row_environment) for site in absent}

    shapes, classes = jax.eval_shape(jax.vmap(predictions), rows.y), {s.name for s in absent if s.kind is Categories}
    missing = {}
    for name, like in shapes.items():
        shape = like.shape[:-1] if name in classes else like.shape
        missing[name] = Incomplete(jnp.zeros(shape, rows.weight.dtype), jnp.zeros(shape, bool))
    return replace(rows, y={**rows.y, **missing})


def row_log_prob(graph: Any, belief: Belief, batch: Batch, samples: int, key: RandomKey) -> Array:
    r"""Returns \(\log \tfrac1S \sum_s p(\text{row} \mid \theta_s)\) of every row in nats, `[N]`."""
    # If locals sample latents, the average is one of importance weights, and with coordinate ascent each density is its
    # best bound.
    log_averages = _by_blocks(_log_averages, 0, graph, belief, batch, samples, jax.random.clone(key))
    return sound_average(log_averages, lambda: row_log_weights(graph, belief, batch, samples, key))


def row_log_weights(graph: Any, belief: Belief, batch: Batch, samples: int, key: RandomKey) -> Array:
    """Returns the logarithms of estimates of the density of every row, `[S, N]` in nats."""
    # One for each sample of the shared variables if rows have closed forms; if locals sample latents, S importance
    # weights \(p(y, z_s \mid \theta_s) / q(z_s \mid y)\).
    #
    # Source: Burda, Grosse & Salakhutdinov (2016), equation 8.
    return _by_blocks(_log_weights, 1, graph, belief, batch, samples, key)


def _by_blocks(
    program: Callable[..., Array], axis: int, graph: Any, belief: Belief, batch: Batch, samples: int, key: RandomKey
) -> Array:
    of_theta, of_rows = jax.random.split(key)
    theta = finite_draws(belief.draws(of_theta, samples))
    count = max((leaf.shape[0] for leaf in jax.tree.leaves(theta)), default=1)
    weighted = graph.importance_weighted().at_values()
    draws = max(samples, count) if weighted.draws_latents else count
    of_block = lambda y, first: program(graph, weighted, theta, y, jax.random.clone(of_rows), first, draws, count)
    return over_blocks(of_block, batch.y, axis)


@partial(jax.jit, static_argnames=("draws", "count"))
def _log_weights(
    graph: Any, weighted: Any, theta: Params, y: Targets, key: RandomKey, first: Array, draws: int, count: int
) -> Array:
    ones = jnp.ones(len(jax.tree.leaves(y)[0]))
    rows = Batch(x=ones, y=y, mask=ones, weight=ones)

    def one(i: Array) -> Array:
        values = graph.values_of(jax.tree.map(lambda leaf: leaf[i % count], theta))
        return weighted.row_bounds(values, rows, key=jax.random.fold_in(key, i), first=first)

    return jax.lax.map(one, jnp.arange(draws))


@partial(jax.jit, static_argnames=("draws", "count"))
def _log_averages(
    graph: Any, weighted: Any, theta: Params, y: Targets, key: RandomKey, first: Array, draws: int, count: int
) -> Array:
    log_weights = _log_weights(graph, weighted, theta, y, key, first, draws, count)
    return jax.nn.logsumexp(log_weights, axis=0) - jnp.log(float(draws))


def expected_statistics(graph: Any, belief: Belief, samples: int, key: RandomKey) -> dict[str, Any]:
    """Returns E_q[T] of the shared variables by name: exact, or averaged over samples."""
    network = factor_of(belief, "network")
    if isinstance(network, Product):
        dispersions = belief.factors["likelihood"].mean if "likelihood" in belief.factors else {}
        return {**_moments(graph, network.factors), **({"likelihood": dispersions} if dispersions else {})}
    if isinstance(belief, Point):
        return graph.values_of(belief.mean)
    values = _values(graph, belief, samples, key)
    averaged = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), values)
    exact = [part for part in network.parts if isinstance(part, Product)] if isinstance(network, Parts) else []
    exact_beliefs = {name: factor for part in exact for name, factor in part.factors.items()}
    return {
        **averaged,
        **{s.name: s.kind.under(exact_beliefs[s.name]) for s in graph.shared if s.name in exact_beliefs},
    }


@compiled_once()
def _split(key: RandomKey) -> tuple[RandomKey, RandomKey]:
    first, second = jax.random.split(key)
    return first, second


@compiled_lightly()
def _moments(graph: Any, beliefs: Mapping[str, Belief]) -> dict[str, Any]:
    return graph.moments(beliefs)


@jax.jit
def _latents(graph: Any, statistics: Statistics, y: Targets, key: RandomKey, first: Array) -> dict[str, Any]:
    natural = graph.row_latents(statistics, y, key=key, first=first)
    return {name: part.belief() for name, part in natural.items()}


def predictive_statistics(graph: Any, belief: Belief, samples: int, key: RandomKey) -> dict[str, Any]:
    """Returns the statistics for moments of rows: E_q[T] of shared variables, and T(E_q[p]) of probabilities p."""
    statistics, given = expected_statistics(graph, belief, samples, key), graph.given or {}
    of_mean = [site for site in graph.shared if site.kind in (Probabilities, Chance) and site.name not in given]
    if not of_mean or isinstance(belief, Point):
        return statistics
    mean = belief.mean["network"]
    return {**statistics, **{site.name: site.kind.of(mean[site.name]) for site in of_mean if site.name in mean}}


def completed(graph: Any, statistics: Statistics, rows: Arrays, key: RandomKey) -> tuple[Any, Any]:
    """Returns means and variances of the rows given their observed entries: by name, or the arrays of a single name."""
    return over_blocks(lambda y, first: _completed(graph, statistics, y, key, first), rows.y)


@jax.jit
def _completed(graph: Any, statistics: Statistics, y: Targets, key: RandomKey, first: Array) -> tuple[Any, Any]:
    """Returns `completed` of a block of rows."""
    environment, dtype = Environment(statistics), dtype_of(statistics)
    sites = in_dtype(graph.in_rows, dtype)

    natural = graph.row_latents(statistics, y, key=key, first=first)

    def one(data: Data, natural: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        row = Row.of(sites, graph.columns, data, 1.0, dtype)
        beliefs = {name: part.belief() for name, part in natural.items()}

        def given(natural: dict[str, Any]) -> Environment:
            moments = {site.name: _predictive(site, natural[site.name].belief()) for site in row.latent}
            return row.environment(environment, moments)

        means, variances = {}, {}
        for site in sites:
            value, observed = value_of(data, site.name)
            if value is None:
                continue
            if site.factor.is_of_words:
                predicted = lambda natural, factor=site.factor: factor.predicted(given(natural))
                means[site.name], variances[site.name] = averaged_over_combinations(predicted, natural)
            elif observed is None:
                means[site.name], variances[site.name] = value, jnp.zeros(jnp.shape(value), dtype)
            elif site.name in beliefs:
                means[site.name], variances[site.name] = beliefs[site.name].mean, beliefs[site.name].std ** 2
            else:
                mean, variance = _moments_of_site(site, given, natural, row.known.get(site.name), observed)
                if site.kind is Categories:
                    value, observed = one_hot(value, mean.shape[-1]), observed[..., None]
                means[site.name] = jnp.where(observed, value.astype(mean.dtype), mean)
                variances[site.name] = jnp.where(observed, jnp.zeros_like(variance), variance)
        return means, variances

    with lenient():
        means, variances = jax.vmap(one)(y, natural)
    return (*means.values(), *variances.values()) if len(means) == 1 else (means, variances)


def _predictive(site: GraphSite, belief: Belief) -> Statistics:
    """Returns the statistics for moments of a row: μ of a latent, and T(E[p]) of probabilities p."""
    return site.kind.of(belief.mean) if site.kind in (Probabilities, Chance) else site.kind.under(belief)


# The share of categories below which an infinite variance has no part in a deviation: that of an empty component,
# whose prior is broad, of a mixture with a small concentration.
_RARE = 1e-3


def _moments_of_site(
    site: Any, given: Callable[[dict[str, Any]], Environment], natural: dict[str, Any], x: Any, observed: Any
) -> tuple[Array, Array]:
    """Returns mean and variance of a site given its observed entries, averaged over the categories above it."""
    shape = site.shape if site.kind is not Categories else None

    def moments(environment: Environment) -> tuple[Array, Array, Array]:
        mean, variance = site.factor.completed(x, environment, observed)
        mean, variance = (part if shape is None else jnp.broadcast_to(part, shape) for part in (mean, variance))
        endless = jnp.isinf(variance)  # separately: infinity times a probability of zero is NaN
        return mean, jnp.where(endless, jnp.zeros_like(variance), variance) + mean**2, endless.astype(mean.dtype)

    of_combination = lambda natural: averaged(moments, site.factor.names, given(natural))
    mean, second, endless = averaged_over_combinations(of_combination, natural)
    return mean, jnp.where(endless < _RARE, second - mean**2, jnp.asarray(jnp.inf, second.dtype))


IDLE_BELOW = 0.01  # nats a row
_DRAWS = 32  # samples of the shared variables


def divergences_of_units(
    graph: Any, statistics: Mapping[str, Any], data: Mapping[str, Any], key: RandomKey
) -> dict[str, Array]:
    r"""Returns \(KL(q(z_j \mid y_i) \,\|\, p(z_j))\) of every row and unit in nats, `[rows, units]`, by latent."""
    # Latents are eliminated one after the other; each term is given a sample of those before. Locals whose belief has
    # no closed form of the divergence by units are left out.
    if not any(local.per_unit_kl for local in (graph.local or {}).values()):
        return {}
    return over_blocks(lambda y, first: _divergences_of_units(graph, dict(statistics), y, key, first), dict(data))


@jax.jit
def _divergences_of_units(
    graph: Any, statistics: dict[str, Any], data: Data, key: RandomKey, first: Array
) -> dict[str, Array]:
    """Returns `divergences_of_units` of a block of rows."""
    local, environment, dtype = graph.local or {}, Environment(statistics), dtype_of(statistics)
    with_units = {name for name, each in local.items() if each.per_unit_kl}
    sites = in_dtype(graph.in_rows, dtype)

    def divergences(data: Mapping[str, Any], key: RandomKey) -> dict[str, Array]:
        row, terms_by_name = Row.of(sites, graph.columns, data, 1.0, dtype), {}
        while with_units & {site.name for site in row.latent}:
            of_terms, of_proposal, of_draw, key = jax.random.split(key, 4)
            name, first, others = first_local(local, row)
            own, rest = environment.statistics.get("local", {}).get(name, {}), partial(marginalise, others)
            terms = first.unit_divergences(name, own, row, environment, of_terms, rest)
            if terms is not None:
                terms_by_name[name] = terms
            if not with_units & {site.name for site in row.latent if site.name != name}:
                break
            proposal = first.proposal(name, own, row, environment, of_proposal, rest)
            row = with_values(row, proposal.draw(of_draw)[0])
        return terms_by_name

    return jax.vmap(divergences)(data, row_keys(key, len(jax.tree.leaves(data)[0]), first))


def idle_units(graph: Any, belief: Belief, rows: Batch) -> dict[str, tuple[int, int]]:
    """Returns how many units of each latent carry less than 0.01 nats a row, and its number of units, if any."""
    # Not for several runs or a chain: each has its own units, and the average of their weights is not an encoder.
    if isinstance(belief, Draws | Ensemble | Mixture):
        return {}
    of_theta, of_rows = jax.random.split(jax.random.key(0))
    statistics = expected_statistics(graph, belief, _DRAWS, of_theta)
    terms = divergences_of_units(graph, statistics, rows.y, of_rows)
    weight = np.asarray(rows.mask * rows.weight)
    nats = {name: np.average(np.asarray(part), axis=0, weights=weight) for name, part in terms.items()}
    counts = {name: (int(np.sum(part < IDLE_BELOW)), part.size) for name, part in nats.items()}
    return {name: count for name, count in counts.items() if count[0]}


# \[ p(y_\mathrm{mis} \mid y_\mathrm{obs}) \approx \frac1S \sum_s p(y_\mathrm{mis} \mid z_s, \theta_s), \qquad
#    \theta_s \sim q(\theta), \quad z_s \sim p(z \mid y_\mathrm{obs}, \theta_s) \]


_WARMUP = 50  # sweeps of a chain before its samples are kept
_OF_SUMS = 11  # is folded into the key of a circuit's categories


@record
class DrawnEntries:
    """One variable of some rows by samples: observed entries, and the distribution of the others given each sample."""

    value: Any  # `[N, ...]`, any value where an entry is missing
    observed: Any  # whether each entry is observed; None if all are, and then the fields below are None too
    law: Likelihood | None  # distribution of one entry
    f: Any  # the outputs of that distribution, `[S, N, entries, outputs]`
    dispersions: Any  # its parameters, leaves `[S, N, entries, ...]`
    covariance: Any = None  # of the entries of vectors given a sample, `[S, N, entries, entries]`; None if independent


def needs_draws(graph: Any, belief: Belief) -> bool:
    """Returns whether missing entries have no closed form: because of sampled latents, networks or likelihoods."""
    # A belief of samples may have several modes, for which an average is meaningless.
    samples_latents = any(local.random or not local.has_density for local in (graph.local or {}).values())
    likelihoods = any(site.factor.is_likelihood for site in graph.in_rows)
    return samples_latents or bool(graph.networks) or likelihoods or not isinstance(belief, Product | Point)


def completed_by_draws(
    graph: Any, belief: Belief, rows: Arrays, samples: int, key: RandomKey
) -> dict[str, DrawnEntries]:
    """Returns every observed variable of rows by name."""
    # For a point one chain a row makes all samples; otherwise every sample of θ has its own chains. The information
    # of a row's observed entries about θ is left out: the belief about θ is that of the training rows.
    of_theta, of_rows = jax.random.split(key)
    theta, graph = _values(graph, belief, samples, of_theta), graph.at_values()
    count = jax.tree.leaves(theta)[0].shape[0] if jax.tree.leaves(theta) else 1
    draws_per_theta = -(-samples // count)
    holes = {name: part for name, part in rows.y.items() if isinstance(part, Incomplete)}
    documents = {site.name: site for site in graph.in_rows if site.factor.is_of_words}
    size = 2 * draws_per_theta * count * sum(memory.bytes_of(part.value) for part in holes.values())
    size += (
        4 * draws_per_theta * count * len(jax.tree.leaves(rows.y)[0]) * sum(_words(site) for site in documents.values())
    )
    memory.demand(
        size, f"{draws_per_theta * count:,} draws of all rows", "ask for fewer samples, or for fewer rows at a time"
    )
    compute = lambda data, first: _chains(graph, theta, data, jax.random.clone(of_rows), first, draws_per_theta, count)
    chain_entries = over_blocks(compute, rows.y, axis=1) if holes or documents else {}
    entries = {}
    for site in graph.in_rows:
        part = rows.y.get(site.name)
        if site.name in documents and site.name in chain_entries:
            word = jnp.zeros(chain_entries[site.name][0].shape[1])  # one more of the document
            entries[site.name] = DrawnEntries(word, word > 0, law_of(site), *chain_entries[site.name])
        elif site.name in holes:
            entries[site.name] = DrawnEntries(part.value, part.observed, law_of(site), *chain_entries[site.name])
        elif part is not None:
            entries[site.name] = DrawnEntries(part, None, None, None, None)
    return entries


def new_rows(graph: Any, belief: Belief, n: int, samples: int, key: RandomKey) -> dict[str, DrawnEntries]:
    """Returns n new rows by name: the variables on which no other one depends, without observations."""
    if graph.columns:
        raise TypeError(
            f"a row has the input {graph.columns[0]!r}, which no model draws; give the inputs of the new rows by name, "
            f"predict({{{graph.columns[0]!r}: ...}})"
        )
    of_theta, of_rows = jax.random.split(key)
    theta, graph = _values(graph, belief, samples, of_theta), graph.at_values()
    count = jax.tree.leaves(theta)[0].shape[0] if jax.tree.leaves(theta) else 1
    last = tuple(site for site in graph.in_rows if site.name not in names_above(graph.in_rows))
    laws = {site.name: law_of(site) for site in last}

    def of_blocks(rows: Any, first: Array) -> Any:
        return _ancestral(graph, theta, last, jax.random.clone(of_rows), first, len(rows), samples, count)

    shapes = jax.eval_shape(lambda rows, first: of_blocks(rows, first), jnp.zeros(1), jnp.zeros((), jnp.int32))
    memory.demand(n * memory.bytes_of(shapes), f"{samples:,} draws of {n:,} rows", "ask for fewer rows at a time")
    ancestral_entries = over_blocks(of_blocks, np.zeros(n), axis=1)
    entries = {}
    for site in last:
        f = ancestral_entries[site.name][0]
        own = _shape(site)
        word = site.factor.is_of_words
        shape = (n, *(() if word else (f.shape[2],) if own is None else own))
        nothing = jax.device_put(np.zeros(shape, f.dtype)), jax.device_put(np.zeros(shape, bool))
        entries[site.name] = DrawnEntries(*nothing, laws[site.name], *ancestral_entries[site.name])
    return entries


def prior_draws(graph: Any, key: RandomKey, n: int, x: Any) -> dict[str, Any]:
    """Returns draws of all variables from their joint prior by name, `[n, ...]` and `[n, N, ...]` of rows."""
    n = whole_number("n", n)
    rows, dtype = graph.inputs(x), jnp.result_type(float)
    if isinstance(rows, int) and graph.columns:
        raise ValueError(f"a row has the input {graph.columns[0]!r}; give it by name, {{{graph.columns[0]!r}: ...}}")
    words = [site.name for site in graph.in_rows if site.factor.is_of_words]
    if words:
        raise TypeError(f"how many {words[0]} a document has is no part of the model, so that it draws none")
    inputs = {} if isinstance(rows, int) else in_dtype({name: rows.y[name] for name in graph.columns}, dtype)
    count = rows if isinstance(rows, int) else len(rows.weight)
    compute = lambda keys: _prior_draws(graph, inputs, keys, count)
    keys = jax.random.split(key, n)
    size = memory.bytes_of(jax.eval_shape(compute, keys))
    memory.demand(size, f"{n:,} draws of {count:,} rows", "ask for fewer draws, or fewer rows")
    draws = compute(keys)
    for site in graph.sites:
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(draws[site.name])):
            raise ValueError(
                f"draws of {site.name!r} are not finite numbers of {dtype}; give it, or what it depends on "
                f"({', '.join(sorted(site.factor.names)) or 'nothing'}), a prior that is proper and narrower"
            )
    return draws


@partial(jax.jit, static_argnames="count")
def _prior_draws(graph: Any, inputs: dict[str, Array], keys: Array, count: int) -> dict[str, Any]:
    sites, dtype = in_dtype(graph.in_rows, jnp.result_type(float)), jnp.result_type(float)
    above, first = names_above(sites), jax.tree.map(lambda leaf: leaf[0], inputs)
    shaped = Environment({site.name: site.kind.zeros(shape_of(site), dtype) for site in graph.shared}, first)
    for site in sites:
        if site.name in above:
            shaped = shaped.having({site.name: site.kind.zeros(shape_of(site, shaped), dtype)})
    weights = first_weights(jax.random.key(0), sites, graph.networks, shaped)
    shaped = shaped.having(weights)
    targets = {site.name: site for site in sites if site.factor.is_likelihood}
    dispersions = {}
    for name, site in targets.items():
        like = site.factor.likelihood.support.zeros(1).astype(dtype)
        entries = jnp.size(site.factor.outputs.first(shaped)) // site.factor.width
        dispersions[name] = site.factor.likelihood.init(like if entries == 1 else jnp.broadcast_to(like, (1, entries)))
    dispersions = {name: part for name, part in dispersions.items() if jax.tree.leaves(part)}
    environment = shaped.having({"likelihood": dispersions})
    shapes = {name: jax.eval_shape(partial(site.factor.targets, environment)).shape for name, site in targets.items()}

    def of_value(site: GraphSite, value: Any) -> Any:
        if site.name in shapes:
            return jnp.reshape(value, shapes[site.name])
        return jnp.argmax(value, axis=-1) if issubclass(site.kind, Categories | States) else value

    def one(key: RandomKey) -> dict[str, Any]:
        of_theta, of_weights, of_dispersions, of_rows = jax.random.split(key, 4)
        theta = graph.prior.drawn(of_theta, dtype)
        own = graph.prior.weights.sample(of_weights, weights) if weights else {}
        noise = {
            name: targets[name].factor.likelihood.sample_prior(jax.random.fold_in(of_dispersions, number), part)
            for number, (name, part) in enumerate(dispersions.items())
        }
        statistics = {**graph.values({**theta, **own}), "likelihood": noise}
        values = jax.vmap(lambda key, inputs: ancestral(graph, statistics, key, inputs=inputs)[0])(
            row_keys(of_rows, count, 0), inputs
        )
        in_rows = {site.name: jax.vmap(partial(of_value, site))(values[site.name]) for site in sites}
        return {**{site.name: of_value(site, theta[site.name]) for site in graph.shared}, **in_rows}

    return jax.lax.map(one, keys)


def law_of(site: GraphSite) -> Likelihood:
    """Returns the distribution of one entry of a variable, as a likelihood."""
    factor = site.factor
    if isinstance(factor, Potential):
        return factor.of_entry
    if isinstance(factor, CategoricalFactor):
        return Categorical(shape_of(site)[-1])
    if isinstance(factor, WordsFactor):
        return Categorical(_words(site))
    law = _LAWS.get(type(factor))
    if law is None:
        raise TypeError(
            f"{site.name!r} is missing, and a {type(factor).__name__.removesuffix('Factor')} has no law of one entry; "
            "draw it by lamu.latent.generate(posterior, n), or leave it out of the rows"
        )
    return law()


def _words(site: GraphSite) -> int:
    """Returns the size of the vocabulary of documents."""
    factor: Any = site.factor
    return factor.topic.shape[-1]


def _values(graph: Any, belief: Belief, samples: int, key: RandomKey) -> Any:
    """Returns T of samples of θ, along a leading axis; one for a point."""
    draws = finite_draws(belief.draws(key, samples))
    return jax.vmap(graph.values_of)(draws) if jax.tree.leaves(draws) else graph.values_of(draws)


@partial(jax.jit, static_argnames=("each", "count"))
def _chains(graph: Any, theta: Params, data: Data, key: RandomKey, first: Array, each: int, count: int) -> Any:
    """Returns f and dispersions of every variable with missing entries, `[S, N, ...]`."""
    names = [name for name, part in data.items() if isinstance(part, Incomplete)]

    def of_theta(i: Array) -> Any:
        statistics = jax.tree.map(lambda leaf: leaf[i], theta)
        environment, local = Environment(dict(statistics)), graph.local or {}
        sites = {site.name: site for site in in_dtype(graph.in_rows, dtype_of(statistics))}

        def entries_of_row(row: Row, here: Environment, missing: Any, values: Any, holes: Any, key: RandomKey) -> Any:
            entries = {name: _entries(sites[name], here, key, holes[name]) for name in missing}
            words = [name for name in row.known if sites[name].factor.is_of_words]
            entries |= {name: _entries(sites[name], here, key) for name in words}
            labels = [name for name in names if name not in missing]
            if labels:
                natural = marginalise(local, row, environment, require_key(local, None))[1]
                for name in labels:
                    entries[name] = (jax.nn.log_softmax(natural[name].probabilities)[None], {}, None)
            return entries

        return chains_of_rows(graph, statistics, data, jax.random.fold_in(key, i), entries_of_row, each, _WARMUP, first)

    drawn = jax.lax.map(of_theta, jnp.arange(count))  # [count, N, each, ...]
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 2, 1).reshape(-1, leaf.shape[1], *leaf.shape[3:]), drawn)


@partial(jax.jit, static_argnames=("rows", "samples", "count"))
def _ancestral(
    graph: Any, theta: Params, last: Any, key: RandomKey, first: Array, rows: int, samples: int, count: int
) -> Any:
    """Returns f and dispersions of variables of new rows, `[S, N, ...]`."""

    def one(s: Array, row: Array) -> Any:
        statistics = jax.tree.map(lambda leaf: leaf[s % count], theta)
        own = jax.random.fold_in(jax.random.fold_in(key, s), row)
        environment = ancestral(graph, statistics, jax.random.clone(own), {site.name for site in last})[1]
        return {site.name: _entries(site, environment, own) for site in in_dtype(last, dtype_of(statistics))}

    return jax.lax.map(
        lambda s: jax.vmap(lambda row: one(s, row))(first + jnp.arange(rows, dtype=first.dtype)), jnp.arange(samples)
    )


def _entries(
    site: GraphSite, here: Environment, key: RandomKey, part: Incomplete | None = None
) -> tuple[Array, Any, Any]:
    """Returns the outputs of every entry's distribution, `[entries, outputs]`, its parameters, and the covariance."""
    factor = site.factor
    if isinstance(factor, CircuitFactor):  # given its categories the entries are independent
        value, observed = (jnp.zeros(factor.shape), jnp.zeros(factor.shape, bool))
        value, observed = (value, observed) if part is None else (part.value, part.observed)
        of_sums = jax.random.fold_in(key, _OF_SUMS)
        return factor.drawn_log_odds(of_sums, Observed(value), here, observed)[:, None], {}, None
    if isinstance(factor, Potential):
        return (*factor.entries(here), None)
    if isinstance(factor, OfVectors):
        return _of_vectors(factor, here, part)
    with lenient():
        mean, variance = factor.predicted(here)
        shape = _shape(site)
        if shape is not None:  # several observations with the same arguments
            shape = (*shape, *mean.shape[-1:]) if isinstance(factor, CategoricalFactor) else shape
            mean, variance = jnp.broadcast_to(mean, shape), jnp.broadcast_to(variance, shape)
    if isinstance(factor, CategoricalFactor | WordsFactor):
        return jnp.log(mean).reshape(-1, mean.shape[-1]), {}, None
    f = jnp.reshape(mean, (-1, 1))
    law = _LAWS.get(type(factor))
    if law is Gaussian:
        return f, {"log_scale": jnp.log(jnp.reshape(variance, (-1, 1))) / 2}, None
    if law is Bernoulli:
        return jnp.log(f) - jnp.log1p(-f), {}, None
    return jnp.log(f), {}, None


def _of_vectors(factor: OfVectors, here: Environment, part: Incomplete | None) -> tuple[Array, Any, Array]:
    """Returns the entries of vectors given the observed ones, each as normal, with the covariance of all."""
    with lenient():
        predicted = factor.predicted(here)[0]
        value, observed = (
            (jnp.zeros_like(predicted), jnp.zeros(predicted.shape, bool))
            if part is None
            else (part.value, part.observed)
        )
        mean, covariance = factor.conditional(value.astype(predicted.dtype), here, observed)
    d = mean.shape[-1]
    covariance = jax.scipy.linalg.block_diag(*covariance.reshape(-1, d, d))
    variance = jnp.where(observed.reshape(-1), 1.0, jnp.diagonal(covariance))
    return mean.reshape(-1, 1), {"log_scale": jnp.log(variance)[:, None] / 2}, covariance


def _shape(site: GraphSite) -> tuple[int, ...] | None:
    """Returns the shape of the entries, without the axis of categories."""
    return site.shape[:-1] if site.shape is not None and site.kind is Categories else site.shape


# The distributions of one entry, for the factors that may miss some.
_LAWS: dict[Any, Any] = {
    NormalFactor: Gaussian,
    LocatedNormal: Gaussian,
    MultivariateNormalFactor: Gaussian,
    LocatedMultivariateNormal: Gaussian,
    BernoulliFactor: Bernoulli,
    BernoulliLogitsFactor: Bernoulli,
    CircuitFactor: Bernoulli,
    PoissonFactor: Poisson,
    MixedPoissonFactor: Poisson,
}
