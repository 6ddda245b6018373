"""Initial beliefs: one update from random latents, since at the prior all members of a plate are the same."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.conjugate_target import updated
from lamu.data.batch import Batch
from lamu.families import Beta, Dirichlet, Point, Product
from lamu.families import Dirichlet as Shares
from lamu.families.products import factor_of
from lamu.graphs.exemplars import around_means, groups, points, scores, spread, time_points
from lamu.graphs.expressions import Environment, StickBreaking, Variable
from lamu.graphs.factor import Known
from lamu.graphs.joint import Row, dtype_of, in_dtype, log_joint, own_natural, shape_of, value_of
from lamu.graphs.network import Applied, arguments, first_weights
from lamu.graphs.positive_factors import CategoricalFactor
from lamu.graphs.potential import Potential
from lamu.graphs.program import GraphSite
from lamu.graphs.series_factors import MarkovFactor
from lamu.graphs.statistics import Categories, Numbers, PositiveNumbers, Probabilities, Series, States, Vectors
from lamu.graphs.words import WordsFactor
from lamu.networks.interface import outputs
from lamu.networks.output_range import output_range, require_scales
from lamu.typing import Array, Belief, Data, DTypeLike, Number, Numeric, Params, RandomKey

__all__ = ["empty_components", "first_beliefs", "first_dispersions", "first_parameters", "likelihoods_of"]


_NOTHING = 1e-12  # of a weight at a point


def empty_components(
    sites: tuple[GraphSite, ...], belief: Belief, temperature: Number, rows: Number | None = None
) -> dict[str, tuple[int, ...]]:
    """Returns the components that hold less than one row, by the name of their weight; they equal their prior."""
    # Weights are a Dirichlet's or by stick breaking. A state of a Markov series holds times, and a topic words: it is
    # empty if it holds less than one in all rows together. A point has no counts and needs the number of rows;
    # without it, and for states of a series, a component is empty if its weight is zero.
    counted = _RowsHeld({site.name: site.factor for site in sites}, belief, temperature, rows)
    empty: dict[str, tuple[int, ...]] = {}
    for site in sites:
        name, few = counted.few(site.factor)
        if few is not None and few.any():
            empty[name] = tuple(int(k) for k in np.flatnonzero(few))
    return empty


class _RowsHeld:
    """A belief's counts of the rows that each component holds."""

    def __init__(self, factors: dict[str, Any], belief: Belief, temperature: Number, rows: Number | None) -> None:
        self.factors, self.temperature = factors, float(temperature)
        self.rows = None if rows is None else float(rows)
        self.point = belief.mean["network"] if isinstance(belief, Point) else None
        part: Any = factor_of(belief, "network")
        self.beliefs: dict[str, Any] = dict(part.factors) if isinstance(part, Product) else {}

    def few(self, factor: Any) -> tuple[str, np.ndarray | None]:
        """Returns the name of a factor's weights, and which of its components are empty; None if it has none."""
        if isinstance(factor, CategoricalFactor):
            weight = factor.probabilities
            if isinstance(weight, StickBreaking):
                return self._of_sticks(weight)
            if isinstance(weight, Variable) and len(weight.shape or ()) == 1:
                return weight.name, self._fewer(self._in_rows(weight), lambda pi: pi, self._least)
        if isinstance(factor, MarkovFactor) and isinstance(factor.transition, Variable):
            table = self._counts(factor.transition)
            if table is not None:  # a state to which no series moves, and in which none begins
                first = self._counts(factor.initial) if isinstance(factor.initial, Variable) else None
                table = np.concatenate([table, first[None]]) if first is not None else table
            return factor.transition.name, self._fewer(table, lambda to: to.sum(axis=0))
        if isinstance(factor, WordsFactor) and isinstance(factor.topic, Variable) and self.point is None:
            return factor.topic.name, self._fewer(self._counts(factor.topic), lambda words: words.sum(axis=-1))
        return "", None

    def _fewer(self, counts: np.ndarray | None, total: Any, least: float | None = None) -> np.ndarray | None:
        if least is None:
            least = _NOTHING if self.point is not None else 1.0
        return None if counts is None else total(counts) < least

    @property
    def _least(self) -> float:
        """The least number of rows of a component; for a point only if the number of rows is known."""
        return _NOTHING if self.point is not None and self.rows is None else 1.0

    def _in_rows(self, weight: Variable) -> np.ndarray | None:
        """Returns the number of rows of each component; at a point without a number of rows the weights."""
        counts, prior = self._counts(weight), self.factors.get(weight.name)
        if counts is None or self.point is None or self.rows is None:
            return counts
        dirichlet = isinstance(prior, Known) and isinstance(prior.belief, Dirichlet)
        before = np.asarray(prior.belief.concentration) - 1.0 if dirichlet else np.zeros_like(counts)  # pyright: ignore[reportOptionalMemberAccess]
        return counts * (self.rows + before.sum()) - before

    def _counts(self, weight: Variable) -> np.ndarray | None:
        """Returns a Dirichlet's count of rows for each category; at a point the weights."""
        if self.point is not None:
            return np.asarray(self.point[weight.name]) if weight.name in self.point else None
        return self._learned(weight.name, Dirichlet, "concentration")

    def _learned(self, name: str, family: type, field: str) -> np.ndarray | None:
        prior = self.factors.get(name)
        if name not in self.beliefs or not isinstance(prior, Known) or not isinstance(prior.belief, family):
            return None
        after, before = (np.asarray(getattr(belief, field)) for belief in (self.beliefs[name], prior.belief))
        return self.temperature * (after - 1.0) - (before - 1.0)

    def _of_sticks(self, weight: StickBreaking) -> tuple[str, np.ndarray | None]:
        """Returns the components of stick breaking: a break counts its own, the last one also the rest."""
        if not isinstance(weight.breaks, Variable):
            return "", None
        name = weight.breaks.name
        if self.point is not None:
            v = np.asarray(self.point[name]) if name in self.point else None
            counts = None if v is None else np.r_[v, 1.0] * np.r_[1.0, np.cumprod(1.0 - v)]
            counts = counts if counts is None or self.rows is None else self.rows * counts
            return name, self._fewer(counts, lambda pi: pi, self._least)
        counts, left = self._learned(name, Beta, "alpha"), self._learned(name, Beta, "beta")
        both = None if counts is None or left is None else np.r_[counts, left[-1]]
        return name, self._fewer(both, lambda pi: pi)


def first_parameters(graph: Any, key: RandomKey, batch: Batch) -> Params:
    """Returns initial parameters: all coordinates, with fixed ones at their values."""
    constraints = graph.constraints
    frozen = {name: part for name, part in (graph.frozen or {}).items() if jax.tree.leaves(part)}
    weights, own = _fresh(graph, key, batch)
    fixed = graph.values(constraints.constrain(frozen)[0])
    beliefs = graph.first_beliefs(key, batch, 1.0, {**weights, "local": own, **fixed})
    means = {name: jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), b.mean) for name, b in beliefs.items()}
    start = constraints.unconstrain(means)
    network = {site.name: start.get(site.name, frozen.get(site.name)) for site in graph.shared} | weights
    return {"network": network | ({"local": own} if own else {}), "likelihood": first_dispersions(graph.in_rows, batch)}


def first_dispersions(sites: tuple[GraphSite, ...], batch: Batch) -> Params:
    """Returns initial dispersions of likelihoods that learn some, by the names of their targets."""
    dispersions = {
        name: likelihood.init(value_of(batch.y, name)[0])
        for name, likelihood in likelihoods_of(sites).items()
        if value_of(batch.y, name)[0] is not None
    }
    return {name: part for name, part in dispersions.items() if jax.tree.leaves(part)}


def likelihoods_of(sites: tuple[GraphSite, ...]) -> dict[str, Any]:
    """Returns the likelihoods by the names of their targets."""
    return {site.name: site.factor.likelihood for site in sites if isinstance(site.factor, Potential)}


def _fresh(graph: Any, key: RandomKey, batch: Batch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns initial weights of the networks, and the locals' parameters."""
    local = graph.local or {}
    if not graph.networks and not local:
        return {}, {}
    dtype = batch.weight.dtype
    first = jax.tree.map(lambda leaf: leaf[0], batch.y)
    row = Row.of(in_dtype(graph.in_rows, dtype), graph.columns, first, 1.0, dtype)
    zeros = {site.name: site.kind.zeros(shape_of(site), dtype) for site in graph.shared}
    environment = row.environment(Environment(zeros), row.zeros(Environment(zeros)))
    weights = first_weights(jax.random.fold_in(key, 1), row.sites, graph.networks, environment)
    _require_scales(row, weights, environment)
    latents = {site.name for site in row.latent}
    own = {
        name: local_choice.init(jax.random.fold_in(key, number + 2), name, row, Environment({**zeros, **weights}))
        for number, (name, local_choice) in enumerate(local.items())
        if name in latents
    }
    return weights, {name: part for name, part in own.items() if jax.tree.leaves(part)}


def _require_scales(row: Row, weights: dict[str, Any], environment: Environment) -> None:
    """Raises a ValueError for a network that applies the inverse link of its likelihood."""
    for site in row.sites:
        call = getattr(site.factor, "outputs", None)
        if not site.factor.is_likelihood or not isinstance(call, Applied) or len(call.of.widths) != 1:
            continue
        network = call.of.network
        row_environment = Environment(
            {**environment.statistics, **weights}, environment.inputs, environment.temperature
        )
        x = jax.eval_shape(lambda call=call, of_call=row_environment: arguments(call.inputs, of_call)[None])
        of_rows = lambda own, x, network=network: outputs(network, own, {}, x, None, False, None)[0]
        reached = output_range(of_rows, weights[call.of.name], x)[0]
        likelihood, width = site.factor.of_entry, site.factor.width
        scales = likelihood.output_scales(width) * (call.of.widths[0] // width)
        require_scales(reached, scales, repr(call.of.name), likelihood.name)


def first_beliefs(
    key: RandomKey,
    shared: tuple[GraphSite, ...],
    in_rows: tuple[GraphSite, ...],
    inputs: tuple[str, ...],
    blocks: tuple[tuple[str, ...], ...],
    batch: Batch,
    temperature: Any,
    given: dict[str, Any],
    number: Numeric | None = None,
) -> dict[str, Any]:
    """Returns beliefs about the shared variables after one update from random latents."""
    # The latents of a row are a sample of their prior; shares are even, since a sparse sample would assign documents to
    # topics at random. In ascents over all rows topics start from clusters of similar documents; svi, whose first
    # minibatches then relearn the topics, ended at a perplexity 8 % higher on two collections. For a category only K
    # rows have one, each a different one: every category starts from one row, far from those of the others. From rows
    # alone components of tight clusters start so wide that neighbours merge: of eight clusters on a grid four were left
    # by six seeds of six, 137 to 185 nats low; in every second start all rows have the category of a cluster. States of
    # a series are the nearest of K times far apart: a sample of them would give all states the mean of the data. Shared
    # numbers start at a sample, so that the sides of a product are not both zero, and so do exchangeable members of
    # plates. A vector that loadings multiply starts at principal directions, and a second update adapts noise and
    # relevance to the loadings from the first.
    local_key, shared_key = jax.random.split(key)
    alike = {name: s.factor.first_concentration for s in in_rows if s.factor.exchangeable for name in s.factor.names}
    statistics = _priors(shared_key, shared, alike, batch.weight.dtype, temperature, given)
    with lenient():
        places = _places(jax.random.fold_in(local_key, 2), in_rows, batch, 0 if number is None else number)
        principal = scores(jax.random.fold_in(local_key, 3), in_rows, batch, 0 if number is None else number)
        if number is not None:
            places |= groups(jax.random.fold_in(local_key, 4), in_rows, batch)
    if principal is not None:
        places = {**places, principal[0]: principal[1]}
    keys = jax.random.split(jax.random.fold_in(local_key, 1), batch.mask.shape[0])

    def row_density(statistics: dict[str, Any], data: Data, places: dict[str, Any], key: RandomKey) -> Any:
        # Factors without messages do not inform initial beliefs.
        exact = tuple(site for site in in_rows if site.factor.exact)
        row = Row.of(exact, inputs, data, temperature, batch.weight.dtype)
        environment = Environment(statistics, temperature=temperature)
        return row.log_joint(environment, _random_latents(key, row, places, jax.lax.stop_gradient(environment)))

    def F(statistics: dict[str, Any]) -> Any:
        rows = jax.vmap(row_density, in_axes=(None, 0, 0, 0))(statistics, batch.y, places, keys)
        return (batch.total(rows) + log_joint(shared, Environment(statistics))) / temperature

    kinds = {site.name: site.kind for site in shared}
    beliefs = updated(F, statistics, blocks, kinds)
    if principal is not None:
        new_statistics = {name: kinds[name].under(belief) for name, belief in beliefs.items()}
        beliefs = updated(F, {**statistics, **new_statistics}, blocks, kinds)
    # Members indexed by a category of such factors get no messages, and would stay the same from one mean.
    open_to = [site.factor for site in in_rows if not site.factor.exact and site.factor.mixed_over()]
    apart = frozenset().union(*(factor.names for factor in open_to)) & set(beliefs)
    moved = {name: statistics[name] for name in sorted(apart) if isinstance(statistics[name], Numbers | Vectors)}
    return beliefs | {name: replace(beliefs[name], mean=part.first) for name, part in moved.items()}


def _priors(
    key: RandomKey,
    shared: tuple[GraphSite, ...],
    alike: dict[str, float],
    dtype: DTypeLike,
    temperature: Any,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Returns μ of the priors one after the other; T of a sample for numbers, vectors and exchangeable members."""
    statistics: dict[str, Any] = dict(given)
    for number, site in enumerate(shared):
        if site.name in given:
            continue
        natural = own_natural(site, Environment(statistics), dtype, temperature)
        belief = natural.belief()
        if site.kind in (Numbers, Vectors) or site.name in alike:
            if alike.get(site.name, 0.0) > 0.0:
                belief = Shares(jnp.maximum(belief.concentration, alike[site.name]))
            with lenient():
                statistics[site.name] = site.kind.of(belief.sample(jax.random.fold_in(key, number)))
        else:
            statistics[site.name] = site.kind.under(belief)
    return statistics


def _places(key: RandomKey, in_rows: tuple[GraphSite, ...], batch: Batch, start: Numeric) -> dict[str, Array]:
    """Returns, by name, the category of which each row is the exemplar, and the nearest state of each time."""
    seen = tuple(site for site in in_rows if value_of(batch.y, site.name)[0] is not None)
    rows = batch.mask.shape[0]
    places: dict[str, Array] = {}
    for site in in_rows:
        series = issubclass(site.kind, States)
        if site.shape is None or not (series or site.kind is Categories):
            continue
        others = tuple(other for other in seen if other is not site)
        together = _together(site, in_rows, seen)
        names, counts = list(together), list(together.values())
        own = jax.random.fold_in(key, [other.name for other in in_rows].index(names[0]))
        count, axes = site.shape[-1], site.shape[:-1]
        observations = points(others, batch, 1 + len(axes))
        if axes and (observations is None or len(observations[0]) != rows * math.prod(axes)):
            observations, axes = None if series else points(others, batch, 1), ()
        if series:
            if observations is not None:
                x, weight = (
                    observations[0].reshape(rows, -1, observations[0].shape[1]),
                    observations[1].reshape(rows, -1),
                )
                nearest = spread(own, *time_points(x, weight, start), count)[1]
                places[site.name] = nearest.reshape(rows, -1)
            continue
        size = rows * math.prod(axes)
        if observations is None:
            chosen = jax.random.permutation(own, max(size, math.prod(counts)))[: math.prod(counts)]
            nearest = None
        else:
            chosen, first = spread(own, *observations, math.prod(counts))
            nearest = around_means(*observations, first, math.prod(counts))
        label, categories = value_of(batch.y, site.name)
        labels = jnp.unravel_index(jnp.arange(math.prod(counts)), counts)[names.index(site.name)]
        if categories is not None:  # categories named by labels get no other row as exemplar
            named = jnp.any(categories[..., None] & (label[..., None] == labels), axis=tuple(range(categories.ndim)))
            labels = jnp.where(named, count, labels)
        place = jnp.full(size, count, labels.dtype).at[chosen].set(labels, mode="drop")
        if nearest is not None:
            place = jnp.where(start % 2 == 1, labels[nearest], place)
        places[site.name] = place.reshape(rows, *axes)
    return places


def _together(site: GraphSite, in_rows: tuple[GraphSite, ...], seen: tuple[GraphSite, ...]) -> dict[str, int]:
    """Returns the numbers of categories of a site and of the latents that index arguments of one factor with it."""
    # Each of their combinations has a row of its own: rows that show one category but not the other tell neither.
    known = {other.name for other in seen}
    latent = [part for part in in_rows if part.kind is Categories and part.name not in known]
    shapes = {part.name: part.shape for part in latent if part.shape is not None}
    own = shapes.get(site.name) or site.shape or (1,)
    for factor in (other.factor for other in in_rows):
        picks = frozenset().union(*(part.picks for part in factor.arguments.values()))
        together = {name: shape[-1] for name, shape in shapes.items() if name in picks and shape[:-1] == own[:-1]}
        if site.name in together and len(together) > 1:
            return together
    return {site.name: own[-1]}


def _random_latents(key: RandomKey, row: Row, places: dict[str, Any], environment: Environment) -> dict[str, Any]:
    """Returns T of a sample of the latents of a row, with given places of categories and states."""
    latent: dict[str, Any] = {}
    zeros = row.zeros(environment)
    for number, site in enumerate(row.latent):
        if site.kind in (Numbers, Vectors) and site.name in places:
            latent[site.name] = site.kind.of(places[site.name])
            continue
        if site.kind is Categories:
            sample = _exemplar(places.get(site.name, 0), zeros[site.name].probabilities)
            if site.name in row.evidence:  # a known label is where its category starts
                tie = row.evidence[site.name].probabilities
                sample = jnp.where(jnp.any(tie < 0), (tie == 0).astype(sample.dtype), sample)
            latent[site.name] = Categories(sample)
            continue
        if issubclass(site.kind, States):
            one_hot = zeros[site.name].probabilities
            sample = places.get(site.name)
            sample = jax.random.categorical(jax.random.fold_in(key, number), one_hot) if sample is None else sample
            latent[site.name] = site.kind.of(jax.nn.one_hot(sample, one_hot.shape[-1], dtype=one_hot.dtype))
            continue
        if site.kind is Probabilities:
            log = zeros[site.name].log
            even = jnp.full_like(log, 1.0 / log.shape[-1])
            latent[site.name] = Probabilities.of(places.get(site.name, even))
            continue
        if issubclass(site.kind, Series):
            # A sample of a walk with a diffuse start is far from the data, and squares of its steps keep no digits.
            F = lambda x, name=site.name, known=dict(latent): row.log_joint(environment, {**zeros, **known, name: x})
            slope = tree.scale(jax.grad(F)(zeros[site.name]), 1.0 / row.temperature)
            latent[site.name] = _unit_scaled(row, environment, site, slope.belief(), {**zeros, **latent})
            continue
        natural = own_natural(
            site, row.environment(environment, {**zeros, **latent}), dtype_of(environment), row.temperature
        )
        sample = natural.belief().sample(jax.random.fold_in(key, number))
        # Below a category without a value in this row, a latent has no prior, and does not count.
        sample = jnp.where(jnp.isfinite(sample), sample, jnp.zeros_like(sample))
        with lenient():
            tiny = jnp.asarray(jnp.finfo(sample.dtype).tiny ** 0.25, sample.dtype)
            latent[site.name] = site.kind.of(jnp.maximum(sample, tiny) if site.kind.constraint else sample)
    return latent


def _unit_scaled(row: Row, environment: Environment, site: GraphSite, belief: Any, latent: dict[str, Any]) -> Any:
    r"""Returns \(E[T]\) of a series, all precisions multiplied by the number that maximises its marginal likelihood."""
    # At the mean alone the steps and the noise that a flexible path leaves would start far too small, and an ascent
    # leaves such values slowly. With c times all precisions the log density of the path is n log(c)/2 - c Q/2, and
    # Q is d/c more on average than at the mean: the best c is (n - d)/Q.
    mean = site.kind.of(belief.mean)
    positive = {n: part for n, part in environment.statistics.items() if isinstance(part, PositiveNumbers)}
    if not positive.keys() & site.factor.names:
        return mean
    total = lambda pair: sum(jnp.sum(2.0 * leaf) for leaf in jax.tree.leaves(pair))

    def squares(path: Any) -> tuple[Any, Any]:
        F = lambda parts: row.log_joint(environment.having(parts), {**latent, site.name: path})
        slopes = jax.grad(F)(positive)
        Q = -total({n: slopes[n].value * part.value for n, part in positive.items()})
        return Q, total({n: part.log for n, part in slopes.items()})

    about_zero = site.kind.under(replace(belief, offset=tree.zeros_like(belief.offset)))  # what E[T] has beside T(mean)
    Q, d, n = jax.jvp(squares, (mean,), (about_zero,), has_aux=True)
    scale = jnp.where((n > d) & (Q > 0), Q / jnp.where(n > d, n - d, 1.0), 0.0)
    return tree.add(mean, about_zero, scale)


def _exemplar(place: Any, like: Any) -> Any:
    """Returns one-hot vectors in the first K places, and zeros in the others."""
    K = like.shape[-1]
    return jnp.broadcast_to(jax.nn.one_hot(place, K, dtype=like.dtype), like.shape)
